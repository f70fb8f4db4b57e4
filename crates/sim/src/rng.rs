//! Seeded randomness: splitmix64 (Steele, Lea and Flood, OOPSLA 2014). Small, and good enough to
//! choose among faults; nothing secret comes from it.

use std::time::Duration;

/// A stream of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A stream of its own, so that drawing more here changes nothing there.
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }

    /// A number below `n`, which is at least 1. (The bias is below n / 2^64.)
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `per_mille` of 1,000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// A duration from `low` to `high`.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_nanos(self.between(low.as_nanos() as u64, high.as_nanos() as u64))
    }

    /// One of `items`, which are not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 0 that the reference implementation's authors publish.
    #[test]
    fn is_splitmix64() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.bits(), 0x6e78_9e6a_a1b9_65f4);
        assert!((0..1000).all(|_| (3..=5).contains(&rng.between(3, 5))));
    }
}
