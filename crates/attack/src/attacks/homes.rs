//! Attacks by homes that are used twice, wrong numbers, and wrong clocks.

use crate::Trouble;
use crate::blocks;
use crate::ground::Ground;
use crate::net::{FIRST_HOSTILE, HOSTILE, VICTIM};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tercio_network::process::ReplicaProcess;
use tercio_network::{client_home, client_id, free_ports, home};

/// How long a command may take that must fail, or do a little.
const PATIENCE: Duration = Duration::from_secs(12);
/// What is far ahead of a client that did nothing yet.
const FAR: [u64; 2] = [1_000_000, 9_000_000_000];
/// How far agreed time may be from this machine's.
const OFF: Duration = Duration::from_secs(600);
/// The number of a copy's home, which is no replica's.
const COPY: u16 = 99;
/// Operations of each of two processes.
const EACH: usize = 200;

fn copy(from: &Path, to: &Path) -> Result<(), Trouble> {
    let status = Command::new("cp").arg("-a").arg("-T").args([from, to]).status()?;
    if status.success() { Ok(()) } else { Err(Trouble::Means(format!("cp: {status}"))) }
}

/// A client's home that nobody else uses here.
fn own_client(ground: &Ground) -> PathBuf {
    client_home(&ground.net.dir, &client_id(FIRST_HOSTILE + HOSTILE - 1).to_string())
}

/// Some operation, as a user writes it.
fn operation(ground: &Ground) -> &'static str {
    ground.net.network.genesis().app.example()
}

/// `submit` from a home whose numbers are ahead by more than the window must end soon and say why.
pub(super) fn submit_far(ground: &mut Ground) -> Result<(), Trouble> {
    let home = own_client(ground);
    let (words, operation) = (home.display().to_string(), operation(ground));
    for number in FAR {
        fs::write(home.join("numbers"), format!("{number}\n"))?;
        match ground.run(&["submit", &words, operation], PATIENCE)? {
            Some((true, _)) => ground.wrong.push(format!("submit used number {number}")),
            Some((false, said)) => ground.notes.push(format!("submit from {number}: {said}")),
            None => ground.wrong.push(format!("submit hangs over number {number}")),
        }
    }
    Ok(())
}

/// A second process of one home must end at once.
pub(super) fn start_twice(ground: &mut Ground) -> Result<(), Trouble> {
    let dir = ground.net.home(VICTIM).display().to_string();
    match ground.run(&["start", "--dir", &dir], PATIENCE)? {
        Some((false, said)) => ground.notes.push(format!("the second: {said}")),
        Some((true, said)) => ground.wrong.push(format!("a second process ended well: {said}")),
        None => ground.wrong.push("one home runs twice".into()),
    }
    Ok(())
}

/// Starts a copy of the victim's home, at another address.
pub(super) fn start_clone(ground: &mut Ground) -> Result<(), Trouble> {
    let clone = home(&ground.net.dir, COPY);
    copy(&ground.net.home(VICTIM), &clone)?;
    let address = free_ports(1)?[0].local_addr()?;
    let file = clone.join("tercio.toml");
    let text = fs::read_to_string(&file)?;
    fs::write(&file, format!("listen = \"{address}\"\n{text}"))?;
    let process = ReplicaProcess::spawn(ground.net.program(), COPY, &clone)?;
    ground.clones.push(process);
    Ok(())
}

/// Ends it; that it may have ended by itself is as good.
pub(super) fn end_clone(ground: &mut Ground) -> Result<(), Trouble> {
    for mut clone in std::mem::take(&mut ground.clones) {
        if let Err(ended) = clone.check() {
            ground.notes.push(ended.to_string());
        }
        clone.kill()?;
    }
    // It is no replica's home, and nobody audits it.
    Ok(fs::remove_dir_all(home(&ground.net.dir, COPY))?)
}

/// Two processes with copies of one client's home: each ends, with results or with a reason.
pub(super) fn submit_twice(ground: &mut Ground) -> Result<(), Trouble> {
    let first = own_client(ground);
    let second = ground.net.dir.join("copied-client");
    copy(&first, &second)?;
    let ops = ground.net.dir.join("operations");
    fs::write(&ops, format!("{}\n", operation(ground)).repeat(EACH))?;
    let (first, second) = (first.display().to_string(), second.display().to_string());
    let ops = ops.display().to_string();
    let mut beside = Command::new(ground.net.program())
        .args(["submit", &second, "--file", &ops])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let ended = ground.run(&["submit", &first, "--file", &ops], 2 * PATIENCE);
    let _ = beside.kill();
    let _ = beside.wait();
    match ended? {
        Some((good, said)) => ground.notes.push(format!("submit ended, well: {good}; {said}")),
        None => ground.wrong.push("submit hangs beside another from a copied home".into()),
    }
    Ok(())
}

/// Starts the first replica again with the machine's own clock.
pub(super) fn right_clock(ground: &mut Ground) -> Result<(), Trouble> {
    ground.net.kill(0)?;
    ground.net.restart(0, None)
}

/// Agreed time must be about this machine's.
#[expect(clippy::disallowed_methods, reason = "it is this clock that counts")]
pub(super) fn time_is_now(ground: &mut Ground) -> Result<(), Trouble> {
    let data = ground.net.home(1).join("data");
    let chain = ground.net.network.genesis().chain();
    let agreed = blocks::last_time(&data, chain, &ground.net.dir)?;
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let off = agreed.abs_diff(here);
    let what = format!("agreed time is {} s from this machine's", off.as_secs());
    if off > OFF {
        ground.wrong.push(what)
    } else {
        ground.notes.push(what)
    }
    Ok(())
}
