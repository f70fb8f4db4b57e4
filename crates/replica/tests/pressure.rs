//! More load than the application can take: clients are told so, nothing is lost, nothing grows.

use crate::running;

use bytes::Bytes;
use running::watched::{Call, watched};
use running::{CLIENT, Network, client_secret, number, wait};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use tercio_client::{Client, CoreSettings, OpResult, Settings};
use tercio_counter::Counter;
use tercio_execution::Application;
use tercio_replica::report::ReplicaReport;
use tercio_replica::{Durability, Layout, ReplicaHandle};
use tercio_types::Suite;

/// A counter that takes its time.
fn slow() -> Box<dyn Application> {
    let settings = tercio_counter::Settings { iterations: 3_000_000, reply: 8 };
    Box::new(Counter::new(settings, Suite::default()))
}

#[test]
fn a_slow_application_pushes_back_and_loses_nothing() {
    let net = Network::with(
        4,
        Layout::BothApart,
        Durability::Memory,
        |node| {
            // One batch a request, and room to order far ahead of execution.
            node.consensus.batch_ops = 1;
            node.consensus.pipeline = 64;
            node.consensus.checkpoint_interval = 128;
            node.consensus.window = 512;
        },
        slow,
    );
    let settings = Settings {
        core: CoreSettings { max_outstanding: 300, ..CoreSettings::unused_id() },
        ..Settings::new(CLIENT, client_secret(CLIENT), net.membership.clone())
    };
    let mut client = Client::connect(settings).unwrap();
    let mut left = 400;
    let mut seen = BTreeSet::new();
    client
        .pipeline(
            || {
                left -= 1;
                (left >= 0).then(|| vec![Bytes::from_static(b"op")])
            },
            |completion| {
                let results = completion.outcome.unwrap();
                let [OpResult::Executed(result)] = &results[..] else { panic!("{results:?}") };
                assert!(seen.insert(number(result)), "each is executed once");
            },
        )
        .unwrap();
    assert_eq!(seen, (1..=400).collect());
    net.wait_for_height(400);
    let busy = |r: &ReplicaHandle| r.status().dropped.get("declined_busy").copied().unwrap_or(0);
    assert!(net.running().map(busy).sum::<u64>() > 0, "the primary said that it is busy");
}

/// Whether execution is held up.
static HELD: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new());

fn release() {
    *HELD.0.lock().unwrap() = false;
    HELD.1.notify_all();
}

/// Lets execution go on, however a test ends.
struct Releases;

impl Drop for Releases {
    fn drop(&mut self) {
        release();
    }
}

fn hold(call: Call<'_>) {
    if let Call::Execute(_) = call {
        drop(HELD.1.wait_while(HELD.0.lock().unwrap(), |held| *held).unwrap());
    }
}

/// Its loop answers and has events, and its report says that nothing is executed.
#[test]
fn an_execution_that_halts_is_told() {
    let tune = |_: &mut tercio_replica::NodeSettings| {};
    let layout = Layout::ExecutionApart;
    let net = Network::with(1, layout, Durability::Memory, tune, || watched(hold));
    let released = Releases;
    let mut client = net.client(CLIENT);
    let call = std::thread::spawn(move || number(&client.call(Bytes::from_static(b"op")).unwrap()));
    let report = || ReplicaReport::of(&net.running().next().unwrap().status());
    wait("what is delivered waits for execution", || {
        let report = report();
        report.executing > 0 && report.executing_ms > 300 && report.progress_ms > 300
    });
    assert_eq!((report().height, report().stalled_ms), (0, 0));
    drop(released);
    assert_eq!(call.join().unwrap(), 1);
    wait("nothing waits any more", || {
        let report = report();
        (report.executing, report.executing_ms, report.oldest_pending_ms) == (0, 0, None)
    });
}

/// Replicas that have nothing to say still say where they stand.
#[test]
fn idle_replicas_hear_each_other() {
    let net = Network::start(4, Layout::AllInOne, Durability::Memory);
    let idle = Duration::from_millis(500);
    wait("all are linked for long, and heard since", || {
        net.running().all(|replica| {
            replica.status().peers.iter().all(|peer| {
                peer.since > 4 * idle && peer.heard.is_some_and(|heard| heard < 2 * idle)
            })
        })
    });
    let mut replicas = net.replicas.into_iter().flatten();
    let (first, gone) = (replicas.next().unwrap(), replicas.next().unwrap());
    gone.stop().unwrap();
    wait("one that has ended is heard no more", || {
        let peers = first.status().peers;
        !peers[0].linked && peers[0].heard.is_some_and(|heard| heard > 2 * idle)
    });
}
