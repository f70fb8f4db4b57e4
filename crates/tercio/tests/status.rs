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
use tercio_ledger::{DataDir, Identity};
use tercio_network::poll_until;
use tercio_types::ReplicaId;

/// What `status` says; its exit status says whether the network works.
fn status(dir: &Path) -> Value {
    let run = tercio(["status", text(dir), "--json"]);
    let status = run.json();
    let works = status["network"]["works"].as_bool().unwrap();
    assert_eq!((run.code, &run.stderr[..]), (i32::from(!works), ""), "{status:#}");
    status
}

fn sentences(status: &Value) -> String {
    let all = status["network"]["sentences"].as_array().unwrap();
    all.iter().map(|sentence| sentence.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Waits until the sentences have these words.
#[track_caller]
pub(crate) fn wait_for(dir: &Path, words: &str) -> Value {
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
    assert_eq!(never["network"]["works"], false);
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
    let json = tercio(["status", text(&dir), "--json"]).good().stdout.clone();
    for id in 0..4 {
        let replica =
            json.split("{\"id\":").filter(|part| part.starts_with(&format!("{id},\"addr")));
        assert_eq!(replica.count(), 1, "{json}");
    }
    assert_eq!(json.matches("\"id\":").count(), 4 + 4 * 3, "each once, and as a peer of three");
    let shown = tercio(["status", text(&dir)]);
    assert_eq!(shown.good().stdout.lines().count(), 5, "{}", shown.stdout);
    // The home of one of them knows the others by their links.
    let one = status_of_home(&dir, 2);
    assert_eq!(one["replicas"][2]["state"], "up");
    assert_eq!(one["replicas"][0]["state"], "linked");

    // Two that are stopped where they stand: one more than may fail.
    let pids: Vec<u32> = up.reports(4).iter().map(|report| report.pid).collect();
    assert!(kill("-STOP", pids[3]));
    let spare = wait_for(&dir, "no faults to spare");
    assert_eq!(
        (&spare["network"]["works"], &spare["network"]["may_fail"]),
        (&true.into(), &0.into())
    );
    // For those who see it from elsewhere its links are silent, and soon taken down.
    let from_one = poll_until(Duration::from_secs(60), || {
        let seen = status_of_home(&dir, 2);
        (seen["replicas"][3]["state"] == "unlinked").then_some(seen)
    });
    let from_one = from_one.unwrap_or_else(|| panic!("{:#}", status_of_home(&dir, 2)));
    assert_eq!(from_one["replicas"][3]["role"].as_str().map(|role| &role[..9]), Some("elsewhere"));
    assert_eq!(from_one["network"]["voting"], 3);
    assert!(kill("-STOP", pids[2]));
    let stands = wait_for(&dir, "the network stands: 2 of 4");
    assert_eq!(stands["replicas"][2]["state"], "silent");
    writeln!(operations, "add").unwrap();
    let stall = wait_for(&dir, "no progress for");
    assert!(sentences(&stall).contains("of 2 and 3"), "{stall:#}");
    assert_eq!(stall["network"]["works"], false);
    assert!(kill("-CONT", pids[2]) && kill("-CONT", pids[3]));
    wait_for(&dir, "all is well");
    // What was in flight is executed, once.
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
    the_others_are_reported(&dir);
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

/// An audit of all goes on behind what is bad.
fn the_others_are_reported(dir: &Path) {
    let audit = tercio(["audit", text(dir), "--json"]);
    audit.refused(1, &["replica 2", "block 1"]);
    let audit = audit.json();
    let all = audit["replicas"].as_array().unwrap();
    let verdicts: Vec<_> = all.iter().map(|row| row["audit"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["ok", "ok", "failed", "ok"]);
    assert_eq!((&audit["audit"], &all[2]["block"]), (&"failed".into(), &1.into()));
    assert_eq!(audit["compared_height"], 3);
    let heads = audit["heads"].as_object().unwrap();
    assert_eq!(heads.values().collect::<Vec<_>>(), [&serde_json::json!([0, 1, 3])]);
    let text = tercio(["audit", text(dir)]);
    assert_eq!(text.stdout.matches("audit: ok, replica").count(), 3, "{}", text.stdout);
    assert!(text.stdout.contains("audit: FAILED, replica 2: blocks-"), "{}", text.stdout);
}

/// A network of one that was run twice from the start: each log is good by itself.
#[test]
fn logs_that_disagree_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [dir, twin, four] = ["net", "twin", "four"].map(|name| folder.path().join(name));
    tercio(["testnet", "-n", "1", "-o", text(&dir)]).good();
    assert!(Command::new("cp").args(["-r", text(&dir), text(&twin)]).status().unwrap().success());
    for (net, operations) in [(&dir, &["add", "add"][..]), (&twin, &["add"])] {
        let up = Up::start(net);
        tercio([&["submit", text(net)], operations].concat()).good();
        up.stop();
    }
    // As homes of one network, whose own genesis only says how many to look for.
    tercio(["testnet", "-o", text(&four)]).good();
    for id in 0..4 {
        fs::remove_dir_all(four.join(format!("replica-{id}"))).unwrap();
    }
    fs::rename(dir.join("replica-0"), four.join("replica-0")).unwrap();
    tercio(["audit", text(&four)]).good();
    fs::rename(twin.join("replica-0"), four.join("replica-1")).unwrap();
    let audit = tercio(["audit", text(&four), "--json"]);
    audit.refused(1, &["differ at height 1", "replica 0", "replica 1"]);
    let audit = audit.json();
    assert_eq!(
        (&audit["compared_height"], audit["heads"].as_object().unwrap().len()),
        (&1.into(), 2)
    );
    assert!(audit["replicas"].as_array().unwrap().iter().all(|row| row["audit"] == "ok"));
}

/// A home where another kind is wanted: the command for it is named.
#[test]
fn the_wrong_kind_of_home_names_the_right_command() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let (replica, client) = (dir.join("replica-1"), dir.join("clients/1"));
    let (net, replica, client) = (text(&dir), text(&replica), text(&client));
    for (args, words) in [
        (&["start", "--dir", net][..], &["network's directory", "replica-0", "tercio up"][..]),
        (&["start", "--dir", client], &["home of a client", "tercio submit"]),
        (&["up", replica], &["home of one replica", "tercio start --dir"]),
        (&["up", client], &["home of a client", "tercio submit"]),
        (&["submit", replica, "add"], &["home of a replica", "tercio start --dir"]),
        (&["query", replica, "total"], &["home of a replica", "tercio start --dir"]),
        (&["status", client], &["home of a client", "tercio submit"]),
        (&["audit", client], &["home of a client", "tercio submit"]),
        (&["client", "add", replica], &["home of one replica", "network's directory"]),
        (&["client", "approve", client, "00"], &["home of a client", "tercio submit"]),
        (&["client", "approve", net, "00"], &["network's directory", "replica-0"]),
    ] {
        tercio(args.iter()).refused(1, words);
    }
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

/// A replica that replays its log is not down: `status` says how far it is, and so does `up`.
#[test]
fn a_replica_that_replays_its_log_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-n", "1", "-o", text(&dir)]).good();
    // Each operation takes a while, and so does each when it is replayed.
    for genesis in ["", "replica-0", "clients/1"] {
        let file = dir.join(genesis).join("genesis.toml");
        let text = fs::read_to_string(&file).unwrap();
        let slow = text.replace("iterations = 0", "iterations = 10000000");
        assert_ne!(slow, text);
        fs::write(&file, slow).unwrap();
    }
    // That is another network.
    let home = dir.join("replica-0");
    fs::remove_dir_all(home.join("data")).unwrap();
    let apps = tercio_registry::apps();
    let genesis = tercio_genesis::read_genesis(&home.join("genesis.toml"), &apps).unwrap();
    let (chain, replica, suite) = (genesis.chain(), ReplicaId(0), genesis.suite);
    DataDir::create(home.join("data"), &Identity { chain, replica, suite }).unwrap();
    let up = Up::start(&dir);
    let adds = vec!["add"; 100];
    tercio(["submit", text(&dir)].into_iter().chain(adds)).good();
    up.stop();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tercio"))
        .args(["start", "--stop-with-stdin", "--dir", text(&home)])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let replays = poll_until(Duration::from_secs(60), || {
        let replica = status(&dir)["replicas"][0].clone();
        (replica["state"] == "starting").then_some(replica)
    });
    let replays = replays.unwrap_or_else(|| panic!("{:#}", status(&dir)));
    assert!(replays["role"].as_str().unwrap().starts_with("starts: replays "), "{replays:#}");
    assert!(replays["blocks"].as_u64().unwrap() > 1, "{replays:#}");
    wait_for(&dir, "all is well: 1 of 1");
    drop(child.stdin.take());
    child.wait().unwrap();
    let (up, _) = Up::start_with(&dir, &[]);
    assert!(up.said("replica 0: starts: replays "), "it is told before it is ready");
    up.stop();
}

/// Nothing stands on `status.json`: a replica that cannot write it goes on voting, `status` says that
/// its report is old, and it is written again when that can be.
#[test]
fn a_replica_that_cannot_write_its_report_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let up = Up::start(&dir);
    tercio(["submit", text(&dir), "add"]).good();
    let pids: Vec<u32> = up.reports(4).iter().map(|report| report.pid).collect();
    // One more than may fail.
    for id in [1, 2] {
        let file = dir.join(format!("replica-{id}/status.json"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
    }
    let unreported = wait_for(&dir, "replica 2 works, as others hear");
    assert_eq!(unreported["replicas"][1]["state"], "unreported", "{unreported:#}");
    assert_eq!(
        (&unreported["network"]["works"], &unreported["network"]["voting"]),
        (&true.into(), &4.into())
    );
    // With neither of them there would be no quorum.
    tercio(["submit", text(&dir), "add", "add"]).good();
    for id in [1, 2] {
        let said = || {
            let log = fs::read_to_string(dir.join(format!("replica-{id}/stderr.log"))).unwrap();
            log.matches("the replica goes on").count()
        };
        let warned = poll_until(Duration::from_secs(60), || (said() > 0).then_some(()));
        assert!(warned.is_some() && said() == 1, "it is said once");
        fs::remove_dir(dir.join(format!("replica-{id}/status.json"))).unwrap();
    }
    wait_for(&dir, "all is well: 4 of 4");
    let reports = up.reports(4);
    assert_eq!(reports.iter().map(|report| report.pid).collect::<Vec<_>>(), pids, "none ended");
    assert!(reports[1].unwritten_reports > 0 && reports[2].unwritten_reports > 0);
    assert_eq!(reports[0].unwritten_reports, 0);
    up.stop();
}
