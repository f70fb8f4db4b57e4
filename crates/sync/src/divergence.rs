//! Another replica signed another state than ours (rule C2): in which keys does it differ?
//!
//! - Of its last few checkpoints a replica keeps the upper part of the tree of the application's
//!   state ([`TreeTop`]).
//! - Who sees that another signed another state at one of them asks it for the same part of its
//!   tree: FETCH_STATE for the root's nodes, under a number from [`MARK`] on. It answers from
//!   memory, once for each checkpoint and asker.
//! - What comes must hash to the root that it signed. Where the two parts differ lie the keys, and
//!   `status` names them. One that cannot show what it signed is named without keys.
//!
//! Nothing depends on it but what people are told.

use crate::transfer::message::{FetchState, Path, State, TreeNode, encode_top, read_subtree};
use bytes::Bytes;
use std::collections::BTreeMap;
use tercio_execution::{APP, LabelRange, TreeTop};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{CheckpointField, Digest, ReplicaId, SeqNum, Suite};
use tercio_wire::{Decode, Encode, Reader};

/// Numbers of these questions begin here; those of transfers count up from 1.
const MARK: u64 = 1 << 63;

/// Of how many checkpoints the tops are kept. A signed state is a moment old when it comes.
const KEPT: usize = 4;

/// How a state differs that another replica signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The number of the checkpoint.
    pub seq: SeqNum,
    /// What differs first.
    pub what: CheckpointField,
    /// The ranges of keys (labels of chunks, in the application's own words) in which its state
    /// differs; empty as long as it has not shown a tree that it signed.
    pub keys: Vec<LabelRange>,
}

/// What of others' states differed, and what helps to say where.
#[derive(Debug)]
pub(crate) struct Divergences {
    suite: Suite,
    tops: BTreeMap<SeqNum, TreeTop>,
    /// Whom we asked about which number, and the root that it signed.
    asked: BTreeMap<ReplicaId, (SeqNum, Digest)>,
    /// Whom we answered, and about which number last.
    answered: BTreeMap<ReplicaId, SeqNum>,
    found: BTreeMap<ReplicaId, Divergence>,
}

impl Divergences {
    pub(crate) fn new(suite: Suite) -> Self {
        Self {
            suite,
            tops: BTreeMap::new(),
            asked: BTreeMap::new(),
            answered: BTreeMap::new(),
            found: BTreeMap::new(),
        }
    }

    /// The last of each replica.
    pub(crate) fn found(&self) -> &BTreeMap<ReplicaId, Divergence> {
        &self.found
    }

    /// The state at a checkpoint of ours.
    pub(crate) fn reached(&mut self, seq: SeqNum, top: TreeTop) {
        self.tops.insert(seq, top);
        if self.tops.len() > KEPT {
            self.tops.pop_first();
        }
    }

    /// A replica signed another checkpoint than ours at `seq`, with the state `state`. Gives what
    /// to ask it, under which number.
    pub(crate) fn differs(
        &mut self,
        replica: ReplicaId,
        seq: SeqNum,
        what: CheckpointField,
        state: Digest,
    ) -> Option<(u64, FetchState)> {
        if self.found.get(&replica).is_some_and(|known| known.seq >= seq) {
            return None;
        }
        self.found.insert(replica, Divergence { seq, what, keys: vec![] });
        let top = self.tops.get(&seq).filter(|top| top.root() != state)?;
        if top.nodes().is_empty() || !stands(Defence::F26NameTheKeys) {
            return None;
        }
        self.asked.insert(replica, (seq, state));
        Some((MARK | seq.0, FetchState::Nodes { seq, paths: vec![Path::root(APP)] }))
    }

    /// Whether a question or an answer of this number is one of these, and no transfer's.
    pub(crate) fn is_about(number: u64) -> bool {
        number >= MARK
    }

    /// The body of the answer to a replica's question, if there is one.
    pub(crate) fn answer(&mut self, by: ReplicaId, request: &FetchState) -> Option<Bytes> {
        let FetchState::Nodes { seq, paths } = request else { return None };
        if paths[..] != [Path::root(APP)] || self.answered.get(&by).is_some_and(|s| s >= seq) {
            return None;
        }
        let top = self.tops.get(seq)?;
        self.answered.insert(by, *seq);
        Some(State::Nodes(vec![encode_top(top)]).to_bytes())
    }

    /// A replica's answer. Gives the reason when it is of no use.
    pub(crate) fn on_state(
        &mut self,
        from: ReplicaId,
        number: u64,
        body: &Bytes,
    ) -> Result<(), &'static str> {
        let asked = self.asked.get(&from).filter(|(seq, _)| MARK | seq.0 == number);
        let &(seq, state) = asked.ok_or("state_not_asked_for")?;
        self.asked.remove(&from);
        let (root, nodes) = self.read(body).ok_or("divergence_not_shown")?;
        if root != state {
            return Err("divergence_not_shown");
        }
        let (Some(top), Some(found)) = (self.tops.get(&seq), self.found.get_mut(&from)) else {
            return Err("divergence_too_late");
        };
        found.keys = top.differences(root, &|digest| match nodes.get(&digest) {
            Some(TreeNode::Inner(children)) => Some(*children),
            _ => None,
        });
        Ok(())
    }

    fn read(&self, body: &Bytes) -> Option<(Digest, BTreeMap<Digest, TreeNode>)> {
        let Ok(State::Nodes(subtrees)) = State::from_bytes(body, self.suite) else { return None };
        let [subtree] = &subtrees[..] else { return None };
        let mut input = Reader::new(subtree.clone(), self.suite);
        let (root, nodes) = read_subtree(&mut input).ok()?;
        input.finish().ok()?;
        Some((root, nodes.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_crypto::hash;
    use tercio_execution::MerkleMap;

    const PEER: ReplicaId = ReplicaId(3);
    const SEQ: SeqNum = SeqNum(8);

    /// A replica that is at `SEQ`, with keys 0 to 99, of which `odd` has another value.
    fn at(odd: Option<u8>) -> (Divergences, Digest) {
        let suite = Suite::default();
        let mut tree = MerkleMap::new(suite);
        for key in 0..100 {
            let value = if odd == Some(key) { 200 } else { key };
            tree.set(&[key], Some(hash(suite, &[&[value]])));
        }
        let mut divergences = Divergences::new(suite);
        divergences.reached(SEQ, tree.top());
        (divergences, tree.root())
    }

    fn ask(asker: &mut Divergences, signed: Digest) -> Option<(u64, FetchState)> {
        asker.differs(PEER, SEQ, CheckpointField::State, signed)
    }

    #[test]
    fn the_keys_that_differ_are_named() {
        let (mut one, _) = at(None);
        let (mut other, signed) = at(Some(70));
        let (number, question) = ask(&mut one, signed).unwrap();
        assert!(Divergences::is_about(number));
        let answer = other.answer(ReplicaId(0), &question).unwrap();
        assert_eq!(one.on_state(PEER, number, &answer), Ok(()));
        let keys = &one.found()[&PEER].keys;
        let held: Vec<u8> = (0..100).filter(|key| keys[0].contains(&[*key])).collect();
        assert_eq!((keys.len(), held), (1, vec![70]));
        // Said again, it is nothing new, and nobody is asked or answered twice.
        assert_eq!(ask(&mut one, signed), None);
        assert_eq!(other.answer(ReplicaId(0), &question), None);
        assert_eq!(one.on_state(PEER, number, &answer), Err("state_not_asked_for"));
    }

    #[test]
    fn a_tree_that_was_not_signed_says_nothing() {
        let (mut one, _) = at(None);
        let (number, question) = ask(&mut one, Digest([9; 32])).unwrap();
        let answer = at(Some(70)).0.answer(ReplicaId(0), &question).unwrap();
        assert_eq!(one.on_state(PEER, number + 1, &answer), Err("state_not_asked_for"));
        assert_eq!(one.on_state(ReplicaId(2), number, &answer), Err("state_not_asked_for"));
        assert_eq!(one.on_state(PEER, number, &answer), Err("divergence_not_shown"));
        assert_eq!(one.found()[&PEER].keys, []);
        // Nor does junk.
        for body in [&[][..], &[1], &[0, 0], &[7; 40]] {
            let (mut one, _) = at(None);
            let (number, _) = ask(&mut one, Digest([9; 32])).unwrap();
            let said = one.on_state(PEER, number, &Bytes::copy_from_slice(body));
            assert_eq!(said, Err("divergence_not_shown"));
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut one, root) = at(None);
        let top = one.tops[&SEQ].clone();
        for seq in 9..100 {
            one.reached(SeqNum(seq), top.clone());
        }
        assert_eq!(one.tops.len(), KEPT);
        // Nothing is asked about what is gone, or about states that are equal.
        assert_eq!(ask(&mut one, Digest([9; 32])), None);
        assert_eq!(one.differs(PEER, SeqNum(99), CheckpointField::Clients, root), None);
        assert_eq!(one.found()[&PEER].what, CheckpointField::Clients);
        let question = FetchState::Nodes { seq: SEQ, paths: vec![Path::root(APP)] };
        assert_eq!(one.answer(PEER, &question), None);
        let question = FetchState::Nodes { seq: SeqNum(99), paths: vec![] };
        assert_eq!(one.answer(PEER, &question), None);
    }
}
