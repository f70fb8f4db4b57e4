//! A client of the simulated network: the real [`ClientCore`], and a workload that keeps some
//! packages under way until all are answered.

use crate::{Cast, Rng};
use bytes::Bytes;
use std::time::Duration;
use tercio_client::{ClientAuth, ClientCore, Completion, CoreSettings, Nanos};
use tercio_consensus::Instant;
use tercio_types::{ClientId, Principal, ReplicaId, RequestSeq};

/// What a client wants done.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// How many packages in all.
    pub packages: u64,
    /// The most operations in one.
    pub ops: u64,
    /// The most packages under way.
    pub under_way: usize,
    /// The longest pause between two packages.
    pub pause: Duration,
}

impl Workload {
    /// Nothing by itself: a script says what to submit.
    pub const NONE: Self = Self { packages: 0, ops: 1, under_way: 1, pause: Duration::ZERO };
}

/// A client.
pub struct Customer {
    id: ClientId,
    core: ClientCore,
    rng: Rng,
    work: Workload,
    left: u64,
    next_at: Instant,
}

/// An operation that a client has just submitted.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its number.
    pub seq: RequestSeq,
    /// Its bytes.
    pub op: Bytes,
}

fn nanos(now: Instant) -> Nanos {
    Nanos(now.0)
}

impl Customer {
    /// A client of `cast` that is linked to every replica.
    #[must_use]
    pub fn new(cast: &Cast, id: ClientId, auth: ClientAuth, work: Workload, rng: Rng) -> Self {
        let settings = CoreSettings {
            auth,
            timeout: Duration::from_millis(100),
            max_timeout: Duration::from_millis(800),
            // Nobody gives up: whatever is asked for must be answered in the end.
            deadline: Duration::from_secs(3600),
            ..CoreSettings::default()
        };
        let secret = cast.secret(Principal::Client(id)).clone();
        let mut core = ClientCore::new(id, secret, cast.membership().clone(), settings);
        cast.replicas().for_each(|replica| core.handle_connected(replica));
        Self { id, core, rng, work, left: work.packages, next_at: Instant(0) }
    }

    /// Who it is.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// The protocol core underneath.
    #[must_use]
    pub fn core(&self) -> &ClientCore {
        &self.core
    }

    /// Whether everything that it wants was asked for and answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.core.outstanding() == 0
    }

    /// When to call [`Self::wake`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.core.poll_timeout().map(|at| Instant(at.0));
        let free = self.left > 0 && self.core.outstanding() < self.work.under_way;
        timer.into_iter().chain(free.then_some(self.next_at)).min()
    }

    /// Does what is due; gives what was submitted.
    pub fn wake(&mut self, now: Instant) -> Vec<Asked> {
        self.core.handle_timeout(nanos(now));
        let free = self.left > 0 && self.core.outstanding() < self.work.under_way;
        if !free || self.next_at > now {
            return Vec::new();
        }
        self.left -= 1;
        self.next_at = now + self.rng.duration(Duration::ZERO, self.work.pause);
        let count = self.rng.between(1, self.work.ops);
        let ops = (0..count).map(|_| {
            let padding = self.rng.below(40) as usize;
            let mut op = self.rng.bits().to_le_bytes().to_vec();
            op.resize(8 + padding, 0x5a);
            Bytes::from(op)
        });
        let ops = ops.collect();
        self.submit(ops, now)
    }

    /// Submits a package.
    ///
    /// # Panics
    /// When the core takes no more; scripts stay within its bounds.
    pub fn submit(&mut self, ops: Vec<Bytes>, now: Instant) -> Vec<Asked> {
        let first = self.core.next_number();
        self.core.submit(ops.clone(), nanos(now)).expect("within the core's bounds");
        let numbered = (first.0..).zip(ops);
        numbered.map(|(seq, op)| Asked { seq: RequestSeq(seq), op }).collect()
    }

    /// A frame from a replica.
    pub fn handle_frame(&mut self, from: ReplicaId, bytes: &Bytes, now: Instant) {
        self.core.handle_frame(from, bytes, nanos(now));
    }

    /// The link to a replica was lost.
    pub fn disconnected(&mut self, replica: ReplicaId, now: Instant) {
        self.core.handle_disconnected(replica, nanos(now));
    }

    /// The link to a replica is there again.
    pub fn connected(&mut self, replica: ReplicaId) {
        self.core.handle_connected(replica);
    }

    /// What it sends.
    pub fn poll_send(&mut self) -> Option<(ReplicaId, Bytes)> {
        self.core.poll_send()
    }

    /// What has ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.core.poll_completion()
    }
}
