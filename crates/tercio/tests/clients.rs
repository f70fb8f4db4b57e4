//! Clients that are added, before a network has run and while it does.

use crate::common;

use common::{Up, tercio, text};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tercio_network::poll_until;

fn add(dir: &Path, arguments: &[&str]) -> common::Run {
    tercio(["client", "add", text(dir), "--json"].iter().chain(arguments))
}

fn submit(dir: &Path, client: &str) -> Value {
    tercio(["submit", text(dir), "--client", client, "add", "--json"]).good().json()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Waits until all replicas have the same height, so that each has executed all there is.
fn settle(up: &Up, n: u16) {
    let level = || {
        let heights: Vec<u64> = up.reports(n).iter().map(|report| report.height).collect();
        heights.iter().all(|height| *height == heights[0]).then_some(())
    };
    assert!(poll_until(Duration::from_secs(60), level).is_some(), "{:#?}", up.reports(n));
}

/// The genesis is the chain's name: before it has run, a network gets another one.
#[test]
fn before_the_first_start_the_genesis_gets_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-n", "1", "-o", text(&dir), "--clients", "1"]).good();
    let json = add(&dir, &["--name", "alice"]).good().json();
    assert_eq!((&json["client"], &json["genesis"]), (&2.into(), &true.into()));
    assert_eq!(mode(&dir.join("clients/alice/key")), 0o600);
    add(&dir, &["--name", "alice"]).refused(1, &["exists already"]);
    add(&dir, &["--name", "../x"]).refused(2, &["--name"]);
    let up = Up::start(&dir);
    for client in ["alice", "1"] {
        submit(&dir, client);
    }
    up.stop();
    // It has run, so the replicas are asked; nobody is there.
    let settings = dir.join("clients/1/client.toml");
    fs::write(&settings, "client = 1\nconnect_ms = 100\n").unwrap();
    add(&dir, &["--client", "1"]).refused(1, &["tercio up"]);
    tercio(["audit", text(&dir.join("replica-0"))]).good();
}

/// A client is added in order with all operations; it uses its signatures or MACs with every
/// replica, over restarts of any of them, and a replica that lost its disk learns of it.
#[test]
fn a_running_network_adds_a_client_and_keeps_it() {
    for auth in ["mac", "signature"] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("net");
        tercio(["testnet", "-o", text(&dir), "--auth", auth, "--clients", "1"]).good();
        let mut up = Up::start(&dir);
        submit(&dir, "1");
        let json = add(&dir, &["--name", "alice"]).good().json();
        assert_eq!((&json["client"], &json["genesis"]), (&2.into(), &false.into()));
        assert_eq!(mode(&dir.join("clients/alice/key")), 0o600);
        let alice = fs::read_to_string(dir.join("clients/alice/client.toml")).unwrap();
        assert!(alice.contains("added = true") && alice.contains(auth), "{alice}");
        assert_eq!(submit(&dir, "alice")["result"], 2);
        // Without a name it is called by its number, and it can ask for another.
        let json = add(&dir, &["--signing", "p256", "--client", "alice"]).good().json();
        assert_eq!(json["home"], text(&dir.join("clients/3")));
        assert_eq!(submit(&dir, "3")["result"], 3);
        add(&dir, &["--name", "alice"]).refused(1, &["exists already"]);
        settle(&up, 4);

        // One is killed, one loses its disk, and then all restart.
        let pid = up.reports(4)[1].pid;
        assert!(common::kill("-KILL", pid));
        up.wait_line("replica 1: ready again");
        assert_eq!(submit(&dir, "3")["result"], 4);
        up.stop();
        fs::remove_dir_all(dir.join("replica-2/data")).unwrap();
        let up = Up::start(&dir);
        assert_eq!(submit(&dir, "alice")["result"], 5);
        assert_eq!(submit(&dir, "3")["result"], 6);
        settle(&up, 4);
        up.stop();
        for i in 0..4 {
            tercio(["audit", text(&dir.join(format!("replica-{i}")))]).good();
        }
    }
}

/// Operators who share nothing but public keys, and a client of nobody's machine.
#[test]
fn operators_elsewhere_approve_of_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let up = Up::start(&dir);
    submit(&dir, "1");
    let home = folder.path().join("carol");
    let key = tercio(["init", text(&home), "--json"]).good().json()["public_key"].clone();
    let key = key.as_str().unwrap();
    let approve = |i: u16| {
        let run = tercio(["client", "approve", text(&dir.join(format!("replica-{i}"))), key]);
        run.good().stdout.trim().to_owned()
    };
    let (one, two) = (approve(1), approve(2));
    let replica = dir.join("replica-1");
    let json = tercio(["client", "approve", text(&replica), key, "--json"]).good().json();
    assert_eq!((&json["replica"], json["approval"].as_str()), (&1.into(), Some(one.as_str())));
    let ask = |approvals: &[&str]| {
        let mut arguments = vec!["--key", key];
        approvals.iter().for_each(|approval| arguments.extend(["--approval", approval]));
        add(&dir, &arguments)
    };
    // Too few, too many, one twice, one altered, one of another, and no approval at all.
    ask(&[&one]).refused(2, &["exactly 2", "names 1"]);
    ask(&[&one, &two, &approve(3)]).refused(2, &["exactly 2", "names 3"]);
    ask(&[&one, &one]).refused(2, &["two are of replica 1"]);
    let altered = format!("{}{}", &two[..two.len() - 1], if two.ends_with('0') { 1 } else { 0 });
    ask(&[&one, &altered]).refused(1, &["no signature of its replica"]);
    let renamed = format!("0{}", &two[1..]);
    ask(&[&one, &renamed]).refused(1, &["no signature of its replica"]);
    ask(&[&one, "2:zz"]).refused(2, &["--approval", "tercio client approve"]);
    tercio(["client", "approve", text(&dir.join("replica-1")), "ab"]).refused(2, &["public key"]);
    // A key that is a replica's.
    let genesis = fs::read_to_string(dir.join("genesis.toml")).unwrap();
    let taken = genesis.lines().find_map(|line| line.strip_prefix("key = ")).unwrap();
    let taken = taken.trim_matches('"');
    let sign = |i: u16| {
        let run = tercio(["client", "approve", text(&dir.join(format!("replica-{i}"))), taken]);
        run.good().stdout.trim().to_owned()
    };
    add(&dir, &["--key", taken, "--approval", &sign(0), "--approval", &sign(1)])
        .refused(1, &["a replica has this key"]);
    // A stranger under the number that the next client gets.
    let genesis = dir.join("genesis.toml");
    let init = |home: &Path, arguments: &[&str]| {
        tercio(["init", text(home), "--genesis", text(&genesis)].iter().chain(arguments))
    };
    init(&home, &["--added-as", "1"]).refused(2, &["leave it out"]);
    init(&home, &["--added-as", "3"]).good();
    let settings = home.join("client.toml");
    let joined = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("connect_ms = 300\n{joined}")).unwrap();
    tercio(["submit", text(&home), "add"]).refused(1, &["id is not in the listener's"]);
    fs::write(&settings, joined).unwrap();

    let json = ask(&[&one, &two]).good().json();
    assert_eq!((&json["client"], &json["home"]), (&3.into(), &Value::Null));
    // Whoever asks again adds nobody.
    assert_eq!(ask(&[&two, &one]).good().json()["client"], 3);
    assert_eq!(tercio(["submit", text(&home), "add", "--json"]).good().json()["result"], 2);
    up.stop();
}

/// A client's home of one network with the addresses of another: it says so at once, with both
/// chains, and not after its time for links that nobody answers for.
#[test]
fn a_home_of_another_chain_is_told_both_chains() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, other) = (folder.path().join("net"), folder.path().join("other"));
    for net in [&dir, &other] {
        tercio(["testnet", "-o", text(net)]).good();
    }
    let genesis = |dir: &Path| fs::read_to_string(dir.join("genesis.toml")).unwrap();
    let addresses = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("address = ")).map(str::to_owned).collect()
    };
    let mut stranger = genesis(&other);
    for (from, to) in addresses(&stranger).iter().zip(addresses(&genesis(&dir))) {
        stranger = stranger.replace(from, &to);
    }
    let home = other.join("clients/1");
    fs::write(home.join("genesis.toml"), stranger).unwrap();
    let settings = home.join("client.toml");
    // Longer than a test is waited for.
    fs::write(&settings, "client = 1\nconnect_ms = 3600000\n").unwrap();
    let chain = |dir: &Path| {
        let apps = tercio_registry::apps();
        tercio_genesis::read_genesis(&dir.join("genesis.toml"), &apps).unwrap().chain().to_string()
    };
    let up = Up::start(&dir);
    let (ours, theirs) = (chain(&home), chain(&dir));
    assert_ne!(ours, theirs);
    let run = tercio(["submit", text(&home), "add"]);
    run.refused(1, &[&format!("of chain {ours}"), &format!("of chain {theirs}"), "genesis.toml"]);
    up.stop();
}
