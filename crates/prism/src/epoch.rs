//! Epoch-based reclamation: a buffer is used again when no operation that could still hold its
//! address is running. Operations take the read side of an epoch, posting a buffer the write side
//! (the paper's section 3.2 asks for that rule and leaves the means open).
//!
//! Each data plane thread announces the epoch in which it began its batch. The epoch goes on only
//! when every thread inside is of the current one. A buffer that was given back in epoch `e` is
//! posted from `e + 2` on: a thread that began before it was given back announced `e` at most, so
//! the epoch has not gone past `e + 1` while that thread is inside. (It can be `e + 1`: the thread
//! may have read the epoch before it announced it.)
//!
//! With the feature `model` the atomics are those of a model checker, for
//! `crates/prism/tests/model.rs`.

#[cfg(feature = "model")]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(feature = "model"))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What a thread announces that is not inside.
const OUTSIDE: u64 = 0;

/// The epochs of a memory and its data plane threads.
#[derive(Debug)]
pub struct Epochs {
    current: AtomicU64,
    planes: Box<[AtomicU64]>,
    grace: u64,
}

impl Epochs {
    /// For this many threads.
    #[must_use]
    pub fn new(planes: usize) -> Self {
        Self::with_grace(planes, 2)
    }

    /// With another grace period than the two epochs that are needed: for the test that shows that
    /// they are.
    #[must_use]
    pub fn with_grace(planes: usize, grace: u64) -> Self {
        let planes = (0..planes).map(|_| AtomicU64::new(OUTSIDE)).collect();
        Self { current: AtomicU64::new(1), planes, grace }
    }

    /// How many threads there are.
    #[must_use]
    pub fn planes(&self) -> usize {
        self.planes.len()
    }

    /// The thread `plane` begins: until [`Epochs::leave`], nothing that is reachable now or later
    /// is used again under its hands.
    ///
    /// # Panics
    /// When there is no such thread.
    pub fn enter(&self, plane: usize) {
        let epoch = self.current.load(Ordering::Relaxed);
        self.planes[plane].store(epoch, Ordering::Relaxed);
        // Announced before anything is read: the pair of this fence is in `advance`.
        fence(Ordering::SeqCst);
    }

    /// The thread `plane` holds no address any more.
    ///
    /// # Panics
    /// When there is no such thread.
    pub fn leave(&self, plane: usize) {
        self.planes[plane].store(OUTSIDE, Ordering::Release);
    }

    /// The epoch to note with something that was made unreachable just now.
    #[must_use]
    pub fn retired(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.current.load(Ordering::Relaxed)
    }

    /// Whether what was noted with `epoch` may be used again.
    #[must_use]
    pub fn is_over(&self, epoch: u64) -> bool {
        self.current.load(Ordering::Acquire) >= epoch + self.grace
    }

    /// Goes on to the next epoch if every thread inside is of this one.
    pub fn advance(&self) {
        let epoch = self.current.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for plane in &*self.planes {
            let announced = plane.load(Ordering::Acquire);
            if announced != OUTSIDE && announced != epoch {
                return;
            }
        }
        // Another thread may have been faster; then it is done.
        let _ =
            self.current.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Relaxed);
    }
}
