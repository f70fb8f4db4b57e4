//! A client of the simulated network: the real [`ClientCore`], and a workload that keeps some
//! packages in flight until all are answered.

use crate::{Cast, Rng};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_client::{Answer, ClientAuth, ClientCore, Completion, CoreSettings, Nanos};
use tercio_consensus::Instant;
use tercio_types::{
    ClientId, ClientInfo, OpKind, Principal, ReplicaId, RequestSeq, SignatureBytes, SystemOp,
};

/// What a client wants done.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// How many packages in all.
    pub packages: u64,
    /// The most operations in one.
    pub ops: u64,
    /// The most packages in flight.
    pub under_way: usize,
    /// The longest pause between two packages.
    pub pause: Duration,
}

impl Workload {
    /// Nothing by itself: a script says what to submit.
    pub const NONE: Self = Self { packages: 0, ops: 1, under_way: 1, pause: Duration::ZERO };
}

/// What else than short operations a client asks for, each so often in a thousand packages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Ordered reads.
    pub reads: u64,
    /// Queries, beside the package.
    pub queries: u64,
    /// One operation of up to this many bytes.
    pub long: (u64, u64),
}

/// A client.
pub struct Customer {
    id: ClientId,
    core: ClientCore,
    rng: Rng,
    work: Workload,
    habits: Habits,
    left: u64,
    next_at: Instant,
    /// Packages in flight that are no operations of the application.
    kinds: BTreeMap<RequestSeq, OpKind>,
    /// Operations above a MiB that are in flight.
    long: BTreeMap<RequestSeq, u64>,
    /// Queries in flight.
    asking: u64,
}

/// An operation that a client has just submitted.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its number.
    pub seq: RequestSeq,
    /// Its bytes.
    pub op: Bytes,
}

/// The end of a package.
pub struct Done {
    /// What its operations were.
    pub kind: OpKind,
    /// How many of them were long.
    pub long: u64,
    /// What the core says of it.
    pub completion: Completion,
}

/// The longest frame of a package.
const MOST_BYTES: usize = 8 << 20;
/// An operation is long above this.
const LONG: usize = 1 << 20;

fn nanos(now: Instant) -> Nanos {
    Nanos(now.0)
}

impl Customer {
    /// A client of `cast` that is linked to every replica.
    #[must_use]
    pub fn new(cast: &Cast, id: ClientId, auth: ClientAuth, work: Workload, rng: Rng) -> Self {
        let settings = CoreSettings {
            auth,
            max_package: MOST_BYTES,
            timeout: Duration::from_millis(100),
            max_timeout: Duration::from_millis(800),
            // Nobody gives up: whatever is asked for must be answered in the end.
            deadline: Duration::from_secs(3600),
            max_outstanding: work.under_way.max(CoreSettings::unused_id().max_outstanding),
            ..CoreSettings::unused_id()
        };
        let secret = cast.secret(Principal::Client(id)).clone();
        let mut core = ClientCore::new(id, secret, cast.membership().clone(), settings);
        cast.replicas().for_each(|replica| core.handle_connected(replica));
        let (habits, next_at) = (Habits::default(), Instant(0));
        let (kinds, long) = (BTreeMap::new(), BTreeMap::new());
        let left = work.packages;
        Self { id, core, rng, work, habits, left, next_at, kinds, long, asking: 0 }
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

    /// Takes habits on.
    pub fn adopt(&mut self, habits: Habits) {
        self.habits = habits;
    }

    /// Wants this many packages more, one soon after the other.
    pub fn want_more(&mut self, packages: u64, pause: Duration) {
        self.left += packages;
        self.work.pause = pause;
    }

    /// Whether everything that it wants was asked for and answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.core.outstanding() == 0 && self.asking == 0
    }

    /// What it waits for, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let (who, under_way) = (self.id, self.core.outstanding());
        format!(
            "client {who} wants {} more, {under_way} under way, {} asked",
            self.left, self.asking
        )
    }

    /// When to call [`Self::wake`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.core.poll_timeout().map(|at| Instant(at.0));
        timer.into_iter().chain(self.is_free().then_some(self.next_at)).min()
    }

    fn is_free(&self) -> bool {
        self.left > 0 && self.core.outstanding() < self.work.under_way
    }

    /// Does what is due; gives what was submitted.
    pub fn wake(&mut self, now: Instant) -> Vec<Asked> {
        self.core.handle_timeout(nanos(now));
        if !self.is_free() || self.next_at > now {
            return Vec::new();
        }
        self.left -= 1;
        self.next_at = now + self.rng.duration(Duration::ZERO, self.work.pause);
        if self.rng.chance(self.habits.queries) {
            let asked = self.core.query(Bytes::new(), nanos(now));
            asked.expect("within the core's bounds");
            self.asking += 1;
        }
        if self.rng.chance(self.habits.reads) {
            let questions = vec![Bytes::new(); self.rng.between(1, self.work.ops) as usize];
            let first = self.next_number();
            self.core.read(questions, nanos(now)).expect("within the core's bounds");
            self.kinds.insert(first, OpKind::Read);
            return Vec::new();
        }
        let ops = self.operations();
        self.submit(ops, now)
    }

    fn operations(&mut self) -> Vec<Bytes> {
        let (often, most) = self.habits.long;
        if self.rng.chance(often) {
            return vec![self.operation(most)];
        }
        let count = self.rng.between(1, self.work.ops);
        (0..count).map(|_| self.operation(40)).collect()
    }

    fn operation(&mut self, padding: u64) -> Bytes {
        let padding = self.rng.below(padding) as usize;
        let mut op = self.rng.bits().to_le_bytes().to_vec();
        op.resize(8 + padding, 0x5a);
        op.into()
    }

    /// The number of the next operation.
    #[must_use]
    pub fn next_number(&self) -> RequestSeq {
        self.core.next_number().expect("its numbers begin with 1")
    }

    /// Submits a package.
    ///
    /// # Panics
    /// When the core takes no more; scripts stay within its bounds.
    pub fn submit(&mut self, ops: Vec<Bytes>, now: Instant) -> Vec<Asked> {
        let first = self.next_number();
        let long = ops.iter().filter(|op| op.len() > LONG).count() as u64;
        if long > 0 {
            self.long.insert(first, long);
        }
        self.core.submit(ops.clone(), nanos(now)).expect("within the core's bounds");
        let numbered = (first.0..).zip(ops);
        numbered.map(|(seq, op)| Asked { seq: RequestSeq(seq), op }).collect()
    }

    /// Asks the engine to add a client, on these approvals.
    ///
    /// # Panics
    /// When the core takes no more.
    pub fn add_client(
        &mut self,
        info: ClientInfo,
        approvals: Vec<(ReplicaId, SignatureBytes)>,
        now: Instant,
    ) {
        let first = self.next_number();
        let op = SystemOp::AddClient { info, approvals };
        self.core.system(&op, nanos(now)).expect("within the core's bounds");
        self.kinds.insert(first, OpKind::System);
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

    /// Which package has ended.
    pub fn poll_completion(&mut self) -> Option<Done> {
        let completion = self.core.poll_completion()?;
        let kind = self.kinds.remove(&completion.first).unwrap_or(OpKind::User);
        let long = self.long.remove(&completion.first).unwrap_or(0);
        Some(Done { kind, long, completion })
    }

    /// Which query has ended.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        let answer = self.core.poll_answer()?;
        self.asking -= 1;
        Some(answer)
    }
}
