//! Pilaf, the baseline (Mitchell, Geng and Li, "Using One-Sided RDMA Reads to Build a Fast,
//! CPU-Efficient Key-Value Store", USENIX ATC 2013; the paper's sections 2.1 and 6).
//!
//! A GET takes two READs, one of an index entry and one of the extent that it names; both carry
//! checksums, since nothing keeps the server from writing meanwhile, and a mismatch means to read
//! again. A PUT or DELETE is a call: the server's processor does it in place.
//!
//! An index entry has four words: the extent's address (0: empty, 1: removed), its length in bytes, a
//! version, and the checksum of these three. An extent is an item (`layout`) and a word with its
//! checksum. Checksums are CRC-32, computed with the processor's carry-less multiplication where it
//! has one; the paper charges 2 us for those of a GET, here they cost what they cost.

use super::layout::{Hash, MAX_KEY, has_key_at, item, item_bytes, put_item};
use super::{Command, Done, Progress, StoreClient, StoreError};
use crate::client::Draft;
use crate::engine::Service;
use crate::memory::{Memory, MemoryView, Rights};
use crate::op::{Action, Addr, Capability, Deref, MAX_DATA, Reject, Status};
use crate::wire::Answer;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

const DESCRIBE: u64 = 1;
const PUT: u64 = 2;
const DELETE: u64 = 3;
/// Words of an index entry.
const ENTRY: usize = 4;
const ENTRY_BYTES: usize = ENTRY * 8;
const REMOVED: u64 = 1;
/// How often a GET reads again before it gives up.
const MAX_ATTEMPTS: u32 = 1000;

fn checksum(words: &[u64]) -> u64 {
    u64::from(crc32fast::hash(words.as_bytes()))
}

/// Pilaf's server side.
#[derive(Debug)]
pub struct PilafServer {
    index: Addr,
    extents: Addr,
    slots: u64,
    hash: Hash,
    seed: u64,
    /// Words of an extent.
    extent: usize,
    limit: u64,
    /// Extents that were used so far, and those that are free again.
    used: u64,
    free: Vec<u64>,
}

impl PilafServer {
    /// Registers an index of `slots` entries, a power of two, and up to `items` items of `value`
    /// bytes and keys of up to `key` bytes.
    ///
    /// # Errors
    /// When there is not so much memory, or the numbers make no sense.
    pub fn new(
        memory: &Memory,
        capability: Capability,
        (hash, seed): (Hash, u64),
        slots: u64,
        items: u64,
        (key, value): (usize, usize),
    ) -> io::Result<Self> {
        let extent = item_bytes(key, value) / 8 + 1;
        let bytes = |count: u64, size: usize| {
            let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
            let what = "slots are a power of two, and all fits the memory";
            bytes
                .filter(|bytes| *bytes > 0 && slots.is_power_of_two() && extent * 8 <= MAX_DATA)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, what))
        };
        let index = memory.register(capability, Rights::READ, bytes(slots, ENTRY_BYTES)?)?;
        // In whole cache lines, as PRISM-KV's buffers are.
        let extent = extent.next_multiple_of(8);
        let extents = memory.register(capability, Rights::READ, bytes(items, extent * 8)?)?;
        let free = Vec::new();
        Ok(Self { index, extents, slots, hash, seed, extent, limit: items, used: 0, free })
    }

    /// Stores an item, as a PUT does.
    ///
    /// # Errors
    /// [`Reject::NoRoom`] when there is none, [`Reject::TooLong`] when no extent is so long.
    pub fn put(&mut self, view: &MemoryView<'_>, key: &[u8], value: &[u8]) -> Result<(), Reject> {
        let mut words = Vec::with_capacity(self.extent);
        put_item(&mut words, key, Some(value));
        if words.len() + 1 > self.extent {
            return Err(Reject::TooLong);
        }
        words.push(checksum(&words));
        let (entry, extent) = self.find(view, key).ok_or(Reject::NoRoom)?;
        let addr = match extent {
            Some(addr) => addr,
            None => self.take_extent().ok_or(Reject::NoRoom)?,
        };
        let target = view.words(addr).expect("an extent is registered");
        // In place: a READ meanwhile sees a mixture, and its checksum tells.
        for (to, word) in target.iter().zip(&words) {
            to.store(*word, Relaxed);
        }
        let version = entry[2].load(Relaxed) + 1;
        write_entry(entry, [addr.0, words.len() as u64 * 8, version]);
        Ok(())
    }

    fn delete(&mut self, view: &MemoryView<'_>, key: &[u8]) -> bool {
        let Some((entry, Some(extent))) = self.find(view, key) else { return false };
        let version = entry[2].load(Relaxed) + 1;
        write_entry(entry, [REMOVED, 0, version]);
        self.free.push((extent.offset() - self.extents.offset()) / (self.extent as u64 * 8));
        true
    }

    fn take_extent(&mut self) -> Option<Addr> {
        let number = self.free.pop().or_else(|| {
            self.used += 1;
            (self.used <= self.limit).then(|| self.used - 1)
        })?;
        Some(self.extents.plus(number * self.extent as u64 * 8))
    }

    /// The key's entry with its extent, or else the entry where it belongs. `None`: no entry left.
    fn find<'v>(
        &self,
        view: &'v MemoryView<'_>,
        key: &[u8],
    ) -> Option<(&'v [AtomicU64], Option<Addr>)> {
        let index = view.words(self.index).expect("the index is registered");
        let first = self.hash.slot(self.seed, key, self.slots);
        let mut vacant = None;
        for i in 0..self.slots {
            let at = ((first + i) & (self.slots - 1)) as usize * ENTRY;
            let entry = &index[at..at + ENTRY];
            match entry[0].load(Relaxed) {
                0 => return vacant.or(Some((entry, None))),
                REMOVED => vacant = vacant.or(Some((entry, None))),
                addr => {
                    let extent = view.words(Addr(addr)).expect("an extent is registered");
                    if has_key_at(extent, key) {
                        return Some((entry, Some(Addr(addr))));
                    }
                }
            }
        }
        vacant
    }
}

fn write_entry(entry: &[AtomicU64], words: [u64; 3]) {
    for (to, word) in entry.iter().zip(words.into_iter().chain([checksum(&words)])) {
        to.store(word, Relaxed);
    }
}

impl Service for PilafServer {
    fn call(
        &mut self,
        view: &MemoryView<'_>,
        body: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Reject> {
        match body {
            [DESCRIBE] => {
                out.extend([self.index.0, self.slots, self.hash.number(), self.seed]);
                Ok(())
            }
            [PUT, words @ ..] => {
                let item = item(words).filter(|item| is_key(item.key));
                let item = item.ok_or(Reject::UnknownMethod)?;
                self.put(view, item.key, item.value.ok_or(Reject::UnknownMethod)?)
            }
            [DELETE, words @ ..] => {
                let item = item(words).filter(|item| is_key(item.key));
                let item = item.ok_or(Reject::UnknownMethod)?;
                out.push(u64::from(self.delete(view, item.key)));
                Ok(())
            }
            _ => Err(Reject::UnknownMethod),
        }
    }

    fn maintain(&mut self, _: &Memory, _: u64) {}

    fn client_lost(&mut self) {}
}

fn is_key(key: &[u8]) -> bool {
    (1..=MAX_KEY).contains(&key.len())
}

/// One client's view of a Pilaf store.
#[derive(Debug, Default)]
pub struct PilafClient {
    /// Index, slots, hash, seed.
    index: Option<(Addr, u64, Hash, u64)>,
    /// How often a checksum did not hold.
    pub torn_reads: u64,
}

impl PilafClient {
    /// A client that asks for the index when it first needs it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Describe,
    Entry,
    Extent,
    Call,
}

/// A command in flight.
#[derive(Debug, Default)]
pub struct PilafTask {
    state: State,
    /// The call, of a PUT or DELETE.
    method: Option<u64>,
    key: Vec<u8>,
    item: Vec<u64>,
    probe: u64,
    attempts: u32,
}

impl StoreClient for PilafClient {
    type Task = PilafTask;

    fn begin(
        &mut self,
        task: &mut PilafTask,
        command: Command<'_>,
        draft: &mut Draft,
    ) -> Progress<'static> {
        let (method, key, value) = match command {
            Command::Get(key) => (None, key, None),
            Command::Put(key, value) => (Some(PUT), key, Some(value)),
            Command::Delete(key) => (Some(DELETE), key, None),
        };
        task.key.clear();
        task.key.extend_from_slice(key);
        task.item.clear();
        (task.method, task.probe, task.attempts) = (method, 0, 0);
        if !is_key(key) {
            return Progress::Ended(Err(StoreError::BadKey));
        }
        draft.clear();
        match method {
            None => self.read_entry(task, draft),
            Some(method) => {
                task.state = State::Call;
                put_item(&mut task.item, key, value);
                draft.call(method, &task.item);
                Progress::Send
            }
        }
    }

    fn proceed<'a>(
        &mut self,
        task: &mut PilafTask,
        answer: &Answer<'a>,
        draft: &mut Draft,
    ) -> Progress<'a> {
        draft.clear();
        let confused = Progress::Ended(Err(StoreError::Confused));
        match answer.rejected {
            Some(Reject::NoRoom) => return Progress::Ended(Err(StoreError::NoRoom)),
            Some(Reject::TooLong) => return Progress::Ended(Err(StoreError::BadValue)),
            Some(why) => return Progress::Ended(Err(StoreError::Rejected(why))),
            None => {}
        }
        match task.state {
            State::Call => {
                let absent = task.method == Some(DELETE) && answer.body() == [0];
                Progress::Ended(Ok(if absent { Done::Absent } else { Done::Stored }))
            }
            State::Describe => {
                let [addr, slots, hash, seed] = answer.body() else { return confused };
                let (Some(hash), true) = (Hash::of_number(*hash), slots.is_power_of_two()) else {
                    return confused;
                };
                self.index = Some((Addr(*addr), *slots, hash, *seed));
                self.read_entry(task, draft)
            }
            State::Entry => {
                let Some([read]) = answer.take() else { return confused };
                if read.status != Status::Ok {
                    return Progress::Ended(Err(StoreError::Fault(read.status)));
                }
                let [addr, bytes, version, sum] = *read.data.words() else { return confused };
                if addr == 0 && sum == 0 {
                    return Progress::Ended(Ok(Done::Absent));
                }
                if sum != checksum(&[addr, bytes, version]) {
                    return self.again(task, draft);
                }
                if addr == REMOVED {
                    task.probe += 1;
                    return self.read_entry(task, draft);
                }
                let Ok(len) = u32::try_from(bytes) else { return confused };
                task.state = State::Extent;
                draft.op(Action::Read {
                    addr: Addr(addr),
                    len,
                    deref: Deref::Direct,
                    redirect: None,
                });
                Progress::Send
            }
            State::Extent => {
                let Some([read]) = answer.take() else { return confused };
                if read.status != Status::Ok {
                    return Progress::Ended(Err(StoreError::Fault(read.status)));
                }
                let Some((sum, words)) = read.data.words().split_last() else { return confused };
                if *sum != checksum(words) {
                    return self.again(task, draft);
                }
                match item(words) {
                    Some(found) if found.key == task.key => {
                        Progress::Ended(Ok(Done::Found(found.value.unwrap_or_default())))
                    }
                    _ => {
                        task.probe += 1;
                        self.read_entry(task, draft)
                    }
                }
            }
        }
    }

    fn background(&mut self, _: &mut Draft, _: bool) -> bool {
        false
    }
}

impl PilafClient {
    /// The server was writing meanwhile: from the entry on, since the extent may be another's now.
    fn again(&mut self, task: &mut PilafTask, draft: &mut Draft) -> Progress<'static> {
        self.torn_reads += 1;
        task.attempts += 1;
        if task.attempts > MAX_ATTEMPTS {
            return Progress::Ended(Err(StoreError::Contended));
        }
        self.read_entry(task, draft)
    }

    fn read_entry(&mut self, task: &mut PilafTask, draft: &mut Draft) -> Progress<'static> {
        let Some((addr, slots, hash, seed)) = self.index else {
            task.state = State::Describe;
            draft.call(DESCRIBE, &[]);
            return Progress::Send;
        };
        if task.probe >= slots {
            return Progress::Ended(Ok(Done::Absent));
        }
        let slot = (hash.slot(seed, &task.key, slots) + task.probe) & (slots - 1);
        task.state = State::Entry;
        draft.op(Action::Read {
            addr: addr.plus(slot * ENTRY_BYTES as u64),
            len: ENTRY_BYTES as u32,
            deref: Deref::Direct,
            redirect: None,
        });
        Progress::Send
    }
}
