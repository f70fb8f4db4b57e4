//! Which thread runs which stages, and when what is written is durable.

use std::fmt;
use std::str::FromStr;
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

impl Layout {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::AllInOne, "all-in-one"),
        (Self::ExecutionApart, "execution-apart"),
        (Self::LogApart, "log-apart"),
        (Self::BothApart, "both-apart"),
    ];
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = Self::NAMES.iter().find(|(layout, _)| layout == self).expect("all named");
        f.write_str(name)
    }
}

impl FromStr for Layout {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found
            .map(|(layout, _)| *layout)
            .ok_or("unknown layout; write all-in-one, execution-apart, log-apart or both-apart")
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
    /// On the disk. After each fsync a group gathers for half as long as the fsync took, and for
    /// this time at most: fewer fsyncs than `sync`, and the disk is left free for a third of the
    /// time.
    Group(Duration),
    /// On the disk; the next fsync starts when the last returns.
    Sync,
}

impl Durability {
    /// The longest rest of a group when none is named.
    pub const GROUP: Duration = Duration::from_millis(2);

    /// Whether anything is fsynced.
    #[must_use]
    pub fn syncs(self) -> bool {
        self != Self::Memory
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Group(pause) => write!(f, "group({})", pause.as_millis()),
            Self::Sync => f.write_str("sync"),
        }
    }
}

impl FromStr for Durability {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The second spelling needs no quotes in a shell.
        let ms = text.strip_prefix("group(").and_then(|rest| rest.strip_suffix(')'));
        let ms = ms.or_else(|| text.strip_prefix("group:"));
        let group = || ms?.parse().ok();
        match text {
            "memory" => Ok(Self::Memory),
            "sync" => Ok(Self::Sync),
            "group" => Ok(Self::Group(Self::GROUP)),
            _ => match group() {
                Some(ms @ 1..=1000) => Ok(Self::Group(Duration::from_millis(ms))),
                _ => Err(
                    "unknown durability; write memory, sync, group, or group(N) with N from 1 to 1000 milliseconds",
                ),
            },
        }
    }
}
