//! The server's memory: regions, pools of buffers, and the checks that stand before every access.
//!
//! A region is registered under a [`Capability`] with the rights that it grants. A *pool* is a
//! region that is cut into equal buffers: one can be reached only from within a buffer that is
//! taken, by an address of the buffer's present generation.
//!
//! Several data plane threads may work on one memory, each with a [`View`]. While views are out,
//! regions stay; registering waits for the views of all threads to end, so a thread takes a new one
//! for each batch of requests.

use crate::epoch::Epochs;
use crate::op::{Addr, Capability, SCRATCH_BYTES, Status};
use crate::zoo::{Defence, stands};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use tercio_unsafe_sys::{Words, load_words, prefetch, store_words};

/// What freed buffers are filled with when [`Memory::poison_freed`] is set.
pub const POISON: u64 = 0xdbdb_dbdb_dbdb_dbdb;
/// A buffer's own header, in bytes: its generation and whether it is taken. Requests cannot reach it.
pub const BUFFER_HEADER: usize = 8;
const LIVE: u64 = 1 << 16;
const LINE: usize = 64;
const LINE_LOCKS: usize = 1024;
/// The most bytes of a range that are asked for ahead: more would only drive others out of the cache,
/// and who is not even known yet can ask for it.
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

#[derive(Debug)]
struct Regions {
    slots: Vec<Option<Region>>,
    /// The numbers of those that are pools.
    pools: Vec<u8>,
    /// Of each number, how often it was registered.
    generations: [u16; 256],
    poison: bool,
}

/// The registered memory of a server.
#[derive(Debug)]
pub struct Memory {
    regions: RwLock<Regions>,
    epochs: Epochs,
    /// Only where several threads work on one memory.
    locks: Option<Box<[AtomicU32]>>,
}

impl Memory {
    /// No memory yet, for one data plane thread.
    #[must_use]
    pub fn new() -> Self {
        Self::for_planes(1)
    }

    /// No memory yet, for so many data plane threads.
    ///
    /// # Panics
    /// When that is none.
    #[must_use]
    pub fn for_planes(planes: usize) -> Self {
        assert!(planes > 0, "somebody must run the operations");
        let locks = (planes > 1).then(|| (0..LINE_LOCKS).map(|_| AtomicU32::new(0)).collect());
        let slots = (0..256).map(|_| None).collect();
        let regions = Regions { slots, pools: Vec::new(), generations: [0; 256], poison: false };
        Self { regions: RwLock::new(regions), epochs: Epochs::new(planes), locks }
    }

    /// From now on, fills buffers that were given back before they are posted again, so that a
    /// reader of a stale address would notice. It costs a write of each buffer.
    pub fn poison_freed(&self) {
        self.write().poison = true;
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Regions> {
        self.regions.write().expect("no thread panics while it registers")
    }

    /// Registers `bytes` of zeros; gives their address. Pages come into being as they are touched.
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
        let words = Words::private(bytes.div_ceil(8), bytes >= 4 << 20)?;
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
        regions.slots[at] = Some(Region { capability, rights, words, bytes, generation, pool });
        Ok(Addr::new(generation, number, 0))
    }

    /// Takes a region away. Addresses in it are stale or unknown from now on.
    pub fn unregister(&self, addr: Addr) {
        let mut regions = self.write();
        let slot = &mut regions.slots[usize::from(addr.region())];
        if slot.as_ref().is_some_and(|region| region.generation == addr.generation()) {
            *slot = None;
            regions.pools.retain(|number| *number != addr.region());
        }
    }

    /// Lets the thread `plane` work until the view is dropped.
    ///
    /// # Panics
    /// When there is no such thread.
    #[must_use]
    pub fn view(&self, plane: usize) -> View<'_> {
        let regions = self.regions.read().expect("no thread panics while it registers");
        self.epochs.enter(plane);
        View { regions, memory: self, plane }
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
                let more = state.posted;
                post_more(region, pool, &mut state, more);
            }
        }
    }

    /// Where the buffers of a pool are. `None` when it is no pool.
    #[must_use]
    pub fn pool_count(&self, pool: u8) -> Option<PoolCount> {
        let regions = self.regions.read().expect("no thread panics while it registers");
        let pool = regions.slots[usize::from(pool)].as_ref()?.pool.as_ref()?;
        let state = lock(&pool.state);
        let (free, waiting) = (state.free.len() as u32, state.limbo.len() as u32);
        let (posted, limit) = (state.posted, pool.limit);
        Some(PoolCount { posted, free, waiting, taken: posted - free - waiting, limit })
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
    for buffer in state.posted..until {
        // The first generation; 0 would look like an address that has none.
        region.words[buffer as usize * pool.stride / 8].store(1, Ordering::Relaxed);
        state.free.push_back(buffer);
    }
    state.posted = until;
}

/// A range that a request may access in the way that it asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    words: &'a [AtomicU64],
    /// Where the range begins, in bytes.
    offset: usize,
    /// The request's own scratch memory, which nobody else sees.
    own: bool,
}

/// A thread's access to the memory for a batch of requests.
#[derive(Debug)]
pub struct View<'m> {
    regions: RwLockReadGuard<'m, Regions>,
    memory: &'m Memory,
    plane: usize,
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.memory.epochs.leave(self.plane);
    }
}

/// The request's own memory.
pub(crate) type Scratch = [AtomicU64; SCRATCH_BYTES / 8];

impl View<'_> {
    /// Whether it is this thread's, of this memory.
    pub(crate) fn is_of(&self, memory: &Memory, plane: usize) -> bool {
        std::ptr::eq(self.memory, memory) && self.plane == plane
    }

    /// Finds `len` bytes at `addr`, after every check that stands before an access.
    #[inline]
    pub(crate) fn locate<'a>(
        &'a self,
        addr: Addr,
        len: usize,
        right: Rights,
        capability: Capability,
        scratch: &'a Scratch,
    ) -> Result<Place<'a>, Status> {
        if addr.is_null() {
            return Err(Status::NullPointer);
        }
        let offset = addr.offset() as usize;
        if addr.region() == Addr::SCRATCH_REGION {
            if offset + len > SCRATCH_BYTES {
                return Err(Status::OutOfRange);
            }
            if addr.generation() != 0 {
                return Err(Status::Stale);
            }
            if !Rights::READ.and(Rights::WRITE).grant(right) {
                return Err(Status::NoRight);
            }
            return Ok(Place { words: scratch, offset, own: true });
        }
        let region = self.regions.slots[usize::from(addr.region())].as_ref();
        let region = region.ok_or(Status::UnknownRegion)?;
        if region.capability != capability {
            return Err(Status::BadCapability);
        }
        if offset + len > region.bytes {
            return Err(Status::OutOfRange);
        }
        let current = match &region.pool {
            None => region.generation == addr.generation(),
            Some(pool) => {
                let (buffer, within) = (offset / pool.stride, offset % pool.stride);
                if within < BUFFER_HEADER || within + len > pool.stride {
                    return Err(Status::OutOfRange);
                }
                let header = region.words[buffer * pool.stride / 8].load(Ordering::Acquire);
                header == u64::from(addr.generation()) | LIVE
            }
        };
        if !current {
            return Err(Status::Stale);
        }
        if !region.rights.grant(right) {
            return Err(Status::NoRight);
        }
        Ok(Place { words: &region.words, offset, own: false })
    }

    /// The pool with this number, if the capability opens it for `right`.
    fn pool(&self, number: u8, right: Rights, by: Capability) -> Result<(&Region, &Pool), Status> {
        let region = self.regions.slots[usize::from(number)].as_ref();
        let region = region.ok_or(Status::UnknownRegion)?;
        if region.capability != by {
            return Err(Status::BadCapability);
        }
        match &region.pool {
            Some(pool) if region.rights.grant(right) => Ok((region, pool)),
            _ => Err(Status::NoRight),
        }
    }

    /// Whether a buffer of this length could be taken now: what ALLOCATE checks first.
    pub(crate) fn can_allocate(&self, pool: u8, len: usize, by: Capability) -> Result<(), Status> {
        let (_, pool) = self.pool(pool, Rights::ALLOCATE, by)?;
        if len > pool.stride - BUFFER_HEADER {
            return Err(Status::TooLong);
        }
        Ok(())
    }

    /// Takes the oldest free buffer and writes `data` to its beginning.
    pub(crate) fn allocate(
        &self,
        number: u8,
        data: &[u64],
        by: Capability,
    ) -> Result<Addr, Status> {
        self.can_allocate(number, data.len() * 8, by)?;
        let (region, pool) = self.pool(number, Rights::ALLOCATE, by)?;
        let buffer = lock(&pool.state).free.pop_front().ok_or(Status::Empty)?;
        let at = buffer as usize * pool.stride / 8;
        let generation = region.words[at].load(Ordering::Relaxed);
        assert_eq!(generation & LIVE, 0, "a free buffer is not taken");
        store_words(data, &region.words[at + 1..]);
        region.words[at].store(generation | LIVE, Ordering::Release);
        Ok(Addr::new(generation as u16, number, (at * 8 + BUFFER_HEADER) as u64))
    }

    /// Gives a buffer back: its address is stale from now on, and it is posted again when no
    /// operation can still hold it.
    ///
    /// # Errors
    /// What is wrong with the address; nothing is changed then.
    pub fn retire(&self, addr: Addr, by: Capability) -> Result<(), Status> {
        if addr.is_null() {
            return Err(Status::NullPointer);
        }
        let (region, pool) = self.pool(addr.region(), Rights::ALLOCATE, by)?;
        let offset = addr.offset() as usize;
        if offset % pool.stride != BUFFER_HEADER || offset >= region.bytes {
            return Err(Status::OutOfRange);
        }
        let buffer = offset / pool.stride;
        let header = &region.words[buffer * pool.stride / 8];
        let old = u64::from(addr.generation()) | LIVE;
        let next = match addr.generation().wrapping_add(1) {
            _ if !stands(Defence::Generations) => u64::from(addr.generation()),
            0 => 1,
            next => u64::from(next),
        };
        // Two may give back the same buffer at once; one of them comes too late.
        header
            .compare_exchange(old, next, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Status::Stale)?;
        let epoch = self.memory.epochs.retired();
        lock(&pool.state).limbo.push_back((epoch, buffer as u32));
        Ok(())
    }

    /// The addresses of all buffers of a pool that are taken.
    pub(crate) fn taken(&self, number: u8, by: Capability) -> Result<Vec<Addr>, Status> {
        let (region, pool) = self.pool(number, Rights::ALLOCATE, by)?;
        let posted = lock(&pool.state).posted as usize;
        let buffers = (0..posted).filter_map(|buffer| {
            let at = buffer * pool.stride;
            let header = region.words[at / 8].load(Ordering::Acquire);
            let addr = Addr::new(header as u16, number, (at + BUFFER_HEADER) as u64);
            (header & LIVE != 0).then_some(addr)
        });
        Ok(buffers.collect())
    }

    /// Keeps others from the line for as long as the guard lives, where there are others.
    #[inline]
    pub(crate) fn guard(&self, place: &Place<'_>) -> Option<LineGuard<'_>> {
        let locks = self.memory.locks.as_ref()?;
        if place.own {
            return None;
        }
        let line = std::ptr::from_ref(&place.words[place.offset / 8]).addr() / LINE;
        let lock = &locks[line % LINE_LOCKS];
        while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        Some(LineGuard(lock))
    }

    /// Appends `len` bytes of the place.
    #[inline]
    pub(crate) fn read(&self, place: &Place<'_>, len: usize, out: &mut Vec<u64>) {
        if len == 0 {
            return;
        }
        let _guard = if place.is_in_line(len) { self.guard(place) } else { None };
        place.read(len, out);
    }

    /// Writes the first `len` bytes of `words` to the place.
    pub(crate) fn write(&self, place: &Place<'_>, words: &[u64], len: usize) {
        if len == 0 {
            return;
        }
        let _guard = if place.is_in_line(len) { self.guard(place) } else { None };
        // Others may change bytes of the same words beside a longer range; each end has its line.
        let edges = _guard.is_none() && self.memory.locks.is_some();
        place.write(words, len, |edge| if edges { self.guard(edge) } else { None });
    }

    /// The words from `addr` to the end of its region, for the server's own use: nothing is checked
    /// but that they exist and are of the address's generation.
    pub(crate) fn words(&self, addr: Addr) -> Option<&[AtomicU64]> {
        let region = self.regions.slots.get(usize::from(addr.region()))?.as_ref()?;
        let current = match &region.pool {
            None => region.generation == addr.generation(),
            Some(_) => {
                let header = (addr.offset() as usize / 8).checked_sub(1)?;
                region.words.get(header)?.load(Ordering::Acquire) as u16 == addr.generation()
            }
        };
        if !current {
            return None;
        }
        region.words.get(addr.offset() as usize / 8..)
    }

    /// Asks the processor for `len` bytes at `addr`, or the first of them, without any check but that
    /// they exist.
    #[inline]
    pub(crate) fn prefetch(&self, addr: Addr, len: usize) {
        if let Some(Some(region)) = self.regions.slots.get(usize::from(addr.region())) {
            let first = addr.offset() as usize / 8;
            // A buffer's header lies before it, and is looked at first.
            let first = if region.pool.is_some() { first.saturating_sub(1) } else { first };
            let len = len.clamp(1, MAX_PREFETCH);
            let end = (addr.offset() as usize + len).div_ceil(8);
            if let Some(words) = region.words.get(first..end) {
                prefetch(words);
            }
        }
    }

    /// The two words at `addr`, without any check but that they exist: for prefetching only.
    #[inline]
    pub(crate) fn peek(&self, addr: Addr) -> Option<(Addr, u64)> {
        let region = self.regions.slots.get(usize::from(addr.region()))?.as_ref()?;
        let at = addr.offset() as usize / 8;
        let pair = region.words.get(at..at + 2)?;
        Some((Addr(pair[0].load(Ordering::Relaxed)), pair[1].load(Ordering::Relaxed)))
    }

    /// Asks the processor for the buffer that the pool would give next.
    #[inline]
    pub(crate) fn prefetch_free(&self, number: u8, ahead: usize) {
        if let Some(region) = &self.regions.slots[usize::from(number)]
            && let Some(pool) = &region.pool
            && let Some(buffer) = lock(&pool.state).free.get(ahead)
        {
            let at = *buffer as usize * pool.stride / 8;
            prefetch(&region.words[at..at + pool.stride / 8]);
        }
    }
}

/// Holds a line.
#[derive(Debug)]
pub(crate) struct LineGuard<'a>(&'a AtomicU32);

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<'a> Place<'a> {
    pub(crate) const fn is_aligned(&self, to: usize) -> bool {
        self.offset.is_multiple_of(to)
    }

    /// Whether the range lies within one cache line.
    pub(crate) const fn is_in_line(&self, len: usize) -> bool {
        self.offset % LINE + len <= LINE
    }

    /// The words of an aligned range.
    #[inline]
    pub(crate) fn words(&self, count: usize) -> &'a [AtomicU64] {
        &self.words[self.offset / 8..self.offset / 8 + count]
    }

    #[inline]
    fn read(&self, len: usize, out: &mut Vec<u64>) {
        let (first, shift) = (self.offset / 8, self.offset % 8 * 8);
        let count = len.div_ceil(8);
        if shift == 0 {
            load_words(&self.words[first..first + count], out);
        } else {
            let last = (self.offset + len - 1) / 8;
            let load = |at: usize| match at {
                at if at <= last => self.words[at].load(Ordering::Relaxed),
                _ => 0,
            };
            out.extend(
                (first..first + count).map(|at| load(at) >> shift | load(at + 1) << (64 - shift)),
            );
        }
        if !len.is_multiple_of(8) {
            let end = out.last_mut().expect("at least one word was appended");
            *end &= (1 << (len % 8 * 8)) - 1;
        }
    }

    fn write<G>(&self, words: &[u64], len: usize, guard: impl Fn(&Place<'_>) -> Option<G>) {
        let shift = self.offset % 8 * 8;
        let (first, end) = (self.offset / 8, self.offset + len);
        let whole = if shift == 0 { words.len().min(len / 8) } else { 0 };
        store_words(&words[..whole], &self.words[first..]);
        for at in first + whole..end.div_ceil(8) {
            let source = |i: usize| words.get(i).copied().unwrap_or(0);
            let value = match (shift, at - first) {
                (0, i) => source(i),
                (_, 0) => source(0) << shift,
                (_, i) => source(i - 1) >> (64 - shift) | source(i) << shift,
            };
            let (from, to) = (self.offset.max(at * 8) - at * 8, end.min(at * 8 + 8) - at * 8);
            let word = &self.words[at];
            if to - from == 8 {
                word.store(value, Ordering::Relaxed);
            } else {
                let _guard = guard(&Place { offset: at * 8, ..*self });
                let mask = ((1u64 << ((to - from) * 8)) - 1) << (from * 8);
                let old = word.load(Ordering::Relaxed);
                word.store(old & !mask | value & mask, Ordering::Relaxed);
            }
        }
    }
}
