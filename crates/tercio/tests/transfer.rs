//! State transfer between processes.

use crate::common;

use common::{Up, kill, tercio, text};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tercio_network::poll_until;
use tercio_replica::report::ReplicaReport;

const KEYS: u64 = 420;
const PATIENCE: Duration = Duration::from_secs(120);
/// Snapshots are taken early, and blocks below them go, so that only state helps one that lost all.
const SETTINGS: &str = "
[retain]
bytes = 1
snapshot_bytes = 131072

[ledger]
blocks_per_segment = 16
";

fn home(dir: &Path, i: u16) -> PathBuf {
    dir.join(format!("replica-{i}"))
}

/// The files of a replica's snapshots, the latest last.
fn snapshots(dir: &Path, i: u16) -> Vec<String> {
    let files = fs::read_dir(home(dir, i).join("data/snapshots")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.ends_with(".tmp")).collect();
    names.sort();
    names
}

/// Puts other values into the snapshots of a running replica, under the checksums of the true ones.
fn forge(dir: &Path, i: u16) {
    for name in snapshots(dir, i) {
        let file = home(dir, i).join("data/snapshots").join(name);
        let mut bytes = fs::read(&file).unwrap();
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(6).position(|window| window == b"honest") {
            bytes[at + found..at + found + 6].copy_from_slice(b"forged");
            at += found + 6;
        }
        assert!(at > 0, "nothing to forge");
        OpenOptions::new().write(true).open(&file).unwrap().write_all(&bytes).unwrap();
    }
}

/// A network of processes with the key-value store, and how they are configured.
fn network(folder: &Path, settings: &str) -> (PathBuf, Up) {
    let dir = folder.join("net");
    tercio(["testnet", "-o", text(&dir), "--app", "kv"]).good();
    for i in 0..4 {
        let file = home(&dir, i).join("tercio.toml");
        let settings = fs::read_to_string(&file).unwrap() + settings;
        fs::write(file, settings).unwrap();
    }
    let up = Up::start(&dir);
    (dir, up)
}

/// How many bytes this many writes take at least.
fn fill_bytes(count: u64) -> u64 {
    count * 3840
}

/// The number of a snapshot by its name.
fn number(name: &str) -> u64 {
    name.rsplit('-').next().unwrap().parse().unwrap()
}

/// Writes all keys; the values are 1.6 MB together.
fn fill(folder: &Path, dir: &Path) -> String {
    let operations = folder.join("operations");
    let value = "honest".repeat(640);
    let lines: Vec<_> = (0..KEYS).map(|key| format!("put key{key:04} {value}{key}")).collect();
    fs::write(&operations, lines.join("\n")).unwrap();
    tercio(["submit", text(dir), "--file", text(&operations)]).good();
    value
}

/// Waits until replica `i` has fetched a state and is as far as it must be.
#[track_caller]
fn wait_for(dir: &Path, i: u16, height: u64) -> ReplicaReport {
    let back = poll_until(PATIENCE, || {
        let report = ReplicaReport::read(&home(dir, i)).ok()?;
        let done = report.transfer.as_ref().is_some_and(|transfer| transfer.phase == "done");
        (done && report.height >= height).then_some(report)
    });
    back.unwrap_or_else(|| panic!("not there: {:?}", ReplicaReport::read(&home(dir, i))))
}

#[track_caller]
fn stop_and_audit(dir: &Path, up: Up) {
    up.stop();
    for i in 0..4 {
        tercio(["audit", text(&home(dir, i))]).good();
    }
}

/// f29: a replica stands still while the others go on and let their blocks go, and little of what is
/// sent to it may wait. (That it fetches a state then is tested in the simulator: here the system
/// keeps some frames, too.)
#[test]
fn a_paused_replica_returns() {
    let folder = tempfile::tempdir().unwrap();
    let queue = "\n[links]\nmax_queue = 2097152\n";
    let (dir, up) = network(folder.path(), &(SETTINGS.to_owned() + queue));
    let paused = up.reports(4)[3].pid;
    assert!(kill("-STOP", paused));
    fill(folder.path(), &dir);
    assert!(kill("-CONT", paused));
    let back = poll_until(PATIENCE, || {
        let report = ReplicaReport::read(&home(&dir, 3)).ok()?;
        (report.height >= KEYS && !report.catching_up).then_some(report)
    });
    let back = back.expect("it comes to the others' height");
    assert_eq!(back.pid, paused);
    assert!(back.transfer.is_none_or(|transfer| transfer.dropped.is_empty()));
    stop_and_audit(&dir, up);
}

/// A replica loses its whole disk. One of those that it fetches state from gives values that nobody
/// ever wrote: it is named, and the state is that of the others.
#[test]
fn a_lying_source_is_named_in_status() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, mut up) = network(folder.path(), SETTINGS);
    let value = fill(folder.path(), &dir);
    // At the first checkpoint past a mebibyte of blocks; the next would be past two.
    let settled = poll_until(PATIENCE, || {
        let last = |i| snapshots(&dir, i).pop();
        let past = last(0).is_some_and(|name| number(&name) * fill_bytes(1) > 1 << 20);
        let equal = last(0) == last(1) && last(1) == last(2);
        let all = up.reports(4).iter().all(|report| report.height >= KEYS);
        (past && equal && all).then_some(())
    });
    settled.expect("the replicas have equal snapshots");

    forge(&dir, 0);
    let lost = up.reports(4)[3].pid;
    assert!(kill("-STOP", lost));
    fs::remove_dir_all(home(&dir, 3).join("data")).unwrap();
    assert!(kill("-KILL", lost));
    up.wait_line("replica 3: ready again");
    let back = wait_for(&dir, 3, KEYS);
    let transfer = back.transfer.unwrap();
    assert!(transfer.bytes > 1 << 20, "{transfer:?}");
    let named =
        |dropped: &Value| dropped["replica"] == 0 && dropped["reason"] == "state_wrong_chunk";
    let status = tercio(["status", text(&dir), "--json"]).good().json();
    let dropped = status["replicas"][3]["transfer"]["dropped"].as_array();
    assert!(dropped.is_some_and(|all| all.len() == 1 && named(&all[0])), "{status:#}");
    let answer = tercio(["query", text(&dir), "get key0007", "--json"]).good().json();
    assert!(answer.to_string().contains(&format!("{value}7")), "{answer}");
    stop_and_audit(&dir, up);
}

/// A measurement that is cut off takes its replicas and their files with it.
#[test]
fn a_measurement_that_is_cut_off_leaves_nothing() {
    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Command::new(env!("CARGO_BIN_EXE_tercio"))
            .args(["bench", "transfer", "--rate", "100"])
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pids = poll_until(PATIENCE, || {
            let dir = fs::read_dir(folder.path()).ok()?.next()?.ok()?.path();
            let report = |i| ReplicaReport::read(&home(&dir, i)).ok();
            (0..4).map(|i| report(i).map(|report| report.pid)).collect::<Option<Vec<u32>>>()
        });
        let pids = pids.expect("its replicas start");
        assert!(kill(signal, bench.id()));
        let status = poll_until(PATIENCE, || bench.try_wait().unwrap());
        assert_eq!(status.and_then(|status| status.code()), Some(130), "{signal}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{signal}: {left:?}");
        for pid in pids {
            assert!(!Path::new("/proc").join(pid.to_string()).exists(), "{signal}: {pid} runs");
        }
    }
}
