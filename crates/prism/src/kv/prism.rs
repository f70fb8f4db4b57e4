//! PRISM-KV's client side (the paper's section 6), with what the paper leaves open closed.
//!
//! A **GET** is one bounded indirect READ of the key's slot: the buffer that the slot points to, of
//! the bound's length. It takes effect there. An empty slot ends the search, another key's sends it
//! to the next slot.
//!
//! A **PUT** reads the slot and compares the key of what it points to, *the slot first*: if the slot
//! changes between the two, the swap later misses; in the other order it could replace another key's
//! item. Then: take a buffer and write the item into it, its address going to scratch memory; swap
//! the slot from the old pointer to the new one if it is still the old one; tell the new buffer's
//! address. Compare and swap operands differ, hence the comparand. The swap is where a PUT takes
//! effect.
//!
//! In the paper that is two round trips, a look and a chain ([`PrismClient::two_rounds`]). Here it is
//! **one** where the key is in its first slot and short enough for a compare-and-swap (24 bytes):
//! the chain reads the slot to scratch memory, compares the key in the buffer with a
//! compare-and-swap that swaps nothing, and goes on, with the comparand from scratch memory. Where
//! the slot is empty or another key's, its answer is what the look would have told, and the PUT goes
//! on as in the paper: no PUT takes more round trips than there.
//!
//! * On a hit the old buffer is reported to be freed. On a miss the new one is: its address went to
//!   scratch memory, so the chain's last operation reads it, whatever happened before.
//! * A miss means that somebody wrote the slot after it was read. If the slot now holds the
//!   same key, that write may count as the later one, and this PUT is complete: nobody could tell the
//!   difference. If it holds another key (two clients inserting at once), the search goes on. (A
//!   DELETE has to try again: if the write was a DELETE, too, both would say that they removed it.)
//! * Pointers carry the buffer's generation, so that a slot that went from one buffer to another and
//!   back to the first is not taken for unchanged.
//!
//! A **DELETE** puts a tombstone: an item that says that the key has no value. Its slot stays with
//! the key until the table grows.

use super::chain;
use super::layout::{Hash, MAX_KEY, SLOT, has_key, is_tombstone, item, item_bytes, put_item};
use super::server::{DESCRIBE, MAX_CLASSES, MOVED};
use super::{Command, Done, Progress, StoreClient, StoreError};
use crate::client::Draft;
use crate::engine::{FREE, MAX_FREED};
use crate::op::{Action, Addr, Deref, MAX_DATA, Operand, Payload, Status};
use crate::wire::Answer;
use crate::zoo::{Defence, stands};

/// Buffers are reported when this many are at hand.
const FREES_AT_ONCE: usize = 32;
/// Attempts of one command before it gives up.
const MAX_ATTEMPTS: u32 = 1000;
/// How long to wait for buffers to become free, in nanoseconds, and how often.
const WAIT_FOR_ROOM_NS: u64 = 200_000;
const MAX_WAITS: u32 = 5000;
/// Where slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Table {
    addr: Addr,
    slots: u64,
}

/// What the server says of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Store {
    table: Table,
    /// While the table grows, the one whose slots are moving: searches begin there.
    old: Option<Table>,
    hash: Hash,
    seed: u64,
    /// Pools and what a buffer holds, ascending.
    pools: Vec<(u8, usize)>,
}

/// One client's view of a PRISM-KV store.
#[derive(Debug, Default)]
pub struct PrismClient {
    /// Unknown at first.
    store: Option<Store>,
    /// An address was wrong: the server is to be asked again.
    doubted: bool,
    /// How often the server said something new: commands in flight began with something older.
    news: u64,
    two_rounds: bool,
    /// Buffers to be reported.
    frees: Vec<u64>,
    /// How often a PUT's swap missed.
    pub misses: u64,
}

impl PrismClient {
    /// A client that asks for the table when it first needs it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// PUTs take the paper's two round trips.
    #[must_use]
    pub fn two_rounds(self) -> Self {
        Self { two_rounds: true, ..self }
    }

    /// The buffers that were not reported yet.
    #[must_use]
    pub fn unreported(&self) -> usize {
        self.frees.len()
    }
}

/// Where a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// Asked for the table.
    Describe,
    Get,
    /// A PUT's or DELETE's first round trip.
    Probe,
    /// Its second.
    Install,
    /// Both in one.
    OneRound,
    /// Gave buffers back, since there are none left.
    MakeRoom,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verb {
    #[default]
    Get,
    Put,
    Delete,
}

/// A command in flight.
#[derive(Debug, Default)]
pub struct PrismTask {
    state: State,
    verb: Verb,
    key: Vec<u8>,
    /// The item to store, of a PUT or DELETE.
    item: Vec<u64>,
    /// By which of the server's news the search goes.
    news: u64,
    /// Whether the search has gone on from the old table to the new one.
    beyond: bool,
    /// The slot that is looked at, counted from where the search began, and its address.
    probe: u64,
    slot: Addr,
    /// What that slot held.
    old: Addr,
    /// A swap missed: what holds the same key now came later.
    missed: bool,
    /// The chain of one round trip did not come to its end.
    looks_first: bool,
    attempts: u32,
    waits: u32,
}

impl StoreClient for PrismClient {
    type Task = PrismTask;

    fn begin(
        &mut self,
        task: &mut PrismTask,
        command: Command<'_>,
        draft: &mut Draft,
    ) -> Progress<'static> {
        let (verb, key, value) = match command {
            Command::Get(key) => (Verb::Get, key, None),
            Command::Put(key, value) => (Verb::Put, key, Some(value)),
            Command::Delete(key) => (Verb::Delete, key, None),
        };
        let PrismTask { key: own, item, .. } = task;
        own.clear();
        item.clear();
        own.extend_from_slice(key);
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Progress::Ended(Err(StoreError::BadKey));
        }
        if verb != Verb::Get {
            put_item(item, key, value);
        }
        let (key, item) = (std::mem::take(own), std::mem::take(item));
        *task = PrismTask { verb, key, item, ..PrismTask::default() };
        self.search(task, draft)
    }

    fn proceed<'a>(
        &mut self,
        task: &mut PrismTask,
        answer: &Answer<'a>,
        draft: &mut Draft,
    ) -> Progress<'a> {
        draft.clear();
        if let Some(why) = answer.rejected {
            return Progress::Ended(Err(StoreError::Rejected(why)));
        }
        task.attempts += 1;
        if task.attempts > MAX_ATTEMPTS {
            return Progress::Ended(Err(StoreError::Contended));
        }
        match task.state {
            State::Idle => Progress::Ended(Err(StoreError::Confused)),
            State::Describe => match Store::of_words(answer.body()) {
                Some(store) => {
                    let store = Some(store);
                    self.doubted = false;
                    self.news += u64::from(self.store != store);
                    self.store = store;
                    self.search(task, draft)
                }
                None => Progress::Ended(Err(StoreError::Confused)),
            },
            State::Get => self.found(task, answer, draft),
            State::Probe => self.probed(task, answer, draft),
            State::Install => self.installed(task, answer, draft),
            State::OneRound => self.one_rounded(task, answer, draft),
            State::MakeRoom => self.at_slot(task, draft),
        }
    }

    fn background(&mut self, draft: &mut Draft, all: bool) -> bool {
        if self.frees.len() < if all { 1 } else { FREES_AT_ONCE } {
            return false;
        }
        self.report(draft);
        true
    }
}

impl PrismClient {
    fn report(&mut self, draft: &mut Draft) {
        draft.clear();
        let from = self.frees.len().saturating_sub(MAX_FREED);
        draft.call(FREE, &self.frees[from..]);
        self.frees.truncate(from);
    }

    /// Begins at the key's first slot.
    fn search(&mut self, task: &mut PrismTask, draft: &mut Draft) -> Progress<'static> {
        task.beyond = false;
        task.probe = 0;
        task.missed = false;
        task.looks_first = false;
        task.news = self.news;
        self.at_slot(task, draft)
    }

    /// The key may be in this slot, or belong there.
    fn at_slot(&mut self, task: &mut PrismTask, draft: &mut Draft) -> Progress<'static> {
        draft.clear();
        let Some(store) = self.store.as_ref().filter(|_| !self.doubted) else {
            task.state = State::Describe;
            draft.call(DESCRIBE, &[]);
            return Progress::Send;
        };
        if task.news != self.news {
            // Another command has learnt of a new table meanwhile.
            return self.search(task, draft);
        }
        let table = store.old.filter(|_| !task.beyond).unwrap_or(store.table);
        if task.probe >= table.slots {
            return Progress::Ended(match task.verb {
                Verb::Get | Verb::Delete => Ok(Done::Absent),
                Verb::Put => Err(StoreError::NoRoom),
            });
        }
        let first = store.hash.slot(store.seed, &task.key, table.slots);
        let slot = table.addr.plus(((first + task.probe) & (table.slots - 1)) * SLOT);
        task.slot = slot;
        let bounded = |len: usize| Action::Read {
            addr: slot,
            len: len as u32,
            deref: Deref::Bounded,
            redirect: None,
        };
        if task.verb == Verb::Get {
            task.state = State::Get;
            let longest = store.pools.last().map_or(8, |(_, size)| *size);
            draft.op(bounded(longest));
            return Progress::Send;
        }
        let Some(pool) = store.pool_for(task.item.len() * 8) else {
            return Progress::Ended(Err(StoreError::BadValue));
        };
        if !self.two_rounds
            && task.verb == Verb::Put
            && !task.looks_first
            && task.probe == 0
            && task.key.len() <= chain::SHORT_KEY
        {
            task.state = State::OneRound;
            chain::look_and_install(draft, slot, &task.key, &task.item, pool);
            return Progress::Send;
        }
        task.state = State::Probe;
        let read_slot =
            Action::Read { addr: slot, len: SLOT as u32, deref: Deref::Direct, redirect: None };
        // The key is all that is needed of what is there.
        let read_key = bounded(item_bytes(task.key.len(), 0));
        if stands(Defence::SlotBeforeData) {
            draft.op(read_slot);
            draft.op(read_key);
        } else {
            draft.op(read_key);
            draft.op(read_slot);
        }
        Progress::Send
    }

    /// Asks for the table again and begins anew: the address is not the table's any more.
    fn ask(&mut self, task: &mut PrismTask, draft: &mut Draft) -> Progress<'static> {
        // Another command may have asked since.
        self.doubted |= task.news == self.news;
        self.search(task, draft)
    }

    /// The slot has moved to the table that replaces its own.
    fn moved(&mut self, task: &mut PrismTask, draft: &mut Draft) -> Progress<'static> {
        let known = self.store.as_ref().is_some_and(|store| store.old.is_some());
        if !known || task.beyond || task.news != self.news {
            return self.ask(task, draft);
        }
        task.beyond = true;
        task.probe = 0;
        task.looks_first = false;
        if stands(Defence::ForgetMiss) {
            // It may have missed because the slot moved: then nothing came later.
            task.missed = false;
        }
        self.at_slot(task, draft)
    }

    fn found<'a>(
        &mut self,
        task: &mut PrismTask,
        answer: &Answer<'a>,
        draft: &mut Draft,
    ) -> Progress<'a> {
        let Some([read]) = answer.take() else {
            return Progress::Ended(Err(StoreError::Confused));
        };
        match read.status {
            Status::Ok => {}
            Status::NullPointer => return Progress::Ended(Ok(Done::Absent)),
            Status::OutOfRange => return self.moved(task, draft),
            // The table's address, or a pointer that was replaced in this very moment.
            Status::UnknownRegion | Status::Stale => return self.ask(task, draft),
            fault => return Progress::Ended(Err(StoreError::Fault(fault))),
        }
        let Some(there) = item(read.data.words()) else {
            return Progress::Ended(Err(StoreError::Confused));
        };
        if there.key != task.key {
            task.probe += 1;
            return self.at_slot(task, draft);
        }
        Progress::Ended(Ok(there.value.map_or(Done::Absent, Done::Found)))
    }

    fn probed(
        &mut self,
        task: &mut PrismTask,
        answer: &Answer<'_>,
        draft: &mut Draft,
    ) -> Progress<'static> {
        let Some([mut slot, mut there]) = answer.take() else {
            return Progress::Ended(Err(StoreError::Confused));
        };
        if !stands(Defence::SlotBeforeData) {
            (slot, there) = (there, slot);
        }
        match slot.status {
            Status::Ok => {}
            Status::UnknownRegion | Status::Stale => return self.ask(task, draft),
            fault => return Progress::Ended(Err(StoreError::Fault(fault))),
        }
        let Some(old) = slot.data.words().first() else {
            return Progress::Ended(Err(StoreError::Confused));
        };
        task.old = Addr(*old);
        if task.old == MOVED {
            return self.moved(task, draft);
        }
        match there.status {
            Status::Ok if !has_key(there.data.words(), &task.key) => {
                task.probe += 1;
                return self.at_slot(task, draft);
            }
            Status::Ok if task.verb == Verb::Delete && is_tombstone(there.data.words()) => {
                return Progress::Ended(Ok(Done::Absent));
            }
            Status::Ok if task.missed && task.verb == Verb::Put => {
                return Progress::Ended(Ok(Done::Stored));
            }
            Status::Ok => {}
            Status::NullPointer if task.verb == Verb::Delete => {
                return Progress::Ended(Ok(Done::Absent));
            }
            // The slot was empty at both looks, or filled between them: then the swap misses.
            Status::NullPointer => {}
            Status::OutOfRange => return self.moved(task, draft),
            Status::UnknownRegion | Status::Stale => return self.ask(task, draft),
            fault => return Progress::Ended(Err(StoreError::Fault(fault))),
        }
        self.install(task, draft)
    }

    fn install(&mut self, task: &mut PrismTask, draft: &mut Draft) -> Progress<'static> {
        let Some(store) = &self.store else { return self.search(task, draft) };
        // Pools stay what they are for as long as the store does.
        let pool = store.pool_for(task.item.len() * 8).expect("looked at before");
        task.state = State::Install;
        let old = [task.old.0, 0];
        chain::install(draft, task.slot, &task.item, pool, Operand::Inline(&old), false);
        Progress::Send
    }

    fn installed(
        &mut self,
        task: &mut PrismTask,
        answer: &Answer<'_>,
        draft: &mut Draft,
    ) -> Progress<'static> {
        let Some([_, allocated, swapped, new]) = answer.take() else {
            return Progress::Ended(Err(StoreError::Confused));
        };
        self.swapped(task, [allocated.status, swapped.status], new.data, task.old, draft)
    }

    /// After a chain: `new` is what scratch memory held of the new buffer's address.
    fn swapped(
        &mut self,
        task: &mut PrismTask,
        [allocated, swapped]: [Status; 2],
        new: Payload<'_>,
        old: Addr,
        draft: &mut Draft,
    ) -> Progress<'static> {
        if swapped == Status::Ok {
            if !old.is_null() {
                self.frees.push(old.0);
            }
            return Progress::Ended(Ok(Done::Stored));
        }
        if let [new, ..] = new.words()
            && *new != 0
            && stands(Defence::FreeAfterMiss)
        {
            self.frees.push(*new);
        }
        match (allocated, swapped) {
            (Status::Ok, Status::Miss) => {
                self.misses += 1;
                task.missed = true;
                task.looks_first = true;
                self.at_slot(task, draft)
            }
            (Status::Ok, Status::UnknownRegion | Status::Stale) => self.ask(task, draft),
            (Status::Ok, fault) => Progress::Ended(Err(StoreError::Fault(fault))),
            (Status::Empty, _) => {
                task.waits += 1;
                task.attempts = 0;
                if task.waits > MAX_WAITS {
                    return Progress::Ended(Err(StoreError::NoRoom));
                }
                if self.frees.is_empty() {
                    return match self.at_slot(task, draft) {
                        Progress::Send => Progress::SendAfter(WAIT_FOR_ROOM_NS),
                        other => other,
                    };
                }
                task.state = State::MakeRoom;
                self.report(draft);
                Progress::Send
            }
            (fault, _) => Progress::Ended(Err(StoreError::Fault(fault))),
        }
    }

    fn one_rounded(
        &mut self,
        task: &mut PrismTask,
        answer: &Answer<'_>,
        draft: &mut Draft,
    ) -> Progress<'static> {
        let Some([read, same, _, allocated, swapped, new, old]) = answer.take() else {
            return Progress::Ended(Err(StoreError::Confused));
        };
        let Some(old) = old.data.words().first() else {
            return Progress::Ended(Err(StoreError::Confused));
        };
        task.old = Addr(*old);
        task.looks_first = true;
        if task.old == MOVED {
            return self.moved(task, draft);
        }
        match (read.status, same.status) {
            (Status::Ok, Status::Ok) => {
                let statuses = [allocated.status, swapped.status];
                self.swapped(task, statuses, new.data, task.old, draft)
            }
            (Status::Ok, Status::NullPointer) => self.install(task, draft),
            // A slot stays with its key for as long as the table lives.
            (Status::Ok, Status::Miss) => {
                task.probe += 1;
                self.at_slot(task, draft)
            }
            // The pointer was replaced in this very moment.
            (Status::Ok, Status::Stale) => self.at_slot(task, draft),
            (Status::UnknownRegion | Status::Stale, _) => self.ask(task, draft),
            (Status::Ok, fault) | (fault, _) => Progress::Ended(Err(StoreError::Fault(fault))),
        }
    }
}

impl Store {
    fn of_words(words: &[u64]) -> Option<Self> {
        let ([addr, slots, old, old_slots, hash, seed], pools) = words.split_first_chunk()?;
        let pools: Vec<_> = pools.iter().map(|pool| (*pool as u8, (pool >> 8) as usize)).collect();
        let table = |addr: u64, slots: u64| {
            let bytes = slots.saturating_mul(SLOT);
            let sensible =
                slots.is_power_of_two() && Addr(addr).offset() + bytes < Addr::MAX_OFFSET;
            sensible.then_some(Table { addr: Addr(addr), slots })
        };
        let sensible = (1..=MAX_CLASSES).contains(&pools.len())
            && pools.iter().all(|(_, size)| (8..=MAX_DATA).contains(size));
        let old = if *old == 0 { None } else { Some(table(*old, *old_slots)?) };
        sensible.then_some(Self {
            table: table(*addr, *slots)?,
            old,
            hash: Hash::of_number(*hash)?,
            seed: *seed,
            pools,
        })
    }

    fn pool_for(&self, bytes: usize) -> Option<u8> {
        self.pools.iter().find(|(_, size)| *size >= bytes).map(|(pool, _)| *pool)
    }
}
