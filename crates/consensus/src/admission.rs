//! Admission control: how much may wait to be ordered, by how fast it is ordered.
//!
//! A queue that is longer than what is ordered in a moment adds nothing but latency: clients whose
//! time-out passes retransmit to all replicas, which costs everybody more, and replicas whose request
//! timers end replace a primary that does what it can. So the rate of delivery is measured while much
//! waits, and as much may wait as is delivered in [`TARGET`] (rule Q1); beyond it clients get
//! back-pressure ('busy'). A client below its share is never refused as busy for the sake of one
//! above it (f31).

use crate::Instant;
use std::time::Duration;

/// The target of queueing delay.
const TARGET: Duration = Duration::from_millis(60);
/// How long is measured at a time.
const PERIOD: Duration = Duration::from_millis(100);
/// How many operations may wait before anything was measured, and the least that may afterwards.
const FIRST: usize = 4096;
const LEAST: usize = 64;
/// The shortest and the longest time after which a client that was refused as busy may retry.
const LEAST_HINT: Duration = Duration::from_millis(5);
const MOST_HINT: Duration = Duration::from_secs(1);

const SECOND: u128 = 1_000_000_000;

/// Measures what is delivered, and says how much may wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdmissionControl {
    /// When the running measurement began.
    since: Option<Instant>,
    delivered: u64,
    /// Whether all the time since as much waited as shows that no more could be delivered.
    backlogged: bool,
    /// Operations per second, when much waits; `None` before the first measurement.
    rate: Option<u64>,
    /// Operations refused as busy in this period and in the one before.
    declined: [u64; 2],
}

impl AdmissionControl {
    /// So many operations were delivered, and so many wait now that are not proposed.
    pub(crate) fn delivered(&mut self, ops: u64, waiting: usize, now: Instant) {
        self.delivered += ops;
        // Half of what may wait: less does so by itself, until a batch is full or its time over.
        let much = 2 * waiting >= self.limit();
        self.backlogged &= much;
        let since = *self.since.get_or_insert(now);
        let elapsed = now.since(since);
        if elapsed < PERIOD {
            return;
        }
        if self.backlogged {
            let measured = u128::from(self.delivered) * SECOND / elapsed.as_nanos();
            let measured = u64::try_from(measured).unwrap_or(u64::MAX);
            // Up at once and down by halves: a pause is no measure of what can be done.
            self.rate =
                Some(self.rate.map_or(measured, |rate| measured.max(rate.midpoint(measured))));
        }
        *self = Self {
            since: Some(now),
            delivered: 0,
            backlogged: much,
            rate: self.rate,
            declined: [0, self.declined[0]],
        };
    }

    /// How many operations may wait.
    pub(crate) fn limit(&self) -> usize {
        let Some(rate) = self.rate else { return FIRST };
        let limit = u128::from(rate) * TARGET.as_nanos() / SECOND;
        usize::try_from(limit).unwrap_or(usize::MAX).max(LEAST)
    }

    /// This many were refused as busy.
    pub(crate) fn declined(&mut self, ops: u64) {
        self.declined[0] += ops;
    }

    /// When those who are refused as busy now may retry: when what waits is ordered, and what all
    /// who were refused lately want as well.
    pub(crate) fn hint(&self, waiting: usize) -> Duration {
        let Some(rate) = self.rate.filter(|rate| *rate > 0) else { return LEAST_HINT * 4 };
        let wanted = waiting as u128 + u128::from(self.declined[0].max(self.declined[1]));
        let nanos = u64::try_from(wanted * SECOND / u128::from(rate)).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos).clamp(LEAST_HINT, MOST_HINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// `ops` each millisecond, while as much waits as may.
    fn busy(admission: &mut AdmissionControl, ms: std::ops::Range<u64>, ops: u64) {
        for ms in ms {
            admission.delivered(ops, admission.limit(), at(ms));
        }
    }

    #[test]
    fn as_much_may_wait_as_is_delivered_in_the_target_time() {
        let mut admission = AdmissionControl::default();
        assert_eq!(admission.limit(), FIRST);
        busy(&mut admission, 0..1000, 10);
        assert_eq!(admission.limit(), 600, "ten a millisecond, for sixty");
        // An idle time, and a slow one in which little waits, say nothing.
        for ms in 60_000..61_000 {
            admission.delivered(1, (ms % 300) as usize, at(ms));
        }
        assert_eq!(admission.limit(), 600);
        // A slow one in which much does is believed.
        busy(&mut admission, 61_000..63_000, 1);
        assert!((64..70).contains(&admission.limit()), "{}", admission.limit());
        busy(&mut admission, 63_000..63_400, 100);
        assert!(admission.limit() > 5_000, "{}", admission.limit());
    }

    #[test]
    fn the_hint_rises_with_what_waits_and_what_was_turned_away() {
        let mut admission = AdmissionControl::default();
        busy(&mut admission, 0..500, 10);
        assert_eq!(admission.hint(0), LEAST_HINT);
        assert_eq!(admission.hint(600), Duration::from_millis(60));
        admission.declined(3000);
        assert_eq!(admission.hint(600), Duration::from_millis(360));
        admission.declined(1 << 40);
        assert_eq!(admission.hint(600), MOST_HINT);
    }
}
