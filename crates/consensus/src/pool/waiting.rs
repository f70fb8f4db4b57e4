//! What waits and for how long: what is to be forwarded to others (T2), what enough others have
//! vouched for (A4), and what is held against the primary (T1).

use super::{Key, LONG, RequestPool};
use crate::Instant;
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_types::{ClientId, Package, ReplicaId, RequestSeq};
use tercio_wire::package_len;

/// Rule T2: how many packages of a client, and how many bytes of them, are handed to all at a time.
/// A primary that passes over a client passes over the oldest of them.
const AT_ONCE: usize = 16;
const BYTES_AT_ONCE: usize = 256 << 10;

impl RequestPool {
    /// Its client has sent a waiting package again: it is to be handed on once more.
    pub fn sent_again(&mut self, client: ClientId, first: RequestSeq, now: Instant) {
        let key = (client, first);
        if let Some(pending) = self.find_mut(&key).filter(|p| !p.to_forward) {
            pending.to_forward = true;
            let (id, at) = (pending.id, now + pending.spare);
            self.unforwarded.push_back((at, id, key));
        }
    }

    /// From now on the request is held against the primary.
    pub(super) fn hold(&mut self, key: Key, since: Instant) {
        let Some(pending) = self.find_mut(&key) else { return };
        if pending.held_since.is_none() {
            pending.held_since = Some(since);
            let id = pending.id;
            self.held.insert((since, id), key);
        }
    }

    /// What is held against the primary is so from `since` on only.
    fn hold_from(&mut self, key: Key, since: Instant) {
        let Some(pending) = self.find_mut(&key) else { return };
        let held = pending.held_since.as_mut().map(|held| std::mem::replace(held, since));
        let id = pending.id;
        if let Some(held) = held {
            self.held.remove(&(held, id));
            self.held.insert((since, id), key);
        }
    }

    /// Another replica has handed us a package that we hold. When enough have, it counts as held
    /// against the primary since `since`, but not from before it came, or this view did, and what
    /// waited then has had its time (rule T7): a client that turns to all replicas must not make a
    /// primary leave that has only just got it.
    pub fn vouch(&mut self, package: &Package, by: ReplicaId, since: Instant) {
        let key = (package.client, package.first);
        let (needed, began) = (self.vouchers_needed, self.began);
        let Some(pending) = self.find_mut(&key) else { return };
        if pending.package.digest == package.digest {
            pending.vouchers.insert(by);
            if pending.vouchers.len() >= needed {
                let since = since.max(pending.arrived.max(began) + pending.spare);
                self.hold(key, since);
            }
        }
    }

    /// Releases what arrived until `before` and was not vouched for. Gives how many.
    pub fn expire_unvouched(&mut self, before: Instant) -> u64 {
        let mut expired = 0;
        while let Some((_, id, key)) = self.unvouched.pop_front_if(|(at, ..)| *at <= before) {
            let pending = self.find(&key).filter(|p| p.id == id);
            if pending.is_some_and(|p| p.held_since.is_none()) {
                self.remove(&key);
                expired += 1;
            }
        }
        expired
    }

    /// When the first request arrived that nobody has vouched for enough.
    #[must_use]
    pub fn oldest_unvouched(&self) -> Option<Instant> {
        self.unvouched.front().map(|(at, ..)| *at)
    }

    /// Rule T7: how long so many bytes may take to be ordered and shipped.
    #[must_use]
    pub fn time_for(&self, bytes: usize) -> Duration {
        self.throughput.time_for(bytes)
    }

    /// Everything that waits has waited since now, or since what came before it can have been
    /// ordered (rule T7), and was forwarded to nobody.
    pub(super) fn restart_waiting(&mut self, now: Instant) {
        self.began = now;
        self.admission.restart();
        self.held.clear();
        self.unforwarded.clear();
        self.unvouched.clear();
        let mut ahead = 0;
        for (id, key) in self.by_arrival() {
            ahead += self.find(&key).map_or(0, |pending| package_len(&pending.package));
            let spare = self.throughput.time_for(ahead);
            let since = now + spare;
            let pending = self.find_mut(&key).expect("just listed");
            (pending.to_forward, pending.handed_on, pending.spare) = (true, false, spare);
            let held = pending.held_since.as_mut().map(|held| *held = since).is_some();
            self.unforwarded.push_back((since, id, key));
            if held {
                self.held.insert((since, id), key);
            } else {
                self.unvouched.push_back((since, id, key));
            }
        }
    }

    /// Since when the oldest request is held against the primary of this view.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((since, _), _)| *since)
    }

    /// When the request came that has waited longest, in this view or earlier ones. Goes through
    /// all that waits.
    #[must_use]
    pub fn oldest_arrival(&self) -> Option<Instant> {
        let waiting = self.clients.values().flat_map(|client| &client.waiting);
        waiting.map(|(_, pending)| pending.arrived).min()
    }

    /// When the first request arrived that is to be handed on.
    #[must_use]
    pub fn oldest_unforwarded(&self) -> Option<Instant> {
        self.unforwarded.front().map(|(at, ..)| *at)
    }

    /// Requests that are to be forwarded and arrived until `before`. Each is given once a view, and
    /// again when its client sends it again; of each client at most `AT_ONCE` of them and
    /// `BYTES_AT_ONCE`, one at least. The others are looked at as if they had come now, and are held
    /// against the primary from now on.
    pub fn to_forward(&mut self, before: Instant, now: Instant) -> Vec<Package> {
        let mut out = Vec::new();
        let mut given: BTreeMap<ClientId, (usize, usize)> = BTreeMap::new();
        // What is put off goes to the back, and is not looked at again.
        for _ in 0..self.unforwarded.len() {
            let due = self.unforwarded.pop_front_if(|(at, ..)| *at <= before);
            let Some((_, id, key)) = due else { break };
            let Some(pending) = self.find_mut(&key).filter(|p| p.id == id) else { continue };
            let (count, bytes) = given.entry(key.0).or_default();
            let much = *bytes + package_len(&pending.package) > BYTES_AT_ONCE && *count > 0;
            if *count >= AT_ONCE || much {
                // The primary may not have it, so it is not held against that before its turn.
                let held = pending.held_since.filter(|_| !pending.handed_on);
                self.unforwarded.push_back((now, id, key));
                if let Some(held) = held {
                    self.hold_from(key, held.max(now));
                }
                continue;
            }
            (*count, *bytes) = (*count + 1, *bytes + package_len(&pending.package));
            pending.to_forward = false;
            out.push(pending.package.clone());
            // A long one is handed to nobody before; the primary has its time, and that of what waits
            // there, from now on.
            let first = !std::mem::replace(&mut pending.handed_on, true);
            if first && package_len(&pending.package) > LONG {
                let ahead = self.throughput.time_for(self.bytes);
                self.hold_from(key, now + ahead);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::Instant;
    use crate::pool::{PoolLimits, RequestPool, Share};
    use std::collections::BTreeMap;
    use tercio_types::{Authenticator, ClientId, Digest, OpKind, Ops, Package, ReplicaId};
    use tercio_types::{RequestSeq, Tag};

    fn package(client: u64, first: u64) -> Package {
        Package {
            client: ClientId(client),
            first: RequestSeq(first),
            kind: OpKind::User,
            replier: ReplicaId(0),
            ops: Ops::new(&[b"op"]),
            digest: Digest::NULL,
            auth: Authenticator::Mac(Tag::default()),
        }
    }

    /// A4, T7: a request is not held against a primary from before the primary can have had it.
    #[test]
    fn a_request_is_held_from_when_it_came_or_the_view_began() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 2);
        let vouch = |pool: &mut RequestPool, client, since| {
            for by in [1, 2] {
                pool.vouch(&package(client, 1), ReplicaId(by), Instant(since));
            }
        };
        pool.admit(package(1, 1), Share::Asked, Instant(100));
        vouch(&mut pool, 1, 10);
        assert_eq!(pool.oldest(), Some(Instant(100)));
        pool.admit(package(2, 1), Share::Asked, Instant(110));
        pool.requeue(std::iter::empty(), Instant(500));
        pool.delivered(&package(1, 1));
        vouch(&mut pool, 2, 300);
        assert_eq!(pool.oldest(), Some(Instant(500)));
    }

    /// T2: what waits is handed on little by little, every client's oldest first.
    #[test]
    fn t2_each_client_has_some_handed_on_at_a_time() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 2);
        for k in 1..=20 {
            pool.admit(package(1, k), Share::Asked, Instant(0));
        }
        pool.admit(package(2, 1), Share::Asked, Instant(1));
        let first = pool.to_forward(Instant(5), Instant(10));
        assert_eq!(first.iter().filter(|p| p.client == ClientId(1)).count(), 16);
        assert_eq!(first.last().map(|p| p.client), Some(ClientId(2)));
        assert_eq!(pool.to_forward(Instant(9), Instant(14)).len(), 0);
        assert_eq!(pool.to_forward(Instant(10), Instant(15)).len(), 4);
        assert_eq!(pool.oldest_unforwarded(), None);
    }

    /// T2: what is not handed on yet is not held against the primary, which may not have it; the oldest
    /// of its client is.
    #[test]
    fn t2_what_is_put_off_is_held_from_its_turn_on() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 0);
        for k in 1..=20 {
            pool.admit(package(1, k), Share::Asked, Instant(k));
        }
        assert_eq!(pool.to_forward(Instant(50), Instant(100)).len(), 16);
        assert_eq!(pool.oldest(), Some(Instant(1)));
        (1..=16).for_each(|k| pool.delivered(&package(1, k)));
        assert_eq!(pool.oldest(), Some(Instant(100)));
        assert_eq!(pool.to_forward(Instant(100), Instant(150)).len(), 4);
        assert_eq!(pool.oldest(), Some(Instant(100)));
        pool.delivered(&package(1, 17));
        pool.requeue(std::iter::empty(), Instant(200));
        assert_eq!(pool.oldest(), Some(Instant(200)));
        (18..=20).for_each(|k| pool.delivered(&package(1, k)));
        assert_eq!(pool.oldest(), None);
    }

    /// T7: a long one that was handed on is held when the bytes that waited then have had their time, also
    /// when its client sends it again.
    #[test]
    fn t7_one_that_is_sent_again_is_held_no_earlier() {
        const MS: u64 = 1_000_000;
        let long = |client, first, bytes| Package {
            ops: Ops::new(&[vec![0; bytes]]),
            ..package(client, first)
        };
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 0);
        let (x, y) = (long(1, 1, 150 << 10), long(1, 2, 150 << 10));
        pool.admit(x, Share::Asked, Instant(0));
        pool.admit(y, Share::Asked, Instant(0));
        for client in 2..=4 {
            pool.admit(long(client, 1, 8 << 20), Share::Asked, Instant(MS));
        }
        // T/2 is 250 ms. The first turn: x is handed on, y is put off.
        let t1 = 270 * MS;
        assert_eq!(pool.to_forward(Instant(t1 - 250 * MS), Instant(t1)).len(), 1);
        // What of the others is held is taken away, so that only x and y are looked at.
        for client in 2..=4 {
            pool.delivered(&long(client, 1, 8 << 20));
        }
        pool.trim(Instant(t1));
        let held = pool.held.iter().map(|((at, _), key)| (key.1.0, at.0 / MS)).collect::<Vec<_>>();
        let x_before = held.iter().find(|(first, _)| *first == 1).unwrap().1;
        // The client sends x again.
        pool.sent_again(ClientId(1), RequestSeq(1), Instant(t1 + MS));
        let t2 = t1 + 300 * MS;
        assert_eq!(pool.to_forward(Instant(t2 - 250 * MS), Instant(t2)).len(), 1);
        let held = pool.held.iter().map(|((at, _), key)| (key.1.0, at.0 / MS)).collect::<Vec<_>>();
        let x_after = held.iter().find(|(first, _)| *first == 1).unwrap().1;
        assert!(
            x_after >= x_before,
            "held from {x_before} ms before it was sent again, now {x_after}"
        );
    }
}
