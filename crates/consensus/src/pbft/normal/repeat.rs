//! What is said again: to one that lacks it (rule S2), and after a restart (rule P2); and the
//! bodies that we lack ourselves.

use super::slot::SlotPromises;
use super::{
    Arc, At, BTreeMap, Bytes, Config, DecodeError, Digest, EncodedBatch, Excluded, Included,
    Outbox, PbftMessage, Phase, ReplicaId, SeqNum, Slot, Slots, Verdict, View, Vote, VoteTable,
};
use crate::pbft::resend::HELPED_AT_ONCE;
use tercio_types::Suite;
use tercio_types::zoo::{Defence, Mutant, mutated, stands};

impl<T: VoteTable> Slots<T> {
    /// Rule S2: says again to `to`, which has delivered up to `delivered`, what we said of at most
    /// [`HELPED_AT_ONCE`] numbers after that, but for what may still be on its way. Gives how many
    /// bytes of batches that is.
    pub(in crate::pbft) fn repeat_to(
        &self,
        config: &Config,
        at: At,
        to: ReplicaId,
        delivered: SeqNum,
        out: &mut Outbox,
    ) -> usize {
        // It may say any number.
        let after = delivered.max(self.low);
        let last = SeqNum(after.0.saturating_add(HELPED_AT_ONCE));
        let mut sent = 0;
        for (&seq, slot) in self.slots.range((Excluded(after), Included(last))) {
            // Rule S4: what left us less than a round trip ago may still be on its way.
            if at.now < slot.said_at + at.trip {
                continue;
            }
            // Only what we are known to have said: the vote table holds our vote once it is kept.
            let said = |phase, (view, digest)| {
                self.votes.voters(&Vote { phase, view, seq, digest }).contains(config.me)
            };
            if let Some((view, digest)) = slot.accepted.filter(|a| said(Phase::Prepare, *a)) {
                let proposed = at.is_primary(config) && at.is_current(view);
                if proposed && let Some(batch) = slot.body(digest, config.suite) {
                    sent += batch.bytes.len();
                    out.send(to, PbftMessage::PrePrepare { view, seq, batch });
                }
                out.send(to, PbftMessage::Prepare { view, seq, digest });
            }
            if let Some((view, digest)) = slot.prepared.filter(|p| said(Phase::Commit, *p)) {
                out.send(to, PbftMessage::Commit { view, seq, digest });
            }
        }
        sent
    }

    /// Asks everybody for a batch, unless it would find no room (rule W4).
    pub(super) fn fetch_body(
        &self,
        config: &Config,
        at: At,
        seq: SeqNum,
        digest: Digest,
        out: &mut Outbox,
    ) {
        if self.takes_bodies(config, at) {
            out.broadcast(PbftMessage::FetchBody { seq, digest });
        }
    }

    /// Asks everybody for the batches of at most `most` numbers that are proposed or decided and
    /// not held.
    pub(in crate::pbft) fn fetch_missing(
        &self,
        config: &Config,
        at: At,
        most: usize,
        out: &mut Outbox,
    ) {
        let undelivered = self.slots.range(self.delivered.next()..);
        let missing = undelivered.filter_map(|(seq, slot)| {
            let proposed = slot.proposal.filter(|(view, _)| *view == at.view).map(|p| p.1);
            let digest = slot.committed.or(proposed)?;
            (!slot.has_body(digest)).then_some((*seq, digest))
        });
        for (seq, digest) in missing.take(most) {
            self.fetch_body(config, at, seq, digest, out);
        }
    }

    pub(in crate::pbft) fn body(
        &self,
        config: &Config,
        seq: SeqNum,
        digest: Digest,
    ) -> Option<Arc<EncodedBatch>> {
        self.slots.get(&seq).and_then(|slot| slot.body(digest, config.suite))
    }

    pub(in crate::pbft) fn on_body(
        &mut self,
        config: &Config,
        at: At,
        seq: SeqNum,
        batch: Arc<EncodedBatch>,
        out: &mut Outbox,
    ) {
        let takes_bodies = self.takes_bodies(config, at);
        let wanted = self.slots.get_mut(&seq).filter(|slot| slot.wants_body(batch.digest));
        let Some(slot) = wanted else { return out.drop_message("unwanted_body") };
        if !takes_bodies {
            return out.drop_message("no_room_for_body");
        }
        slot.add_body(batch, false);
        self.accept(config, at, seq, out);
    }

    /// What binds us at each number, for the log.
    pub(in crate::pbft) fn promises(&self) -> Vec<SlotPromises> {
        self.slots.iter().map(|(seq, slot)| slot.promises(*seq)).collect()
    }

    /// The log says that we accepted a proposal.
    pub(in crate::pbft) fn recall_accepted(
        &mut self,
        view: View,
        seq: SeqNum,
        digest: Digest,
        body: Option<Bytes>,
        suite: Suite,
    ) -> Result<(), DecodeError> {
        let slot = self.slots.entry(seq).or_default();
        slot.accepted = Some((view, digest));
        if let Some(bytes) = body {
            let batch = EncodedBatch::from_bytes(bytes, digest, suite)?;
            slot.add_body(Arc::new(batch), true);
        }
        if !mutated(Mutant::AcceptedForgotten) {
            slot.note_preprepared(digest, view);
        }
        Ok(())
    }

    /// The log says that it prepared.
    pub(in crate::pbft) fn recall_prepared(&mut self, view: View, seq: SeqNum, digest: Digest) {
        self.slots.entry(seq).or_default().prepared = Some((view, digest));
    }

    /// The log says all that binds us, but for bodies.
    pub(in crate::pbft) fn recall_promises(&mut self, promises: Vec<SlotPromises>) {
        let mut known: BTreeMap<SeqNum, Slot> = std::mem::take(&mut self.slots);
        for promised in promises {
            let bodies = known.remove(&promised.seq).unwrap_or_default().bodies;
            self.slots.insert(promised.seq, promised.into_slot(bodies));
        }
    }

    /// The log is read: lets go of what is below the window.
    pub(in crate::pbft) fn forget_below(&mut self) {
        self.slots = self.slots.split_off(&self.low.next());
        self.delivered_bytes = self.count_delivered();
    }

    /// Rule P2: says again what was promised. Gives the highest number that is proposed in this
    /// view.
    pub(in crate::pbft) fn repeat_promises(
        &mut self,
        config: &Config,
        at: At,
        out: &mut Outbox,
    ) -> SeqNum {
        let mut last = SeqNum(0);
        if !stands(Defence::F05RepeatVotes) {
            return last;
        }
        for (&seq, slot) in &mut self.slots {
            let undelivered = seq > self.delivered;
            if let Some((view, digest)) = slot.accepted {
                if view == at.view && !at.changing {
                    slot.proposal = Some((view, digest));
                    slot.proposed_at = at.now;
                    slot.verdict = Verdict::Good;
                    last = seq;
                }
                self.votes.record(config.me, &Vote { phase: Phase::Prepare, view, seq, digest });
                let view = if mutated(Mutant::RepeatsInLaterView) { at.view } else { view };
                if undelivered {
                    out.broadcast(PbftMessage::Prepare { view, seq, digest });
                }
            }
            if let Some((view, digest)) = slot.prepared {
                self.votes.record(config.me, &Vote { phase: Phase::Commit, view, seq, digest });
                if undelivered {
                    out.broadcast(PbftMessage::Commit { view, seq, digest });
                }
            }
        }
        last
    }
}
