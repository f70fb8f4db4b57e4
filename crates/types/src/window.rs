//! Which of a client's request numbers are done: everything up to a point, and a window of marks
//! above it, since a client may have many requests in flight.

use crate::RequestSeq;

/// How far above the lowest open number a client's numbers may run.
pub const WINDOW: u64 = 1024;

const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers of one client that are done.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestWindow {
    low: u64,
    /// Number `k` of the `WINDOW` above `low` is bit `k % WINDOW`, so that nothing moves when
    /// `low` does.
    marks: [u64; WORDS],
}

fn place(number: u64) -> (usize, u64) {
    let place = number % WINDOW;
    ((place / 64) as usize, 1 << (place % 64))
}

impl RequestWindow {
    /// A window as [`Self::low`] and [`Self::marks`] gave it. `None` when the number after `low`
    /// is marked: that is not how a window is written down; or when `low` is too great to go on.
    #[must_use]
    pub fn from_parts(low: RequestSeq, marks: [u64; WORDS]) -> Option<Self> {
        let next = low.0.checked_add(2 * WINDOW).map(|_| place(low.0 + 1));
        next.is_some_and(|(word, bit)| marks[word] & bit == 0).then_some(Self { low: low.0, marks })
    }

    /// All numbers up to here are done.
    #[must_use]
    pub fn low(&self) -> RequestSeq {
        RequestSeq(self.low)
    }

    /// The marks of the numbers above `low`: number `k` is bit `k % 64` of word
    /// `k % WINDOW / 64`.
    #[must_use]
    pub fn marks(&self) -> &[u64; WORDS] {
        &self.marks
    }

    /// Whether `seq` lies beyond what can be marked.
    #[must_use]
    pub fn is_beyond(&self, seq: RequestSeq) -> bool {
        seq.0.saturating_sub(self.low) > WINDOW
    }

    /// Whether `seq` is done.
    #[must_use]
    pub fn contains(&self, seq: RequestSeq) -> bool {
        let (word, bit) = place(seq.0);
        seq.0 <= self.low || !self.is_beyond(seq) && self.marks[word] & bit != 0
    }

    /// Marks `seq` as done; false when it was, or lies beyond the window.
    pub fn insert(&mut self, seq: RequestSeq) -> bool {
        if self.contains(seq) || self.is_beyond(seq) {
            return false;
        }
        let (word, bit) = place(seq.0);
        self.marks[word] |= bit;
        loop {
            let (word, bit) = place(self.low + 1);
            if self.marks[word] & bit == 0 {
                return true;
            }
            self.marks[word] &= !bit;
            self.low += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set_of_all_numbers_ever_done() {
        let mut window = RequestWindow::default();
        let mut set = BTreeSet::new();
        let mut x = 1u64;
        for round in 0..50_000u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let seq = RequestSeq(1 + round / 2 + (x >> 33) % 300);
            let beyond = window.is_beyond(seq);
            assert_eq!(window.contains(seq), set.contains(&seq.0), "{seq}");
            assert_eq!(window.insert(seq), !beyond && set.insert(seq.0), "{seq}");
        }
        let copy = RequestWindow::from_parts(window.low(), *window.marks());
        assert_eq!(copy, Some(window.clone()));
        let (word, bit) = place(window.low + 1);
        let mut marks = window.marks;
        marks[word] |= bit;
        assert_eq!(RequestWindow::from_parts(window.low(), marks), None);
    }

    #[test]
    fn zero_and_far_numbers() {
        let mut window = RequestWindow::default();
        assert!(!window.insert(RequestSeq(0)), "numbers start at one");
        assert!(window.is_beyond(RequestSeq(WINDOW + 1)) && !window.is_beyond(RequestSeq(WINDOW)));
        assert!(!window.insert(RequestSeq(u64::MAX)));
        for seq in (1..=WINDOW).rev() {
            assert!(window.insert(RequestSeq(seq)));
        }
        assert_eq!(window.low(), RequestSeq(WINDOW));
        assert_eq!(window.marks(), &[0; WORDS]);
    }
}
