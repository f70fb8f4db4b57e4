//! The application as a deterministic state machine over opaque operations (as in Themis).

use crate::{Aborted, Snapshot, TreeTop};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use tercio_types::{ClientId, Digest, Height, RequestSeq, Timestamp};
use thiserror::Error;

/// What an application may know beside its own state and the operation. The same at every replica.
#[derive(Clone, Debug)]
pub struct Context {
    /// The block.
    pub height: Height,
    /// Agreed time.
    pub time: Timestamp,
    /// Seed for randomness: a hash of parent block and body. A primary can try several batches
    /// until it likes the seed, so nothing of value may hang on it.
    pub seed: Digest,
}

/// One operation to execute. Duplicates were taken out before.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who asked.
    pub client: ClientId,
    /// Its number.
    pub seq: RequestSeq,
    /// What for.
    pub op: Bytes,
}

/// The results of a batch, appended one after the other into one buffer: no allocation a reply.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Which have no result, and why, in order.
    aborted: Vec<(usize, Aborted)>,
}

impl Replies {
    /// Appends the next operation's result; `write` appends its bytes.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Appends the next operation's result.
    pub fn push(&mut self, result: &[u8]) {
        self.push_with(|out| out.extend_from_slice(result));
    }

    /// Appends the next operation's result, or that it was aborted: then nothing of what `write`
    /// appended is kept, and the result is a status of its own.
    pub fn push_attempt(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Aborted>) {
        let start = self.bytes.len();
        if let Err(why) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            self.aborted.push((self.ends.len(), why));
        }
        self.ends.push(self.bytes.len());
    }

    /// Why the i-th operation has no result, if it has none.
    #[must_use]
    pub fn aborted(&self, i: usize) -> Option<Aborted> {
        let at = self.aborted.binary_search_by_key(&i, |(i, _)| *i).ok()?;
        Some(self.aborted[at].1)
    }

    /// Why operations have no result, one for each that has none.
    pub fn all_aborted(&self) -> impl Iterator<Item = Aborted> + '_ {
        self.aborted.iter().map(|(_, why)| *why)
    }

    /// How many results there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The i-th result.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn get(&self, i: usize) -> &[u8] {
        &self.bytes[self.range(i)]
    }

    fn range(&self, i: usize) -> Range<usize> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        start..self.ends[i]
    }

    /// Forgets all results and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.aborted.clear();
    }
}

/// Why an application declines. The text of a query goes to the client; that of a check stays with
/// the replica, whose REJECT has no room for it (`tercio submit` asks the same check before it sends).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct AppError(pub String);

/// A cheap look at an operation before it is ordered: one that can never make sense need not be. Runs
/// at each replica alone, on any of its threads, and knows nothing of the state; what passes may
/// still fail when it is executed.
pub trait PreCheck: Send + Sync {
    /// Looks at an operation.
    ///
    /// # Errors
    /// Why it can never make sense.
    fn check(&self, operation: &[u8]) -> Result<(), AppError>;
}

/// The look of an application that takes whatever comes.
struct TakesAll;

impl PreCheck for TakesAll {
    fn check(&self, _operation: &[u8]) -> Result<(), AppError> {
        Ok(())
    }
}

/// A batch before it is ordered, as an application with proposal hooks sees it.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The proposed time.
    pub time: Timestamp,
    /// The operations of all packages in order, each with its package's index.
    pub operations: Vec<(usize, Operation)>,
}

/// An application that executes opaque operations, batch by batch. All replicas call it with the
/// same batches in the same order and must get the same results, state and digests: no clock, no
/// randomness but the context's, no hash-map order.
pub trait Application: Send {
    /// What errors call it: the path of its type.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Executes `operations` in order and pushes exactly one result each. An operation that makes
    /// no sense gets a result that says so; it never panics.
    fn execute(&mut self, context: &Context, operations: &[Operation], replies: &mut Replies);

    /// Answers a question about the current state without changing it. As deterministic as
    /// [`Self::execute`]: the answer to an ordered read is agreed.
    ///
    /// # Errors
    /// When the question makes no sense.
    fn query(&self, question: &[u8]) -> Result<Bytes, AppError>;

    /// What looks at operations before they are ordered, on whatever thread that is done.
    fn pre_check(&self) -> Arc<dyn PreCheck> {
        Arc::new(TakesAll)
    }

    /// Primary only, when the network's settings ask for proposal hooks: which packages to keep,
    /// by index, and in which order.
    fn build_proposal(&mut self, proposal: &Proposal) -> Vec<usize> {
        let mut keep: Vec<usize> =
            proposal.operations.iter().map(|(package, _)| *package).collect();
        keep.dedup();
        keep
    }

    /// Backups, before they vote, when the network's settings ask for proposal hooks.
    ///
    /// # Errors
    /// A veto, with the reason: this replica will not vote for the batch.
    fn validate_proposal(&mut self, _proposal: &Proposal) -> Result<(), AppError> {
        Ok(())
    }

    /// The digest of the state: the root of the tree over exactly what [`Self::snapshot`] gives
    /// ([`crate::chunks_root`]; [`MerkleMap`](crate::MerkleMap) keeps it while things change), so
    /// that each chunk can be checked alone against a certified digest. The cost must be
    /// proportional to what changed since the last call. [`crate::check_contract`] tests it.
    fn state_digest(&mut self) -> Digest;

    /// Whether the replica catches up. While it does, the digest is asked for rarely and may take
    /// long, so that what it takes need not be spread over executions. Changes no result, state or
    /// digest.
    fn set_catching_up(&mut self, _on: bool) {}

    /// Does about a millisecond of what [`Self::state_digest`] would take; whether something is left
    /// of it that can be done so.
    fn prepare_digest(&mut self) -> bool {
        false
    }

    /// The upper part of the tree whose root [`Self::state_digest`] is, at about the same cost
    /// ([`MerkleMap::top`](crate::MerkleMap::top) has it). With it a replica can say in which
    /// range of labels another's state differs; without, only that it does.
    fn state_top(&mut self) -> Option<TreeTop> {
        None
    }

    /// The state as labelled chunks in ascending order of label, together the whole of it. What is
    /// handed out stays as it is while execution goes on (copy-on-write or an owned copy), and is
    /// gone through on another thread: no chunk need be made before it is asked for there. All
    /// replicas take a snapshot after the same block, so what it takes here is a halt of the
    /// network; let it not grow with a large state. A label is shorter than
    /// [`MAX_LABEL`](crate::MAX_LABEL), a chunk at most [`MAX_CHUNK`](crate::MAX_CHUNK) bytes.
    /// Chunks are what another replica fetches, so a change should touch few and small ones.
    fn snapshot(&mut self) -> Snapshot;

    /// Replaces the state by what [`Self::snapshot`] once gave.
    ///
    /// # Errors
    /// When the chunks are no snapshot; the state is then unspecified and the caller stops.
    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError>;
}
