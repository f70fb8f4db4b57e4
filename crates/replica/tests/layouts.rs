//! Every layout with every durability, over sockets, with the real client.

use crate::running;

use bytes::Bytes;
use running::watched::{Call, watched};
use running::{CLIENT, Network, counter, number, wait};
use std::fs;
use std::sync::Mutex;
use std::time::Duration;
use tercio_ledger::{MemStorage, Storage};
use tercio_replica::{Data, Durability, Layout, NodeSettings, ReplicaConfig, ReplicaHandle};
use tercio_types::ClientId;

const DURABILITIES: [Durability; 3] =
    [Durability::Memory, Durability::Group(Duration::from_millis(2)), Durability::Sync];

/// Orders, restarts one replica after a crash and all in an orderly way, and orders again.
fn life(layout: Layout, durability: Durability) {
    life_of(Network::start(4, layout, durability));
}

fn life_of(mut net: Network) {
    let (layout, durability) = (net.layout, net.durability);
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

/// With verification on threads of its own, under every layout.
#[test]
fn verify_apart() {
    let layouts = [Layout::AllInOne, Layout::ExecutionApart, Layout::LogApart, Layout::BothApart];
    for layout in layouts {
        let tune = |node: &mut NodeSettings| node.verify.threads = 2;
        life_of(Network::with(4, layout, Durability::Memory, tune, counter));
    }
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

/// Releases what a disk holds, however a test ends.
struct Releases(MemStorage);

impl Drop for Releases {
    fn drop(&mut self) {
        self.0.hold_removals(false);
    }
}

/// A disk that takes its time to remove a file holds nobody up: neither those who wait for a promise
/// nor, when the log is there, the loop.
#[test]
fn a_slow_removal_holds_nobody_up() {
    let small = |node: &mut NodeSettings| {
        node.ledger.wal.file_bytes = 4096;
        (node.ledger.blocks.blocks_per_segment, node.ledger.blocks.retain_bytes) = (2, 1);
        (node.snapshot_every, node.consensus.checkpoint_interval) = (1, 8);
    };
    for (layout, durability) in
        [(Layout::AllInOne, Durability::Memory), (Layout::LogApart, Durability::Sync)]
    {
        let mut net = Network::with(1, layout, durability, small, counter);
        net.replicas[0].take().unwrap().stop().unwrap();
        let mut disk = MemStorage::new();
        disk.hold_removals(true);
        let released = Releases(disk.clone());
        let data = || Data::Memory(disk.clone());
        net.restart_with(0, |net| ReplicaConfig { data: data(), ..net.config(0) });
        let mut client = net.client(CLIENT);
        let mut called = 0;
        let mut call = |count: u64| {
            for _ in 0..count {
                called += 1;
                assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), called);
            }
        };
        while disk.held_removals() == 0 {
            call(8);
        }
        call(100);
        let files = |of: &str| {
            let names = disk.list().unwrap();
            names.iter().filter(|name| name.starts_with(of)).count()
        };
        // With each of these, which stay too, the log releases all blocks but the last few.
        while files("snapshot-") < 5 {
            call(8);
        }
        call(8);
        assert_eq!(disk.held_removals(), 1, "one after the other");
        let kinds = ["wal-", "blocks-", "snapshot-"];
        let held = kinds.map(files);
        drop(released);
        wait("what was held is removed", || {
            kinds.map(files).iter().zip(held).all(|(now, held)| *now <= held / 2)
        });
        net.replicas[0].take().unwrap().stop().unwrap();
    }
}

/// On which threads states were restored, and how nice those were.
static RESTORED: Mutex<Vec<(String, i64)>> = Mutex::new(Vec::new());

/// Notes where the counter's state is restored.
fn note(call: Call<'_>) {
    let Call::Restore = call else { return };
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    // Behind the name, which may have any form, the nineteenth field is the 17th.
    let (name, fields) = stat.rsplit_once(')').unwrap();
    let name = name.split_once('(').unwrap().1.to_owned();
    let nice = fields.split_whitespace().nth(16).unwrap().parse().unwrap();
    RESTORED.lock().unwrap().push((name, nice));
}

/// A state that was fetched is built up by a thread that gives way, wherever execution sits; and
/// the replica goes on from it.
#[cfg(target_os = "linux")]
#[test]
fn a_fetched_state_is_built_up_gently() {
    for layout in [Layout::AllInOne, Layout::BothApart] {
        let tune = |settings: &mut tercio_replica::NodeSettings| {
            settings.ledger.blocks.retain_bytes = 1;
        };
        let mut net = Network::with(4, layout, Durability::Memory, tune, || watched(note));
        let mut client = net.client(CLIENT);
        net.replicas[3].take().unwrap().abort();
        for i in 1..=100 {
            assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), i);
        }
        fs::remove_dir_all(net.path(3)).unwrap();
        RESTORED.lock().unwrap().clear();
        net.restart(3);
        for i in 101..=140 {
            assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), i);
        }
        net.wait_for_height(140);
        let status = net.replicas[3].as_ref().unwrap().status();
        assert!(status.transfer.is_some_and(|transfer| transfer.phase == "done"));
        let restored = std::mem::take(&mut *RESTORED.lock().unwrap());
        assert!(!restored.is_empty());
        for (name, nice) in restored {
            assert_eq!((name.as_str(), nice), ("tercio-3-gentle", 10));
        }
    }
}
