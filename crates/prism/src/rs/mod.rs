//! PRISM-RS: replicated blocks (the paper's section 7). Blocks of bytes on n = 2f + 1 servers that know
//! nothing of each other; clients read and write them with chains of operations, by the protocol of
//! Attiya, Bar-Noy and Dolev (JACM 1995) for many writers (Lynch and Shvartsman, FTCS 1997).
//! Linearizable while at most f servers are down, and for as long.
//!
//! A replica has a slot for each block: a *tag* of two words, the address of a buffer, and a bound. The
//! buffer has the tag again and the value, and is written once. Tags are ordered, the first word before
//! the second: a time stamp, then the writer's name.
//!
//! - **Read phase.** Each replica is asked for what it has, one bounded indirect READ (a PUT asks for
//!   the slot's tag alone); f + 1 answers are waited for.
//! - **Write phase.** Each replica gets a chain: write the tag to scratch memory, take a buffer for tag
//!   and value, with the address going there, too, and swap the slot if the tag is *greater* than the
//!   slot's; read the new buffer's address. f + 1 acknowledgements are waited for.
//! - **GET**: a read phase; the value of the greatest tag is given, after a write phase with that same
//!   tag, so that nobody reads an older one later. Where f + 1 answers carried this tag, they have it
//!   already, and the write phase is not needed: one round trip ([`Options::always_write_back`] has
//!   the paper's way).
//! - **PUT**: a read phase, and a write phase with a tag whose time stamp is one more than the greatest.
//!
//! # What the paper leaves open
//!
//! - **A swap that misses acknowledges**: the replica has a newer value already, and that is all that
//!   an acknowledgement says.
//! - **A client's name is new each time it starts.** One that restarted and used a tag again, with
//!   another value, while the first is still in flight would let two values have one tag. Within one
//!   start, a client never uses a time stamp twice.
//! - **A replica that lost its memory** must not answer as if there were nothing: it *joins* first
//!   ([`join`]), by copying each block from f + 1 others. And it must not count as having what it
//!   acknowledged in its earlier life: each join has a number, which it leaves at f + 1 others before it
//!   copies; every answer carries the numbers that its replica knows, and an acknowledgement of an
//!   earlier life than any answer knows of does not count. (Michael et al., "Recovering Shared Objects
//!   Without Stable Storage", DISC 2017, whose crash vectors these are.) A replica that is joining is
//!   one of the f that may be down.
//! - **Buffers**: the replaced one, or the own one when the swap missed, is given back in batches.
//!
//! Beside it stands the baseline, ABD with locks ([`lock`]).

mod client;
mod join;
pub mod lock;
mod phase;
pub mod server;

pub use client::{Counts, Options, RsClient};
pub use join::{Joined, join};
pub use phase::Ask;

use crate::op::{Addr, Reject, Status};

/// The most members of a group: their numbers of lives are one cache line.
pub const MAX_MEMBERS: usize = 8;
/// The longest block, in bytes: a request carries one.
pub const MAX_BLOCK: usize = 12 << 10;

/// Which value is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// The time stamp.
    pub ts: u64,
    /// Who wrote it: the writer's name, different each time it starts.
    pub writer: u64,
}

impl Tag {
    /// Of a block that nobody has written.
    pub const ZERO: Self = Self { ts: 0, writer: 0 };
    pub(crate) const WORDS: usize = 2;

    /// A time stamp above both.
    pub(crate) fn after(newest: u64, last: u64) -> Result<u64, RsError> {
        newest.max(last).checked_add(1).ok_or(RsError::Exhausted)
    }

    pub(crate) const fn of(words: &[u64]) -> Option<Self> {
        match words {
            [ts, writer, ..] => Some(Self { ts: *ts, writer: *writer }),
            _ => None,
        }
    }
}

/// Why an operation on a block did not end well. Whether a PUT took effect is open unless stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RsError {
    /// Nothing was done.
    #[error("there is no block {0}")]
    NoBlock(u64),
    /// Nothing was done.
    #[error("a block has at most {0} bytes")]
    TooLong(usize),
    /// Fewer than f + 1 replicas answered in time.
    #[error("only {answered} of {needed} needed replicas answered: are more than f of them down?")]
    NoQuorum {
        /// How many did.
        answered: usize,
        /// How many must.
        needed: usize,
    },
    /// The replicas have no free buffers.
    #[error("the replicas have no free buffers")]
    NoRoom,
    /// Others hold the lock again and again.
    #[error("others hold the lock; gave up after {0} attempts")]
    Contended(u32),
    /// Nothing was done.
    #[error("a replica knows a time stamp behind which there is none")]
    Exhausted,
    /// Memory operations failed as they cannot in a store that is well.
    #[error("the replica's memory is not as it should be: {0}")]
    Fault(Status),
    /// A replica turned a request down.
    #[error("a replica turned the request down: {0}")]
    Rejected(Reject),
    /// An answer makes no sense, or the replicas are not of one group.
    #[error("a replica's answer makes no sense; are these the members of one group?")]
    Confused,
}

/// Where a replica's memory is, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    /// The slots, in PRISM-RS; the blocks themselves, under locks.
    pub(crate) slots: Addr,
    pub(crate) blocks: u64,
    pub(crate) block_bytes: usize,
    pub(crate) pool: u8,
    /// The members' numbers of lives, as this one knows them.
    pub(crate) lives: Addr,
    pub(crate) member: usize,
    pub(crate) members: usize,
}

impl Map {
    pub(crate) const WORDS: usize = 7;

    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        [
            self.slots.0,
            self.blocks,
            self.block_bytes as u64,
            u64::from(self.pool),
            self.lives.0,
            self.member as u64,
            self.members as u64,
        ]
    }

    pub(crate) fn of_words(words: &[u64]) -> Option<Self> {
        let [slots, blocks, block_bytes, pool, lives, member, members] = words.try_into().ok()?;
        let sensible = (1..=MAX_BLOCK as u64).contains(&block_bytes)
            && (1..=MAX_MEMBERS as u64).contains(&members)
            && member < members
            && blocks > 0
            && blocks < Addr::MAX_OFFSET / (2 * MAX_BLOCK as u64)
            && Addr(slots).offset() == 0
            && Addr(lives).offset() == 0;
        sensible.then_some(Self {
            slots: Addr(slots),
            blocks,
            block_bytes: block_bytes as usize,
            pool: pool as u8,
            lives: Addr(lives),
            member: member as usize,
            members: members as usize,
        })
    }
}

/// Calls of a replica's service.
pub(crate) mod call {
    /// Asks for the [`super::Map`]; turned down before the replica has joined.
    pub(crate) const DESCRIBE: u64 = 1;
    /// The same, for who makes it join.
    pub(crate) const DESCRIBE_NEW: u64 = 2;
    /// All is copied; its argument is the number of the life.
    pub(crate) const JOINED: u64 = 3;
}
