//! Blame: what a correct replica takes for evidence names nobody who is correct, whatever restarts,
//! lost disks and repeated messages lie between.

use super::{Violation, demand};
use std::collections::BTreeMap;
use tercio_types::{ReplicaId, ReplicaSet};

/// Looks at whom evidence names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blame;

impl Blame {
    /// A correct replica has evidence against these, each for a reason.
    ///
    /// # Errors
    /// When it names one that is not `faulty`.
    pub fn accused(
        by: ReplicaId,
        accused: &BTreeMap<ReplicaId, &'static str>,
        faulty: ReplicaSet,
    ) -> Result<(), Violation> {
        for (of, reason) in accused {
            demand(faulty.contains(*of), "blame", || {
                format!("{by:?} has evidence ({reason}) against {of:?}, which is correct")
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_against_a_correct_replica_is_caught() {
        let (by, liar) = (ReplicaId(0), ReplicaId(3));
        let faulty: ReplicaSet = [liar].into_iter().collect();
        let mut accused = BTreeMap::from([(liar, "equivocation")]);
        Blame::accused(by, &accused, faulty).unwrap();
        accused.insert(ReplicaId(1), "double_vote");
        let violation = Blame::accused(by, &accused, faulty).unwrap_err();
        assert_eq!(violation.property, "blame");
        assert!(violation.seen.contains("double_vote") && violation.seen.contains("R1"));
    }
}
