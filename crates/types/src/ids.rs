//! Identifiers and counters, each a type of its own so that a view is never passed for a height.

use std::fmt;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The value after this one. Counters of 64 bits do not run out.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

counter! {
    /// A configuration under one primary. View `v` is led by the member at place `v mod n`.
    View
}
counter! {
    /// The place of a batch in the total order. Null requests take one too, so sequence numbers
    /// run ahead of heights. The first batch has number 1; 0 stands for 'nothing yet'.
    SeqNum
}
counter! {
    /// The place of a block in the chain. The first block has height 1; 0 is the genesis.
    Height
}
counter! {
    /// The generation of the membership; it enters every key.
    Epoch
}
counter! {
    /// A client. Ids are given out by the genesis.
    ClientId
}
counter! {
    /// A client's own number for a request; each is executed at most once.
    RequestSeq
}
counter! {
    /// Agreed time: microseconds since the Unix epoch, proposed by the primary and made monotonic
    /// by execution. No vote depends on it.
    Timestamp
}

/// A replica: its number, which is its own for ever. Numbers of a membership may have holes
/// ([`crate::Membership::place_of`] says where one stands).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReplicaId(pub u16);

impl ReplicaId {
    /// The index into tables of one entry a replica.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{}", self.0)
    }
}

/// Whoever can authenticate something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Principal {
    /// A replica of the membership.
    Replica(ReplicaId),
    /// A client of the genesis.
    Client(ClientId),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(id) => write!(f, "replica {id}"),
            Self::Client(id) => write!(f, "client {id}"),
        }
    }
}

/// Why a text is no 32-byte hexadecimal value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseHexError;

impl fmt::Display for ParseHexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected 64 hexadecimal digits")
    }
}

impl std::error::Error for ParseHexError {}

macro_rules! bytes32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let [a, b, c, d, ..] = self.0;
                write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}..")
            }
        }

        impl std::str::FromStr for $name {
            type Err = ParseHexError;

            fn from_str(text: &str) -> Result<Self, ParseHexError> {
                let text = text.as_bytes();
                let mut out = [0; 32];
                if text.len() != 64 {
                    return Err(ParseHexError);
                }
                for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
                    let nibble = |c: u8| (c as char).to_digit(16).ok_or(ParseHexError);
                    *byte = (nibble(pair[0])? * 16 + nibble(pair[1])?) as u8;
                }
                Ok(Self(out))
            }
        }
    };
}

bytes32! {
    /// A 32-byte hash under the suite of the network.
    Digest
}
bytes32! {
    /// A network's name: the digest of its genesis. It enters every key and signature, so that
    /// nothing said on one chain means anything on another.
    ChainId
}

impl Digest {
    /// The digest that stands for 'no batch': what a null request is ordered under. No batch
    /// hashes to it.
    pub const NULL: Self = Self([0; 32]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_refuses_other_text() {
        let digest = Digest(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!("zz".repeat(32).parse::<Digest>(), Err(ParseHexError));
        assert_eq!("00".repeat(31).parse::<Digest>(), Err(ParseHexError));
    }
}
