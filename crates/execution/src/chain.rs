//! The ordering half of the engine: what a batch adds to the chain.
//!
//! - A batch with packages makes the next block; one without makes none.
//! - An operation is *fresh* when its number was not used before and lies within its client's window
//!   ([`tercio_types::WINDOW`]). This depends on what was ordered, not on what it gave, so it is
//!   decided here, before anything is executed.
//! - Agreed time is max(previous + 1, proposed), where a proposal beyond [`LATEST`] counts as that.
//! - A system operation stands alone in its package. It can add a client: the membership is then
//!   another one, from the next block on. The chain owns the current membership.
//! - Without a lag a header says nothing of results, and a block is there as soon as its batch is
//!   ordered. With one, the header of height h carries results and state of height h - lag, and can be
//!   made once that is executed ([`Chain::is_ready`]).

use crate::Late;
use crate::system::{Decision, decide};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tercio_types::{
    Batch, BlockHeader, ClientId, Digest, EMPTY_ROOT, Height, Membership, OpKind, Package,
    RequestSeq, RequestWindow, SeqNum, Suite, Timestamp,
};
use tercio_wire::block_hash;

/// The latest time that a primary can propose, in microseconds since the Unix epoch: however it
/// lies, there is room for time to go on rising with every block.
pub const LATEST: Timestamp = Timestamp(1 << 63);

/// Whether an operation is to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Fresh,
    Duplicate,
    Beyond,
}

/// A batch as the chain has it.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// Its number.
    pub seq: SeqNum,
    /// The block that it makes; none when it has no packages.
    pub block: Option<Box<OrderedBlock>>,
}

/// A block before it is executed.
#[derive(Clone, Debug)]
pub struct OrderedBlock {
    /// Its header.
    pub header: BlockHeader,
    /// The header's hash.
    pub hash: Digest,
    /// Of all its operations in order, whether they are to be executed.
    pub(crate) admissions: Vec<Admission>,
    /// Of its fresh system operations in order, what they do.
    pub(crate) decisions: Vec<Decision>,
    /// Replicas and clients after it.
    pub(crate) membership: Arc<Membership>,
}

/// Where the chain stands that batches are appended to.
#[derive(Clone, Debug)]
pub struct Chain {
    suite: Suite,
    lag: u16,
    membership: Arc<Membership>,
    windows: BTreeMap<ClientId, RequestWindow>,
    seq: SeqNum,
    height: Height,
    block: Digest,
    time: Timestamp,
    /// What the last executed blocks left for headers, of at most as many as headers will still
    /// need; the last is of height `executed`.
    late: VecDeque<Late>,
    executed: Height,
}

/// Where a chain begins to go on.
pub(crate) struct ChainAt {
    pub(crate) suite: Suite,
    pub(crate) lag: u16,
    pub(crate) membership: Arc<Membership>,
    pub(crate) windows: BTreeMap<ClientId, RequestWindow>,
    pub(crate) seq: SeqNum,
    pub(crate) height: Height,
    pub(crate) block: Digest,
    pub(crate) time: Timestamp,
    pub(crate) late: VecDeque<Late>,
}

impl Chain {
    /// The chain whose last block is executed.
    pub(crate) fn new(at: ChainAt) -> Self {
        let ChainAt { suite, lag, membership, windows, seq, height, block, time, late } = at;
        let executed = height;
        Self { suite, lag, membership, windows, seq, height, block, time, late, executed }
    }

    /// Replicas and clients after the last block. Another value, by [`Arc::ptr_eq`] as well, once
    /// a client was added.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The last ordered number.
    #[must_use]
    pub fn seq(&self) -> SeqNum {
        self.seq
    }

    /// The last block's height.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// The hash of the last block's header; the chain id at height 0.
    #[must_use]
    pub fn block(&self) -> Digest {
        self.block
    }

    /// Which of each client's numbers are ordered.
    #[must_use]
    pub fn windows(&self) -> &BTreeMap<ClientId, RequestWindow> {
        &self.windows
    }

    /// Whether the next block's header can be made: always without a lag.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lag == 0 || self.height.0 < u64::from(self.lag) + self.executed.0
    }

    /// A block was executed; what it left for the headers `lag` above.
    ///
    /// # Panics
    /// When it is not the block after the last that was.
    pub fn executed(&mut self, height: Height, late: Option<Late>) {
        assert_eq!(height, self.executed.next(), "blocks are executed in order");
        self.executed = height;
        self.late.extend(late);
    }

    /// Appends the batch that was ordered under `seq`, of which `body` is the digest.
    ///
    /// # Panics
    /// When `seq` is not above the last one, or the chain [is not ready](Self::is_ready).
    pub fn order(&mut self, seq: SeqNum, batch: &Batch, body: Digest) -> Ordered {
        assert!(seq > self.seq, "{seq:?} was ordered before");
        if batch.packages.is_empty() {
            return self.pass(seq);
        }
        let header = self.next_header(seq, batch, body);
        Ordered { seq, block: Some(Box::new(self.append(header, batch))) }
    }

    /// A number that makes no block.
    ///
    /// # Panics
    /// When `seq` is not above the last one.
    pub fn pass(&mut self, seq: SeqNum) -> Ordered {
        assert!(seq > self.seq, "{seq:?} was ordered before");
        self.seq = seq;
        Ordered { seq, block: None }
    }

    /// The header that the batch would have.
    pub(crate) fn next_header(&self, seq: SeqNum, batch: &Batch, body: Digest) -> BlockHeader {
        let height = self.height.next();
        let due = height.0.checked_sub(u64::from(self.lag)).filter(|due| self.lag > 0 && *due > 0);
        let due = due.map(|due| {
            // `late` ends with the last executed block.
            let back = (self.executed.0 - due) as usize;
            &self.late[self.late.len() - 1 - back]
        });
        BlockHeader {
            suite: self.suite,
            epoch: self.membership.epoch(),
            height,
            seq,
            parent: self.block,
            body,
            time: batch.time.min(LATEST).max(self.time.next()),
            ops: u32::try_from(batch.ops()).expect("a batch fits into a frame"),
            lag: self.lag,
            results: due.map_or(EMPTY_ROOT, |due| due.results),
            state: due.map_or(EMPTY_ROOT, |due| due.state),
        }
    }

    /// Goes to the block with this header, which is the next.
    pub(crate) fn append(&mut self, header: BlockHeader, batch: &Batch) -> OrderedBlock {
        let mut membership = self.membership.clone();
        let mut admissions = Vec::with_capacity(batch.ops());
        let mut decisions = Vec::new();
        for package in &batch.packages {
            let from = admissions.len();
            self.admit(package, &mut admissions);
            if package.kind != OpKind::System {
                continue;
            }
            let fresh = package.numbered().zip(&admissions[from..]);
            for (_, op) in fresh.filter(|(_, a)| **a == Admission::Fresh).map(|(op, _)| op) {
                let decision = match package.ops.len() {
                    1 => decide(&membership, &op),
                    _ => Decision::Unsupported,
                };
                if let Decision::Add(_, info) = &decision {
                    membership = Arc::new(membership.with_client(*info.clone()));
                }
                decisions.push(decision);
            }
        }
        self.membership = membership.clone();
        self.seq = header.seq;
        self.height = header.height;
        self.block = block_hash(&header);
        self.time = header.time;
        self.forget_late();
        OrderedBlock { header, hash: self.block, admissions, decisions, membership }
    }

    /// Lets go of what lies further back than the next header looks.
    fn forget_late(&mut self) {
        let needed = (self.height.0 + 1).saturating_sub(u64::from(self.lag));
        let first = self.executed.0 + 1 - self.late.len() as u64;
        let old = needed.saturating_sub(first).min(self.late.len() as u64);
        self.late.drain(..old as usize);
    }

    /// Decides on each operation of a package, and takes the fresh ones as used from here on.
    fn admit(&mut self, package: &Package, admissions: &mut Vec<Admission>) {
        let window = self.windows.entry(package.client).or_default();
        admissions.extend(package.numbers().map(|seq| admission(window, seq)));
    }
}

fn admission(window: &mut RequestWindow, seq: RequestSeq) -> Admission {
    if window.insert(seq) {
        Admission::Fresh
    } else if window.is_beyond(seq) {
        Admission::Beyond
    } else {
        Admission::Duplicate
    }
}
