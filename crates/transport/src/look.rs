//! Busy-polling before sleeping (decision 0026).
//!
//! A thread that blocks in `epoll_wait` has to be woken: the sender of the next frame pays for that,
//! and this side for two context switches, which in a virtual machine is several times what reading
//! a frame costs. Frames come in bursts, a few microseconds apart. So after a frame a thread polls
//! for more, and between two polls yields the processor (`sched_yield`): where replicas share
//! processors, those who would send the next frame run meanwhile.
//!
//! Yielding is cheap among threads that soon yield themselves. One that has work for all of its time
//! slice keeps the processor for milliseconds, and a thread that yielded does not come back before
//! that; one that blocks and is woken preempts it. So it takes credit: each sleep that was spared
//! earns [`SAVED`], and a yield that took long while a frame came costs what it took. When the
//! credit does not cover it, busy-polling does not pay; then the thread blocks at once until 25
//! times as long as it was away is over, and loses a 25th of its time at most by trying again.

use std::time::{Duration, Instant};

/// Longer than any turn of a thread that works on a few frames.
const LONG: Duration = Duration::from_micros(500);
/// How many times as long as it was away it blocks without polling.
const REST: u32 = 25;

/// The credit for a spared sleep, in time away: about 20 us for this side and the one that would have
/// woken it. Time away costs a fraction of its length only, since a quorum goes on without one.
const SAVED: Duration = Duration::from_micros(100);
/// The most credit.
const MOST: Duration = Duration::from_millis(20);

/// Whether busy-polling is worth trying.
#[derive(Debug, Default)]
pub(crate) struct Look {
    saved: Duration,
    rests_until: Option<Instant>,
}

impl Look {
    /// Polls whether anything `is_ready`, for `span` at most, and says whether it is.
    pub(crate) fn on(
        &mut self,
        span: Duration,
        mut now: impl FnMut() -> Instant,
        mut is_ready: impl FnMut() -> bool,
        mut give_way: impl FnMut(),
    ) -> bool {
        let begin = now();
        if span.is_zero() || self.rests_until.is_some_and(|until| begin < until) {
            return false;
        }
        if is_ready() {
            return true;
        }
        let mut time = begin;
        while time - begin < span {
            give_way();
            let since = std::mem::replace(&mut time, now());
            let away = time - since;
            let ready = is_ready();
            if ready && away >= LONG {
                match self.saved.checked_sub(away) {
                    Some(left) => self.saved = left,
                    None => {
                        self.saved = Duration::ZERO;
                        self.rests_until = Some(time + REST * away);
                    }
                }
            } else if ready {
                self.saved = (self.saved + SAVED).min(MOST);
            }
            if ready {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Polls for 100 us, with a clock that only yielding moves, by `away` each time; something
    /// is ready at the look after `ready_after` times. Gives whether it was seen, and how often way
    /// was given.
    fn look(
        look: &mut Look,
        clock: &Cell<Instant>,
        away: Duration,
        ready_after: u32,
    ) -> (bool, u32) {
        let times = Cell::new(0);
        let found = look.on(
            Duration::from_micros(100),
            || clock.get(),
            || times.get() >= ready_after,
            || {
                times.set(times.get() + 1);
                clock.set(clock.get() + away);
            },
        );
        (found, times.get())
    }

    #[test]
    fn it_looks_until_something_is_ready_or_the_time_is_over() {
        let (mut it, clock) = (Look::default(), Cell::new(crate::transport::now()));
        let us = Duration::from_micros;
        assert_eq!(look(&mut it, &clock, us(10), 0), (true, 0), "nobody waits for what is there");
        assert_eq!(look(&mut it, &clock, us(10), 3), (true, 3));
        assert_eq!(look(&mut it, &clock, us(10), 99), (false, 10));
        assert!(!it.on(Duration::ZERO, || clock.get(), || panic!("it looks"), || {}));
    }

    #[test]
    fn what_looking_on_saves_pays_for_long_absences() {
        let (mut it, clock) = (Look::default(), Cell::new(crate::transport::now()));
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        // Four milliseconds are forty sleeps that were spared.
        for _ in 0..40 {
            assert_eq!(look(&mut it, &clock, us(10), 1), (true, 1));
        }
        assert_eq!(look(&mut it, &clock, ms(4), 1), (true, 1), "what came meanwhile is seen");
        assert_eq!(look(&mut it, &clock, ms(4), 99), (false, 1), "nothing came: nothing is lost");
        assert_eq!(look(&mut it, &clock, ms(4), 1), (true, 1));
        assert_eq!(look(&mut it, &clock, ms(4), 0), (false, 0), "nothing is left to pay with");
    }

    #[test]
    fn savings_have_a_bound() {
        let (mut it, clock) = (Look::default(), Cell::new(crate::transport::now()));
        for _ in 0..100_000 {
            assert!(look(&mut it, &clock, Duration::from_micros(10), 1).0);
        }
        let absences =
            (0..100).take_while(|_| look(&mut it, &clock, Duration::from_millis(4), 1).0);
        assert_eq!(absences.count(), 6, "20 ms are spent, and what goes beyond ends it");
    }

    #[test]
    fn whose_savings_are_spent_sleeps_at_once_for_25_times_as_long() {
        let (mut it, clock) = (Look::default(), Cell::new(crate::transport::now()));
        let ms = Duration::from_millis;
        assert_eq!(look(&mut it, &clock, ms(4), 1), (true, 1));
        for _ in 0..4 {
            assert_eq!(look(&mut it, &clock, ms(4), 0), (false, 0), "it rests");
            clock.set(clock.get() + ms(24));
        }
        clock.set(clock.get() + ms(4));
        assert_eq!(look(&mut it, &clock, ms(4), 0), (true, 0), "the rest is over");
    }
}
