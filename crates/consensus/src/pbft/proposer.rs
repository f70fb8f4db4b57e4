//! What a primary proposes, and when.

use super::context::{At, Config};
use super::normal::Slots;
use super::outbox::Outbox;
use super::{Arc, Effect, EncodedBatch, Instant, Package, SeqNum, VoteTable};
use crate::RequestPool;
use std::time::Duration;
use tercio_types::Batch;
use tercio_wire::package_len;

/// The shortest pause between two batches by which a primary goes beyond `pipeline`. In a local network
/// round trips are far below eight of these, and batches that wait for room grow.
const LONG_PAUSE: Duration = Duration::from_millis(5);

/// The primary's part. A backup's keeps count of the numbers only.
#[derive(Debug)]
pub(super) struct Proposer {
    /// Whether we may propose in this view: it began since we started, and the log says so durably
    /// (rule P3).
    leads: bool,
    /// The next number to propose.
    next_seq: SeqNum,
    /// When the waiting requests go out though the batch is small.
    batch_deadline: Option<Instant>,
    /// When we proposed last.
    proposed_at: Instant,
    /// Bytes proposed since a checkpoint was due; when a view begins, as many as bring one
    /// (rule C5), since nobody knows what became of those that were due before.
    uncovered_bytes: usize,
    /// A proposal is with the application.
    building: bool,
    candidates: Vec<Package>,
}

impl Proposer {
    pub(super) fn new(next_seq: SeqNum) -> Self {
        Self {
            leads: false,
            next_seq,
            batch_deadline: None,
            proposed_at: Instant::default(),
            uncovered_bytes: 0,
            building: false,
            candidates: Vec::new(),
        }
    }

    /// The view that we are in is ours to lead.
    pub(super) fn lead(&mut self) {
        self.leads = true;
    }

    /// The view is left.
    pub(super) fn leave(&mut self) {
        self.leads = false;
        self.batch_deadline = None;
        self.building = false;
        self.candidates.clear();
    }

    /// A view begins.
    pub(super) fn enter(&mut self, config: &Config) {
        self.leads = false;
        self.uncovered_bytes = config.settings.checkpoint_bytes;
    }

    /// The view begins after this number.
    pub(super) fn begin_after(&mut self, last: SeqNum) {
        self.next_seq = last.next();
    }

    /// This number is taken.
    pub(super) fn is_taken(&mut self, seq: SeqNum) {
        self.next_seq = self.next_seq.max(seq.next());
    }

    /// When to look again: the batch time has passed, or what waits may be proposed though the pipeline
    /// is full.
    pub(super) fn deadline<T: VoteTable>(
        &self,
        config: &Config,
        at: At,
        pool: &RequestPool,
        slots: &Slots<T>,
    ) -> Option<Instant> {
        if self.batch_deadline.is_some() || pool.queued_ops() == 0 {
            return self.batch_deadline;
        }
        let paced = self.paced_at(config, at).filter(|paced| *paced > at.now)?;
        let then = At { now: paced, ..at };
        (!self.has_room(config, at, slots) && self.may_propose(config, then, slots))
            .then_some(paced)
    }

    pub(super) fn batch_is_due(&self, now: Instant) -> bool {
        self.batch_deadline.is_some_and(|at| at <= now)
    }

    /// Whether another batch may be under way beside those that are.
    fn has_room<T: VoteTable>(&self, config: &Config, at: At, slots: &Slots<T>) -> bool {
        self.under_way(slots) < config.settings.pipeline
            || self.paced_at(config, at).is_some_and(|paced| paced <= at.now)
    }

    /// Rule N1: when the next batch may go out though `pipeline` are under way, which are few where a
    /// round trip is long: all of them would leave at once, and what comes then wait for a whole one.
    fn paced_at(&self, config: &Config, at: At) -> Option<Instant> {
        let parts = u32::try_from(config.settings.pipeline).unwrap_or(u32::MAX);
        let pause = at.trip / parts;
        (parts > 1 && pause >= LONG_PAUSE).then_some(self.proposed_at + pause)
    }

    /// How many batches are proposed and not delivered.
    fn under_way<T: VoteTable>(&self, slots: &Slots<T>) -> u64 {
        (self.next_seq.0 - 1).saturating_sub(slots.delivered().0)
    }

    /// Whether everything that was proposed is delivered.
    pub(super) fn is_idle<T: VoteTable>(&self, slots: &Slots<T>) -> bool {
        self.next_seq == slots.delivered().next()
    }

    pub(super) fn may_propose<T: VoteTable>(
        &self,
        config: &Config,
        at: At,
        slots: &Slots<T>,
    ) -> bool {
        let settings = &config.settings;
        at.is_primary(config)
            && self.leads
            && !at.changing
            && at.may_vote
            && !self.building
            && !at.catching_up
            && self.next_seq <= slots.marks(config).high
            && self.has_room(config, at, slots)
            && (!settings.execute_before_propose || at.executed.0 + 1 == self.next_seq.0)
    }

    /// Rule N1: the primary proposes at once when nothing is under way, when a batch is full, and
    /// otherwise when the batch time has passed. Batches so grow with the load by themselves. At most
    /// `pipeline` are under way; on a wide network one more each time a part of a round trip has passed.
    pub(super) fn propose<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        pool: &mut RequestPool,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        let settings = &config.settings;
        while self.may_propose(config, at, slots) && pool.queued_ops() > 0 {
            if !slots.may_fill(config) {
                return self.ask_for_room(config, at, slots, out);
            }
            let full = pool.queued_ops() >= settings.batch_ops
                || pool.queued_bytes() >= settings.batch_bytes;
            if self.under_way(slots) > 0 && !full {
                let deadline = at.now + settings.batch_time;
                if *self.batch_deadline.get_or_insert(deadline) > at.now {
                    return;
                }
            }
            self.propose_batch(config, at, pool, slots, out);
        }
    }

    /// The batch time has passed.
    pub(super) fn on_batch_timeout<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        pool: &mut RequestPool,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        self.batch_deadline = None;
        self.propose_batch(config, at, pool, slots, out);
    }

    fn propose_batch<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        pool: &mut RequestPool,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        if !self.may_propose(config, at, slots) {
            return;
        }
        let (ops, bytes) = (config.settings.batch_ops, config.settings.batch_bytes);
        let packages = pool.take_batch(ops, bytes, at.now);
        self.batch_deadline = None;
        if packages.is_empty() {
            return;
        }
        if config.settings.proposal_hooks {
            self.building = true;
            self.candidates = packages.clone();
            return out.push(Effect::BuildProposal(packages));
        }
        self.propose_packages(config, at, packages, slots, out);
    }

    /// The application chose among the candidates.
    pub(super) fn on_proposal<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        keep: &[usize],
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        let candidates = std::mem::take(&mut self.candidates);
        if !std::mem::take(&mut self.building) || !at.is_primary(config) || at.changing {
            return;
        }
        let mut chosen: Vec<Package> = Vec::new();
        for &i in keep {
            let package = candidates.get(i).expect("the application keeps what it was offered");
            chosen.push(package.clone());
        }
        // What it left out is not proposed by us; the view timer sees to it that somebody else may.
        if !chosen.is_empty() {
            self.propose_packages(config, at, chosen, slots, out);
        }
    }

    /// Rule C5: a batch asks for a checkpoint when much was proposed since the last, or when it is
    /// the first of its view.
    fn propose_packages<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        packages: Vec<Package>,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        self.uncovered_bytes += packages.iter().map(package_len).sum::<usize>();
        let checkpoint = self.uncovered_bytes >= config.settings.checkpoint_bytes;
        let batch = Batch { time: at.proposed_time(), checkpoint, packages };
        self.propose_content(config, at, batch, slots, out);
    }

    /// Rule C3: an idle primary asks for a checkpoint that covers the last batches.
    pub(super) fn propose_checkpoint<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        pool: &RequestPool,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        if self.may_propose(config, at, slots) && pool.queued_ops() == 0 {
            self.propose_empty(config, at, slots, out);
        }
    }

    /// Rule W4: packages must wait for a checkpoint to become stable. If none was asked for in this
    /// view yet, an empty batch does: every replica has room for that.
    fn ask_for_room<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        if self.uncovered_bytes >= config.settings.checkpoint_bytes {
            self.propose_empty(config, at, slots, out);
        }
    }

    /// A batch that does nothing but ask for a checkpoint.
    fn propose_empty<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        let batch = Batch { time: at.proposed_time(), checkpoint: true, packages: vec![] };
        self.propose_content(config, at, batch, slots, out);
    }

    fn propose_content<T: VoteTable>(
        &mut self,
        config: &Config,
        at: At,
        batch: Batch,
        slots: &mut Slots<T>,
        out: &mut Outbox,
    ) {
        let batch = Arc::new(EncodedBatch::new(batch, config.suite));
        let seq = self.next_seq;
        self.next_seq = seq.next();
        self.proposed_at = at.now;
        let interval = config.settings.checkpoint_interval;
        if batch.batch.checkpoint || seq.0.is_multiple_of(interval) {
            self.uncovered_bytes = 0;
        }
        slots.propose(config, at, seq, batch, out);
    }
}
