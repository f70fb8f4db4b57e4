//! Requests that wait to be ordered, and the memory of those that were.
//!
//! Bounded per client and in all; what does not fit is declined, never dropped in silence. The
//! oldest waiting request is what the view timer watches, so that a primary that passes over one
//! client's requests is replaced like one that stops (f18).

use crate::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tercio_types::{Authenticator, ClientId, Package, RequestSeq, RequestWindow};

/// Bounds on requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Operations of one client.
    pub client_ops: usize,
    /// Operations of all clients.
    pub total_ops: usize,
    /// Bytes of all operations.
    pub total_bytes: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { client_ops: 2048, total_ops: 64 << 10, total_bytes: 32 << 20 }
    }
}

/// What became of a package that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It waits now.
    New,
    /// It was waiting already.
    Known,
    /// All its operations were delivered before.
    Done,
    /// There is no room.
    Full,
}

type Key = (ClientId, RequestSeq);

#[derive(Clone, Debug)]
struct Pending {
    package: Arc<Package>,
    /// Tells the entry from an earlier one under the same key.
    id: u64,
    proposed: bool,
    forwarded: bool,
}

/// Requests that wait, and which of each client's are done.
#[derive(Clone, Debug, Default)]
pub struct RequestPool {
    limits: PoolLimits,
    windows: BTreeMap<ClientId, RequestWindow>,
    pending: BTreeMap<Key, Pending>,
    /// Not yet proposed, in order of arrival. May hold keys that are gone.
    queue: VecDeque<(u64, Key)>,
    /// All pending, in order of arrival. May hold keys that are gone.
    arrivals: VecDeque<(u64, Key, Instant)>,
    /// No request counts as having waited from before this time.
    waiting_since: Instant,
    next_id: u64,
    client_ops: BTreeMap<ClientId, usize>,
    ops: usize,
    bytes: usize,
    queued_ops: usize,
    queued_bytes: usize,
}

fn size(package: &Package) -> usize {
    let auth = match &package.auth {
        Authenticator::MacVector(tags) => 16 * tags.len(),
        _ => 64,
    };
    32 + auth + package.ops.iter().map(|op| op.len() + 4).sum::<usize>()
}

impl RequestPool {
    /// An empty pool that knows what was delivered before.
    #[must_use]
    pub fn new(limits: PoolLimits, windows: BTreeMap<ClientId, RequestWindow>) -> Self {
        Self { limits, windows, ..Self::default() }
    }

    /// Offers a package whose authenticator was checked.
    pub fn admit(&mut self, package: Arc<Package>, now: Instant) -> Admission {
        let key = (package.client, package.first);
        if self.is_done(&package) {
            return Admission::Done;
        }
        if let Some(pending) = self.pending.get_mut(&key) {
            // The same request, signed after its MACs failed, takes the place of the first. Other
            // tags do not: whoever hands it on can spoil those that are not for us.
            let signed = matches!(package.auth, Authenticator::Signature(_));
            let better = signed || pending.package.digest != package.digest;
            let as_long = pending.package.ops.len() == package.ops.len();
            if !pending.proposed && better && as_long {
                let (old, new) = (size(&pending.package), size(&package));
                self.bytes = self.bytes - old + new;
                self.queued_bytes = self.queued_bytes - old + new;
                pending.package = package;
            }
            return Admission::Known;
        }
        let (ops, bytes) = (package.ops.len(), size(&package));
        let client_ops = self.client_ops.entry(package.client).or_default();
        if *client_ops + ops > self.limits.client_ops
            || self.ops + ops > self.limits.total_ops
            || self.bytes + bytes > self.limits.total_bytes
        {
            return Admission::Full;
        }
        *client_ops += ops;
        self.ops += ops;
        self.bytes += bytes;
        self.queued_ops += ops;
        self.queued_bytes += bytes;
        let id = self.next_id;
        self.next_id += 1;
        self.queue.push_back((id, key));
        self.arrivals.push_back((id, key, now));
        self.pending.insert(key, Pending { package, id, proposed: false, forwarded: false });
        Admission::New
    }

    /// Whether all operations of a package were delivered.
    #[must_use]
    pub fn is_done(&self, package: &Package) -> bool {
        let window = self.windows.get(&package.client);
        window.is_some_and(|w| package.numbered().all(|(seq, _)| w.contains(seq)))
    }

    /// How many packages wait for delivery, proposed or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Operations not yet proposed.
    #[must_use]
    pub fn queued_ops(&self) -> usize {
        self.queued_ops
    }

    /// Bytes not yet proposed.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Takes packages for a batch in order of arrival, within the limits but at least one.
    pub fn take_batch(&mut self, most_ops: usize, most_bytes: usize) -> Vec<Arc<Package>> {
        let (mut batch, mut ops, mut bytes) = (Vec::new(), 0, 0);
        while let Some((id, key)) = self.queue.front() {
            let entry = self.pending.get_mut(key).filter(|p| p.id == *id && !p.proposed);
            let Some(pending) = entry else {
                self.queue.pop_front();
                continue;
            };
            let (more_ops, more_bytes) = (pending.package.ops.len(), size(&pending.package));
            if !batch.is_empty() && (ops + more_ops > most_ops || bytes + more_bytes > most_bytes) {
                break;
            }
            (ops, bytes) = (ops + more_ops, bytes + more_bytes);
            pending.proposed = true;
            batch.push(pending.package.clone());
            self.queue.pop_front();
        }
        self.queued_ops -= ops;
        self.queued_bytes -= bytes;
        batch
    }

    /// A package was delivered: whatever waited under its key is done, and so are others of its
    /// client with numbers that are all done now. Nobody would propose those any more, and the view
    /// timer would wait for them.
    pub fn delivered(&mut self, package: &Package) {
        let window = self.windows.entry(package.client).or_default();
        let mut last = package.first;
        for (seq, _) in package.numbered() {
            window.insert(seq);
            last = seq;
        }
        self.remove(&(package.client, package.first));
        let below = self.pending.range((package.client, RequestSeq(0))..=(package.client, last));
        let done: Vec<Key> =
            below.filter(|(_, p)| self.is_done(&p.package)).map(|(key, _)| *key).collect();
        done.iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: &Key) {
        let Some(pending) = self.pending.remove(key) else { return };
        let (ops, bytes) = (pending.package.ops.len(), size(&pending.package));
        self.ops -= ops;
        self.bytes -= bytes;
        if !pending.proposed {
            self.queued_ops -= ops;
            self.queued_bytes -= bytes;
        }
        if let Some(client_ops) = self.client_ops.get_mut(&key.0) {
            *client_ops -= ops;
            if *client_ops == 0 {
                self.client_ops.remove(&key.0);
            }
        }
        // Arrivals and queue drop their stale heads as they are looked at; if the pool is empty
        // there is nothing else in them.
        if self.pending.is_empty() {
            self.queue.clear();
            self.arrivals.clear();
        }
    }

    /// State came from elsewhere: `windows` say what is done now. What still waits has not waited
    /// yet: while blocks were fetched nothing could be delivered.
    pub fn replace_windows(&mut self, windows: BTreeMap<ClientId, RequestWindow>, now: Instant) {
        self.windows = windows;
        self.waiting_since = now;
        let done: Vec<Key> = self
            .pending
            .iter()
            .filter(|(_, p)| self.is_done(&p.package))
            .map(|(k, _)| *k)
            .collect();
        done.iter().for_each(|key| self.remove(key));
    }

    /// Removes what waits and is not to be proposed any more; gives each one's name.
    pub fn discard(&mut self, unwanted: impl Fn(&Package) -> bool) -> Vec<(ClientId, RequestSeq)> {
        let gone: Vec<Key> =
            self.pending.iter().filter(|(_, p)| unwanted(&p.package)).map(|(k, _)| *k).collect();
        gone.iter().for_each(|key| self.remove(key));
        gone
    }

    /// A new view begins: everything that waits may be proposed again but what `carried` holds,
    /// and nobody has waited yet.
    pub fn requeue<'a>(&mut self, carried: impl Iterator<Item = &'a Package>, now: Instant) {
        let carried: std::collections::BTreeSet<Key> =
            carried.map(|p| (p.client, p.first)).collect();
        self.waiting_since = now;
        self.queue.clear();
        (self.queued_ops, self.queued_bytes) = (0, 0);
        for (id, key, _) in &self.arrivals {
            let Some(pending) = self.pending.get_mut(key).filter(|p| p.id == *id) else { continue };
            pending.proposed = carried.contains(key);
            pending.forwarded = false;
            if !pending.proposed {
                self.queue.push_back((*id, *key));
                self.queued_ops += pending.package.ops.len();
                self.queued_bytes += size(&pending.package);
            }
        }
    }

    /// Since when the oldest request has waited, in this view.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let alive = |(id, key, _): &&(u64, Key, Instant)| {
            self.pending.get(key).is_some_and(|p| p.id == *id)
        };
        let (_, _, arrived) = self.arrivals.iter().find(alive)?;
        Some((*arrived).max(self.waiting_since))
    }

    /// Forgets what is said of requests that are done. Costs little: a list is gone through when
    /// half of it has become worthless.
    pub fn trim(&mut self) {
        let alive = |id: u64, key: &Key| self.pending.get(key).is_some_and(|p| p.id == id);
        let most = 64 + 2 * self.pending.len();
        if self.arrivals.len() > most {
            self.arrivals.retain(|(id, key, _)| alive(*id, key));
        }
        if self.queue.len() > most {
            self.queue.retain(|(id, key)| alive(*id, key));
        }
        while self.arrivals.front().is_some_and(|(id, key, _)| !alive(*id, key)) {
            self.arrivals.pop_front();
        }
    }

    /// When the first request arrived that was not handed on yet.
    #[must_use]
    pub fn oldest_unforwarded(&self) -> Option<Instant> {
        let waits = |(id, key, _): &&(u64, Key, Instant)| {
            self.pending.get(key).is_some_and(|p| p.id == *id && !p.forwarded)
        };
        let (_, _, arrived) = self.arrivals.iter().find(waits)?;
        Some((*arrived).max(self.waiting_since))
    }

    /// Requests that have waited since `before` or longer and were not handed on yet; each is
    /// given once a view.
    pub fn to_forward(&mut self, before: Instant) -> Vec<Arc<Package>> {
        let mut out = Vec::new();
        for (id, key, arrived) in &self.arrivals {
            if (*arrived).max(self.waiting_since) > before {
                break;
            }
            if let Some(p) = self.pending.get_mut(key).filter(|p| p.id == *id && !p.forwarded) {
                p.forwarded = true;
                out.push(p.package.clone());
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Digest, OpKind, ReplicaId, Tag};

    fn package(client: u64, first: u64) -> Arc<Package> {
        Arc::new(Package {
            client: ClientId(client),
            first: RequestSeq(first),
            kind: OpKind::User,
            replier: ReplicaId(0),
            ops: vec![bytes::Bytes::from_static(b"op")],
            digest: Digest::NULL,
            auth: Authenticator::Mac(Tag::default()),
        })
    }

    /// One request that nobody orders must not make the pool remember all that came after it.
    #[test]
    fn a_stuck_request_does_not_make_the_lists_grow() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new());
        assert_eq!(pool.admit(package(9, 1), Instant(0)), Admission::New);
        for k in 1..=10_000 {
            assert_eq!(pool.admit(package(1, k), Instant(k)), Admission::New);
            pool.delivered(&package(1, k));
            pool.trim();
            assert!(pool.arrivals.len() < 100 && pool.queue.len() < 100);
        }
        assert_eq!((pool.len(), pool.oldest()), (1, Some(Instant(0))));
        assert_eq!((pool.queued_ops(), pool.take_batch(10, 10).len()), (1, 1));
        assert_eq!(pool.admit(package(1, 77), Instant(0)), Admission::Done);
    }

    #[test]
    fn batches_keep_the_order_and_the_limits() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new());
        for k in 1..=10 {
            pool.admit(package(k, 1), Instant(k));
        }
        let clients =
            |batch: Vec<Arc<Package>>| -> Vec<u64> { batch.iter().map(|p| p.client.0).collect() };
        assert_eq!(clients(pool.take_batch(4, usize::MAX)), [1, 2, 3, 4]);
        assert_eq!(clients(pool.take_batch(100, 1)), [5], "one at least");
        pool.delivered(&package(2, 1));
        pool.requeue([&*package(4, 1)].into_iter(), Instant(50));
        assert_eq!(pool.oldest(), Some(Instant(50)));
        assert_eq!(clients(pool.take_batch(100, usize::MAX)), [1, 3, 5, 6, 7, 8, 9, 10]);
        assert_eq!(pool.queued_ops(), 0);
    }
}
