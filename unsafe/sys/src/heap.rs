//! Gives memory that a program has freed back to the system.
//!
//! glibc keeps what a program frees unless it lies at the very end of a heap, so that a program
//! stays about as large as it ever was. [`release_heap`] hands over the pages in between.

/// Gives back all pages on which nothing lives, in every heap of this process; whether there were
/// any. It looks through all that is free, and allocations of other threads wait meanwhile. Where
/// the C library is another than glibc it does nothing.
pub fn release_heap() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `malloc_trim` may be called by any thread at any time and with any number, which
        // says how much to leave at the end of the first heap. It takes the heaps' own locks, and
        // gives away only what belongs to no allocation.
        unsafe { libc::malloc_trim(0) == 1 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}
