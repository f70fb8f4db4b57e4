//! Networks as operators make and run them: `testnet`, `init`, `genesis`, `up`.

use crate::common;

use common::{Up, tercio, text};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tercio_replica::report::ReplicaReport;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// How long the four take is said; `TERCIO_READY_MS`, when it is set, is how long they may.
#[test]
#[expect(clippy::print_stdout, reason = "how long they took")]
fn testnet_makes_every_file_and_up_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    let made = tercio(["testnet", "-n", "4", "-o", text(&dir), "--clients", "3", "--json"]);
    let json = made.good().json();
    assert_eq!(json["replicas"].as_array().unwrap().len(), 4);
    assert_eq!(json["clients"].as_array().unwrap().len(), 3);
    for home in ["replica-0", "replica-3", "clients/1", "clients/3"] {
        assert_eq!(mode(&dir.join(home).join("key")), 0o600);
        assert_eq!(
            fs::read(dir.join(home).join("genesis.toml")).unwrap(),
            fs::read(dir.join("genesis.toml")).unwrap()
        );
    }
    tercio(["testnet", "-o", text(&dir)]).refused(1, &["not empty"]);

    let (up, line) = Up::start_with(&dir, &["--json"]);
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let ready_ms = ready["ready_ms"].as_f64().unwrap();
    println!("four replicas ready after {ready_ms} ms");
    assert!(ready_ms > 0.0, "{ready}");
    // Whoever was said to run does, and all four answer.
    let pids = up.reports(4).into_iter().map(|report| (report.id.into(), report.pid.into()));
    let said = ready["replicas"].as_array().unwrap().iter();
    let said = said.map(|r| (r["id"].as_u64().unwrap(), r["pid"].as_u64().unwrap()));
    assert!(pids.eq(said), "{ready}");
    tercio(["submit", text(&dir), "add"]).good();
    let status = || tercio(["status", text(&dir), "--json"]).json();
    let all = || (status()["network"]["voting"] == 4).then_some(());
    assert!(tercio_network::poll_until(Duration::from_secs(60), all).is_some(), "{}", status());
    if let Ok(most) = std::env::var("TERCIO_READY_MS") {
        let most: f64 = most.parse().expect("a number");
        assert!(ready_ms <= most, "the four processes took {ready_ms} ms, above {most}");
    }
    // They run: a second one on the same homes is refused, and stops what it started.
    tercio(["up", text(&dir)]).refused(1, &["in use"]);
    let pids: Vec<u32> = up.reports(4).iter().map(|report| report.pid).collect();
    up.stop();
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} was left behind");
    }
    for i in 0..4 {
        tercio(["audit", text(&dir.join(format!("replica-{i}")))]).good();
    }
    // What the one operation gave is kept, and said.
    let home = dir.join("replica-1");
    let results = tercio(["audit", text(&home), "--results", "1", "--json"]).good().json();
    let row = &results["packages"][0]["results"][0];
    assert_eq!((row["status"].as_str(), row["result"].as_u64()), (Some("Executed"), Some(1)));
    assert_eq!(results["height"], 1, "{results}");
    let said = tercio(["audit", text(&home), "--results", "1"]).good().stdout.clone();
    assert!(said.contains("number 1: ") && said.contains("block 1: results"), "{said}");
    tercio(["audit", text(&home), "--results", "9"]).refused(1, &["none of block 9"]);
    tercio(["audit", text(&dir), "--results", "1"]).refused(1, &["the home of one replica"]);
}

/// A replica that is killed comes back; one that cannot run is given up without harm to the rest.
#[test]
fn up_starts_what_ends_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let mut up = Up::start(&dir);
    let killed = up.reports(4)[2].pid;
    assert!(common::kill("-KILL", killed));
    up.wait_line("replica 2 ended by itself (signal: 9 (SIGKILL))");
    up.wait_line("replica 2: ready again");
    assert_ne!(ReplicaReport::read(&dir.join("replica-2")).unwrap().pid, killed);
    up.stop();
}

/// What keeps one replica from running is said, and stops none of the others.
#[test]
fn up_goes_on_without_a_replica_that_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let settings = |id: u16| dir.join(format!("replica-{id}/tercio.toml"));
    let good = fs::read_to_string(settings(2)).unwrap();
    let bad = good.replace("[consensus]\n", "[consensus]\nclient_ops = 0\n");
    let why = "replica-2/tercio.toml:6: client_ops: must be 1024 to 16777216";

    // A number that makes no sense.
    fs::write(settings(2), &bad).unwrap();
    assert!(bad.lines().nth(5).unwrap().starts_with("client_ops"), "{bad}");
    let (mut up, line) = Up::start_with(&dir, &["--json"]);
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["replicas"].as_array().unwrap().len(), 3, "{ready}");
    assert_eq!(ready["down"][0]["id"], 2, "{ready}");
    assert!(ready["down"][0]["why"].as_str().unwrap().contains(why), "{ready}");
    assert!(line.contains("without 2: the network goes on with 3 of its 4 replicas"), "{line}");
    tercio(["submit", text(&dir), "add"]).good();
    // Another one ends: too few are left, until it is back.
    assert!(common::kill("-KILL", ready["replicas"][0]["pid"].as_u64().unwrap() as u32));
    up.wait_line("the network cannot go on, it takes 3");
    up.wait_line("replica 0: ready again");
    up.wait_line("3 of 4 replicas run here: the network can go on");
    up.stop();
    fs::write(settings(2), &good).unwrap();

    // A port that somebody else has.
    let genesis = fs::read_to_string(dir.join("genesis.toml")).unwrap();
    let addresses = genesis.lines().filter_map(|line| line.strip_prefix("address = \""));
    let address = addresses.map(|line| line.trim_end_matches('"')).nth(2).unwrap();
    let taken = std::net::TcpListener::bind(address).unwrap();
    let (up, line) = Up::start_with(&dir, &["--no-restart"]);
    assert!(line.contains("3 replica(s)") && line.contains("without 2"), "{line}");
    assert!(up.said("in use") && up.said("it is left alone"), "{address}");
    tercio(["submit", text(&dir), "add"]).good();
    up.stop();
    drop(taken);

    // Files that are none, of two replicas: what could run is stopped, and all of it is said.
    fs::write(settings(2), &bad).unwrap();
    fs::write(dir.join("replica-1/genesis.toml"), "nonsense").unwrap();
    let words = ["2 of the 4 replicas can run here", why, "replica-1/genesis.toml:1"];
    let run = tercio(["up", text(&dir)]);
    run.refused(1, &words);
    let pids = run.stdout.lines().filter_map(|line| line.split_once(", process "));
    for (_, pid) in pids {
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "process {pid} was left behind");
    }
}

#[test]
fn replicas_do_not_outlive_a_killed_up() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir), "-n", "1"]).good();
    let up = Up::start(&dir);
    up.kill();
    let freed = tercio_network::poll_until(std::time::Duration::from_secs(60), || {
        (tercio(["audit", text(&dir.join("replica-0"))]).code == 0).then_some(())
    });
    assert!(freed.is_some(), "the replica is still there");
}

/// Operators who share nothing but public keys and a genesis.
#[test]
fn separate_homes_join_one_genesis() {
    let folder = tempfile::tempdir().unwrap();
    let home = |name: &str| folder.path().join(name);
    let key = |name: &str| {
        let json = tercio(["init", text(&home(name)), "--json"]).good().json();
        assert_eq!(mode(&home(name).join("key")), 0o600);
        json["public_key"].as_str().unwrap().to_owned()
    };
    let file = folder.path().join("genesis.toml");
    let ports = tercio_network::free_ports(4).unwrap();
    let mut args = vec!["genesis".to_owned(), "--name".into(), "four".into(), "-o".into()];
    args.push(text(&file).into());
    for (i, port) in ports.iter().enumerate() {
        let address = port.local_addr().unwrap();
        args.extend(["--replica".into(), format!("{}@{address}", key(&format!("replica-{i}")))]);
    }
    args.extend(["--client".into(), key("alice")]);
    drop(ports);
    let said = tercio(&args);
    assert!(said.good().stdout.contains("chain "), "{}", said.stdout);
    tercio(&args).refused(1, &["genesis.toml", "exists already"]);
    fs::remove_file(&file).unwrap();
    args.push("--json".into());
    let json = tercio(&args).good().json();
    assert_eq!((&json["replicas"], &json["clients"]), (&4.into(), &1.into()));
    assert!(said.stdout.contains(json["chain"].as_str().unwrap()), "{json}");

    let join = |name: &str| tercio(["init", text(&home(name)), "--genesis", text(&file)]);
    // The key says who one is, whatever the directory is called.
    for i in 0..4 {
        let said = join(&format!("replica-{i}"));
        assert!(said.good().stdout.contains(&format!("replica {i} of 'four'")), "{}", said.stdout);
    }
    assert!(join("alice").good().stdout.contains("client 1 of 'four'"));
    join("alice").refused(1, &["exists already"]);
    key("mallory");
    join("mallory").refused(1, &["does not list the public key"]);
    fs::write(folder.path().join("note"), "x").unwrap();
    tercio(["init", text(folder.path())]).refused(1, &["no home", "not empty"]);

    Up::start(folder.path()).stop();
}

#[test]
fn wrong_usage_says_what_is_missing() {
    tercio(["testnet"]).refused(2, &["--output"]);
    tercio(["testnet", "-o", "x", "-n", "0"]).refused(2, &["--replicas"]);
    tercio(["testnet", "-o", "x", "--app", "chess"]).refused(2, &["--app", "counter"]);
    tercio(["testnet", "-o", "x", "--durability", "maybe"]).refused(2, &["group:N"]);
    tercio(["genesis", "--name", "x", "--replica", "12@here:1"]).refused(2, &["64 hexadecimal"]);
    let key = "0".repeat(64);
    tercio(["genesis", "--name", "x", "--replica", &key]).refused(2, &["KEY@HOST:PORT"]);
    tercio(["genesis", "--name", "x", "--replica", &format!("{key}@here")])
        .refused(2, &["HOST:PORT"]);
    let folder = tempfile::tempdir().unwrap();
    tercio(["up", text(folder.path())]).refused(1, &["genesis.toml", "tercio testnet"]);
}

/// What a user does first: the numbers of a client go on from one command to the next, whether
/// they run one after the other or at once.
#[test]
fn operations_and_questions_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let up = Up::start(&dir);
    let submit = |args: &[&str]| tercio(["submit", text(&dir)].iter().chain(args));
    for expected in 1..=3 {
        let json = submit(&["add", "--json"]).good().json();
        assert_eq!((&json["result"], &json["number"]), (&expected.into(), &expected.into()));
        assert!(json["latency_us"].as_f64().unwrap() > 0.0);
    }
    // Two at once under one id, and one under another.
    let both: Vec<_> = std::thread::scope(|scope| {
        let runs = [["add", "add"], ["add", "add"]];
        let threads = runs.map(|args| scope.spawn(move || submit(&args)));
        let other = scope.spawn(|| submit(&["--client", "2", "add"]));
        other.join().unwrap().good();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for run in &both {
        run.good();
    }
    let ask =
        |args: &[&str]| tercio(["query", text(&dir), "--json"].iter().chain(args)).good().json();
    let total = ask(&["total"]);
    assert_eq!((&total["answer"], &total["ordered"]), (&8.into(), &true.into()));
    assert!(total["height"].as_u64().unwrap() >= 5);
    assert_eq!(ask(&["client 1"])["answer"], 7);
    assert_eq!(ask(&["client 2", "--stale", "--client", "2"])["answer"], 1);
    // A client that lost its numbers is told them by the replicas.
    fs::remove_file(dir.join("clients/1/numbers")).unwrap();
    assert_eq!(submit(&["add", "--json"]).good().json()["result"], 9);
    // One that took numbers which it never sent uses them up.
    let numbers = dir.join("clients/2/numbers");
    let next: u64 = fs::read_to_string(&numbers).unwrap().trim().parse().unwrap();
    fs::write(&numbers, format!("{}", next + 300)).unwrap();
    let json = submit(&["--client", "2", "add", "--json"]).good().json();
    assert_eq!((&json["result"], &json["number"]), (&10.into(), &(next + 300).into()));

    let file = folder.path().join("operations");
    fs::write(&file, "# three\nadd\n\n  add\nadd\n").unwrap();
    let run = submit(&["--file", text(&file), "--json"]);
    assert_eq!(run.good().stdout.lines().count(), 3);
    assert_eq!(run.json()["result"], 13);
    // Nothing is sent when one of them makes no sense.
    fs::write(&file, "add\ndance\n").unwrap();
    submit(&["--file", text(&file)]).refused(2, &["dance", "write add"]);
    submit(&["add", "dance"]).refused(2, &["dance"]);
    assert_eq!(ask(&["total"])["answer"], 13);
    tercio(["query", text(&dir), "why?"]).refused(2, &["total or client ID"]);
    submit(&["--client", "9", "add"]).refused(1, &["no client '9'", "1, 2"]);
    // A second process says that it waits for the first.
    let held = tercio_client::Numbers::open(&numbers).unwrap();
    let mut second = Command::new(env!("CARGO_BIN_EXE_tercio"));
    let second = second.args(["submit", text(&dir), "--client", "2", "add"]);
    let mut second = second.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(second.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("another command uses") && said.contains("clients/2"), "{said}");
    drop(held);
    assert!(second.wait_with_output().unwrap().status.success());
    assert_eq!(ask(&["total"])["answer"], 14);
    fs::write(&numbers, "many").unwrap();
    submit(&["--client", "2", "add"]).refused(1, &["numbers", "no number"]);
    up.stop();
    let settings = dir.join("clients/1/client.toml");
    fs::write(&settings, "client = 1\nconnect_ms = 100\n").unwrap();
    submit(&["add"]).refused(1, &["reached 0 of", "replica 3", "tercio up"]);
}

#[test]
fn the_exchange_speaks_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir), "--app", "exchange", "--auth", "mac"]).good();
    let up = Up::start(&dir);
    let submit = |args: &[&str]| tercio(["submit", text(&dir), "--json"].iter().chain(args));
    let json = submit(&["buy 5 @ 100 in 0 as 7"]).good().json();
    let placed =
        serde_json::json!({ "outcome": "placed", "remaining": 5, "dropped": 0, "fills": [] });
    assert_eq!((&json["result"], &json["refused"]), (&placed, &false.into()));
    let json = submit(&["--client", "2", "sell 3 @ 90 in 0 as 1"]).good().json();
    let fill = serde_json::json!({ "trade": 1, "maker": 7, "price": 100, "quantity": 3 });
    assert_eq!(json["result"]["fills"], serde_json::json!([fill]));
    submit(&["buy 5"]).refused(2, &["in SYMBOL as ID"]);
    let run = tercio(["query", text(&dir), "depth 0 5", "--json"]);
    assert_eq!(run.good().json()["answer"]["bids"][0]["quantity"], 2);
    // A question that reads well and makes no sense to the state.
    tercio(["query", text(&dir), "depth 0 0"]).refused(1, &["1 to 1000"]);
    up.stop();
}

/// What the application says no to ends with status 1, after all others were tried; what it would
/// not even order is refused with its reason.
#[test]
fn refusals_are_told_by_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir), "--app", "bank"]).good();
    // Words are read before anybody is connected to: nothing runs yet.
    tercio(["submit", text(&dir), "dance"]).refused(2, &["open ACCOUNT"]);
    tercio(["query", text(&dir), "why?"]).refused(2, &["balance"]);
    let up = Up::start(&dir);
    let submit = |args: &[&str]| tercio(["submit", text(&dir)].iter().chain(args));
    let run = submit(&["open 1", "open 2", "transfer 1 2 5", "open 3", "--json"]);
    run.refused(1, &["1 of 4 operation(s) were refused"]);
    let results: Vec<serde_json::Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused: Vec<_> =
        results.iter().map(|result| result["refused"].as_bool().unwrap()).collect();
    assert_eq!(refused, [false, false, true, false]);
    assert_eq!(results[2]["result"]["reason"], "insufficient funds");
    assert!(submit(&["open 1"]).stdout.starts_with("rejected: an account with this number"));
    // As bytes: the words of the bank's format, and the digits of its result.
    let open = submit(&["--raw", "--json", "010400000000000000"]).good().json();
    assert_eq!(open["result"], "01");
    let file = folder.path().join("question");
    fs::write(&file, [4, 4, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let question = format!("@{}", file.display());
    let query = |args: &[&str]| tercio(["query", text(&dir)].iter().chain(args));
    let answer = query(&["--raw", "--json", &question]).good().json();
    assert_eq!(answer["answer"], format!("04{}{}", "0100000000000000", "0".repeat(16)));
    assert_eq!(query(&["balance 4", "--json"]).good().json()["answer"]["owner"], 1);
    query(&["balance 77"]).refused(1, &["refused"]);
    submit(&["--raw", "zz"]).refused(2, &["hexadecimal"]);
    submit(&["--raw", "ff"]).refused(1, &["bank refuses 'ff'", "unknown operation type"]);
    up.stop();
}
