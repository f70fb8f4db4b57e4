//! Figures in the form in which they are reported.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Latencies, recorded.
#[derive(Clone, Debug)]
pub struct Recorder(Histogram<u64>);

impl Default for Recorder {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are within the histogram's limits"))
    }
}

impl Recorder {
    /// Records `count` latencies of one length.
    pub fn record(&mut self, latency: Duration, count: u64) {
        // The histogram grows as it needs to; a nanosecond count of 64 bits always fits.
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let _ = self.0.record_n(nanos, count);
    }

    /// Takes in what another recorded.
    pub fn merge(&mut self, other: &Self) {
        let _ = self.0.add(&other.0);
    }

    /// The same with what clients would have noticed that send a request every `interval`, had they
    /// not waited for a slow one: for each latency that is longer, those of the requests that were
    /// not sent meanwhile, each an interval shorter than the one before.
    #[must_use]
    pub fn corrected(&self, interval: Duration) -> Self {
        Self(self.0.clone_correct(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The distribution.
    #[must_use]
    pub fn latency(&self) -> LatencyUs {
        let at = |quantile| round(self.0.value_at_quantile(quantile) as f64 / 1e3, 1);
        LatencyUs {
            min: round(self.0.min() as f64 / 1e3, 1),
            mean: round(self.0.mean() / 1e3, 1),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: round(self.0.max() as f64 / 1e3, 1),
        }
    }
}

/// A distribution of latencies, in microseconds, to three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyUs {
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half of all took at most this.
    pub p50: f64,
    /// 99 of 100 took at most this.
    pub p99: f64,
    /// 999 of 1000 took at most this.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// Several measurements of the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// The spread of `values`, of which there is at least one.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let fold = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap_or_default();
        Self { min: round(fold(f64::min), 1), max: round(fold(f64::max), 1), count: values.len() }
    }
}

/// The middle value, or the mean of the two in the middle; 0 of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    (sorted[last / 2] + sorted[sorted.len() / 2]) / 2.0
}

/// `value` with this many decimals.
#[must_use]
pub fn round(value: f64, decimals: i32) -> f64 {
    let unit = 10f64.powi(decimals);
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that sends every 10 ms and waits 100 ms once would have noticed ten slow ones.
    #[test]
    fn what_was_not_sent_during_a_stall_counts_when_corrected() {
        let ms = Duration::from_millis;
        let mut recorder = Recorder::default();
        recorder.record(ms(10), 990);
        recorder.record(ms(100), 1);
        let (seen, corrected) = (recorder.latency(), recorder.corrected(ms(10)));
        assert!((seen.p99 - 10_000.0).abs() < 100.0, "{seen:?}");
        assert_eq!(corrected.count(), 990 + 10);
        assert!((corrected.latency().p999 - 90_000.0).abs() < 900.0, "{corrected:?}");
        assert_eq!(recorder.corrected(Duration::ZERO).count(), 991);
    }

    #[test]
    fn quantiles_are_of_all_that_was_recorded() {
        let (mut one, mut other) = (Recorder::default(), Recorder::default());
        one.record(Duration::from_micros(100), 98);
        other.record(Duration::from_millis(5), 2);
        one.merge(&other);
        let latency = one.latency();
        assert_eq!(one.count(), 100);
        assert!((latency.min - 100.0).abs() < 1.0 && (latency.mean - 198.0).abs() < 2.0);
        assert!((latency.p50 - 100.0).abs() < 1.0 && (latency.max - 5000.0).abs() < 10.0);
        assert!((latency.p99 - 5000.0).abs() < 10.0, "{latency:?}");
    }
}
