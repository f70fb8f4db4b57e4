//! The Merkle tree over labelled chunks: what a state digest is the root of.
//!
//! A binary Patricia trie over the bits of the labels (`key_bits`), so that its shape depends on
//! the labels alone, nobody can choose labels that make it deeper than a label has bits, and
//! neighbours in the tree are neighbours in the order of labels.
//!
//! ```text
//! empty  EMPTY_ROOT
//! leaf   H(0 | label length: u32 | label | H(chunk))
//! inner  H(1 | left | right)
//! ```
//! [`crate::MerkleMap`] keeps such a tree while it changes; [`TreeBuilder`] makes one from labels
//! in ascending order, with as much memory as the tree is deep.

use crate::key_bits::first_difference;
use crate::{AppError, Application};
use bytes::Bytes;
use tercio_crypto::hash;
use tercio_types::{Digest, EMPTY_ROOT, Suite};

/// The longest label of a chunk, in bytes.
pub const MAX_LABEL: usize = (1 << 16) - 2;

/// The longest chunk, in bytes.
pub const MAX_CHUNK: usize = 64 << 20;

/// The digest of the leaf of `label`, whose chunk has the digest `value`.
#[must_use]
pub fn leaf_digest(suite: Suite, label: &[u8], value: Digest) -> Digest {
    let len = (label.len() as u32).to_le_bytes();
    hash(suite, &[&[0], &len, label, &value.0])
}

/// The digest of an inner node.
#[must_use]
pub fn inner_digest(suite: Suite, [left, right]: [Digest; 2]) -> Digest {
    hash(suite, &[&[1], &left.0, &right.0])
}

/// Makes a tree from leaves in ascending order of label. `R` is what the caller knows each node
/// by: it names leaves, and is asked to name inner nodes as they are made, children first.
pub struct TreeBuilder<R> {
    suite: Suite,
    last: Bytes,
    /// The highest node that ends with the last leaf and is known to be whole.
    current: Option<(Digest, R)>,
    /// Nodes to the left, each with the bit in which what follows it differs.
    open: Vec<((Digest, R), u32)>,
}

impl<R> TreeBuilder<R> {
    /// A tree without leaves.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        Self { suite, last: Bytes::new(), current: None, open: Vec::new() }
    }

    /// Adds the next leaf, known by `leaf`.
    ///
    /// # Panics
    /// When `label` is not above the one before.
    pub fn push(
        &mut self,
        label: Bytes,
        value: Digest,
        leaf: R,
        join: &mut impl FnMut(Digest, [(Digest, R); 2]) -> R,
    ) {
        let node = (leaf_digest(self.suite, &label, value), leaf);
        if let Some(before) = self.current.take() {
            assert!(self.last < label, "labels ascend");
            let here = first_difference(&self.last, &label).expect("two labels");
            let before = self.close(before, Some(here), join);
            self.open.push((before, here));
        }
        self.current = Some(node);
        self.last = label;
    }

    /// Joins what splits below `position`; everything, without one.
    fn close(
        &mut self,
        mut right: (Digest, R),
        position: Option<u32>,
        join: &mut impl FnMut(Digest, [(Digest, R); 2]) -> R,
    ) -> (Digest, R) {
        while let Some((left, _)) =
            self.open.pop_if(|(_, split)| position.is_none_or(|position| *split > position))
        {
            let digest = inner_digest(self.suite, [left.0, right.0]);
            right = (digest, join(digest, [left, right]));
        }
        right
    }

    /// The root, and what it is known by; `None` without leaves.
    pub fn finish(
        mut self,
        join: &mut impl FnMut(Digest, [(Digest, R); 2]) -> R,
    ) -> Option<(Digest, R)> {
        let current = self.current.take()?;
        Some(self.close(current, None, join))
    }
}

/// The root over labelled chunks in ascending order of label: what [`Application::state_digest`]
/// must be, given what [`Application::snapshot`] gives.
///
/// # Panics
/// When the labels do not ascend.
#[must_use]
pub fn chunks_root(suite: Suite, chunks: &[(Bytes, Bytes)]) -> Digest {
    let mut tree = TreeBuilder::new(suite);
    for (label, chunk) in chunks {
        tree.push(label.clone(), hash(suite, &[chunk]), (), &mut |_, _| ());
    }
    tree.finish(&mut |_, _| ()).map_or(EMPTY_ROOT, |(root, ())| root)
}

/// Checks that an application keeps the contract of digest, snapshot and restore in the state that
/// it is in: the digest is the root over the snapshot's chunks, none is too long, and `fresh`
/// restores from them to the same. For an application's own tests.
///
/// # Errors
/// What does not hold.
pub fn check_contract(
    app: &mut dyn Application,
    fresh: &mut dyn Application,
    suite: Suite,
) -> Result<(), AppError> {
    let hold = |holds: bool, what: &str| holds.then_some(()).ok_or_else(|| AppError(what.into()));
    let digest = app.state_digest();
    let snapshot = app.snapshot();
    let bytes = snapshot.bytes();
    let chunks: Vec<_> = snapshot.collect();
    let sum: u64 = chunks.iter().map(|(_, chunk)| chunk.len() as u64).sum();
    hold(bytes == sum, "the snapshot is not as long as it says")?;
    hold(chunks.is_sorted_by(|(a, _), (b, _)| a < b), "the labels do not ascend")?;
    hold(chunks.iter().all(|(label, _)| label.len() < MAX_LABEL), "a label is too long")?;
    hold(chunks.iter().all(|(_, chunk)| chunk.len() <= MAX_CHUNK), "a chunk is too long")?;
    hold(digest == chunks_root(suite, &chunks), "the digest is not that of the chunks")?;
    hold(app.state_digest() == digest, "taking a snapshot changed the digest")?;
    fresh.restore(&chunks)?;
    hold(fresh.state_digest() == digest, "what was restored has another digest")?;
    hold(fresh.snapshot().eq(chunks), "what was restored gives other chunks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MerkleMap;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Built leaf by leaf or changed in place, the tree is the same, and every join is of
        /// neighbours.
        #[test]
        fn both_ways_to_a_tree_agree(
            labels in prop::collection::vec(prop::collection::vec(0u8..4, 0..6), 0..80),
        ) {
            let suite = Suite::default();
            let value = |label: &[u8]| hash(suite, &[b"value", label]);
            let mut map = MerkleMap::new(suite);
            labels.iter().for_each(|label| map.set(label, Some(value(label))));
            let sorted: BTreeMap<_, _> = labels.iter().map(|l| (l.clone(), value(l))).collect();
            let mut tree = TreeBuilder::new(suite);
            let mut joins = 0;
            let mut join = |_: Digest, [(_, left), (_, right)]: [(Digest, (usize, usize)); 2]| {
                assert_eq!(left.1, right.0, "neighbours");
                joins += 1;
                (left.0, right.1)
            };
            for (i, (label, value)) in sorted.iter().enumerate() {
                tree.push(label.clone().into(), *value, (i, i + 1), &mut join);
            }
            match tree.finish(&mut join) {
                None => prop_assert!(map.is_empty() && map.root() == EMPTY_ROOT),
                Some((root, range)) => {
                    prop_assert_eq!(root, map.root());
                    prop_assert_eq!(range, (0, map.len()));
                    prop_assert_eq!(joins, map.len() - 1);
                }
            }
        }
    }
}
