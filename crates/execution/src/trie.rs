//! The tree of [`crate::tree`] while it changes: a binary Patricia trie over the bits of labels
//! (`key_bits`), with a digest for each node.
//!
//! What a leaf holds is its owner's business ([`Leaf`]); the shape follows from the labels. A change
//! marks the way from its leaf up to the root, and [`Trie::root`] hashes marked nodes only.
//!
//! Changes are made at the end of a way: [`Trie::seek`] goes down to the leaf that is nearest to a
//! label, and what follows works on that leaf and the inner nodes passed. Nodes stand in one array,
//! small, apart from digests and leaves: a walk in a tree of a million nodes touches little memory.
//!
//! Nodes and leaves are in pages that copies share ([`Pages`]): to keep the leaves as they are
//! ([`Trie::leaves`]) costs a reference to each page, and going through them is for whoever has them.

use crate::key_bits::{bit, first_difference};
use crate::pages::Pages;
use crate::top::{SHORT, Shown, TOP_LEVELS, TopNode, TreeTop};
use crate::tree::{inner_digest, leaf_digest};
use bytes::Bytes;
use tercio_types::{Digest, EMPTY_ROOT, Suite};

/// What stands at the end of a way.
pub(crate) trait Leaf {
    /// The label under which it stands: no other leaf's, and only changed so that the bits in which
    /// it differs from the others stay.
    fn label(&self) -> &Bytes;

    /// The digest of what it holds.
    fn value(&mut self, suite: Suite) -> Digest;
}

#[derive(Clone, Copy, Debug, Default)]
enum Shape {
    /// Not in use.
    #[default]
    Free,
    /// Its place among the leaves.
    Leaf(u32),
    /// All labels below agree before `position`; those with a zero there are on the left.
    Inner { position: u32, children: [u32; 2] },
}

/// The shapes of all nodes: in few pages, since every step of a walk looks for one, and few change.
type Shapes = Pages<Shape, 1024>;

/// The leaves: pages of fewer are more to share, pages of more are more to copy at a first change.
type Places<T> = Pages<Option<T>, 64>;

/// A trie with leaves `T`. Nodes are known by their numbers as long as they stand.
#[derive(Clone, Debug)]
pub(crate) struct Trie<T> {
    suite: Suite,
    nodes: Shapes,
    /// By node: whether its digest is out of date; then those of all nodes above it are, too.
    changed: Vec<bool>,
    /// By node.
    digests: Vec<Digest>,
    free: Vec<u32>,
    places: Places<T>,
    free_places: Vec<u32>,
    root: Option<u32>,
    hashes: u64,
    /// The inner nodes above the leaf that was sought last, the root first.
    way: Vec<u32>,
}

impl<T: Leaf + Clone> Trie<T> {
    /// A trie without leaves.
    pub(crate) fn new(suite: Suite) -> Self {
        Self {
            suite,
            nodes: Pages::new(),
            changed: Vec::new(),
            digests: Vec::new(),
            free: Vec::new(),
            places: Pages::new(),
            free_places: Vec::new(),
            root: None,
            hashes: 0,
            way: Vec::new(),
        }
    }

    /// How many leaves there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free_places.len()
    }

    /// How many hashes of nodes [`Self::root`] has computed so far.
    pub(crate) fn hashes(&self) -> u64 {
        self.hashes
    }

    /// The leaf with whose label `label` agrees furthest.
    pub(crate) fn nearest(&self, label: &[u8]) -> Option<&T> {
        let mut at = self.root?;
        while let Shape::Inner { position, children } = self.nodes[at] {
            at = children[usize::from(bit(label, position))];
        }
        Some(self.leaf(at))
    }

    /// The same, with the way to it.
    pub(crate) fn seek(&mut self, label: &[u8]) -> Option<u32> {
        self.way.clear();
        let mut at = self.root?;
        while let Shape::Inner { position, children } = self.nodes[at] {
            self.way.push(at);
            at = children[usize::from(bit(label, position))];
        }
        Some(at)
    }

    fn place(&self, at: u32) -> Option<u32> {
        match self.nodes[at] {
            Shape::Leaf(place) => Some(place),
            Shape::Free | Shape::Inner { .. } => None,
        }
    }

    /// Whether a leaf is there.
    pub(crate) fn is_leaf(&self, at: u32) -> bool {
        self.place(at).is_some()
    }

    /// The leaf at a node.
    pub(crate) fn leaf(&self, at: u32) -> &T {
        self.places[self.place(at).expect("a leaf")].as_ref().expect("a leaf's place is taken")
    }

    /// The leaf at a node, to be changed: with [`Self::touch`], if that changes its digest.
    pub(crate) fn leaf_mut(&mut self, at: u32) -> &mut T {
        self.leaf_if(at).expect("a leaf")
    }

    /// The leaf at a node, if it is one (still).
    pub(crate) fn leaf_if(&mut self, at: u32) -> Option<&mut T> {
        let place = self.place(at)?;
        self.places.get_mut(place).as_mut()
    }

    /// Marks the leaf at the end of the way, and all above it.
    pub(crate) fn touch(&mut self, leaf: u32) {
        self.changed[leaf as usize] = true;
        self.mark_way();
    }

    fn mark_way(&mut self) {
        for &node in self.way.iter().rev() {
            if std::mem::replace(&mut self.changed[node as usize], true) {
                break;
            }
        }
    }

    /// Adds a leaf that no other one is near: its label differs from `nearest`, at the end of the
    /// way to it, first at `position`. The way leads to the new one then.
    pub(crate) fn hang(&mut self, nearest: u32, position: u32, leaf: T) -> u32 {
        let above = self.way.partition_point(|&node| self.position(node) < position);
        let displaced = self.way.get(above).copied().unwrap_or(nearest);
        self.way.truncate(above);
        let right = bit(leaf.label(), position);
        let leaf = self.allocate_leaf(leaf);
        let children = if right { [displaced, leaf] } else { [leaf, displaced] };
        let inner = self.allocate(Shape::Inner { position, children });
        self.replace(displaced, inner);
        self.mark_way();
        self.way.push(inner);
        leaf
    }

    /// Adds a leaf with a new label.
    pub(crate) fn add(&mut self, leaf: T) -> u32 {
        let Some(nearest) = self.seek(leaf.label()) else {
            let leaf = self.allocate_leaf(leaf);
            self.root = Some(leaf);
            return leaf;
        };
        let differs = first_difference(leaf.label(), self.leaf(nearest).label());
        self.hang(nearest, differs.expect("a label that no leaf has"), leaf)
    }

    /// Takes the leaf at the end of the way out; what was beside it takes its parent's place, and
    /// is given, at the end of the way, if it is a leaf.
    pub(crate) fn remove(&mut self, leaf: u32) -> Option<u32> {
        self.release(leaf);
        let Some(parent) = self.way.pop() else {
            self.root = None;
            return None;
        };
        let beside = self.beside(parent, leaf);
        self.release(parent);
        self.replace(parent, beside);
        self.mark_way();
        self.is_leaf(beside).then_some(beside)
    }

    /// The leaf beside the one at the end of the way, if a leaf is there.
    pub(crate) fn sibling(&self, leaf: u32) -> Option<u32> {
        let beside = self.beside(*self.way.last()?, leaf);
        self.is_leaf(beside).then_some(beside)
    }

    /// Makes one leaf of the one at the end of the way, which is marked, and its sibling: `join` adds
    /// the right one to the left one. The way leads to it.
    pub(crate) fn join(&mut self, join: impl FnOnce(&mut T, T)) -> u32 {
        let parent = self.way.pop().expect("a leaf with a sibling");
        let Shape::Inner { children, .. } = self.nodes[parent] else {
            unreachable!("a way is of inner nodes")
        };
        let [mut left, right] = children.map(|child| self.release(child).expect("two leaves"));
        join(&mut left, right);
        let place = self.allocate_place(left);
        *self.nodes.get_mut(parent) = Shape::Leaf(place);
        parent
    }

    /// Makes two leaves of a marked one, whose labels differ first at `position`.
    pub(crate) fn split(&mut self, leaf: u32, position: u32, halves: [T; 2]) -> [u32; 2] {
        let place = self.place(leaf).expect("a leaf");
        *self.places.get_mut(place) = None;
        self.free_places.push(place);
        let children = halves.map(|half| self.allocate_leaf(half));
        *self.nodes.get_mut(leaf) = Shape::Inner { position, children };
        children
    }

    fn beside(&self, parent: u32, child: u32) -> u32 {
        match self.nodes[parent] {
            Shape::Inner { children: [left, right], .. } if left == child => right,
            Shape::Inner { children: [left, _], .. } => left,
            Shape::Free | Shape::Leaf(_) => unreachable!("a way is of inner nodes"),
        }
    }

    /// Puts `new` in the place of `old` under the end of the way.
    fn replace(&mut self, old: u32, new: u32) {
        let Some(&parent) = self.way.last() else {
            self.root = Some(new);
            return;
        };
        let Shape::Inner { children, .. } = self.nodes.get_mut(parent) else {
            unreachable!("a way is of inner nodes")
        };
        children[usize::from(children[0] != old)] = new;
    }

    fn position(&self, node: u32) -> u32 {
        match self.nodes[node] {
            Shape::Inner { position, .. } => position,
            Shape::Free | Shape::Leaf(_) => unreachable!("a way is of inner nodes"),
        }
    }

    fn allocate(&mut self, shape: Shape) -> u32 {
        if let Some(at) = self.free.pop() {
            *self.nodes.get_mut(at) = shape;
            self.changed[at as usize] = true;
            return at;
        }
        self.changed.push(true);
        self.digests.push(Digest::NULL);
        self.nodes.push(shape)
    }

    fn allocate_place(&mut self, leaf: T) -> u32 {
        let Some(place) = self.free_places.pop() else { return self.places.push(Some(leaf)) };
        *self.places.get_mut(place) = Some(leaf);
        place
    }

    fn allocate_leaf(&mut self, leaf: T) -> u32 {
        let place = self.allocate_place(leaf);
        self.allocate(Shape::Leaf(place))
    }

    /// Lets a node go; gives the leaf that it was.
    fn release(&mut self, node: u32) -> Option<T> {
        let shape = std::mem::take(self.nodes.get_mut(node));
        self.free.push(node);
        let Shape::Leaf(place) = shape else { return None };
        self.free_places.push(place);
        self.places.get_mut(place).take()
    }

    /// The leaves in order of label, from the one that `label` is in or would be in: that may hold
    /// what is below it.
    pub(crate) fn leaves_from(&self, label: &[u8]) -> impl Iterator<Item = &T> {
        let nearest = self.nearest(label).map(Leaf::label);
        let differs = nearest.and_then(|nearest| first_difference(label, nearest));
        // Nodes still to be visited, the next one last.
        let mut open: Vec<u32> = Vec::new();
        let mut next = self.root;
        while let Some(at) = next.take() {
            match self.nodes[at] {
                Shape::Inner { position, children: [left, right] }
                    if differs.is_none_or(|differs| position < differs) =>
                {
                    if bit(label, position) {
                        next = Some(right);
                    } else {
                        open.push(right);
                        next = Some(left);
                    }
                }
                // All below here differ from the label in the same bit: they come before it.
                Shape::Inner { .. } if differs.is_some_and(|differs| bit(label, differs)) => {}
                _ => open.push(at),
            }
        }
        std::iter::from_fn(move || {
            loop {
                let at = open.pop()?;
                match self.nodes[at] {
                    Shape::Inner { children: [left, right], .. } => open.extend([right, left]),
                    _ => return Some(self.leaf(at)),
                }
            }
        })
    }

    /// The leaves as they are, in order of label: a copy to be gone through elsewhere.
    pub(crate) fn leaves(&self) -> Leaves<T> {
        let (nodes, places) = (self.nodes.clone(), self.places.clone());
        Leaves { nodes, places, open: self.root.into_iter().collect() }
    }

    /// The root over the content. The cost is a hash for every node at or above a change since the
    /// last call.
    pub(crate) fn root(&mut self) -> Digest {
        let Some(root) = self.root else { return EMPTY_ROOT };
        let mut open = std::mem::take(&mut self.way);
        open.clear();
        open.push(root);
        // A stack of our own: a hostile set of labels may be as deep as a label has bits.
        while let Some(&at) = open.last() {
            if !self.changed[at as usize] {
                open.pop();
                continue;
            }
            let suite = self.suite;
            let digest = match self.nodes[at] {
                Shape::Inner { children, .. } => {
                    let before = open.len();
                    open.extend(children.iter().filter(|&&c| self.changed[c as usize]));
                    if open.len() > before {
                        continue;
                    }
                    inner_digest(suite, children.map(|child| self.digests[child as usize]))
                }
                _ => {
                    let leaf = self.leaf_mut(at);
                    let value = leaf.value(suite);
                    leaf_digest(suite, leaf.label(), value)
                }
            };
            self.digests[at as usize] = digest;
            self.changed[at as usize] = false;
            self.hashes += 1;
            open.pop();
        }
        open.clear();
        self.way = open;
        self.digests[root as usize]
    }

    /// The upper levels of the tree as it is. The cost is that of [`Self::root`], and a walk down
    /// from each of some hundred nodes.
    pub(crate) fn top(&mut self) -> TreeTop {
        self.root();
        let mut nodes = Vec::new();
        if let Some(root) = self.root {
            self.show(root, TOP_LEVELS, &mut nodes);
        }
        TreeTop { nodes }
    }

    /// Adds a node and what is shown below it.
    fn show(&mut self, at: u32, levels: u32, nodes: &mut Vec<TopNode>) {
        let digest = self.digests[at as usize];
        let label = self.first_label(at);
        let is_short = label.len() <= SHORT;
        let first = Bytes::copy_from_slice(&label[..label.len().min(SHORT)]);
        let (suite, shape) = (self.suite, self.nodes[at]);
        let shown = match shape {
            Shape::Leaf(_) if is_short => Shown::Leaf(self.leaf_mut(at).value(suite)),
            Shape::Inner { .. } if levels > 0 => Shown::Inner,
            _ => Shown::Nothing,
        };
        nodes.push(TopNode { digest, first, shown });
        if let (Shape::Inner { children, .. }, Shown::Inner) = (shape, shown) {
            children.iter().for_each(|child| self.show(*child, levels - 1, nodes));
        }
    }

    /// The first label at or below a node.
    fn first_label(&self, mut at: u32) -> &Bytes {
        while let Shape::Inner { children, .. } = self.nodes[at] {
            at = children[0];
        }
        self.leaf(at).label()
    }
}

/// The leaves of a trie in order of label, as they were at one moment.
#[derive(Debug)]
pub(crate) struct Leaves<T> {
    nodes: Shapes,
    places: Places<T>,
    /// Nodes still to be visited, the next one last.
    open: Vec<u32>,
}

impl<T: Clone> Iterator for Leaves<T> {
    type Item = T;

    /// The next leaf. It is released here, unless another has its page: the trie then has the leaf
    /// too, since nothing on that page was changed, or another copy that is to be gone through has.
    fn next(&mut self) -> Option<T> {
        loop {
            let at = self.open.pop()?;
            match self.nodes[at] {
                Shape::Inner { children: [left, right], .. } => self.open.extend([right, left]),
                Shape::Leaf(place) => return self.places.take(place),
                Shape::Free => unreachable!("a node of the tree is in use"),
            }
        }
    }
}
