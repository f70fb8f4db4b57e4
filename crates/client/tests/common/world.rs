//! A client's core, replicas by hand, and a clock by hand.

use super::{ME, Replica, membership, results, secret};
use bytes::Bytes;
use std::time::Duration;
use tercio_client::{
    ClientAuth, ClientCore, Completion, CoreSettings, Failure, Nanos, OpResult, Ticket,
};
use tercio_types::{Principal, ReplicaId, RequestSeq};
use tercio_wire::reject::Reason;

pub const MS: Duration = Duration::from_millis(1);

pub struct World {
    pub core: ClientCore,
    pub replicas: Vec<Replica>,
    pub now: Nanos,
}

impl World {
    pub fn with(n: usize, settings: CoreSettings) -> Self {
        let membership = membership(n, &[]);
        let replicas = (0..n).map(|i| Replica::new(i, &membership)).collect();
        let mut core = ClientCore::new(ME, secret(Principal::Client(ME)), membership, settings);
        (0..n as u16).for_each(|i| core.handle_connected(ReplicaId(i)));
        Self { core, replicas, now: Nanos(1) }
    }

    pub fn new(n: usize) -> Self {
        Self::with(n, CoreSettings { auth: ClientAuth::Mac, ..CoreSettings::unused_id() })
    }

    pub fn submit(&mut self, op: &'static str) -> Ticket {
        self.core.submit(vec![op.into()], self.now).unwrap()
    }

    /// What the core wants sent, and to whom.
    pub fn sent(&mut self) -> Vec<(u16, Bytes)> {
        std::iter::from_fn(|| self.core.poll_send()).map(|(r, bytes)| (r.0, bytes)).collect()
    }

    pub fn receivers(&mut self) -> Vec<u16> {
        self.sent().into_iter().map(|(r, _)| r).collect()
    }

    pub fn hear(&mut self, from: u16, bytes: &Bytes) {
        self.core.handle_frame(ReplicaId(from), bytes, self.now);
    }

    pub fn full(&mut self, from: u16, first: u64, results: &[OpResult]) {
        let bytes = self.replicas[usize::from(from)].full(RequestSeq(first), results);
        self.hear(from, &bytes);
    }

    pub fn brief(&mut self, from: u16, first: u64, results: &[OpResult]) {
        let bytes = self.replicas[usize::from(from)].brief(RequestSeq(first), results);
        self.hear(from, &bytes);
    }

    pub fn reject(&mut self, from: u16, first: u64, reason: Reason, ms: u32) {
        let bytes = self.replicas[usize::from(from)].reject(RequestSeq(first), reason, ms);
        self.hear(from, &bytes);
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.core.handle_timeout(self.now);
    }

    pub fn done(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.core.poll_completion()).collect()
    }

    pub fn outcome(&mut self) -> Result<Vec<OpResult>, Failure> {
        let [one] = <[_; 1]>::try_from(self.done()).expect("one completion");
        one.outcome
    }

    pub fn counter(&self, reason: &str) -> u64 {
        self.core.counters().get(reason).copied().unwrap_or(0)
    }

    /// The one package that was sent, as replica `reader` reads it.
    pub fn package(&mut self, reader: usize) -> tercio_types::Package {
        let sent = self.sent();
        self.replicas[reader].read(&sent[0].1)
    }
}

pub fn did(op: &'static str) -> Vec<OpResult> {
    results(&[op.into()])
}
