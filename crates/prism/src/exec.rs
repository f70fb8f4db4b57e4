//! Runs requests. What an operation means is defined by [`crate::reference`]; this is the same,
//! fast: in place, in one pass, without allocating.
//!
//! A batch of requests is gone through three times (group prefetching): the first pass prefetches
//! the cache lines that hold pointers (slots), the second follows the pointers and prefetches what
//! they point to (buffers), the third runs the requests. Two dependent misses of one request so
//! overlap with those of others. The first pass checks nothing, since a prefetch has no effect. Nothing
//! decoded is kept from pass to pass but addresses: to decode again costs less than to copy what was
//! decoded, since a copy waits for the words that were written just now, and those wait in line behind
//! answers whose cache lines are still the client's.

use crate::memory::{MemoryView, Place, Rights, Scratch};
use crate::op::{
    Action, Addr, Capability, Cas, Deref, MAX_CAS_WORDS, Masks, Mode, Operand, Source, Status,
};
use crate::wire::{AnswerWriter, Request, glance};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many requests are prefetched for at once. Fewer than a client may have in flight, so that the
/// first answers of a burst are on their way while the rest is run.
pub(crate) const GROUP: usize = 16;
/// How many operations of a request are prefetched for.
const AHEAD: usize = 4;

/// A pointer that an operation will follow: where it lies, and what is wanted of what it points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    at: Addr,
    len: u32,
    bounded: bool,
}

/// The first pass: prefetches what requests, given by their frames, will read first, and notes the
/// pointers among it.
pub(crate) fn ask<'a>(
    view: &MemoryView<'_>,
    requests: impl Iterator<Item = &'a [u64]>,
    pointers: &mut Vec<Pointer>,
) {
    pointers.clear();
    let mut allocations = 0;
    for request in requests {
        let mut moved = None;
        for op in glance(request).take(AHEAD) {
            match op.action {
                Action::Read { addr, len, deref: Deref::Direct, redirect: None } => {
                    view.prefetch(addr, len as usize);
                }
                Action::Read { addr, len, deref, redirect: None } if deref != Deref::Direct => {
                    view.prefetch(addr, 16);
                    pointers.push(Pointer { at: addr, len, bounded: deref == Deref::Bounded });
                }
                _ => ask_for_others(view, &op.action, &mut moved, &mut allocations, pointers),
            }
        }
    }
}

/// The first pass of what is no plain READ. `moved`: what the request reads to its scratch memory, from
/// where and to where. (By itself, since to read is what has to be fast.)
#[inline(never)]
fn ask_for_others(
    view: &MemoryView<'_>,
    action: &Action<'_>,
    moved: &mut Option<(Addr, Addr)>,
    allocations: &mut usize,
    pointers: &mut Vec<Pointer>,
) {
    let (addr, deref, len) = match *action {
        Action::Read { addr, len, deref, redirect } => {
            if let (Deref::Direct, Some(to)) = (deref, redirect) {
                *moved = Some((addr, to));
            }
            (addr, deref, len as usize)
        }
        Action::Write { addr, deref, source } => (addr, deref, source.bytes()),
        Action::FetchAdd { addr, indirect, .. } => (addr, Deref::of(indirect), 8),
        Action::Cas(ref cas) => (cas.target, Deref::of(cas.indirect), usize::from(cas.words) * 8),
        Action::Allocate { pool, .. } => {
            view.prefetch_free(pool, *allocations);
            *allocations += 1;
            return;
        }
    };
    if deref == Deref::Direct {
        return view.prefetch(addr, len);
    }
    // A pointer in scratch memory is, as yet, where it will be read from.
    let at = match *moved {
        Some((from, to)) if addr == to => from,
        _ => addr,
    };
    view.prefetch(at, 16);
    pointers.push(Pointer { at, len: len as u32, bounded: deref == Deref::Bounded });
}

/// The second pass: prefetches what the pointers point to. First one line of each, so that the
/// page table walks overlap, too.
pub(crate) fn follow(view: &MemoryView<'_>, pointers: &mut [Pointer]) {
    for pointer in &mut *pointers {
        let (to, bound) = view.peek(pointer.at).unwrap_or_default();
        if pointer.bounded {
            pointer.len = u64::from(pointer.len).min(bound) as u32;
        }
        pointer.at = to;
        view.prefetch(to, 1);
    }
    for there in pointers {
        view.prefetch(there.at, there.len as usize);
    }
}

/// Runs a request. `alone`: nothing behind a pointer was prefetched. Says whether all its operations succeeded.
#[inline(always)]
pub(crate) fn run(
    view: &MemoryView<'_>,
    request: &Request<'_>,
    answer: &mut AnswerWriter<'_>,
    spare: &mut Vec<u64>,
    alone: bool,
) -> bool {
    let scratch = Scratch::default();
    let mut run = Run { view, by: &request.header.capability, scratch: &scratch, spare, alone };
    let (mut succeeded, mut all) = (true, true);
    let mut ops = request.ops();
    // By reference: see above.
    while let Some(op) = &ops.next() {
        let status = answer.result(|out| {
            if op.conditional && !succeeded {
                return (Status::Skipped, 0);
            }
            let before = out.len();
            match run.action(&op.action, out) {
                Ok((status, bytes)) => (status, bytes),
                Err(status) => {
                    assert_eq!(out.len(), before, "a fault gives no data");
                    (status, 0)
                }
            }
        });
        succeeded = status == Status::Ok;
        all &= succeeded;
    }
    all
}

struct Run<'a> {
    view: &'a MemoryView<'a>,
    /// A copy would be made of two words that were written just now: see above.
    by: &'a Capability,
    scratch: &'a Scratch,
    spare: &'a mut Vec<u64>,
    alone: bool,
}

impl<'a> Run<'a> {
    #[inline]
    fn locate(&self, addr: Addr, len: usize, right: Rights) -> Result<Place<'a>, Status> {
        self.view.locate(addr, len, right, *self.by, self.scratch)
    }

    /// Where the operation's memory is, and how many bytes of it at most.
    #[inline]
    fn follow(&self, addr: Addr, deref: Deref) -> Result<(Addr, u64), Status> {
        let size = match deref {
            Deref::Direct => return Ok((addr, u64::MAX)),
            Deref::Indirect => 8,
            Deref::Bounded => 16,
        };
        let place = self.locate(addr, size, Rights::READ)?;
        if !place.is_aligned(size) {
            return Err(Status::Misaligned);
        }
        let _guard = self.view.guard(&place);
        let words = place.words(size / 8);
        let bound = words.get(1).map_or(u64::MAX, |word| word.load(Ordering::Relaxed));
        Ok((Addr(words[0].load(Ordering::Relaxed)), bound))
    }

    #[inline]
    fn action(
        &mut self,
        action: &Action<'_>,
        out: &mut Vec<u64>,
    ) -> Result<(Status, usize), Status> {
        match *action {
            Action::Read { addr, len, deref, redirect } => {
                let (addr, bound) = self.follow(addr, deref)?;
                let len = u64::from(len).min(bound) as usize;
                if self.alone {
                    // Before the check, which waits for the buffer's header.
                    self.view.prefetch(addr, len);
                }
                let place = self.locate(addr, len, Rights::READ)?;
                match redirect {
                    None => {
                        self.view.read(&place, len, out);
                        Ok((Status::Ok, len))
                    }
                    Some(to) => {
                        let to = self.locate(to, len, Rights::WRITE)?;
                        self.spare.clear();
                        self.view.read(&place, len, self.spare);
                        self.view.write(&to, self.spare, len);
                        Ok((Status::Ok, 0))
                    }
                }
            }
            Action::Write { addr, deref, source } => {
                let (addr, bound) = self.follow(addr, deref)?;
                let len = (source.bytes() as u64).min(bound) as usize;
                let place = self.locate(addr, len, Rights::WRITE)?;
                match source {
                    Source::Inline(data) => self.view.write(&place, data.words(), len),
                    Source::At(from, _) => {
                        let from = self.locate(from, len, Rights::READ)?;
                        self.spare.clear();
                        self.view.read(&from, len, self.spare);
                        self.view.write(&place, self.spare, len);
                    }
                }
                if deref == Deref::Bounded {
                    out.push(len as u64);
                    return Ok((Status::Ok, 8));
                }
                Ok((Status::Ok, 0))
            }
            Action::Allocate { pool, data, redirect } => {
                let to = match redirect {
                    None => None,
                    Some(to) => {
                        // Before a buffer is taken: a fault has no effect.
                        self.view.can_allocate(pool, data.words().len() * 8, *self.by)?;
                        let to = self.locate(to, 8, Rights::WRITE)?;
                        if !to.is_aligned(8) {
                            return Err(Status::Misaligned);
                        }
                        Some(to)
                    }
                };
                let addr = self.view.allocate(pool, data.words(), *self.by)?;
                match to {
                    Some(to) => {
                        self.view.write(&to, &[addr.0], 8);
                        Ok((Status::Ok, 0))
                    }
                    None => {
                        out.push(addr.0);
                        Ok((Status::Ok, 8))
                    }
                }
            }
            Action::Cas(cas) => self.cas(&cas, out),
            Action::FetchAdd { addr, indirect, addend } => {
                let (addr, _) = self.follow(addr, Deref::of(indirect))?;
                let place = self.locate(addr, 8, Rights::ATOMIC)?;
                if !place.is_aligned(8) {
                    return Err(Status::Misaligned);
                }
                let _guard = self.view.guard(&place);
                let word = &place.words(1)[0];
                let old = word.load(Ordering::Relaxed);
                word.store(old.wrapping_add(addend), Ordering::Relaxed);
                out.push(old);
                Ok((Status::Ok, 8))
            }
        }
    }

    fn operand(&self, operand: &Operand<'_>, words: usize) -> Result<[u64; 4], Status> {
        let mut value = [0; MAX_CAS_WORDS];
        match *operand {
            Operand::Inline(inline) => value[..words].copy_from_slice(inline),
            Operand::At(addr) => {
                let place = self.locate(addr, words * 8, Rights::READ)?;
                if !place.is_aligned(8) {
                    return Err(Status::Misaligned);
                }
                let _guard =
                    if place.is_in_line(words * 8) { self.view.guard(&place) } else { None };
                for (value, word) in value.iter_mut().zip(place.words(words)) {
                    *value = word.load(Ordering::Relaxed);
                }
            }
        }
        Ok(value)
    }

    fn cas(&self, cas: &Cas<'_>, out: &mut Vec<u64>) -> Result<(Status, usize), Status> {
        let words = usize::from(cas.words);
        let (target, _) = self.follow(cas.target, Deref::of(cas.indirect))?;
        let place = self.locate(target, words * 8, Rights::ATOMIC)?;
        if !place.is_aligned(8) || !place.is_in_line(words * 8) {
            return Err(Status::Misaligned);
        }
        let data = self.operand(&cas.data, words)?;
        let comparand = match &cas.comparand {
            None => data,
            Some(comparand) => self.operand(comparand, words)?,
        };
        let _guard = self.view.guard(&place);
        let target: &[AtomicU64] = place.words(words);
        let mut holds = cas.mode == Mode::Equal;
        let mut decided = false;
        for i in 0..words {
            let old = target[i].load(Ordering::Relaxed);
            out.push(old);
            let mask = cas.masks.compare(i);
            let (new, old) = (comparand[i] & mask, old & mask);
            if !decided && new != old {
                decided = true;
                holds = match cas.mode {
                    Mode::Equal => false,
                    Mode::Greater => new > old,
                    Mode::Less => new < old,
                };
            }
        }
        if !holds {
            return Ok((Status::Miss, words * 8));
        }
        for i in 0..words {
            let mask = cas.masks.swap(i);
            if mask != 0 {
                let old = target[i].load(Ordering::Relaxed);
                target[i].store(old & !mask | data[i] & mask, Ordering::Relaxed);
            }
        }
        Ok((Status::Ok, words * 8))
    }
}

impl Masks<'_> {
    fn compare(&self, word: usize) -> u64 {
        match self {
            Self::Words { compare, .. } => whole(compare >> word & 1 != 0),
            Self::Bits { compare, .. } => compare[word],
        }
    }

    fn swap(&self, word: usize) -> u64 {
        match self {
            Self::Words { swap, .. } => whole(swap >> word & 1 != 0),
            Self::Bits { swap, .. } => swap[word],
        }
    }
}

const fn whole(selected: bool) -> u64 {
    if selected { u64::MAX } else { 0 }
}
