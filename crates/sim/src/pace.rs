//! Disks with latency: a sync takes time, what comes meanwhile gathers (group commit), and a commit may
//! fall between any two commands for the log, as on threads.

use crate::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tercio_replica::DiskPace;

/// How the disks of a run keep pace. Chances are per mille.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The shortest and the longest time that a sync takes.
    pub sync: (Duration, Duration),
    /// How many syncs take up to twenty times longer.
    pub stall: u64,
    /// How many commits come before the log has taken all that waits for it.
    pub split: u64,
}

impl Pace {
    /// From a fast disk to a slow one that stalls.
    pub(crate) fn any(rng: &mut Rng) -> Self {
        let shortest = Duration::from_micros(rng.below(200));
        let longest = shortest + Duration::from_micros(*rng.pick(&[0, 200, 2_000, 10_000]));
        let stall = if rng.chance(300) { rng.below(50) } else { 0 };
        Self { sync: (shortest, longest), stall, split: rng.below(600) }
    }
}

/// A [`Pace`] by a seed.
pub(crate) struct SeededPace {
    pace: Pace,
    rng: Rng,
    /// Counts the commits that came before all was taken.
    split: Arc<AtomicU64>,
}

impl SeededPace {
    pub(crate) fn new(pace: Pace, rng: Rng, split: Arc<AtomicU64>) -> Self {
        Self { pace, rng, split }
    }
}

impl DiskPace for SeededPace {
    fn commands(&mut self, waiting: usize) -> usize {
        if waiting > 1 && self.rng.chance(self.pace.split) {
            self.split.fetch_add(1, Ordering::Relaxed);
            return self.rng.between(1, waiting as u64 - 1) as usize;
        }
        waiting
    }

    fn sync(&mut self) -> Duration {
        let (low, high) = self.pace.sync;
        let slower = if self.rng.chance(self.pace.stall) { self.rng.between(2, 20) } else { 1 };
        self.rng.duration(low, high) * slower as u32
    }
}
