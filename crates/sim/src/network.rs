//! Links between participants: each frame is lost, doubled, or arrives after some time, as its
//! link's [`Quality`] and the seed say. Nothing keeps frames of one link in order.

use crate::Rng;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_types::{Principal, ReplicaId};

/// What a link does to frames. Chances are per mille.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quality {
    /// The shortest and the longest time under way.
    pub delay: (Duration, Duration),
    /// How many frames never arrive.
    pub loss: u64,
    /// How many arrive twice.
    pub duplicate: u64,
    /// How many take up to twenty times longer, so that others overtake them.
    pub straggle: u64,
    /// How many arrive with a bit flipped.
    pub damage: u64,
}

impl Quality {
    /// A local network without loss.
    pub const GOOD: Self = Self {
        delay: (Duration::from_micros(100), Duration::from_millis(1)),
        loss: 0,
        duplicate: 0,
        straggle: 0,
        damage: 0,
    };

    /// Every frame takes the same time: nothing is overtaken.
    pub const STEADY: Self =
        Self { delay: (Duration::from_millis(1), Duration::from_millis(1)), ..Self::GOOD };
}

/// The links.
#[derive(Clone, Debug)]
pub struct Network {
    quality: Quality,
    links: BTreeMap<(Principal, Principal), Quality>,
    cuts: BTreeSet<(Principal, Principal)>,
    /// The part of a partition that each replica is in. Clients reach all parts.
    parts: BTreeMap<ReplicaId, u64>,
}

impl Network {
    /// All links alike.
    #[must_use]
    pub fn new(quality: Quality) -> Self {
        Self { quality, links: BTreeMap::new(), cuts: BTreeSet::new(), parts: BTreeMap::new() }
    }

    /// Changes all links that have no quality of their own.
    pub fn set_quality(&mut self, quality: Quality) {
        self.quality = quality;
    }

    /// Changes one direction of one link.
    pub fn set_link(&mut self, from: Principal, to: Principal, quality: Quality) {
        self.links.insert((from, to), quality);
    }

    /// Nothing gets from `from` to `to` any more; the other direction is left as it is.
    pub fn cut(&mut self, from: Principal, to: Principal) {
        self.cuts.insert((from, to));
    }

    /// Cuts `replica` off from everybody in `others`, both ways.
    pub fn isolate(&mut self, replica: ReplicaId, others: impl IntoIterator<Item = Principal>) {
        let me = Principal::Replica(replica);
        for other in others.into_iter().filter(|other| *other != me) {
            self.cut(me, other);
            self.cut(other, me);
        }
    }

    /// Replicas in different parts do not hear each other.
    pub fn partition(&mut self, parts: BTreeMap<ReplicaId, u64>) {
        self.parts = parts;
    }

    /// All cuts and partitions end.
    pub fn mend(&mut self) {
        self.cuts.clear();
        self.parts.clear();
    }

    /// All cuts and partitions end, and every link is as `quality` says.
    pub fn heal(&mut self, quality: Quality) {
        self.mend();
        self.links.clear();
        self.quality = quality;
    }

    fn connected(&self, from: Principal, to: Principal) -> bool {
        let part = |p| match p {
            Principal::Replica(id) => self.parts.get(&id),
            Principal::Client(_) => None,
        };
        let apart = match (part(from), part(to)) {
            (Some(a), Some(b)) => a != b,
            _ => false,
        };
        !apart && !self.cuts.contains(&(from, to))
    }

    /// When a frame that is sent now arrives: never, once, or twice.
    pub fn arrivals(
        &self,
        from: Principal,
        to: Principal,
        now: Instant,
        rng: &mut Rng,
    ) -> impl Iterator<Item = Instant> + use<> {
        let quality = self.links.get(&(from, to)).unwrap_or(&self.quality);
        let mut copies = [None, None];
        if self.connected(from, to) && !rng.chance(quality.loss) {
            let count = if rng.chance(quality.duplicate) { 2 } else { 1 };
            for copy in copies.iter_mut().take(count) {
                let (low, high) = quality.delay;
                let slower =
                    if rng.chance(quality.straggle) { rng.between(2, 20) as u32 } else { 1 };
                *copy = Some(now + rng.duration(low, high) * slower);
            }
        }
        copies.into_iter().flatten()
    }

    /// The frame as it arrives.
    pub fn damaged(&self, bytes: Bytes, rng: &mut Rng) -> Bytes {
        if self.quality.damage == 0 || !rng.chance(self.quality.damage) {
            return bytes;
        }
        let mut bytes = bytes.to_vec();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
        bytes.into()
    }
}
