//! Where `crates/prism` needs `unsafe`, it is here, behind safe interfaces, and every block says
//! why it is sound:
//!
//! - [`Words`]: memory that the system maps, private or shared with other processes, as atomic
//!   words. Other processes may write shared words at any moment; atomics are the one kind of
//!   access for which that is no undefined behaviour.
//! - [`load_words`] and [`store_words`]: many such words at once.
//! - [`prefetch`]: asks the processor for a cache line.
//! - [`Inbox`] and [`Outbox`]: many datagrams a system call, with segmentation offload.

mod block;
mod datagrams;
mod words;

pub use block::{load_words, store_words};
pub use datagrams::{Inbox, MAX_SEGMENTS, Outbox, coalesce_on_receipt};
pub use words::Words;

use std::sync::atomic::AtomicU64;

/// Asks for the cache line that holds `word`. Has no effect that a program could see.
#[inline(always)]
pub fn prefetch(word: &AtomicU64) {
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

/// Asks for the cache line that holds `word`, to be written soon: takes it away from other
/// processors now, while nobody waits for it. Has no effect that a program could see.
#[inline(always)]
pub fn prefetch_to_write(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as for `prefetch`. The instruction is part of the base architecture of 64-bit x86
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
