//! Fault f52 with processes: execution halts at f+1 of four replicas, under load.

use crate::halting::Halting;
use crate::said;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tercio::{Apps, Bytes, Client, Kind};
use tercio_client::OpResult;
use tercio_network::poll_until;

/// How many batches of one operation are to be ordered while execution halts.
const BATCHES: u64 = 2000;
/// For how long it halts at least, in milliseconds, as the replicas themselves say.
const HALT_MS: u64 = 4000;
/// The most packages in flight.
const FLIGHT: usize = 128;
/// The primary and a backup: one more than may fail.
const HALTED: [usize; 2] = [0, 3];
const PATIENCE: Duration = Duration::from_secs(300);

/// What a replica may need for what is ordered and not executed, in MiB: the room for batches, and
/// what is kept of each number of the window besides (a slot with its votes, a batch's headers and
/// allocations: 16 KiB).
const BOUND_MIB: f64 = 128.0 + 2560.0 * 16.0 / 1024.0;

/// A client that keeps packages of one operation in flight.
struct Load {
    client: Client,
    sent: u64,
    counts: BTreeSet<u64>,
}

impl Load {
    /// Sends operations until there were so many, as far as there is room, and takes what is done.
    fn turn(&mut self, upto: u64) {
        while self.sent < upto && self.sent - (self.counts.len() as u64) < FLIGHT as u64 {
            self.client.submit(vec![Bytes::from_static(b"one")]).unwrap();
            self.sent += 1;
        }
        for done in self.client.poll(Duration::from_millis(5)) {
            let results = done.outcome.unwrap();
            let OpResult::Executed(count) = &results[0] else { panic!("{results:?}") };
            let count = u64::from_le_bytes(count[..].try_into().unwrap());
            assert!(self.counts.insert(count), "{count} was given twice");
        }
    }

    /// Until all that was sent has its result.
    fn finish(&mut self, upto: u64) {
        while (self.counts.len() as u64) < upto {
            self.turn(upto);
        }
    }
}

fn of(status: &Value, id: usize, key: &str) -> u64 {
    status["replicas"][id][key].as_u64().unwrap_or_else(|| panic!("{key} of {id}: {status:#}"))
}

fn most_memory(status: &Value) -> Vec<f64> {
    (0..4).map(|id| status["replicas"][id]["rss_mb"].as_f64().unwrap()).collect()
}

/// All go on ordering, and nobody changes the view; clients get their results of the others; `status`
/// names who stands; what was ordered is executed once everywhere, and is the same.
#[test]
fn execution_halts_and_ordering_goes_on() {
    let program = env!("CARGO_BIN_EXE_halting");
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    let net = dir.display().to_string();
    let command = |words: &[&str]| Command::new(program).args(words).output().unwrap();
    said(program, &command(&["testnet", "--auth", "mac", "-o", &net]));
    let genesis = fs::read_to_string(dir.join("genesis.toml")).unwrap();
    assert!(genesis.contains("window = 2560"), "{genesis}");
    let locks: Vec<File> = (0..4).map(|id| settle_home(&dir, id)).collect();
    let client = dir.join("clients/1");
    fs::write(client.join("client.toml"), "client = 1\nauth = \"mac\"\ndeadline_ms = 60000\n")
        .unwrap();
    let mut up = Command::new(program);
    let up = up.args(["up", &net, "--stop-with-stdin", "--json", "--no-restart"]);
    let mut up = up.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(up.stdout.take().unwrap()).lines();
    assert!(events.any(|line| line.unwrap().contains("ready_ms")), "it ended before all ran");

    let looked = || json(&command(&["status", &net, "--json"]));
    let apps = Apps::new(&[Kind::of::<Halting>()]);
    let client = Client::open(client, &apps).unwrap();
    let mut load = Load { client, sent: 0, counts: BTreeSet::new() };
    load.finish(100);
    let before = poll_until(PATIENCE, || {
        let status = looked();
        (0..4).all(|id| of(&status, id, "height") >= 100).then_some(status)
    });
    let before = before.expect("all execute");

    HALTED.iter().for_each(|id| locks[*id].lock().unwrap());
    // Each operation is a batch: clients get the results of those two that go on.
    load.finish(100 + BATCHES);
    let mut memory = most_memory(&before);
    let status = poll_until(PATIENCE, || {
        // Load goes on, and does not fill the window.
        let more = load.sent + 1;
        load.turn(more.min(100 + BATCHES + 200));
        let status = looked();
        let all = most_memory(&status);
        memory.iter_mut().zip(all).for_each(|(most, now)| *most = most.max(now));
        let ordered = |id| of(&status, id, "delivered") >= of(&before, id, "delivered") + BATCHES;
        let stood = |id: &usize| of(&status, *id, "executing_ms") >= HALT_MS;
        ((0..4).all(ordered) && HALTED.iter().all(stood)).then_some(status)
    });
    let status = status.unwrap_or_else(|| panic!("{:#}", looked()));
    keeps_view(&status);
    assert!(HALTED.iter().all(|id| of(&status, *id, "height") == 100), "{status:#}");
    for (id, most) in memory.iter().enumerate() {
        let bound = before["replicas"][id]["rss_mb"].as_f64().unwrap() + BOUND_MIB;
        assert!(*most <= bound, "replica {id} takes {most} MiB, above {bound}");
    }
    tells(&status, &said(program, &command(&["status", &net])));

    HALTED.iter().for_each(|id| locks[*id].unlock().unwrap());
    let all = load.sent + 100;
    load.finish(all);
    assert_eq!(load.counts, (1..=all).collect(), "each is executed once");
    let settled = poll_until(PATIENCE, || {
        let status = looked();
        (0..4).all(|id| of(&status, id, "height") >= all).then_some(status)
    });
    let settled = settled.unwrap_or_else(|| panic!("{:#}", looked()));
    keeps_view(&settled);
    assert_eq!(
        (&settled["network"]["works"], &settled["network"]["executing"]),
        (&true.into(), &4.into())
    );
    drop(up.stdin.take());
    events.for_each(drop);
    assert!(up.wait().unwrap().success());

    let audit = json(&command(&["audit", &net, "--json"]));
    for row in audit["replicas"].as_array().unwrap() {
        assert_eq!(row["audit"], "ok", "{audit:#}");
    }
    assert_eq!(audit["heads"].as_object().unwrap().len(), 1, "{audit:#}");
}

/// Small batches, execution on a thread of its own, and what holds it.
fn settle_home(dir: &Path, id: usize) -> File {
    let home = dir.join(format!("replica-{id}"));
    let settings = home.join("tercio.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let text = text
        .replace("layout = \"all-in-one\"", "layout = \"execution-apart\"")
        .replace("batch_ops = 1024", "batch_ops = 1")
        .replace("pipeline = 8", "pipeline = 32");
    assert!(["execution-apart", "batch_ops = 1\n", "= 32"].iter().all(|word| text.contains(word)));
    fs::write(settings, text).unwrap();
    File::create(home.join("hold")).unwrap()
}

#[track_caller]
fn keeps_view(status: &Value) {
    for id in 0..4 {
        let views = (of(status, id, "view"), of(status, id, "view_changes"));
        assert_eq!(views, (0, 0), "{status:#}");
    }
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Both name those who stand, with what that means.
fn tells(status: &Value, text: &str) {
    let sentences = status["network"]["sentences"].to_string();
    for id in HALTED {
        let stands = format!("execution stands at {} since ", of(status, id, "height"));
        let role = status["replicas"][id]["role"].as_str().unwrap();
        assert!(role.starts_with(&stands), "{status:#}");
        let sentence = format!("replica {id}: {stands}");
        assert!(sentences.contains(&sentence) && text.contains(&sentence), "{status:#}\n{text}");
    }
    let network = &status["network"];
    let counts = ["voting", "executing", "may_fail"].map(|key| network[key].as_u64().unwrap());
    assert_eq!((counts, &network["works"]), ([4, 2, 0], &true.into()), "{status:#}");
    assert!(!sentences.contains("replica 1:") && !sentences.contains("replica 2:"), "{status:#}");
}
