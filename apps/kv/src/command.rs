//! What clients ask for and what they get.

use bytes::Bytes;

/// An operation of a client. Keys and values are any bytes within the limits of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads the value of a key; answered by [`Reply::Found`] or [`Reply::Missing`].
    Get {
        /// The key.
        key: Bytes,
    },
    /// Gives a key a value; answered by [`Reply::Stored`].
    Put {
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
    },
    /// Takes a key's value away; answered by [`Reply::Deleted`].
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Changes a key only if it is as expected; answered by [`Reply::Swapped`] or
    /// [`Reply::Differs`].
    Swap {
        /// The key.
        key: Bytes,
        /// The value that the key must have; `None` when it must have none.
        expected: Option<Bytes>,
        /// The value that it gets; `None` to delete it.
        new: Option<Bytes>,
    },
    /// Reads keys in order; answered by [`Reply::Page`].
    Scan(Scan),
}

/// A question about the current state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The value of a key; answered by [`Reply::Found`] or [`Reply::Missing`].
    Get {
        /// The key.
        key: Bytes,
    },
    /// Keys in order; answered by [`Reply::Page`].
    Scan(Scan),
    /// How many keys there are; answered by [`Reply::Count`].
    Count,
}

/// Which keys to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The first key that may be read; empty for the first of all.
    pub from: Bytes,
    /// The first key that is not read any more; `None` to read to the end.
    pub to: Option<Bytes>,
    /// The most keys to read, 1 to [`Scan::MAX_KEYS`].
    pub limit: u32,
}

impl Scan {
    /// The most keys of a page.
    pub const MAX_KEYS: u32 = 1000;
    /// A page ends before the key with which its keys and values exceed this many bytes, unless
    /// it is the first.
    pub const MAX_BYTES: usize = 1 << 16;
}

/// Keys and values in ascending order of key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys and their values.
    pub entries: Vec<(Bytes, Bytes)>,
    /// Whether the range goes on behind them: scan from the last key with a zero byte after it.
    pub more: bool,
}

/// What became of a command, or the answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Refused; nothing was changed.
    Rejected(Reject),
    /// The key has this value.
    Found(Bytes),
    /// The key has no value.
    Missing,
    /// The key has the new value.
    Stored {
        /// Whether it had one before.
        replaced: bool,
    },
    /// The key has no value now.
    Deleted {
        /// Whether it had one before.
        existed: bool,
    },
    /// The key was as expected and was changed.
    Swapped,
    /// The key was not as expected and was not changed. It has this value.
    Differs(Option<Bytes>),
    /// What a scan read.
    Page(Page),
    /// How many keys there are.
    Count(u64),
}

tercio_execution::reasons! {
    /// Why a command was refused.
    pub enum Reject {
        /// The first byte names no operation.
        UnknownOperation = 1, "unknown operation type";
        /// The bytes end inside the command.
        Truncated = 2, "the bytes end inside the command";
        /// Bytes are left after the command.
        TrailingBytes = 3, "bytes are left after the command";
        /// A flag is neither 0 nor 1.
        InvalidFlag = 4, "a flag is neither 0 nor 1";
        /// The key is empty or too long.
        KeySize = 5, "the key is empty or too long";
        /// The value is too long.
        ValueSize = 6, "the value is too long";
        /// A scan of no key, or of too many.
        ScanLimit = 7, "a scan reads 1 to 1000 keys";
    }
}
