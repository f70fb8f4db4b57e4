//! The body of a REJECT: why a replica does not take a client's package, and when to try again.
//!
//! ```text
//! reason: u8 | retry after: u32, milliseconds
//! ```

use crate::{Decode, DecodeError, Encode, Reader};
use std::fmt;

/// Why a package is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Too much is in flight already.
    Busy,
    /// This client's MACs proved good for some replicas only: it must sign.
    MustSign,
    /// The genesis does not know the client.
    UnknownClient,
    /// The application's check or the engine finds no sense in it.
    Malformed,
    /// It is longer than the network takes.
    TooLarge,
    /// A number of it was used by another package, which has a result under it.
    NumberUsed,
    /// It was executed, and its results fit no frame.
    ResultTooLong,
    /// Its numbers are far above those that the client has used.
    BeyondWindow,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "busy",
            Self::MustSign => "requests of this client must be signed",
            Self::UnknownClient => "unknown client",
            Self::Malformed => "the request makes no sense",
            Self::TooLarge => "the request is too large",
            Self::NumberUsed => "its number was used for another operation",
            Self::ResultTooLong => "it was executed, and its result is too long to be sent",
            Self::BeyondWindow => "its number is far above those that the client has used",
        })
    }
}

/// The body of a REJECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: Reason,
    /// When to try again, in milliseconds; zero means that trying again is no use.
    pub retry_after_ms: u32,
}

impl Encode for Reject {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.reason {
            Reason::Busy => 1,
            Reason::MustSign => 2,
            Reason::UnknownClient => 3,
            Reason::Malformed => 4,
            Reason::TooLarge => 5,
            Reason::NumberUsed => 6,
            Reason::ResultTooLong => 7,
            Reason::BeyondWindow => 8,
        });
        out.extend_from_slice(&self.retry_after_ms.to_le_bytes());
    }
}

impl Decode for Reject {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let reason = match input.u8("reject")? {
            1 => Reason::Busy,
            2 => Reason::MustSign,
            3 => Reason::UnknownClient,
            4 => Reason::Malformed,
            5 => Reason::TooLarge,
            6 => Reason::NumberUsed,
            7 => Reason::ResultTooLong,
            8 => Reason::BeyondWindow,
            other => {
                return Err(DecodeError::Unknown { what: "reject reason", found: other.into() });
            }
        };
        Ok(Self { reason, retry_after_ms: input.u32("reject")? })
    }
}
