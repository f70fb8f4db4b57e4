//! A set of replicas as a bitmap: what votes are counted in, and what a network card reports.

use crate::ReplicaId;
use std::fmt;

/// The most replicas that a membership can have.
pub const MAX_REPLICAS: usize = 128;

/// A set of replicas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReplicaSet(pub u128);

impl ReplicaSet {
    /// The set without members.
    pub const EMPTY: Self = Self(0);

    /// Adds `replica`; false when it was in already.
    pub fn insert(&mut self, replica: ReplicaId) -> bool {
        assert!(replica.index() < MAX_REPLICAS, "replica ids are checked at the edge");
        let bit = 1u128 << replica.0;
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }

    /// Whether `replica` is in.
    #[must_use]
    pub fn contains(self, replica: ReplicaId) -> bool {
        replica.index() < MAX_REPLICAS && self.0 >> replica.0 & 1 == 1
    }

    /// How many are in.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether none is in.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = ReplicaId> {
        let mut left = self.0;
        // It knows how many it gives.
        (0..left.count_ones()).map(move |_| {
            let next = ReplicaId(left.trailing_zeros() as u16);
            left &= left - 1;
            next
        })
    }

    /// The members once in a circle, beginning with `first` or the next above it.
    pub fn circle(self, first: ReplicaId) -> impl Iterator<Item = ReplicaId> {
        let below = self.below(first);
        Self(self.0 & !below.0).iter().chain(below.iter())
    }

    /// One above the highest number: a list of that length has a place for each.
    #[must_use]
    pub fn bound(self) -> usize {
        (u128::BITS - self.0.leading_zeros()) as usize
    }

    /// Those with numbers below that of `replica`.
    #[must_use]
    pub fn below(self, replica: ReplicaId) -> Self {
        let bit = 1u128.checked_shl(replica.0.into());
        Self(self.0 & bit.map_or(u128::MAX, |bit| bit - 1))
    }
}

impl FromIterator<ReplicaId> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = ReplicaId>>(replicas: I) -> Self {
        let mut set = Self::EMPTY;
        replicas.into_iter().for_each(|r| {
            set.insert(r);
        });
        set
    }
}

/// For people: `0 to 3`, or each when there are holes.
impl fmt::Display for ReplicaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, run) = (self.0.trailing_zeros(), self.len());
        if run > 2 && (self.0 >> first).trailing_ones() as usize == run {
            return write!(f, "{first} to {}", first as usize + run - 1);
        }
        let each: Vec<String> = self.iter().map(|id| id.to_string()).collect();
        f.write_str(&each.join(", "))
    }
}

impl fmt::Debug for ReplicaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_a_run_as_one() {
        let text = |ids: &[u16]| ids.iter().map(|id| ReplicaId(*id)).collect::<ReplicaSet>();
        for (ids, expected) in [
            (&[0, 1, 2, 3][..], "0 to 3"),
            (&[0, 2, 5, 7], "0, 2, 5, 7"),
            (&[0, 1], "0, 1"),
            (&[125, 126, 127], "125 to 127"),
            (&[127], "127"),
            (&[], ""),
        ] {
            assert_eq!(text(ids).to_string(), expected);
            assert_eq!(text(ids).iter().map(|id| id.0).collect::<Vec<_>>(), ids);
        }
        let all = ReplicaSet(u128::MAX);
        assert_eq!((all.to_string().as_str(), all.iter().count()), ("0 to 127", 128));
        let holes = text(&[0, 2, 5, 7]);
        let circle = |first| holes.circle(ReplicaId(first)).map(|id| id.0).collect::<Vec<_>>();
        assert_eq!((circle(0), circle(3)), (vec![0, 2, 5, 7], vec![5, 7, 0, 2]));
        assert_eq!((circle(7), circle(8)), (vec![7, 0, 2, 5], vec![0, 2, 5, 7]));
        assert_eq!((holes.bound(), all.bound(), ReplicaSet::EMPTY.bound()), (8, 128, 0));
        assert_eq!(all.below(ReplicaId(127)).len(), 127);
        assert_eq!(all.below(ReplicaId(300)).len(), 128);
    }
}
