//! Views: nobody enters a view above the first unless a quorum of distinct replicas asked for it
//! (Castro and Liskov, OSDI'99 section 4.4).

use super::{Violation, demand};
use std::collections::{BTreeMap, BTreeSet};
use tercio_types::{Membership, ReplicaId, ReplicaSet, View};

/// Who asked for which view, and which views were entered.
#[derive(Clone, Debug, Default)]
pub struct Views {
    asked: BTreeMap<View, ReplicaSet>,
    entered: BTreeSet<View>,
}

impl Views {
    /// A correct replica sent a VIEW-CHANGE for `view`.
    pub fn asked(&mut self, by: ReplicaId, view: View) {
        self.asked.entry(view).or_default().insert(by);
    }

    /// A correct replica is in `view`, which has begun. `faulty` replicas may have asked for
    /// anything.
    ///
    /// # Errors
    /// When no quorum can have asked for it.
    pub fn entered(
        &mut self,
        by: ReplicaId,
        view: View,
        membership: &Membership,
        faulty: ReplicaSet,
    ) -> Result<(), Violation> {
        if view == View(0) || self.entered.contains(&view) {
            return Ok(());
        }
        let mut asked = self.asked.get(&view).copied().unwrap_or_default();
        // The primary of a view may begin it before its own VIEW-CHANGE is on its way.
        if membership.primary(view) == by {
            asked.insert(by);
        }
        let (correct, quorum) = (asked.len(), membership.quorum());
        demand(correct + faulty.len() >= quorum, "views", || {
            format!(
                "{by:?} entered view {view}, for which {correct} correct replicas sent a \
                 VIEW-CHANGE; with {} faulty ones that is no quorum of {quorum}",
                faulty.len()
            )
        })?;
        self.entered.insert(view);
        Ok(())
    }

    /// How many views above the first were entered by a correct replica.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entered.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cast;

    #[test]
    fn a_view_without_a_quorum_behind_it_is_caught() {
        let cast = Cast::new(4);
        let mut check = Views::default();
        let faulty: ReplicaSet = [ReplicaId(3)].into_iter().collect();
        let me = ReplicaId(2);
        check.asked(ReplicaId(0), View(1));
        check.asked(ReplicaId(0), View(1));
        assert!(check.entered(me, View(1), cast.membership(), faulty).is_err());
        check.asked(ReplicaId(1), View(1));
        check.entered(me, View(1), cast.membership(), faulty).unwrap();
        assert_eq!(check.count(), 1);
    }
}
