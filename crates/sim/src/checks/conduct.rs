//! Conduct: a model of the rules on views and windows, computed apart from the replicas from what is
//! said (TOCS section 4.5.2; rules V2 to V4, C2 and W3 of `docs/protocol/pbft.md`):
//!
//! - nobody asks for a view unless some correct replica was in the view before, or asked for it;
//! - nobody votes in a view whose beginning it was not shown, nor for another batch than those that
//!   the VIEW-CHANGEs of that beginning allow;
//! - what a replica calls stable, a quorum signed, and shows so;
//! - at all times a replica has voted at no number above its window.
//!
//! A broken rule need not do harm at once, or ever: one choice of a new view may be as safe as
//! another. So what is seen here counts at the end of a run, and the harm that comes of it first.

use super::{Violation, demand};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tercio_consensus::pbft::{Claimed, SignedNewView, ViewChange};
use tercio_types::{CertifiedCheckpoint, Digest, Membership, ReplicaId, ReplicaSet, SeqNum, View};

/// What a NEW-VIEW allows: for each number the digests, from the first above the checkpoint on.
#[derive(Debug)]
struct Allowed {
    low: SeqNum,
    digests: BTreeMap<SeqNum, BTreeSet<Digest>>,
}

/// Condition A for one claim, on these VIEW-CHANGEs.
fn holds(on: &[&ViewChange], claim: &Claimed, quorum: usize, weak: usize) -> bool {
    let against = |vc: &&&ViewChange| {
        vc.prepared.iter().any(|p| {
            let other = p.view > claim.view || p.view == claim.view && p.digest != claim.digest;
            p.seq == claim.seq && other
        })
    };
    let accepted = |vc: &&&ViewChange| {
        let same = |q: &Claimed| (q.seq, q.digest) == (claim.seq, claim.digest);
        vc.preprepared.iter().any(|q| same(q) && q.view >= claim.view)
    };
    let not_against = on.len() - on.iter().filter(against).count();
    not_against >= quorum && on.iter().filter(accepted).count() >= weak
}

/// What a new view begins with, if these decide it.
fn allowed(begun: &SignedNewView, membership: &Membership) -> Option<Allowed> {
    let (quorum, weak) = (membership.quorum(), membership.weak_quorum());
    let senders: ReplicaSet = begun.view_changes.iter().map(|vc| vc.sender).collect();
    let on: Vec<&ViewChange> = begun.view_changes.iter().map(|vc| &vc.content).collect();
    let good = senders.len() == on.len() && on.iter().all(|vc| vc.view == begun.view);
    if !good || on.len() < quorum || membership.primary(begun.view) != begun.sender {
        return None;
    }
    let low = on.iter().map(|vc| vc.low()).max().unwrap_or_default();
    let mut digests = BTreeMap::new();
    let claims = || on.iter().flat_map(|vc| &vc.prepared).filter(|claim| claim.seq > low);
    let last = claims().map(|claim| claim.seq.0).max().unwrap_or(low.0);
    for seq in (low.0 + 1..=last).map(SeqNum) {
        let here = || claims().filter(|claim| claim.seq == seq);
        let held = || here().filter(|claim| holds(&on, claim, quorum, weak));
        let latest = held().map(|claim| claim.view).max();
        let chosen: BTreeSet<Digest> =
            held().filter(|claim| Some(claim.view) == latest).map(|claim| claim.digest).collect();
        let silent = on.iter().filter(|vc| vc.prepared.iter().all(|claim| claim.seq != seq));
        if !chosen.is_empty() {
            digests.insert(seq, chosen);
        } else if silent.count() >= quorum {
            digests.insert(seq, [Digest::NULL].into());
        } else {
            return None;
        }
    }
    // Null requests at the end of which nobody tells that they prepared are left out.
    while let Some((seq, chosen)) = digests.last_key_value() {
        let seq = *seq;
        let told = claims().any(|claim| (claim.seq, claim.digest) == (seq, Digest::NULL));
        if !chosen.contains(&Digest::NULL) || told {
            break;
        }
        digests.pop_last();
    }
    Some(Allowed { low, digests })
}

impl Allowed {
    fn allows(&self, seq: SeqNum, digest: Digest) -> bool {
        seq > self.low && self.digests.get(&seq).is_none_or(|some| some.contains(&digest))
    }
}

/// What correct replicas have done.
#[derive(Debug, Default)]
pub struct Conduct {
    /// The highest view that one asked for or entered.
    highest: View,
    read: BTreeMap<Digest, Option<Rc<Allowed>>>,
    shown: BTreeMap<(ReplicaId, View), Vec<Rc<Allowed>>>,
    signers: BTreeMap<SeqNum, ReplicaSet>,
    voted: BTreeMap<ReplicaId, SeqNum>,
    first: Option<Violation>,
}

impl Conduct {
    fn note(&mut self, seen: Result<(), Violation>) {
        if let Err(violation) = seen {
            self.first.get_or_insert(violation);
        }
    }

    /// A replica asked for a view.
    pub fn asked(&mut self, by: ReplicaId, content: &ViewChange, membership: &Membership) {
        let (view, highest) = (content.view, self.highest);
        self.note(demand(view.0 <= highest.0 + 1, "conduct", || {
            format!("{by:?} asked for view {view}, and no correct replica was beyond {highest}")
        }));
        self.highest = highest.max(view);
        if let Some(stable) = &content.stable {
            self.certified(by, stable, membership);
        }
    }

    /// A replica shows a certificate.
    pub fn certified(&mut self, by: ReplicaId, of: &CertifiedCheckpoint, among: &Membership) {
        let (signed, quorum) = (of.signatures.len(), among.quorum());
        self.note(demand(signed >= quorum, "conduct", || {
            let seq = of.checkpoint.seq;
            format!("{by:?} shows a certificate for {seq} that {signed} of {quorum} signed")
        }));
    }

    /// A replica is in a view.
    pub fn entered(&mut self, view: View) {
        self.highest = self.highest.max(view);
    }

    /// A replica saw a NEW-VIEW, or made it; `name` is its content's digest.
    pub fn shown(
        &mut self,
        to: ReplicaId,
        name: Digest,
        membership: &Membership,
        read: impl FnOnce() -> Option<SignedNewView>,
    ) {
        let known = self.read.get(&name).cloned();
        let view_of = |begun: &SignedNewView| begun.view;
        let Some(begun) = read() else { return };
        let allows = known.unwrap_or_else(|| allowed(&begun, membership).map(Rc::new));
        self.read.insert(name, allows.clone());
        let shown = self.shown.entry((to, view_of(&begun))).or_default();
        if let Some(allows) = allows.filter(|a| !shown.iter().any(|known| Rc::ptr_eq(known, a))) {
            shown.push(allows);
        }
    }

    /// A replica said PREPARE.
    pub fn prepared(
        &mut self,
        by: ReplicaId,
        (view, seq, digest): (View, SeqNum, Digest),
        membership: &Membership,
    ) {
        let voted = self.voted.entry(by).or_default();
        *voted = seq.max(*voted);
        let shown = self.shown.get(&(by, view)).map(Vec::as_slice).unwrap_or_default();
        // A primary that crashed when its log had the beginning of its view, and nobody else yet, says
        // its votes in it again (P2).
        let own = shown.is_empty() && membership.primary(view) == by;
        let good = view == View(0) || own || shown.iter().any(|begun| begun.allows(seq, digest));
        self.note(demand(good, "conduct", || {
            format!("{by:?} said PREPARE for {digest:?} at view {view} seq {seq}; shown: {shown:?}")
        }));
    }

    /// A replica signed its state.
    pub fn signed(&mut self, by: ReplicaId, seq: SeqNum) {
        self.signers.entry(seq).or_default().insert(by);
    }

    /// A replica's log was lost, and its votes with it.
    pub fn lost_log(&mut self, by: ReplicaId) {
        self.voted.remove(&by);
    }

    /// A replica calls `stable` stable. `faulty` ones may have signed anything.
    pub fn stands(
        &mut self,
        by: ReplicaId,
        stable: SeqNum,
        window: u64,
        membership: &Membership,
        faulty: ReplicaSet,
    ) {
        let signed = self.signers.get(&stable).copied().unwrap_or_default().len();
        let enough = stable == SeqNum(0) || signed + faulty.len() >= membership.quorum();
        self.note(demand(enough, "conduct", || {
            format!("{by:?} calls {stable} stable, which {signed} correct replicas signed")
        }));
        let voted = self.voted.get(&by).copied().unwrap_or_default();
        self.note(demand(voted.0 <= stable.0 + window, "conduct", || {
            format!("{by:?} has voted at {voted}, with a window of {window} above {stable}")
        }));
    }

    /// The end of a run.
    ///
    /// # Errors
    /// With the first broken rule.
    pub fn finish(&self) -> Result<(), Violation> {
        self.first.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cast, Forger};

    const ME: ReplicaId = ReplicaId(2);

    fn claim(digest: u8, view: u64) -> Claimed {
        Claimed { seq: SeqNum(1), digest: Digest([digest; 32]), view: View(view) }
    }

    fn words(view: u64, prepared: &[Claimed], accepted: &[Claimed]) -> ViewChange {
        let (prepared, preprepared) = (prepared.to_vec(), accepted.to_vec());
        ViewChange { view: View(view), stable: None, prepared, preprepared, blamed: vec![] }
    }

    /// A NEW-VIEW for view 5 by its primary, of replicas 0, 1, ... with these words.
    fn begun(cast: &Cast, words: &[ViewChange]) -> SignedNewView {
        let by = |(i, words): (usize, &ViewChange)| {
            Forger::new(cast, ReplicaId(i as u16)).signed_view_change(words.clone())
        };
        let on = words.iter().enumerate().map(by).collect();
        let signer = cast.keyring(tercio_types::Principal::Replica(ReplicaId(1))).signer();
        SignedNewView::new(ReplicaId(1), View(5), on, &signer, cast.suite())
    }

    fn votes(words: &[ViewChange], digest: Digest) -> Result<(), Violation> {
        let cast = Cast::new(4);
        let mut check = Conduct::default();
        check.shown(ME, Digest([9; 32]), cast.membership(), || Some(begun(&cast, words)));
        check.prepared(ME, (View(5), SeqNum(1), digest), cast.membership());
        check.finish()
    }

    /// Each condition of V3, one voice too few and just enough.
    #[test]
    fn a_vote_that_the_new_view_does_not_allow_is_caught() {
        let (one, other) = (claim(1, 2), claim(2, 3));
        let (told, heard) = (words(5, &[one], &[one]), words(5, &[], &[one]));
        let (nothing, against) = (words(5, &[], &[]), words(5, &[other], &[other]));
        let all = |words: &[&ViewChange]| words.iter().map(|w| (*w).clone()).collect::<Vec<_>>();
        let good = all(&[&told, &heard, &nothing]);
        votes(&good, one.digest).unwrap();
        assert!(votes(&good, other.digest).is_err(), "another batch");
        assert!(votes(&good[..2], one.digest).is_err(), "no quorum");
        assert!(votes(&all(&[&told, &heard, &against]), one.digest).is_err(), "A1");
        assert!(votes(&all(&[&told, &nothing, &nothing]), one.digest).is_err(), "A2");
        assert!(votes(&all(&[&told, &nothing, &nothing]), Digest::NULL).is_err(), "B");
        // Of two that may be chosen, the one of the later view.
        let both = words(5, &[], &[one, other]);
        let both = all(&[&told, &against, &both, &both]);
        votes(&both, other.digest).unwrap();
        assert!(votes(&both, one.digest).is_err());
        assert!(votes(&[], one.digest).is_err(), "never shown");
    }

    #[test]
    fn a_leap_a_thin_certificate_and_a_vote_beyond_the_window_are_caught() {
        let cast = Cast::new(4);
        let among = cast.membership();
        let faulty: ReplicaSet = [ReplicaId(3)].into_iter().collect();
        let mut check = Conduct::default();
        check.asked(ME, &words(1, &[], &[]), among);
        check.asked(ME, &words(2, &[], &[]), among);
        check.prepared(ME, (View(0), SeqNum(16), Digest([1; 32])), cast.membership());
        check.stands(ME, SeqNum(0), 16, among, faulty);
        [0, 1].into_iter().for_each(|by| check.signed(ReplicaId(by), SeqNum(8)));
        check.stands(ME, SeqNum(8), 16, among, faulty);
        check.finish().unwrap();
        check.stands(ME, SeqNum(0), 15, among, faulty);
        assert!(check.finish().unwrap_err().seen.contains("window"));
        let mut check = Conduct::default();
        check.asked(ME, &words(2, &[], &[]), among);
        assert!(check.finish().unwrap_err().seen.contains("beyond"));
        let mut check = Conduct::default();
        check.signed(ME, SeqNum(8));
        check.stands(ME, SeqNum(8), 16, among, faulty);
        assert!(check.finish().unwrap_err().seen.contains("signed"));
    }
}
