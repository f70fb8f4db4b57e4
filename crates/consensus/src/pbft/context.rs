//! What the parts of a replica are told of each other: what never changes ([`Config`]) by
//! reference, what changes ([`At`]) as a copy taken before the call.

use crate::{Instant, Settings};
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::Signer;
use tercio_types::zoo::{Mutant, mutated};
use tercio_types::{Membership, ReplicaId, SeqNum, Suite, Timestamp, View};

/// What a replica is made with.
pub(super) struct Config {
    pub(super) me: ReplicaId,
    pub(super) membership: Arc<Membership>,
    pub(super) suite: Suite,
    pub(super) signer: Signer,
    pub(super) settings: Settings,
}

impl Config {
    pub(super) fn quorum(&self) -> usize {
        self.membership.quorum()
    }

    pub(super) fn weak_quorum(&self) -> usize {
        self.membership.weak_quorum()
    }

    /// All replicas but this one.
    pub(super) fn others(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.membership.replicas().filter(|replica| *replica != self.me)
    }
}

/// Between which numbers the replica works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    /// The low watermark.
    pub(super) low: SeqNum,
    /// The high watermark.
    pub(super) high: SeqNum,
    /// The last number that was delivered.
    pub(super) delivered: SeqNum,
}

/// Where the replica stands in an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) now: Instant,
    /// The wall clock, in microseconds since the Unix epoch.
    pub(super) wall: Timestamp,
    pub(super) view: View,
    /// Whether it waits for that view to begin.
    pub(super) changing: bool,
    /// Rule L4: whether it may vote in that view.
    pub(super) may_vote: bool,
    /// The last number that was executed.
    pub(super) executed: SeqNum,
    /// Whether blocks are being fetched.
    pub(super) catching_up: bool,
    /// Whether a certificate above what was executed is known.
    pub(super) behind: bool,
}

impl At {
    pub(super) fn primary(self, config: &Config) -> ReplicaId {
        config.membership.primary(self.view)
    }

    pub(super) fn is_primary(self, config: &Config) -> bool {
        self.primary(config) == config.me
    }

    pub(super) fn is_current(self, view: View) -> bool {
        view == self.view && !self.changing || mutated(Mutant::VotesAfterLeaving)
    }

    /// The time that lies so far back.
    pub(super) fn ago(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.now.0.saturating_sub(nanos))
    }

    /// The time that a primary proposes. Execution makes it monotonic, so that a clock that is behind
    /// does no harm; one that is ahead is held against those of the backups (rule N8).
    pub(super) fn proposed_time(self) -> Timestamp {
        self.wall
    }
}
