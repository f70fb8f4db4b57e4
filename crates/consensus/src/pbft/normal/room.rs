//! How many bytes of batches a replica holds above its stable checkpoint (rule W4 of
//! `docs/protocol/pbft.md`, decision 0032).
//!
//! Numbers are bounded by the window, but a batch may be long, and a faulty primary need not ask for
//! checkpoints. So a replica takes proposals only as long as there is *room*. What takes it up is the
//! same for all replicas that stand at the same checkpoint in the same view: what is decided, and
//! what the view's primary proposed. Nobody has to agree on it: a batch that does nothing but ask for
//! a checkpoint is always taken, and frees the room wherever it becomes stable.

use super::{At, Config, Held, Slots, VoteTable};
use tercio_types::zoo::{Defence, stands};

impl<T: VoteTable> Slots<T> {
    /// How much room is taken up. What is left of earlier views is not held against this one's
    /// primary.
    fn held_bytes(&self) -> usize {
        let undelivered = self.slots.range(self.delivered.next()..);
        let proposed = undelivered.filter_map(|(_, slot)| {
            let proposed = slot.proposal.map(|(_, digest)| digest);
            slot.held(slot.committed.or(proposed)?)
        });
        let parked = self.parked.values().map(|proposal| proposal.batch.bytes.len());
        self.delivered_bytes + proposed.map(|held| held.bytes.len()).chain(parked).sum::<usize>()
    }

    /// Whether a proposal of so many bytes may be taken.
    pub(super) fn has_room_for(&self, config: &Config, bytes: usize) -> bool {
        self.held_bytes() + bytes <= config.settings.held_bytes || !stands(Defence::F43BoundedBytes)
    }

    /// Whether we may propose packages. A primary leaves half of the room free: others learn of a
    /// stable checkpoint later than it does.
    pub(in crate::pbft) fn may_fill(&self, config: &Config) -> bool {
        self.held_bytes() < config.settings.held_bytes / 2
    }

    /// Whether bodies are asked for, and taken when they come. What is decided or carried into a
    /// view is needed, room or not; but of that there is not much as long as the others can make no
    /// checkpoint stable, and once they have, and we know of it, blocks bring us further (rule S3).
    pub(super) fn takes_bodies(&self, config: &Config, at: At) -> bool {
        !at.behind || self.has_room_for(config, 1)
    }

    /// Counts anew what is delivered and held. A restarted replica knows what it accepted at a
    /// number and not what was decided there, which is the same but for rare cases.
    pub(super) fn count_delivered(&self) -> usize {
        let delivered = self.slots.iter().take_while(|(seq, _)| **seq <= self.delivered);
        let held = delivered.filter_map(|(_, slot)| {
            let accepted = slot.accepted.map(|(_, digest)| digest);
            slot.held(slot.committed.or(accepted)?)
        });
        held.map(|held| held.bytes.len()).sum()
    }

    /// All batches that are held, whatever for.
    pub(in crate::pbft) fn bytes_in_memory(&self) -> usize {
        let length = |held: &Held| held.bytes.len();
        let slots = self.slots.values().flat_map(|slot| slot.bodies.iter().map(length));
        let parked = self.parked.values().map(|proposal| proposal.batch.bytes.len());
        slots.chain(parked).sum()
    }
}
