//! More load than the application can take: clients are told so, nothing is lost, nothing grows.

use crate::running;

use bytes::Bytes;
use running::{CLIENT, Network, client_secret, number};
use std::collections::BTreeSet;
use tercio_client::{Client, CoreSettings, OpResult, Settings};
use tercio_counter::Counter;
use tercio_execution::Application;
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
        core: CoreSettings { max_outstanding: 300, ..CoreSettings::default() },
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
