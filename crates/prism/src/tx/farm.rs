//! The baseline: FaRM's transactions (Dragojevic et al., SOSP 2015; the paper's section 8.1), for servers
//! that have plain READs and calls. An object lies in place, behind a word with its version and a lock.
//!
//! - **Execution**: two READs a key, of the index entry and of the object that it names. Writes wait.
//! - **Lock**, a call to each shard with something to write: the server checks versions and locks.
//! - **Validate**, a READ of each version that was read and not written.
//! - **Update**, a call to each shard: the server writes, raises the versions and unlocks.
//!
//! Without locks in the way, committed transactions are serializable at the moment of their locks. As
//! published in the paper's comparison, a client that dies with locks in its hands blocks their keys:
//! FaRM recovers from that with its logs, which are not part of it.

use super::TxError;
use super::session::TxCounts;
use crate::client::Draft;
use crate::cluster::{Net, Reply};
use crate::engine::Service;
use crate::kv::put_bytes;
use crate::memory::{Memory, MemoryView, Rights};
use crate::op::{Action, Addr, Capability, Deref, MAX_OPS, Reject, Status};
use crate::rng::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const DESCRIBE: u64 = 1;
/// Locks: triples of key, version, and nothing. Answers whether it did.
const LOCK: u64 = 2;
/// Unlocks keys without a change.
const UNLOCK: u64 = 3;
/// Writes keys with their values, raises their versions and unlocks them.
const UPDATE: u64 = 4;

/// The lock, in the word with the version.
const LOCKED: u64 = 1 << 63;
/// Of an index entry: the object's address.
const ENTRY: u64 = 8;
const MAX_ATTEMPTS: u32 = 100_000;
const FIRST_WAIT_NS: u64 = 2_000;
const MAX_WAIT_NS: u64 = 1_000_000;

/// A shard's side.
#[derive(Debug)]
pub struct FarmServer {
    index: Addr,
    objects: Addr,
    keys: u64,
    value_bytes: usize,
    shards: u64,
}

impl FarmServer {
    /// Registers a shard's memory under a capability. The configuration's spare buffers are not needed.
    ///
    /// # Errors
    /// When there is not so much memory, or the configuration makes no sense.
    pub fn new(
        memory: &Memory,
        capability: Capability,
        config: &super::server::Config,
    ) -> io::Result<Self> {
        let (shards, value_bytes) = (config.shards as u64, config.value_bytes);
        let sensible = (8..=super::MAX_VALUE).contains(&value_bytes)
            && value_bytes.is_multiple_of(8)
            && config.shard < config.shards
            && config.keys >= shards;
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "no such shard, or value");
        if !sensible {
            return Err(wrong());
        }
        let keys = (config.keys - config.shard as u64).div_ceil(shards);
        let bytes = |count: u64, size: u64| usize::try_from(count * size).map_err(|_| wrong());
        let stride = (8 + value_bytes as u64).next_multiple_of(64);
        let index = memory.register(capability, Rights::READ, bytes(keys, ENTRY)?)?;
        let objects = memory.register(capability, Rights::READ, bytes(keys, stride)?)?;
        let view = memory.view(0);
        let entries = view.words(index).expect("registered just now");
        for (key, entry) in (0..keys).zip(entries) {
            entry.store(objects.plus(key * stride).0, Relaxed);
        }
        drop(view);
        Ok(Self { index, objects, keys, value_bytes, shards })
    }

    fn object<'v>(&self, view: &'v MemoryView<'_>, key: u64) -> Option<&'v [AtomicU64]> {
        let at = key / self.shards;
        let stride = (8 + self.value_bytes as u64).next_multiple_of(64);
        if at >= self.keys {
            return None;
        }
        let words = view.words(self.objects.plus(at * stride))?;
        words.get(..1 + self.value_bytes / 8)
    }

    fn lock(&self, view: &MemoryView<'_>, pairs: &[u64]) -> Result<bool, Reject> {
        let (pairs, rest) = pairs.as_chunks::<2>();
        let object = |key: u64| self.object(view, key).ok_or(Reject::UnknownMethod);
        if !rest.is_empty() {
            return Err(Reject::UnknownMethod);
        }
        for [key, version] in pairs {
            if object(*key)?[0].load(Relaxed) != *version {
                return Ok(false);
            }
        }
        for [key, version] in pairs {
            object(*key)?[0].store(version | LOCKED, Relaxed);
        }
        Ok(true)
    }

    fn unlock(&self, view: &MemoryView<'_>, keys: &[u64]) -> Result<(), Reject> {
        for key in keys {
            let object = self.object(view, *key).ok_or(Reject::UnknownMethod)?;
            object[0].store(object[0].load(Relaxed) & !LOCKED, Relaxed);
        }
        Ok(())
    }

    fn update(&self, view: &MemoryView<'_>, items: &[u64]) -> Result<(), Reject> {
        let size = 1 + self.value_bytes / 8;
        if !items.len().is_multiple_of(size) {
            return Err(Reject::UnknownMethod);
        }
        for item in items.chunks(size) {
            let object = self.object(view, item[0]).ok_or(Reject::UnknownMethod)?;
            for (to, word) in object[1..].iter().zip(&item[1..]) {
                to.store(*word, Relaxed);
            }
            object[0].store((object[0].load(Relaxed) & !LOCKED) + 1, Relaxed);
        }
        Ok(())
    }

    /// The first word of each value, for tests.
    ///
    /// # Panics
    /// When the memory is another's.
    #[must_use]
    pub fn contents(&self, memory: &Memory) -> Vec<u64> {
        let view = memory.view(0);
        let first = |at| self.object(&view, at * self.shards).expect("its own")[1].load(Relaxed);
        (0..self.keys).map(first).collect()
    }
}

impl Service for FarmServer {
    fn call(
        &mut self,
        view: &MemoryView<'_>,
        body: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Reject> {
        match body {
            [DESCRIBE] => out.extend([self.index.0, self.keys, self.value_bytes as u64]),
            [LOCK, pairs @ ..] => out.push(u64::from(self.lock(view, pairs)?)),
            [UNLOCK, keys @ ..] => self.unlock(view, keys)?,
            [UPDATE, items @ ..] => self.update(view, items)?,
            _ => return Err(Reject::UnknownMethod),
        }
        Ok(())
    }

    fn maintain(&mut self, _: &Memory, _: u64) {}

    fn client_lost(&mut self) {}
}

#[derive(Clone, Copy, Debug)]
struct Map {
    index: Addr,
    keys: u64,
    value_bytes: usize,
}

/// A client of a store. Clones are the same; their transactions may run side by side.
#[derive(Clone, Debug)]
pub struct FarmClient(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    net: Net,
    servers: Vec<usize>,
    maps: Vec<Map>,
    counts: Cell<TxCounts>,
    rng: RefCell<Rng>,
}

/// A transaction under way.
#[derive(Debug)]
pub struct FarmTx {
    client: FarmClient,
    /// Of each key that was read its version, where it lies, and its value.
    reads: BTreeMap<u64, (u64, Addr, Vec<u8>)>,
    writes: BTreeMap<u64, Vec<u8>>,
}

impl FarmClient {
    /// A client of the shards that are these servers of the net.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub async fn open(net: Net, servers: Vec<usize>, seed: u64) -> Result<Self, TxError> {
        let mut maps = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            let reply = net.ask(*server, |draft| draft.call(DESCRIBE, &[])).await;
            let reply = reply.map_err(|_| TxError::Unreachable(at))?;
            let &[index, keys, value_bytes] = reply.answer().body() else {
                return Err(TxError::Confused);
            };
            let sensible = (8..=super::MAX_VALUE as u64).contains(&value_bytes)
                && keys < Addr::MAX_OFFSET / 8
                && Addr(index).offset() == 0;
            if !sensible {
                return Err(TxError::Confused);
            }
            maps.push(Map { index: Addr(index), keys, value_bytes: value_bytes as usize });
        }
        let rng = RefCell::new(Rng::new(seed));
        Ok(Self(Rc::new(Shared { net, servers, maps, counts: Cell::default(), rng })))
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> TxCounts {
        self.0.counts.get()
    }

    fn count(&self, add: impl FnOnce(&mut TxCounts)) {
        let mut counts = self.0.counts.get();
        add(&mut counts);
        self.0.counts.set(counts);
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(&self) -> FarmTx {
        FarmTx { client: self.clone(), reads: BTreeMap::new(), writes: BTreeMap::new() }
    }

    /// Runs a transaction again until it commits.
    ///
    /// # Errors
    /// What `body` says, but for [`TxError::Aborted`]; or when it cannot be committed.
    pub async fn run<T>(
        &self,
        mut body: impl AsyncFnMut(&mut FarmTx) -> Result<T, TxError>,
    ) -> Result<T, TxError> {
        let mut wait_ns = FIRST_WAIT_NS;
        for _ in 0..MAX_ATTEMPTS {
            let mut tx = self.begin();
            let result = match body(&mut tx).await {
                Ok(value) => tx.commit().await.map(|()| value),
                Err(error) => Err(error),
            };
            match result {
                Err(TxError::Aborted) => self.count(|counts| counts.aborted += 1),
                result => return result,
            }
            let wait = self.0.rng.borrow_mut().below(wait_ns);
            self.0.net.sleep(wait).await;
            wait_ns = (wait_ns * 2).min(MAX_WAIT_NS);
        }
        Err(TxError::Contended(MAX_ATTEMPTS))
    }

    async fn ask(&self, at: usize, fill: impl FnOnce(&mut Draft)) -> Result<Reply, TxError> {
        self.count(|counts| counts.rounds += 1);
        let reply = self.0.net.ask(self.0.servers[at], fill).await;
        accepted(reply.map_err(|_| TxError::Unreachable(at))?)
    }

    /// A call to several shards at once, each with its own arguments.
    async fn calls(
        &self,
        method: u64,
        arguments: &BTreeMap<usize, Vec<u64>>,
    ) -> Result<Vec<(usize, Reply)>, TxError> {
        if arguments.is_empty() {
            return Ok(Vec::new());
        }
        self.count(|counts| counts.rounds += 1);
        let mut round = self.0.net.round([], |_, _| ());
        for (at, words) in arguments {
            round.also(self.0.servers[*at], |draft| draft.call(method, words));
        }
        let mut replies = Vec::new();
        while let Some((server, result)) = round.next().await {
            let at = self.0.servers.iter().position(|s| *s == server).expect("it was asked");
            replies.push((at, accepted(result.map_err(|_| TxError::Unreachable(at))?)?));
        }
        Ok(replies)
    }
}

fn accepted(reply: Reply) -> Result<Reply, TxError> {
    match reply.answer().rejected {
        Some(why) => Err(TxError::Rejected(why)),
        None => Ok(reply),
    }
}

fn read_of(addr: Addr, len: u32) -> Action<'static> {
    Action::Read { addr, len, deref: Deref::Direct, redirect: None }
}

impl FarmTx {
    fn place(&self, key: u64) -> Result<(usize, Map), TxError> {
        let shards = self.client.0.servers.len() as u64;
        let at = (key % shards) as usize;
        let map = self.client.0.maps[at];
        if key / shards < map.keys { Ok((at, map)) } else { Err(TxError::NoKey(key)) }
    }

    /// The value of a key: zeros when nobody has written it.
    ///
    /// # Errors
    /// [`TxError::Aborted`] when it is locked; or when it cannot be read.
    pub async fn read(&mut self, key: u64) -> Result<Vec<u8>, TxError> {
        if let Some(value) = self.writes.get(&key) {
            return Ok(value.clone());
        }
        if let Some((_, _, value)) = self.reads.get(&key) {
            return Ok(value.clone());
        }
        let (at, map) = self.place(key)?;
        let entry = map.index.plus(key / self.client.0.servers.len() as u64 * ENTRY);
        let reply = self.client.ask(at, |draft| draft.op(read_of(entry, 8))).await?;
        let addr = Addr(*words(&reply)?.first().ok_or(TxError::Confused)?);
        let len = 8 + map.value_bytes as u32;
        let reply = self.client.ask(at, |draft| draft.op(read_of(addr, len))).await?;
        let words = words(&reply)?;
        if words.len() * 8 != len as usize {
            return Err(TxError::Confused);
        }
        if words[0] & LOCKED != 0 {
            return Err(TxError::Aborted);
        }
        let value = zerocopy::IntoBytes::as_bytes(&words[1..]).to_vec();
        self.reads.insert(key, (words[0], addr, value.clone()));
        Ok(value)
    }

    /// Sets the value of a key, if the transaction commits. It must have been read: FaRM has no blind
    /// writes, for the lock is on a version.
    ///
    /// # Errors
    /// When it was not read, or the value is not as long as values are.
    pub fn write(&mut self, key: u64, value: &[u8]) -> Result<(), TxError> {
        let (_, map) = self.place(key)?;
        if value.len() != map.value_bytes {
            return Err(TxError::BadValue(map.value_bytes));
        }
        if !self.reads.contains_key(&key) {
            return Err(TxError::NoKey(key));
        }
        self.writes.insert(key, value.to_vec());
        Ok(())
    }

    /// Commits.
    ///
    /// # Errors
    /// [`TxError::Aborted`] when it met another; or when a shard cannot be reached.
    pub async fn commit(self) -> Result<(), TxError> {
        let mut locks: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut keys: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut items: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (key, value) in &self.writes {
            let (at, _) = self.place(*key)?;
            locks.entry(at).or_default().extend([*key, self.reads[key].0]);
            keys.entry(at).or_default().push(*key);
            let item = items.entry(at).or_default();
            item.push(*key);
            put_bytes(item, value);
        }
        let mut all = true;
        for (at, reply) in self.client.calls(LOCK, &locks).await? {
            if reply.answer().body() != [1] {
                all = false;
                keys.remove(&at);
            }
        }
        let all = all && self.validate().await?;
        if !all {
            self.client.calls(UNLOCK, &keys).await?;
            return Err(TxError::Aborted);
        }
        self.client.calls(UPDATE, &items).await?;
        self.client.count(|counts| counts.committed += 1);
        Ok(())
    }

    /// Whether what was read and not written is as it was.
    async fn validate(&self) -> Result<bool, TxError> {
        let mut reads: BTreeMap<usize, Vec<(Addr, u64)>> = BTreeMap::new();
        for (key, (version, addr, _)) in &self.reads {
            if !self.writes.contains_key(key) {
                reads.entry(self.place(*key)?.0).or_default().push((*addr, *version));
            }
        }
        for (at, reads) in reads {
            for reads in reads.chunks(MAX_OPS) {
                let fill = |draft: &mut Draft| {
                    reads.iter().for_each(|(addr, _)| draft.op(read_of(*addr, 8)));
                };
                let reply = self.client.ask(at, fill).await?;
                let answer = reply.answer();
                let same = |((_, version), outcome): (&(Addr, u64), crate::wire::Outcome<'_>)| {
                    outcome.status == Status::Ok && outcome.data.words() == [*version]
                };
                if !reads.iter().zip(answer.outcomes()).all(same) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

fn words(reply: &Reply) -> Result<Vec<u64>, TxError> {
    match reply.answer().take() {
        Some([outcome]) if outcome.status == Status::Ok => Ok(outcome.data.words().to_vec()),
        Some([outcome]) => Err(TxError::Fault(outcome.status)),
        None => Err(TxError::Confused),
    }
}
