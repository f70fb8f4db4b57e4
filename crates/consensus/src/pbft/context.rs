//! What the parts of a replica are told of each other: what never changes ([`Config`]) by
//! reference, what changes ([`At`]) as a copy taken before the call.

use crate::{Instant, Settings};
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::Signer;
use tercio_types::zoo::{Defence, Mutant, mutated, stands};
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
    /// The last view that it entered.
    pub(super) entered: View,
    /// Rule L4: whether it may vote in that view.
    pub(super) may_vote: bool,
    /// The last number that was executed.
    pub(super) executed: SeqNum,
    /// Whether blocks are being fetched.
    pub(super) catching_up: bool,
    /// Whether a certificate above what was executed is known.
    pub(super) behind: bool,
    /// What few round trips to a quorum are above.
    pub(super) trip: Duration,
}

/// Rule T6: how many round trips a primary has besides. A request goes to it and comes to its commit
/// in two, or three when the pipeline is full.
const TRIPS: u32 = 4;

impl At {
    /// Rule T6: T, the time that a primary has, before any back-off.
    pub(super) fn patience(self, config: &Config) -> Duration {
        let Settings { view_timeout, view_timeout_max, .. } = config.settings;
        (view_timeout + TRIPS * self.trip).min(view_timeout_max)
    }

    /// Rule S4: after how long without a delivery what we wait for may be lost.
    pub(super) fn resend_after(self, config: &Config) -> Duration {
        config.settings.status_interval.max(2 * self.trip)
    }

    pub(super) fn primary(self, config: &Config) -> ReplicaId {
        config.membership.primary(self.view)
    }

    pub(super) fn is_primary(self, config: &Config) -> bool {
        self.primary(config) == config.me
    }

    /// Rule V7: whether it waits for a view and follows this one meanwhile.
    pub(super) fn follows(self, view: View) -> bool {
        self.changing && view == self.entered && stands(Defence::F62ReturnToTheView)
    }

    /// Who orders now, as far as we know: one that waits for a view may have left one that works.
    pub(super) fn orders(self, config: &Config) -> ReplicaId {
        let view = if self.follows(self.entered) { self.entered } else { self.view };
        config.membership.primary(view)
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
