//! What goes with us from view to view: the P and Q sets on the way out, what a view begins with on
//! the way in (TOCS section 4.5).

use super::{
    At, BTreeSet, Claimed, ClientId, Config, Held, Outbox, Package, Selection, SeqNum, Slots,
    Verdict, View, VoteTable,
};
use tercio_types::zoo::{Defence, Mutant, mutated, stands};

/// The P and Q sets of a VIEW-CHANGE.
#[derive(Clone, Debug, Default)]
pub(in crate::pbft) struct Claims {
    pub(in crate::pbft) prepared: Vec<Claimed>,
    pub(in crate::pbft) preprepared: Vec<Claimed>,
}

impl<T: VoteTable> Slots<T> {
    /// What binds us above `low`.
    pub(in crate::pbft) fn claims_above(&self, low: SeqNum) -> Claims {
        let mut claims = Claims::default();
        if !stands(Defence::F06CarryPrepared) {
            return claims;
        }
        for (&seq, slot) in self.slots.range(low.next()..) {
            let prepared = slot.prepared.map(|(view, digest)| Claimed { seq, digest, view });
            claims.prepared.extend(prepared);
            let mut q: Vec<_> = (slot.preprepared.iter())
                .map(|&(digest, view)| Claimed { seq, digest, view })
                .collect();
            q.sort();
            let said = q.into_iter().filter(|_| !mutated(Mutant::AcceptedNotSaid));
            claims.preprepared.extend(said);
        }
        claims
    }

    /// Rule A3: the clients whose MACs keep us from voting in this view.
    pub(in crate::pbft) fn blamed(&self, view: View, most: usize) -> Vec<ClientId> {
        let held = self.slots.values().filter(|slot| {
            let proposal = slot.proposal.filter(|(proposed_in, _)| *proposed_in == view);
            proposal.is_some() && slot.accepted != proposal
        });
        let clients: BTreeSet<ClientId> =
            held.flat_map(|slot| slot.doubts.iter().copied()).collect();
        if !stands(Defence::F16VouchForClients) {
            return Vec::new();
        }
        clients.into_iter().take(most).collect()
    }

    /// The view is left, or begins: what its primary proposed ahead of the window is void.
    pub(in crate::pbft) fn clear_parked(&mut self) {
        self.parked.clear();
    }

    /// Takes over what a selection proposes, without voting for it yet.
    pub(in crate::pbft) fn adopt(&mut self, at: At, selection: &Selection) {
        for &(seq, digest) in selection.chosen.iter().filter(|(seq, _)| *seq > self.low) {
            let slot = self.slots.entry(seq).or_default();
            slot.proposal = Some((at.view, digest));
            slot.proposed_at = at.now;
            slot.doubts.clear();
            // Rule N8: what others prepared is not judged again.
            slot.time = None;
            slot.verdict = Verdict::Good;
        }
    }

    /// What older views proposed, and this one did not begin with.
    pub(in crate::pbft) fn abandoned(&self, view: View) -> Vec<Package> {
        let mut abandoned = Vec::new();
        for slot in self.slots.range(self.delivered.next()..).map(|(_, slot)| slot) {
            if slot.proposal.is_some_and(|(v, _)| v == view) || !slot.doubts.is_empty() {
                continue;
            }
            let packages = slot.bodies.iter().flat_map(Held::packages);
            abandoned.extend(packages.cloned());
        }
        abandoned
    }

    /// What the view begins with, as far as its batches are held.
    pub(in crate::pbft) fn carried(&self, selection: &Selection) -> impl Iterator<Item = &Package> {
        let held = |(seq, digest): &(SeqNum, _)| self.slots.get(seq)?.held(*digest);
        selection.chosen.iter().filter_map(held).flat_map(Held::packages)
    }

    /// The view has begun: what older ones proposed and was not accepted binds nobody.
    pub(in crate::pbft) fn enter(&mut self, view: View) {
        self.slots.values_mut().for_each(|slot| slot.enter(view));
    }

    /// Votes for what a view begins with.
    pub(in crate::pbft) fn vote_for(
        &mut self,
        config: &Config,
        at: At,
        selection: &Selection,
        out: &mut Outbox,
    ) {
        for &(seq, digest) in &selection.chosen {
            if seq <= self.low {
                continue;
            }
            if !self.slots.get(&seq).is_some_and(|slot| slot.has_body(digest)) {
                self.fetch_body(config, at, seq, digest, out);
            }
            // Votes for this view may have come before its beginning.
            self.accept(config, at, seq, out);
        }
    }
}
