//! The system's allocator, with a count of the calling thread's allocations and of their bytes. A
//! test makes it its own with `#[global_allocator]`; nothing that is released depends on this crate.
#![expect(unsafe_code, reason = "implementing GlobalAlloc; each block says why it is sound")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Initialised at compile time and never dropped, so that reading it allocates nothing.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static FREED: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has allocated or grown an allocation.
#[must_use]
pub fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

/// How many bytes this thread has allocated, those of allocations that it has released as well; one
/// that grew counts as often as it did, as long as it was then.
#[must_use]
pub fn allocated_bytes() -> u64 {
    BYTES.with(Cell::get)
}

/// How many bytes this thread has allocated and not let go of; negative when it has freed what
/// others allocated.
#[must_use]
pub fn held_bytes() -> i64 {
    // Both are far below 2^63.
    allocated_bytes() as i64 - FREED.with(Cell::get) as i64
}

fn count(size: usize) {
    COUNT.with(|count| count.set(count.get() + 1));
    BYTES.with(|bytes| bytes.set(bytes.get() + size as u64));
}

fn let_go(size: usize) {
    FREED.with(|freed| freed.set(freed.get() + size as u64));
}

/// Hands everything to [`System`], and counts.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to `System` with the caller's own arguments, and its result back to the
// caller unchanged; so this allocator keeps `GlobalAlloc`'s contract because `System` does. Counting
// touches thread-local cells only: it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        let_go(layout.size());
        // SAFETY: `pointer` came from this allocator, that is from `System`, with this layout; the
        // caller keeps the rest of the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let_go(layout.size());
        // SAFETY: as for `realloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
