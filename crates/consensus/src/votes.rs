//! The vote table: where PREPAREs and COMMITs are counted (seam 7). `HostVotes` counts on the
//! consensus thread; a network card counts elsewhere and reports quorums.
//!
//! Each replica has one vote for each phase and number, that of the latest view it voted in: a
//! correct replica's views only go up, so a vote of an older view has had its day. That bounds the
//! table by replicas and window, whatever anybody sends.

use std::collections::BTreeMap;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{Digest, ReplicaId, ReplicaSet, SeqNum, View};

/// The two rounds of votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// 'I accepted this proposal and no other.'
    Prepare,
    /// 'I know that a quorum accepted it.'
    Commit,
}

/// A vote without its voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vote {
    /// The round.
    pub phase: Phase,
    /// The view.
    pub view: View,
    /// The number.
    pub seq: SeqNum,
    /// What is voted for.
    pub digest: Digest,
}

/// What became of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It counts.
    New,
    /// It had been counted, or a later view's vote has replaced it.
    Known,
    /// The replica has voted for something else in this view and phase: the first vote counts.
    Conflict(Digest),
}

/// Counts votes.
pub trait VoteTable: Send {
    /// Records a vote.
    fn record(&mut self, voter: ReplicaId, vote: &Vote) -> Recorded;

    /// Who voted exactly so.
    fn voters(&self, vote: &Vote) -> ReplicaSet;

    /// Garbage collection: drops numbers up to `stable`.
    fn forget(&mut self, stable: SeqNum);

    /// How many votes are kept, for bounds.
    fn len(&self) -> usize;

    /// Whether none is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A vote that was cast at a number in a phase.
type Cast = (ReplicaId, View, Digest);

/// Counts on the consensus thread.
#[derive(Clone, Debug, Default)]
pub struct HostVotes {
    votes: BTreeMap<(SeqNum, Phase), Vec<Cast>>,
}

impl VoteTable for HostVotes {
    fn record(&mut self, voter: ReplicaId, vote: &Vote) -> Recorded {
        let votes = self.votes.entry((vote.seq, vote.phase)).or_default();
        if !stands(Defence::F01OneDigestPerNumber) {
            let cast = (voter, vote.view, vote.digest);
            if votes.contains(&cast) {
                return Recorded::Known;
            }
            votes.push(cast);
            return Recorded::New;
        }
        match votes.iter_mut().find(|(r, ..)| *r == voter) {
            None => votes.push((voter, vote.view, vote.digest)),
            Some((_, view, digest)) if *view < vote.view => {
                (*view, *digest) = (vote.view, vote.digest)
            }
            Some((_, view, digest)) if *view == vote.view && *digest != vote.digest => {
                return Recorded::Conflict(*digest);
            }
            Some(_) => return Recorded::Known,
        }
        Recorded::New
    }

    fn voters(&self, vote: &Vote) -> ReplicaSet {
        let votes = self.votes.get(&(vote.seq, vote.phase)).map_or(&[][..], Vec::as_slice);
        votes.iter().filter(|(_, v, d)| (*v, *d) == (vote.view, vote.digest)).map(|v| v.0).collect()
    }

    fn forget(&mut self, stable: SeqNum) {
        self.votes = self.votes.split_off(&(stable.next(), Phase::Prepare));
    }

    fn len(&self) -> usize {
        self.votes.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(view: u64, digest: u8) -> Vote {
        let (phase, seq) = (Phase::Prepare, SeqNum(5));
        Vote { phase, view: View(view), seq, digest: Digest([digest; 32]) }
    }

    /// f02: one vote counts for each replica, number and view.
    #[test]
    fn the_first_vote_of_a_view_counts_and_a_later_view_replaces_it() {
        let mut table = HostVotes::default();
        let (a, b) = (ReplicaId(0), ReplicaId(1));
        assert_eq!(table.record(a, &vote(1, 1)), Recorded::New);
        assert_eq!(table.record(a, &vote(1, 1)), Recorded::Known);
        assert_eq!(table.record(a, &vote(1, 2)), Recorded::Conflict(Digest([1; 32])));
        assert_eq!(table.voters(&vote(1, 1)).len(), 1);
        assert!(table.voters(&vote(1, 2)).is_empty());
        assert_eq!(table.record(a, &vote(2, 2)), Recorded::New);
        assert_eq!(table.record(a, &vote(1, 1)), Recorded::Known, "an older view");
        assert_eq!(table.record(b, &vote(2, 2)), Recorded::New);
        assert_eq!(table.voters(&vote(2, 2)), [a, b].into_iter().collect());
        assert!(table.voters(&Vote { phase: Phase::Commit, ..vote(2, 2) }).is_empty());
        table.forget(SeqNum(5));
        assert!(table.is_empty());
    }
}
