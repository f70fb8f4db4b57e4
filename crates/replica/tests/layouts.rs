//! Every layout with every durability, over sockets, with the real client.

mod running;

use bytes::Bytes;
use running::{CLIENT, Network, number, wait};
use std::time::Duration;
use tercio_replica::{Durability, Layout, ReplicaHandle};
use tercio_types::ClientId;

const DURABILITIES: [Durability; 3] =
    [Durability::Memory, Durability::Group(Duration::from_millis(2)), Durability::Sync];

/// Orders, restarts one replica after a crash and all in an orderly way, and orders again.
fn life(layout: Layout, durability: Durability) {
    let mut net = Network::start(4, layout, durability);
    let mut client = net.client(CLIENT);
    for i in 1..=20 {
        assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), i);
    }
    net.replicas[3].take().unwrap().abort();
    for i in 21..=40 {
        assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), i);
    }
    net.restart(3);
    net.wait_for_height(40);
    assert_eq!(number(&client.query(Bytes::new()).unwrap()), 40);
    for handle in net.replicas.iter_mut().filter_map(Option::take) {
        assert_eq!(handle.layout(), layout.under(durability));
        handle.stop().unwrap();
    }
    (0..4).for_each(|i| net.restart(i));
    net.wait_for_height(40);
    // Another client, since the first would begin with numbers that are used up.
    let mut client = net.client(ClientId(8));
    assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), 41);
    net.wait_for_height(41);
    wait("all checkpoints are equal", || {
        let states: Vec<_> =
            net.running().map(|r| r.status().checkpoint.map(|c| (c.height, c.state))).collect();
        states.iter().all(|s| *s == states[0] && s.is_some_and(|(height, _)| height.0 == 41))
    });
    assert!(net.running().all(ReplicaHandle::is_running));
}

#[test]
fn all_in_one() {
    DURABILITIES.into_iter().for_each(|durability| life(Layout::AllInOne, durability));
}

#[test]
fn execution_apart() {
    DURABILITIES.into_iter().for_each(|durability| life(Layout::ExecutionApart, durability));
}

#[test]
fn log_apart() {
    DURABILITIES.into_iter().for_each(|durability| life(Layout::LogApart, durability));
}

#[test]
fn both_apart() {
    DURABILITIES.into_iter().for_each(|durability| life(Layout::BothApart, durability));
}

#[test]
fn an_fsync_never_runs_with_consensus() {
    for durability in &DURABILITIES[1..] {
        for layout in
            [Layout::AllInOne, Layout::ExecutionApart, Layout::LogApart, Layout::BothApart]
        {
            let under = layout.under(*durability);
            assert!(under.log_apart());
            assert_eq!(under.execution_apart(), layout.execution_apart());
            assert_eq!(layout.under(Durability::Memory), layout);
        }
    }
}
