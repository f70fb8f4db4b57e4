//! A map from ordered labels to digests with an incremental Merkle root: the state digest.
//!
//! The tree is that of [`crate::tree`]: replicas that reached the same content by different ways
//! have the same root, and two trees can be compared range by range.

use crate::TreeTop;
use crate::key_bits::first_difference;
use crate::trie::{Leaf, Trie};
use bytes::Bytes;
use tercio_types::{Digest, Suite};

#[derive(Clone, Debug)]
struct Labelled {
    label: Bytes,
    value: Digest,
}

impl Leaf for Labelled {
    fn label(&self) -> &Bytes {
        &self.label
    }

    fn value(&mut self, _: Suite) -> Digest {
        self.value
    }
}

/// An ordered map from labels to digests, with a Merkle root over its content.
#[derive(Clone, Debug)]
pub struct MerkleMap {
    tree: Trie<Labelled>,
}

impl MerkleMap {
    /// A map without entries.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        Self { tree: Trie::new(suite) }
    }

    /// How many labels have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether no label has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many hashes [`Self::root`] has computed so far: its cost.
    #[must_use]
    pub fn hashes(&self) -> u64 {
        self.tree.hashes()
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, label: &[u8]) -> Option<Digest> {
        self.tree.nearest(label).filter(|leaf| leaf.label == label).map(|leaf| leaf.value)
    }

    /// Gives a label a value, or takes the value away.
    pub fn set(&mut self, label: &[u8], value: Option<Digest>) {
        match value {
            Some(value) => self.insert(label, value),
            None => self.remove(label),
        }
    }

    fn insert(&mut self, label: &[u8], value: Digest) {
        let new = || Labelled { label: Bytes::copy_from_slice(label), value };
        let Some(at) = self.tree.seek(label) else {
            self.tree.add(new());
            return;
        };
        let leaf = self.tree.leaf_mut(at);
        match first_difference(label, &leaf.label) {
            Some(position) => {
                self.tree.hang(at, position, new());
            }
            None if leaf.value == value => {}
            None => {
                leaf.value = value;
                self.tree.touch(at);
            }
        }
    }

    fn remove(&mut self, label: &[u8]) {
        if let Some(at) = self.tree.seek(label)
            && self.tree.leaf(at).label == label
        {
            self.tree.remove(at);
        }
    }

    /// The root over the content. The cost is a hash for every node at or above a change since the
    /// last call.
    pub fn root(&mut self) -> Digest {
        self.tree.root()
    }

    /// The upper levels of the tree as it is. The cost is that of [`Self::root`], and a walk down
    /// from each of some hundred nodes.
    pub fn top(&mut self) -> TreeTop {
        self.tree.top()
    }
}
