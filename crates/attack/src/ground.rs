//! One attack from its beginning to its end, and what came of it.

use crate::Trouble;
use crate::attacks::{Attack, Demands};
use crate::history::{self, Counts, Op};
use crate::hostile::{Attacker, Part, READY_FILE};
use crate::load::{Fared, Load};
use crate::net::{ASKER, FIRST_HOSTILE, HOSTILE, LOADERS, Net, Plan, QUORUM};
use bytes::Bytes;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tercio_network::process::ReplicaProcess;
use tercio_network::{client_id, now, pause};
use tercio_replica::report::ReplicaReport;

/// How long the load runs before anything counts, and then without an attack.
const WARM_UP: Duration = Duration::from_secs(1);
const BEFORE: Duration = Duration::from_secs(3);
/// After all are level, for what comes late.
const AFTER: Duration = Duration::from_secs(1);
/// How long an attacker may need for what it begins with.
const READY: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// After that it is not waited for any more.
const LEVEL_PATIENCE: Duration = Duration::from_secs(30);
const LAG: Duration = Duration::from_millis(300);
/// One-way delays that half of all results may take at most.
const WAYS: u32 = 4;
/// How long the wide-area links have to become known.
const LEARN: Duration = Duration::from_secs(10);

/// What an attack works on while it runs.
pub(crate) struct Ground {
    pub(crate) net: Net,
    attackers: Vec<Attacker>,
    /// Copies of replicas that run beside them.
    pub(crate) clones: Vec<ReplicaProcess>,
    /// What must not be, in words.
    pub(crate) wrong: Vec<String>,
    /// What else is worth knowing.
    pub(crate) notes: Vec<String>,
    next_hostile: usize,
    watch: Watch,
}

impl Ground {
    /// Starts attackers, each with a client's key of its own.
    pub(crate) fn attack(&mut self, part: Part, processes: usize) -> Result<(), Trouble> {
        for _ in 0..processes {
            let client = self.next_hostile;
            self.next_hostile += 1;
            assert!(client < FIRST_HOSTILE + HOSTILE, "the genesis has keys for all");
            self.attackers.push(Attacker::start(part, &self.net.dir, client, 1)?);
        }
        Ok(())
    }

    /// Starts one that has the keys of many clients, and waits until it has its links, or gets no
    /// more of them.
    pub(crate) fn attack_with(&mut self, part: Part, clients: usize) -> Result<(), Trouble> {
        let attacker = Attacker::start(part, &self.net.dir, FIRST_HOSTILE + HOSTILE, clients)?;
        self.attackers.push(attacker);
        let (ready, start) = (self.net.dir.join(READY_FILE), now());
        while !ready.exists() && start.elapsed() < READY {
            self.wait(LOOK);
        }
        Ok(())
    }

    /// Lets time go by, and keeps an eye on the replicas.
    pub(crate) fn wait(&mut self, time: Duration) {
        let end = now() + time;
        while now() < end {
            self.watch.look(&self.net);
            pause(LOOK);
        }
    }

    /// Runs the product beside the network for a while; what it said and how it ended, if it did.
    pub(crate) fn run(
        &mut self,
        words: &[&str],
        patience: Duration,
    ) -> Result<Option<(bool, String)>, Trouble> {
        let out = tempfile::tempfile()?;
        let mut child = Command::new(self.net.program())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out.try_clone()?)
            .spawn()?;
        let end = now() + patience;
        let status = loop {
            self.watch.look(&self.net);
            match child.try_wait()? {
                Some(status) => break Some(status.success()),
                None if now() >= end => break None,
                None => pause(LOOK),
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        let said = last_line(out)?;
        Ok(status.map(|good| (good, said)))
    }
}

fn last_line(mut file: std::fs::File) -> Result<String, Trouble> {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("").to_owned())
}

/// What the replicas say of themselves, over time.
#[derive(Default)]
struct Watch {
    reports: BTreeMap<u16, ReplicaReport>,
    /// The greatest height that one had, and when that was seen.
    heights: VecDeque<(Option<Instant>, u64)>,
    view: u64,
}

impl Watch {
    fn look(&mut self, net: &Net) {
        self.reports = net.reports();
        let highest = self.reports.values().map(|report| report.height).max().unwrap_or(0);
        self.heights.push_back((Some(now()), highest));
        if self.heights.len() > 1000 {
            self.heights.pop_front();
        }
        // The latest view that f+1 have entered: one of them is correct.
        let mut views: Vec<u64> =
            self.reports.values().filter(|report| !report.changing).map(|r| r.view).collect();
        views.sort_unstable();
        if let Some(second) = views.iter().rev().nth(1) {
            self.view = self.view.max(*second);
        }
    }

    /// The replicas that are not in the view of the others, or not where the first of them was a
    /// moment ago, in words.
    fn behind<'a>(&self, running: impl Iterator<Item = &'a u16>) -> Vec<String> {
        let before = now().checked_sub(LAG);
        let goal = self.heights.iter().rev().find(|(at, _)| *at <= before);
        let goal = goal.map_or(u64::MAX, |(_, height)| *height);
        let of = |id: &u16| {
            let Some(report) = self.reports.get(id) else {
                return Some(format!("replica {id} says nothing"));
            };
            let ReplicaReport { height, view, changing, catching_up, .. } = report;
            let steady = !changing && !catching_up && *view == self.view;
            (!steady || *height < goal).then(|| {
                format!(
                    "replica {id}: height {height} of {goal}, view {view} of {}, changing \
                     {changing}, catching up {catching_up}",
                    self.view
                )
            })
        };
        running.filter_map(of).collect()
    }
}

/// What came of an attack.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) attack: String,
    /// Results a second of all good clients, without it and during it.
    pub(crate) before_rps: f64,
    pub(crate) during_rps: f64,
    pub(crate) ratio: f64,
    pub(crate) p50_ms: f64,
    /// The longest time without a result during it.
    pub(crate) gap_ms: f64,
    pub(crate) view_changes: u64,
    /// From its end until all replicas were level; none when they were not.
    pub(crate) level_s: Option<f64>,
    /// Operations with a result, and those that have none.
    pub(crate) acknowledged: u64,
    pub(crate) open: u64,
    /// What must not be; nothing when all is as it must be.
    pub(crate) wrong: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl Row {
    /// Of an attack that could not be made.
    pub(crate) fn failed(name: &str, why: String) -> Self {
        Self {
            attack: name.to_owned(),
            before_rps: 0.0,
            during_rps: 0.0,
            ratio: 0.0,
            p50_ms: 0.0,
            gap_ms: 0.0,
            view_changes: 0,
            level_s: None,
            acknowledged: 0,
            open: 0,
            wrong: vec![why],
            notes: vec![],
        }
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

/// Makes these attacks at once on a network of its own in `dir`. `control` is the part of the
/// results of before that good clients get without an attack.
pub(crate) fn run(
    attacks: &[&Attack],
    dir: &Path,
    program: &Path,
    control: f64,
) -> Result<Row, Trouble> {
    let mut plan = Plan::default();
    attacks.iter().for_each(|attack| (attack.prepare)(&mut plan));
    let net = Net::start(dir, program, &plan)?;
    let (wrong, notes, attackers, clones) = (vec![], vec![], vec![], vec![]);
    let watch = Watch::default();
    let mut ground =
        Ground { net, attackers, clones, wrong, notes, next_hostile: FIRST_HOSTILE, watch };
    let clients = (0..LOADERS).map(|i| ground.net.client(i)).collect::<Result<_, _>>()?;
    let load = Load::start(clients);
    ground.wait(WARM_UP);
    let begin = load.since();
    ground.wait(BEFORE);
    let (struck, view) = (load.since(), ground.watch.view);
    for attack in attacks {
        (attack.begin)(&mut ground)?;
    }
    let demands = attacks.iter().map(|attack| attack.demands).reduce(Demands::and);
    let demands = demands.expect("at least one attack");
    // Wide links have some time to become known.
    let (mut from, mut view) = (struck, view);
    if demands.one_way.is_some() {
        ground.wait(LEARN);
        (from, view) = (load.since(), ground.watch.view);
    }
    let seconds = attacks.iter().map(|attack| attack.seconds).max().expect("at least one");
    ground.wait(Duration::from_secs(seconds));
    let over = load.since();
    let level = end(&mut ground, attacks)?;
    ground.wait(AFTER);
    let view_changes = ground.watch.view.saturating_sub(view);
    let history = load.stop();
    let [before, during] = [(begin, struck), (from, over)].map(|(a, b)| Fared::of(&history, a, b));
    let mut row = Row {
        attack: attacks.iter().map(|attack| attack.name).collect::<Vec<_>>().join("+"),
        before_rps: before.rate.round(),
        during_rps: during.rate.round(),
        ratio: (during.rate / before.rate.max(1e-9) * 1e3).round() / 1e3,
        p50_ms: ms(during.p50),
        gap_ms: ms(during.gap),
        view_changes,
        level_s: level.map(|level| (level.as_secs_f64() * 10.0).round() / 10.0),
        acknowledged: history.iter().filter(|op| op.returned.is_some()).count() as u64,
        open: history.iter().filter(|op| op.returned.is_none()).count() as u64,
        wrong: vec![],
        notes: vec![],
    };
    demand(&mut ground, &row, demands, during.p50, control);
    conclude(&mut ground, attacks, &history);
    (row.wrong, row.notes) = (ground.wrong, ground.notes);
    Ok(row)
}

/// Ends the attacks; how long it then takes until all are level.
fn end(ground: &mut Ground, attacks: &[&Attack]) -> Result<Option<Duration>, Trouble> {
    let attackers = std::mem::take(&mut ground.attackers);
    ground.notes.extend(attackers.into_iter().map(Attacker::stop));
    for attack in attacks {
        (attack.heal)(ground)?;
    }
    let healed = now();
    while healed.elapsed() < LEVEL_PATIENCE {
        ground.watch.look(&ground.net);
        if ground.watch.behind(ground.net.replicas.keys()).is_empty() {
            return Ok(Some(healed.elapsed()));
        }
        if !ground.net.ended().is_empty() {
            break;
        }
        pause(LOOK);
    }
    ground.notes.extend(ground.watch.behind(ground.net.replicas.keys()));
    Ok(None)
}

/// Holds the figures against what is demanded.
fn demand(ground: &mut Ground, row: &Row, demands: Demands, p50: Duration, control: f64) {
    let least = demands.part * control.min(1.0);
    if row.ratio < least {
        let what = format!("good clients got {} of their results, below {least:.2}", row.ratio);
        ground.wrong.push(what);
    }
    if row.view_changes > demands.views {
        let what = format!("{} view changes, above {}", row.view_changes, demands.views);
        ground.wrong.push(what);
    }
    if row.level_s.is_none_or(|level| level > demands.level.as_secs_f64()) {
        let level = row.level_s.map_or("never".into(), |level| format!("after {level:.1} s"));
        let most = demands.level.as_secs_f64();
        ground.wrong.push(format!("all were level {level}, not within {most:.1} s"));
    }
    if let Some(way) = demands.one_way
        && (p50 > way * WAYS || p50.is_zero())
    {
        let what = format!("p50 {} ms, above {WAYS} one-way delays", p50.as_millis());
        ground.wrong.push(what);
    }
}

/// Looks whether all run, checks the history, and stops and audits the replicas.
fn conclude(ground: &mut Ground, attacks: &[&Attack], history: &[Op]) {
    let ended = ground.net.ended();
    let running = ground.net.replicas.len() - ended.len();
    let counts = if running >= QUORUM {
        counts(&ground.net).map_err(|e| ground.wrong.push(format!("no counts: {e}"))).ok()
    } else {
        None
    };
    ground.wrong.extend(ended.iter().cloned());
    if let Err(wrong) = history::check(history, counts.as_ref()) {
        ground.wrong.push(wrong.to_string());
    }
    for attack in attacks {
        if let Err(error) = (attack.look)(ground) {
            ground.wrong.push(error.to_string());
        }
    }
    let stopped = ground.net.stop();
    ground.wrong.extend(stopped.into_iter().filter(|said| !ended.contains(said)));
    let dir = ground.net.dir.display().to_string();
    match ground.run(&["audit", &dir], Duration::from_secs(60)) {
        Ok(Some((true, _))) => {}
        Ok(Some((false, said))) => ground.wrong.push(format!("audit: {said}")),
        Ok(None) => ground.wrong.push("the audit takes more than a minute".into()),
        Err(error) => ground.wrong.push(error.to_string()),
    }
}

/// What the counter says in the end.
fn counts(net: &Net) -> Result<Counts, Trouble> {
    let mut asker = net.client(ASKER)?;
    let mut ask = |question: Bytes| {
        let read = asker.read(question).map_err(|error| Trouble::Means(error.to_string()))?;
        let number = read.answer.first_chunk().copied().map(u64::from_le_bytes);
        number.ok_or_else(|| Trouble::Means("a count has 8 bytes".into()))
    };
    let total = ask(Bytes::new())?;
    let of = |i| Bytes::copy_from_slice(&client_id(i).0.to_le_bytes());
    let clients = (0..LOADERS).map(|i| ask(of(i))).collect::<Result<_, _>>()?;
    Ok(Counts { total, clients })
}
