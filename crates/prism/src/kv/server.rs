//! PRISM-KV's server side: it registers the memory, tells clients where it is, and looks after it.
//! No GET, PUT or DELETE passes through here.
//!
//! **Growth.** When more than half of the slots are in use, a table of twice the size is registered,
//! and slots move to it a few at a time, between batches, while clients go on. A slot that has moved
//! holds `MOVED`, an address in no memory: a client that meets it goes on in the new table. A
//! search passes from the old table to the new one and never back, and it finds a key wherever it is,
//! since
//! - slots move in runs that end with an empty slot, which is marked, too: of the slots that a search
//!   for one key may look at, all have moved or none;
//! - a slot never becomes empty while the table lives, so that a key that is not found before an
//!   empty slot is in neither table.
//!
//! The walk begins behind an empty slot and goes round once; then the old table is unregistered, and
//! a client that still has its address is told so and asks for the new one. Tombstones are left
//! behind on this occasion, and only then. Each upkeep moves [`Config::growth_step`] slots and four
//! for each buffer that was taken since the last one, so that the old table cannot fill up meanwhile.
//!
//! **Sweep.** A client that dies between taking a buffer and storing it, or before it reports the
//! buffer that it replaced, leaves a buffer behind that nobody can reach. After a client was lost,
//! buffers that are taken and in no slot are looked for (`sweep`). The same is done when a pool is
//! used up, since clients that are idle do not hurry to report what they replaced.

use super::layout::{Hash, SLOT, item, item_words, put_item};
use crate::engine::Service;
use crate::memory::{Buffers, Memory, MemoryView, Rights};
use crate::op::{Addr, Capability, Reject, SCRATCH_BYTES, Status};
use crate::sweep::{self, Sweep};
use crate::zoo::{Defence, stands};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The call that asks where the store is.
pub(crate) const DESCRIBE: u64 = 2;
/// What a slot holds that has moved to the table that replaces its own. Whoever follows it is told
/// [`Status::OutOfRange`], whatever the length, as of no other address in a slot.
pub(crate) const MOVED: Addr = Addr::scratch(SCRATCH_BYTES as u64 + 8);
/// The longest table of buffer sizes.
pub(crate) const MAX_CLASSES: usize = 32;

/// Buffers of one size.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// How many bytes of item (header, key, value) a buffer holds.
    pub payload: usize,
    /// How many there are at first.
    pub posted: u32,
    /// How many there may become.
    pub limit: u32,
}

/// How a store begins.
#[derive(Clone, Debug)]
pub struct Config {
    /// Slots at first, a power of two.
    pub slots: u64,
    /// How keys find their slots.
    pub hash: Hash,
    /// Buffer sizes, ascending.
    pub classes: Vec<Class>,
    /// Fill freed buffers, so that a reader of a stale address would notice.
    pub poison: bool,
    /// How many slots move in each upkeep, at least, while the table grows.
    pub growth_step: u64,
}

/// Slots that move in some 50 us.
const GROWTH_STEP: u64 = 1024;

impl Config {
    /// For up to `items` items of any size: buffers of 64 bytes to 16 KiB, each twice as long as the
    /// one before, so that at most half of one is wasted. Memory is taken as it is used.
    #[must_use]
    pub fn general(items: u32) -> Self {
        // Any of the sizes may be what is stored, and some buffers are always on their way back.
        let limit = items.saturating_add((items / 8).max(1024));
        let class = |size: usize| Class { payload: size - 8, posted: 1024.min(limit), limit };
        let classes = (6..=14).map(|bits| class(1 << bits)).collect();
        Self { slots: 1024, hash: Hash::Mixed, classes, poison: false, growth_step: GROWTH_STEP }
    }

    /// For `items` items of one size under keys of eight bytes that are numbers below `items`, and
    /// this many more buffers than items.
    #[must_use]
    pub fn fixed(items: u32, value: usize, more: u32) -> Self {
        let payload = super::layout::item_bytes(8, value);
        let limit = items + more;
        let small = Class { payload: 56, posted: 64, limit: items.max(64) };
        let class = Class { payload, posted: limit, limit };
        // Half of the slots stay free, whatever clients have in hand: it never grows.
        let slots = u64::from(limit).next_power_of_two() * 2;
        let classes = if payload > 56 { vec![small, class] } else { vec![class] };
        Self { slots, hash: Hash::Collisionless, classes, poison: false, growth_step: GROWTH_STEP }
    }
}

/// What a store's server knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StoreCount {
    /// Slots of the table.
    pub slots: u64,
    /// Slots with a value.
    pub items: u64,
    /// Slots with a tombstone.
    pub tombstones: u64,
    /// Buffers of all sizes that are free or will be.
    pub free: u64,
    /// Buffers of all sizes that are taken.
    pub taken: u64,
    /// How often the table began to grow.
    pub growths: u64,
    /// Slots of an older table that have not moved yet.
    pub to_move: u64,
    /// Buffers that a sweep found.
    pub swept: u64,
}

/// A table whose slots are moving away.
#[derive(Debug)]
struct Growing {
    old: Addr,
    slots: u64,
    /// Where the walk began, and how many slots it has moved.
    first: u64,
    moved: u64,
}

/// A store's server side.
#[derive(Debug)]
pub struct KvServer {
    capability: Capability,
    table: Addr,
    slots: u64,
    growing: Option<Growing>,
    growth_step: u64,
    /// Buffers that were taken at the last upkeep.
    taken: u64,
    hash: Hash,
    seed: u64,
    /// Region numbers of the pools and what a buffer holds.
    pools: Vec<(u8, usize)>,
    growths: u64,
    sweep: Sweep,
}

impl KvServer {
    /// Registers a store's memory under a capability. `seed` spreads the keys; it should not be known
    /// to whoever chooses them.
    ///
    /// # Errors
    /// When there is not so much memory, or the configuration makes no sense.
    pub fn new(
        memory: &Memory,
        capability: Capability,
        seed: u64,
        config: &Config,
    ) -> io::Result<Self> {
        let ascending = config.classes.is_sorted_by(|a, b| a.payload < b.payload);
        if !config.slots.is_power_of_two()
            || !ascending
            || !(1..=MAX_CLASSES).contains(&config.classes.len())
        {
            let what = "slots are a power of two, and buffer sizes ascend";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if config.poison {
            memory.poison_freed();
        }
        let table = memory.register(capability, Self::TABLE_RIGHTS, Self::bytes(config.slots)?)?;
        let pools = config.classes.iter().map(|class| {
            let rights = Rights::READ.and(Rights::WRITE).and(Rights::ALLOCATE).and(Rights::ATOMIC);
            let (posted, limit) = (class.posted, class.limit);
            let pool = memory.register_pool(capability, rights, class.payload, posted, limit)?;
            Ok((pool, class.payload))
        });
        let pools = pools.collect::<io::Result<_>>()?;
        Ok(Self {
            capability,
            table,
            slots: config.slots,
            growing: None,
            growth_step: config.growth_step.max(1),
            taken: 0,
            hash: config.hash,
            seed,
            pools,
            growths: 0,
            sweep: Sweep::default(),
        })
    }

    const TABLE_RIGHTS: Rights = Rights::READ.and(Rights::WRITE).and(Rights::ATOMIC);

    fn bytes(slots: u64) -> io::Result<usize> {
        usize::try_from(slots.saturating_mul(SLOT))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no such size of memory"))
    }

    /// Stores an item directly, as a store is filled before it is served.
    ///
    /// # Errors
    /// [`Status::Empty`] or [`Status::TooLong`] when there is no buffer for it.
    pub fn load(&mut self, view: &MemoryView<'_>, key: &[u8], value: &[u8]) -> Result<(), Status> {
        let mut words = Vec::new();
        put_item(&mut words, key, Some(value));
        let bytes = words.len() * 8;
        let (pool, _) =
            self.pools.iter().find(|(_, size)| *size >= bytes).ok_or(Status::TooLong)?;
        let slot = self.free_slot(view, key).ok_or(Status::Empty)?;
        let addr = view.allocate(*pool, &words, self.capability)?;
        slot[1].store(bytes as u64, Relaxed);
        slot[0].store(addr.0, Relaxed);
        Ok(())
    }

    /// The first empty slot for a key that is not in the table.
    fn free_slot<'v>(&self, view: &'v MemoryView<'_>, key: &[u8]) -> Option<&'v [AtomicU64]> {
        let table = view.words(self.table)?;
        let first = self.hash.slot(self.seed, key, self.slots);
        let at = |i: u64| ((first + i) & (self.slots - 1)) as usize * 2;
        (0..self.slots).map(|i| &table[at(i)..at(i) + 2]).find(|slot| slot[0].load(Relaxed) == 0)
    }

    /// Counts what is there.
    #[must_use]
    pub fn count(&self, memory: &Memory, view: &MemoryView<'_>) -> StoreCount {
        let mut count = StoreCount {
            slots: self.slots,
            growths: self.growths,
            to_move: self.growing.as_ref().map_or(0, |growing| growing.slots - growing.moved),
            swept: self.sweep.found,
            ..StoreCount::default()
        };
        for pointer in self.pointers(view) {
            match self.item_at(view, pointer, |item| item.value.is_some()) {
                Some(true) => count.items += 1,
                _ => count.tombstones += 1,
            }
        }
        for (pool, _) in &self.pools {
            let pool = memory.pool_count(*pool).expect("registered by us");
            count.free += u64::from(pool.free + pool.waiting);
            count.taken += u64::from(pool.taken);
        }
        count
    }

    /// Where a pool's buffers are, for each.
    pub fn pools(&self) -> impl Iterator<Item = u8> {
        self.pools.iter().map(|(pool, _)| *pool)
    }

    /// The buffers in the table, and in the one whose slots are moving into it.
    fn pointers<'v>(&self, view: &'v MemoryView<'_>) -> impl Iterator<Item = Addr> + use<'v> {
        let old = self.growing.as_ref().and_then(|growing| view.words(growing.old));
        let table = view.words(self.table).unwrap_or_default();
        let slots = table.iter().step_by(2).chain(old.unwrap_or_default().iter().step_by(2));
        slots.map(|word| Addr(word.load(Acquire))).filter(|a| !a.is_null() && *a != MOVED)
    }

    fn item_at<R>(
        &self,
        view: &MemoryView<'_>,
        addr: Addr,
        read: impl FnOnce(super::layout::Item<'_>) -> R,
    ) -> Option<R> {
        let words = view.words(addr)?;
        let size = item_words(words.first()?.load(Relaxed));
        let words: Vec<u64> = words.get(..size)?.iter().map(|word| word.load(Relaxed)).collect();
        item(&words).map(read)
    }

    /// Registers a table with room, and begins to move into it.
    fn grow(&mut self, memory: &Memory) -> io::Result<()> {
        let slots = self.slots * 2;
        let new = memory.register(self.capability, Self::TABLE_RIGHTS, Self::bytes(slots)?)?;
        let view = memory.view(0);
        let table = view.words(self.table).expect("our own table");
        // A full table has no run that ends, and moves at once.
        let empty = (0..self.slots).find(|i| table[*i as usize * 2].load(Relaxed) == 0);
        let first = empty.map_or(0, |empty| (empty + 1) & (self.slots - 1));
        self.growing = Some(Growing { old: self.table, slots: self.slots, first, moved: 0 });
        (self.table, self.slots) = (new, slots);
        self.growths += 1;
        Ok(())
    }

    /// Moves this many slots of the old table and the rest of the last run; frees the table when
    /// all have moved.
    fn move_slots(&mut self, memory: &Memory, count: u64) {
        let Some(mut growing) = self.growing.take() else { return };
        let view = memory.view(0);
        let old = view.words(growing.old).expect("our own table");
        let mask = growing.slots - 1;
        let slot = |i: u64| ((growing.first + i) & mask) as usize * 2;
        let until = growing.moved + count;
        let mut ended = false;
        while growing.moved < growing.slots && !(ended && growing.moved >= until) {
            // The items' headers and keys are all over the memory.
            let ahead = Addr(old[slot(growing.moved + 8)].load(Relaxed));
            view.prefetch(ahead, SLOT as usize);
            let [pointer, bound] = [0, 1].map(|word| &old[slot(growing.moved) + word]);
            let addr = Addr(pointer.load(Relaxed));
            ended = addr.is_null();
            if !ended {
                self.move_item(&view, addr, bound.load(Relaxed));
            }
            let marks = if ended { Defence::MarkEmpty } else { Defence::MarkMoved };
            if stands(marks) {
                pointer.store(MOVED.0, Relaxed);
            }
            growing.moved += 1;
        }
        drop(view);
        if growing.moved < growing.slots {
            self.growing = Some(growing);
        } else {
            memory.unregister(growing.old);
        }
    }

    fn move_item(&self, view: &MemoryView<'_>, addr: Addr, bound: u64) {
        match self.item_at(view, addr, |item| item.value.map(|_| item.key.to_vec())).flatten() {
            Some(key) => {
                let slot = self.free_slot(view, &key).expect("twice as many slots");
                slot[1].store(bound, Relaxed);
                slot[0].store(addr.0, Relaxed);
            }
            None => {
                // A tombstone has done its duty. One that is stale already is nobody's.
                let _ = view.retire(addr, self.capability);
            }
        }
    }
}

impl Service for KvServer {
    fn call(&mut self, _: &MemoryView<'_>, body: &[u64], out: &mut Vec<u64>) -> Result<(), Reject> {
        if body != [DESCRIBE] {
            return Err(Reject::UnknownMethod);
        }
        let (old, old_slots) = match &self.growing {
            Some(growing) => (growing.old, growing.slots),
            None => (Addr::NULL, 0),
        };
        out.extend([self.table.0, self.slots, old.0, old_slots]);
        out.extend([self.hash.number(), self.seed]);
        out.extend(self.pools.iter().map(|(pool, size)| u64::from(*pool) | (*size as u64) << 8));
        Ok(())
    }

    fn maintain(&mut self, memory: &Memory, now_ns: u64) {
        // Each slot in use has a buffer of its own; those that are in no slot are few.
        let mut taken = 0;
        for (pool, _) in &self.pools {
            let count = memory.pool_count(*pool).expect("registered by us");
            taken += u64::from(count.taken);
            // Clients may hold the rest without hurrying to report it.
            if count.taken == count.limit {
                self.sweep.request();
            }
        }
        let more = taken.saturating_sub(self.taken);
        self.taken = taken;
        if self.growing.is_none() && taken > self.slots / 2 {
            // Without memory for a longer table the old one has to do, until it is full.
            let _ = self.grow(memory);
        }
        // At once, too: the walk's first slot must have moved before it can be looked at.
        self.move_slots(memory, self.growth_step + 4 * more);
        let pools: Vec<u8> = self.pools().collect();
        let mut sweep = std::mem::take(&mut self.sweep);
        sweep.step(memory, self.capability, &pools, now_ns, |view| self.pointers(view).collect());
        self.sweep = sweep;
    }

    fn client_lost(&mut self) {
        self.sweep.request();
    }

    fn buffers(&self, view: &MemoryView<'_>) -> Buffers {
        let pools: Vec<u8> = self.pools().collect();
        sweep::count(view, self.capability, &pools, self.pointers(view).collect())
    }
}

/// A store that its server shares with whoever counts it, such as a test.
#[derive(Debug)]
pub struct Shared<S>(pub Arc<std::sync::Mutex<S>>);

impl<S: Service> Service for Shared<S> {
    fn call(
        &mut self,
        view: &MemoryView<'_>,
        body: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Reject> {
        self.0.lock().expect("nobody panics with the store in hand").call(view, body, out)
    }

    fn maintain(&mut self, memory: &Memory, now_ns: u64) {
        self.0.lock().expect("nobody panics with the store in hand").maintain(memory, now_ns);
    }

    fn client_lost(&mut self) {
        self.0.lock().expect("nobody panics with the store in hand").client_lost();
    }

    fn buffers(&self, view: &MemoryView<'_>) -> Buffers {
        self.0.lock().expect("nobody panics with the store in hand").buffers(view)
    }
}
