//! What ordering would drop whatever it says, so that nothing is computed over it.
//!
//! Ordering publishes one value, and publishes another when that changes; the stage asks it before
//! it decodes a frame. The value knows kinds and numbers, and nothing of what they mean. What it
//! passes over goes to ordering as [`Filtered`], which counts and answers it there as if ordering
//! had dropped it.
//!
//! A frame that waits is judged by the value at the time when its turn comes. Between a change and
//! its publication a frame may be checked in vain, and dropped by ordering after all.

use crate::Lane;
use tercio_types::Principal;
use tercio_wire::{Key, Kind};
use thiserror::Error;

/// What is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of replicas' messages, those of these kinds that have a number above [`Self::last`].
    pub kinds: &'static [Kind],
    /// The last number of these kinds that is of use.
    pub last: u64,
    /// Whether clients' packages find no room, whosever they are.
    pub busy: bool,
}

/// What a frame that was passed over says of itself; nothing of it was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Filtered {
    /// Its number is of no use.
    #[error("a message of kind {} with number {number}, which is of no use", .kind.0)]
    Number {
        /// Its kind.
        kind: Kind,
        /// Its number.
        number: u64,
    },
    /// A client's package, for which there is no room.
    #[error("a package {first} for which there is no room")]
    Busy {
        /// Its first number.
        first: u64,
    },
    /// There is no room in the queue before verification.
    #[error("there is no room to wait for verification")]
    NoRoom,
    /// Of a link that has used up its time, or all that its FORWARDs may take.
    #[error("a frame of {}, which has used up its time", .0.from())]
    Floods(Lane),
}

impl Filtered {
    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Number { .. } => "passed_over",
            Self::Busy { .. } => "busy",
            Self::NoRoom => "verify_queue_full",
            Self::Floods(Lane::Client(_)) => "client_floods",
            Self::Floods(Lane::Replica(_)) => "replica_floods",
            Self::Floods(Lane::Forwards(_)) => "forward_floods",
        }
    }
}

impl Filter {
    /// Lets a frame pass that came on the link of `from`.
    ///
    /// # Errors
    /// When ordering would drop it.
    pub fn pass(&self, from: Principal, frame: &[u8]) -> Result<(), Filtered> {
        match from {
            Principal::Client(_) if self.busy => match Key::peek(frame) {
                Some((Kind::REQUEST, first)) => Err(Filtered::Busy { first }),
                _ => Ok(()),
            },
            Principal::Client(_) => Ok(()),
            Principal::Replica(_) => match Key::peek(frame) {
                Some((kind, number)) if number > self.last && self.kinds.contains(&kind) => {
                    Err(Filtered::Number { kind, number })
                }
                _ => Ok(()),
            },
        }
    }
}
