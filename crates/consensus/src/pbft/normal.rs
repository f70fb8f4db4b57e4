//! The normal case: propose, PREPARE, COMMIT, deliver (TOCS section 4.3).

use super::slot::Verdict;
use super::{
    Arc, ClientId, Delivery, Digest, Effect, EncodedBatch, Evidence, Package, Pbft, PbftMessage,
    Phase, Promise, Record, ReplicaId, ReplicaSet, SeqNum, Slot, View, Vote, VoteTable,
};
use crate::{Awaited, MAX_BATCH, Recorded};
use tercio_types::Batch;
use tercio_types::zoo::{Defence, Mutant, less, mutated, stands};
use tercio_wire::package_len;

impl<T: VoteTable> Pbft<T> {
    /// How many batches are proposed and not delivered.
    fn under_way(&self) -> u64 {
        (self.next_seq.0 - 1).saturating_sub(self.delivered.0)
    }

    pub(super) fn may_propose(&self) -> bool {
        self.is_primary()
            && self.leads
            && !self.changing
            && self.may_vote()
            && !self.building
            && self.catching_up.is_none()
            && self.next_seq <= self.high()
            && self.under_way() < self.settings.pipeline
            && (!self.settings.execute_before_propose || self.executed.0 + 1 == self.next_seq.0)
    }

    /// Rule N1: the primary proposes at once when nothing is in flight, when a batch is full, and
    /// otherwise when the batch time has passed. Batches so grow with the load by themselves.
    pub(super) fn propose(&mut self) {
        while self.may_propose() && self.pool.queued_ops() > 0 {
            if !self.may_fill() {
                return self.ask_for_room();
            }
            let full = self.pool.queued_ops() >= self.settings.batch_ops
                || self.pool.queued_bytes() >= self.settings.batch_bytes;
            if self.under_way() > 0 && !full {
                let deadline = self.now + self.settings.batch_time;
                if *self.batch_deadline.get_or_insert(deadline) > self.now {
                    return;
                }
            }
            self.propose_batch();
        }
    }

    pub(super) fn propose_batch(&mut self) {
        if !self.may_propose() {
            return;
        }
        let packages = self.pool.take_batch(self.settings.batch_ops, self.settings.batch_bytes);
        self.batch_deadline = None;
        if packages.is_empty() {
            return;
        }
        if self.settings.proposal_hooks {
            self.building = true;
            self.candidates = packages.clone();
            self.effects.push_back(Effect::BuildProposal(packages));
            return;
        }
        self.propose_packages(packages);
    }

    /// The application chose among the candidates.
    pub(super) fn on_proposal(&mut self, keep: &[usize]) {
        let candidates = std::mem::take(&mut self.candidates);
        if !std::mem::take(&mut self.building) || !self.is_primary() || self.changing {
            return;
        }
        let mut chosen: Vec<Package> = Vec::new();
        for &i in keep {
            let package = candidates.get(i).expect("the application keeps what it was offered");
            chosen.push(package.clone());
        }
        // What it left out is not proposed by us; the view timer sees to it that somebody else may.
        if !chosen.is_empty() {
            self.propose_packages(chosen);
        }
    }

    /// Rule C5: a batch asks for a checkpoint when much was proposed since the last, or when it is
    /// the first of its view.
    fn propose_packages(&mut self, packages: Vec<Package>) {
        self.uncovered_bytes += packages.iter().map(package_len).sum::<usize>();
        let checkpoint = self.uncovered_bytes >= self.settings.checkpoint_bytes;
        self.propose_content(Batch { time: self.proposed_time(), checkpoint, packages });
    }

    /// Rule C3: an idle primary asks for a checkpoint that covers the last batches.
    pub(super) fn propose_checkpoint(&mut self) {
        if self.may_propose() && self.pool.queued_ops() == 0 {
            self.propose_empty();
        }
    }

    /// Rule W4: packages must wait for a checkpoint to become stable. If none was asked for in this
    /// view yet, an empty batch does: every replica has room for that.
    fn ask_for_room(&mut self) {
        if self.uncovered_bytes >= self.settings.checkpoint_bytes {
            self.propose_empty();
        }
    }

    /// A batch that does nothing but ask for a checkpoint.
    fn propose_empty(&mut self) {
        let time = self.proposed_time();
        self.propose_content(Batch { time, checkpoint: true, packages: vec![] });
    }

    fn propose_content(&mut self, batch: Batch) {
        let batch = Arc::new(EncodedBatch::new(batch, self.suite));
        let (seq, view) = (self.next_seq, self.view);
        self.next_seq = seq.next();
        if batch.batch.checkpoint || seq.0.is_multiple_of(self.settings.checkpoint_interval) {
            self.uncovered_bytes = 0;
        }
        let slot = self.slots.entry(seq).or_default();
        slot.proposal = Some((view, batch.digest));
        slot.proposed_at = self.now;
        slot.add_body(batch.clone(), false);
        slot.verdict = Verdict::Good;
        self.accept(seq);
        // Rule P3: it promises nothing, so it waits for nothing. Our vote follows as everybody's.
        self.broadcast(PbftMessage::PrePrepare { view, seq, batch });
    }

    /// Rule N2: a backup takes a PRE-PREPARE of its view's primary for a number between the
    /// watermarks, and for each number of a view only one.
    pub(super) fn on_pre_prepare(
        &mut self,
        from: ReplicaId,
        view: View,
        seq: SeqNum,
        batch: Arc<EncodedBatch>,
        doubts: &[ClientId],
    ) {
        if !self.is_current(view) {
            return self.drop_message("pre_prepare_other_view");
        }
        if from != self.primary() {
            return self.drop_message("pre_prepare_not_primary");
        }
        if seq <= self.low {
            return self.drop_message("below_watermark");
        }
        if batch.batch.packages.is_empty() && !batch.batch.checkpoint {
            return self.evidence(Evidence::Malformed { replica: from, why: "empty_batch" });
        }
        let bytes = batch.bytes.len();
        if bytes > MAX_BATCH {
            return self.evidence(Evidence::Malformed { replica: from, why: "batch_too_long" });
        }
        if self.is_above_watermark(seq) {
            return self.drop_message("above_watermark");
        }
        // Rule W4: a batch that does nothing but ask for a checkpoint always finds room, since that
        // is what frees it.
        let digest = batch.digest;
        let is_held = self.slots.get(&seq).is_some_and(|slot| slot.has_body(digest));
        if !is_held && !batch.batch.packages.is_empty() && !self.has_room_for(bytes) {
            return self.drop_message("too_much_proposed");
        }
        if seq > self.high() && stands(Defence::F30Watermarks) {
            self.parked.entry(seq).or_insert_with(|| (view, batch, doubts.to_vec()));
            return;
        }
        let slot = self.slots.entry(seq).or_default();
        if let Some((_, first)) = slot.proposal.filter(|(v, d)| *v == view && *d != digest) {
            let evidence =
                Evidence::Equivocation { replica: from, view, seq, digests: [first, digest] };
            self.evidence(evidence);
            if stands(Defence::F01OneDigestPerNumber) {
                return;
            }
        }
        // Where we have delivered, we vote for what we delivered (N5), and keep nothing else.
        let delivered = |slot: &Slot| slot.committed == Some(digest) || slot.has_body(digest);
        if seq <= self.delivered && !self.slots.get(&seq).is_some_and(delivered) {
            return self.drop_message("delivered_otherwise");
        }
        let slot = self.slots.entry(seq).or_default();
        let known = slot.proposal == Some((view, digest));
        slot.add_body(batch.clone(), false);
        if !known {
            slot.proposal = Some((view, digest));
            slot.proposed_at = self.now;
            slot.verdict = Verdict::Open;
            let unsigned = |p: &&Package| self.must_sign.contains(&p.client) && !p.is_signed();
            slot.doubts = doubts.to_vec();
            slot.doubts.extend(batch.batch.packages.iter().filter(unsigned).map(|p| p.client));
        }
        self.accept(seq);
    }

    /// Votes for the proposal at `seq` if nothing stands against it and we have not yet.
    pub(super) fn accept(&mut self, seq: SeqNum) {
        let view = self.view;
        if self.changing && mutated(Mutant::VotesAfterLeaving) {
            self.try_prepare(seq);
        }
        if self.changing || seq <= self.low || !self.may_vote() {
            return;
        }
        let Some(slot) = self.slots.get(&seq) else { return };
        let Some((_, digest)) = slot.proposal.filter(|(v, _)| *v == view) else { return };
        if slot.accepted == Some((view, digest)) {
            return self.try_prepare(seq);
        }
        // What we delivered we can vote for without holding its body.
        let delivered = seq <= self.delivered && slot.committed == Some(digest);
        if !slot.has_body(digest) && !delivered {
            return;
        }
        if !slot.doubts.is_empty() && !self.is_vouched(seq, digest) {
            return;
        }
        let slot = self.slots.get_mut(&seq).expect("just seen");
        if self.settings.proposal_hooks && digest != Digest::NULL && !delivered {
            match slot.verdict {
                Verdict::Good => {}
                Verdict::Asked | Verdict::Vetoed => return,
                Verdict::Open => {
                    slot.verdict = Verdict::Asked;
                    let batch = slot.body(digest, self.suite).expect("just seen");
                    self.effects.push_back(Effect::ValidateProposal { seq, batch });
                    return;
                }
            }
        }
        slot.accepted = Some((view, digest));
        slot.note_preprepared(digest, view);
        let mut body = None;
        if let Some(held) = slot.bodies.iter_mut().find(|h| h.digest == digest && !h.logged) {
            held.logged = true;
            body = Some(held.bytes.clone());
        }
        let record = Record::Accepted { view, seq, digest, body };
        self.persist(&record, Some(Promise::Prepare { view, seq, digest }));
    }

    /// The application's word on a proposal.
    pub(super) fn on_verdict(&mut self, seq: SeqNum, digest: Digest, accept: bool) {
        let view = self.view;
        let Some(slot) = self.slots.get_mut(&seq) else { return };
        if slot.proposal == Some((view, digest)) && slot.verdict == Verdict::Asked {
            slot.verdict = if accept { Verdict::Good } else { Verdict::Vetoed };
            if accept {
                self.accept(seq);
            } else {
                self.drop_message("vetoed");
            }
        }
    }

    /// Rule A2: f+1 PREPAREs of others, not counting the primary, hold one of a correct replica
    /// for which the clients' tags were good.
    fn is_vouched(&self, seq: SeqNum, digest: Digest) -> bool {
        if !stands(Defence::F16VouchForClients) {
            return false;
        }
        let vote = Vote { phase: Phase::Prepare, view: self.view, seq, digest };
        let primary = self.primary();
        let others = self.votes.voters(&vote).iter().filter(|r| *r != primary && *r != self.me);
        others.count() >= self.membership.weak_quorum()
    }

    /// The promise to have accepted is durable: say it.
    pub(super) fn say_prepare(&mut self, view: View, seq: SeqNum, digest: Digest) {
        self.broadcast(PbftMessage::Prepare { view, seq, digest });
        self.count(self.me, Vote { phase: Phase::Prepare, view, seq, digest });
    }

    /// A PREPARE or COMMIT from the network.
    pub(super) fn on_vote(&mut self, from: ReplicaId, vote: Vote) {
        if vote.seq <= self.low {
            return self.drop_message("below_watermark");
        }
        if self.is_above_watermark(vote.seq) {
            return self.drop_message("above_watermark");
        }
        // Rule N6: a vote may come before its proposal.
        if !stands(Defence::F33ParkEarlyVotes)
            && self.slots.get(&vote.seq).is_none_or(|slot| slot.proposal.is_none())
        {
            return self.drop_message("no_proposal_yet");
        }
        self.count(from, vote);
    }

    /// Puts a vote into the table and does what follows from it; false when it changes nothing.
    pub(super) fn count(&mut self, from: ReplicaId, vote: Vote) -> bool {
        match self.votes.record(from, &vote) {
            Recorded::New => {}
            Recorded::Known => return false,
            Recorded::Conflict(first) => {
                self.evidence(Evidence::DoubleVote { replica: from, vote, first });
                return false;
            }
        }
        match vote.phase {
            Phase::Prepare => self.accept(vote.seq),
            Phase::Commit => self.try_commit(vote),
        }
        true
    }

    /// Rule N3: prepared on a quorum of PREPAREs for what we accepted ourselves.
    fn try_prepare(&mut self, seq: SeqNum) {
        let left = self.changing && mutated(Mutant::VotesAfterLeaving);
        let current = self.view;
        let Some(slot) = self.slots.get_mut(&seq) else { return };
        let accepted = slot.accepted.filter(|(view, _)| *view == current || left);
        let Some((view, digest)) = accepted else { return };
        if slot.prepared == Some((view, digest)) {
            return;
        }
        let voters = self.votes.voters(&Vote { phase: Phase::Prepare, view, seq, digest });
        if voters.len() < less(Mutant::PrepareQuorumLess, self.membership.quorum()) {
            return;
        }
        let first = slot.prepared.filter(|_| mutated(Mutant::PreparedFirstView));
        slot.prepared = first.or(Some((view, digest)));
        let record = Record::Prepared { view, seq, digest };
        self.persist(&record, Some(Promise::Commit { view, seq, digest }));
        if mutated(Mutant::OwnCommitEarly) {
            self.count(self.me, Vote { phase: Phase::Commit, view, seq, digest });
        }
    }

    /// Rule N4: committed on a quorum of COMMITs of one view, whichever view we are in: a quorum
    /// that prepared a batch makes every later view propose it again.
    fn try_commit(&mut self, vote: Vote) {
        let quorum = less(Mutant::CommitQuorumLess, self.membership.quorum());
        if self.votes.voters(&vote).len() < quorum {
            return;
        }
        let slot = self.slots.entry(vote.seq).or_default();
        if slot.committed.is_none() {
            slot.committed = Some(vote.digest);
            if !slot.has_body(vote.digest) {
                self.fetch_body(vote.seq, vote.digest);
            }
        }
    }

    /// Rule N5: committed batches are delivered in order, each once.
    pub(super) fn deliver_committed(&mut self) {
        if self.catching_up.is_some() && stands(Defence::F28OneOwner) {
            return;
        }
        loop {
            let seq = self.delivered.next();
            let Some(slot) = self.slots.get_mut(&seq) else { return };
            let Some(digest) = slot.committed else { return };
            if !slot.has_body(digest) {
                return;
            }
            let batch = slot.body(digest, self.suite);
            slot.delivered();
            self.delivered_bytes += batch.as_ref().map_or(0, |batch| batch.bytes.len());
            let asked = batch.as_ref().is_some_and(|b| b.batch.checkpoint);
            let checkpoint = asked || seq.0.is_multiple_of(self.settings.checkpoint_interval);
            for package in batch.iter().flat_map(|b| &b.batch.packages) {
                self.pool.delivered(package);
            }
            self.pool.trim(self.now);
            self.delivered = seq;
            self.next_seq = self.next_seq.max(seq.next());
            self.idle_since = self.now;
            self.failed_views = 0;
            if checkpoint {
                self.last_checkpoint = seq;
            }
            self.effects.push_back(Effect::Deliver(Delivery { seq, batch, checkpoint }));
        }
    }

    /// What the next number waits for, and who has not sent it.
    pub(super) fn waiting_for(&self) -> Option<(Awaited, ReplicaSet)> {
        let but = |spoke: &dyn Fn(ReplicaId) -> bool| {
            self.membership.replicas().filter(|replica| !spoke(*replica)).collect()
        };
        let primary = || std::iter::once(self.primary()).collect();
        if self.changing {
            let left = |r| self.view_changes.get(&r).is_some_and(|vc| vc.content.view >= self.view);
            let enough = self.membership.replicas().filter(|r| left(*r)).count();
            return Some(match enough >= self.membership.quorum() {
                true => (Awaited::NewView, primary()),
                false => (Awaited::ViewChange, but(&left)),
            });
        }
        let seq = self.delivered.next();
        let proposal = self.slots.get(&seq).and_then(|slot| {
            let (view, digest) = slot.proposal.filter(|(v, _)| *v == self.view)?;
            let prepared = slot.prepared == Some((view, digest));
            let phase = if prepared { Phase::Commit } else { Phase::Prepare };
            Some(Vote { phase, view, seq, digest })
        });
        match proposal {
            Some(vote) => {
                let voters = self.votes.voters(&vote);
                Some((Awaited::Vote(vote.phase), but(&|r| voters.contains(r))))
            }
            None => (!self.pool.is_empty() && !self.is_primary())
                .then(|| (Awaited::PrePrepare, primary())),
        }
    }
}
