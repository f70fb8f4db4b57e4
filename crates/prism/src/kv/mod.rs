//! Key-value stores on remote memory: [`prism`], whose clients read and write it with chains of
//! operations, and [`pilaf`], to compare it with, whose clients read with plain READs and checksums
//! and write through the server.
//!
//! The client's side of a store is a state machine for each command, without I/O: it drafts a
//! request, is handed the answer, and drafts the next or is done. [`driver::Driver`] runs many of
//! them over a client; the tests run the same machines over a simulated network.

mod chain;
pub mod driver;
mod layout;
pub mod pilaf;
pub mod prism;
pub mod server;

pub(crate) use layout::put_bytes;
pub use layout::{Hash, MAX_KEY, MAX_VALUE};

use crate::client::Draft;
use crate::op::{Reject, Status};
use crate::wire::Answer;

/// What to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Read the value.
    Get(&'a [u8]),
    /// Set the value.
    Put(&'a [u8], &'a [u8]),
    /// Remove the key.
    Delete(&'a [u8]),
}

/// How a command ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done<'a> {
    /// The key's value, which lies in the answer.
    Found(&'a [u8]),
    /// There is no such key.
    Absent,
    /// The key is set, or removed.
    Stored,
}

/// Why a command did not end well. Whether it had an effect is open unless stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was done.
    #[error("the key is empty or too long")]
    BadKey,
    /// Nothing was done.
    #[error("the value is longer than the store's largest buffers")]
    BadValue,
    /// The store has no room left; nothing was done.
    #[error("the store is out of room")]
    NoRoom,
    /// Memory operations failed as they cannot in a store that is well.
    #[error("the store's memory is not as it should be: {0}")]
    Fault(Status),
    /// The server turned a request down.
    #[error("the server turned the request down: {0}")]
    Rejected(Reject),
    /// Others changed the same place again and again.
    #[error("gave up after many attempts")]
    Contended,
    /// The server's answer makes no sense.
    #[error("the server's answer makes no sense")]
    Confused,
}

/// What a command's machine wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The draft to be sent.
    Send,
    /// The draft to be sent, after a pause of this many nanoseconds.
    SendAfter(u64),
    /// Nothing: it has ended.
    Ended(Result<Done<'a>, StoreError>),
}

/// The client's side of a store.
pub trait StoreClient {
    /// A command in flight.
    type Task: Default;

    /// Begins a command.
    fn begin(
        &mut self,
        task: &mut Self::Task,
        command: Command<'_>,
        draft: &mut Draft,
    ) -> Progress<'static>;

    /// Goes on with a command after an answer.
    fn proceed<'a>(
        &mut self,
        task: &mut Self::Task,
        answer: &Answer<'a>,
        draft: &mut Draft,
    ) -> Progress<'a>;

    /// Drafts what is to be sent without anybody waiting for it. With `all`, also what is not
    /// worth a request yet.
    fn background(&mut self, draft: &mut Draft, all: bool) -> bool;
}
