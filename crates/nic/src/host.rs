//! Verification on the host's CPU.
//!
//! A frame is dropped, and counted by reason, when
//! - it is not exactly one well-formed frame of this version, with a body that its digest names;
//! - its kind is not for a replica, or not for a sender of this sort (a client's vote, a replica's
//!   request);
//! - its sender is not the peer of the link it came on: a peer speaks for itself only, and hands
//!   others' words on inside messages of its own;
//! - a claim in it, the sender's own or an inner one, does not hold.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{Claim, Keyring, Reject, Verified};
use tercio_types::{ClientId, Membership, Principal, ReplicaId, SignatureBytes, Suite};
use tercio_wire::{Arena, DecodeError, Forward, Frame, Key, Kind, Message, Received, Request};
use thiserror::Error;

/// Requests shorter than this are copied out of the receive buffer that they came in: they wait
/// long, and one of them must not hold a whole buffer.
const COPIED: usize = 64 << 10;
/// The bytes of the allocations that a client's requests share. One that waits for ever holds on to
/// the others of its client that are there.
const ARENA: usize = 4 << 10;

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
}

impl Dropped {
    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Decode(error) => error.reason(),
            Self::NotThePeer { .. } => "not_the_peer",
            Self::WrongKind { .. } => "wrong_kind",
            Self::Reject(reject) => reject.reason(),
        }
    }
}

/// Verifies frames on the thread that calls it.
#[derive(Debug)]
pub struct HostNic {
    keyring: Keyring,
    copies: BTreeMap<ClientId, Arena>,
    dropped: BTreeMap<&'static str, u64>,
}

impl HostNic {
    /// Verifies with the keys of `keyring`, in the name of its owner.
    #[must_use]
    pub fn new(keyring: Keyring) -> Self {
        Self { keyring, copies: BTreeMap::new(), dropped: BTreeMap::new() }
    }

    /// Reads and checks a frame that came on the link of `from`.
    ///
    /// # Errors
    /// Why it was dropped; it has been counted.
    pub fn receive<M: Message>(
        &mut self,
        from: Principal,
        bytes: &Bytes,
    ) -> Result<Inbound<M>, Dropped> {
        let result = self.check(from, bytes);
        if let Err(dropped) = &result {
            *self.dropped.entry(dropped.reason()).or_default() += 1;
        }
        result
    }

    fn check<M: Message>(&mut self, from: Principal, bytes: &Bytes) -> Result<Inbound<M>, Dropped> {
        let own;
        let bytes = match from {
            Principal::Client(client) if bytes.len() < COPIED => {
                own = self.copies.entry(client).or_insert_with(|| Arena::new(ARENA)).copy(bytes);
                &own
            }
            _ => bytes,
        };
        let frame = Frame::decode(bytes, self.keyring.membership().suite())?;
        let (kind, claimed) = (frame.key.kind, frame.key.principal());
        if claimed != from {
            return Err(Dropped::NotThePeer { claimed, peer: from });
        }
        match (kind, from) {
            (Kind::REQUEST, Principal::Client(_)) => self.verify(frame).map(Inbound::Request),
            (Kind::QUERY | Kind::NUMBERS, Principal::Client(_)) => {
                self.verify(frame).map(Inbound::Query)
            }
            (Kind::FORWARD, Principal::Replica(_)) => self.verify(frame).map(Inbound::Forward),
            (Kind::FETCH_BLOCKS, Principal::Replica(_)) => {
                self.verify(frame).map(Inbound::FetchBlocks)
            }
            (Kind::BLOCKS, Principal::Replica(_)) => self.verify(frame).map(Inbound::Blocks),
            (Kind::FETCH_STATE, Principal::Replica(_)) => {
                self.verify(frame).map(Inbound::FetchState)
            }
            (Kind::STATE, Principal::Replica(_)) => self.verify(frame).map(Inbound::State),
            (Kind::CHECKPOINT | Kind::ATTEST, Principal::Replica(_)) => {
                self.verify(frame).map(Inbound::Protocol)
            }
            (Kind(kind), Principal::Replica(_))
                if (Kind::PROTOCOL..Kind::FETCH_BLOCKS.0).contains(&kind) =>
            {
                self.verify(frame).map(Inbound::Protocol)
            }
            _ => Err(Dropped::WrongKind { kind, from }),
        }
    }

    fn verify<M: Message>(&mut self, frame: Frame) -> Result<Verified<Received<M>>, Dropped> {
        let suite = self.keyring.membership().suite();
        Ok(self.keyring.verify(Received::from_frame(frame, suite)?)?)
    }

    /// Goes over to a membership with other clients.
    pub fn set_membership(&mut self, membership: Arc<Membership>) {
        self.keyring.set_membership(membership);
    }

    /// How many frames were dropped, by reason.
    #[must_use]
    pub fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }
}
