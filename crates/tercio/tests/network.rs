//! Networks that a user starts: `dev`, `start`, and the measurements.

use crate::common;

use common::{finish, tercio, text};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use tercio_network::{Network, Spec, home};
use tercio_replica::report::ReplicaReport;

/// `dev` in the background.
struct Dev {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Dev {
    fn start(stdin: Stdio, args: &[&str]) -> Self {
        let mut dev = Command::new(env!("CARGO_BIN_EXE_tercio"));
        let dev = dev.arg("dev").args(args).stdin(stdin).stdout(Stdio::piped());
        let mut child = dev.stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended");
        line
    }

    fn finish(mut self) -> common::Run {
        drop(self.child.stdin.take());
        let stdout = std::io::read_to_string(&mut self.out).unwrap();
        common::Run { stdout, ..finish(self.child.wait_with_output().unwrap()) }
    }
}

#[test]
fn dev_commits_a_write_says_so_and_plays() {
    for app in ["counter", "exchange"] {
        let json = tercio(["dev", "--once", "--json", "--app", app]).good().json();
        assert!(json["first_committed_write_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(json["replicas"].as_array().unwrap().len(), 4);
        assert_eq!(json["app"], app);
    }
    let mut dev = Dev::start(Stdio::piped(), &["--app", "bank"]);
    let mut lines = vec![];
    while lines.last().is_none_or(|line: &String| !line.contains("Ctrl-C")) {
        lines.push(dev.line());
    }
    assert!(lines.len() <= 15, "{lines:?}");
    let first = lines.iter().find_map(|line| line.strip_prefix("first committed write: "));
    assert!(first.unwrap().trim_end().ends_with(" ms"), "{lines:?}");
    // The line to paste does what it says, and the directory in it is a network's.
    let paste = lines.iter().find(|line| line.contains(" submit ")).unwrap().trim();
    let dir = paste.split(' ').nth(2).unwrap();
    let pasted = Command::new("sh").args(["-c", paste]).stdin(Stdio::null()).output().unwrap();
    let pasted = finish(pasted);
    assert_eq!(pasted.code, 1, "the first write opened the account: {}", pasted.stderr);
    assert!(
        pasted.stdout.starts_with("rejected: an account with this number"),
        "{}",
        pasted.stdout
    );
    tercio(["submit", dir, "open 2", "--client", "2"]).good();
    let answer = tercio(["query", dir, "balance 2", "--json"]).good().json();
    assert_eq!(answer["answer"]["owner"], 2);
    let status = tercio(["status", dir]);
    assert!(status.good().stdout.contains("all is well: 4 of 4"), "{}", status.stdout);
    // Questions and operations are typed; one that makes no sense ends nothing.
    let mut input = dev.child.stdin.take().unwrap();
    writeln!(input, "balance 1\nbalance\n\nopen 3\nhelp\nopen 3").unwrap();
    assert!(dev.line().starts_with("0, owned by client 3"));
    assert!(dev.line().starts_with("opened"));
    assert!(dev.line().contains("type operations (open 1) and questions (balance 1)"));
    assert!(dev.line().starts_with("rejected"));
    writeln!(input, "quit").unwrap();
    let run = dev.finish();
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("balance ACCOUNT"), "{}", run.stderr);
    assert!(!Path::new(dir).exists(), "its files are gone with it");
}

#[test]
fn dev_runs_until_a_signal_where_nothing_is_typed() {
    let mut dev = Dev::start(Stdio::null(), &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&dev.line()).unwrap();
    let dir = report["dir"].as_str().unwrap().to_owned();
    // Long after its input has ended.
    for _ in 0..3 {
        tercio(["submit", &dir, "add"]).good();
    }
    assert!(dev.child.try_wait().unwrap().is_none());
    assert!(common::kill("-TERM", dev.child.id()));
    let run = dev.finish();
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    // Lines through a pipe are a script.
    let mut dev = Dev::start(Stdio::piped(), &["--json"]);
    writeln!(dev.child.stdin.as_mut().unwrap(), "add\ntotal").unwrap();
    let run = dev.finish();
    assert_eq!((run.code, run.stdout.lines().count()), (0, 3), "{}", run.stdout);
    assert_eq!(run.json()["answer"], 2);
    // One that was told to does not outlive its input.
    let run = Dev::start(Stdio::null(), &["--stop-with-stdin"]).finish();
    assert_eq!(run.code, 0);
}

#[test]
fn a_replica_runs_says_where_it_stands_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let network =
        Network::lay_out(folder.path(), &Spec::new(tercio_registry::apps().first())).unwrap();
    let dir = home(folder.path(), 2);
    let spawn = || {
        Command::new(env!("CARGO_BIN_EXE_tercio"))
            .args(["start", "--stop-with-stdin", "--dir", text(&dir)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut replica = spawn();
    let report = loop {
        match ReplicaReport::read(&dir) {
            Ok(report) => break report,
            Err(_) => assert!(replica.try_wait().unwrap().is_none(), "it ended"),
        }
    };
    assert_eq!((report.id, report.pid, report.height), (2, replica.id(), 0));

    // A second process on the same home, and one on the same port.
    tercio(["start", "--dir", text(&dir)]).refused(1, &["in use"]);
    tercio(["audit", text(&dir)]).refused(1, &["in use"]);

    drop(replica.stdin.take());
    assert_eq!(finish(replica.wait_with_output().unwrap()).code, 0);
    let audit = tercio(["audit", text(&dir), "--json"]).good().json();
    assert_eq!((audit["audit"].as_str(), audit["height"].as_u64()), (Some("ok"), Some(0)));

    // A termination signal stops it as orderly.
    let replica = spawn();
    while ReplicaReport::read(&dir).unwrap().pid != replica.id() {}
    let pid = replica.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(finish(replica.wait_with_output().unwrap()).code, 0);

    let address = &network.genesis().replicas[&tercio_types::ReplicaId(2)].address;
    let _taken = TcpListener::bind(address).unwrap();
    tercio(["start", "--dir", text(&dir)]).refused(1, &[address.as_str()]);

    // The log of another network.
    let other = tempfile::tempdir().unwrap();
    Network::lay_out(other.path(), &Spec::new(tercio_registry::apps().first())).unwrap();
    let foreign = home(other.path(), 2);
    let copied = Command::new("cp").args(["-r", text(&dir.join("data")), text(&foreign)]).status();
    assert!(copied.unwrap().success());
    tercio(["start", "--dir", text(&foreign)]).refused(1, &["belongs to chain"]);
    tercio(["audit", text(&foreign)]).refused(1, &["belongs to chain"]);
    // The home of another replica.
    let third = home(folder.path(), 3);
    fs::remove_dir_all(third.join("data")).unwrap();
    fs::rename(dir.join("data"), third.join("data")).unwrap();
    tercio(["start", "--dir", text(&third)]).refused(1, &["belongs to replica 2"]);
}

#[test]
fn bft_reports_every_figure_and_setting() {
    for (arguments, processes, pace) in [
        (&["--rate", "500"][..], true, "open"),
        (
            &[
                "--closed",
                "--threads",
                "--auth",
                "ed25519",
                "--package",
                "8",
                "--verify-threads",
                "2",
            ],
            false,
            "closed",
        ),
        (&["--closed", "--trials", "2", "--one-client", "--durability", "group"], true, "closed"),
        (&["--rate", "200", "--durability", "group:5", "--layout", "both-apart"], true, "open"),
    ] {
        let common = ["bench", "bft", "--seconds", "1", "--json"];
        let run = tercio(common.iter().chain(arguments));
        let json = run.json();
        // A machine with other work may fall behind; that must then be said.
        match json["saturated"].as_bool().unwrap() {
            false => drop(run.good()),
            true => run.refused(1, &["no result"]),
        }
        assert!(json["throughput_rps"].as_f64().unwrap() > 0.0, "{json}");
        assert_eq!(json["settings"]["processes"], processes);
        assert_eq!(json["settings"]["pace"], pace);
        let verify = if arguments.contains(&"--verify-threads") { 2 } else { 0 };
        assert_eq!(json["settings"]["verify_threads"], verify);
        assert_eq!(json["offered_rps"].is_null(), pace == "closed");
        assert_eq!(json["backlog"].is_null(), pace == "closed");
        assert!(json["latency_us"]["p50"].as_f64().unwrap() > 0.0);
        for list in
            ["cpu_us_per_request_per_replica", "loop_cpu_us_per_request_per_replica", "rss_mb"]
        {
            assert_eq!(json[list].as_array().unwrap().len(), 4, "{list}");
        }
        assert!(json["rss_mb"][3].as_f64().unwrap() > 1.0);
        let fraction = json["fraction_of_ceiling"].as_f64().unwrap();
        let throughput = json["throughput_rps"].as_f64().unwrap();
        let expected = throughput / json["ceiling_rps"].as_f64().unwrap();
        assert!((fraction - expected).abs() < 1e-3, "{json}");
        let memory = json["rss_mb_at"].as_array().unwrap();
        assert_eq!((memory.len(), memory[0]["at_s"].as_u64()), (1, Some(1)));
        if arguments.contains(&"--one-client") {
            let one = &json["one_client"];
            let ratio = one["p50_us"].as_f64().unwrap() / one["bare_p50_us"].as_f64().unwrap();
            assert!((one["ratio"].as_f64().unwrap() - ratio).abs() < 1e-2, "{one}");
            assert_eq!(json["throughput_spread_rps"]["count"], 2);
            assert!(json["disk"]["fdatasync_per_s"].as_f64().unwrap() > 0.0);
        } else {
            assert!(json["one_client"].is_null() && json["throughput_spread_rps"].is_null());
        }
        for setting in ["replicas", "auth", "durability", "size", "reply", "package", "clients"] {
            assert!(!json["settings"][setting].is_null(), "{setting}");
        }
    }
}

/// A backup that dies, or says nothing any more, stops nothing. (How often clients wait for it is
/// tested in the client's core, under a clock by hand.)
#[test]
fn fault_reports_what_a_dead_backup_costs() {
    for kind in ["dead-backup", "halted-backup"] {
        let common = ["bench", "fault", "--seconds", "1", "--rate", "300", "--json"];
        let json = tercio(common.into_iter().chain(["--kind", kind])).good().json();
        assert_eq!((json["kind"].as_str(), json["replica"].as_u64()), (Some(kind), Some(3)));
        for when in ["healthy", "faulty"] {
            assert!(json[when]["throughput_rps"].as_f64().unwrap() > 0.0, "{json}");
            assert!(json[when]["resent_packages"].is_u64() && json[when]["most_resent"].is_u64());
        }
        let p99 = |when: &str| json[when]["latency_us"]["p99"].as_f64().unwrap();
        let ratio = p99("faulty") / p99("healthy");
        assert!((json["p99_ratio"].as_f64().unwrap() - ratio).abs() < 0.01 * ratio.max(1.0));
    }
}

/// A primary that dies under full load costs a view change, and is told by the second. (That the
/// throughput comes back is tested in f56 and the pool's plant.)
#[test]
fn fault_reports_what_a_dead_primary_costs() {
    let run = ["bench", "fault", "--kind", "dead-primary", "--seconds", "1", "--json"];
    let json = tercio(run.into_iter().chain(["--closed", "--outstanding", "30"])).good().json();
    assert_eq!((json["kind"].as_str(), json["replica"].as_u64()), (Some("dead-primary"), Some(0)));
    assert_eq!(
        (json["under_way"].as_u64(), json["settings"]["pace"].as_str()),
        (Some(30), Some("closed"))
    );
    assert!(json["view_changes"].as_u64().unwrap() > 0, "{json}");
    assert!(json["gap_ms"].as_f64().unwrap() > 0.0 && json["view_change_ms"].is_f64(), "{json}");
    for when in ["before", "after"] {
        assert!(!json[when]["seconds_rps"].as_array().unwrap().is_empty(), "{json}");
        assert!(json[when]["latency_us"]["p50"].is_f64(), "{json}");
    }
    let rps = |when: &str| json[when]["throughput_rps"].as_f64().unwrap();
    // Not if nothing at all came in the second before.
    if let Some(ratio) = json["ratio"].as_f64() {
        let of = rps("after") / rps("before");
        assert!((ratio - of).abs() < 0.01 * of.max(1.0), "{json}");
    }
    let long = ["bench", "fault", "--outstanding", "2048"];
    tercio(long).refused(2, &["--closed"]);
}

/// Clients that want more than the network can do, and one that listens to nothing: every request
/// of the others is executed. (That nobody is starved and no view moves is tested in f31.)
#[test]
fn an_overloaded_network_loses_nothing() {
    let run = tercio([
        "bench",
        "overload",
        "--seconds",
        "1",
        "--clients",
        "4",
        "--flooders",
        "1",
        "--json",
    ]);
    let json = run.good().json();
    assert_eq!(json["failed"], 0, "{json}");
    assert!(json["flooded_per_s"].as_f64().unwrap() > 0.0, "{json}");
    for load in ["saturation", "overload"] {
        assert!(json[load]["throughput_rps"].as_f64().unwrap() > 0.0, "{json}");
        assert_eq!(json[load]["rss_mb"].as_array().unwrap().len(), 4);
    }
    let rate = |load: &str, what: &str| json[load][what].as_f64().unwrap();
    let saturating = rate("overload", "offered_rps") / rate("saturation", "throughput_rps");
    assert!((saturating - 5.0).abs() < 0.01, "{json}");
    tercio(["bench", "overload", "--clients", "1", "--flooders", "1"]).refused(1, &["--clients"]);
}

/// What cannot be kept up with is no result, and its waiting counts.
#[test]
fn a_saturated_measurement_is_an_error() {
    let run = tercio([
        "bench",
        "bft",
        "--json",
        "--seconds",
        "1",
        "--threads",
        "--clients",
        "1",
        "--outstanding",
        "1",
        "--rate",
        "1000000",
    ]);
    run.refused(1, &["no result", "--rate"]);
    let json = run.json();
    assert_eq!(json["saturated"], true);
    // What waits at the end is nearly all that was offered.
    assert_eq!(json["backlog"]["drained"], false);
    assert!(json["backlog"]["end_ms"].as_f64().unwrap() > 500.0, "{json}");
    assert!(
        json["throughput_rps"].as_f64().unwrap() < 0.98 * json["offered_rps"].as_f64().unwrap()
    );
    // A second of requests, of which nearly none could be sent: half of them waited half of it.
    assert!(json["latency_us"]["p50"].as_f64().unwrap() > 100_000.0, "{json}");
}

/// A replica that cannot write ends, and whoever runs it says why and where the rest can be read. No
/// file may be longer than a few hundred kilobytes here, in place of a disk that is full.
#[test]
fn a_replica_that_cannot_write_is_named() {
    for arguments in [
        &["bench", "bft", "--closed", "--seconds", "3600"][..],
        &["bench", "transfer", "--state-mb", "64"],
        &["demo"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        // Without the trap a signal would end the replica, as nothing does on a full disk.
        let run = Command::new("sh")
            .args(["-c", r#"trap "" XFSZ; ulimit -f 512; exec "$0" "$@""#])
            .arg(env!("CARGO_BIN_EXE_tercio"))
            .args(arguments)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let run = finish(run);
        let words = [" ended by itself (exit status: 1): tercio: cannot write", "ulimit", "TMPDIR"];
        run.refused(1, &words);
        // Of all files only the replica's messages are left, and they are where it says.
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        let [log] = &left[..] else { panic!("{arguments:?} left {left:?}") };
        assert!(run.stderr.contains(text(log)), "{} is not in: {}", log.display(), run.stderr);
        let log = fs::read_to_string(log).unwrap();
        let last = log.lines().last().unwrap();
        assert!(last.starts_with("tercio: cannot write") && run.stderr.contains(last), "{log}");
    }
}
