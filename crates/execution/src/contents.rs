//! Which package a client's executed numbers came in.
//!
//! A number is executed once; the same package again is answered with the result that it had. Another
//! package under a number that was used is a fault of its client (two processes under one id, numbers
//! that were lost), and the old result would tell that client that its new operation was executed.
//! So the engine remembers the digests of packages, as long as their results are kept.
//!
//! This is no part of the certified state: it changes what a replica answers, and nothing that it
//! executes or hashes. Blocks that are executed again on recovery bring it back; after a snapshot was
//! restored it begins anew, and such a number gets its old result.

use std::collections::VecDeque;
use std::ops::Range;
use tercio_types::Digest;

/// A package with an operation that was executed.
#[derive(Clone, Copy, Debug)]
struct Known {
    first: u64,
    /// The beginning of its digest. Only the client itself could find two packages that share it,
    /// and would get an old result for that.
    digest: u64,
    /// Where the numbers that were executed with it begin and end, from `first` on.
    from: u32,
    to: u32,
    /// Whether numbers of it were used by another package before.
    reuses: bool,
}

impl Known {
    /// The number after the last one that was executed with it.
    fn end(&self) -> u64 {
        self.first + u64::from(self.to)
    }

    fn overlaps(&self, numbers: &Range<u64>) -> bool {
        self.first + u64::from(self.from) < numbers.end && self.end() > numbers.start
    }
}

fn short(digest: &Digest) -> u64 {
    let (head, _) = digest.0.split_first_chunk().expect("a digest has 32 bytes");
    u64::from_le_bytes(*head)
}

/// The packages of one client, in ascending order of their first numbers; each was the first to use
/// a number that lies within the window or below it by less, so there are at most some thousands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents(VecDeque<Known>);

impl Contents {
    fn find(&self, first: u64, digest: u64) -> Option<usize> {
        let from = self.0.partition_point(|known| known.first < first);
        let mut same = self.0.range(from..).take_while(|known| known.first == first);
        same.position(|known| known.digest == digest).map(|at| from + at)
    }

    /// Whether a number of the package with this digest was used by another one, as far as that is
    /// known.
    pub(crate) fn reuses(&self, numbers: Range<u64>, digest: &Digest) -> bool {
        if let Some(at) = self.find(numbers.start, short(digest)) {
            return self.0[at].reuses;
        }
        let mut below = self.0.iter().take_while(|known| known.first < numbers.end);
        below.any(|known| known.overlaps(&numbers))
    }

    /// Takes note of a package whose first number is `first` and of which the first and the last of
    /// `numbers` were executed. What lies below `floor` is forgotten, with its results.
    pub(crate) fn executed(
        &mut self,
        first: u64,
        numbers: Range<u64>,
        digest: &Digest,
        reuses: bool,
        floor: u64,
    ) {
        while self.0.pop_front_if(|known| known.end() <= floor).is_some() {}
        let offset = |n: u64| u32::try_from(n - first).expect("a package fits into a frame");
        let (from, to, digest) = (offset(numbers.start), offset(numbers.end), short(digest));
        let known = Known { first, digest, from, to, reuses };
        // Numbers rise, so a search is for a package that comes late or again.
        if self.0.back().is_none_or(|last| last.first < first) {
            return self.0.push_back(known);
        }
        match self.find(first, digest) {
            Some(at) => self.0[at].to = to,
            None => {
                let at = self.0.partition_point(|known| known.first <= first);
                self.0.insert(at, known);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn named(content: u8) -> Digest {
        Digest([content; 32])
    }

    /// Packages of random numbers, executed as far as their numbers are fresh; a model knows the
    /// content of each number.
    #[test]
    fn a_package_is_told_from_another_under_its_numbers() {
        let mut x = 3u64;
        let mut below = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        let (mut contents, mut model) = (Contents::default(), BTreeMap::<u64, (u64, u8)>::new());
        let (mut others, mut most) = (0, 0);
        for round in 0..20_000u64 {
            let floor = (round / 2).saturating_sub(64);
            let first = (round / 2 + below(40)).max(floor);
            let len = 1 + below(6);
            // The length is a part of the content.
            let (numbers, content) = (first..first + len, (40 * below(6) + len) as u8);
            let is_other = |n: &u64| model.get(n).is_some_and(|name| *name != (first, content));
            let expected = numbers.clone().any(|n| is_other(&n));
            let reuses = contents.reuses(numbers.clone(), &named(content));
            assert_eq!(reuses, expected, "round {round}: {numbers:?} {content}");
            others += u64::from(reuses);
            let fresh = numbers.clone().filter(|n| !model.contains_key(n)).collect::<Vec<_>>();
            if let (Some(from), Some(last)) = (fresh.first(), fresh.last()) {
                contents.executed(first, *from..last + 1, &named(content), reuses, floor);
            }
            model.extend(fresh.iter().map(|n| (*n, (first, content))));
            // Sent again it is what it was.
            let again = contents.reuses(numbers, &named(content));
            assert_eq!(again, expected, "round {round}");
            most = most.max(contents.0.len());
        }
        assert!(others > 1000, "{others}");
        assert!(most < 300, "{most} packages are remembered of 64 numbers");
    }
}
