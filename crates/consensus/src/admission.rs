//! Admission control: how much may wait to be ordered, by how long what was ordered had waited.
//!
//! A queue that is longer than what is ordered in a moment adds nothing but latency: clients whose
//! time-out passes retransmit to all replicas, which costs everybody more, and replicas whose request
//! timers end replace a primary that does what it can. So as much may wait as is ordered in
//! [`QUEUE_TARGET`] (rule Q1); beyond it clients get back-pressure ('busy'). A client below its share is
//! never refused as busy for the sake of one above it (f31).
//!
//! How much that is nobody says, and it changes. The limit follows the queueing delay, as a gradient
//! (TCP Vegas, Brakmo and Peterson 1995; the 'gradient' limit of Netflix's concurrency-limits, 2018),
//! which is only measured on what a primary takes to order:
//!
//! - **Down.** When the queue stands ([`StandingQueue`], CoDel) the limit becomes the part of itself that
//!   the target is of the delay, half of it at least; an interval later it is looked at again.
//! - **Up.** When somebody is refused, the last that found room is marked. What it has waited for when
//!   it is taken is how long a full queue takes; if that is less than the target, the limit becomes what is
//!   taken in the target, four times itself at most. So a limit that is too low finds out by those whom
//!   it refuses, however few come; a rate of what is delivered would find only what it lets in.
//! - **Nothing** is learnt while nothing is taken (a view change, an execution that halts, a window that is
//!   full), from what few clients send, nor across a view's beginning: what waits then has waited since
//!   (f56).
//!
//! Decision 0042 says why.

use crate::Instant;
use crate::standing::{QUEUE_TARGET, StandingQueue};
use std::time::Duration;
use tercio_types::zoo::{Defence, stands};

/// How many operations may wait before anything was measured, and the least that may ever.
pub(crate) const FIRST: usize = 4096;
pub(crate) const LEAST: usize = 64;
/// The most that the limit grows by at once, and the most by which it shrinks.
const GROWTH: usize = 4;
const SHRINKING: usize = 2;
/// How long those who were refused are remembered, at least.
const PERIOD: Duration = Duration::from_millis(100);
/// The shortest and the longest time after which a client that was refused as busy may retry.
const LEAST_HINT: Duration = Duration::from_millis(5);
const MOST_HINT: Duration = Duration::from_secs(1);

/// How full the queue was when somebody was refused.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The last entry that had found room.
    id: u64,
    /// Operations in the queue, that one included.
    queued: usize,
}

/// Says how much may wait.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionControl {
    limit: usize,
    queue: StandingQueue,
    mark: Option<Mark>,
    /// Operations refused as busy in this period and in the one before, and when this one began.
    declined: [u64; 2],
    since: Instant,
}

impl Default for AdmissionControl {
    fn default() -> Self {
        let queue = StandingQueue::default();
        Self { limit: FIRST, queue, mark: None, declined: [0; 2], since: Instant(0) }
    }
}

/// So much is taken in the target, when `ops` are in `waited`.
fn in_target(ops: usize, waited: Duration) -> usize {
    let ops = ops as u128 * QUEUE_TARGET.as_nanos() / waited.as_nanos().max(1);
    usize::try_from(ops).unwrap_or(usize::MAX)
}

impl AdmissionControl {
    /// How many operations may wait.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Time passes.
    pub(crate) fn tick(&mut self, now: Instant) {
        if now.since(self.since) >= PERIOD {
            (self.since, self.declined) = (now, [0, self.declined[0]]);
        }
    }

    /// A batch begins with a package that has waited for so long.
    pub(crate) fn taken_first(&mut self, waited: Duration, now: Instant) {
        if let Some(least) = self.queue.left(waited, now) {
            let limit = in_target(self.limit, least).max(self.limit / SHRINKING);
            self.limit = limit.max(LEAST);
            self.queue.restart();
        }
    }

    /// An entry is taken that has waited for so long. The limit does not grow above `most`.
    pub(crate) fn taken(&mut self, id: u64, waited: Duration, most: usize) {
        let Some(mark) = self.mark.filter(|mark| mark.id <= id) else { return };
        self.mark = None;
        if mark.id == id && waited < QUEUE_TARGET && stands(Defence::F56LearnFromWork) {
            let limit = in_target(mark.queued, waited).min(self.limit * GROWTH).min(most);
            self.limit = self.limit.max(limit);
        }
    }

    /// What waits has waited since now, and those who order it are others.
    pub(crate) fn restart(&mut self) {
        self.queue.restart();
        self.mark = None;
        if !stands(Defence::F56LearnFromWork) {
            // As if nothing could be ordered, since nothing was.
            self.limit = LEAST;
        }
    }

    /// The queue holds `queued` operations, the entry `last` is its last, and this many were refused as
    /// busy.
    pub(crate) fn refused(&mut self, ops: u64, last: Option<u64>, queued: usize) {
        self.declined(ops);
        if self.mark.is_none() {
            self.mark = last.map(|id| Mark { id, queued });
        }
    }

    /// This many were refused as busy for another reason than that so much waits.
    pub(crate) fn declined(&mut self, ops: u64) {
        self.declined[0] += ops;
    }

    /// When those who are refused as busy now may retry: when what waits is ordered, and what all
    /// who were refused lately want as well.
    pub(crate) fn hint(&self, waiting: usize) -> Duration {
        let wanted = waiting as u128 + u128::from(self.declined[0].max(self.declined[1]));
        let nanos = wanted * QUEUE_TARGET.as_nanos() / self.limit as u128;
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos).clamp(LEAST_HINT, MOST_HINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_standing_queue_makes_the_limit_what_is_taken_in_the_target() {
        let mut admission = AdmissionControl::default();
        // What is taken is 10 a millisecond, and as much waits as may.
        for now in 0..2000 {
            admission.taken_first(ms(admission.limit() as u64 / 10), at(now));
        }
        assert!((594..=606).contains(&admission.limit()), "ten a millisecond, for sixty");
        // One a millisecond: by halves at most, an interval each.
        let before = admission.limit();
        for now in 2000..4000 {
            admission.taken_first(ms(admission.limit() as u64), at(now));
            assert!(now >= 2100 || 2 * admission.limit() >= before);
        }
        assert_eq!(admission.limit(), LEAST);
    }

    #[test]
    fn a_full_queue_that_is_gone_soon_makes_it_grow() {
        let mut admission = AdmissionControl { limit: 100, ..AdmissionControl::default() };
        // Nobody was refused.
        admission.taken(7, ms(1), 1 << 20);
        assert_eq!(admission.limit(), 100);
        admission.refused(1, Some(9), 120);
        admission.refused(1, Some(10), 130);
        admission.taken(8, ms(0), 1 << 20);
        admission.taken(9, ms(30), 1 << 20);
        assert_eq!(admission.limit(), 240, "120 in half of the target");
        // The one that was marked is gone otherwise; the next has found a shorter queue.
        admission.refused(1, Some(11), 240);
        admission.taken(12, ms(1), 1 << 20);
        assert_eq!(admission.limit(), 240);
        // By four times at most, and never above what the pool holds.
        admission.refused(1, Some(13), 240);
        admission.taken(13, ms(0), 1 << 20);
        assert_eq!(admission.limit(), 960);
        admission.refused(1, Some(14), 960);
        admission.taken(14, ms(1), 1000);
        assert_eq!(admission.limit(), 1000);
        // Others order: what a full queue took before says nothing.
        admission.refused(1, Some(15), 1000);
        admission.restart();
        admission.taken(15, ms(1), 1 << 20);
        assert_eq!(admission.limit(), 1000);
    }

    #[test]
    fn the_hint_rises_with_what_waits_and_what_was_turned_away() {
        let mut admission = AdmissionControl { limit: 600, ..AdmissionControl::default() };
        assert_eq!(admission.hint(0), LEAST_HINT);
        assert_eq!(admission.hint(600), ms(60));
        admission.declined(3000);
        assert_eq!(admission.hint(600), ms(360));
        admission.tick(at(100));
        assert_eq!(admission.hint(600), ms(360), "they come back");
        admission.tick(at(200));
        assert_eq!(admission.hint(600), ms(60));
        admission.declined(1 << 40);
        assert_eq!(admission.hint(600), MOST_HINT);
    }
}
