//! Writes a snapshot in slices, with its trees.

use std::collections::VecDeque;
use tercio_crypto::hash;
use tercio_execution::{Snapshot, TreeBuilder};
use tercio_ledger::{Child, LedgerError, Removal, SnapshotHead, SnapshotStore};
use tercio_types::{Digest, Suite};

/// About how many bytes are written at a time: what is behind it waits that long, with an fsync.
const SLICE: usize = 512 << 10;

/// A snapshot that is being written. Its chunks are asked for and let go of one by one.
pub(crate) struct Keep {
    suite: Suite,
    chunks: Snapshot,
    tree: Option<(u8, TreeBuilder<u64>)>,
    roots: Vec<(u8, u64)>,
}

impl Keep {
    /// Begins; none when there is such a snapshot already.
    ///
    /// # Errors
    /// When the storage fails; so does what follows.
    pub(crate) fn begin(
        store: &mut SnapshotStore,
        suite: Suite,
        head: &SnapshotHead,
        chunks: Snapshot,
    ) -> Result<Option<Self>, LedgerError> {
        let keep = Self { suite, chunks, tree: None, roots: Vec::new() };
        Ok(store.begin(head)?.then_some(keep))
    }

    /// Writes a slice; whether that was the last and the snapshot is durable. What it takes the
    /// place of goes to `removals`.
    pub(crate) fn step(
        &mut self,
        store: &mut SnapshotStore,
        removals: &mut VecDeque<Removal>,
    ) -> Result<bool, LedgerError> {
        while store.buffered() < SLICE {
            let Some((label, chunk)) = self.chunks.next() else {
                self.end_tree(store);
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
    pub(crate) fn give_up(self) -> Snapshot {
        self.chunks
    }

    fn end_tree(&mut self, store: &mut SnapshotStore) {
        if let Some((kind, tree)) = self.tree.take()
            && let Some((_, offset)) = tree.finish(&mut joined(store))
        {
            self.roots.push((kind, offset));
        }
    }
}

/// Writes the inner nodes as they are made.
fn joined(store: &mut SnapshotStore) -> impl FnMut(Digest, [(Digest, u64); 2]) -> u64 {
    |_, children| store.push_node(children.map(|(digest, offset)| Child { offset, digest }))
}
