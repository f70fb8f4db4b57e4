//! The words of the interface: addresses, operations, outcomes, limits.
//!
//! An operation is typed so that a combination of flags that makes no sense cannot be written down.
//! What each one does is defined by [`crate::reference`], which is short enough to be read whole;
//! the paper's account is Burke et al., "PRISM: Rethinking the RDMA Interface for Distributed
//! Systems", SOSP'21, sections 3.1 to 3.4 and Table 1.

use std::fmt;

/// The longest data of one operation and the longest answer of one request, in bytes.
pub const MAX_DATA: usize = 64 << 10;
/// The longest request's operations, inline data included, in bytes.
pub const MAX_BODY: usize = 16 << 10;
/// The most operations of a request.
pub const MAX_OPS: usize = 16;
/// The longest operand of a compare-and-swap, in words of eight bytes.
pub const MAX_CAS_WORDS: usize = 4;
/// The scratch memory of a request, in bytes. It is zero when the request begins and gone when it
/// ends, so that requests in flight at once cannot disturb each other.
pub const SCRATCH_BYTES: usize = 64;

/// A secret of 128 bits that opens regions: whoever knows it may use every region registered under
/// it, within the region's rights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability(pub u128);

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(..)")
    }
}

/// Where a byte is: bits 0 to 39 the offset in a region, 40 to 47 the region, 48 to 63 the
/// generation of what lies there. A buffer's generation changes each time it is given back, so that
/// an old address is told from a new one; a region's changes each time it is registered anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub u64);

impl Addr {
    /// Names nothing.
    pub const NULL: Self = Self(0);
    /// The region number that stands for the request's own scratch memory.
    pub const SCRATCH_REGION: u8 = 255;
    /// One more than the largest offset.
    pub const MAX_OFFSET: u64 = 1 << 40;

    /// The address with these parts.
    ///
    /// # Panics
    /// When the offset does not fit 40 bits.
    #[must_use]
    pub const fn new(generation: u16, region: u8, offset: u64) -> Self {
        assert!(offset < Self::MAX_OFFSET, "an offset has 40 bits");
        Self((generation as u64) << 48 | (region as u64) << 40 | offset)
    }

    /// A place in the request's own scratch memory.
    #[must_use]
    pub const fn scratch(offset: u64) -> Self {
        Self::new(0, Self::SCRATCH_REGION, offset)
    }

    /// The generation of what was meant.
    #[must_use]
    pub const fn generation(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The region's number.
    #[must_use]
    pub const fn region(self) -> u8 {
        (self.0 >> 40) as u8
    }

    /// The offset in the region, in bytes.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 & (Self::MAX_OFFSET - 1)
    }

    /// Whether it names nothing.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address this many bytes on, in the same region.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self::new(self.generation(), self.region(), self.offset() + bytes)
    }
}

/// Bytes in a frame: words, the last one filled up with zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload<'a> {
    words: &'a [u64],
    bytes: usize,
}

impl<'a> Payload<'a> {
    /// The first `bytes` bytes of `words`. `None` when there are not exactly as many words as they
    /// need, or what is behind them is not zero.
    #[must_use]
    pub fn new(words: &'a [u64], bytes: usize) -> Option<Self> {
        let padded = match bytes % 8 {
            0 => true,
            used => words.last().is_some_and(|last| last >> (used * 8) == 0),
        };
        (words.len() == bytes.div_ceil(8) && padded).then_some(Self { words, bytes })
    }

    /// All bytes of `words`.
    #[must_use]
    pub const fn of_words(words: &'a [u64]) -> Self {
        Self { words, bytes: words.len() * 8 }
    }

    /// The words, with the padding.
    #[must_use]
    pub const fn words(self) -> &'a [u64] {
        self.words
    }

    /// How many bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        &zerocopy::IntoBytes::as_bytes(self.words)[..self.bytes]
    }
}

/// How an operation finds its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deref {
    /// At the address given.
    Direct,
    /// At the address that is stored at the address given.
    Indirect,
    /// At the address that is stored at the address given, and not more bytes than the number
    /// stored in the word behind it. Both words are read as one.
    Bounded,
}

impl Deref {
    /// Of operations that follow a pointer or do not.
    pub(crate) const fn of(indirect: bool) -> Self {
        if indirect { Self::Indirect } else { Self::Direct }
    }
}

/// Where a WRITE's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// From the request.
    Inline(Payload<'a>),
    /// From the server's memory: this many bytes at this address.
    At(Addr, u32),
}

impl Source<'_> {
    /// How many bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Inline(data) => data.len(),
            Self::At(_, len) => *len as usize,
        }
    }
}

/// Where an operand of a compare-and-swap comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand<'a> {
    /// From the request, as many words as the operation is long.
    Inline(&'a [u64]),
    /// From the server's memory.
    At(Addr),
}

/// When a compare-and-swap swaps. Operands are unsigned integers, the first word most significant;
/// words that are masked out do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The operand equals the target.
    Equal,
    /// The operand is greater than the target: a newer version installs itself.
    Greater,
    /// The operand is less than the target.
    Less,
}

/// Which bits are compared and which are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masks<'a> {
    /// Whole words: bit i stands for word i.
    Words {
        /// The words that are compared.
        compare: u8,
        /// The words that are swapped.
        swap: u8,
    },
    /// Bits, a mask for each word. [`Mode::Greater`] and [`Mode::Less`] take only masks that leave
    /// words whole.
    Bits {
        /// The bits that are compared.
        compare: &'a [u64],
        /// The bits that are swapped.
        swap: &'a [u64],
    },
}

/// A compare-and-swap of one to four words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cas<'a> {
    /// When it swaps.
    pub mode: Mode,
    /// What is compared and swapped: aligned to eight bytes, within one line of 64.
    pub target: Addr,
    /// Whether `target` holds the address of the target.
    pub indirect: bool,
    /// How many words, 1 to [`MAX_CAS_WORDS`].
    pub words: u8,
    /// What is swapped in.
    pub data: Operand<'a>,
    /// What is compared, when it is not `data`. The paper's operation has one operand for both,
    /// with which a chain cannot replace one pointer by another.
    pub comparand: Option<Operand<'a>>,
    /// What takes part.
    pub masks: Masks<'a>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Gives the bytes at an address.
    Read {
        /// Where.
        addr: Addr,
        /// How many bytes; fewer when bounded.
        len: u32,
        /// How the memory is found.
        deref: Deref,
        /// Writes the bytes to this address in place of giving them.
        redirect: Option<Addr>,
    },
    /// Changes the bytes at an address. When bounded it gives how many, as one word.
    Write {
        /// Where.
        addr: Addr,
        /// How the memory is found.
        deref: Deref,
        /// The new bytes.
        source: Source<'a>,
    },
    /// Takes the oldest free buffer of a pool, writes `data` to its beginning, and gives its
    /// address, as one word.
    Allocate {
        /// The pool: its region's number.
        pool: u8,
        /// What is written.
        data: Payload<'a>,
        /// Writes the buffer's address to this address in place of giving it.
        redirect: Option<Addr>,
    },
    /// Compares and perhaps swaps. Gives what the target was before, in either case.
    Cas(Cas<'a>),
    /// Adds to a word, wrapping. Gives what it was before.
    FetchAdd {
        /// The word, aligned.
        addr: Addr,
        /// Whether `addr` holds the word's address.
        indirect: bool,
        /// What is added.
        addend: u64,
    },
}

/// One operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op<'a> {
    /// Runs only if the operation before it succeeded ([`Status::Ok`]).
    pub conditional: bool,
    /// What it does.
    pub action: Action<'a>,
}

impl<'a> From<Action<'a>> for Op<'a> {
    fn from(action: Action<'a>) -> Self {
        Self { conditional: false, action }
    }
}

impl Op<'_> {
    /// The same, run only if the operation before it succeeded.
    #[must_use]
    pub const fn conditional(self) -> Self {
        Self { conditional: true, ..self }
    }

    /// Whether running it twice could differ from running it once.
    #[must_use]
    pub const fn mutates(&self) -> bool {
        match self.action {
            Action::Read { redirect: None, .. } => false,
            Action::Read { redirect: Some(to), .. } => to.region() != Addr::SCRATCH_REGION,
            _ => true,
        }
    }

    /// The most bytes that it answers with.
    #[must_use]
    pub const fn answer_bytes(&self) -> usize {
        match self.action {
            Action::Read { redirect: Some(_), .. } | Action::Allocate { redirect: Some(_), .. } => {
                0
            }
            Action::Read { len, .. } => len as usize,
            Action::Write { deref: Deref::Bounded, .. } => 8,
            Action::Write { .. } => 0,
            Action::Allocate { .. } | Action::FetchAdd { .. } => 8,
            Action::Cas(cas) => cas.words as usize * 8,
        }
    }
}

/// How an operation ended. Only [`Status::Ok`] is success in the sense of `conditional`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum Status {
    /// Done.
    #[error("done")]
    Ok = 0,
    /// The comparison did not hold, nothing was swapped.
    #[error("the comparison did not hold")]
    Miss = 1,
    /// The operation before it did not succeed.
    #[error("the operation before it did not succeed")]
    Skipped = 2,
    /// The pool has no free buffer.
    #[error("the pool has no free buffer")]
    Empty = 3,
    /// The data is longer than a buffer of the pool.
    #[error("the data is longer than the pool's buffers")]
    TooLong = 4,
    /// The address is null.
    #[error("the address is null")]
    NullPointer = 5,
    /// No region has this number.
    #[error("no region has this number")]
    UnknownRegion = 6,
    /// The region is not registered under the request's capability.
    #[error("the capability does not open the region")]
    BadCapability = 7,
    /// The range is not wholly within a region, or a buffer.
    #[error("the range does not lie within one region or buffer")]
    OutOfRange = 8,
    /// The address is not aligned, or the operand crosses a cache line.
    #[error("the address is not aligned as the operation needs it")]
    Misaligned = 9,
    /// The address is of an earlier life of its buffer or region.
    #[error("the address is stale: what it named was given back")]
    Stale = 10,
    /// The region does not permit this kind of access.
    #[error("the region does not permit this access")]
    NoRight = 11,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Ok,
        Self::Miss,
        Self::Skipped,
        Self::Empty,
        Self::TooLong,
        Self::NullPointer,
        Self::UnknownRegion,
        Self::BadCapability,
        Self::OutOfRange,
        Self::Misaligned,
        Self::Stale,
        Self::NoRight,
    ];

    /// The status with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// Why a whole request was turned down; nothing of it was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reject {
    /// The bytes are no request.
    #[error("the bytes are no well-formed request")]
    Malformed = 1,
    /// It is of another version of the wire format.
    #[error("the request is of another version of the wire format")]
    Version = 2,
    /// Too many operations, too much data, or too long an answer.
    #[error("the request is longer than the limits allow")]
    TooLong = 3,
    /// There is no such connection, or it belongs to somebody else.
    #[error("there is no such connection")]
    UnknownConnection = 4,
    /// The server has as many connections as it takes.
    #[error("the server takes no more connections")]
    Busy = 5,
    /// Nothing is registered under the capability.
    #[error("nothing is registered under this capability")]
    BadCapability = 6,
    /// The service has no such method, or not with such arguments.
    #[error("the service does not know this call")]
    UnknownMethod = 7,
    /// The service could not do it: it is out of room.
    #[error("the service is out of room")]
    NoRoom = 8,
    /// The replica's memory is new, and it has not copied from the others yet what it once held.
    #[error("the replica has not joined its group yet")]
    NotJoined = 9,
}

impl Reject {
    /// The reason with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        [
            Self::Malformed,
            Self::Version,
            Self::TooLong,
            Self::UnknownConnection,
            Self::Busy,
            Self::BadCapability,
            Self::UnknownMethod,
            Self::NoRoom,
            Self::NotJoined,
        ]
        .into_iter()
        .find(|reject| *reject as u8 == number)
    }
}
