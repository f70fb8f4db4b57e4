//! What replicas say to each other about state.
//!
//! ```text
//! FETCH_STATE  key: sequence = the asker's number for the question
//!   body   0 | height: u64                          what can you offer to one that stands there
//!        | 1 | checkpoint: u64 | list of paths      nodes of its trees, each with some below it
//!        | 2 | checkpoint: u64 | list of path | offset: u64       chunks, from that byte on
//!        | 3 | from: u64 | to: u64                  results of blocks; answered by a body of its own
//!   path   tree: u8 | turns: u32 | a bit a turn, from the root on, 0 left, 1 right, the first in
//!          the lowest bit of the first byte
//! STATE        key: sequence = that number
//!   body   0 | flag: u8 | if it is 1: certified checkpoint | bytes of the state: u64
//!            | bytes of all blocks up to it: u64 | bytes of the blocks above the asker: u64
//!        | 1 | list of subtrees     of the first nodes that were asked for, as many as fit
//!        | 2 | list of more: u8 | bytes    of the first chunks, as many as fit
//!   subtree, in preorder: 0 (an inner node, left and right follow)
//!        | 1 | label length: u16 | label | digest of the chunk
//!        | 2 | digest of a node that is not shown
//! ```
//! A question about a checkpoint that is not held any more is answered with an offer. Numbers from
//! 2^62 on ask for results of blocks (`crates/sync/src/results.rs`), those from 2^63 on for the root's nodes of one of the last checkpoints, whether or not there is a
//! snapshot of it (`crates/sync/src/divergence.rs`).

use bytes::Bytes;
use tercio_consensus::MAX_BATCH;
use tercio_execution::{MAX_LABEL, Shown, TOP_LEVELS, TreeTop, inner_digest, leaf_digest};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{CertifiedCheckpoint, Digest, Height, SeqNum};
use tercio_wire::{Decode, DecodeError, Encode, Reader, list};

/// About how many bytes an answer has; a single label may make it longer.
pub const STATE_ANSWER_BYTES: usize = 256 << 10;

/// How many levels of nodes are shown below one that was asked for.
pub(crate) const LEVELS: u32 = TOP_LEVELS;

/// The most things that one question asks for.
pub(crate) const ASKED: usize = 256;

/// The most turns of a path: as deep as the longest label has bits.
const MAX_TURNS: u32 = 9 * (MAX_LABEL as u32 + 1);

/// The way from the root of a tree to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Which tree.
    pub tree: u8,
    len: u32,
    bits: Vec<u8>,
}

impl Path {
    /// The root of a tree.
    #[must_use]
    pub fn root(tree: u8) -> Self {
        Self { tree, len: 0, bits: Vec::new() }
    }

    /// How many turns it takes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it is the root's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The way on to a child.
    #[must_use]
    pub fn then(&self, right: bool) -> Self {
        let mut bits = Vec::with_capacity(self.len as usize / 8 + 1);
        bits.extend_from_slice(&self.bits);
        let (byte, bit) = (self.len as usize / 8, self.len % 8);
        if byte == bits.len() {
            bits.push(0);
        }
        bits[byte] |= u8::from(right) << bit;
        Self { tree: self.tree, len: self.len + 1, bits }
    }

    /// Whether the turn of this number is to the right.
    #[must_use]
    pub fn turn(&self, i: usize) -> bool {
        self.bits[i / 8] >> (i % 8) & 1 == 1
    }

    /// How many turns two ways in one tree share.
    #[must_use]
    pub fn shared(&self, other: &Self) -> usize {
        let len = self.len().min(other.len());
        (0..len).find(|&i| self.turn(i) != other.turn(i)).unwrap_or(len)
    }
}

impl Encode for Path {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tree);
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.bits);
    }
}

impl Decode for Path {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "path";
        let (tree, len) = (input.u8(WHAT)?, input.u32(WHAT)?);
        if len > MAX_TURNS {
            let (found, limit) = (len.into(), MAX_TURNS.into());
            return Err(DecodeError::TooLong { what: WHAT, found, limit });
        }
        let bits = input.take(len.div_ceil(8) as usize, WHAT)?.to_vec();
        let unused = bits.last().map_or(0, |last| match len % 8 {
            0 => 0,
            used => last >> used,
        });
        if unused != 0 {
            return Err(DecodeError::NotCanonical(WHAT));
        }
        Ok(Self { tree, len, bits })
    }
}

/// The body of a FETCH_STATE message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchState {
    /// What can you offer?
    Offer {
        /// Where the asker stands.
        height: Height,
    },
    /// Nodes of the trees.
    Nodes {
        /// Of which checkpoint.
        seq: SeqNum,
        /// Which.
        paths: Vec<Path>,
    },
    /// Chunks.
    Chunks {
        /// Of which checkpoint.
        seq: SeqNum,
        /// Which, each from a byte on.
        parts: Vec<(Path, u64)>,
    },
    /// Results of blocks, the highest first.
    Results {
        /// The lowest block.
        from: Height,
        /// The highest.
        to: Height,
    },
}

impl Encode for FetchState {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Offer { height } => {
                out.push(0);
                out.extend_from_slice(&height.0.to_le_bytes());
            }
            Self::Nodes { seq, paths } => {
                out.push(1);
                out.extend_from_slice(&seq.0.to_le_bytes());
                list::encode(out, paths.len(), |i, out| paths[i].encode(out));
            }
            Self::Chunks { seq, parts } => {
                out.push(2);
                out.extend_from_slice(&seq.0.to_le_bytes());
                list::encode(out, parts.len(), |i, out| {
                    parts[i].0.encode(out);
                    out.extend_from_slice(&parts[i].1.to_le_bytes());
                });
            }
            Self::Results { from, to } => {
                out.push(3);
                out.extend_from_slice(&from.0.to_le_bytes());
                out.extend_from_slice(&to.0.to_le_bytes());
            }
        }
    }
}

impl Decode for FetchState {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "fetch state";
        let suite = input.suite();
        let kind = input.u8(WHAT)?;
        let number = input.u64(WHAT)?;
        if kind == 0 {
            return Ok(Self::Offer { height: Height(number) });
        }
        if kind == 3 {
            return Ok(Self::Results { from: Height(number), to: Height(input.u64(WHAT)?) });
        }
        let seq = SeqNum(number);
        let items = list::List::decode(input, ASKED, WHAT)?;
        let paths = items.iter().map(|item| {
            let mut input = Reader::new(item, suite);
            let path = Path::decode(&mut input)?;
            let offset = if kind == 2 { input.u64(WHAT)? } else { 0 };
            input.finish()?;
            Ok((path, offset))
        });
        let parts: Vec<_> = paths.collect::<Result<_, DecodeError>>()?;
        match kind {
            1 => Ok(Self::Nodes { seq, paths: parts.into_iter().map(|(path, _)| path).collect() }),
            2 => Ok(Self::Chunks { seq, parts }),
            other => Err(DecodeError::Unknown { what: WHAT, found: other.into() }),
        }
    }
}

/// A snapshot that a replica has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is of.
    pub certificate: CertifiedCheckpoint,
    /// About how long it is, in bytes. Nothing bounds what may be said.
    pub state_bytes: u64,
    /// How long the bodies of all blocks up to it are together, in bytes: within
    /// [`bounded_chain_bytes`], or it is a lie.
    pub chain_bytes: u64,
    /// About how many bytes of blocks would take the asker to the same height and beyond;
    /// `u64::MAX` when the first of them is gone.
    pub block_bytes: u64,
}

/// How long the bodies of all blocks up to `height` may be together, when somebody, or a file, says
/// `said`: each is a batch. No more than that follows from a certificate.
#[must_use]
pub fn bounded_chain_bytes(height: Height, said: u64) -> u64 {
    match stands(Defence::F48BoundOffers) {
        true => said.min(height.0.saturating_mul(MAX_BATCH as u64)),
        false => said,
    }
}

/// The body of a STATE message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// What there is, if there is something.
    Offer(Option<Box<Offer>>),
    /// Subtrees, encoded.
    Nodes(Vec<Bytes>),
    /// Parts of chunks, and whether more follows.
    Chunks(Vec<(bool, Bytes)>),
}

impl Encode for State {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Offer(offer) => {
                out.extend_from_slice(&[0, offer.is_some().into()]);
                if let Some(offer) = offer {
                    offer.certificate.encode(out);
                    for number in [offer.state_bytes, offer.chain_bytes, offer.block_bytes] {
                        out.extend_from_slice(&number.to_le_bytes());
                    }
                }
            }
            Self::Nodes(subtrees) => {
                out.push(1);
                list::encode(out, subtrees.len(), |i, out| out.extend_from_slice(&subtrees[i]));
            }
            Self::Chunks(parts) => {
                out.push(2);
                list::encode(out, parts.len(), |i, out| {
                    out.push(parts[i].0.into());
                    out.extend_from_slice(&parts[i].1);
                });
            }
        }
    }
}

impl Decode for State {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "state";
        let suite = input.suite();
        match input.u8(WHAT)? {
            0 => Ok(Self::Offer(match input.flag(WHAT)? {
                false => None,
                true => Some(Box::new(Offer {
                    certificate: CertifiedCheckpoint::decode(input)?,
                    state_bytes: input.u64(WHAT)?,
                    chain_bytes: input.u64(WHAT)?,
                    block_bytes: input.u64(WHAT)?,
                })),
            })),
            1 => Ok(Self::Nodes(list::List::decode(input, ASKED, WHAT)?.iter().collect())),
            2 => {
                let items = list::List::decode(input, ASKED, WHAT)?;
                let part = |item| {
                    let mut input = Reader::new(item, suite);
                    Ok((input.flag(WHAT)?, input.take_rest()))
                };
                Ok(Self::Chunks(items.iter().map(part).collect::<Result<_, DecodeError>>()?))
            }
            other => Err(DecodeError::Unknown { what: WHAT, found: other.into() }),
        }
    }
}

/// A node of a tree, known by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeNode {
    /// An inner node: left and right.
    Inner([Digest; 2]),
    /// A leaf.
    Leaf {
        /// The label in the tree.
        label: Bytes,
        /// The digest of the chunk.
        value: Digest,
    },
}

/// An inner node in a subtree: its children follow, left first.
pub(crate) const SHOWN: u8 = 0;
const LEAF: u8 = 1;
const CUT: u8 = 2;

/// Writes a leaf of a subtree.
pub(crate) fn put_leaf(out: &mut Vec<u8>, label: &[u8], value: Digest) {
    out.push(LEAF);
    let len = u16::try_from(label.len()).expect("labels are short");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(label);
    out.extend_from_slice(&value.0);
}

/// Writes a node of a subtree that is not shown.
pub(crate) fn put_cut(out: &mut Vec<u8>, digest: Digest) {
    out.push(CUT);
    out.extend_from_slice(&digest.0);
}

/// The upper part of a tree as a subtree.
pub(crate) fn encode_top(top: &TreeTop) -> Bytes {
    let mut out = Vec::new();
    for node in top.nodes() {
        match node.shown {
            Shown::Inner => out.push(SHOWN),
            Shown::Leaf(value) => put_leaf(&mut out, &node.first, value),
            Shown::Nothing => put_cut(&mut out, node.digest),
        }
    }
    out.into()
}

/// Reads a subtree: the digest of its top, and all nodes that it shows, each under the digest that
/// follows from what is below it. They hang together; what the top must be the caller knows.
///
/// # Errors
/// When it is malformed, shows nothing, or is deeper than it may be.
pub fn read_subtree(input: &mut Reader) -> Result<(Digest, Vec<(Digest, TreeNode)>), DecodeError> {
    let mut nodes = Vec::new();
    let top = read_node(input, LEVELS, &mut nodes)?;
    if nodes.is_empty() {
        return Err(DecodeError::NotCanonical("subtree"));
    }
    Ok((top, nodes))
}

fn read_node(
    input: &mut Reader,
    levels: u32,
    nodes: &mut Vec<(Digest, TreeNode)>,
) -> Result<Digest, DecodeError> {
    const WHAT: &str = "subtree";
    let suite = input.suite();
    let (digest, node) = match input.u8(WHAT)? {
        SHOWN if levels > 0 => {
            let left = read_node(input, levels - 1, nodes)?;
            let children = [left, read_node(input, levels - 1, nodes)?];
            (inner_digest(suite, children), TreeNode::Inner(children))
        }
        LEAF => {
            let len = input.u16(WHAT)?;
            let label = Bytes::copy_from_slice(&input.take(len.into(), WHAT)?);
            let value = input.digest(WHAT)?;
            (leaf_digest(suite, &label, value), TreeNode::Leaf { label, value })
        }
        CUT => return input.digest(WHAT),
        other => return Err(DecodeError::Unknown { what: WHAT, found: other.into() }),
    };
    nodes.push((digest, node));
    Ok(digest)
}
