//! What `status` says of networks that are well and that are not, and what keeps a replica from
//! starting.

use crate::common;

use common::{Up, kill, tercio, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tercio_network::poll_until;

fn status(dir: &Path) -> Value {
    tercio(["status", text(dir), "--json"]).good().json()
}

fn sentences(status: &Value) -> String {
    let all = status["network"]["sentences"].as_array().unwrap();
    all.iter().map(|sentence| sentence.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Waits until the sentences have these words.
#[track_caller]
fn wait_for(dir: &Path, words: &str) -> Value {
    let mut last = Value::Null;
    let found = poll_until(Duration::from_secs(60), || {
        last = status(dir);
        sentences(&last).contains(words).then(|| last.clone())
    });
    found.unwrap_or_else(|| panic!("'{words}' is not in: {last:#}"))
}

#[test]
fn a_network_says_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let never = status(&dir);
    assert_eq!(never["replicas"][3]["state"], "never_ran");
    assert!(sentences(&never).contains("the network stands: 0 of 4"), "{never:#}");
    let settings = dir.join("clients/1/client.toml");
    fs::write(&settings, "client = 1\ndeadline_ms = 600000\n").unwrap();

    let up = Up::start(&dir);
    // A client that is there before anything goes wrong.
    let mut submit = Command::new(env!("CARGO_BIN_EXE_tercio"))
        .args(["submit", text(&dir), "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut operations = submit.stdin.take().unwrap();
    let mut results = BufReader::new(submit.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&results.next().unwrap().unwrap()).unwrap();
    writeln!(operations, "add").unwrap();
    assert_eq!(next()["result"], 1);
    let well = wait_for(&dir, "all is well: 4 of 4");
    assert_eq!(
        (&well["network"]["works"], &well["replicas"][0]["role"]),
        (&true.into(), &"primary".into())
    );
    for key in ["height", "view", "stable", "progress_ms", "rss_mb", "dropped", "peers"] {
        assert!(!well["replicas"][1][key].is_null(), "{key}: {well:#}");
    }
    let shown = tercio(["status", text(&dir)]);
    assert_eq!(shown.good().stdout.lines().count(), 5, "{}", shown.stdout);
    // The home of one of them knows the others by their links.
    let one = status_of_home(&dir, 2);
    assert_eq!(one["replicas"][2]["state"], "up");
    assert_eq!(one["replicas"][0]["state"], "linked");

    // Two that are stopped where they stand: one more than may fail.
    let pids: Vec<u32> = up.reports(4).iter().map(|report| report.pid).collect();
    assert!(kill("-STOP", pids[3]));
    wait_for(&dir, "no faults to spare");
    assert!(kill("-STOP", pids[2]));
    let stands = wait_for(&dir, "the network stands: 2 of 4");
    assert_eq!(stands["replicas"][2]["state"], "silent");
    writeln!(operations, "add").unwrap();
    let stall = wait_for(&dir, "no progress for");
    assert!(sentences(&stall).contains("of 2 and 3"), "{stall:#}");
    assert_eq!(stall["network"]["works"], false);
    assert!(kill("-CONT", pids[2]) && kill("-CONT", pids[3]));
    wait_for(&dir, "all is well");
    // What was under way is executed, once.
    assert_eq!(next()["result"], 2);
    drop(operations);
    assert!(submit.wait().unwrap().success());
    up.stop();
    let down = status(&dir);
    assert_eq!(down["replicas"][1]["state"], "down");
    assert!(sentences(&down).contains("is down since"), "an old report is no life: {down:#}");
}

fn status_of_home(dir: &Path, id: u16) -> Value {
    status(&dir.join(format!("replica-{id}")))
}

/// Somebody of another network sits where replica 2 should be.
#[test]
fn a_wrong_identity_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, other) = (folder.path().join("net"), folder.path().join("other"));
    for net in [&dir, &other] {
        tercio(["testnet", "-o", text(net)]).good();
    }
    let genesis = fs::read_to_string(dir.join("genesis.toml")).unwrap();
    let addresses: Vec<&str> =
        genesis.lines().filter_map(|line| line.strip_prefix("address = ")).collect();
    fs::rename(dir.join("replica-2"), dir.join("lost")).unwrap();
    let impostor = other.join("replica-2");
    let settings = impostor.join("tercio.toml");
    let text_of = fs::read_to_string(&settings).unwrap();
    fs::write(
        &settings,
        text_of.replace("replica = 2", &format!("replica = 2\nlisten = {}", addresses[2])),
    )
    .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tercio"))
        .args(["start", "--stop-with-stdin", "--dir", text(&impostor)])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let up = Up::start(&dir);
    wait_for(&dir, "another network: the chain ids differ");
    let said = status(&dir);
    assert_eq!(said["replicas"][2]["state"], "unlinked");
    // Without it the network goes on.
    tercio(["submit", text(&dir), "add"]).good();
    up.stop();
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// A flipped bit in one replica's log, while it is down: it is found at the start, fetched from the
/// others and put back, and that is said.
#[test]
fn a_mended_log_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let up = Up::start(&dir);
    tercio(["submit", text(&dir), "add", "add", "add"]).good();
    let all = || up.reports(4).iter().all(|report| report.height == 3).then_some(());
    assert!(poll_until(Duration::from_secs(60), all).is_some(), "{:#?}", up.reports(4));
    // What no certificate covers would be taken for a torn tail.
    let certified = || up.reports(4).iter().all(|report| report.stable >= 3).then_some(());
    assert!(poll_until(Duration::from_secs(60), certified).is_some(), "{:#?}", up.reports(4));
    up.stop();
    let file = dir.join("replica-2/data/blocks/blocks-00000000000000000001");
    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[220] ^= 4;
    fs::write(&file, damaged).unwrap();
    tercio(["audit", text(&dir.join("replica-2"))]).refused(1, &["block 1"]);
    let up = Up::start(&dir);
    let mended = poll_until(Duration::from_secs(60), || {
        let replica = status(&dir)["replicas"][2].clone();
        (replica["repaired_blocks"] == 1).then_some(replica)
    });
    let mended = mended.unwrap_or_else(|| panic!("{:#}", status(&dir)));
    assert_eq!((&mended["damaged_blocks"], &mended["fetched_blocks"]), (&0.into(), &1.into()));
    let shown = tercio(["status", text(&dir)]).good().stdout.clone();
    assert!(shown.contains("log: 0 block(s) damaged, 1 fetched, 1 put back"), "{shown}");
    up.stop();
    assert_eq!(fs::read(&file).unwrap()[..whole.len()], whole);
    tercio(["audit", text(&dir.join("replica-2"))]).good();
}

/// A snapshot of another network among the data: nothing of it is taken.
#[test]
fn a_snapshot_of_another_chain_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    for dir in [&one, &other] {
        tercio(["testnet", "-n", "1", "-o", text(dir)]).good();
        let settings = dir.join("replica-0/tercio.toml");
        let text = fs::read_to_string(&settings).unwrap();
        fs::write(settings, text + "\n[retain]\nsnapshot_bytes = 1\n").unwrap();
    }
    let snapshots = |dir: &Path| dir.join("replica-0/data/snapshots");
    let up = Up::start(&other);
    tercio(["submit", text(&other), "add"]).good();
    // With the checkpoint that idleness brings.
    let snapshot = poll_until(Duration::from_secs(60), || {
        let files = fs::read_dir(snapshots(&other)).unwrap().flatten();
        files.map(|file| file.path()).find(|file| file.extension().is_none())
    });
    let snapshot = snapshot.expect("a snapshot");
    up.stop();
    let place = snapshots(&one).join(snapshot.file_name().unwrap());
    fs::create_dir_all(snapshots(&one)).unwrap();
    fs::copy(&snapshot, &place).unwrap();
    let home = one.join("replica-0");
    tercio(["start", "--dir", text(&home)]).refused(1, &["snapshot", "belongs to chain"]);
    fs::remove_file(place).unwrap();
    Up::start(&one).stop();
}

#[test]
fn homes_that_cannot_be_used_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let home = dir.join("replica-1");
    let start = || tercio(["start", "--dir", text(&home)]);
    // Keys that others can read.
    for (key, run) in [
        (home.join("key"), &start as &dyn Fn() -> common::Run),
        (dir.join("clients/1/key"), &|| tercio(["submit", text(&dir), "add"])),
    ] {
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        run().refused(1, &["others can read", "chmod 600"]);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    }
    // The key of another replica.
    let (own, others) = (home.join("key"), dir.join("replica-2/key"));
    let key = fs::read(&own).unwrap();
    fs::write(&own, fs::read(others).unwrap()).unwrap();
    start().refused(1, &["key", "replica 1"]);
    fs::write(&own, key).unwrap();
    // Files that were written half.
    for (file, run) in [
        (home.join("tercio.toml"), &start as &dyn Fn() -> common::Run),
        (home.join("genesis.toml"), &start),
        (dir.join("clients/1/client.toml"), &|| tercio(["submit", text(&dir), "add"])),
        (dir.join("genesis.toml"), &|| tercio(["status", text(&dir)])),
    ] {
        let name = file.file_name().unwrap().to_str().unwrap();
        let good = fs::read_to_string(&file).unwrap();
        let cut = good.rfind('"').unwrap();
        fs::write(&file, &good[..cut]).unwrap();
        let line = good[..cut].lines().count();
        run().refused(1, &[&format!("{name}:{line}")]);
        fs::write(&file, "").unwrap();
        run().refused(1, &[&format!("{name}:1"), "missing"]);
        fs::write(&file, format!("colour = 1\n{good}")).unwrap();
        run().refused(1, &[&format!("{name}:1"), "colour"]);
        fs::write(&file, good).unwrap();
    }
    tercio(["status", text(folder.path())]).refused(1, &["genesis.toml", "tercio testnet"]);
}
