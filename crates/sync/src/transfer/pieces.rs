//! Pieces of state, known by their digests: what was fetched, and what was there before. Nothing
//! gets in here but by the digest that it was recomputed to have.

use super::message::{TreeNode, read_subtree};
use bytes::Bytes;
use std::collections::BTreeMap;
use tercio_crypto::hash;
use tercio_execution::{APP, CLIENT, ENGINE, Snapshot, TreeBuilder, leaf_digest};
use tercio_types::{Checkpoint, Digest, EMPTY_ROOT, Suite};
use tercio_wire::Reader;

/// What others sent, as it came: to be kept on disk until the state is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A node with some of what is below it, encoded.
    Subtree(Bytes),
    /// A chunk.
    Chunk(Bytes),
}

impl Piece {
    /// Its kind on disk, and its bytes.
    #[must_use]
    pub fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Subtree(bytes) => (0, bytes),
            Self::Chunk(bytes) => (1, bytes),
        }
    }
}

/// How many maps a [`ByDigest`] is, once there is anything in it.
const PLACES: usize = 1 << 12;

/// A map by digest, as many small ones by its first bits: those are as good as random, so a look
/// goes to a map of some hundred, where one of a million would be twenty looks in cold memory.
#[derive(Clone, Debug)]
struct ByDigest<T>(Vec<BTreeMap<Digest, T>>);

impl<T> Default for ByDigest<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ByDigest<T> {
    fn place(digest: &Digest) -> usize {
        usize::from(u16::from_le_bytes([digest.0[0], digest.0[1]])) % PLACES
    }

    fn get(&self, digest: &Digest) -> Option<&T> {
        self.0.get(Self::place(digest))?.get(digest)
    }

    fn insert(&mut self, digest: Digest, value: T) {
        if self.0.is_empty() {
            self.0.resize_with(PLACES, BTreeMap::new);
        }
        self.0[Self::place(&digest)].insert(digest, value);
    }

    /// Takes what another has.
    fn append(&mut self, mut other: Self) {
        if self.0.is_empty() {
            std::mem::swap(self, &mut other);
        }
        self.0.iter_mut().zip(&mut other.0).for_each(|(own, other)| own.append(other));
    }
}

/// Nodes and chunks by digest.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    nodes: ByDigest<TreeNode>,
    chunks: ByDigest<Bytes>,
}

impl Pieces {
    /// The pieces of a snapshot as the engine gives it.
    #[must_use]
    pub fn of(suite: Suite, snapshot: Snapshot) -> Self {
        let mut pieces = Self::default();
        let mut tree: Option<(u8, TreeBuilder<()>)> = None;
        for (label, chunk) in snapshot {
            let kind = label[0];
            if kind == ENGINE {
                continue;
            }
            let nodes = &mut pieces.nodes;
            let mut join = |digest, [(left, ()), (right, ())]: [(Digest, ()); 2]| {
                nodes.insert(digest, TreeNode::Inner([left, right]));
            };
            if tree.as_ref().is_none_or(|(of, _)| *of != kind) {
                let before = tree.replace((kind, TreeBuilder::new(suite)));
                before.map(|(_, tree)| tree.finish(&mut join));
            }
            let (_, tree) = tree.as_mut().expect("just made");
            let (label, value) = (label.slice(1..), hash(suite, &[&chunk]));
            tree.push(label.clone(), value, (), &mut join);
            let digest = leaf_digest(suite, &label, value);
            pieces.nodes.insert(digest, TreeNode::Leaf { label, value });
            pieces.chunks.insert(value, chunk);
        }
        let nodes = &mut pieces.nodes;
        tree.map(|(_, tree)| {
            tree.finish(&mut |digest, [(left, ()), (right, ())]| {
                nodes.insert(digest, TreeNode::Inner([left, right]));
            })
        });
        pieces
    }

    /// Takes a piece that was kept on disk under the digest that it has now. What is no piece is
    /// passed over.
    pub fn put_kept(&mut self, suite: Suite, kind: u8, bytes: Bytes) {
        match kind {
            0 => {
                let mut input = Reader::new(bytes, suite);
                if let Ok((_, nodes)) = read_subtree(&mut input) {
                    nodes.into_iter().for_each(|(digest, node)| self.put_node(digest, node));
                }
            }
            1 => {
                let digest = hash(suite, &[&bytes]);
                self.chunks.insert(digest, bytes);
            }
            _ => {}
        }
    }

    /// Takes what another has.
    pub(super) fn merge(&mut self, other: Self) {
        self.nodes.append(other.nodes);
        self.chunks.append(other.chunks);
    }

    /// The node with a digest, if it is here.
    #[must_use]
    pub fn node(&self, digest: &Digest) -> Option<&TreeNode> {
        self.nodes.get(digest)
    }

    /// Whether the chunk with a digest is here.
    #[must_use]
    pub fn has_chunk(&self, digest: &Digest) -> bool {
        self.chunks.get(digest).is_some()
    }

    /// Takes a node whose digest was recomputed.
    pub(super) fn put_node(&mut self, digest: Digest, node: TreeNode) {
        self.nodes.insert(digest, node);
    }

    /// Takes a chunk whose digest was recomputed.
    pub(super) fn put_chunk(&mut self, digest: Digest, chunk: Bytes) {
        self.chunks.insert(digest, chunk);
    }

    /// The snapshot of a checkpoint of which every piece is here, but for the engine's chunk. It takes
    /// seconds for a large one.
    ///
    /// # Panics
    /// When a piece is missing.
    #[must_use]
    pub fn snapshot(self, of: &Checkpoint, engine: Bytes) -> Vec<(Bytes, Bytes)> {
        let mut chunks = self.assemble(APP, of.state);
        chunks.extend(self.assemble(CLIENT, of.clients));
        chunks.push((Bytes::from_static(&[ENGINE]), engine));
        chunks
    }

    /// The labelled chunks of a tree of which every piece is here, in order; `kind` goes before
    /// each label.
    ///
    /// # Panics
    /// When a piece is missing.
    fn assemble(&self, kind: u8, root: Digest) -> Vec<(Bytes, Bytes)> {
        let mut chunks = Vec::new();
        let mut open = vec![root];
        open.retain(|root| *root != EMPTY_ROOT);
        while let Some(digest) = open.pop() {
            match self.nodes.get(&digest).expect("every node is here") {
                TreeNode::Inner([left, right]) => open.extend([*right, *left]),
                TreeNode::Leaf { label, value } => {
                    let label = Bytes::from([&[kind], label.as_ref()].concat());
                    let chunk = self.chunks.get(value).expect("every chunk is here");
                    chunks.push((label, chunk.clone()));
                }
            }
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_execution::chunks_root;

    #[test]
    fn maps_by_digest_are_put_together() {
        let digest = |i: u32| hash(Suite::default(), &[&i.to_le_bytes()]);
        let of = |range: std::ops::Range<u32>| {
            let mut map = ByDigest::default();
            range.for_each(|i| map.insert(digest(i), i));
            map
        };
        for (one, other) in [(0..0, 0..9), (0..9, 0..0), (0..40_000, 30_000..70_000)] {
            let (end, mut both) = (one.end.max(other.end), of(one));
            both.append(of(other));
            assert!((0..end).all(|i| both.get(&digest(i)) == Some(&i)));
            assert_eq!(both.get(&digest(end)), None);
        }
    }

    #[test]
    fn what_is_taken_apart_is_put_together_again() {
        let suite = Suite::default();
        let chunk = |kind: u8, i: u8| {
            (Bytes::from(vec![kind, i / 3, i]), Bytes::from(vec![i % 5; usize::from(i)]))
        };
        for (apps, clients) in [(0, 0), (1, 0), (0, 2), (40, 7)] {
            let app: Vec<_> = (0..apps).map(|i| chunk(APP, i)).collect();
            let client: Vec<_> = (0..clients).map(|i| chunk(CLIENT, i)).collect();
            let engine = (Bytes::from(vec![ENGINE]), Bytes::new());
            let all = [app.clone(), client.clone(), vec![engine]].concat();
            let pieces = Pieces::of(suite, all.into());
            for (kind, chunks) in [(APP, app), (CLIENT, client)] {
                let bare: Vec<_> =
                    chunks.iter().map(|(label, chunk)| (label.slice(1..), chunk.clone())).collect();
                let root = chunks_root(suite, &bare);
                assert_eq!(pieces.assemble(kind, root), chunks);
            }
        }
    }
}
