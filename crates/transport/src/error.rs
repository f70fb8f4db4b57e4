//! Why a link is not there, or no longer.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use tercio_types::{ChainId, MAX_PROTOCOL_NAME, Principal};
use tercio_wire::{DecodeError, WIRE_VERSION};
use thiserror::Error;

use crate::PROTOCOL_VERSION;

/// Why a transport could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Somebody listens there already.
    #[error(
        "{address} is in use by another process: stop it (is this replica running already?) or \
         listen on another port"
    )]
    InUse {
        /// Where we wanted to listen.
        address: SocketAddr,
    },
    /// The system refuses the address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where we wanted to listen.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system gives no event queue.
    #[error("cannot set up the event loop: {0}")]
    Poll(#[from] io::Error),
    /// The secret is not that of the principal in the membership.
    #[error("the secret key is not that of {0}: the membership lists another public key for it")]
    WrongSecret(Principal),
    /// The membership does not know us.
    #[error("{0} is not in the membership")]
    NotAMember(Principal),
}

/// The name of an ordering protocol, as a handshake has it: with zeros behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProtocolName(pub [u8; MAX_PROTOCOL_NAME]);

impl ProtocolName {
    /// That of a membership's protocol.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let mut bytes = [0; MAX_PROTOCOL_NAME];
        let len = name.len().min(MAX_PROTOCOL_NAME);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self(bytes)
    }
}

/// Whatever came: it is not to be trusted.
impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        write!(f, "'{}'", name.escape_ascii())
    }
}

impl fmt::Debug for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The other side speaks other versions.
    #[error(
        "other versions: the peer speaks wire {wire} and protocol {protocol}, this build \
         {WIRE_VERSION} and {PROTOCOL_VERSION}"
    )]
    WrongVersion {
        /// Its version of the wire format.
        wire: u8,
        /// Its version of the protocol.
        protocol: u8,
    },
    /// The other side orders with another protocol, or under another fault model.
    #[error("another ordering protocol: the peer runs {0}; the network's genesis names its own")]
    WrongProtocol(ProtocolName),
    /// The dialler tells of changes of the membership, which no version does yet.
    #[error(
        "the peer shows records of epochs, which this build does not know: run the same version"
    )]
    EpochRecords,
    /// The dialler belongs to another network than the listener. To the dialler this is the chain
    /// that the listener says is its own, to the listener the one that the dialler says.
    #[error("another network: the chain ids differ, the other side's is {0}")]
    WrongChain(ChainId),
    /// The dialler has another generation of the membership.
    #[error("the epochs of the memberships differ")]
    WrongEpoch,
    /// The dialler is not in the listener's membership.
    #[error("the dialler's id is not in the listener's membership")]
    UnknownId,
    /// The dialler wants somebody else; an address in its membership is wrong.
    #[error("the listener is not the replica that the dialler wants")]
    NotForMe,
    /// As many clients as allowed are linked.
    #[error("the listener has as many links to clients as it allows")]
    TooManyLinks,
    /// The dialler has opened links too often.
    #[error("the dialler opens links too often: it is to wait")]
    TooOften,
    /// Replicas dial those with lower ids only.
    #[error("a replica dials those with lower ids only")]
    WrongDirection,
    /// No secret for the claimed identity, or a replay.
    #[error("no proof of the claimed identity: the keys do not match the membership")]
    BadProof,
    /// What came is no handshake of ours.
    #[error("the peer does not speak this protocol")]
    Garbage,
    /// The handshake took too long.
    #[error("the handshake took too long")]
    TimedOut,
}

impl Refusal {
    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::WrongVersion { .. } => "wrong_version",
            Self::WrongProtocol(_) => "wrong_protocol",
            Self::EpochRecords => "epoch_records",
            Self::WrongChain(_) => "wrong_chain",
            Self::WrongEpoch => "wrong_epoch",
            Self::UnknownId => "unknown_id",
            Self::NotForMe => "not_for_me",
            Self::TooManyLinks => "too_many_links",
            Self::TooOften => "too_often",
            Self::WrongDirection => "wrong_direction",
            Self::BadProof => "bad_proof",
            Self::Garbage => "garbage",
            Self::TimedOut => "handshake_timed_out",
        }
    }
}

/// Why a received byte stream cannot be followed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header is malformed.
    #[error(transparent)]
    Header(#[from] DecodeError),
    /// The frame is longer than this peer may send.
    #[error("a frame of {found} bytes, above the limit of {limit}")]
    TooLong {
        /// Its length.
        found: usize,
        /// The greatest that is allowed.
        limit: usize,
    },
}

/// Why an authenticated link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// The peer closed it.
    #[error("the peer closed the link")]
    Closed,
    /// The same peer opened a newer one.
    #[error("a newer link of the same peer took its place")]
    Replaced,
    /// Nothing came from the replica for too long, not even a heartbeat.
    #[error("nothing came from the peer, not even a heartbeat")]
    Silent,
    /// All places of clients were taken, this client had been idle the longest, and another came.
    #[error("the client was idle, and another needed its place")]
    Idle,
    /// The system reports an error.
    #[error("{0}")]
    Io(io::ErrorKind),
    /// The peer sent what is no frame, or too long a one.
    #[error("{0}")]
    Frame(#[from] FrameError),
}

impl Disconnect {
    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Closed => "link_closed",
            Self::Replaced => "link_replaced",
            Self::Silent => "link_silent",
            Self::Idle => "link_idle",
            Self::Io(_) => "link_io_error",
            Self::Frame(FrameError::TooLong { .. }) => "frame_too_long",
            Self::Frame(FrameError::Header(_)) => "bad_frame_header",
        }
    }
}

/// Why a frame was dropped instead of queued. It is counted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no link to the peer now.
    #[error("no link to {0}")]
    NotConnected(Principal),
    /// As many bytes as allowed wait for the peer.
    #[error("the queue to {0} is full")]
    Full(Principal),
}
