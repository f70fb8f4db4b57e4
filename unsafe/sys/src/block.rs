//! Runs of atomic words, copied by the vector.
//!
//! A compiler does not join atomic accesses, so that a loop of them moves eight bytes a time. What is
//! asked of these copies is less than of a single atomic word: each word is moved at one go, relaxed,
//! and nothing is said of their order.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Words that are moved at one go.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BLOCK: usize = 8;

/// Appends the words of `from` to `to`, each as of a relaxed load.
#[inline]
pub fn load_words(from: &[AtomicU64], to: &mut Vec<u64>) {
    to.reserve(from.len());
    // SAFETY: `from` is readable for its length, and atomics may be written by others meanwhile. The
    // vector has room for as many words behind its last one, which are ours alone, and all of them
    // are written before they count as there.
    unsafe {
        copy(from.as_ptr().cast(), to.as_mut_ptr().add(to.len()), from.len());
        to.set_len(to.len() + from.len());
    }
}

/// Stores the words of `from` to the first ones of `to`, each as a relaxed store does.
///
/// # Panics
/// When `to` has fewer.
#[inline]
pub fn store_words(from: &[u64], to: &[AtomicU64]) {
    assert!(from.len() <= to.len(), "more words than there is room for");
    // SAFETY: both are readable, and `to`, being atomics, writable through a shared reference, for
    // this many words; others may access those meanwhile.
    unsafe { copy(from.as_ptr(), to.as_ptr().cast_mut().cast(), from.len()) }
}

/// Copies words.
///
/// # Safety
/// `from` is readable and `to` writable for `count` words, both are aligned for them, and whoever
/// else accesses them meanwhile does so atomically.
#[inline]
unsafe fn copy(mut from: *const u64, mut to: *mut u64, count: usize) {
    // Miri interprets Rust, and so the loop below.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let count = {
        let blocks = count / BLOCK;
        if blocks > 0 {
            // SAFETY: reads and writes `blocks * BLOCK` words, which is `count` at most, and changes
            // no other memory and no register but those named. For the compiler it is opaque code
            // that accesses memory, as another function's atomics are; for the processor, ordinary
            // loads and stores, none of which splits an aligned word: that the halves of such a
            // vector are moved whole is what every copy of atomic words relies on (that of Java's
            // `long[]`, for one). SSE2 is part of the architecture.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "movups {a}, [{from}]",
                    "movups {b}, [{from} + 16]",
                    "movups {c}, [{from} + 32]",
                    "movups {d}, [{from} + 48]",
                    "movups [{to}], {a}",
                    "movups [{to} + 16], {b}",
                    "movups [{to} + 32], {c}",
                    "movups [{to} + 48], {d}",
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {blocks}",
                    "jnz 2b",
                    from = inout(reg) from,
                    to = inout(reg) to,
                    blocks = inout(reg) blocks => _,
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    c = out(xmm_reg) _,
                    d = out(xmm_reg) _,
                    options(nostack),
                );
            }
        }
        count % BLOCK
    };
    for _ in 0..count {
        // SAFETY: within what the caller vouches for.
        unsafe {
            let word = AtomicU64::from_ptr(from.cast_mut()).load(Relaxed);
            AtomicU64::from_ptr(to).store(word, Relaxed);
            (from, to) = (from.add(1), to.add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length around a block's, at every place within a line.
    #[test]
    fn words_are_copied_as_they_are_and_no_others() {
        let atomics = |words: &[u64]| words.iter().map(|w| AtomicU64::new(*w)).collect::<Vec<_>>();
        let source: Vec<u64> = (1..=96).collect();
        for start in 0..8 {
            for count in 0..=80 {
                let words = &source[start..start + count];
                let mut loaded = vec![7; 3];
                load_words(&atomics(words), &mut loaded);
                assert_eq!((&loaded[..3], &loaded[3..]), (&[7; 3][..], words));
                let stored = atomics(&[0; 96]);
                store_words(words, &stored[start..start + count]);
                let stored: Vec<u64> = stored.into_iter().map(AtomicU64::into_inner).collect();
                assert_eq!(&stored[start..start + count], words);
                assert!(stored[..start].iter().chain(&stored[start + count..]).all(|w| *w == 0));
            }
        }
    }

    /// One thread stores runs of equal words, one after another; who loads sees no word that never
    /// was.
    #[test]
    fn no_word_is_torn() {
        let shared: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let value = |i: u64| i.wrapping_mul(0x0101_0101_0101_0101);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=255).for_each(|i| store_words(&[value(i); 64], &shared)));
            let mut loaded = Vec::new();
            while loaded.first() != Some(&value(255)) {
                loaded.clear();
                load_words(&shared, &mut loaded);
                assert!(loaded.iter().all(|word| *word == value(word & 0xff)), "{loaded:x?}");
                std::thread::yield_now();
            }
        });
    }
}
