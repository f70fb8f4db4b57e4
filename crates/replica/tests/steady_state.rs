//! In the steady state no replica allocates for a request: what it allocates, it allocates for a
//! batch, for a frame, or for many requests at once.

mod common;

use bytes::Bytes;
use common::{Asker, CLIENT, counter, membership, secret};
use std::collections::VecDeque;
use std::time::Duration;
use tercio_consensus::{Instant, Settings};
use tercio_ledger::MemStorage;
use tercio_replica::{Node, NodeSettings, Output};
use tercio_types::{Principal, ReplicaId};
use tercio_unsafe_alloc_count::{Counting, allocations};

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
    /// What each replica has allocated while it worked.
    allocated: Vec<u64>,
    answers: usize,
}

impl Net {
    fn new() -> Self {
        let membership = membership(4);
        let now = Instant(1_000_000_000);
        let node = |i: usize| {
            let me = ReplicaId(i as u16);
            let mut settings = NodeSettings::new(me, secret(i), membership.clone());
            settings.consensus = Settings { batch_ops: BATCH as usize, ..Settings::default() };
            Node::open(settings, MemStorage::default(), counter(), now).unwrap()
        };
        let (wire, allocated) = (VecDeque::new(), vec![0; 4]);
        Self { nodes: (0..4).map(node).collect(), wire, now, allocated, answers: 0 }
    }

    /// Lets a node work, and counts what it allocates.
    fn work(&mut self, i: usize, work: impl FnOnce(&mut Node<MemStorage>)) {
        let node = &mut self.nodes[i];
        let before = allocations();
        work(node);
        node.step(self.now).unwrap();
        self.allocated[i] += allocations() - before;
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
        self.now = self.now + Duration::from_millis(3);
        for i in 0..4 {
            if self.nodes[i].deadline().is_some_and(|at| at <= self.now) {
                let now = self.now;
                self.work(i, |node| node.handle_timeout(now));
            }
        }
        self.settle();
    }
}

#[test]
fn no_replica_allocates_for_a_request() {
    let mut net = Net::new();
    let asker = Asker::new(CLIENT, &membership(4));
    let request = |number: u64| asker.maced(number, (number % 4) as u16, &[&[7; 100]]);
    let rounds = |from: u64, to: u64| {
        (from..to).map(move |round| (1 + round * BATCH..1 + (round + 1) * BATCH).map(request))
    };
    let run = |from: u64, to: u64, net: &mut Net| {
        for round in rounds(from, to) {
            let requests: Vec<Bytes> = round.collect();
            net.round(&requests);
        }
    };
    run(0, 40, &mut net);
    net.allocated.fill(0);
    run(40, 80, &mut net);
    let heights: Vec<u64> = net.nodes.iter().map(|node| node.status().height.0).collect();
    assert!(heights.iter().all(|height| *height >= 80), "{heights:?}");
    assert!(net.answers > 0);
    let each = |n: &u64| *n as f64 / (40 * BATCH) as f64;
    let each: Vec<f64> = net.allocated.iter().map(each).collect();
    assert!(each.iter().all(|each| *each < BOUND), "allocations per request: {each:?}");
}
