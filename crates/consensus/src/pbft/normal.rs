//! The normal case: PRE-PREPARE, PREPARE, COMMIT, deliver (TOCS section 4.3), as a backup and a
//! primary do it alike. What a primary proposes and when is `proposer`'s.

mod carry;
mod clock;
mod repeat;
mod room;
mod slot;

pub(super) use carry::Claims;
pub(super) use slot::SlotPromises;

use super::context::{At, Config, Marks};
use super::message::Claimed;
use super::outbox::{Outbox, Promise};
use super::{
    Arc, BTreeMap, BTreeSet, ClientId, Delivery, Digest, Effect, EncodedBatch, Evidence, Floor,
    Instant, Package, PbftMessage, Phase, Record, ReplicaId, ReplicaSet, Selection, SeqNum, View,
    Vote, VoteTable,
};
use crate::pool::longest_for;
use crate::{Awaited, ClockDifference, MAX_BATCH, Recorded};
use bytes::Bytes;
use slot::{Held, Slot, Verdict};
use std::ops::Bound::{Excluded, Included};
use tercio_types::zoo::{Defence, Mutant, less, mutated, stands};
use tercio_wire::DecodeError;

/// A batch that a primary proposed.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) view: View,
    pub(super) batch: Arc<EncodedBatch>,
    /// Clients in it whose MACs count for nothing for us.
    pub(super) doubts: Vec<ClientId>,
}

/// The numbers between the watermarks: what is proposed, voted and decided at each.
pub(super) struct Slots<T> {
    /// The low watermark: the stable checkpoint.
    low: SeqNum,
    delivered: SeqNum,
    /// Since when nothing was delivered.
    idle_since: Instant,
    slots: BTreeMap<SeqNum, Slot>,
    votes: T,
    /// Proposals one window above the high watermark, until it moves.
    parked: BTreeMap<SeqNum, Proposal>,
    /// How long the batches are that are delivered and held, since no stable checkpoint covers them.
    delivered_bytes: usize,
    /// How our clock differs from a primary's.
    clock: Option<ClockDifference>,
    /// The view in which operators agreed on a chain: votes of lower ones are of another life.
    agreed: View,
}

impl<T: VoteTable> Slots<T> {
    pub(super) fn new(votes: T, delivered: SeqNum, now: Instant) -> Self {
        Self {
            low: SeqNum(0),
            delivered,
            idle_since: now,
            slots: BTreeMap::new(),
            votes,
            parked: BTreeMap::new(),
            delivered_bytes: 0,
            clock: None,
            agreed: View(0),
        }
    }

    /// The log says that operators agreed on it.
    pub(super) fn recall_agreed(&mut self, agreed: Option<Floor>) {
        self.agreed = agreed.map_or(View(0), |agreed| agreed.view);
    }

    pub(super) fn low(&self) -> SeqNum {
        self.low
    }

    pub(super) fn delivered(&self) -> SeqNum {
        self.delivered
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Something has come further that stands for deliveries.
    pub(super) fn came_further(&mut self, now: Instant) {
        self.idle_since = now;
    }

    pub(super) fn marks(&self, config: &Config) -> Marks {
        Marks { low: self.low, high: self.high(config), delivered: self.delivered }
    }

    /// Sequence numbers that anything is held for, those above the high watermark included.
    pub(super) fn len(&self) -> usize {
        self.slots.len() + self.parked.len()
    }

    /// How many votes are held.
    pub(super) fn votes(&self) -> usize {
        self.votes.len()
    }

    fn high(&self, config: &Config) -> SeqNum {
        SeqNum(self.low.0 + config.settings.window)
    }

    /// Rule W2: proposals and votes are kept for one window above the high watermark, up to this
    /// number.
    pub(super) fn last_parked(&self, config: &Config) -> SeqNum {
        if !stands(Defence::F30Watermarks) {
            return SeqNum(u64::MAX);
        }
        SeqNum(self.high(config).0 + config.settings.window)
    }

    fn is_above_watermark(&self, config: &Config, seq: SeqNum) -> bool {
        seq > self.last_parked(config)
    }

    /// Whether anything is held that is not delivered.
    pub(super) fn is_under_way(&self) -> bool {
        self.slots.range(self.delivered.next()..).next().is_some()
    }

    /// The highest number at which we accepted anything.
    pub(super) fn last_accepted(&self) -> Option<SeqNum> {
        let accepted = self.slots.iter().rev().find(|(_, slot)| slot.accepted.is_some());
        accepted.map(|(seq, _)| *seq)
    }

    /// Rule T1: since when the oldest proposal of this view is not delivered though nothing else
    /// was; and how long its batch is.
    pub(super) fn proposed_since(&self, view: View) -> Option<(Instant, usize)> {
        (self.slots.range(self.delivered.next()..)).find_map(|(_, slot)| {
            slot.proposal.filter(|(proposed_in, _)| *proposed_in == view)?;
            Some((slot.proposed_at.max(self.idle_since), slot.proposed_bytes()))
        })
    }

    /// As primary: proposes a batch, and votes for it as everybody does.
    pub(super) fn propose(
        &mut self,
        config: &Config,
        at: At,
        seq: SeqNum,
        batch: Arc<EncodedBatch>,
        out: &mut Outbox,
    ) {
        let before =
            self.slots.range(self.delivered.next()..).map(|(_, slot)| slot.proposed_bytes());
        let gone = at.now + longest_for(before.sum::<usize>() + batch.bytes.len());
        let slot = self.slots.entry(seq).or_default();
        slot.proposal = Some((at.view, batch.digest));
        (slot.proposed_at, slot.said_at) = (at.now, gone);
        slot.add_body(batch.clone(), false);
        slot.verdict = Verdict::Good;
        self.accept(config, at, seq, out);
        // Rule P3: it promises nothing, so it waits for nothing. Our vote follows as everybody's.
        out.broadcast(PbftMessage::PrePrepare { view: at.view, seq, batch });
    }

    /// Rule N2: a backup takes a PRE-PREPARE of its view's primary for a number between the
    /// watermarks, and for each number of a view only one.
    pub(super) fn on_pre_prepare(
        &mut self,
        config: &Config,
        at: At,
        from: ReplicaId,
        seq: SeqNum,
        proposal: Proposal,
        out: &mut Outbox,
    ) {
        let Proposal { view, batch, .. } = &proposal;
        let (view, bytes, digest) = (*view, batch.bytes.len(), batch.digest);
        // Rule V7: one that has left the view takes what is proposed in it, and votes for nothing.
        if !at.is_current(view) && !at.follows(view) {
            return out.drop_message("pre_prepare_other_view");
        }
        if from != config.membership.primary(view) {
            return out.drop_message("pre_prepare_not_primary");
        }
        if seq <= self.low {
            return out.drop_message("below_watermark");
        }
        if batch.batch.packages.is_empty() && !batch.batch.checkpoint {
            return out.evidence(Evidence::Malformed { replica: from, why: "empty_batch" });
        }
        if bytes > MAX_BATCH {
            return out.evidence(Evidence::Malformed { replica: from, why: "batch_too_long" });
        }
        if self.is_above_watermark(config, seq) {
            return out.drop_message("above_watermark");
        }
        // Rule W4: a batch that does nothing but ask for a checkpoint always finds room, since that
        // is what frees it.
        let is_held = self.slots.get(&seq).is_some_and(|slot| slot.has_body(digest));
        if !is_held && !batch.batch.packages.is_empty() && !self.has_room_for(config, bytes) {
            return out.drop_message("too_much_proposed");
        }
        if seq > self.high(config) && stands(Defence::F30Watermarks) {
            self.parked.entry(seq).or_insert(proposal);
            return;
        }
        let slot = self.slots.entry(seq).or_default();
        if let Some((_, first)) = slot.proposal.filter(|(v, d)| *v == view && *d != digest) {
            let digests = [first, digest];
            out.evidence(Evidence::Equivocation { replica: from, view, seq, digests });
            if stands(Defence::F01OneDigestPerNumber) {
                return;
            }
        }
        // Where we have delivered, we vote for what we delivered (N5), and keep nothing else.
        let delivered = |slot: &Slot| slot.committed == Some(digest) || slot.has_body(digest);
        if seq <= self.delivered && !self.slots.get(&seq).is_some_and(delivered) {
            return out.drop_message("delivered_otherwise");
        }
        let time = (!proposal.batch.batch.packages.is_empty()).then_some(proposal.batch.batch.time);
        let slot = self.slots.entry(seq).or_default();
        let known = slot.proposal == Some((view, digest));
        slot.add_body(proposal.batch, false);
        if !known {
            slot.proposal = Some((view, digest));
            slot.proposed_at = at.now;
            slot.verdict = Verdict::Open;
            slot.doubts = proposal.doubts;
            self.note_time(config, at, seq, from, time, out);
        }
        self.accept(config, at, seq, out);
    }

    /// Votes for the proposal at `seq` if nothing stands against it and we have not yet.
    fn accept(&mut self, config: &Config, at: At, seq: SeqNum, out: &mut Outbox) {
        let view = at.view;
        if at.changing && mutated(Mutant::VotesAfterLeaving) {
            self.try_prepare(config, at, seq, out);
        }
        if at.changing || seq <= self.low || !at.may_vote {
            return;
        }
        let Some(slot) = self.slots.get(&seq) else { return };
        let Some((_, digest)) = slot.proposal.filter(|(v, _)| *v == view) else { return };
        if slot.accepted == Some((view, digest)) {
            return self.try_prepare(config, at, seq, out);
        }
        // What we delivered we can vote for without holding its body.
        let delivered = seq <= self.delivered && slot.committed == Some(digest);
        if !slot.has_body(digest) && !delivered {
            return;
        }
        let doubtful = !slot.doubts.is_empty() || !delivered && slot.is_early(config, at);
        if doubtful && !self.is_vouched(config, at, seq, digest) {
            return;
        }
        let slot = self.slots.get_mut(&seq).expect("just seen");
        if config.settings.proposal_hooks && digest != Digest::NULL && !delivered {
            match slot.verdict {
                Verdict::Good => {}
                Verdict::Asked | Verdict::Vetoed => return,
                Verdict::Open => {
                    slot.verdict = Verdict::Asked;
                    let batch = slot.body(digest, config.suite).expect("just seen");
                    return out.push(Effect::ValidateProposal { seq, batch });
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
        out.persist(&record, Promise::Prepare { view, seq, digest });
    }

    /// What kept us from voting is gone: votes for whatever is proposed.
    pub(super) fn accept_all(&mut self, config: &Config, at: At, out: &mut Outbox) {
        let proposed: Vec<SeqNum> = self.slots.keys().copied().collect();
        proposed.into_iter().for_each(|seq| self.accept(config, at, seq, out));
    }

    /// The application's word on a proposal.
    pub(super) fn on_verdict(
        &mut self,
        config: &Config,
        at: At,
        seq: SeqNum,
        digest: Digest,
        accept: bool,
        out: &mut Outbox,
    ) {
        let Some(slot) = self.slots.get_mut(&seq) else { return };
        if slot.proposal == Some((at.view, digest)) && slot.verdict == Verdict::Asked {
            slot.verdict = if accept { Verdict::Good } else { Verdict::Vetoed };
            if accept {
                self.accept(config, at, seq, out);
            } else {
                out.drop_message("vetoed");
            }
        }
    }

    /// Rule A2: f+1 PREPAREs of others, not counting the primary, hold one of a correct replica
    /// for which the clients' tags were good.
    fn is_vouched(&self, config: &Config, at: At, seq: SeqNum, digest: Digest) -> bool {
        if !stands(Defence::F16VouchForClients) {
            return false;
        }
        let vote = Vote { phase: Phase::Prepare, view: at.view, seq, digest };
        let primary = at.primary(config);
        let others = self.votes.voters(&vote).iter().filter(|r| *r != primary && *r != config.me);
        others.count() >= config.weak_quorum()
    }

    /// The promise of a vote is durable: say it. Unless we have left its view meanwhile, or the
    /// number is done.
    pub(super) fn vote(&mut self, config: &Config, at: At, vote: Vote, out: &mut Outbox) {
        let Vote { phase, view, seq, digest } = vote;
        if !at.is_current(view) || seq <= self.low {
            return;
        }
        if let Some(slot) = self.slots.get_mut(&seq) {
            slot.said_at = slot.said_at.max(at.now);
        }
        out.broadcast(match phase {
            Phase::Prepare => PbftMessage::Prepare { view, seq, digest },
            Phase::Commit => PbftMessage::Commit { view, seq, digest },
        });
        self.count(config, at, config.me, vote, out);
    }

    /// A PREPARE or COMMIT from the network.
    pub(super) fn on_vote(
        &mut self,
        config: &Config,
        at: At,
        from: ReplicaId,
        vote: Vote,
        out: &mut Outbox,
    ) {
        if vote.seq <= self.low {
            return out.drop_message("below_watermark");
        }
        if vote.view < self.agreed {
            return out.drop_message("before_agreement");
        }
        if self.is_above_watermark(config, vote.seq) {
            return out.drop_message("above_watermark");
        }
        // Rule N6: a vote may come before its proposal.
        if !stands(Defence::F33ParkEarlyVotes)
            && self.slots.get(&vote.seq).is_none_or(|slot| slot.proposal.is_none())
        {
            return out.drop_message("no_proposal_yet");
        }
        self.count(config, at, from, vote, out);
    }

    /// Puts a vote into the table and does what follows from it.
    fn count(&mut self, config: &Config, at: At, from: ReplicaId, vote: Vote, out: &mut Outbox) {
        match self.votes.record(from, &vote) {
            Recorded::New => {}
            Recorded::Known => return,
            Recorded::Conflict(first) => {
                return out.evidence(Evidence::DoubleVote { replica: from, vote, first });
            }
        }
        match vote.phase {
            Phase::Prepare => self.accept(config, at, vote.seq, out),
            Phase::Commit => self.try_commit(config, at, vote, out),
        }
    }

    /// Rule N3: prepared on a quorum of PREPAREs for what we accepted ourselves.
    fn try_prepare(&mut self, config: &Config, at: At, seq: SeqNum, out: &mut Outbox) {
        let left = at.changing && mutated(Mutant::VotesAfterLeaving);
        let Some(slot) = self.slots.get_mut(&seq) else { return };
        let accepted = slot.accepted.filter(|(view, _)| *view == at.view || left);
        let Some((view, digest)) = accepted else { return };
        if slot.prepared == Some((view, digest)) {
            return;
        }
        let voters = self.votes.voters(&Vote { phase: Phase::Prepare, view, seq, digest });
        if voters.len() < less(Mutant::PrepareQuorumLess, config.quorum()) {
            return;
        }
        let first = slot.prepared.filter(|_| mutated(Mutant::PreparedFirstView));
        slot.prepared = first.or(Some((view, digest)));
        let record = Record::Prepared { view, seq, digest };
        out.persist(&record, Promise::Commit { view, seq, digest });
        if mutated(Mutant::OwnCommitEarly) {
            let vote = Vote { phase: Phase::Commit, view, seq, digest };
            self.count(config, at, config.me, vote, out);
        }
    }

    /// Rule N4: committed on a quorum of COMMITs of one view, whichever view we are in: a quorum
    /// that prepared a batch makes every later view propose it again.
    fn try_commit(&mut self, config: &Config, at: At, vote: Vote, out: &mut Outbox) {
        let quorum = less(Mutant::CommitQuorumLess, config.quorum());
        if self.votes.voters(&vote).len() < quorum {
            return;
        }
        let slot = self.slots.entry(vote.seq).or_default();
        if slot.committed.is_none() {
            slot.committed = Some(vote.digest);
            if !slot.has_body(vote.digest) {
                self.fetch_body(config, at, vote.seq, vote.digest, out);
            }
        }
    }

    /// Rule N5: committed batches are delivered in order, each once.
    pub(super) fn next_delivery(&mut self, config: &Config, at: At) -> Option<Delivery> {
        if at.catching_up && stands(Defence::F28OneOwner) {
            return None;
        }
        // Rule W3: a window that moved on must not let a further one wait for execution.
        if self.low > at.executed {
            return None;
        }
        let seq = self.delivered.next();
        let slot = self.slots.get_mut(&seq)?;
        let digest = slot.committed?;
        if !slot.has_body(digest) {
            return None;
        }
        let batch = slot.body(digest, config.suite);
        slot.delivered();
        let time = slot.time.filter(|_| slot.proposal.is_some_and(|(_, d)| d == digest));
        self.clock = time.map(|time| time.difference(true)).or(self.clock);
        self.delivered_bytes += batch.as_ref().map_or(0, |batch| batch.bytes.len());
        let asked = batch.as_ref().is_some_and(|b| b.batch.checkpoint);
        let checkpoint = asked || seq.0.is_multiple_of(config.settings.checkpoint_interval);
        self.delivered = seq;
        self.idle_since = at.now;
        Some(Delivery { seq, batch, checkpoint })
    }

    /// State up to `seq` came as blocks.
    pub(super) fn skip_to(&mut self, seq: SeqNum, now: Instant) {
        self.delivered = seq;
        self.idle_since = now;
    }

    /// Moves the low watermark and lets go of what lies below.
    pub(super) fn move_window(&mut self, seq: SeqNum) {
        assert!(seq > self.low, "the window moves up");
        self.low = seq;
        self.slots = self.slots.split_off(&seq.next());
        self.votes.forget(seq);
        self.delivered_bytes = self.count_delivered();
    }

    /// Proposals that waited for the window to move, in order.
    pub(super) fn unpark(&mut self, config: &Config) -> BTreeMap<SeqNum, Proposal> {
        let inside = self.parked.split_off(&self.high(config).next());
        std::mem::replace(&mut self.parked, inside)
    }

    /// What the next number waits for in this view, and who has sent it. `None` without a proposal.
    pub(super) fn waiting_for(&self, view: View) -> Option<(Awaited, ReplicaSet)> {
        let seq = self.delivered.next();
        let slot = self.slots.get(&seq)?;
        let (view, digest) = slot.proposal.filter(|(v, _)| *v == view)?;
        let prepared = slot.prepared == Some((view, digest));
        let phase = if prepared { Phase::Commit } else { Phase::Prepare };
        let voters = self.votes.voters(&Vote { phase, view, seq, digest });
        Some((Awaited::Vote(phase), voters))
    }
}
