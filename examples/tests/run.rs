//! The examples run and say what their readers expect.

#[path = "run/halted.rs"]
mod halted;
#[path = "run/halting.rs"]
mod halting;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tercio_client::Numbers;
use tercio_network::{Network, Replicas, Spec, poll_until};

fn says(program: &str) -> String {
    said(program, &Command::new(program).output().unwrap())
}

fn said(program: &str, output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Each run is a client that returns, and its operation is executed.
#[test]
fn connect() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::new(tercio_registry::apps().first());
    Network::lay_out(folder.path(), &spec).unwrap();
    let replicas = Replicas::start(folder.path(), &spec, None).unwrap();
    let home = tercio_network::client_home(folder.path(), "1");
    let program = env!("CARGO_BIN_EXE_connect");
    let run = || Command::new(program).arg(&home).output().unwrap();
    for total in 1..=3 {
        assert_eq!(said(program, &run()), format!("add: {total}\ntotal: {total}\n"));
    }
    // Two processes that use one home at once.
    let held = Numbers::open(&home.join("numbers")).unwrap();
    let output = run();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("InUse"), "{errors}");
    drop(held);
    // A process that another test has just begun holds a copy of the lock until it runs its program.
    let mut output = run();
    for _ in 0..100 {
        if output.status.success() || !String::from_utf8_lossy(&output.stderr).contains("InUse") {
            break;
        }
        output = run();
    }
    assert_eq!(said(program, &output), "add: 4\ntotal: 4\n");
    replicas.stop().unwrap();
}

#[test]
fn first_steps() {
    let expected = "put: stored\nswap: swapped\nswap: not swapped: the value is Lima\ncity: Lima\n";
    assert_eq!(says(env!("CARGO_BIN_EXE_first_steps")), expected);
}

#[test]
fn futures() {
    let expected = "100 calls, a total of 100\nthe replicas say 100\n";
    assert_eq!(says(env!("CARGO_BIN_EXE_futures")), expected);
}

/// An application of one's own runs as four processes, with every command; ./test e2e gives another
/// build of it, from outside of this workspace.
#[test]
fn own_application() {
    let program = std::env::var("TERCIO_GUEST_BOOK");
    let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_guest-book").to_owned());
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net").display().to_string();
    let command = |words: &[&str]| Command::new(&program).args(words).output().unwrap();
    let says = |words: &[&str]| said(&program, &command(words));
    // It is called what it is called, and says which Tercio it is made of.
    let version = says(&["--version"]);
    assert!(version.starts_with("guest-book (Tercio "), "{version}");
    assert!(says(&["testnet", "-o", &net]).contains("application: guest-book"));
    let mut up = Command::new(&program);
    let up = up.args(["up", &net, "--stop-with-stdin", "--json"]);
    let mut up = up.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(up.stdout.take().unwrap()).lines();
    let ready = events.find(|line| line.as_ref().unwrap().contains("ready_ms"));
    assert!(ready.is_some(), "it ended before all replicas ran");

    assert!(says(&["submit", &net, "Ada"]).starts_with("visit 1 "));
    assert!(says(&["submit", &net, "Ada"]).starts_with("visit 2 "));
    assert!(says(&["query", &net, "Ada"]).starts_with("2 visits "));
    let refused = command(&["submit", &net, &"x".repeat(65)]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && why.contains("1 to 64 bytes"), "{why}");
    let well = || {
        let output = command(&["status", &net]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success() && text.contains("all is well: 4 of 4 replicas vote"))
            .then_some(())
    };
    assert!(poll_until(Duration::from_secs(60), well).is_some(), "{}", says(&["status", &net]));
    drop(up.stdin.take());
    // Whoever does not read on would let them wait for it.
    events.for_each(drop);
    assert!(up.wait().unwrap().success());
    let audit = says(&["audit", &net]);
    assert_eq!(audit.matches("audit: ok").count(), 4, "{audit}");
}

/// Another ordering protocol runs as four processes, with every command; a program that does not have
/// it refuses the network by name, and `status` counts as its fault model says.
#[test]
fn another_protocol() {
    let (program, stock) = (env!("CARGO_BIN_EXE_toy"), env!("CARGO_BIN_EXE_guest-book"));
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    let net = dir.display().to_string();
    let command = |words: &[&str]| Command::new(program).args(words).output().unwrap();
    let says = |words: &[&str]| said(program, &command(words));
    let made = says(&["testnet", "--protocol", "sequencer", "--app", "kv", "-o", &net]);
    assert!(made.contains("protocol: sequencer"), "{made}");
    let genesis = std::fs::read_to_string(dir.join("genesis.toml")).unwrap();
    assert!(genesis.contains("protocol = \"sequencer\""), "{genesis}");
    let refused = Command::new(stock).args(["up", &net]).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    let known = "this program has no protocol 'sequencer' (it has pbft)";
    assert!(why.contains(known) && why.contains("genesis.toml:3: protocol:"), "{why}");

    let mut up = Command::new(program);
    let up = up.args(["up", &net, "--stop-with-stdin", "--json", "--no-restart"]);
    let mut up = up.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(up.stdout.take().unwrap()).lines();
    let ready = events.find(|line| line.as_ref().unwrap().contains("ready_ms"));
    let ready: serde_json::Value = serde_json::from_str(&ready.unwrap().unwrap()).unwrap();
    for i in 0..40 {
        says(&["submit", &net, &format!("put key{i} value{i}")]);
    }
    assert!(says(&["query", &net, "get key39"]).starts_with("value39"));
    let status = || {
        let output = command(&["status", &net]);
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let well = |(works, text): (bool, String)| {
        let all = text.contains("all is well: 4 of 4 replicas vote, none may fail");
        (works && all && text.contains("protocol sequencer (faultless)")).then_some(())
    };
    assert!(poll_until(Duration::from_secs(60), || well(status())).is_some(), "{:?}", status());

    // Without the sequencer nothing is ordered, and status does not count to a quorum.
    let pid = |id: u64| {
        let replicas = ready["replicas"].as_array().unwrap();
        replicas.iter().find(|replica| replica["id"] == id).unwrap()["pid"].to_string()
    };
    assert!(Command::new("kill").args(["-KILL", &pid(0)]).status().unwrap().success());
    let stands = || {
        let (works, text) = status();
        let needed = "3 of 4 replicas can vote and 4 are needed; bring back replica 0";
        (!works && text.contains(needed)).then_some(())
    };
    assert!(poll_until(Duration::from_secs(60), stands).is_some(), "{:?}", status());
    drop(up.stdin.take());
    events.for_each(drop);
    up.wait().unwrap();

    // What the others have is certified as the protocol promises: by a majority.
    let audit = command(&["audit", &net, "--json"]);
    let text = String::from_utf8_lossy(&audit.stdout).into_owned();
    let audit: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    for row in audit["replicas"].as_array().unwrap() {
        assert_eq!(row["audit"], "ok", "{audit}");
    }
    assert_eq!(audit["heads"].as_object().unwrap().len(), 1, "{audit}");
}
