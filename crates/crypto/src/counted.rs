//! Votes that were verified and counted before ordering sees them.

use crate::{Claimed, Verified};
use tercio_types::{Principal, ReplicaId, ReplicaSet};

/// One vote, and who cast it: each of them is known to have done so. Like [`Verified`], only
/// verification makes one, out of votes that a keyring has verified.
///
/// ```
/// # use tercio_crypto::{Claimed, Counted, Verified};
/// fn count<M: Claimed + Copy + PartialEq>(votes: &[Verified<M>]) -> Option<Counted<M>> {
///     Counted::of(votes, |vote| *vote)
/// }
/// ```
///
/// Nobody counts votes that were never cast:
///
/// ```compile_fail,E0451
/// # use tercio_crypto::Counted;
/// # use tercio_types::{ReplicaId, ReplicaSet};
/// let voters: ReplicaSet = [ReplicaId(1), ReplicaId(2)].into_iter().collect();
/// let forged = Counted { vote: "commit", voters };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<V> {
    vote: V,
    voters: ReplicaSet,
}

impl<V: PartialEq> Counted<V> {
    /// Counts votes; `vote` says what a message votes for. Nothing when there are none, when they
    /// are not all for the same, or when one is not a replica's.
    pub fn of<'a, M: Claimed + 'a>(
        votes: impl IntoIterator<Item = &'a Verified<M>>,
        vote: impl Fn(&M) -> V,
    ) -> Option<Self> {
        let mut votes = votes.into_iter();
        let first = votes.next()?;
        let mut counted = Self { vote: vote(first), voters: ReplicaSet::EMPTY };
        counted.voters.insert(voter(first)?);
        for next in votes {
            if vote(next) != counted.vote {
                return None;
            }
            counted.voters.insert(voter(next)?);
        }
        Some(counted)
    }

    /// What they voted.
    #[must_use]
    pub fn vote(&self) -> &V {
        &self.vote
    }

    /// Who.
    #[must_use]
    pub fn voters(&self) -> ReplicaSet {
        self.voters
    }
}

/// Whose vote it is: who made its first claim, its sender's own.
fn voter<M: Claimed>(vote: &Verified<M>) -> Option<ReplicaId> {
    let mut by = None;
    vote.claims(&mut |claim| by = by.or(Some(claim.by)));
    match by? {
        Principal::Replica(id) => Some(id),
        Principal::Client(_) => None,
    }
}
