//! Pieces of state, known by their digests: what was fetched, and what was there before. Nothing
//! gets in here but by the digest that it was recomputed to have.

use super::message::{Node, read_subtree};
use bytes::Bytes;
use std::collections::BTreeMap;
use tercio_crypto::hash;
use tercio_execution::{ENGINE, TreeBuilder, leaf_digest};
use tercio_types::{Digest, EMPTY_ROOT, Suite};
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

/// Nodes and chunks by digest.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    nodes: BTreeMap<Digest, Node>,
    chunks: BTreeMap<Digest, Bytes>,
}

impl Pieces {
    /// The pieces of a snapshot as the engine gives it.
    #[must_use]
    pub fn of(suite: Suite, snapshot: Vec<(Bytes, Bytes)>) -> Self {
        let mut pieces = Self::default();
        let mut tree: Option<(u8, TreeBuilder<()>)> = None;
        for (label, chunk) in snapshot {
            let kind = label[0];
            if kind == ENGINE {
                continue;
            }
            let nodes = &mut pieces.nodes;
            let mut join = |digest, [(left, ()), (right, ())]: [(Digest, ()); 2]| {
                nodes.insert(digest, Node::Inner([left, right]));
            };
            if tree.as_ref().is_none_or(|(of, _)| *of != kind) {
                let before = tree.replace((kind, TreeBuilder::new(suite)));
                before.map(|(_, tree)| tree.finish(&mut join));
            }
            let (_, tree) = tree.as_mut().expect("just made");
            let (label, value) = (label.slice(1..), hash(suite, &[&chunk]));
            tree.push(label.clone(), value, (), &mut join);
            let digest = leaf_digest(suite, &label, value);
            pieces.nodes.insert(digest, Node::Leaf { label, value });
            pieces.chunks.insert(value, chunk);
        }
        let nodes = &mut pieces.nodes;
        tree.map(|(_, tree)| {
            tree.finish(&mut |digest, [(left, ()), (right, ())]| {
                nodes.insert(digest, Node::Inner([left, right]));
            })
        });
        pieces
    }

    /// Takes a piece that was kept on disk under the digest that it has now. What is no piece is
    /// passed over.
    pub(crate) fn put_kept(&mut self, suite: Suite, kind: u8, bytes: Bytes) {
        match kind {
            0 => {
                let mut input = Reader::new(bytes, suite);
                if let Ok((_, nodes)) = read_subtree(&mut input) {
                    self.nodes.extend(nodes);
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
    pub(super) fn merge(&mut self, mut other: Self) {
        self.nodes.append(&mut other.nodes);
        self.chunks.append(&mut other.chunks);
    }

    /// The node with a digest, if it is here.
    #[must_use]
    pub fn node(&self, digest: &Digest) -> Option<&Node> {
        self.nodes.get(digest)
    }

    /// Whether the chunk with a digest is here.
    #[must_use]
    pub fn has_chunk(&self, digest: &Digest) -> bool {
        self.chunks.contains_key(digest)
    }

    /// Takes a node whose digest was recomputed.
    pub(super) fn put_node(&mut self, digest: Digest, node: Node) {
        self.nodes.insert(digest, node);
    }

    /// Takes a chunk whose digest was recomputed.
    pub(super) fn put_chunk(&mut self, digest: Digest, chunk: Bytes) {
        self.chunks.insert(digest, chunk);
    }

    /// The labelled chunks of a tree of which every piece is here, in order; `kind` goes before
    /// each label.
    ///
    /// # Panics
    /// When a piece is missing.
    #[must_use]
    pub fn assemble(&self, kind: u8, root: Digest) -> Vec<(Bytes, Bytes)> {
        let mut chunks = Vec::new();
        let mut open = vec![root];
        open.retain(|root| *root != EMPTY_ROOT);
        while let Some(digest) = open.pop() {
            match self.nodes.get(&digest).expect("every node is here") {
                Node::Inner([left, right]) => open.extend([*right, *left]),
                Node::Leaf { label, value } => {
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
    use tercio_execution::{APP, CLIENT, chunks_root};

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
            let pieces = Pieces::of(suite, all);
            for (kind, chunks) in [(APP, app), (CLIENT, client)] {
                let bare: Vec<_> =
                    chunks.iter().map(|(label, chunk)| (label.slice(1..), chunk.clone())).collect();
                let root = chunks_root(suite, &bare);
                assert_eq!(pieces.assemble(kind, root), chunks);
            }
        }
    }
}
