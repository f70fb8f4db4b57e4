//! In the steady state no replica allocates for a request: what it allocates, it allocates for a
//! batch, for a frame, or for many requests at once. And of what is delivered it holds the encoded
//! batches, until a checkpoint covers them, and nothing else.

mod common;

use bytes::Bytes;
use common::{Asker, CLIENT, counter, membership, secret};
use std::collections::VecDeque;
use std::time::Duration;
use tercio_consensus::{Instant, Settings};
use tercio_ledger::MemStorage;
use tercio_replica::{Node, NodeSettings, Output};
use tercio_types::{Principal, ReplicaId, SeqNum};
use tercio_unsafe_alloc_count::{Counting, allocations, held_bytes};
use tercio_wire::package_len;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests of a round: a batch, mostly.
const BATCH: u64 = 256;
/// What a replica may allocate for a request on the average: some fifty allocations for each of the
/// two batches of a round, and at the primary two for each 4 KiB of requests. One more for each
/// request would be far above it.
const BOUND: f64 = 0.6;

struct Net {
    nodes: Vec<Node<MemStorage>>,
    wire: VecDeque<(Principal, ReplicaId, Bytes)>,
    now: Instant,
    /// What each replica has allocated while it worked, and how many bytes more than it freed.
    allocated: Vec<u64>,
    grown: Vec<i64>,
    answers: usize,
}

impl Net {
    fn new(keep_results: bool) -> Self {
        let membership = membership(4);
        let now = Instant(1_000_000_000);
        let node = |i: usize| {
            let me = ReplicaId(i as u16);
            let mut settings = NodeSettings::new(me, secret(i), membership.clone());
            settings.consensus = Settings { batch_ops: BATCH as usize, ..Settings::default() };
            // A storage in memory grows by the results that wait to be written.
            settings.ledger.blocks.keep_results = keep_results;
            Node::open(settings, MemStorage::default(), counter(), now).unwrap()
        };
        let (wire, allocated, grown) = (VecDeque::new(), vec![0; 4], vec![0; 4]);
        Self { nodes: (0..4).map(node).collect(), wire, now, allocated, grown, answers: 0 }
    }

    /// Lets a node work, and counts what it allocates.
    fn work(&mut self, i: usize, work: impl FnOnce(&mut Node<MemStorage>)) {
        let node = &mut self.nodes[i];
        let before = (allocations(), held_bytes());
        work(node);
        node.step(self.now).unwrap();
        self.allocated[i] += allocations() - before.0;
        self.grown[i] += held_bytes() - before.1;
        while let Some(Output::Send { to, bytes }) = node.poll_output() {
            match to {
                Principal::Replica(to) => {
                    self.wire.push_back((Principal::Replica(ReplicaId(i as u16)), to, bytes));
                }
                Principal::Client(_) => self.answers += 1,
            }
        }
    }

    fn settle(&mut self) {
        while let Some((from, to, bytes)) = self.wire.pop_front() {
            let now = self.now;
            // As from a socket: a buffer of the receiver's own.
            let bytes = Bytes::copy_from_slice(&bytes);
            self.work(to.index(), |node| node.handle_frame(from, &bytes, now));
        }
    }

    fn round(&mut self, requests: &[Bytes]) {
        let now = self.now;
        self.work(0, |node| {
            for bytes in requests {
                node.handle_frame(Principal::Client(CLIENT), bytes, now);
            }
        });
        self.settle();
        self.pass(Duration::from_millis(3));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for i in 0..4 {
            if self.nodes[i].deadline().is_some_and(|at| at <= self.now) {
                let now = self.now;
                self.work(i, |node| node.handle_timeout(now));
            }
        }
        self.settle();
    }

    /// The highest number that all have a stable checkpoint at.
    fn stable(&self) -> SeqNum {
        let all = self.nodes.iter().map(|node| node.status().protocol.stable);
        all.min().expect("there are nodes")
    }

    /// Nothing is asked for until a checkpoint covers everything.
    fn cover(&mut self) {
        let delivered = self.nodes[0].status().protocol.delivered;
        for _ in 0..100 {
            if self.stable() > delivered {
                return;
            }
            self.pass(Duration::from_millis(500));
        }
        panic!("no checkpoint of an idle network");
    }
}

/// Sends the requests of some rounds; gives how many bytes they have in batches.
fn run(rounds: std::ops::Range<u64>, net: &mut Net) -> usize {
    let asker = Asker::new(CLIENT, &membership(4));
    let ops: &[&'static [u8]] = &[&[7; 100]];
    let mut bytes = 0;
    for round in rounds {
        let numbers = 1 + round * BATCH..1 + (round + 1) * BATCH;
        let requests: Vec<Bytes> =
            numbers.map(|number| asker.maced(number, (number % 4) as u16, ops)).collect();
        bytes += requests.len() * package_len(&asker.package(1, 0, ops));
        net.round(&requests);
    }
    bytes
}

#[test]
fn no_replica_allocates_for_a_request() {
    let mut net = Net::new(true);
    run(0..40, &mut net);
    net.allocated.fill(0);
    run(40..80, &mut net);
    let heights: Vec<u64> = net.nodes.iter().map(|node| node.status().height.0).collect();
    assert!(heights.iter().all(|height| *height >= 80), "{heights:?}");
    assert!(net.answers > 0);
    let each = |n: &u64| *n as f64 / (40 * BATCH) as f64;
    let each: Vec<f64> = net.allocated.iter().map(each).collect();
    assert!(each.iter().all(|each| *each < BOUND), "allocations per request: {each:?}");
}

/// What lies above the last checkpoint is most of what a replica's memory goes up and down by.
#[test]
fn what_is_delivered_is_held_once() {
    let mut net = Net::new(false);
    // The first round comes with what is allocated once.
    run(0..1, &mut net);
    net.cover();
    let covered = net.stable();
    let bytes = run(1..21, &mut net) as f64;
    assert_eq!(net.stable(), covered, "no checkpoint yet");
    net.grown.fill(0);
    net.cover();
    let freed: Vec<f64> = net.grown.iter().map(|grown| -grown as f64 / bytes).collect();
    assert!(freed.iter().all(|freed| (0.9..1.2).contains(freed)), "freed for each byte: {freed:?}");
}
