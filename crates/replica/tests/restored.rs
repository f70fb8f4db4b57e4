//! A data directory that is an older copy of what it was (rules L7 and L8 of
//! `docs/protocol/pbft.md`, decision 0034), and what `docs/backup.md` tells operators to do.

use crate::running::{CLIENT, Network, wait};
use bytes::Bytes;
use std::fs;
use std::path::Path;
use tercio_consensus::Learning;
use tercio_replica::{Durability, Layout, NoLog, ReplicaHandle};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            fs::copy(path, copied).unwrap();
        }
    }
}

fn learning(net: &Network) -> Option<Learning> {
    net.replicas[3].as_ref().map(ReplicaHandle::status)?.protocol.learning
}

/// Replica 3 was stopped and copied, went on, and is started on the copy.
fn restored(without_log: bool) {
    let mut net = Network::start(4, Layout::AllInOne, Durability::Memory);
    let mut client = net.client(CLIENT);
    let mut submit = |count: u64| {
        for _ in 0..count {
            client.call(Bytes::from_static(b"one")).unwrap();
        }
    };
    submit(5);
    net.wait_for_height(5);
    net.replicas[3].take().unwrap().stop().unwrap();
    let (data, kept) = (net.path(3), net.dir.path().join("kept"));
    copy(&data, &kept);
    // What it does from here on is forgotten, and nothing is done without it.
    net.restart(3);
    net.replicas[2].take().unwrap().stop().unwrap();
    submit(20);
    net.wait_for_height(25);
    let stable = |handle: &ReplicaHandle| handle.status().protocol.stable.0;
    wait("a stable checkpoint", || net.running().all(|handle| stable(handle) >= 16));
    net.replicas[3].take().unwrap().stop().unwrap();
    net.restart(2);

    fs::remove_dir_all(&data).unwrap();
    copy(&kept, &data);
    if without_log {
        fs::remove_dir_all(data.join("wal")).unwrap();
    }
    net.restart_with(3, |net| {
        let mut config = net.config(3);
        config.node.no_log = NoLog::Lost;
        config
    });
    wait("it knows that its log is no more", || learning(&net).is_some());
    let status = net.replicas[3].as_ref().unwrap().status();
    let went_back = status.protocol.dropped.contains_key("own_log_went_back");
    assert_eq!(went_back, !without_log, "{:?}", status.protocol.dropped);
    submit(10);
    net.wait_for_height(35);
    wait("it knows when it may vote again", || {
        learning(&net).is_some_and(|learning| learning.floor.is_some())
    });
}

#[test]
fn a_restored_copy_makes_a_learner() {
    restored(false);
}

#[test]
fn a_restored_copy_without_its_log_makes_a_learner() {
    restored(true);
}

/// A replica that is started again on what it left votes again, and so does one whose home was only
/// set up: with another one down, nothing goes on without it.
#[test]
fn one_that_starts_again_is_no_learner() {
    let mut net = Network::start(4, Layout::AllInOne, Durability::Memory);
    let mut client = net.client(CLIENT);
    client.call(Bytes::from_static(b"one")).unwrap();
    net.wait_for_height(1);
    net.replicas[3].take().unwrap().stop().unwrap();
    net.replicas[2].take().unwrap().stop().unwrap();
    net.restart(3);
    client.call(Bytes::from_static(b"one")).unwrap();
    assert_eq!(learning(&net), None);
}
