//! What is ordered and not executed yet, and when clients feel it.
//!
//! Ordering does not wait for execution, so a queue before it is no reason to refuse anybody: it bridges
//! the time in which execution halts. A *standing* queue only adds latency. As in CoDel (RFC 8289) the
//! time that a block waited is looked at when it is done: when it was above [`TARGET`] for all of an
//! [`INTERVAL`], clients are refused as busy, until a block waited less. While nothing is done nothing is
//! learnt.

use std::collections::VecDeque;
use std::time::Duration;
use tercio_consensus::Instant;

/// The longest that a block waits in a good queue.
const TARGET: Duration = Duration::from_millis(60);
/// How long the time is above that in a standing queue.
const INTERVAL: Duration = Duration::from_millis(100);

/// Deliveries before execution.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// When they came, in order.
    since: VecDeque<Instant>,
    /// Since when each that was done had waited for longer than the target.
    above: Option<Instant>,
    stands: bool,
}

impl Backlog {
    pub(super) fn delivered(&mut self, now: Instant) {
        self.since.push_back(now);
    }

    /// The first of them is executed.
    pub(super) fn executed(&mut self, now: Instant) {
        let since = self.since.pop_front().expect("what is executed was delivered");
        if now.since(since) < TARGET || self.since.is_empty() {
            (self.above, self.stands) = (None, false);
            return;
        }
        let above = *self.above.get_or_insert(now);
        self.stands |= now.since(above) >= INTERVAL;
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    /// Whether clients are to be refused as busy.
    pub(super) fn pushes_back(&self) -> bool {
        self.stands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn a_halt_refuses_nobody_and_a_standing_queue_does() {
        let mut backlog = Backlog::default();
        for ms in 0..4000 {
            backlog.delivered(at(ms));
            assert!(!backlog.pushes_back(), "it halts, and nothing is learnt");
        }
        // It goes on, and does two while one comes.
        let mut pushed_back = Vec::new();
        for ms in 4000..8000 {
            backlog.delivered(at(ms));
            (0..2).for_each(|_| backlog.executed(at(ms)));
            pushed_back.push(backlog.pushes_back());
        }
        assert_eq!(pushed_back.iter().position(|pushes| *pushes), Some(100));
        assert!(pushed_back[100..3900].iter().all(|pushes| *pushes));
        assert!(!backlog.pushes_back(), "it caught up");
    }

    #[test]
    fn a_queue_that_drains_is_a_good_one() {
        let mut backlog = Backlog::default();
        for begin in (0..10_000).step_by(200) {
            (0..100).for_each(|_| backlog.delivered(at(begin)));
            (0..100).for_each(|ms| backlog.executed(at(begin + ms)));
            assert!(!backlog.pushes_back());
        }
        assert_eq!(backlog.len(), 0);
    }
}
