//! The bug zoo: each named fault of the test suite has a defence, and each defence a switch that
//! takes it away, so that a test can show that it would notice. Without the feature `zoo` every
//! defence stands and the question costs nothing.

/// A defence, named by the fault that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation: docs/protocol/faults.md")]
pub enum Defence {
    F01OneDigestPerNumber,
    F03RememberPromises,
    F04PersistBeforeSend,
    F05RepeatVotes,
    F06CarryPrepared,
    F08DistinctViewChanges,
    F14NullRequests,
    F16VouchForClients,
    F18RequestTimers,
    F21JoinOnWeakQuorum,
    F22NeverLower,
    F23PieceByDigest,
    F24SwitchSource,
    F25FullCertificate,
    F26CompareCheckpoints,
    F26NameTheKeys,
    F27ServeLaggards,
    F28OneOwner,
    F29BoundedBacklog,
    F30Watermarks,
    F31ClientQuotas,
    F32CheckApprovals,
    F32CheckClients,
    F33ParkEarlyVotes,
    F34FetchedIsDelivered,
    F35CutTornTail,
    F35HoleInGroup,
    F35MendFromOthers,
    F36FailStop,
    F41LearnAfterLoss,
    F42ResignAfterRestart,
    F43BoundedBytes,
    F44SkipToCertificate,
    F45StateFollows,
    F46DurableCheckpoint,
    F47UncertifiedIsGone,
    F48BoundOffers,
    F49SalvageSideFiles,
    F50UnsyncedHoleIsTail,
}

#[cfg(feature = "zoo")]
mod switch {
    use super::Defence;
    use std::cell::Cell;

    thread_local!(static OFF: Cell<Option<Defence>> = const { Cell::new(None) });

    /// Whether `defence` stands on this thread.
    #[must_use]
    pub fn stands(defence: Defence) -> bool {
        OFF.get() != Some(defence)
    }

    /// Runs `scenario` with `defence` taken away on this thread.
    pub fn without<R>(defence: Defence, scenario: impl FnOnce() -> R) -> R {
        struct Restore;
        impl Drop for Restore {
            fn drop(&mut self) {
                OFF.set(None);
            }
        }
        let _restore = Restore;
        OFF.set(Some(defence));
        scenario()
    }
}

#[cfg(feature = "zoo")]
pub use switch::{stands, without};

/// Whether `defence` stands. Without the feature `zoo`, always.
#[cfg(not(feature = "zoo"))]
#[must_use]
#[inline(always)]
pub const fn stands(_defence: Defence) -> bool {
    true
}
