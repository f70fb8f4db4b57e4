//! Why bytes are refused.

use thiserror::Error;

/// Why bytes are no message. The peer that sent them is at fault; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a value.
    #[error("the bytes end inside {0}")]
    Truncated(&'static str),
    /// Bytes are left after the last value.
    #[error("{0} bytes are left after the last value")]
    Trailing(usize),
    /// A length or count is above its limit.
    #[error("{what} of {found} is above the limit of {limit}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The length or count that was given.
        found: u64,
        /// The greatest that is allowed.
        limit: u64,
    },
    /// A number or flag that means nothing.
    #[error("{what} has the unknown value {found}")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
    },
    /// A value that is not in its one canonical form (unsorted, overlapping, a wrong length).
    #[error("{0} is not in canonical form")]
    NotCanonical(&'static str),
    /// Another version of the wire format.
    #[error("wire version {found}, but this build speaks {expected}")]
    Version {
        /// The version in the header.
        found: u8,
        /// The version that this build speaks.
        expected: u8,
    },
    /// The digest in the key is not that of the body.
    #[error("the digest does not match the body")]
    Digest,
}

impl DecodeError {
    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Truncated(_) => "truncated",
            Self::Trailing(_) => "trailing",
            Self::TooLong { .. } => "too_long",
            Self::Unknown { .. } => "unknown_value",
            Self::NotCanonical(_) => "not_canonical",
            Self::Version { .. } => "wrong_version",
            Self::Digest => "wrong_digest",
        }
    }
}
