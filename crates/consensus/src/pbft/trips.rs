//! How long round trips take (rules S4 and T6 of `docs/protocol/pbft.md`, argued in
//! `docs/protocol/proofs.md`).
//!
//! Each STATUS carries the time of its sender, and gives back the last such time that it has of each
//! other replica, with how long ago that came. So whoever gets its own time back knows the round trip
//! to that replica, by its own clock; nobody waits for anything, and no message is added. What comes
//! of it is smoothed as TCP does (RFC 6298): mean and mean deviation, and four of those above it.
//!
//! A replica can make its own round trips look long or short, and nobody else's. So what counts is
//! the (n-1-f)th shortest of those to the others: of n-1-f correct others at least one is no nearer.
//! f liars, the primary among them or not, push it no further than the farthest correct replica is.

use super::context::Config;
use super::{BTreeMap, Instant, ReplicaId};
use std::time::Duration;
use tercio_types::zoo::{Defence, stands};

/// The longest round trip that counts.
pub(super) const LONGEST: Duration = Duration::from_secs(3);
/// What is given back after longer than this says nothing of the way.
const STALE: u64 = 10_000_000_000;

/// The time of another replica, as it comes back in a STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Whose time it is.
    pub of: ReplicaId,
    /// The time.
    pub sent: Instant,
    /// How many nanoseconds ago it came to the sender of the STATUS.
    pub held: u64,
}

/// A round trip, smoothed, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Trip {
    mean: u64,
    spread: u64,
}

impl Trip {
    fn first(sample: u64) -> Self {
        Self { mean: sample, spread: sample / 2 }
    }

    fn next(self, sample: u64) -> Self {
        let off = sample.abs_diff(self.mean);
        Self { mean: (7 * self.mean + sample) / 8, spread: (3 * self.spread + off) / 4 }
    }

    /// What few are above.
    fn most(self) -> Duration {
        Duration::from_nanos(self.mean + 4 * self.spread).min(LONGEST)
    }
}

/// What is known of round trips.
#[derive(Clone, Debug, Default)]
pub(super) struct Trips {
    /// The last time that each other replica said, and when that came.
    said: BTreeMap<ReplicaId, (Instant, Instant)>,
    known: BTreeMap<ReplicaId, Trip>,
    /// The (n-1-f)th shortest.
    quorum: Duration,
}

impl Trips {
    /// What few round trips to a quorum are above; zero before anything is known.
    pub(super) fn quorum(&self) -> Duration {
        self.quorum
    }

    /// The longest of all, liars' included.
    pub(super) fn longest(&self) -> Duration {
        self.known.values().map(|trip| trip.most()).max().unwrap_or_default()
    }

    /// What a STATUS gives back.
    pub(super) fn echoes(&self, now: Instant) -> Vec<Echo> {
        let echo = |(of, (sent, came)): (&ReplicaId, &(Instant, Instant))| Echo {
            of: *of,
            sent: *sent,
            held: now.0.saturating_sub(came.0),
        };
        self.said.iter().map(echo).collect()
    }

    /// A STATUS came that was sent at `sent` and gives back these.
    pub(super) fn heard(
        &mut self,
        config: &Config,
        from: ReplicaId,
        sent: Instant,
        echoes: &[Echo],
        now: Instant,
    ) {
        self.said.insert(from, (sent, now));
        let Some(echo) = echoes.iter().find(|echo| echo.of == config.me) else { return };
        let Some(took) = now.0.checked_sub(echo.sent.0) else { return };
        if echo.held > STALE || !stands(Defence::F61MeasuredTrips) {
            return;
        }
        let took = took.saturating_sub(echo.held).min(LONGEST.as_nanos() as u64);
        let trip = self.known.get(&from).map_or(Trip::first(took), |trip| trip.next(took));
        self.known.insert(from, trip);
        self.quorum = self.nearest(config.membership.n() - 1 - config.membership.f());
    }

    /// The `count`-th shortest, or the longest when fewer are known.
    fn nearest(&self, count: usize) -> Duration {
        let mut trips: Vec<Duration> = self.known.values().map(|trip| trip.most()).collect();
        trips.sort_unstable();
        trips.get(count.saturating_sub(1)).or(trips.last()).copied().unwrap_or_default()
    }
}
