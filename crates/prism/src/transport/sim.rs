//! A simulated network: the same seed gives the same losses, duplicates, delays and reorderings.
//! Time is virtual; the driver asks for the next arrival.

use crate::rng::Rng;
use std::collections::BTreeMap;

/// What can go wrong, in percent of the frames.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Frames that do not arrive.
    pub loss: u64,
    /// Frames that arrive twice, the second time perhaps much later.
    pub duplicates: u64,
    /// The longest ordinary delay, in nanoseconds: what makes frames overtake each other.
    pub delay_ns: u64,
    /// The longest delay of a second copy, in nanoseconds.
    pub late_ns: u64,
}

/// A frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From this client to the server.
    ToServer(usize),
    /// From the server to this client.
    ToClient(usize),
}

/// Frames in flight.
#[derive(Debug)]
pub struct Network {
    rng: Rng,
    faults: Faults,
    under_way: BTreeMap<(u64, u64), (Way, Vec<u64>)>,
    sent: u64,
}

impl Network {
    /// A network with these faults.
    #[must_use]
    pub const fn new(seed: u64, faults: Faults) -> Self {
        Self { rng: Rng::new(seed), faults, under_way: BTreeMap::new(), sent: 0 }
    }

    /// Sends a frame at a time.
    pub fn send(&mut self, now_ns: u64, way: Way, frame: &[u64]) {
        let put = |network: &mut Self, limit: u64| {
            let at = now_ns + 1 + network.rng.below(limit.max(1));
            network.sent += 1;
            network.under_way.insert((at, network.sent), (way, frame.to_vec()));
        };
        if !self.rng.percent(self.faults.loss) {
            put(self, self.faults.delay_ns);
        }
        if self.rng.percent(self.faults.duplicates) {
            put(self, self.faults.late_ns);
        }
    }

    /// When the next frame arrives.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next frame.
    pub fn take(&mut self) -> Option<(Way, Vec<u64>)> {
        self.under_way.pop_first().map(|(_, arrival)| arrival)
    }
}
