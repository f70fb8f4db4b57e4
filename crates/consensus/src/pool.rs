//! The request pool: requests that wait to be ordered, and duplicate detection of those that were.
//!
//! Quotas per client and in all; what does not fit is declined, never dropped in silence. The
//! oldest waiting request is what the view timer watches, so that a primary that passes over one
//! client's requests is replaced like one that stops (f18).
//!
//! Only requests that a correct primary can order are held against it: signed ones, and those under
//! MACs that enough other replicas have handed to us too. A client can make tags that are good for
//! one replica alone; that replica must not leave its view over them (f16).

#[cfg(test)]
mod plant;
mod throughput;
mod waiting;

use crate::Instant;
use crate::admission::AdmissionControl;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{ClientId, Package, ReplicaSet, RequestSeq, RequestWindow};
use tercio_wire::package_len;
use throughput::Throughput;
pub(crate) use throughput::longest_for;

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

/// What part of the room for bytes one client's packages may take; a single one has no bound of this
/// kind. Packages are ordered as they come, and others must not wait for all that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// From the client: a quarter. A backup takes as much as the primary, or it could not tell how long
    /// that has to order before its own (rule T7).
    Asked,
    /// From a replica that took it: a half. The client may have filled its share here with others.
    HandedOn,
}

/// Rule T2: a longer package is not handed to the primary at once. Its client most likely sent it
/// there too, and what would come of it from all backups keeps the primary from shipping it.
pub(crate) const LONG: usize = 64 << 10;

impl Share {
    fn of(self, room: usize) -> usize {
        room / match self {
            Self::Asked => 4,
            Self::HandedOn => 2,
        }
    }
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { client_ops: 2048, total_ops: 64 << 10, total_bytes: 32 << 20 }
    }
}

/// What became of a package that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
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
    package: Package,
    /// Tells the entry from an earlier one under the same key.
    id: u64,
    arrived: Instant,
    /// How long what waited when it came may take, itself included (rule T7).
    spare: Duration,
    proposed: bool,
    /// Whether it stands in the list of what is to be forwarded, and whether it was since the view began.
    to_forward: bool,
    handed_on: bool,
    /// Who else has shown that its tag is good.
    vouchers: ReplicaSet,
    /// Since when it is held against the primary.
    held_since: Option<Instant>,
}

/// What one client has waiting, and what of its is done.
#[derive(Clone, Debug, Default)]
struct Client {
    window: RequestWindow,
    /// In ascending order of first numbers. A client counts up, so what comes goes to the back and
    /// what is done leaves from near the front.
    waiting: VecDeque<(RequestSeq, Pending)>,
    /// Operations that wait, and the bytes of their packages.
    ops: usize,
    bytes: usize,
}

impl Client {
    /// Where the package with this first number stands, or would.
    fn place(&self, first: RequestSeq) -> Result<usize, usize> {
        let (Some((front, oldest)), Some((back, _))) = (self.waiting.front(), self.waiting.back())
        else {
            return Err(0);
        };
        if *back < first {
            return Err(self.waiting.len());
        }
        // Packages of one length without gaps between them stand where their numbers say; a search
        // would touch a dozen that are far apart.
        let ahead = first.0.saturating_sub(front.0) / oldest.package.ops.len() as u64;
        match self.waiting.get(ahead as usize) {
            Some((at, _)) if *at == first => Ok(ahead as usize),
            _ => self.waiting.binary_search_by_key(&first, |(first, _)| *first),
        }
    }

    fn find(&self, first: RequestSeq) -> Option<&Pending> {
        self.place(first).ok().map(|at| &self.waiting[at].1)
    }

    fn find_mut(&mut self, first: RequestSeq) -> Option<&mut Pending> {
        self.place(first).ok().map(|at| &mut self.waiting[at].1)
    }

    fn is_done(&self, package: &Package) -> bool {
        package.numbers().all(|seq| self.window.contains(seq))
    }
}

/// Requests that wait, and which of each client's are done.
#[derive(Clone, Debug, Default)]
pub struct RequestPool {
    limits: PoolLimits,
    clients: BTreeMap<ClientId, Client>,
    /// How many packages wait.
    len: usize,
    /// Not yet proposed, in order of arrival. May hold keys that are gone.
    queue: VecDeque<(u64, Key)>,
    /// What is held against the primary, by since when.
    held: BTreeMap<(Instant, u64), Key>,
    /// What is to be forwarded, in order of arrival. May hold keys that are gone.
    unforwarded: VecDeque<(Instant, u64, Key)>,
    /// What nobody has vouched for enough, in order of arrival. May hold keys that are gone.
    unvouched: VecDeque<(Instant, u64, Key)>,
    /// How many others must vouch for a request under MACs.
    vouchers_needed: usize,
    next_id: u64,
    ops: usize,
    bytes: usize,
    queued_ops: usize,
    queued_bytes: usize,
    /// How many clients have something waiting.
    active: usize,
    admission: AdmissionControl,
    /// Since when those order that do now. What arrived before has waited for them since then.
    began: Instant,
    throughput: Throughput,
    /// Bytes delivered since that was last told to `throughput`.
    delivered_bytes: usize,
}

/// The clients of whom `windows` say what is done.
fn clients_with(windows: BTreeMap<ClientId, RequestWindow>) -> BTreeMap<ClientId, Client> {
    let client = |(id, window)| (id, Client { window, ..Client::default() });
    windows.into_iter().map(client).collect()
}

impl RequestPool {
    /// An empty pool that knows what was delivered before. A request under MACs is held against
    /// the primary when `vouchers_needed` other replicas have handed it to us.
    #[must_use]
    pub fn new(
        limits: PoolLimits,
        windows: BTreeMap<ClientId, RequestWindow>,
        vouchers_needed: usize,
    ) -> Self {
        Self { limits, clients: clients_with(windows), vouchers_needed, ..Self::default() }
    }

    fn find(&self, (client, first): &Key) -> Option<&Pending> {
        self.clients.get(client)?.find(*first)
    }

    fn find_mut(&mut self, (client, first): &Key) -> Option<&mut Pending> {
        self.clients.get_mut(client)?.find_mut(*first)
    }

    /// Offers a package whose authenticator was checked.
    pub fn admit(&mut self, package: Package, share: Share, now: Instant) -> Admitted {
        let key = (package.client, package.first);
        let (ops, bytes, signed) = (package.ops.len(), package_len(&package), package.is_signed());
        let client = self.clients.entry(package.client).or_default();
        if client.is_done(&package) {
            return Admitted::Done;
        }
        let place = match client.place(package.first) {
            Ok(place) => {
                // The same request, signed after its MACs failed, takes the place of the first.
                // Other tags do not: whoever forwards it can spoil those that are not for us.
                let pending = &mut client.waiting[place].1;
                let better = signed || pending.package.digest != package.digest;
                let as_long = pending.package.ops.len() == ops;
                if !pending.proposed && better && as_long {
                    let old = package_len(&pending.package);
                    self.bytes = self.bytes - old + bytes;
                    client.bytes = client.bytes - old + bytes;
                    self.queued_bytes = self.queued_bytes - old + bytes;
                    pending.package = package;
                    if signed {
                        let spare = pending.spare;
                        self.hold(key, now + spare);
                    }
                }
                return Admitted::Known;
            }
            Err(place) => place,
        };
        let limits = &self.limits;
        let quota = client.ops + ops <= limits.client_ops || !stands(Defence::F31ClientQuotas);
        let share = client.bytes == 0 || client.bytes + bytes <= share.of(limits.total_bytes);
        let room = self.ops + ops <= limits.total_ops && self.bytes + bytes <= limits.total_bytes;
        if !quota || !share || !room {
            self.admission.declined(ops as u64);
            return Admitted::Full;
        }
        self.active += usize::from(client.waiting.is_empty());
        let id = self.next_id;
        let vouchers = ReplicaSet::EMPTY;
        let spare = self.throughput.time_for(self.bytes + bytes);
        let pending = Pending {
            package,
            id,
            arrived: now,
            spare,
            proposed: false,
            to_forward: true,
            handed_on: false,
            vouchers,
            held_since: None,
        };
        client.waiting.insert(place, (key.1, pending));
        client.ops += ops;
        client.bytes += bytes;
        self.len += 1;
        self.ops += ops;
        self.bytes += bytes;
        self.queued_ops += ops;
        self.queued_bytes += bytes;
        self.next_id += 1;
        self.queue.push_back((id, key));
        self.unforwarded.push_back((now + spare, id, key));
        if signed || self.vouchers_needed == 0 {
            self.hold(key, now + spare);
        } else {
            self.unvouched.push_back((now + spare, id, key));
        }
        Admitted::New
    }

    /// Rule Q1: whether a new package of its client would be refused as busy now, and after
    /// how long it may retry. Cheap, so that it can be asked before the package is looked at.
    /// What waits already is not refused as busy.
    pub fn turns_away(&mut self, client: ClientId, first: RequestSeq) -> Option<Duration> {
        let limit = self.admission.limit().min(self.limits.total_ops);
        let full = match stands(Defence::F31ClientQuotas) {
            true => self.queued_ops >= limit,
            false => self.ops >= self.limits.total_ops,
        };
        if !full || self.find(&(client, first)).is_some() {
            return None;
        }
        // One below its share is let in for as long as there is any room at all.
        let held = self.clients.get(&client).map_or(0, |client| client.ops);
        let clients = self.active + usize::from(held == 0);
        if !self.is_full() && held < (limit / clients.max(1)).max(1) {
            return None;
        }
        let last = self.queue.back().map(|(id, _)| *id);
        self.admission.refused(1, last, self.queued_ops);
        Some(self.admission.hint(self.queued_ops))
    }

    /// Whether no new package finds room, whosever it is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ops >= self.limits.total_ops || self.bytes >= self.limits.total_bytes
    }

    /// After how long one that found no room may retry.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.admission.hint(self.queued_ops)
    }

    /// How many packages wait for delivery, proposed or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
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

    /// Takes packages for a batch in order of arrival, within the limits but at least one. How long
    /// they have waited says how many may wait (rule Q1).
    pub fn take_batch(&mut self, most_ops: usize, most_bytes: usize, now: Instant) -> Vec<Package> {
        let mut batch = Vec::with_capacity(self.queue.len().min(most_ops));
        let (mut ops, mut bytes) = (0, 0);
        while let Some((id, key)) = self.queue.front().copied() {
            let Some(pending) = self.find_mut(&key).filter(|p| p.id == id && !p.proposed) else {
                self.queue.pop_front();
                continue;
            };
            let more_ops = pending.package.ops.len();
            let more_bytes = package_len(&pending.package);
            if !batch.is_empty() && (ops + more_ops > most_ops || bytes + more_bytes > most_bytes) {
                break;
            }
            (ops, bytes) = (ops + more_ops, bytes + more_bytes);
            pending.proposed = true;
            let arrived = pending.arrived;
            batch.push(pending.package.clone());
            self.queue.pop_front();
            let waited = now.since(arrived.max(self.began));
            if batch.len() == 1 {
                self.admission.taken_first(waited, now);
            }
            self.admission.taken(id, waited, self.limits.total_ops);
        }
        self.queued_ops -= ops;
        self.queued_bytes -= bytes;
        batch
    }

    /// A package was delivered: whatever waited under its key is done, and so are others of its
    /// client with numbers that are all done now. Nobody would propose those any more, and the view
    /// timer would wait for them.
    pub fn delivered(&mut self, package: &Package) {
        let client = self.clients.entry(package.client).or_default();
        for seq in package.numbers() {
            client.window.insert(seq);
        }
        self.delivered_bytes += package_len(package);
        if client.waiting.is_empty() {
            return;
        }
        self.remove(&(package.client, package.first));
        // Only what overlaps it can be done by it.
        let client = &self.clients[&package.client];
        let below = client.waiting.iter().take_while(|(first, _)| *first < package.end());
        let overlapping = below.filter(|(_, p)| p.package.end() > package.first);
        let done: Vec<Key> = overlapping
            .filter(|(_, p)| client.is_done(&p.package))
            .map(|(first, _)| (package.client, *first))
            .collect();
        done.iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: &Key) {
        let Some(client) = self.clients.get_mut(&key.0) else { return };
        let Ok(place) = client.place(key.1) else { return };
        let (_, pending) = client.waiting.remove(place).expect("just found");
        let (ops, bytes) = (pending.package.ops.len(), package_len(&pending.package));
        client.ops -= ops;
        client.bytes -= bytes;
        self.active -= usize::from(client.waiting.is_empty());
        self.len -= 1;
        self.ops -= ops;
        self.bytes -= bytes;
        if let Some(since) = pending.held_since {
            self.held.remove(&(since, pending.id));
        }
        if !pending.proposed {
            self.queued_ops -= ops;
            self.queued_bytes -= bytes;
        }
        // The lists drop what is gone as they are looked at; if the pool is empty there is nothing
        // else in them.
        if self.len == 0 {
            self.queue.clear();
            self.unforwarded.clear();
            self.unvouched.clear();
        }
    }

    /// State came from elsewhere: `windows` say what is done now. What still waits has not waited
    /// yet: while blocks were fetched nothing could be delivered.
    pub fn replace_windows(&mut self, windows: BTreeMap<ClientId, RequestWindow>, now: Instant) {
        self.clients.values_mut().for_each(|client| client.window = RequestWindow::default());
        for (id, window) in windows {
            self.clients.entry(id).or_default().window = window;
        }
        self.remove_all(|client, package| client.is_done(package));
        self.restart_waiting(now);
    }

    /// Removes what waits and is not to be proposed any more; gives each one's name.
    pub fn discard(&mut self, unwanted: impl Fn(&Package) -> bool) -> Vec<(ClientId, RequestSeq)> {
        self.remove_all(|_, package| unwanted(package))
    }

    fn remove_all(&mut self, gone: impl Fn(&Client, &Package) -> bool) -> Vec<Key> {
        let all = self.clients.iter().flat_map(|(id, client)| {
            client.waiting.iter().map(move |(first, pending)| (*id, client, *first, pending))
        });
        let keys: Vec<Key> = all
            .filter(|(_, client, _, pending)| gone(client, &pending.package))
            .map(|(id, _, first, _)| (id, first))
            .collect();
        keys.iter().for_each(|key| self.remove(key));
        keys
    }

    /// A new view begins: everything that waits may be proposed again but what `carried` holds,
    /// and nobody has waited yet.
    pub fn requeue<'a>(&mut self, carried: impl Iterator<Item = &'a Package>, now: Instant) {
        let carried: BTreeSet<Key> = carried.map(|p| (p.client, p.first)).collect();
        self.queue.clear();
        (self.queued_ops, self.queued_bytes) = (0, 0);
        for (id, key) in self.by_arrival() {
            let pending = self.find_mut(&key).expect("just listed");
            pending.proposed = carried.contains(&key);
            if !pending.proposed {
                let (ops, bytes) = (pending.package.ops.len(), package_len(&pending.package));
                self.queue.push_back((id, key));
                self.queued_ops += ops;
                self.queued_bytes += bytes;
            }
        }
        self.restart_waiting(now);
    }

    fn by_arrival(&self) -> Vec<(u64, Key)> {
        let keys = self
            .clients
            .iter()
            .flat_map(|(id, client)| client.waiting.iter().map(|(first, p)| (p.id, (*id, *first))));
        let mut all: Vec<_> = keys.collect();
        all.sort_unstable();
        all
    }

    /// Forgets what the lists say of requests that are done. Costs little: a list is gone through
    /// when half of it has become worthless.
    pub fn trim(&mut self, now: Instant) {
        self.admission.tick(now);
        let delivered = std::mem::take(&mut self.delivered_bytes);
        if delivered > 0 {
            self.throughput.delivered(delivered, self.bytes, now);
        }
        let clients = &self.clients;
        let find = |(client, first): &Key| clients.get(client)?.find(*first);
        let alive = |id: u64, key: &Key| find(key).is_some_and(|p| p.id == id);
        let most = 64 + 2 * self.len;
        if self.queue.len() > most {
            self.queue.retain(|(id, key)| alive(*id, key));
        }
        let unvouched =
            |id: u64, key: &Key| find(key).is_some_and(|p| p.id == id && p.held_since.is_none());
        for (list, counts) in [
            (&mut self.unforwarded, &alive as &dyn Fn(u64, &Key) -> bool),
            (&mut self.unvouched, &unvouched),
        ] {
            if list.len() > most {
                list.retain(|(_, id, key)| counts(*id, key));
            }
            while list.pop_front_if(|(_, id, key)| !counts(*id, key)).is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Authenticator, Digest, OpKind, Ops, ReplicaId, Tag};

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

    /// One request that nobody orders must not make the pool remember all that came after it.
    #[test]
    fn a_stuck_request_does_not_make_the_lists_grow() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 2);
        assert_eq!(pool.admit(package(9, 1), Share::Asked, Instant(0)), Admitted::New);
        for k in 1..=10_000 {
            assert_eq!(pool.admit(package(1, k), Share::Asked, Instant(k)), Admitted::New);
            pool.delivered(&package(1, k));
            pool.trim(Instant(k));
            let lists = [pool.unforwarded.len(), pool.unvouched.len(), pool.queue.len()];
            assert!(lists.iter().all(|len| *len < 100), "{lists:?}");
        }
        assert_eq!((pool.len(), pool.oldest_unvouched()), (1, Some(Instant(0))));
        assert_eq!((pool.queued_ops(), pool.take_batch(10, 10, Instant(0)).len()), (1, 1));
        assert_eq!(pool.admit(package(1, 77), Share::Asked, Instant(0)), Admitted::Done);
    }

    /// Who looks from outside wants to know how long a client waits, not for how long this view has
    /// made it wait.
    #[test]
    fn the_oldest_arrival_outlives_views() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 0);
        assert_eq!(pool.oldest_arrival(), None);
        // A later number may come first.
        for (first, at) in [(2, 5), (1, 7)] {
            pool.admit(package(1, first), Share::Asked, Instant(at));
        }
        pool.admit(package(2, 1), Share::Asked, Instant(9));
        pool.requeue(std::iter::empty(), Instant(50));
        assert_eq!((pool.oldest_arrival(), pool.oldest()), (Some(Instant(5)), Some(Instant(50))));
        pool.delivered(&package(1, 2));
        assert_eq!(pool.oldest_arrival(), Some(Instant(7)));
    }

    #[test]
    fn batches_keep_the_order_and_the_limits() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 2);
        for k in 1..=10 {
            pool.admit(package(k, 1), Share::Asked, Instant(k));
        }
        let clients =
            |batch: Vec<Package>| -> Vec<u64> { batch.iter().map(|p| p.client.0).collect() };
        assert_eq!(clients(pool.take_batch(4, usize::MAX, Instant(20))), [1, 2, 3, 4]);
        assert_eq!(clients(pool.take_batch(100, 1, Instant(20))), [5], "one at least");
        pool.delivered(&package(2, 1));
        pool.requeue([&package(4, 1)].into_iter(), Instant(50));
        assert_eq!(pool.oldest_unforwarded(), Some(Instant(50)));
        assert_eq!(
            clients(pool.take_batch(100, usize::MAX, Instant(60))),
            [1, 3, 5, 6, 7, 8, 9, 10]
        );
        assert_eq!(pool.queued_ops(), 0);
    }

    /// A1: one client's long packages leave room for others', and one alone may be as long as any.
    #[test]
    fn one_client_has_a_quarter_of_the_bytes() {
        let long = |client, first, bytes| Package {
            ops: Ops::new(&[vec![0; bytes]]),
            ..package(client, first)
        };
        let limits = PoolLimits { total_bytes: 4 << 20, ..PoolLimits::default() };
        let mut pool = RequestPool::new(limits, BTreeMap::new(), 2);
        assert_eq!(pool.admit(long(1, 1, 2 << 20), Share::Asked, Instant(0)), Admitted::New);
        assert_eq!(pool.admit(long(1, 2, 1), Share::Asked, Instant(0)), Admitted::Full);
        assert_eq!(pool.admit(long(2, 1, 500 << 10), Share::Asked, Instant(0)), Admitted::New);
        assert_eq!(pool.admit(long(2, 2, 500 << 10), Share::Asked, Instant(0)), Admitted::New);
        assert_eq!(pool.admit(long(2, 3, 500 << 10), Share::Asked, Instant(0)), Admitted::Full);
        // What a replica took is not lost for what the client sends here.
        assert_eq!(pool.admit(long(2, 4, 40 << 10), Share::Asked, Instant(0)), Admitted::Full);
        assert_eq!(pool.admit(long(2, 4, 40 << 10), Share::HandedOn, Instant(0)), Admitted::New);
        pool.delivered(&long(1, 1, 2 << 20));
        assert_eq!(pool.admit(long(1, 2, 1), Share::Asked, Instant(0)), Admitted::New);
        pool.delivered(&long(2, 1, 500 << 10));
        assert_eq!(pool.admit(long(2, 3, 400 << 10), Share::Asked, Instant(0)), Admitted::New);
    }

    /// f31: once as much waits as may, one client's packages are refused, and another's are not.
    #[test]
    fn a_client_above_its_share_is_turned_away_when_much_waits() {
        let limits = PoolLimits { client_ops: 1000, total_ops: 100, ..PoolLimits::default() };
        let mut pool = RequestPool::new(limits, BTreeMap::new(), 2);
        let (greedy, modest) = (ClientId(1), ClientId(2));
        for k in 1..=99 {
            assert_eq!(pool.turns_away(greedy, RequestSeq(k)), None, "nobody else needs the room");
            pool.admit(package(1, k), Share::Asked, Instant(0));
        }
        assert_eq!(pool.turns_away(greedy, RequestSeq(100)), None);
        pool.admit(package(1, 100), Share::Asked, Instant(0));
        assert!(pool.turns_away(greedy, RequestSeq(101)).is_some());
        assert_eq!(pool.turns_away(greedy, RequestSeq(50)), None, "it waits already");
        assert!(pool.turns_away(modest, RequestSeq(1)).is_some(), "there is no room at all");
        let limits = PoolLimits { client_ops: 5000, ..PoolLimits::default() };
        let mut pool = RequestPool::new(limits, BTreeMap::new(), 2);
        let mut k = 0;
        while pool.turns_away(greedy, RequestSeq(k + 1)).is_none() {
            k += 1;
            assert_eq!(pool.admit(package(1, k), Share::Asked, Instant(0)), Admitted::New);
        }
        assert_eq!(k, 4096);
        for k in 1..=2048 {
            assert_eq!(pool.turns_away(modest, RequestSeq(k)), None, "half is its share");
            assert_eq!(pool.admit(package(2, k), Share::Asked, Instant(0)), Admitted::New);
        }
        let hint = pool.turns_away(modest, RequestSeq(2049)).expect("and no more");
        assert!(!hint.is_zero());
        assert!(pool.turns_away(greedy, RequestSeq(9999)).is_some());
    }

    /// f16: what only we could check is not held against the primary, and does not stay.
    #[test]
    fn requests_under_macs_are_held_against_a_primary_when_others_vouch() {
        let mut pool = RequestPool::new(PoolLimits::default(), BTreeMap::new(), 2);
        for k in 1..=3 {
            pool.admit(package(k, 1), Share::Asked, Instant(k));
        }
        let (a, b) = (ReplicaId(1), ReplicaId(2));
        pool.vouch(&package(2, 1), a, Instant(5));
        pool.vouch(&package(2, 1), a, Instant(6));
        assert_eq!(pool.oldest(), None);
        pool.vouch(&package(2, 1), b, Instant(7));
        pool.vouch(&package(2, 1), b, Instant(8));
        assert_eq!(pool.oldest(), Some(Instant(7)));
        assert_eq!(pool.expire_unvouched(Instant(2)), 1);
        assert_eq!((pool.len(), pool.oldest_unvouched()), (2, Some(Instant(3))));
        pool.requeue(std::iter::empty(), Instant(20));
        assert_eq!(
            (pool.oldest(), pool.oldest_unvouched()),
            (Some(Instant(20)), Some(Instant(20)))
        );
        assert_eq!(pool.to_forward(Instant(20), Instant(20)).len(), 2);
        assert_eq!(pool.to_forward(Instant(20), Instant(20)).len(), 0);
        pool.sent_again(ClientId(2), RequestSeq(1), Instant(30));
        pool.sent_again(ClientId(2), RequestSeq(1), Instant(31));
        assert_eq!(pool.to_forward(Instant(29), Instant(29)).len(), 0);
        assert_eq!(pool.to_forward(Instant(40), Instant(40)).len(), 1);
        pool.delivered(&package(2, 1));
        assert_eq!(pool.oldest(), None);
    }
}
