//! Retransmission: loss is normal. Nothing is retransmitted on a timer of its own; a replica that
//! waits says where it stands (STATUS, TOCS section 4.6.3), and those ahead of it send what
//! it lacks: at most [`HELPED_AT_ONCE`] numbers, and to each replica at most once in half a status
//! interval. Asking for bodies has the same bound, so that small questions do not draw any number
//! of large answers.

use super::context::{At, Config};
use super::{BTreeMap, Instant, ReplicaId, SeqNum};

/// How many numbers' messages one STATUS brings.
pub(super) const HELPED_AT_ONCE: u64 = 32;

/// When we say where we stand, and whom we helped when.
#[derive(Debug)]
pub(super) struct Resend {
    status_deadline: Instant,
    /// When we said where we stand last.
    spoke: Instant,
    /// `delivered` at the last status, to see whether it moves.
    delivered_at_status: SeqNum,
    /// Up to where each replica last said that it has delivered.
    delivered: BTreeMap<ReplicaId, SeqNum>,
    /// When each replica was last sent what it lacked.
    helped: BTreeMap<ReplicaId, Instant>,
    /// When each replica that started again was last shown our view: it asks for help besides.
    shown: BTreeMap<ReplicaId, Instant>,
    /// How many bodies each replica was sent since when.
    bodies_given: BTreeMap<ReplicaId, (Instant, u64)>,
}

impl Resend {
    pub(super) fn new(config: &Config, delivered: SeqNum, now: Instant) -> Self {
        Self {
            status_deadline: now + config.settings.status_interval,
            spoke: now,
            delivered_at_status: delivered,
            delivered: BTreeMap::new(),
            helped: BTreeMap::new(),
            shown: BTreeMap::new(),
            bodies_given: BTreeMap::new(),
        }
    }

    pub(super) fn status_deadline(&self) -> Instant {
        self.status_deadline
    }

    /// A link came back: both sides say at once where they stand, but not each time to one whose links
    /// come back again and again (rule S1).
    pub(super) fn hurry(&mut self, config: &Config, now: Instant) {
        let next = now.max(self.spoke + config.settings.status_interval);
        self.status_deadline = self.status_deadline.min(next);
    }

    /// A view begins: we wait for something.
    pub(super) fn enter(&mut self, config: &Config, at: At) {
        self.status_deadline = at.now + at.resend_after(config);
    }

    /// Rule S1: the time has come to say where we stand; often when we wait for something and get
    /// no further, and seldom when there is nothing to wait for. Whether we moved since the last
    /// time.
    pub(super) fn on_tick(
        &mut self,
        config: &Config,
        at: At,
        waits: bool,
        delivered: SeqNum,
    ) -> bool {
        let idle = config.settings.idle_interval;
        let moved = delivered > self.delivered_at_status;
        // Rule V7: one that waits for a view, and follows another one that works, is in no hurry.
        let follows = at.follows(at.entered) && moved;
        let often = waits && !follows;
        self.status_deadline = at.now + if often { at.resend_after(config) } else { idle };
        self.delivered_at_status = delivered;
        moved
    }

    /// Rule S4: whether nobody has heard our time for an idle replica's interval.
    pub(super) fn is_silent(&self, config: &Config, at: At) -> bool {
        at.now.since(self.spoke) >= config.settings.idle_interval
    }

    /// We say where we stand.
    pub(super) fn speak(&mut self, at: At) {
        self.spoke = at.now;
    }

    /// A replica says up to where it has delivered.
    pub(super) fn heard(&mut self, from: ReplicaId, delivered: SeqNum) {
        self.delivered.insert(from, delivered);
    }

    /// Whether all others have said that they delivered up to this number.
    pub(super) fn all_delivered(&self, config: &Config, seq: SeqNum) -> bool {
        config.others().all(|id| self.delivered.get(&id).is_some_and(|theirs| *theirs >= seq))
    }

    /// Whether `to` may be helped again, which is noted.
    pub(super) fn may_help(&mut self, config: &Config, to: ReplicaId, at: At) -> bool {
        Self::has_rested(&mut self.helped, config, to, at)
    }

    /// Rule S4: what `to` was sent has its time, until then, before it is helped again.
    pub(super) fn helped_with(&mut self, to: ReplicaId, until: Instant) {
        self.helped.insert(to, until);
    }

    /// Whether `to` may be shown our view for its LEARN, which is noted.
    pub(super) fn may_show(&mut self, config: &Config, to: ReplicaId, at: At) -> bool {
        Self::has_rested(&mut self.shown, config, to, at)
    }

    fn has_rested(
        last: &mut BTreeMap<ReplicaId, Instant>,
        config: &Config,
        to: ReplicaId,
        at: At,
    ) -> bool {
        let pause = at.resend_after(config) / 2;
        let rested = last.get(&to).is_none_or(|last| at.now.since(*last) >= pause);
        if rested {
            last.insert(to, at.now);
        }
        rested
    }

    /// Whether `to` may be given another body, which is noted.
    pub(super) fn may_give_body(&mut self, config: &Config, to: ReplicaId, now: Instant) -> bool {
        let (since, given) = self.bodies_given.entry(to).or_insert((now, 0));
        if now.since(*since) >= config.settings.status_interval / 2 {
            (*since, *given) = (now, 0);
        }
        let may = *given < HELPED_AT_ONCE;
        *given += u64::from(may);
        may
    }
}
