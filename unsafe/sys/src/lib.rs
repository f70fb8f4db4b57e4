//! Calls of the system and the processor that need `unsafe`, behind safe interfaces; every block says
//! why it is sound:
//!
//! - [`Words`]: memory that the system maps, private or shared with other processes, as atomic
//!   words. Other processes may write shared words at any moment; atomics are the one kind of
//!   access for which that is no undefined behaviour.
//! - [`load_words`] and [`store_words`]: many such words at once.
//! - [`prefetch`] and [`prefetch_to_write`]: prefetch cache lines, to read or to write; [`demote`]: moves
//!   them to the shared cache.
//! - [`Inbox`] and [`Outbox`]: many datagrams a system call, with segmentation offload.
//! - [`release_heap`]: gives memory that the program has freed back to the system.

mod block;
mod datagrams;
mod heap;
mod words;

pub use block::{load_words, store_words};
pub use datagrams::{Inbox, MAX_SEGMENTS, Outbox, coalesce_on_receipt};
pub use heap::release_heap;
pub use words::Words;

use std::sync::atomic::AtomicU64;

/// Words of a cache line.
const LINE: usize = 8;

/// Prefetches the cache lines that hold `words`. Has no effect that a program could see.
#[inline(always)]
pub fn prefetch(words: &[AtomicU64]) {
    each_line(words, prefetch_line);
}

/// Prefetches the cache lines that hold `words`, to be written soon: takes them from other
/// processors now, while nobody waits for them. Has no effect that a program could see.
#[inline(always)]
pub fn prefetch_to_write(words: &[AtomicU64]) {
    each_line(words, prefetch_line_to_write);
}

/// Sends the cache lines that hold `words`, which begin with a line, to the cache that all processors
/// share: another one will read them, and need not fetch them from this one's. Has no effect that a
/// program could see.
#[inline(always)]
pub fn demote(words: &[AtomicU64]) {
    words.chunks(LINE).for_each(|line| demote_line(&line[0]));
}

#[inline(always)]
fn each_line(words: &[AtomicU64], ask: impl Fn(&AtomicU64)) {
    let before = words.as_ptr().addr() / size_of::<AtomicU64>() % LINE;
    let (begun, behind) = words.split_at(words.len().min((LINE - before) % LINE));
    let (lines, rest) = behind.as_chunks::<LINE>();
    begun.first().into_iter().for_each(&ask);
    lines.iter().for_each(|[first, ..]| ask(first));
    rest.first().into_iter().for_each(&ask);
}

#[inline(always)]
fn prefetch_line(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing into the program and cannot fault, whatever the address;
    // this one is even that of a live reference.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[inline(always)]
fn prefetch_line_to_write(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as for `prefetch_line`. The instruction is part of the base architecture of 64-bit x86
    // processors (those without it execute it as no operation), changes neither registers, flags nor
    // memory, and cannot fault.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) std::ptr::from_ref(word),
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[inline(always)]
fn demote_line(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `CLDEMOTE` only moves a line between caches, whose content stays what it is; it changes
    // neither registers, flags nor memory, and does not fault, least of all at a live reference.
    // Processors without it execute its encoding as no operation.
    unsafe {
        std::arch::asm!(
            "cldemote [{}]",
            in(reg) std::ptr::from_ref(word),
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    #[test]
    fn each_line_that_words_lie_in_is_asked_for() {
        let memory: Vec<AtomicU64> = (0..64).map(AtomicU64::new).collect();
        let line = |word: &AtomicU64| std::ptr::from_ref(word).addr() / 64;
        for start in 0..16 {
            for count in 0..=40 {
                let words = &memory[start..start + count];
                let asked = RefCell::new(Vec::new());
                each_line(words, |word| asked.borrow_mut().push(line(word)));
                let lines: BTreeSet<_> = words.iter().map(line).collect();
                assert!(asked.into_inner().into_iter().eq(lines), "each once, in order");
                prefetch(words);
                prefetch_to_write(words);
                demote(words);
            }
        }
        assert!(
            (0..)
                .zip(&memory)
                .all(|(i, word)| word.load(std::sync::atomic::Ordering::Relaxed) == i)
        );
    }
}
