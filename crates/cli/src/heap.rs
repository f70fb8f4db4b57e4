//! Memory that a replica does not use any more goes back to the system.
//!
//! The allocator keeps nearly all that is freed. A replica would stay as large as its longest queue
//! ever made it, and get a little larger with each that is longer. So now and then what is free is
//! given back. Allocations wait for that, which is short while the heap is small and not when it
//! holds a large state; it happens the more seldom.

use std::time::{Duration, Instant};

/// How often at most.
const EVERY: Duration = Duration::from_secs(1);
/// How many times as long as it took nothing is given back: a thousandth of the time is for that.
const REST: u32 = 1000;

/// When what is free goes back.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Not before this.
    next: Option<Instant>,
}

impl Heap {
    /// Gives back what is free, if it is time.
    pub(crate) fn tidy(&mut self) {
        let begin = tercio_network::now();
        if self.next.is_none_or(|next| next <= begin) {
            tercio_unsafe_sys::release_heap();
            let end = tercio_network::now();
            self.next = Some(end + pause_after(end - begin));
        }
    }
}

fn pause_after(took: Duration) -> Duration {
    EVERY.max(took * REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_done_seldom() {
        let ms = Duration::from_millis;
        assert_eq!([0, 1, 70].map(|took| pause_after(ms(took))), [1, 1, 70].map(|s| ms(s * 1000)));
        let mut heap = Heap::default();
        heap.tidy();
        let next = heap.next;
        assert!(next.is_some());
        heap.tidy();
        assert_eq!(heap.next, next, "not again at once");
    }
}
