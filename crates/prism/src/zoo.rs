//! The bug zoo: switches that take a correction of the paper's scheme away, so that a test can show
//! that it would notice. Without the feature `zoo` every defence stands and asking costs nothing.

/// A defence, named by what it prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defence {
    /// Addresses carry generations: a buffer that was given back and taken again is told apart.
    Generations,
    /// An update reads the slot before the data, so that a change between them is noticed.
    SlotBeforeData,
    /// A client learns the address of a buffer that it took and could not install, and frees it.
    FreeAfterMiss,
    /// A request that arrives twice is run once.
    AtMostOnce,
    /// The server looks for buffers that crashed clients left behind.
    Sweep,
    /// When the table grows, a slot whose item moved says so.
    MarkMoved,
    /// When the table grows, an empty slot that was passed says so, too.
    MarkEmpty,
    /// An update that missed in a table that grows forgets that when it goes on in the new one.
    ForgetMiss,
    /// A client that reads without the server takes nothing that was changed meanwhile.
    Unchanged,
    /// Replicated blocks: a replica that has a newer value already acknowledges a write.
    MissAcknowledges,
    /// Replicated blocks: a client that restarts writes under another name.
    Incarnations,
    /// Replicated blocks: a replica that lost its memory copies from others before it answers.
    JoinByCopying,
    /// Replicated blocks: an acknowledgement of a replica's earlier life does not count.
    LivesCount,
    /// Replicated blocks: a value that not every replica of a quorum has is written before it is given.
    WriteBack,
    /// Blocks under locks: a lock ends by itself some time.
    Lease,
    /// Transactions: a write check lets the transaction's own read check pass.
    OwnTimestamp,
    /// Transactions: an abort waits for earlier writes before it raises C.
    AbortInOrder,
    /// Transactions: RC is the slot's C, not the buffer's time stamp.
    SlotsTimestamp,
    /// Transactions: somebody settles what a dead client has left.
    Janitor,
    /// Transactions: an aborted intent cannot arrive later.
    Poison,
}

#[cfg(feature = "zoo")]
mod switch {
    use super::Defence;
    use std::cell::Cell;

    thread_local!(static OFF: Cell<Option<Defence>> = const { Cell::new(None) });

    /// Whether `defence` stands on this thread.
    #[must_use]
    pub fn stands(defence: Defence) -> bool {
        OFF.get() != Some(defence)
    }

    /// Runs `scenario` with `defence` taken away on this thread.
    pub fn without<R>(defence: Defence, scenario: impl FnOnce() -> R) -> R {
        struct Restore;
        impl Drop for Restore {
            fn drop(&mut self) {
                OFF.set(None);
            }
        }
        let _restore = Restore;
        OFF.set(Some(defence));
        scenario()
    }
}

#[cfg(feature = "zoo")]
pub use switch::{stands, without};

/// Whether `defence` stands. Without the feature `zoo`, always.
#[cfg(not(feature = "zoo"))]
#[must_use]
#[inline(always)]
pub const fn stands(_defence: Defence) -> bool {
    true
}
