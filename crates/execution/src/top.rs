//! The upper part of a state's tree: enough to say in which range of labels two states differ,
//! without the chunks of either.

use bytes::Bytes;
use tercio_types::{Digest, EMPTY_ROOT};

/// How many levels of inner nodes a top shows: ranges as narrow as a 256th of a balanced tree.
pub const TOP_LEVELS: u32 = 8;

/// Labels are kept up to this length; the leaf of a longer one is not shown.
pub(crate) const SHORT: usize = 64;

/// A node of a top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopNode {
    /// Its digest.
    pub digest: Digest,
    /// The first label at or below it, cut to 64 bytes.
    pub first: Bytes,
    /// What of it is shown.
    pub shown: Shown,
}

/// What of a node is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// An inner node; its children follow.
    Inner,
    /// A leaf whose chunk has this digest; its label is whole.
    Leaf(Digest),
    /// Nothing but the digest.
    Nothing,
}

/// A range of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRange {
    /// The first label in it; without bytes, the range begins with the state.
    pub from: Bytes,
    /// The first label behind it; none when it ends with the state.
    pub to: Option<Bytes>,
}

impl LabelRange {
    /// Whether a label lies in the range.
    #[must_use]
    pub fn contains(&self, label: &[u8]) -> bool {
        self.from <= label && self.to.as_ref().is_none_or(|to| label < to.as_ref())
    }
}

/// The upper levels of a tree, in preorder; none of an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeTop {
    pub(crate) nodes: Vec<TopNode>,
}

impl TreeTop {
    /// The nodes in preorder.
    #[must_use]
    pub fn nodes(&self) -> &[TopNode] {
        &self.nodes
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.nodes.first().map_or(EMPTY_ROOT, |root| root.digest)
    }

    /// The ranges of labels in which a state differs whose tree has the root `theirs`; `children`
    /// says what is known of an inner node of that tree. The less is known, the wider the ranges.
    #[must_use]
    pub fn differences(
        &self,
        theirs: Digest,
        children: &dyn Fn(Digest) -> Option<[Digest; 2]>,
    ) -> Vec<LabelRange> {
        let mut pieces = vec![];
        if self.nodes.is_empty() {
            pieces.push((Bytes::new(), theirs != EMPTY_ROOT));
        } else {
            self.compare(0, theirs, children, &mut pieces);
        }
        let mut ranges: Vec<LabelRange> = vec![];
        let mut before = false;
        for (i, (first, differs)) in pieces.into_iter().enumerate() {
            match (before, differs) {
                (false, true) => {
                    let from = if i == 0 { Bytes::new() } else { first };
                    ranges.push(LabelRange { from, to: None });
                }
                (true, false) => {
                    ranges.last_mut().expect("one was begun").to = Some(first);
                }
                _ => {}
            }
            before = differs;
        }
        ranges
    }

    /// Adds to `pieces` the smallest parts below a node that can be compared, each with its first
    /// label and whether it differs; gives the place of the node behind.
    fn compare(
        &self,
        at: usize,
        theirs: Digest,
        children: &dyn Fn(Digest) -> Option<[Digest; 2]>,
        pieces: &mut Vec<(Bytes, bool)>,
    ) -> usize {
        let node = &self.nodes[at];
        let differs = node.digest != theirs;
        match children(theirs).filter(|_| differs && node.shown == Shown::Inner) {
            Some([left, right]) => {
                let next = self.compare(at + 1, left, children, pieces);
                self.compare(next, right, children, pieces)
            }
            None => {
                pieces.push((node.first.clone(), differs));
                self.behind(at)
            }
        }
    }

    /// The place behind everything below a node.
    fn behind(&self, at: usize) -> usize {
        let (mut at, mut open) = (at, 1);
        while open > 0 {
            open = match self.nodes[at].shown {
                Shown::Inner => open + 1,
                Shown::Leaf(_) | Shown::Nothing => open - 1,
            };
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MerkleMap;
    use std::collections::BTreeMap;
    use tercio_crypto::hash;
    use tercio_types::Suite;

    fn tree(labels: &BTreeMap<Vec<u8>, u32>) -> MerkleMap {
        let suite = Suite::default();
        let mut map = MerkleMap::new(suite);
        for (label, value) in labels {
            map.set(label, Some(hash(suite, &[&value.to_le_bytes()])));
        }
        map
    }

    /// What `theirs` shows, as a map from an inner node to its children.
    fn children(theirs: &TreeTop) -> BTreeMap<Digest, [Digest; 2]> {
        let nodes = &theirs.nodes;
        let inner = (0..nodes.len()).filter(|&i| nodes[i].shown == Shown::Inner);
        inner
            .map(|i| (nodes[i].digest, [nodes[i + 1].digest, nodes[theirs.behind(i + 1)].digest]))
            .collect()
    }

    fn between(ours: &BTreeMap<Vec<u8>, u32>, theirs: &BTreeMap<Vec<u8>, u32>) -> Vec<LabelRange> {
        let (ours, theirs) = (tree(ours).top(), tree(theirs).top());
        let children = children(&theirs);
        ours.differences(theirs.root(), &|digest| children.get(&digest).copied())
    }

    #[test]
    fn the_range_holds_what_differs_and_little_else() {
        let label = |i: u32| i.to_be_bytes().to_vec();
        for count in [1u32, 2, 3, 100, 5000] {
            let ours: BTreeMap<_, _> = (0..count).map(|i| (label(i * 2), i)).collect();
            assert_eq!(between(&ours, &ours), []);
            for at in [0, count / 3, count - 1] {
                let mut changed = ours.clone();
                changed.insert(label(at * 2), u32::MAX);
                let mut without = ours.clone();
                without.remove(&label(at * 2));
                let mut with = ours.clone();
                with.insert(label(at * 2 + 1), 0);
                for (theirs, label) in
                    [(changed, label(at * 2)), (without, label(at * 2)), (with, label(at * 2 + 1))]
                {
                    let ranges = between(&ours, &theirs);
                    assert_eq!(ranges.len(), 1, "{ranges:?}");
                    assert!(ranges[0].contains(&label), "{label:?} in {ranges:?}");
                    // With few labels, one that comes or goes changes the shape from the root on.
                    let held = ours.keys().filter(|label| ranges[0].contains(label)).count();
                    assert!(count < 100 || held <= count as usize / 16, "{held} of {count}");
                }
            }
        }
        let none = BTreeMap::new();
        let some = BTreeMap::from([(label(7), 7)]);
        for (ours, theirs) in [(&none, &some), (&some, &none)] {
            let ranges = between(ours, theirs);
            assert!(ranges.len() == 1 && ranges[0].contains(&label(7)), "{ranges:?}");
        }
    }

    #[test]
    fn what_is_not_shown_is_one_range() {
        let ours: BTreeMap<_, _> = (0u32..100).map(|i| (i.to_be_bytes().to_vec(), i)).collect();
        let all = tree(&ours).top().differences(Digest([9; 32]), &|_| None);
        assert_eq!(all, [LabelRange { from: Bytes::new(), to: None }]);
    }

    #[test]
    fn long_labels_are_cut_and_their_leaves_hidden() {
        let ours = BTreeMap::from([(vec![1; SHORT], 1), (vec![1; SHORT + 1], 2)]);
        let top = tree(&ours).top();
        let shown: Vec<_> = top.nodes.iter().map(|n| (n.first.len(), n.shown)).collect();
        assert!(matches!(
            shown[..],
            [(SHORT, Shown::Inner), (SHORT, Shown::Leaf(_)), (SHORT, Shown::Nothing)]
        ));
    }
}
