//! Links between participants: each frame is lost, doubled, or arrives after some time, as its
//! link's [`Quality`] and the seed say. Nothing keeps frames of one link in order.

use crate::Rng;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_types::{Principal, ReplicaId, ReplicaSet};
use tercio_wire::Kind;

/// What a link does to frames. Chances are per mille.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quality {
    /// The shortest and the longest time in flight.
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

/// A bad hour of the network for messages of some kinds between replicas: what nobody plans and
/// a large enough number of networks meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hush {
    /// Which messages.
    pub kinds: Vec<Kind>,
    /// From whom.
    pub from: ReplicaSet,
    /// To whom.
    pub to: ReplicaSet,
    /// How many of a thousand are lost.
    pub loss: u64,
}

impl Hush {
    fn covers(&self, from: Principal, to: Principal, kind: Kind) -> bool {
        let (Principal::Replica(from), Principal::Replica(to)) = (from, to) else { return false };
        self.from.contains(from) && self.to.contains(to) && self.kinds.contains(&kind)
    }
}

/// The links.
#[derive(Clone, Debug)]
pub struct Network {
    quality: Quality,
    links: BTreeMap<(Principal, Principal), Quality>,
    hushes: Vec<Hush>,
    cuts: BTreeSet<(Principal, Principal)>,
    /// The part of a partition that each replica is in. Clients reach all parts.
    parts: BTreeMap<ReplicaId, u64>,
}

impl Network {
    /// All links alike.
    #[must_use]
    pub fn new(quality: Quality) -> Self {
        Self {
            quality,
            links: BTreeMap::new(),
            hushes: Vec::new(),
            cuts: BTreeSet::new(),
            parts: BTreeMap::new(),
        }
    }

    /// Changes all links that have no quality of their own.
    pub fn set_quality(&mut self, quality: Quality) {
        self.quality = quality;
    }

    /// Changes one direction of one link.
    pub fn set_link(&mut self, from: Principal, to: Principal, quality: Quality) {
        self.links.insert((from, to), quality);
    }

    /// Messages of some kinds are lost from now on, until the network heals.
    pub fn hush(&mut self, hush: Hush) {
        self.hushes.push(hush);
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

    /// All cuts, partitions and hushes end, and every link is as `quality` says. A link of its own
    /// quality stays as long as it is, and does nothing else to frames any more.
    pub fn heal(&mut self, quality: Quality) {
        self.mend();
        self.hushes.clear();
        for link in self.links.values_mut() {
            *link = Quality { delay: link.delay, ..quality };
        }
        self.quality = quality;
    }

    /// How many links have a quality of their own.
    #[must_use]
    pub fn own_links(&self) -> usize {
        self.links.len()
    }

    fn quality(&self, from: Principal, to: Principal) -> &Quality {
        self.links.get(&(from, to)).unwrap_or(&self.quality)
    }

    fn hushed(&self, from: Principal, to: Principal, kind: Option<Kind>, rng: &mut Rng) -> bool {
        let mut over = self.hushes.iter().filter(|h| kind.is_some_and(|k| h.covers(from, to, k)));
        over.any(|hush| rng.chance(hush.loss))
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
        (from, to): (Principal, Principal),
        kind: Option<Kind>,
        now: Instant,
        rng: &mut Rng,
    ) -> impl Iterator<Item = Instant> + use<> {
        let quality = self.quality(from, to);
        let mut copies = [None, None];
        let connected = self.connected(from, to) && !self.hushed(from, to, kind, rng);
        if connected && !rng.chance(quality.loss) {
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
    pub fn damaged(
        &self,
        (from, to): (Principal, Principal),
        bytes: Bytes,
        rng: &mut Rng,
    ) -> Bytes {
        let damage = self.quality(from, to).damage;
        if damage == 0 || !rng.chance(damage) {
            return bytes;
        }
        let mut bytes = bytes.to_vec();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::CHECKPOINT;

    fn replica(id: u16) -> Principal {
        Principal::Replica(ReplicaId(id))
    }

    fn arrives(network: &Network, from: u16, to: u16, kind: Kind) -> Option<Instant> {
        let link = (replica(from), replica(to));
        network.arrivals(link, Some(kind), Instant(0), &mut Rng::new(1)).next()
    }

    #[test]
    fn a_hush_loses_some_kinds_on_some_links_until_all_is_healed() {
        let mut network = Network::new(Quality::STEADY);
        let set = |id| [ReplicaId(id)].into_iter().collect::<ReplicaSet>();
        network.hush(Hush { kinds: vec![KIND], from: set(0), to: set(1), loss: 1000 });
        network.mend();
        assert_eq!(arrives(&network, 0, 1, KIND), None);
        for (from, to, kind) in [(1, 0, KIND), (0, 2, KIND), (0, 1, Kind::ATTEST)] {
            assert!(arrives(&network, from, to, kind).is_some());
        }
        network.heal(Quality::STEADY);
        assert!(arrives(&network, 0, 1, KIND).is_some());
    }

    #[test]
    fn a_far_link_stays_far_and_loses_nothing_more() {
        let far = (Duration::from_millis(30), Duration::from_millis(30));
        let mut network = Network::new(Quality::STEADY);
        network.set_link(
            replica(0),
            replica(1),
            Quality { delay: far, loss: 1000, ..Quality::GOOD },
        );
        assert_eq!(arrives(&network, 0, 1, KIND), None);
        assert_eq!(arrives(&network, 1, 0, KIND), Some(Instant(1_000_000)));
        network.heal(Quality::STEADY);
        assert_eq!(arrives(&network, 0, 1, KIND), Some(Instant(30_000_000)));
        assert_eq!(network.own_links(), 1);
    }
}
