//! PRISM-TX: transactions over several keys, and several servers, by one-sided operations (the paper's
//! section 8). Optimistic, and serializable in the order of the transactions' time stamps.
//!
//! Keys are numbers; key k is on *shard* (server) k mod the number of shards. A slot has four words:
//! **PW**, the time stamp of the last transaction that prepared to write; **PR**, of the last one that
//! validated a read; **C**, of the last one whose write is settled, installed or aborted; and the address
//! of a buffer, which has the time stamp, the key and the value. PW, PR and C never go down, and PW is at
//! least C. A time stamp is 48 bits of clock and 16 bits of the client's number, unique; clients raise
//! their clocks above what they see.
//!
//! - **Execution**: a read takes the slot, then what it points to, in one chain; RC is its C. Writes wait.
//! - **Prepare**, one round trip, to each shard one request: for each read, swap PW|PR if RC|TS is greater
//!   (a miss is as good where PW is RC and PR is at least TS); then the *intent*, the new buffers, and
//!   for each write, swap PW if TS is greater, looking at the PR that was there.
//! - **Commit**, one round trip: the decision, and C|address swapped for TS|new buffer if TS is greater.
//!   The transaction is committed by the decision; what remains on other shards the client finishes
//!   before its next one.
//!
//! # What the paper's text leaves open or has wrong
//!
//! - A write check needs **TS >= PR**, not TS > PR: a transaction's own read check has set PR to TS.
//! - **An abort must not hide an earlier write.** "Set C to TS if TS is greater" lets a later writer that
//!   aborts make an earlier one's install miss, although that one commits. Here an abort swaps C from
//!   the PW that its write check found to TS, if C *is* that; where C is lower, an earlier writer is not
//!   settled yet, and is waited for; where it is higher, nothing is to be done.
//! - **RC is the slot's C**, not the buffer's time stamp: an abort raises the one and not the other.
//! - **Clients that die** would leave PW above C for ever, and transactions half installed. Each client has
//!   an *intent* entry on each shard: the time stamp, a status, the *home* shard, and the new buffers,
//!   which is written in the chain of the write checks, before them. The status in the home shard's
//!   entry decides, by one swap: from pending to committed, by the client, or to aborted, by anybody. Who
//!   finds PW above C for too long ([`Options::janitor_ns`]) is the *janitor*: of the intents
//!   between C and PW that have a buffer for the key, it settles the one with the lowest time stamp by
//!   what its home says, aborting it if it is pending, until none is left. An intent that has not reached
//!   its home is kept from coming by a later arrival: the home's entry gets the time stamp, as aborted.
//!
//! The values travel once, with the prepare. Read-only transactions end with the validation.
//!
//! **What is promised**: committed transactions are as if run one after the other in the order of
//! their time stamps. That is not the order of real time: a client whose clock is behind may read what
//! was so a while ago, unless clocks agree to within a transaction's length. Shards are not replicated:
//! a server that loses its memory loses its keys, and clients are told ([`TxError::MemoryLost`]).

mod chain;
mod commit;
pub mod farm;
mod janitor;
pub mod server;
mod session;

pub use session::{Options, Tx, TxCounts, TxSession};

use crate::op::{Addr, Reject, Status};

/// The longest value, in bytes: a request carries some.
pub const MAX_VALUE: usize = 4 << 10;
/// The most keys of one shard that a transaction writes.
pub const MAX_WRITES: usize = 6;
/// The most clients of a store from its beginning to its end, those that start again included.
pub const MAX_CLIENTS: u64 = 1 << 16;

/// A transaction's place in the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub(crate) const CLOCK_BITS: u32 = 48;

    pub(crate) const fn new(clock: u64, client: u64) -> Self {
        Self(clock << 16 | client)
    }

    /// The clock's part.
    #[must_use]
    pub const fn clock(self) -> u64 {
        self.0 >> 16
    }
}

/// Why a transaction has not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// It met another one; it had no effect, and may be tried again.
    #[error("the transaction met another one and had no effect")]
    Aborted,
    /// It met others each time it was tried; it had no effect.
    #[error("the transaction met others in each of {0} attempts and had no effect")]
    Contended(u32),
    /// It had no effect.
    #[error("there is no key {0}")]
    NoKey(u64),
    /// It had no effect.
    #[error("a value has {0} bytes")]
    BadValue(usize),
    /// It had no effect.
    #[error(
        "a transaction takes, of each shard, at most {MAX_WRITES} writes, and reads and twice the \
         writes are at most 13 (16 without writes)"
    )]
    TooLarge,
    /// It had no effect.
    #[error("the shard has no free buffers")]
    NoRoom,
    /// The client's clock, or another's, is at its end.
    #[error("time stamps have come to their end: a client's clock was far ahead")]
    ClockExhausted,
    /// Every number a client can have is used up.
    #[error("the store has had as many clients as it can count")]
    NoMoreClients,
    /// Whether it took effect is open; the janitor will settle it. The session is of no more use.
    #[error("shard {0} cannot be reached; what was under way will be settled by others")]
    Unreachable(usize),
    /// The server started again, with an empty memory.
    #[error("shard {0} has lost its memory")]
    MemoryLost(usize),
    /// A prepared write has no intent.
    #[error("key {0} waits for a transaction that nobody knows")]
    Stuck(u64),
    /// Memory operations failed as they cannot in a store that is well.
    #[error("the store's memory is not as it should be: {0}")]
    Fault(Status),
    /// A server turned a request down.
    #[error("the server turned the request down: {0}")]
    Rejected(Reject),
    /// An answer makes no sense.
    #[error("a server's answer makes no sense; are these the shards of one store, in order?")]
    Confused,
}

/// Of a slot: PW, PR, C, address.
pub(crate) const SLOT: u64 = 32;
/// Where C and the address are.
pub(crate) const C: u64 = 16;
pub(crate) const ADDR: u64 = 24;
/// Before a buffer's value: the time stamp and the key.
pub(crate) const ITEM_HEADER: usize = 16;

/// A client's entry on a shard: two lines. The first has the time stamp, the status and the home shard;
/// the second the time stamp again, and the new buffers.
pub(crate) const ENTRY: u64 = 128;
pub(crate) const BUFFERS: u64 = 64;

/// What has become of a transaction, in its home's entry. With [`status::DONE`], nothing is left to do on
/// the entry's own shard.
pub(crate) mod status {
    pub(crate) const PENDING: u64 = 0;
    pub(crate) const COMMITTED: u64 = 1;
    pub(crate) const ABORTED: u64 = 2;
    pub(crate) const DONE: u64 = 4;
}

/// Calls of a shard's service.
pub(crate) mod call {
    pub(crate) const DESCRIBE: u64 = 1;
}

/// Where a shard's memory is, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) slots: Addr,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    pub(crate) pool: u8,
    pub(crate) intents: Addr,
    pub(crate) shard: usize,
    pub(crate) shards: usize,
    /// Different each time its memory is made.
    pub(crate) instance: u64,
}

impl Shard {
    pub(crate) fn words(&self) -> [u64; 8] {
        [
            self.slots.0,
            self.keys,
            self.value_bytes as u64,
            u64::from(self.pool),
            self.intents.0,
            self.shard as u64,
            self.shards as u64,
            self.instance,
        ]
    }

    pub(crate) fn of_words(words: &[u64]) -> Option<Self> {
        let [slots, keys, value_bytes, pool, intents, shard, shards, instance] =
            words.try_into().ok()?;
        let sensible = (8..=MAX_VALUE as u64).contains(&value_bytes)
            && value_bytes % 8 == 0
            && (1..=256).contains(&shards)
            && shard < shards
            && keys > 0
            && keys < Addr::MAX_OFFSET / (MAX_VALUE as u64 * 2)
            && Addr(slots).offset() == 0
            && Addr(intents).offset() == 0;
        sensible.then_some(Self {
            slots: Addr(slots),
            keys,
            value_bytes: value_bytes as usize,
            pool: pool as u8,
            intents: Addr(intents),
            shard: shard as usize,
            shards: shards as usize,
            instance,
        })
    }

    /// A key's slot.
    pub(crate) const fn slot(&self, key: u64) -> Addr {
        self.slots.plus(key / self.shards as u64 * SLOT)
    }

    /// A client's entry. That of number 0 begins with the count of clients (shard 0's counts) and the
    /// greatest number of one that has come to this shard.
    pub(crate) const fn entry(&self, client: u64) -> Addr {
        self.intents.plus(client * ENTRY)
    }
}
