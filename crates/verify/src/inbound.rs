//! What comes out of the stage: a message by what it is for, or why there is none.

use crate::Filtered;
use bytes::Bytes;
use std::collections::BTreeMap;
use tercio_crypto::{Claim, Reject, Verified};
use tercio_types::{Principal, ReplicaId, SignatureBytes, Suite};
use tercio_wire::{Carries, DecodeError, Forward, Frame, Key, Kind, Message, Received, Request};
use thiserror::Error;

/// What came of a frame, and whose link it came on.
pub type Outcome<M> = (Principal, Result<Inbound<M>, Dropped>);

/// A message whose body means something to its receiver alone: queries, blocks and state. Nobody but the
/// sender is said to have said anything in it; what its body holds is checked where it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The kind.
    pub kind: Kind,
    /// The number in the key.
    pub seq: u64,
    /// The body.
    pub body: Bytes,
}

impl Message for Plain {
    fn from_frame(frame: &Frame, _suite: Suite) -> Result<Self, DecodeError> {
        Ok(Self { kind: frame.key.kind, seq: frame.key.seq, body: frame.body.clone() })
    }

    fn carries(&self) -> Carries {
        Carries::Macs
    }

    fn inner_claims(&self, _suite: Suite, _claim: &mut dyn FnMut(Claim<'_>)) {}

    fn parts(&self, sender: ReplicaId, suite: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
        let digest = tercio_crypto::hash(suite, &[&self.body]);
        (Key::of_replica(self.kind, sender, 0, self.seq, digest), self.body.clone(), None)
    }
}

/// A verified message, by what it is for. `M` is the ordering protocol's.
#[derive(Clone, Debug)]
pub enum Inbound<M> {
    /// A replica's message of the ordering protocol.
    Protocol(Verified<Received<M>>),
    /// A client's package, from the client.
    Request(Verified<Received<Request>>),
    /// A client's package, from another replica.
    Forward(Verified<Received<Forward>>),
    /// A client's question, to the application or after its own numbers, answered without ordering.
    Query(Verified<Received<Plain>>),
    /// A replica asks for blocks.
    FetchBlocks(Verified<Received<Plain>>),
    /// A replica hands blocks over.
    Blocks(Verified<Received<Plain>>),
    /// A replica asks for pieces of state.
    FetchState(Verified<Received<Plain>>),
    /// A replica hands pieces of state over.
    State(Verified<Received<Plain>>),
}

/// Why a frame was dropped. Its sender is at fault, or somebody on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Dropped {
    /// The bytes are no message.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The frame names another sender than the peer of its link.
    #[error("a frame of {claimed} on the link of {peer}")]
    NotThePeer {
        /// Who the frame says sent it.
        claimed: Principal,
        /// Whose link it came on.
        peer: Principal,
    },
    /// Messages of this kind do not come from such a sender, or not to a replica.
    #[error("a message of kind {} from {from}", .kind.0)]
    WrongKind {
        /// The kind.
        kind: Kind,
        /// The sender.
        from: Principal,
    },
    /// A claim does not hold.
    #[error(transparent)]
    Reject(#[from] Reject),
    /// The filter passes it over, unread: ordering would drop it.
    #[error(transparent)]
    Filtered(#[from] Filtered),
}

impl Dropped {
    /// Counts it by its reason; what the filter passes over is counted by ordering.
    pub(crate) fn count(&self, dropped: &mut BTreeMap<&'static str, u64>) {
        if !matches!(self, Self::Filtered(_)) {
            *dropped.entry(self.reason()).or_default() += 1;
        }
    }

    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Decode(error) => error.reason(),
            Self::NotThePeer { .. } => "not_the_peer",
            Self::WrongKind { .. } => "wrong_kind",
            Self::Reject(reject) => reject.reason(),
            Self::Filtered(filtered) => filtered.reason(),
        }
    }
}
