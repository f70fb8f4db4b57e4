//! The application of the simulated network: it gives every operation its place in the total
//! order, and tells a [`Journal`] what it was made to execute, so that checkers see the chain from
//! the application's side without asking the replica.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tercio_crypto::hash;
use tercio_execution::{
    AppError, Application, Context, MerkleMap, Operation, Replies, Snapshot, TreeTop,
};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite};

/// An operation, and the place that it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Who asked.
    pub client: ClientId,
    /// The client's number for it.
    pub seq: RequestSeq,
    /// Its bytes.
    pub op: Bytes,
    /// Its place in the total order, from 1 on. It is also the operation's result.
    pub place: u64,
    /// The place that the same number had before: it was executed twice.
    pub before: Option<u64>,
}

/// What an application was made to do.
#[derive(Clone, Debug)]
pub enum Deed {
    /// It executed a block.
    Executed {
        /// The block.
        height: Height,
        /// The block's seed: a hash over the parent's header and the body, which stands for the
        /// whole chain up to here.
        chain: Digest,
        /// Its operations.
        done: Vec<Done>,
        /// How many operations were executed in all.
        count: u64,
    },
    /// It went to a snapshot in which these operations had these places.
    Restored(BTreeMap<(ClientId, RequestSeq), u64>),
}

/// Where a witness writes, and a checker reads.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    deeds: Vec<Deed>,
    /// An entry of the witness's memory that is damaged: its place is another.
    damaged: Option<(ClientId, RequestSeq)>,
}

impl Journal {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().expect("no holder panics")
    }

    fn write(&self, deed: Deed) {
        self.pages().deeds.push(deed);
    }

    /// What was written since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Deed> {
        std::mem::take(&mut self.pages().deeds)
    }

    /// Damages what the witness remembers of one operation.
    pub fn damage(&self, client: ClientId, seq: RequestSeq) {
        self.pages().damaged = Some((client, seq));
    }
}

/// The application.
#[derive(Debug, Default)]
pub struct Witness {
    journal: Journal,
    suite: Suite,
    places: BTreeMap<(ClientId, RequestSeq), u64>,
    /// A hash over all operations in order.
    digest: Digest,
}

impl Witness {
    /// A witness that has seen nothing and writes into `journal`, and digests
    /// as the network's suite has it.
    #[must_use]
    pub fn new(journal: Journal, suite: Suite) -> Self {
        Self { journal, suite, ..Self::default() }
    }

    /// The tree of the state as it is.
    fn tree(&mut self) -> MerkleMap {
        let mut tree = MerkleMap::new(self.suite);
        for (label, chunk) in self.snapshot() {
            tree.set(&label, Some(hash(self.suite, &[&chunk])));
        }
        tree
    }
}

/// How many of a client's numbers share a chunk.
const PAGE: u64 = 4;

/// The label of the chunk that has this number of a client.
pub(crate) fn label(client: ClientId, seq: RequestSeq) -> Vec<u8> {
    [client.0.to_be_bytes(), (seq.0 / PAGE).to_be_bytes()].concat()
}

fn word(bytes: &[u8], at: usize) -> Result<u64, AppError> {
    let bytes = bytes.get(at..at + 8).and_then(|b| b.first_chunk());
    bytes.map(|b| u64::from_le_bytes(*b)).ok_or_else(|| AppError("cut short".into()))
}

impl Application for Witness {
    fn execute(&mut self, context: &Context, operations: &[Operation], replies: &mut Replies) {
        let mut done = Vec::with_capacity(operations.len());
        for Operation { client, seq, op } in operations {
            // Places are counted by executions, so that a repetition moves all that follow.
            let place = self.places.len() as u64 + 1;
            let before = self.places.insert((*client, *seq), place);
            let name = [client.0.to_le_bytes(), seq.0.to_le_bytes()].concat();
            self.digest = hash(self.suite, &[&self.digest.0, &name, op]);
            replies.push(&place.to_le_bytes());
            done.push(Done { client: *client, seq: *seq, op: op.clone(), place, before });
        }
        let Context { height, seed, .. } = context;
        let count = self.places.len() as u64;
        self.journal.write(Deed::Executed { height: *height, chain: *seed, done, count });
    }

    fn query(&self, _question: &[u8]) -> Result<Bytes, AppError> {
        Ok(Bytes::copy_from_slice(&(self.places.len() as u64).to_le_bytes()))
    }

    fn state_digest(&mut self) -> Digest {
        self.tree().root()
    }

    fn state_top(&mut self) -> Option<TreeTop> {
        Some(self.tree().top())
    }

    /// Under no label the hash over all operations in order; under a client's id and the number
    /// of a page, number and place of the operations of that page.
    fn snapshot(&mut self) -> Snapshot {
        let mut chunks = BTreeMap::from([(vec![], self.digest.0.to_vec())]);
        let damaged = self.journal.pages().damaged;
        for (&(client, seq), place) in &self.places {
            let place = place + u64::from(damaged == Some((client, seq)));
            let chunk: &mut Vec<u8> = chunks.entry(label(client, seq)).or_default();
            chunk.extend_from_slice(&seq.0.to_le_bytes());
            chunk.extend_from_slice(&place.to_le_bytes());
        }
        let chunks = chunks.into_iter().map(|(label, chunk)| (label.into(), chunk.into()));
        chunks.collect::<Vec<_>>().into()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        self.places.clear();
        for (label, chunk) in chunks {
            if label.is_empty() {
                let digest = chunk.first_chunk().ok_or_else(|| AppError("cut short".into()))?;
                self.digest = Digest(*digest);
                continue;
            }
            let client = label.first_chunk().ok_or_else(|| AppError("no client".into()))?;
            let client = ClientId(u64::from_be_bytes(*client));
            for entry in chunk.chunks(16) {
                self.places.insert((client, RequestSeq(word(entry, 0)?)), word(entry, 8)?);
            }
        }
        self.journal.write(Deed::Restored(self.places.clone()));
        Ok(())
    }
}
