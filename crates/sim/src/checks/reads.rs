//! Reads: what a client is told of the state is what the state was. An ordered read is answered
//! from the state at its place in the order; f+1 equal answers to a query come from a state that
//! existed, no older than the height that goes with them.

use super::{Violation, demand};
use std::collections::{BTreeMap, BTreeSet};
use tercio_types::Height;

/// How many operations were executed, as correct replicas had it.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Within each block, what it was after each of its parts.
    counts: BTreeMap<Height, BTreeSet<u64>>,
}

impl Reads {
    /// A correct replica executed a block, or a part of it: this many operations.
    pub fn executed(&mut self, height: Height, count: u64) {
        self.counts.entry(height).or_default().insert(count);
    }

    /// The count after the last block up to `height`.
    fn after(&self, height: Height) -> u64 {
        let last = self.counts.range(..=height).next_back();
        last.and_then(|(_, counts)| counts.last().copied()).unwrap_or(0)
    }

    /// A client was told, by an ordered read, that in the block at `height` it was `count`.
    ///
    /// # Errors
    /// When it never was.
    pub fn read(&self, height: Height, count: u64) -> Result<(), Violation> {
        let before = height.0.checked_sub(1).map_or(0, |below| self.after(Height(below)));
        let within = self.counts.get(&height).is_some_and(|counts| counts.contains(&count));
        demand(before == count || within, "reads", || {
            format!("an ordered read in block {height} gave {count}; before it was {before}")
        })
    }

    /// A client was told, by f+1 equal answers from `height` or above, that it was `count`.
    ///
    /// # Errors
    /// When it never was at this height or above.
    pub fn answered(&self, height: Height, count: u64) -> Result<(), Violation> {
        let mut later = self.counts.range(Height(height.0 + 1)..);
        let existed = later.any(|(_, counts)| counts.last() == Some(&count));
        demand(existed || self.after(height) == count, "reads", || {
            format!("a query was answered {count} at height {height}: no such state existed")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_never_were_are_caught() {
        let mut check = Reads::default();
        for (height, count) in [(1, 2), (2, 2), (3, 4), (3, 5), (5, 9)] {
            check.executed(Height(height), count);
        }
        for (height, count) in [(1, 0), (1, 2), (3, 2), (3, 4), (4, 5), (5, 9)] {
            check.read(Height(height), count).unwrap();
        }
        for (height, count) in [(1, 1), (3, 0), (5, 4), (2, 4)] {
            assert!(check.read(Height(height), count).is_err(), "{count} in {height}");
        }
        for (height, count) in [(0, 0), (0, 9), (2, 2), (3, 5), (4, 9)] {
            check.answered(Height(height), count).unwrap();
        }
        // Within a block nobody is asked; what a client was told before is not taken back.
        for (height, count) in [(0, 4), (3, 2), (5, 5), (1, 0)] {
            assert!(check.answered(Height(height), count).is_err(), "{count} at {height}");
        }
    }
}
