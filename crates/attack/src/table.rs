//! What is made in a run, and what is printed of it.

use crate::attacks::{ATTACKS, Attack, Need, named, pairs};
use crate::ground::{self, Row};
use crate::{Run, Trouble, net};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tercio_crypto::hash;
use tercio_types::Suite;

/// Prints all attacks.
pub(crate) fn list() {
    for attack in ATTACKS {
        println!("{:<20} {}", attack.name, attack.what);
    }
    println!("{:<20} two of them at once, of {} pairs", "one+other", pairs().len());
}

#[derive(Serialize)]
struct Report<'a> {
    seed: u64,
    cores: usize,
    /// Whether this process has a network of its own, apart from the machine's.
    own_network: bool,
    rows: &'a [Row],
    skipped: &'a [String],
    passed: usize,
    failed: usize,
}

/// Makes the attacks; whether all came out as they must.
pub(crate) fn run(run: &Run) -> Result<bool, Trouble> {
    let program = run.program.canonicalize().map_err(|error| {
        let what = format!("{}: {error}; build it, or name it by --program", run.program.display());
        Trouble::Means(what)
    })?;
    let chosen = choose(run)?;
    let folder = tempfile::tempdir()?;
    let own_network = own_network();
    say_where(own_network);
    let lacks = lacks(folder.path());
    let (mut rows, mut skipped, mut control) = (vec![], vec![], 1.0);
    head();
    for attacks in &chosen {
        let needs = |need: &&Need| attacks.iter().any(|attack| attack.needs.contains(need));
        let name = attacks.iter().map(|attack| attack.name).collect::<Vec<_>>().join("+");
        if let Some(need) = lacks.iter().find(needs) {
            println!("!! {name} SKIPPED: {}", lack(*need));
            skipped.push(name);
            continue;
        }
        let dir = folder.path().join(&name);
        let row = ground::run(attacks, &dir, &program, control)
            .map_err(|error| Trouble::Means(format!("{name}: {error}")))
            .unwrap_or_else(|error| Row::failed(&name, error.to_string()));
        if rows.is_empty() {
            control = row.ratio;
        }
        print(&row);
        keep(&row, &dir, run.keep.as_deref())?;
        rows.push(row);
    }
    let failed = rows.iter().filter(|row| !row.wrong.is_empty()).count();
    let passed = rows.len() - failed;
    println!("{passed} good, {failed} bad, {} skipped", skipped.len());
    if run.json {
        let (rows, skipped) = (&rows[..], &skipped[..]);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let report = Report { seed: run.seed, cores, own_network, rows, skipped, passed, failed };
        println!("{}", serde_json::to_string(&report).expect("a report is JSON"));
    }
    Ok(failed == 0 && (skipped.is_empty() || !run.all))
}

/// The control first, then what was asked for: without words all single ones, and some pairs.
fn choose(run: &Run) -> Result<Vec<Vec<&'static Attack>>, Trouble> {
    let mut chosen = vec![vec![&ATTACKS[0]]];
    if run.only.is_empty() {
        chosen.extend(ATTACKS[1..].iter().map(|attack| vec![attack]));
        let mut pairs = pairs();
        for i in 0..run.pairs.min(pairs.len()) as u64 {
            let seed = [run.seed.to_le_bytes(), i.to_le_bytes()].concat();
            let word = hash(Suite::default(), &[&seed]).0;
            let at = u64::from_le_bytes(*word.first_chunk().expect("32 bytes")) as usize;
            chosen.push(pairs.swap_remove(at % pairs.len()).to_vec());
        }
        return Ok(chosen);
    }
    for only in &run.only {
        let attacks = only.split('+').map(|name| {
            let unknown = || Trouble::Means(format!("there is no attack '{name}'; see `list`"));
            named(name).ok_or_else(unknown)
        });
        let attacks = attacks.collect::<Result<Vec<_>, _>>()?;
        if attacks.iter().any(|attack| attack.name != ATTACKS[0].name) {
            chosen.push(attacks);
        }
    }
    Ok(chosen)
}

/// Whether nothing but the loopback network is here: a namespace of this run's own has no other.
fn own_network() -> bool {
    let links = std::fs::read_dir("/sys/class/net").map(|all| all.flatten().count());
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    devices.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"))
        || links.is_ok_and(|n| n == 1)
}

fn say_where(own_network: bool) {
    if own_network {
        println!("in a network namespace of its own");
    } else {
        println!("!! on the machine's own loopback network: no namespaces");
    }
}

fn lacks(dir: &Path) -> Vec<Need> {
    let mut lacks = vec![];
    if !net::may_mount(dir) {
        lacks.push(Need::Mounts);
    }
    if net::fake_time().is_none() {
        lacks.push(Need::FakeTime);
    }
    lacks
}

fn lack(need: Need) -> &'static str {
    match need {
        Need::Mounts => "this process may not mount file systems",
        Need::FakeTime => "libfaketime is not installed",
    }
}

fn head() {
    println!(
        "{:<34} {:>6} {:>6} {:>6} {:>8} {:>8} {:>5} {:>7} {:>6} {:>5}",
        "attack",
        "before",
        "during",
        "part",
        "p50 ms",
        "gap ms",
        "views",
        "level s",
        "acked",
        "open"
    );
}

fn print(row: &Row) {
    let level = row.level_s.map_or_else(|| "never".to_owned(), |level| format!("{level:.1}"));
    println!(
        "{:<34} {:>6} {:>6} {:>6.2} {:>8.1} {:>8.1} {:>5} {:>7} {:>6} {:>5}  {}",
        row.attack,
        row.before_rps,
        row.during_rps,
        row.ratio,
        row.p50_ms,
        row.gap_ms,
        row.view_changes,
        level,
        row.acknowledged,
        row.open,
        if row.wrong.is_empty() { "good" } else { "BAD" }
    );
    row.wrong.iter().for_each(|wrong| println!("    wrong: {wrong}"));
    row.notes.iter().for_each(|note| println!("    {note}"));
}

/// Keeps the network of an attack that failed.
fn keep(row: &Row, dir: &Path, place: Option<&Path>) -> Result<(), Trouble> {
    if let Some(place) = place.filter(|_| !row.wrong.is_empty()) {
        std::fs::create_dir_all(place)?;
        let to: PathBuf = place.join(&row.attack);
        let status = std::process::Command::new("cp").arg("-a").args([dir, &to]).status()?;
        println!("    kept: {} ({status})", to.display());
    }
    // What is not kept need not stay until the end.
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}
