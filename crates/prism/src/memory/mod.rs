//! The server's memory: regions, pools of buffers, and the checks that stand before every access.
//!
//! A region is registered under a [`Capability`] with the rights that it grants. A *pool* is a
//! region that is cut into equal buffers: one can be reached only from within a buffer that is
//! taken, by an address of the buffer's present generation.
//!
//! Several data plane threads may work on one memory, each with a [`MemoryView`]. While views are out,
//! regions stay; registering waits for the views of all threads to end, so a thread takes a new one
//! after each batch of requests, and when it has looked for one for a while.

mod published;
mod view;

pub use published::make_undumpable;
pub(crate) use published::{Control, files_of};
pub use view::MemoryView;
pub(crate) use view::{Place, Scratch};

use crate::epoch::Epochs;
use crate::op::{Addr, Capability};
use published::{Published, SharedFile};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock};
use tercio_unsafe_sys::Words;

/// What freed buffers are filled with when [`Memory::poison_freed`] is set.
pub const POISON: u64 = 0xdbdb_dbdb_dbdb_dbdb;
/// A buffer's own header, in bytes: its generation and whether it is taken. Requests cannot reach it.
pub const BUFFER_HEADER: usize = 8;
const LIVE: u64 = 1 << 16;
const LINE: usize = 64;
const LINE_LOCKS: usize = 1024;
/// The most bytes of buffers that are posted at once between batches: their pages are made then, and
/// requests wait for it.
const MAX_POSTED: usize = 8 << 20;
/// The most bytes of a range that are prefetched: more would only evict others from the cache, and
/// one whose capability is not checked yet can ask for it.
const MAX_PREFETCH: usize = 4096;

/// What a region permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// READ, and being followed.
    pub const READ: Self = Self(1);
    /// WRITE, and being the place of redirected output.
    pub const WRITE: Self = Self(2);
    /// CAS and FETCH-ADD.
    pub const ATOMIC: Self = Self(4);
    /// ALLOCATE.
    pub const ALLOCATE: Self = Self(8);
    /// Everything.
    pub const ALL: Self = Self(15);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is granted.
    #[must_use]
    pub const fn grant(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[derive(Debug)]
struct Region {
    capability: Capability,
    rights: Rights,
    words: Words,
    bytes: usize,
    generation: u16,
    pool: Option<Pool>,
    /// Where the words can be read by others, if they can.
    file: Option<SharedFile>,
}

#[derive(Debug)]
struct Pool {
    /// The distance of buffers, header included, in bytes.
    stride: usize,
    limit: u32,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    free: VecDeque<u32>,
    /// Given back, with the epoch in which that was.
    limbo: VecDeque<(u64, u32)>,
    posted: u32,
}

/// How many of a pool's buffers are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    /// Buffers that were ever posted: the sum of the three below.
    pub posted: u32,
    /// Buffers that can be taken.
    pub free: u32,
    /// Buffers that were given back and wait for their grace period.
    pub waiting: u32,
    /// Buffers that are taken.
    pub taken: u32,
    /// Buffers that there may be.
    pub limit: u32,
}

/// Where buffers are: each that was posted is in one of the other three places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Buffers {
    /// Buffers that were ever posted.
    pub posted: u64,
    /// Buffers that can be taken, or will be after their grace period.
    pub free: u64,
    /// Buffers that the store names: values, and what the intents of transactions need.
    pub live: u64,
    /// Buffers that are taken and that the store does not name: clients have them in hand, or died so.
    pub in_flight: u64,
}

impl Buffers {
    /// Whether none is missing and none is in two places.
    #[must_use]
    pub const fn are_conserved(&self) -> bool {
        self.posted == self.free + self.live + self.in_flight
    }

    /// As [`crate::engine::COUNT`] answers.
    #[must_use]
    pub const fn words(&self) -> [u64; 4] {
        [self.posted, self.free, self.live, self.in_flight]
    }

    /// Of an answer's words.
    #[must_use]
    pub const fn of_words([posted, free, live, in_flight]: [u64; 4]) -> Self {
        Self { posted, free, live, in_flight }
    }
}

#[derive(Debug)]
struct Regions {
    slots: Vec<Option<Region>>,
    /// The numbers of those that are pools.
    pools: Vec<u8>,
    /// Of each number, how often it was registered.
    generations: [u16; 256],
    poison: bool,
}

impl Regions {
    fn pool_count(&self, pool: u8) -> Option<PoolCount> {
        let pool = self.slots[usize::from(pool)].as_ref()?.pool.as_ref()?;
        let state = lock(&pool.state);
        let (free, waiting) = (state.free.len() as u32, state.limbo.len() as u32);
        let (posted, limit) = (state.posted, pool.limit);
        Some(PoolCount { posted, free, waiting, taken: posted - free - waiting, limit })
    }
}

/// The registered memory of a server.
#[derive(Debug)]
pub struct Memory {
    regions: RwLock<Regions>,
    epochs: Epochs,
    /// Only where several threads work on one memory.
    locks: Option<Box<[AtomicU32]>>,
    published: Option<Published>,
}

impl Memory {
    /// No memory yet, for one data plane thread.
    #[must_use]
    pub fn new() -> Self {
        Self::for_planes(1)
    }

    /// No memory yet, for this many data plane threads.
    ///
    /// # Panics
    /// When that is none.
    #[must_use]
    pub fn for_planes(planes: usize) -> Self {
        assert!(planes > 0, "somebody must run the operations");
        let locks = (planes > 1).then(|| (0..LINE_LOCKS).map(|_| AtomicU32::new(0)).collect());
        let slots = (0..256).map(|_| None).collect();
        let regions = Regions { slots, pools: Vec::new(), generations: [0; 256], poison: false };
        let (regions, epochs) = (RwLock::new(regions), Epochs::new(planes));
        Self { regions, epochs, locks, published: None }
    }

    /// From now on, fills buffers that were given back before they are posted again, so that a
    /// reader of a stale address would notice. It costs a write of each buffer.
    pub fn poison_freed(&self) {
        self.write().poison = true;
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Regions> {
        self.regions.write().expect("no thread panics while it registers")
    }

    /// Registers `bytes` of zeros; gives their address. Pages come into being as they are touched; those
    /// of memory that is published, at once.
    ///
    /// # Errors
    /// When there is no number left, or not so much memory.
    pub fn register(
        &self,
        capability: Capability,
        rights: Rights,
        bytes: usize,
    ) -> io::Result<Addr> {
        self.add(capability, rights, bytes, None)
    }

    /// Registers a pool of at most `limit` buffers of `payload` bytes each, `posted` of them at
    /// once, the others when they are needed; gives its region's number.
    ///
    /// # Errors
    /// When there is no number left, or not so much memory.
    pub fn register_pool(
        &self,
        capability: Capability,
        rights: Rights,
        payload: usize,
        posted: u32,
        limit: u32,
    ) -> io::Result<u8> {
        // Whole lines, so that a buffer costs no line more than it has.
        let stride = (payload + BUFFER_HEADER).next_multiple_of(LINE);
        let pool = Pool { stride, limit, state: Mutex::default() };
        let bytes = stride
            .checked_mul(limit as usize)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no such size of memory"))?;
        let number = self.add(capability, rights, bytes, Some(pool))?.region();
        let regions = self.write();
        let region = regions.slots[usize::from(number)].as_ref().expect("registered just now");
        let pool = region.pool.as_ref().expect("registered just now");
        post_more(region, pool, &mut lock(&pool.state), posted);
        Ok(number)
    }

    fn add(
        &self,
        capability: Capability,
        rights: Rights,
        bytes: usize,
        pool: Option<Pool>,
    ) -> io::Result<Addr> {
        let error = |what| io::Error::new(io::ErrorKind::OutOfMemory, what);
        if bytes as u64 >= Addr::MAX_OFFSET {
            return Err(error("a region is shorter than a tebibyte"));
        }
        let count = bytes.div_ceil(8);
        let (words, file) = match self.published {
            None => (Words::private(count, bytes >= 4 << 20)?, None),
            Some(_) => {
                let (words, file) = published::share("tercio-prism-region", count)?;
                // A pool's are made as its buffers are posted.
                if pool.is_none() {
                    words.make(0..count);
                }
                (words, Some(file))
            }
        };
        let mut regions = self.write();
        // The number that was used least, so that generations last; 0 would make a null address.
        let number = (1..Addr::SCRATCH_REGION)
            .filter(|n| regions.slots[usize::from(*n)].is_none())
            .min_by_key(|n| regions.generations[usize::from(*n)])
            .ok_or_else(|| error("all region numbers are in use"))?;
        let at = usize::from(number);
        let generation = match regions.generations[at].wrapping_add(1) {
            0 => 1,
            generation => generation,
        };
        regions.generations[at] = generation;
        if pool.is_some() {
            regions.pools.push(number);
        }
        regions.slots[at] =
            Some(Region { capability, rights, words, bytes, generation, pool, file });
        self.registrations_changed();
        Ok(Addr::new(generation, number, 0))
    }

    /// Takes a region away. Addresses in it are stale or unknown from now on.
    pub fn unregister(&self, addr: Addr) {
        let mut regions = self.write();
        let slot = &mut regions.slots[usize::from(addr.region())];
        if slot.as_ref().is_some_and(|region| region.generation == addr.generation()) {
            *slot = None;
            regions.pools.retain(|number| *number != addr.region());
            self.registrations_changed();
        }
    }

    /// Lets the thread `plane` work until the view is dropped.
    ///
    /// # Panics
    /// When there is no such thread.
    #[must_use]
    pub fn view(&self, plane: usize) -> MemoryView<'_> {
        let regions = self.regions.read().expect("no thread panics while it registers");
        self.epochs.enter(plane);
        MemoryView { regions, memory: self, plane }
    }

    /// Posts the buffers whose grace period is over, and more of those that were never used when a
    /// pool runs low. To be called now and then, between batches.
    pub fn collect(&self) {
        self.epochs.advance();
        let regions = self.regions.read().expect("no thread panics while it registers");
        for number in &regions.pools {
            let Some(region) = &regions.slots[usize::from(*number)] else { continue };
            let Some(pool) = &region.pool else { continue };
            let mut state = lock(&pool.state);
            while let Some((epoch, buffer)) = state.limbo.front().copied()
                && self.epochs.is_over(epoch)
            {
                state.limbo.pop_front();
                if regions.poison {
                    let at = buffer as usize * pool.stride / 8;
                    for word in &region.words[at + 1..at + pool.stride / 8] {
                        word.store(POISON, Ordering::Relaxed);
                    }
                }
                state.free.push_back(buffer);
            }
            if state.free.len() <= state.posted as usize / 8 && state.posted < pool.limit {
                let more = state.posted.min((MAX_POSTED / pool.stride) as u32);
                post_more(region, pool, &mut state, more);
            }
        }
    }

    /// Where the buffers of a pool are. `None` when it is no pool.
    #[must_use]
    pub fn pool_count(&self, pool: u8) -> Option<PoolCount> {
        self.regions.read().expect("no thread panics while it registers").pool_count(pool)
    }

    /// Whether something is registered under the capability.
    #[must_use]
    pub fn is_known(&self, capability: Capability) -> bool {
        let regions = self.regions.read().expect("no thread panics while it registers");
        regions.slots.iter().flatten().any(|region| region.capability == capability)
    }

    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

fn lock(state: &Mutex<PoolState>) -> MutexGuard<'_, PoolState> {
    state.lock().expect("no thread panics with a pool in its hands")
}

fn post_more(region: &Region, pool: &Pool, state: &mut PoolState, more: u32) {
    let until = (state.posted + more.max(1)).min(pool.limit);
    if region.file.is_some() && state.posted < until {
        let word = |buffer: u32| buffer as usize * pool.stride / 8;
        region.words.make(word(state.posted)..word(until));
    }
    for buffer in state.posted..until {
        // The first generation; 0 would look like an address that has none.
        region.words[buffer as usize * pool.stride / 8].store(1, Ordering::Relaxed);
        state.free.push_back(buffer);
    }
    state.posted = until;
}
