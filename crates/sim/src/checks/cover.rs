//! Cover: when nothing more is asked for, the stable checkpoint comes to cover all that is delivered
//! (rules C3 and T4 of `docs/protocol/pbft.md`), so that windows move and logs are let go.

use super::{Violation, demand};
use std::collections::BTreeMap;
use tercio_types::{ReplicaId, SeqNum};

/// Where each correct replica's stable checkpoint was seen last.
#[derive(Clone, Debug, Default)]
pub struct Cover {
    stable: BTreeMap<ReplicaId, SeqNum>,
}

impl Cover {
    /// A correct replica's stable checkpoint and the last number that it delivered.
    ///
    /// # Errors
    /// When the checkpoint went back though the replica went on running.
    pub fn stands(&mut self, by: ReplicaId, stable: SeqNum) -> Result<(), Violation> {
        let before = self.stable.insert(by, stable).unwrap_or_default();
        demand(stable >= before, "cover", || {
            format!("the stable checkpoint of {by:?} went back from {before} to {stable}")
        })
    }

    /// A replica starts again, from what its disk has.
    pub fn restarted(&mut self, by: ReplicaId) {
        self.stable.remove(&by);
    }

    /// Whether a replica that delivered up to `delivered` is covered by `stable`.
    #[must_use]
    pub fn covers(stable: SeqNum, delivered: SeqNum) -> bool {
        stable >= delivered
    }

    /// The network was idle for long, and a correct replica stands here.
    ///
    /// # Errors
    /// When something that it delivered is not covered.
    pub fn idle(by: ReplicaId, stable: SeqNum, delivered: SeqNum) -> Result<(), Violation> {
        demand(Self::covers(stable, delivered), "cover", || {
            format!(
                "{by:?} delivered up to {delivered}, and its stable checkpoint is {stable}, though \
                 nothing more is to be done"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_stays_or_goes_back_is_caught() {
        let me = ReplicaId(1);
        let mut check = Cover::default();
        check.stands(me, SeqNum(8)).unwrap();
        check.stands(ReplicaId(2), SeqNum(4)).unwrap();
        assert!(check.stands(me, SeqNum(7)).is_err());
        check.restarted(me);
        check.stands(me, SeqNum(4)).unwrap();
        Cover::idle(me, SeqNum(9), SeqNum(9)).unwrap();
        assert!(Cover::idle(me, SeqNum(8), SeqNum(9)).is_err());
    }
}
