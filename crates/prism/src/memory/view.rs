//! A data plane thread's access to the memory, and the checks that stand before each.

use super::{
    BUFFER_HEADER, LINE, LINE_LOCKS, LIVE, MAX_PREFETCH, Memory, Pool, Region, Regions, Rights,
    lock,
};
use crate::op::{Addr, Capability, SCRATCH_BYTES, Status};
use crate::zoo::{Defence, stands};
use std::sync::RwLockReadGuard;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tercio_unsafe_sys::{load_words, prefetch, store_words};

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
pub struct MemoryView<'m> {
    pub(super) regions: RwLockReadGuard<'m, Regions>,
    pub(super) memory: &'m Memory,
    pub(super) plane: usize,
}

impl Drop for MemoryView<'_> {
    fn drop(&mut self) {
        self.memory.epochs.leave(self.plane);
    }
}

/// The request's own memory.
pub(crate) type Scratch = [AtomicU64; SCRATCH_BYTES / 8];

impl MemoryView<'_> {
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

    /// Where the buffers of a pool are. `None` when it is no pool.
    pub(crate) fn pool_count(&self, number: u8) -> Option<super::PoolCount> {
        self.regions.pool_count(number)
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
    pub fn words(&self, addr: Addr) -> Option<&[AtomicU64]> {
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
