//! A histogram of times that costs a few nanoseconds.
//!
//! Buckets are powers of two: up to 1 us, 2 us, 4 us and so on to 2^25 us (33.6 s), and one for what
//! is longer. One thread observes; any may read meanwhile, and then finds each number as it was at
//! some moment just before.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many buckets have an upper bound.
const BOUNDED: usize = 26;

#[derive(Debug, Default)]
struct Inner {
    /// How many fell into each; the last has no bound.
    counts: [AtomicU64; BOUNDED + 1],
    nanos: AtomicU64,
}

/// A histogram of times. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Times(Arc<Inner>);

/// Adds, for the one thread that does.
fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Times {
    /// Counts a time. To be called by one thread only: with two at once counts are lost.
    pub fn observe(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        add(&self.0.counts[bucket(nanos)], 1);
        add(&self.0.nanos, nanos);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Writes it as a metric that has its name and its labels already.
    pub(super) fn write(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let bounds = (0..BOUNDED).map(|i| 1e-6 * f64::from(1 << i)).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let seconds = self.0.nanos.load(Ordering::Relaxed) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }
}

/// The bucket of a time: the first whose bound is not below it.
fn bucket(nanos: u64) -> usize {
    let micros = nanos.div_ceil(1000).max(1);
    (micros.next_power_of_two().trailing_zeros() as usize).min(BOUNDED)
}

impl EncodeMetric for Times {
    fn encode(&self, encoder: MetricEncoder) -> fmt::Result {
        self.write(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let us = 1000;
        for (nanos, expected) in [
            (0, 0),
            (1, 0),
            (us, 0),
            (us + 1, 1),
            (2 * us, 1),
            (2 * us + 1, 2),
            (us << 25, 25),
            ((us << 25) + 1, 26),
            (u64::MAX / 2, 26),
        ] {
            assert_eq!(bucket(nanos), expected, "{nanos} ns");
        }
        let times = Times::default();
        times.clone().observe(Duration::from_micros(3));
        times.observe(Duration::MAX);
        assert_eq!(times.count(), 2);
    }
}
