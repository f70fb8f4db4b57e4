//! What a protocol goes through, for logs, counters and probes. Nothing of it decides anything.

use std::fmt;
use tercio_types::{ReplicaId, View};

/// How far a batch has come at this replica, on the way from its number to its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BatchStep {
    /// This replica proposed it, or says that it accepted the proposal.
    Proposed,
    /// This replica says that a quorum accepted it.
    Prepared,
}

/// A step from view to view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewStep {
    /// The replica left all views below `next`.
    Left {
        /// The view that it was in, or waited for.
        view: View,
        /// The view that it waits for now.
        next: View,
        /// Why.
        cause: LeaveCause,
    },
    /// A view began.
    Entered {
        /// Which.
        view: View,
        /// Who leads it.
        primary: ReplicaId,
    },
}

/// Why a replica left its view (rules of `docs/protocol/pbft.md` in brackets).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaveCause {
    /// A request was not delivered in time (T1).
    RequestWaits,
    /// A proposal was not delivered in time (T1).
    ProposalWaits,
    /// The view that it waited for did not begin in time (T3).
    NewViewWaits,
    /// What was delivered got no stable checkpoint in time, though nothing else was to be done (T4).
    CheckpointWaits,
    /// f+1 replicas left for a later view (V2).
    Joined,
    /// The primary left its own view (V6).
    PrimaryLeft,
    /// The replica is the primary, and started again (P3).
    Restarted,
    /// The replica is the primary, and lets in one that waits for the next view alone (V8).
    LetsIn,
}

impl LeaveCause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::RequestWaits,
        Self::ProposalWaits,
        Self::NewViewWaits,
        Self::CheckpointWaits,
        Self::Joined,
        Self::PrimaryLeft,
        Self::Restarted,
        Self::LetsIn,
    ];

    /// A short word for counters.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::RequestWaits => "request_waits",
            Self::ProposalWaits => "proposal_waits",
            Self::NewViewWaits => "new_view_waits",
            Self::CheckpointWaits => "checkpoint_waits",
            Self::Joined => "joined",
            Self::PrimaryLeft => "primary_left",
            Self::Restarted => "restarted",
            Self::LetsIn => "lets_in",
        }
    }
}

impl fmt::Display for LeaveCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestWaits => "a request was not delivered in time",
            Self::ProposalWaits => "a proposal was not delivered in time",
            Self::NewViewWaits => "the next view did not begin in time",
            Self::CheckpointWaits => "no checkpoint became stable in time",
            Self::Joined => "f+1 replicas left for a later view",
            Self::PrimaryLeft => "its primary left it",
            Self::Restarted => "this replica led it and started again",
            Self::LetsIn => "this replica led it and lets in one that had left alone",
        })
    }
}
