//! Why a message is not believed.

use tercio_types::{ClientId, Principal, ReplicaId};
use thiserror::Error;

/// Why a message is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reject {
    /// The sender is no member.
    #[error("unknown replica {0}")]
    UnknownReplica(ReplicaId),
    /// The client is not in the genesis.
    #[error("unknown client {0}")]
    UnknownClient(ClientId),
    /// The tag for us is missing or wrong.
    #[error("wrong message authentication code of {0}")]
    BadMac(Principal),
    /// The signature is wrong.
    #[error("wrong signature of {0}")]
    BadSignature(Principal),
    /// A kind of authenticator that this network does not use.
    #[error("{0} uses an authenticator that this network does not know")]
    Unsupported(Principal),
}

impl Reject {
    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownReplica(_) => "unknown_replica",
            Self::UnknownClient(_) => "unknown_client",
            Self::BadMac(_) => "bad_mac",
            Self::BadSignature(_) => "bad_signature",
            Self::Unsupported(_) => "unsupported_authenticator",
        }
    }
}
