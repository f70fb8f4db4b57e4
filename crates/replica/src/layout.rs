//! Which thread runs which stages, and when what is written is durable.

use std::time::Duration;

/// Which stages get a thread of their own.
///
/// One thread for all is right on a small machine: a wake-up across cores costs tens of
/// microseconds in a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// One thread for everything.
    #[default]
    AllInOne,
    /// Execution apart: for applications that take their time.
    ExecutionApart,
    /// The log apart: writing never holds up consensus.
    LogApart,
    /// Both apart: three threads.
    BothApart,
}

impl Layout {
    /// Whether execution has its own thread.
    #[must_use]
    pub fn execution_apart(self) -> bool {
        matches!(self, Self::ExecutionApart | Self::BothApart)
    }

    /// Whether the log has its own thread.
    #[must_use]
    pub fn log_apart(self) -> bool {
        matches!(self, Self::LogApart | Self::BothApart)
    }

    /// The layout that `durability` allows: an fsync never runs on the consensus thread, so any
    /// durability that has one puts the log apart.
    #[must_use]
    pub fn under(self, durability: Durability) -> Self {
        match (durability, self) {
            (Durability::Memory, layout) => layout,
            (_, Self::AllInOne | Self::LogApart) => Self::LogApart,
            (_, Self::ExecutionApart | Self::BothApart) => Self::BothApart,
        }
    }
}

/// When a promise's record counts as durable. What a replica has promised it must know after a
/// restart, so this says what kind of crash it may survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// In the page cache: survives the end of the process. More than f machines that lose power
    /// at once may lose what was acknowledged.
    #[default]
    Memory,
    /// On the disk, with at most one fsync in this time: fewer fsyncs, more latency.
    Group(Duration),
    /// On the disk; the next fsync starts when the last returns.
    Sync,
}

impl Durability {
    /// Whether anything is fsynced.
    #[must_use]
    pub fn syncs(self) -> bool {
        self != Self::Memory
    }
}
