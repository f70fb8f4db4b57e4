//! The loads of the Yahoo! Cloud Serving Benchmark (Cooper et al., SoCC 2010) that a key-value store
//! without scans can serve.

use crate::rng::{Rng, mix};
use std::str::FromStr;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Workload {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// Half reads, half reads followed by an update of the same key.
    F,
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "a" | "A" => Ok(Self::A),
            "b" | "B" => Ok(Self::B),
            "c" | "C" => Ok(Self::C),
            "f" | "F" => Ok(Self::F),
            _ => Err(format!("'{text}' is none of the workloads a, b, c, f")),
        }
    }
}

/// One step of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the key.
    Read,
    /// Set the key.
    Update,
    /// Read the key, then set it.
    ReadUpdate,
}

impl Workload {
    /// What to do next.
    pub fn step(self, rng: &mut Rng) -> Step {
        match self {
            Self::A if rng.percent(50) => Step::Update,
            Self::B if rng.percent(5) => Step::Update,
            Self::F if rng.percent(50) => Step::ReadUpdate,
            _ => Step::Read,
        }
    }
}

/// Which keys are chosen.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Each as often as any other.
    Uniform {
        /// How many keys there are.
        keys: u64,
    },
    /// The k-th most popular in proportion to 1 / k^theta.
    Zipf(Zipf),
}

impl Choice {
    /// Uniform when `theta` is zero.
    ///
    /// # Panics
    /// When there are no keys, or theta is negative.
    #[must_use]
    pub fn new(keys: u64, theta: f64) -> Self {
        assert!(keys > 0, "there is nothing to choose from");
        if theta == 0.0 { Self::Uniform { keys } } else { Self::Zipf(Zipf::new(keys, theta)) }
    }

    /// The next key's number.
    pub fn key(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform { keys } => rng.below(*keys),
            // Popular keys are not neighbours.
            Self::Zipf(zipf) => mix(zipf.rank(rng)) % zipf.keys,
        }
    }
}

/// Zipf's distribution over ranks, by rejection and inversion (Hörmann and Derflinger, TOMACS 1996):
/// for any exponent, one too, in constant time and memory.
#[derive(Clone, Debug)]
pub struct Zipf {
    keys: u64,
    theta: f64,
    from: f64,
    until: f64,
    /// Below this distance a rank is taken without looking closer.
    near: f64,
}

impl Zipf {
    /// Over the ranks 1 to `keys`.
    ///
    /// # Panics
    /// When there are no keys, or theta is not positive.
    #[must_use]
    pub fn new(keys: u64, theta: f64) -> Self {
        assert!(keys > 0 && theta > 0.0, "ranks from 1, and an exponent above 0");
        let mut zipf = Self { keys, theta, from: 0.0, until: 0.0, near: 0.0 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.until = zipf.integral(keys as f64 + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// The integral of the weight from 1 on.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.theta) * log;
        if t.abs() < 1e-8 { log * (1.0 + t / 2.0) } else { t.exp_m1() / (1.0 - self.theta) }
    }

    fn inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.theta)).max(-1.0);
        if t.abs() < 1e-8 {
            (y * (1.0 - t / 2.0)).exp()
        } else {
            (t.ln_1p() / (1.0 - self.theta)).exp()
        }
    }

    /// A rank, 1 the most frequent.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let y = self.until + rng.unit() * (self.from - self.until);
            let x = self.inverse(y);
            let rank = (x + 0.5).floor().clamp(1.0, self.keys as f64);
            if rank - x <= self.near || y >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_as_frequent_as_zipf_says() {
        for theta in [0.6, 0.99, 1.0, 1.2] {
            let (keys, draws) = (1000u64, 400_000u32);
            let zipf = Zipf::new(keys, theta);
            let mut rng = Rng::new(7);
            let mut counts = vec![0u32; keys as usize + 1];
            (0..draws).for_each(|_| counts[zipf.rank(&mut rng) as usize] += 1);
            let total: f64 = (1..=keys).map(|k| (k as f64).powf(-theta)).sum();
            for rank in [1usize, 2, 3, 10] {
                let expected = (rank as f64).powf(-theta) / total * f64::from(draws);
                let got = f64::from(counts[rank]);
                assert!((got / expected - 1.0).abs() < 0.06, "{theta} {rank}: {got} {expected}");
            }
            assert_eq!(counts[0], 0);
        }
    }

    #[test]
    fn workloads_have_their_shares() {
        let mut rng = Rng::new(3);
        let mut share = |workload: Workload, step| {
            (0..100_000).filter(|_| workload.step(&mut rng) == step).count() as f64 / 1e5
        };
        assert!((share(Workload::A, Step::Update) - 0.5).abs() < 0.01);
        assert!((share(Workload::B, Step::Update) - 0.05).abs() < 0.01);
        assert!((share(Workload::C, Step::Read) - 1.0).abs() < f64::EPSILON);
        assert!((share(Workload::F, Step::ReadUpdate) - 0.5).abs() < 0.01);
        let uniform = Choice::new(10, 0.0);
        assert!((0..1000).all(|_| uniform.key(&mut rng) < 10));
    }
}
