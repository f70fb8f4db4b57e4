//! Writes a snapshot in slices, with its trees.
//!
//! Their roots are held against the checkpoint before the snapshot counts: an application whose
//! chunks are not what its digest is over would leave one that nobody can restore, and whoever
//! fetches it would call the replica a liar.

use std::collections::{BTreeMap, VecDeque};
use tercio_crypto::hash;
use tercio_execution::{APP, CLIENT, Snapshot, TreeBuilder};
use tercio_ledger::{Child, LedgerError, Removal, SnapshotHead, SnapshotStore};
use tercio_types::{Checkpoint, Digest, EMPTY_ROOT, Height, SeqNum, Suite};
use thiserror::Error;

/// About how many bytes are written at a time: what is behind it waits that long, with an fsync.
const SLICE: usize = 512 << 10;

/// Why a snapshot cannot be kept.
#[derive(Debug, Error)]
pub enum KeepError {
    /// The disk failed, or what is on it is damaged.
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    /// The application's snapshot is not the state whose digest it gave.
    #[error(
        "{app}: the snapshot at number {seq} (height {height}) has the root {written}, and the \
         application gave {named} as its state's digest; the snapshot is not kept. Mend the \
         application: `state_digest` must be the root over exactly the chunks of `snapshot`, \
         hashed as the network's suite says (`tercio_execution::check_contract` tests it)"
    )]
    Differs {
        /// The application ([`tercio_execution::Application::name`]).
        app: &'static str,
        /// The checkpoint.
        seq: SeqNum,
        /// The height that it covers.
        height: Height,
        /// The digest that a quorum certified.
        named: Digest,
        /// The root of the snapshot's chunks.
        written: Digest,
    },
}

/// A snapshot that is being written. Its chunks are asked for and let go of one by one.
pub struct Keep {
    suite: Suite,
    chunks: Snapshot,
    tree: Option<(u8, TreeBuilder<u64>)>,
    roots: Vec<(u8, u64)>,
    found: BTreeMap<u8, Digest>,
    /// It says what the roots must be.
    checkpoint: Checkpoint,
    /// Whose state it is.
    app: &'static str,
}

impl Keep {
    /// Begins to write the state of `app`; none when there is such a snapshot already.
    ///
    /// # Errors
    /// When the storage fails; so does what follows.
    pub fn begin(
        store: &mut SnapshotStore,
        suite: Suite,
        head: &SnapshotHead,
        chunks: Snapshot,
        app: &'static str,
    ) -> Result<Option<Self>, LedgerError> {
        let checkpoint = head.certificate.checkpoint.clone();
        let (roots, found) = (Vec::new(), BTreeMap::new());
        let keep = Self { suite, chunks, tree: None, roots, found, checkpoint, app };
        Ok(store.begin(head)?.then_some(keep))
    }

    /// Writes a slice; whether that was the last and the snapshot is durable. What it takes the
    /// place of goes to `removals`.
    ///
    /// # Errors
    /// When the storage fails, and when what was written is not the state that the checkpoint names.
    pub fn step(
        &mut self,
        store: &mut SnapshotStore,
        removals: &mut VecDeque<Removal>,
    ) -> Result<bool, KeepError> {
        while store.buffered() < SLICE {
            let Some((label, chunk)) = self.chunks.next() else {
                self.end_tree(store);
                let Checkpoint { seq, height, state: named, clients, .. } = self.checkpoint;
                let root = |kind: u8| self.found.get(&kind).copied().unwrap_or(EMPTY_ROOT);
                assert_eq!(root(CLIENT), clients, "the client table's digest is over its chunks");
                let (app, written) = (self.app, root(APP));
                if written != named {
                    store.give_up()?;
                    return Err(KeepError::Differs { app, seq, height, named, written });
                }
                removals.extend(store.finish(&self.roots)?);
                return Ok(true);
            };
            let kind = *label.first().expect("labels of the engine begin with a kind");
            if self.tree.as_ref().is_none_or(|(tree, _)| *tree != kind) {
                self.end_tree(store);
                self.tree = Some((kind, TreeBuilder::new(self.suite)));
            }
            let digest = hash(self.suite, &[&chunk]);
            let offset = store.push_chunk(&label, digest, &chunk);
            let (_, tree) = self.tree.as_mut().expect("just made");
            tree.push(label.slice(1..), digest, offset, &mut joined(store));
        }
        store.flush()?;
        Ok(false)
    }

    /// What was not written, when nobody wants it any more.
    pub fn give_up(self) -> Snapshot {
        self.chunks
    }

    fn end_tree(&mut self, store: &mut SnapshotStore) {
        if let Some((kind, tree)) = self.tree.take()
            && let Some((root, offset)) = tree.finish(&mut joined(store))
        {
            self.roots.push((kind, offset));
            self.found.insert(kind, root);
        }
    }
}

/// Writes the inner nodes as they are made.
fn joined(store: &mut SnapshotStore) -> impl FnMut(Digest, [(Digest, u64); 2]) -> u64 {
    |_, children| store.push_node(children.map(|(digest, offset)| Child { offset, digest }))
}
