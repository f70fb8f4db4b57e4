//! A map from ordered labels to digests with an incremental Merkle root: the state digest.
//!
//! The tree is that of [`crate::tree`]: replicas that reached the same content by different ways
//! have the same root, and two trees can be compared range by range.
//!
//! A change marks the path above it; [`MerkleMap::root`] hashes marked nodes only.

use crate::key_bits::{bit, first_difference};
use crate::top::{SHORT, Shown, TOP_LEVELS, TopNode, TreeTop};
use crate::tree::{inner_digest, leaf_digest};
use bytes::Bytes;
use tercio_types::{Digest, EMPTY_ROOT, Suite};

#[derive(Clone, Debug)]
enum Shape {
    Leaf {
        label: Bytes,
        value: Digest,
    },
    /// All labels below agree before `position`; those with a zero there are on the left.
    Inner {
        position: u32,
        children: [u32; 2],
    },
}

#[derive(Clone, Debug)]
struct Node {
    shape: Shape,
    /// `None` since something below changed; then it is `None` in all nodes above, too.
    digest: Option<Digest>,
}

/// An ordered map from labels to digests, with a Merkle root over its content.
#[derive(Clone, Debug)]
pub struct MerkleMap {
    suite: Suite,
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: Option<u32>,
    len: usize,
    hashes: u64,
    /// The inner nodes that the last walk passed; kept for its memory.
    path: Vec<u32>,
}

impl MerkleMap {
    /// A map without entries.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        Self {
            suite,
            nodes: Vec::new(),
            free: Vec::new(),
            root: None,
            len: 0,
            hashes: 0,
            path: Vec::new(),
        }
    }

    /// How many labels have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no label has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many hashes [`Self::root`] has computed so far: its cost.
    #[must_use]
    pub fn hashes(&self) -> u64 {
        self.hashes
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, label: &[u8]) -> Option<Digest> {
        let mut at = self.root?;
        loop {
            match &self.nodes[at as usize].shape {
                Shape::Inner { position, children } => {
                    at = children[usize::from(bit(label, *position))];
                }
                Shape::Leaf { label: found, value } => {
                    return (found.as_ref() == label).then_some(*value);
                }
            }
        }
    }

    /// Gives a label a value, or takes the value away.
    pub fn set(&mut self, label: &[u8], value: Option<Digest>) {
        match value {
            Some(value) => self.insert(label, value),
            None => self.remove(label),
        }
    }

    fn insert(&mut self, label: &[u8], value: Digest) {
        let leaf = Shape::Leaf { label: Bytes::copy_from_slice(label), value };
        let Some(nearest) = self.walk(label) else {
            self.root = Some(self.allocate(leaf));
            self.len = 1;
            return;
        };
        let Shape::Leaf { label: found, value: old } = &mut self.nodes[nearest as usize].shape
        else {
            unreachable!("a walk ends at a leaf")
        };
        let Some(position) = first_difference(label, found) else {
            if *old != value {
                *old = value;
                self.nodes[nearest as usize].digest = None;
                self.mark_path();
            }
            return;
        };
        let above = self.path.partition_point(|&node| self.position(node) < position);
        let displaced = self.path.get(above).copied().unwrap_or(nearest);
        self.path.truncate(above);
        let leaf = self.allocate(leaf);
        let children = if bit(label, position) { [displaced, leaf] } else { [leaf, displaced] };
        let inner = self.allocate(Shape::Inner { position, children });
        self.hang(label, inner);
        self.mark_path();
        self.len += 1;
    }

    fn remove(&mut self, label: &[u8]) {
        let Some(leaf) = self.walk(label) else { return };
        match &self.nodes[leaf as usize].shape {
            Shape::Leaf { label: found, .. } if found.as_ref() == label => {}
            _ => return,
        }
        self.len -= 1;
        self.release(leaf);
        let Some(parent) = self.path.pop() else {
            self.root = None;
            return;
        };
        let Shape::Inner { position, children } = self.nodes[parent as usize].shape else {
            unreachable!("a path is of inner nodes")
        };
        self.release(parent);
        self.hang(label, children[usize::from(!bit(label, position))]);
        self.mark_path();
    }

    /// Follows the bits of `label` to a leaf (which may have another label), and keeps the way in
    /// `path`.
    fn walk(&mut self, label: &[u8]) -> Option<u32> {
        self.path.clear();
        let mut at = self.root?;
        while let Shape::Inner { position, children } = self.nodes[at as usize].shape {
            self.path.push(at);
            at = children[usize::from(bit(label, position))];
        }
        Some(at)
    }

    /// Puts `node` under the end of the path, on the side of `label`.
    fn hang(&mut self, label: &[u8], node: u32) {
        let Some(&parent) = self.path.last() else {
            self.root = Some(node);
            return;
        };
        let Shape::Inner { position, children } = &mut self.nodes[parent as usize].shape else {
            unreachable!("a path is of inner nodes")
        };
        children[usize::from(bit(label, *position))] = node;
    }

    fn position(&self, node: u32) -> u32 {
        match self.nodes[node as usize].shape {
            Shape::Inner { position, .. } => position,
            Shape::Leaf { .. } => unreachable!("a path is of inner nodes"),
        }
    }

    fn mark_path(&mut self) {
        for &node in &self.path {
            self.nodes[node as usize].digest = None;
        }
    }

    fn allocate(&mut self, shape: Shape) -> u32 {
        let node = Node { shape, digest: None };
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes")
    }

    fn release(&mut self, node: u32) {
        let value = Digest::NULL;
        self.nodes[node as usize].shape = Shape::Leaf { label: Bytes::new(), value };
        self.free.push(node);
    }

    /// The root over the content. The cost is a hash for every node at or above a change since the
    /// last call.
    pub fn root(&mut self) -> Digest {
        let Some(root) = self.root else { return EMPTY_ROOT };
        let mut open = std::mem::take(&mut self.path);
        open.clear();
        open.push(root);
        // A stack of our own: a hostile set of labels may be as deep as a label has bits.
        while let Some(&at) = open.last() {
            let node = &self.nodes[at as usize];
            let digest = match &node.shape {
                _ if node.digest.is_some() => None,
                Shape::Leaf { label, value } => Some(leaf_digest(self.suite, label, *value)),
                Shape::Inner { children, .. } => {
                    let [left, right] = *children;
                    match (self.nodes[left as usize].digest, self.nodes[right as usize].digest) {
                        (Some(left), Some(right)) => Some(inner_digest(self.suite, [left, right])),
                        _ => {
                            open.extend([left, right]);
                            continue;
                        }
                    }
                }
            };
            if digest.is_some() {
                self.nodes[at as usize].digest = digest;
                self.hashes += 1;
            }
            open.pop();
        }
        self.path = open;
        self.nodes[root as usize].digest.expect("the root was hashed last")
    }

    /// The upper levels of the tree as it is. The cost is that of [`Self::root`], and a walk down
    /// from each of some hundred nodes.
    pub fn top(&mut self) -> TreeTop {
        self.root();
        let mut nodes = Vec::new();
        if let Some(root) = self.root {
            self.show(root, TOP_LEVELS, &mut nodes);
        }
        TreeTop { nodes }
    }

    /// Adds a node and what is shown below it.
    fn show(&self, at: u32, levels: u32, nodes: &mut Vec<TopNode>) {
        let node = &self.nodes[at as usize];
        let digest = node.digest.expect("the root was hashed just now");
        let label = self.first_label(at);
        let first = Bytes::copy_from_slice(&label[..label.len().min(SHORT)]);
        let shown = match &node.shape {
            Shape::Leaf { value, .. } if label.len() <= SHORT => Shown::Leaf(*value),
            Shape::Inner { .. } if levels > 0 => Shown::Inner,
            Shape::Leaf { .. } | Shape::Inner { .. } => Shown::Nothing,
        };
        nodes.push(TopNode { digest, first, shown });
        if let (Shape::Inner { children, .. }, Shown::Inner) = (&node.shape, shown) {
            children.iter().for_each(|child| self.show(*child, levels - 1, nodes));
        }
    }

    /// The first label at or below a node.
    fn first_label(&self, mut at: u32) -> &Bytes {
        loop {
            match &self.nodes[at as usize].shape {
                Shape::Leaf { label, .. } => return label,
                Shape::Inner { children, .. } => at = children[0],
            }
        }
    }
}
