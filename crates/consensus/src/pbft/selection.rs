//! What a new view begins with: a function of a quorum's VIEW-CHANGEs that every replica computes
//! alike (TOCS section 4.5.2, figure 4).
//!
//! For each number n above the highest certified checkpoint:
//!
//! - **A**: choose digest d if some VIEW-CHANGE says that d prepared at n in view v, and
//!   (A1) a quorum says nothing against it: each of them claims for n nothing, or a view before v,
//!   or d itself in v; and (A2) f+1 say that they pre-prepared d at n in view v or later, so that a
//!   correct replica did, and holds the batch.
//! - **B**: choose the null request if a quorum claims nothing prepared at n.
//!
//! If neither can be said yet, more VIEW-CHANGEs are needed; with those of all correct replicas
//! one of them holds. P and Q are claims without proof, since MAC'd PREPAREs prove nothing to a
//! third party: A1 and A2 are what makes a liar's claims harmless.

use super::message::SignedViewChange;
use std::collections::BTreeSet;
use std::sync::Arc;
use tercio_types::zoo::{Defence, Mutant, less, mutated, stands};
use tercio_types::{CertifiedCheckpoint, ClientId, Digest, SeqNum, View};

/// What a new view begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The highest checkpoint that a VIEW-CHANGE proves; `None` at the very beginning.
    pub stable: Option<CertifiedCheckpoint>,
    /// The numbers above it that are proposed again, in order, null requests among them.
    pub chosen: Vec<(SeqNum, Digest)>,
    /// The clients that anybody blames.
    pub blamed: BTreeSet<ClientId>,
}

impl Selection {
    /// The number that the checkpoint covers.
    #[must_use]
    pub fn low(&self) -> SeqNum {
        self.stable.as_ref().map_or(SeqNum(0), |c| c.checkpoint.seq)
    }

    /// The last number that is taken.
    #[must_use]
    pub fn last(&self) -> SeqNum {
        self.chosen.last().map_or(self.low(), |(seq, _)| *seq)
    }
}

/// Chooses, or gives `None` when these VIEW-CHANGEs do not decide yet. The caller has checked that
/// they are for one view and of distinct senders.
#[must_use]
pub fn select(
    view_changes: &[Arc<SignedViewChange>],
    quorum: usize,
    weak_quorum: usize,
) -> Option<Selection> {
    if view_changes.len() < less(Mutant::FewViewChanges, quorum) {
        return None;
    }
    let contents = || view_changes.iter().map(|vc| &vc.content);
    let mut stable = contents().filter_map(|c| c.stable.as_ref()).max_by_key(|s| s.checkpoint.seq);
    if mutated(Mutant::LowestCheckpoint) {
        stable = contents().filter_map(|c| c.stable.as_ref()).min_by_key(|s| s.checkpoint.seq);
    }
    let low = stable.map_or(SeqNum(0), |s| s.checkpoint.seq);
    let last = contents().filter_map(|c| c.prepared.last()).map(|p| p.seq).max().unwrap_or(low);
    let mut chosen = Vec::new();
    for seq in (low.0 + 1..=last.0).map(SeqNum) {
        chosen.push((seq, choose(view_changes, seq, quorum, weak_quorum)?));
    }
    // A null request at the end by condition B decides nothing: nothing prepared there or above. By
    // condition A it may have committed, and keeps its number.
    let said_null = |seq| {
        !mutated(Mutant::NullDropped)
            && contents()
                .any(|c| c.prepared.iter().any(|p| (p.seq, p.digest) == (seq, Digest::NULL)))
    };
    while chosen.last().is_some_and(|&(seq, d)| d == Digest::NULL && !said_null(seq)) {
        chosen.pop();
    }
    if !stands(Defence::F14NullRequests) {
        chosen.retain(|(_, digest)| *digest != Digest::NULL);
    }
    let blamed = contents().flat_map(|c| c.blamed.iter().copied()).collect();
    Some(Selection { stable: stable.cloned(), chosen, blamed })
}

fn choose(
    view_changes: &[Arc<SignedViewChange>],
    seq: SeqNum,
    quorum: usize,
    weak_quorum: usize,
) -> Option<Digest> {
    // All of them have a low watermark below `seq`, since it is above the highest.
    let prepared: Vec<Option<(View, Digest)>> = view_changes
        .iter()
        .map(|vc| {
            let at = vc.content.prepared.binary_search_by_key(&seq, |p| p.seq).ok()?;
            let claim = vc.content.prepared[at];
            Some((claim.view, claim.digest))
        })
        .collect();
    let candidates: BTreeSet<(View, Digest)> = prepared.iter().flatten().copied().collect();
    let mut candidates: Vec<(View, Digest)> = candidates.into_iter().collect();
    if !mutated(Mutant::LowestView) {
        candidates.reverse();
    }
    for (view, digest) in candidates {
        let against_nothing = prepared
            .iter()
            .filter(|p| {
                let same = |d| d == digest || mutated(Mutant::AgainstSameView);
                p.is_none_or(|(v, d)| v < view || (v == view && same(d)))
            })
            .count();
        let accepted = view_changes
            .iter()
            .filter(|vc| {
                let q = &vc.content.preprepared;
                let at = q.binary_search_by_key(&(seq, digest), |q| (q.seq, q.digest));
                at.is_ok_and(|at| q[at].view >= view || mutated(Mutant::AcceptedBefore))
            })
            .count();
        if against_nothing >= less(Mutant::AgainstLess, quorum)
            && accepted >= less(Mutant::AcceptedLess, weak_quorum)
        {
            return Some(digest);
        }
    }
    let nothing = prepared.iter().filter(|p| p.is_none()).count();
    (nothing >= less(Mutant::NothingLess, quorum)).then_some(Digest::NULL)
}
