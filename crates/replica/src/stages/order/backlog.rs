//! What is ordered and not executed yet, and when clients feel it.
//!
//! Ordering does not wait for execution, so a queue before it is no reason to refuse anybody: it bridges
//! the time in which execution halts. When it *stands* ([`StandingQueue`]) clients are refused as busy,
//! until a block waited less. How much may wait *before* ordering is the pool's business
//! ([`tercio_consensus::RequestPool`]), by the same measure and target.

use std::collections::VecDeque;
use tercio_consensus::{Instant, StandingQueue};

/// Deliveries before execution.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// When they came, in order.
    since: VecDeque<Instant>,
    queue: StandingQueue,
}

impl Backlog {
    pub(super) fn delivered(&mut self, now: Instant) {
        self.since.push_back(now);
    }

    /// The first of them is executed.
    pub(super) fn executed(&mut self, now: Instant) {
        let since = self.since.pop_front().expect("what is executed was delivered");
        self.queue.left(now.since(since), now);
        if self.since.is_empty() {
            self.queue.restart();
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    /// Whether clients are to be refused as busy.
    pub(super) fn pushes_back(&self) -> bool {
        self.queue.stands()
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
