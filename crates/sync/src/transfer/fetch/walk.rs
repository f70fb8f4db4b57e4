//! Down the trees of the target, from their roots: through what is here, to what is missing.

use super::{Transfer, Wanted};
use crate::transfer::message::{Path, TreeNode, read_subtree};
use crate::transfer::pieces::Piece;
use bytes::Bytes;
use tercio_types::Digest;
use tercio_wire::Reader;

impl Transfer {
    pub(super) fn take_nodes(
        &mut self,
        asked: Vec<(Path, Digest)>,
        found: &[Bytes],
    ) -> Result<(), &'static str> {
        let mut outcome = if found.is_empty() { Err("state_none") } else { Ok(()) };
        for (i, (path, digest)) in asked.into_iter().enumerate() {
            let Some(subtree) = found.get(i).filter(|_| outcome.is_ok()) else {
                self.nodes.push_front((path, digest));
                continue;
            };
            let mut input = Reader::new(subtree.clone(), self.suite);
            let read = read_subtree(&mut input).and_then(|read| input.finish().map(|()| read));
            match read {
                Ok((top, nodes)) if top == digest => {
                    self.status.nodes += nodes.len() as u64;
                    for (digest, node) in nodes {
                        self.pieces.put_node(digest, node);
                    }
                    self.staged.push(Piece::Subtree(subtree.clone()));
                    self.visit(path, digest);
                }
                other => {
                    outcome = Err(other.map_or("state_junk", |_| "state_wrong_node"));
                    self.nodes.push_front((path, digest));
                }
            }
        }
        outcome
    }

    /// Goes down from a node through what is here, and notes what is missing.
    pub(super) fn visit(&mut self, path: Path, digest: Digest) {
        let mut open = vec![(path, digest)];
        while let Some((path, digest)) = open.pop() {
            match self.pieces.node(&digest) {
                None => self.nodes.push_back((path, digest)),
                Some(TreeNode::Inner([left, right])) => {
                    open.extend([(path.then(true), *right), (path.then(false), *left)]);
                }
                Some(TreeNode::Leaf { value, .. }) if self.pieces.has_chunk(value) => {
                    self.status.reused += u64::from(!self.wanted.contains(value));
                }
                Some(TreeNode::Leaf { value, .. }) => {
                    if self.wanted.insert(*value) {
                        let (digest, begun) = (Some(*value), Vec::new());
                        self.chunks.push_back(Wanted { path, digest, begun });
                    }
                }
            }
        }
    }
}
