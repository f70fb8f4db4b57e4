//! How long bytes take to be ordered and shipped (rule T7 of `docs/protocol/pbft.md`).
//!
//! What is delivered is measured while much waits. Half of that is counted on, and [`LEAST`] at least,
//! whatever was measured: so a primary that dawdles gains no more time than what can wait takes at
//! that rate.

use crate::Instant;
use std::time::Duration;
use tercio_types::zoo::{Defence, stands};

/// What any network orders, in bytes a second: 100 Mbit/s of the primary shared by three backups.
const LEAST: u64 = 4 << 20;
/// So many bytes take no time that counts: they fit a batch.
const FREE: usize = 256 << 10;
/// Less than this that waits says nothing of what could be ordered.
const MUCH: usize = 1 << 20;
/// How long is measured at a time.
const PERIOD: Duration = Duration::from_millis(100);

/// What was delivered, in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Throughput {
    since: Option<Instant>,
    bytes: u64,
    /// Bytes a second.
    rate: u64,
}

impl Throughput {
    /// So many bytes were delivered, and so many wait still.
    pub(super) fn delivered(&mut self, bytes: usize, waiting: usize, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.bytes += bytes as u64;
        let took = now.since(since);
        if took >= PERIOD {
            let measured = u128::from(self.bytes) * 1_000_000_000 / took.as_nanos();
            let measured = u64::try_from(measured).unwrap_or(u64::MAX);
            // Up at once, down by halves.
            self.rate = measured.max(self.rate.midpoint(measured));
            (self.since, self.bytes) = (Some(now), 0);
        }
        if waiting < MUCH {
            (self.since, self.bytes) = (None, 0);
        }
    }

    /// How long so many bytes may take.
    pub(super) fn time_for(&self, bytes: usize) -> Duration {
        if !stands(Defence::F60SizeOfWhatWaits) {
            return Duration::ZERO;
        }
        let counted = bytes.saturating_sub(FREE) as u64;
        let rate = (self.rate / 2).max(LEAST);
        Duration::from_micros(counted.saturating_mul(1_000_000) / rate)
    }
}

/// How long so many bytes take at the least rate: by then what was sent has left us.
pub(crate) fn longest_for(bytes: usize) -> Duration {
    Throughput::default().time_for(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// T7: a primary that dawdles gains what the least rate gives, and no more.
    #[test]
    fn t7_bytes_have_their_time_and_dawdling_gains_little() {
        let mut throughput = Throughput::default();
        assert_eq!(throughput.time_for(FREE), Duration::ZERO);
        assert_eq!(throughput.time_for(FREE + (8 << 20)), Duration::from_secs(2));
        for ms in 0..1000 {
            throughput.delivered(64 << 10, 8 << 20, at(ms));
        }
        let fast = throughput.time_for(FREE + (8 << 20));
        assert!(fast < Duration::from_millis(300), "half of 64 MiB a second: {fast:?}");
        for s in 1..100 {
            throughput.delivered(1, 8 << 20, at(s * 1000));
        }
        assert_eq!(throughput.time_for(FREE + (8 << 20)), Duration::from_secs(2));
        // What is delivered while little waits says nothing.
        throughput.delivered(1, 0, at(100_000));
        throughput.delivered(1 << 30, 0, at(200_000));
        throughput.delivered(1 << 30, 0, at(201_000));
        assert_eq!(throughput.time_for(FREE + (8 << 20)), Duration::from_secs(2));
    }
}
