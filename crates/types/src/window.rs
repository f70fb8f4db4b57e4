//! Which of a client's request numbers are done: everything up to a point, and a window of marks
//! above it, since a client may have many requests under way.

use crate::RequestSeq;

/// How far above the lowest open number a client's numbers may run.
pub const WINDOW: u64 = 1024;

const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers of one client that are done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestWindow {
    low: u64,
    marks: [u64; WORDS],
}

impl Default for RequestWindow {
    fn default() -> Self {
        Self { low: 0, marks: [0; WORDS] }
    }
}

impl RequestWindow {
    /// A window as it was: `low` and the marks above it (the number `low + 1 + i` is bit `i % 64`
    /// of word `i / 64`). `None` when the number after `low` is marked: that is not how a window
    /// is written down.
    #[must_use]
    pub fn from_parts(low: RequestSeq, marks: [u64; WORDS]) -> Option<Self> {
        (marks[0] & 1 == 0).then_some(Self { low: low.0, marks })
    }

    /// All numbers up to here are done.
    #[must_use]
    pub fn low(&self) -> RequestSeq {
        RequestSeq(self.low)
    }

    /// The marks above `low`.
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
        if seq.0 <= self.low {
            return true;
        }
        let i = seq.0 - self.low - 1;
        i < WINDOW && self.marks[(i / 64) as usize] >> (i % 64) & 1 == 1
    }

    /// Marks `seq` as done; false when it was, or lies beyond the window.
    pub fn insert(&mut self, seq: RequestSeq) -> bool {
        if self.contains(seq) || self.is_beyond(seq) {
            return false;
        }
        let i = seq.0 - self.low - 1;
        self.marks[(i / 64) as usize] |= 1 << (i % 64);
        let done = self.leading();
        if done > 0 {
            self.shift(done);
        }
        true
    }

    /// How many marks follow `low` without a gap.
    fn leading(&self) -> u64 {
        let mut total = 0;
        for word in self.marks {
            let ones = word.trailing_ones();
            total += u64::from(ones);
            if ones < 64 {
                break;
            }
        }
        total
    }

    fn shift(&mut self, by: u64) {
        self.low += by;
        let (words, bits) = ((by / 64) as usize, (by % 64) as u32);
        for i in 0..WORDS {
            let at = |j: usize| self.marks.get(j).copied().unwrap_or(0);
            let (near, far) = (at(i + words), at(i + words + 1));
            self.marks[i] = if bits == 0 { near } else { near >> bits | far << (64 - bits) };
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
        assert_eq!(copy, Some(window));
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
