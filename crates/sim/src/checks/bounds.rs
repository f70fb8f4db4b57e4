//! Bounded memory: whatever peers and clients send, a replica keeps no more than its settings
//! allow (rules W2 and W4 of `docs/protocol/pbft.md`).

use super::{Violation, demand};
use tercio_consensus::Settings;
use tercio_types::ReplicaId;

/// How much a replica keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sequence numbers with anything but votes.
    pub slots: usize,
    /// Bytes of batches.
    pub batch_bytes: usize,
    /// Votes.
    pub votes: usize,
    /// Signed states of all replicas.
    pub checkpoints: usize,
    /// Packages that wait to be ordered.
    pub pending: usize,
}

/// The bounds that follow from the settings.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    most: Held,
}

impl Bounds {
    /// The bounds for `n` replicas: numbers run two windows above the low watermark, one to work in
    /// and one to park in; a number of the second may have a proposal that is parked and something
    /// else besides. Each replica has a vote of each phase at each number of the two, and a signed
    /// state at each checkpoint of a window and of eight beyond. Batches fill the room that there is
    /// for them, and what a quorum took in beyond what this replica did is less than as much again.
    #[must_use]
    pub fn new(settings: &Settings, n: usize) -> Self {
        let window = settings.window as usize;
        let (slots, votes, pending) = (3 * window, 4 * n * window, settings.pool.total_ops);
        let checkpoints = n * ((settings.window / settings.checkpoint_interval) as usize + 8);
        let batch_bytes = 2 * settings.held_bytes;
        Self { most: Held { slots, batch_bytes, votes, checkpoints, pending } }
    }

    /// What a correct replica keeps now.
    ///
    /// # Errors
    /// When it is more than the bounds.
    pub fn held(&self, by: ReplicaId, held: Held) -> Result<(), Violation> {
        let Self { most } = self;
        let within = held.slots <= most.slots
            && held.batch_bytes <= most.batch_bytes
            && held.votes <= most.votes
            && held.checkpoints <= most.checkpoints
            && held.pending <= most.pending;
        demand(within, "bounded memory", || format!("{by:?} keeps {held:?}; the most is {most:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_held() {
        let settings = Settings { window: 16, checkpoint_interval: 8, ..Settings::default() };
        let bounds = Bounds::new(&settings, 4);
        let pending = settings.pool.total_ops;
        let batch_bytes = 256 << 20;
        let most = Held { slots: 48, batch_bytes, votes: 256, checkpoints: 40, pending };
        bounds.held(ReplicaId(0), most).unwrap();
        for held in [
            Held { slots: 49, ..most },
            Held { batch_bytes: batch_bytes + 1, ..most },
            Held { votes: 257, ..most },
            Held { checkpoints: 41, ..most },
            Held { pending: most.pending + 1, ..most },
        ] {
            assert!(bounds.held(ReplicaId(0), held).is_err(), "{held:?}");
        }
    }
}
