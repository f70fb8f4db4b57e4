//! When a queue stands: the measure of CoDel (Nichols and Jacobson, ACM Queue 10(5), 2012; RFC 8289).
//!
//! A queue bridges the time in which those behind it halt, and evens out bursts: it drains, and is a good
//! one. A *standing* queue only adds latency. So not its length is looked at but the time that each
//! that leaves it had waited: when that was above [`QUEUE_TARGET`] for all of an [`INTERVAL`], the queue
//! stands, until one waited less. While nothing leaves it nothing is learnt.
//!
//! It is asked of what waits to be ordered ([`crate::RequestPool`]), and of what is ordered and waits to
//! be executed.

use crate::Instant;
use std::time::Duration;

/// The target of queueing delay: the longest that anything waits in a good queue.
pub const QUEUE_TARGET: Duration = Duration::from_millis(60);
/// How long the time is above that in a standing queue.
const INTERVAL: Duration = Duration::from_millis(100);

/// Whether a queue stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandingQueue {
    /// Since when each that left had waited for longer than the target, and the least that one had.
    above: Option<(Instant, Duration)>,
    stands: bool,
}

impl StandingQueue {
    /// One left it that had waited for so long. When the queue stands, the least that one had waited
    /// for since it does, and in the interval before: what a halt adds for a while is not in it.
    pub fn left(&mut self, waited: Duration, now: Instant) -> Option<Duration> {
        if waited < QUEUE_TARGET {
            self.restart();
            return None;
        }
        let (above, least) = self.above.get_or_insert((now, waited));
        *least = waited.min(*least);
        self.stands = now.since(*above) >= INTERVAL;
        self.stands.then_some(*least)
    }

    /// Whether it stands.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.stands
    }

    /// Nothing is known: it is empty, those behind it are others, or something was done about it.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn a_queue_stands_when_all_waited_long_for_an_interval() {
        let (short, long) = (QUEUE_TARGET - Duration::from_nanos(1), QUEUE_TARGET);
        let mut queue = StandingQueue::default();
        assert!((0..=99).all(|ms| queue.left(long, at(ms)).is_none() && !queue.stands()));
        // A halt, and those whom it held up.
        assert_eq!(queue.left(10 * long, at(5000)), Some(long));
        assert_eq!(queue.left(3 * long, at(5001)), Some(long));
        assert!(queue.stands());
        // One that waited less, and it is a good one again, for an interval at least.
        assert!(queue.left(short, at(5001)).is_none() && !queue.stands());
        assert!((5002..=5101).all(|ms| queue.left(2 * long, at(ms)).is_none()));
        assert_eq!(queue.left(3 * long, at(5102)), Some(2 * long));
        // A halt again, and what waited for it comes out at once.
        queue.restart();
        assert!((0..1000).all(|_| queue.left(Duration::from_secs(4), at(9000)).is_none()));
        assert!(queue.left(short, at(9001)).is_none());
    }
}
