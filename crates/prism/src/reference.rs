//! What the operations mean: an interpreter that is written to be read, not to be fast. The
//! executor that serves requests is held against it with random chains
//! (`crates/prism/tests/semantics.rs`).
//!
//! # Rules
//!
//! 1. A request's operations run in order. Each is atomic towards the operations of others; the
//!    request as a whole is not. (Of one line of 64 bytes that holds for every operation; a longer
//!    READ may meet a concurrent WRITE of the same bytes half way. Who needs more writes a buffer
//!    once, and swaps pointers.)
//! 2. An operation that is *conditional* is skipped unless the one before it succeeded. Only
//!    [`Status::Ok`] is success, so one failure skips a whole conditional tail.
//! 3. Every access, and each pointer on the way to it, is checked, in this order: the address is
//!    not null; the region exists; the request's capability opens it; the range lies wholly within
//!    it, and within one taken buffer's payload when the region is a pool; the address is of the
//!    present generation; the region's rights permit the access; the address is aligned as needed.
//! 4. A fault has no effect: all accesses of an operation are checked before the first change.
//! 5. A pointer is aligned to 8 bytes; a bounded pointer (pointer and bound) to 16. CAS and
//!    FETCH-ADD targets are aligned to 8 bytes and do not cross a line.
//! 6. CAS takes its operands as one unsigned integer, the first word most significant; words that
//!    are masked out do not count. It gives the target's earlier value whether it swaps or not.
//!    With no word compared, EQUAL holds, and GREATER and LESS do not.
//! 7. ALLOCATE takes the buffer that has been free for the longest time. Its checks come in the
//!    order: pool, length, place of the redirected address, a free buffer.
//! 8. Scratch memory is 64 bytes of zeros that belong to one request. It can be read and written,
//!    not swapped.

use crate::memory::{BUFFER_HEADER, Rights};
use crate::op::{
    Action, Addr, Capability, Cas, Deref, Masks, Mode, Op, Operand, Payload, SCRATCH_BYTES, Source,
    Status,
};
use std::collections::{BTreeMap, VecDeque};

/// A memory to interpret operations on.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// The regions by number.
    pub regions: BTreeMap<u8, ReferenceRegion>,
}

/// A region.
#[derive(Clone, Debug)]
pub struct ReferenceRegion {
    /// What opens it.
    pub capability: Capability,
    /// What it permits.
    pub rights: Rights,
    /// Its bytes; of a pool, buffer headers included (which are not used here).
    pub bytes: Vec<u8>,
    /// Of a plain region.
    pub generation: u16,
    /// Its buffers, when it is a pool.
    pub pool: Option<ReferencePool>,
}

/// A pool's buffers.
#[derive(Clone, Debug)]
pub struct ReferencePool {
    /// The distance of buffers in bytes.
    pub stride: usize,
    /// Of each buffer the generation and whether it is taken.
    pub buffers: Vec<(u16, bool)>,
    /// The free ones, oldest first.
    pub free: VecDeque<usize>,
}

type Outcome = (Status, Vec<u8>);
/// A range that may be accessed: the region, or none for scratch, and the offset.
type Place = (Option<u8>, usize);

impl Reference {
    /// Runs a request's operations; gives how each ended.
    pub fn run(&mut self, by: Capability, ops: &[Op<'_>]) -> Vec<Outcome> {
        let mut scratch = [0; SCRATCH_BYTES];
        let mut outcomes: Vec<Outcome> = Vec::new();
        for op in ops {
            let before = outcomes.last().map_or(Status::Ok, |(status, _)| *status);
            if op.conditional && before != Status::Ok {
                outcomes.push((Status::Skipped, Vec::new()));
                continue;
            }
            let mut step = Step { memory: self, scratch: &mut scratch, by };
            outcomes.push(step.action(&op.action).unwrap_or_else(|fault| (fault, Vec::new())));
        }
        outcomes
    }

    /// Gives a buffer back and lets its grace period go by.
    ///
    /// # Errors
    /// What is wrong with the address.
    pub fn retire(&mut self, addr: Addr, by: Capability) -> Result<(), Status> {
        if addr.is_null() {
            return Err(Status::NullPointer);
        }
        let region = self.regions.get_mut(&addr.region()).ok_or(Status::UnknownRegion)?;
        if region.capability != by {
            return Err(Status::BadCapability);
        }
        let size = region.bytes.len();
        let (true, Some(pool)) = (region.rights.grant(Rights::ALLOCATE), &mut region.pool) else {
            return Err(Status::NoRight);
        };
        let offset = addr.offset() as usize;
        if offset % pool.stride != BUFFER_HEADER || offset >= size {
            return Err(Status::OutOfRange);
        }
        let number = offset / pool.stride;
        match pool.buffers.get_mut(number) {
            Some((generation, taken @ true)) if *generation == addr.generation() => {
                *generation = if *generation == u16::MAX { 1 } else { *generation + 1 };
                *taken = false;
                pool.free.push_back(number);
                Ok(())
            }
            _ => Err(Status::Stale),
        }
    }
}

struct Step<'a> {
    memory: &'a mut Reference,
    scratch: &'a mut [u8; SCRATCH_BYTES],
    by: Capability,
}

impl Step<'_> {
    /// Rule 3.
    fn check(&self, addr: Addr, len: usize, right: Rights, align: usize) -> Result<Place, Status> {
        if addr.is_null() {
            return Err(Status::NullPointer);
        }
        let offset = addr.offset() as usize;
        let place = if addr.region() == Addr::SCRATCH_REGION {
            if offset + len > SCRATCH_BYTES {
                return Err(Status::OutOfRange);
            }
            if addr.generation() != 0 {
                return Err(Status::Stale);
            }
            if right != Rights::READ && right != Rights::WRITE {
                return Err(Status::NoRight);
            }
            (None, offset)
        } else {
            let region = self.memory.regions.get(&addr.region()).ok_or(Status::UnknownRegion)?;
            if region.capability != self.by {
                return Err(Status::BadCapability);
            }
            if offset + len > region.bytes.len() {
                return Err(Status::OutOfRange);
            }
            let current = match &region.pool {
                None => region.generation == addr.generation(),
                Some(pool) => {
                    let within = offset % pool.stride;
                    if within < BUFFER_HEADER || within + len > pool.stride {
                        return Err(Status::OutOfRange);
                    }
                    pool.buffers.get(offset / pool.stride) == Some(&(addr.generation(), true))
                }
            };
            if !current {
                return Err(Status::Stale);
            }
            if !region.rights.grant(right) {
                return Err(Status::NoRight);
            }
            (Some(addr.region()), offset)
        };
        if offset.is_multiple_of(align) { Ok(place) } else { Err(Status::Misaligned) }
    }

    fn bytes(&mut self, (region, offset): Place, len: usize) -> &mut [u8] {
        let all = match region {
            None => &mut self.scratch[..],
            Some(region) => &mut self.memory.regions.get_mut(&region).expect("checked").bytes,
        };
        &mut all[offset..offset + len]
    }

    fn word(&mut self, (region, offset): Place, index: usize) -> u64 {
        let bytes = self.bytes((region, offset + index * 8), 8);
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Rule 5: the address that is meant, and how many bytes there at most.
    fn follow(&mut self, addr: Addr, deref: Deref) -> Result<(Addr, usize), Status> {
        match deref {
            Deref::Direct => Ok((addr, usize::MAX)),
            Deref::Indirect => {
                let place = self.check(addr, 8, Rights::READ, 8)?;
                Ok((Addr(self.word(place, 0)), usize::MAX))
            }
            Deref::Bounded => {
                let place = self.check(addr, 16, Rights::READ, 16)?;
                Ok((Addr(self.word(place, 0)), self.word(place, 1) as usize))
            }
        }
    }

    fn action(&mut self, action: &Action<'_>) -> Result<Outcome, Status> {
        match *action {
            Action::Read { addr, len, deref, redirect } => {
                let (addr, bound) = self.follow(addr, deref)?;
                let len = (len as usize).min(bound);
                let from = self.check(addr, len, Rights::READ, 1)?;
                let Some(to) = redirect else {
                    return Ok((Status::Ok, self.bytes(from, len).to_vec()));
                };
                let to = self.check(to, len, Rights::WRITE, 1)?;
                let bytes = self.bytes(from, len).to_vec();
                self.bytes(to, len).copy_from_slice(&bytes);
                Ok((Status::Ok, Vec::new()))
            }
            Action::Write { addr, deref, source } => {
                let (addr, bound) = self.follow(addr, deref)?;
                let len = match source {
                    Source::Inline(data) => data.len(),
                    Source::At(_, len) => len as usize,
                };
                let len = len.min(bound);
                let to = self.check(addr, len, Rights::WRITE, 1)?;
                let bytes = match source {
                    Source::Inline(data) => data.as_bytes()[..len].to_vec(),
                    Source::At(from, _) => {
                        let from = self.check(from, len, Rights::READ, 1)?;
                        self.bytes(from, len).to_vec()
                    }
                };
                self.bytes(to, len).copy_from_slice(&bytes);
                let told = deref == Deref::Bounded;
                Ok((Status::Ok, if told { (len as u64).to_le_bytes().into() } else { vec![] }))
            }
            Action::Allocate { pool, data, redirect } => self.allocate(pool, data, redirect),
            Action::Cas(cas) => self.cas(&cas),
            Action::FetchAdd { addr, indirect, addend } => {
                let deref = Deref::of(indirect);
                let (addr, _) = self.follow(addr, deref)?;
                let place = self.check(addr, 8, Rights::ATOMIC, 8)?;
                let old = self.word(place, 0);
                let new = old.wrapping_add(addend);
                self.bytes(place, 8).copy_from_slice(&new.to_le_bytes());
                Ok((Status::Ok, old.to_le_bytes().into()))
            }
        }
    }

    /// Rule 7.
    fn allocate(
        &mut self,
        number: u8,
        data: Payload<'_>,
        redirect: Option<Addr>,
    ) -> Result<Outcome, Status> {
        let region = self.memory.regions.get(&number).ok_or(Status::UnknownRegion)?;
        if region.capability != self.by {
            return Err(Status::BadCapability);
        }
        let (true, Some(pool)) = (region.rights.grant(Rights::ALLOCATE), &region.pool) else {
            return Err(Status::NoRight);
        };
        let stride = pool.stride;
        if data.len() > stride - BUFFER_HEADER {
            return Err(Status::TooLong);
        }
        let to = redirect.map(|to| self.check(to, 8, Rights::WRITE, 8)).transpose()?;
        let region = self.memory.regions.get_mut(&number).expect("looked at above");
        let pool = region.pool.as_mut().expect("looked at above");
        let buffer = pool.free.pop_front().ok_or(Status::Empty)?;
        pool.buffers[buffer].1 = true;
        let offset = buffer * stride + BUFFER_HEADER;
        let addr = Addr::new(pool.buffers[buffer].0, number, offset as u64);
        let padded = zerocopy::IntoBytes::as_bytes(data.words());
        self.bytes((Some(number), offset), padded.len()).copy_from_slice(padded);
        let addr = addr.0.to_le_bytes();
        let Some(to) = to else { return Ok((Status::Ok, addr.into())) };
        self.bytes(to, 8).copy_from_slice(&addr);
        Ok((Status::Ok, Vec::new()))
    }

    fn operand(&mut self, operand: Operand<'_>, words: usize) -> Result<Vec<u64>, Status> {
        match operand {
            Operand::Inline(inline) => Ok(inline.to_vec()),
            Operand::At(addr) => {
                let place = self.check(addr, words * 8, Rights::READ, 8)?;
                Ok((0..words).map(|i| self.word(place, i)).collect())
            }
        }
    }

    /// Rule 6.
    fn cas(&mut self, cas: &Cas<'_>) -> Result<Outcome, Status> {
        let words = usize::from(cas.words);
        let deref = Deref::of(cas.indirect);
        let (target, _) = self.follow(cas.target, deref)?;
        let place = self.check(target, words * 8, Rights::ATOMIC, 8)?;
        if place.1 / 64 != (place.1 + words * 8 - 1) / 64 {
            return Err(Status::Misaligned);
        }
        let data = self.operand(cas.data, words)?;
        let comparand = match cas.comparand {
            None => data.clone(),
            Some(comparand) => self.operand(comparand, words)?,
        };
        let old: Vec<u64> = (0..words).map(|i| self.word(place, i)).collect();
        let masks = |of_words: u8, of_bits: &[u64]| match cas.masks {
            Masks::Bits { .. } => of_bits.to_vec(),
            Masks::Words { .. } => {
                (0..words).map(|i| if of_words >> i & 1 == 1 { u64::MAX } else { 0 }).collect()
            }
        };
        let (compare, swap) = match cas.masks {
            Masks::Bits { compare, swap } => (masks(0, compare), masks(0, swap)),
            Masks::Words { compare, swap } => (masks(compare, &[]), masks(swap, &[])),
        };
        let masked = |value: &[u64]| -> Vec<u64> {
            value.iter().zip(&compare).map(|(word, mask)| word & mask).collect()
        };
        let holds = match cas.mode {
            Mode::Equal => masked(&comparand) == masked(&old),
            Mode::Greater => masked(&comparand) > masked(&old),
            Mode::Less => masked(&comparand) < masked(&old),
        };
        if holds {
            for i in 0..words {
                let new = old[i] & !swap[i] | data[i] & swap[i];
                self.bytes((place.0, place.1 + i * 8), 8).copy_from_slice(&new.to_le_bytes());
            }
        }
        let old = old.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok((if holds { Status::Ok } else { Status::Miss }, old))
    }
}
