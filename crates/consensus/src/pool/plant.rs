//! The pool between simulated clients and a simulated replica that orders (rule Q1).
//!
//! Clients keep a number of operations under way, all together. As the real ones do, who is refused
//! sends nothing until the time that it was named, then a quarter less than before, and one more for
//! each eight that end. Each millisecond so many are ordered as the plant can just now; what is ordered is
//! answered three milliseconds later.

use super::*;
use std::collections::BTreeMap;
use tercio_types::{Authenticator, Digest, OpKind, Ops, ReplicaId, Tag};

/// How long it takes from a proposal to its delivery.
const LATENCY_MS: u64 = 3;
/// What one client may have under way.
const EACH: u64 = 256;
/// The part of what can be ordered that counts as all of it.
const ALL: f64 = 0.95;

/// How a client keeps to what it is told.
#[derive(Default)]
struct Sender {
    /// The number of its next operation.
    next: u64,
    window: u64,
    /// How many it has sent, and how many of these have ended since the window grew.
    sent: u64,
    ended: u64,
    /// Nothing is sent before.
    until: u64,
    held: std::collections::BTreeSet<u64>,
}

struct Plant {
    pool: RequestPool,
    ms: u64,
    senders: Vec<Sender>,
    /// What is proposed, by when it is delivered.
    proposed: BTreeMap<u64, Vec<Package>>,
    /// What could have been taken and was not, in packages.
    credit: f64,
    /// How many were delivered in each millisecond.
    delivered: Vec<u64>,
    refused: u64,
}

fn package(client: u64, first: u64) -> Package {
    Package {
        client: ClientId(client),
        first: RequestSeq(first),
        kind: OpKind::User,
        replier: ReplicaId(0),
        ops: Ops::new(&[b"op"]),
        digest: Digest::NULL,
        auth: Authenticator::Mac(Tag::default()),
    }
}

impl Plant {
    /// Clients that want so many operations under way from the first millisecond on.
    fn under(load: u64) -> Self {
        let clients = load.div_ceil(EACH);
        let sender = |_| Sender {
            next: load / clients + 1,
            window: load / clients,
            held: (1..=load / clients).collect(),
            ..Sender::default()
        };
        Self {
            pool: RequestPool::new(PoolLimits::default(), BTreeMap::new(), 2),
            ms: 0,
            senders: (0..clients).map(sender).collect(),
            proposed: BTreeMap::new(),
            credit: 0.0,
            delivered: Vec::new(),
            refused: 0,
        }
    }

    fn now(&self) -> Instant {
        Instant(self.ms * 1_000_000)
    }

    /// Clients send what they may.
    fn come(&mut self) {
        let (ms, now) = (self.ms, self.now());
        for (client, sender) in self.senders.iter_mut().enumerate() {
            while sender.until <= ms && sender.sent < sender.window {
                let Some(number) = sender.held.pop_first() else { break };
                let id = client as u64;
                let Some(hint) = self.pool.turns_away(ClientId(id), RequestSeq(number)) else {
                    assert_eq!(
                        self.pool.admit(package(id, number), Share::Asked, now),
                        Admitted::New
                    );
                    sender.sent += 1;
                    continue;
                };
                self.refused += 1;
                sender.held.insert(number);
                sender.window = (sender.sent + 1 - sender.sent / 4).max(16);
                sender.until = ms + hint.as_millis() as u64;
            }
        }
    }

    fn deliver(&mut self) {
        let done = self.proposed.remove(&self.ms).unwrap_or_default();
        self.delivered.push(done.len() as u64);
        for package in &done {
            self.pool.delivered(package);
            let sender = &mut self.senders[package.client.0 as usize];
            sender.held.insert(sender.next);
            sender.next += 1;
            sender.sent -= 1;
            sender.ended += 1;
            sender.window += u64::from(sender.ended.is_multiple_of(8));
        }
        self.pool.trim(self.now());
    }

    /// Time in which so many a millisecond can be ordered.
    fn run(&mut self, ms: u64, ops: f64) -> &mut Self {
        for _ in 0..ms {
            self.deliver();
            self.come();
            self.credit = (self.credit + ops).min(ops.max(1.0));
            if self.credit >= 1.0 && self.pool.queued_ops() > 0 {
                let batch = self.pool.take_batch(self.credit as usize, usize::MAX, self.now());
                self.credit -= batch.len() as f64;
                self.proposed.entry(self.ms + LATENCY_MS).or_default().extend(batch);
            }
            self.ms += 1;
        }
        self
    }

    /// The primary is gone for so long. Then another orders, whose pool this is from now on: clients
    /// that wait have sent to it meanwhile what they have under way.
    fn change_view(&mut self, ms: u64) -> &mut Self {
        let fresh = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 2);
        let old = std::mem::replace(&mut self.pool, fresh);
        self.proposed.clear();
        for (client, of) in &old.clients {
            let sender = &mut self.senders[client.0 as usize];
            sender.held.extend(of.waiting.iter().map(|(number, _)| number.0));
            (sender.sent, sender.until) = (0, 0);
        }
        self.run(ms, 0.0);
        let now = self.now();
        self.pool.requeue(std::iter::empty(), now);
        self
    }

    /// Delivered in a millisecond, in the last so many.
    fn rate(&self, ms: usize) -> f64 {
        let last = &self.delivered[self.delivered.len() - ms..];
        last.iter().sum::<u64>() as f64 / ms as f64
    }

    /// How long what is next in the queue has waited, in milliseconds.
    fn delay(&self) -> u64 {
        let first = self.pool.queue.iter().find_map(|(_, key)| self.pool.find(key));
        first.map_or(0, |p| self.now().since(p.arrived.max(self.pool.began)).as_millis() as u64)
    }

    /// All that can be ordered is, and the queue is no longer than it is to be, `after` so long.
    fn recovers(&mut self, after: u64, ops: f64, what: &str) -> &mut Self {
        let load: u64 = self.senders.len() as u64 * EACH;
        // What waits now, or comes at once, was let in before.
        let comes = if self.ms == 0 { load as usize } else { 0 };
        let waits = self.pool.queued_ops().max(comes);
        self.run(after + (waits as f64 / ops) as u64, ops);
        // Little's law: a few under way may not be enough for all that could be ordered.
        let able = ops.min(load as f64 / (LATENCY_MS + 1) as f64);
        for _ in 0..10 {
            self.run(100, ops);
            let (rate, limit) = (self.rate(100), self.pool.admission.limit());
            assert!(rate >= ALL * able, "{what}: {rate} of {able}/ms, limit {limit}");
            let bound = 120.max((2.0 * 64.0 / ops) as u64);
            let delay = self.delay();
            assert!(delay <= bound, "{what}: waits {delay} ms, limit {limit}");
        }
        self
    }
}

const LOADS: [u64; 3] = [512, 2048, 8192];

#[test]
fn full_load_from_the_start_gets_all_that_can_be_ordered() {
    for load in LOADS {
        for ops in [1.0, 10.0, 50.0, 200.0] {
            Plant::under(load).recovers(1000, ops, &format!("{load} under way, {ops}/ms"));
        }
    }
}

/// f56: whenever the view changes, and however long that takes.
#[test]
fn a_view_change_is_no_measure_of_what_can_be_ordered() {
    for load in LOADS {
        for (ops, lasts) in [(10.0, 500), (50.0, 500), (50.0, 4000)] {
            for at in (0..1000).step_by(340) {
                let what = format!("{load} under way, {ops}/ms, view change at {at} for {lasts}");
                Plant::under(load).run(at, ops).change_view(lasts).recovers(1000, ops, &what);
            }
        }
    }
}

#[test]
fn views_that_change_again_and_again_leave_nothing_behind() {
    let mut plant = Plant::under(8192);
    for lasts in [500, 1000, 2000, 100, 500, 50] {
        plant.run(333, 50.0).change_view(lasts);
    }
    plant.recovers(1000, 50.0, "six view changes");
}

/// As when execution, the disk or the machine halts: the same primary goes on.
#[test]
fn a_halt_is_no_measure_of_what_can_be_ordered() {
    for load in LOADS {
        for halt in [60, 150, 400, 4000] {
            let mut plant = Plant::under(load);
            plant.run(1000, 50.0);
            let before = plant.pool.admission.limit();
            plant.run(halt, 0.0).run(50, 50.0);
            let after = plant.pool.admission.limit();
            assert!(2 * after >= before, "halted for {halt} ms: {before}, then {after}");
            plant.recovers(950, 50.0, &format!("{load} under way, halted for {halt}"));
        }
        let mut plant = Plant::under(load);
        for _ in 0..20 {
            plant.run(150, 50.0).run(150, 0.0);
        }
        plant.recovers(1000, 50.0, &format!("{load} under way, halted again and again"));
    }
}

#[test]
fn what_may_wait_follows_what_can_be_ordered() {
    for load in LOADS {
        for slow in [0.5, 2.0, 10.0] {
            let what = |step| format!("{load} under way, {slow}/ms {step}");
            let mut plant = Plant::under(load);
            plant.recovers(1000, 50.0, &what("to come"));
            // By halves, an interval each; then what waits too long must go.
            plant.recovers(3000, slow, &what("now"));
            plant.recovers(2000, 50.0, &what("before"));
        }
    }
}

/// Few clients say nothing of what could be ordered, and nobody of them is refused.
#[test]
fn a_load_that_is_ordered_at_once_changes_nothing() {
    let mut plant = Plant::under(400);
    plant.run(5000, 200.0);
    assert_eq!((plant.refused, plant.pool.admission.limit()), (0, crate::admission::FIRST));
    // More come: they find all of it.
    let mut more = Plant::under(8192);
    std::mem::swap(&mut more.pool.admission, &mut plant.pool.admission);
    more.recovers(500, 200.0, "more clients");
}

/// The fault comes back without its defence, and stays.
#[cfg(feature = "zoo")]
#[test]
fn f56_without_its_defence_a_view_change_leaves_little() {
    tercio_types::zoo::without(Defence::F56LearnFromWork, || {
        let mut plant = Plant::under(2048);
        plant.run(1000, 50.0).change_view(500).run(10_000, 50.0);
        let rate = plant.rate(1000);
        assert!(rate < 0.7 * 50.0, "{rate} of 50/ms");
    });
}
