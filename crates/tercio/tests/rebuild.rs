//! Disks that are damaged or gone: a log that was cut, and more lost disks than may fail.

use crate::common;
use crate::status::wait_for;

use common::{Up, tercio, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tercio_network::poll_until;

/// A network that did `count` operations, and stopped.
fn stopped(folder: &Path, count: usize) -> PathBuf {
    let dir = folder.join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let up = Up::start(&dir);
    tercio(["submit", text(&dir)].into_iter().chain(vec!["add"; count])).good();
    let executed = || up.reports(4).iter().all(|r| r.height > 0).then_some(());
    assert!(poll_until(Duration::from_secs(60), executed).is_some());
    up.stop();
    dir
}

fn data(dir: &Path, id: u16) -> PathBuf {
    dir.join(format!("replica-{id}/data"))
}

fn add(dir: &Path) -> Value {
    tercio(["submit", text(dir), "add", "--json"]).good().json()["result"].clone()
}

/// Three of four lost their disks, and status says that this does not pass. The operators begin anew
/// from the chain that is left, with nothing lost that it has.
#[test]
fn a_network_that_lost_more_disks_than_may_fail_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let dir = stopped(folder.path(), 5);
    for id in 1..4 {
        fs::remove_dir_all(data(&dir, id)).unwrap();
    }
    let up = Up::start(&dir);
    let stands = wait_for(&dir, "cannot go on by itself: 3 of 4 replicas learn");
    assert_eq!(stands["network"]["works"], false);
    let home = |id: u16| dir.join(format!("replica-{id}"));
    let view = stands["replicas"][0]["view"].to_string();
    let rebuild = |id: u16, from: &Path| {
        let home = home(id);
        tercio(["rebuild", text(&home), "--from", text(from), "--view", &view, "--json"])
    };
    rebuild(1, &data(&dir, 0)).refused(1, &["in use"]);
    up.stop();

    // One copy of what is left, which everybody gets.
    let chosen = folder.path().join("chosen");
    let copied = Command::new("cp").args(["-r", text(&data(&dir, 0)), text(&chosen)]).status();
    assert!(copied.unwrap().success());
    let head = tercio(["audit", text(&home(0)), "--json"]).good().json();
    let same = |json: &Value| ["height", "block", "certified", "view"].map(|key| json[key].clone());
    let rebuilt: Vec<Value> = (0..4).map(|id| rebuild(id, &chosen).good().json()).collect();
    assert_eq!((&rebuilt[0]["height"], &rebuilt[0]["block"]), (&head["height"], &head["head"]));
    assert!(rebuilt.iter().all(|json| same(json) == same(&rebuilt[0])), "{rebuilt:#?}");
    let aside = home(0).join("data.aside-1");
    assert!(aside.join("wal").is_dir(), "nothing was removed");

    let up = Up::start(&dir);
    assert_eq!(add(&dir), 6, "nothing is lost, and nothing is done twice");
    wait_for(&dir, "all is well: 4 of 4");
    assert_eq!(add(&dir), 7);
    let last = || up.reports(4).iter().all(|r| r.stable == r.delivered).then_some(());
    assert!(poll_until(Duration::from_secs(60), last).is_some(), "{:#?}", up.reports(4));
    up.stop();
    let audit = tercio(["audit", text(&dir), "--json"]).good().json();
    assert_eq!(audit["heads"].as_object().unwrap().len(), 1);
    // It is a network like any other, and starts again.
    let up = Up::start(&dir);
    assert_eq!(add(&dir), 8);
    up.stop();
    let other = folder.path().join("other");
    tercio(["testnet", "-o", text(&other)]).good();
    rebuild(0, &data(&other, 0)).refused(1, &["belongs to another network"]);
}

/// What no certificate covers comes along: it is decided again, at its height, in the next view.
#[test]
fn an_agreed_chain_keeps_what_no_certificate_covers() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let home = |id: u16| dir.join(format!("replica-{id}"));
    let chosen = folder.path().join("chosen");
    // A checkpoint comes a second after the last operation: this is to be sooner.
    let mut total = 0;
    let head = poll_until(Duration::from_secs(120), || {
        let up = Up::start(&dir);
        tercio(["submit", text(&dir), "add", "add", "add"]).good();
        total += 3;
        up.kill();
        // Replicas end with whoever started them.
        let audit =
            || Some(tercio(["audit", text(&home(0)), "--json"])).filter(|run| run.code == 0);
        let head = poll_until(Duration::from_secs(60), audit).expect("it has ended").json();
        let all = head["operations"] == total;
        (all && head["last_certified"].as_u64() < head["height"].as_u64()).then_some(head)
    });
    let head = head.expect("it is stopped in time once");
    let copied = Command::new("cp").args(["-r", text(&data(&dir, 0)), text(&chosen)]).status();
    assert!(copied.unwrap().success());
    for id in 0..4 {
        let home = home(id);
        let arguments = ["rebuild", text(&home), "--from", text(&chosen), "--view", "50", "--json"];
        let rebuilt = tercio(arguments).good().json();
        assert_eq!(rebuilt["height"], head["height"], "{rebuilt:#}");
        assert_eq!(rebuilt["certified"], head["last_certified"], "{rebuilt:#}");
    }
    let up = Up::start(&dir);
    assert_eq!(add(&dir), total + 1);
    wait_for(&dir, "all is well: 4 of 4");
    let stable = || up.reports(4).iter().all(|r| r.stable == r.delivered).then_some(());
    assert!(poll_until(Duration::from_secs(60), stable).is_some(), "{:#?}", up.reports(4));
    up.stop();
    let audit = tercio(["audit", text(&dir), "--json"]).good().json();
    assert_eq!(audit["heads"].as_object().unwrap().len(), 1);
    let last = head["height"].to_string();
    let results = tercio(["audit", text(&home(0)), "--results", &last, "--json"]).good().json();
    assert!(!results["certified_at"].is_null(), "it is certified now: {results:#}");
}

/// Half of a write-ahead log is gone, and what is left is whole: the replica knows by the mark beside
/// its blocks, and learns. Damage in the midst is named, with what to do and what not.
#[test]
fn a_log_that_was_cut_makes_a_learner() {
    let folder = tempfile::tempdir().unwrap();
    let dir = stopped(folder.path(), 5);
    let log = |id: u16| data(&dir, id).join("wal/wal-0000000001");
    let whole = fs::read(log(2)).unwrap();
    // Behind the header and the first record.
    fs::write(log(2), &whole[..200]).unwrap();
    let up = Up::start(&dir);
    wait_for(&dir, "replica 2 learner");
    tercio(["submit", text(&dir), "add"]).good();
    let said = fs::read_to_string(dir.join("replica-2/stderr.log")).unwrap();
    assert!(said.contains("wal-0000000001, and was durable up to byte"), "{said}");
    assert_eq!(up.reports(4)[2].dropped["own_log_was_cut"], 1);
    up.stop();
    let mut damaged = fs::read(log(1)).unwrap();
    damaged[100] ^= 1;
    fs::write(log(1), damaged).unwrap();
    let run = tercio(["start", "--dir", text(&dir.join("replica-1"))]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for words in ["wal-0000000001", "put no older copy in its place", "docs/backup.md"] {
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
}
