//! The time of a proposal, held against our own clock (rule N8 of `docs/protocol/pbft.md`, decision
//! 0046).
//!
//! Agreed time is max(previous + 1, proposed), so a time that is far ahead would stay for good. A
//! backup does not vote of its own accord for one that is further ahead of its clock than the bound
//! in the genesis; it does once f+1 others have, of which one is correct, as for a client whose MAC
//! fails for it (rule A2). What a view begins with, what is decided, and what comes as blocks is not
//! judged: others have agreed on it.

use super::slot::Slot;
use super::{At, ClockDifference, Config, Outbox, ReplicaId, SeqNum, Slots, VoteTable};
use tercio_types::Timestamp;
use tercio_types::zoo::{Defence, stands};

/// The time of a proposal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposed {
    by: ReplicaId,
    time: Timestamp,
    /// How far it was ahead of our clock when it came, in microseconds, and whether that was too far.
    micros: i64,
    refused: bool,
}

impl Proposed {
    pub(super) fn difference(self, decided: bool) -> ClockDifference {
        let Self { by, micros, refused, .. } = self;
        ClockDifference { primary: by, micros, refused, decided }
    }
}

/// Whether a time is too far ahead of our clock.
fn is_early(config: &Config, at: At, time: Timestamp) -> bool {
    let bound = config.settings.max_time_ahead.filter(|_| stands(Defence::F63JudgeTime));
    bound.is_some_and(|bound| {
        let bound = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        time.0 > at.wall.0.saturating_add(bound)
    })
}

impl Slot {
    /// Whether the proposal's time is too far ahead of our clock, as that is now.
    pub(super) fn is_early(&self, config: &Config, at: At) -> bool {
        self.time.is_some_and(|proposed| is_early(config, at, proposed.time))
    }
}

impl<T: VoteTable> Slots<T> {
    /// A proposal came at `seq`; with its time when it makes a block.
    pub(super) fn note_time(
        &mut self,
        config: &Config,
        at: At,
        seq: SeqNum,
        by: ReplicaId,
        time: Option<Timestamp>,
        out: &mut Outbox,
    ) {
        let Some(slot) = self.slots.get_mut(&seq) else { return };
        slot.time = time.map(|time| {
            // Any number may be proposed.
            let ahead = i128::from(time.0) - i128::from(at.wall.0);
            let micros = i64::try_from(ahead).unwrap_or(i64::MAX);
            Proposed { by, time, micros, refused: is_early(config, at, time) }
        });
        if let Some(refused) = slot.time.filter(|proposed| proposed.refused) {
            out.drop_message("proposal_ahead_of_clock");
            self.clock = Some(refused.difference(false));
        }
    }

    /// How our clock differs from a primary's, as of the last proposal that says so.
    pub(in crate::pbft) fn clock(&self) -> Option<ClockDifference> {
        self.clock
    }
}
