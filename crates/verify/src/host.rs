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
use tercio_crypto::{Admitted, Checked, Claim, Keyring, Pending, Reject, Signatures, Verified};
use tercio_types::{ClientId, Membership, Principal, ReplicaId, SignatureBytes, Suite};
use tercio_wire::{
    Arena, Carries, DecodeError, Forward, Frame, Key, Kind, Message, Received, Request,
};
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

/// How much may wait for its signatures to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Signatures that fill a batch; at most as many frames wait.
    pub signatures: usize,
    /// Bytes of frames that fill a batch.
    pub bytes: usize,
}

impl Default for Gather {
    /// 64 signatures (eight groups of eight lanes), 1 MiB.
    fn default() -> Self {
        Self { signatures: 64, bytes: 1 << 20 }
    }
}

/// A frame that waits.
#[derive(Debug)]
enum Held<M> {
    Protocol(Box<Pending<Received<M>>>),
    Request(Box<Pending<Received<Request>>>),
    Forward(Box<Pending<Received<Forward>>>),
    Plain(Box<Pending<Received<Plain>>>, fn(Verified<Received<Plain>>) -> Inbound<M>),
    /// It waits for others of its link only.
    Done(Box<Inbound<M>>),
}

impl<M> Held<M> {
    fn signatures(&mut self) -> Option<&mut Signatures> {
        match self {
            Self::Protocol(pending) => Some(pending.signatures()),
            Self::Request(pending) => Some(pending.signatures()),
            Self::Forward(pending) => Some(pending.signatures()),
            Self::Plain(pending, _) => Some(pending.signatures()),
            Self::Done(_) => None,
        }
    }

    fn finish(self) -> Result<Inbound<M>, Dropped> {
        Ok(match self {
            Self::Protocol(pending) => Inbound::Protocol(pending.into_verified()?),
            Self::Request(pending) => Inbound::Request(pending.into_verified()?),
            Self::Forward(pending) => Inbound::Forward(pending.into_verified()?),
            Self::Plain(pending, inbound) => inbound(pending.into_verified()?),
            Self::Done(inbound) => *inbound,
        })
    }
}

/// A frame as far as it can be checked without a signature.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
enum Step<M> {
    Done(Inbound<M>),
    Held(Held<M>),
}

/// What came of a frame, and whose link it came on.
pub type Outcome<M> = (Principal, Result<Inbound<M>, Dropped>);

/// Verifies frames on the thread that calls it.
///
/// A frame under MACs alone is done at once. One with signatures, its sender's or others', waits
/// with those of other links until [`Self::decide`] checks all that gathered as one batch; so does
/// whatever comes behind it on its link, so that a link's frames keep their order. Whoever feeds
/// frames in decides no later than when [`Self::is_full`] says so, which bounds what waits, and
/// when no more frames are at hand.
#[derive(Debug)]
pub struct HostVerify<M> {
    keyring: Keyring,
    gather: Gather,
    waiting: Vec<(Principal, Held<M>)>,
    /// Of what waits: signatures, and bytes of frames.
    signatures: usize,
    bytes: usize,
    copies: BTreeMap<ClientId, Arena>,
    dropped: BTreeMap<&'static str, u64>,
}

impl<M: Message> HostVerify<M> {
    /// Verifies with the keys of `keyring`, in the name of its owner.
    #[must_use]
    pub fn new(keyring: Keyring, gather: Gather) -> Self {
        let (waiting, copies, dropped) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { keyring, gather, waiting, signatures: 0, bytes: 0, copies, dropped }
    }

    /// Reads a frame that came on the link of `from`, and checks it as far as that needs no
    /// signature. Gives nothing when the frame waits for [`Self::decide`].
    ///
    /// A dropped frame is counted, and its order does not matter: it is told at once.
    pub fn receive(
        &mut self,
        from: Principal,
        bytes: &Bytes,
    ) -> Option<Result<Inbound<M>, Dropped>> {
        let mut held = match self.admit(from, bytes) {
            Err(dropped) => return Some(Err(self.count(dropped))),
            Ok(Step::Done(inbound)) if !self.waits_for(from) => return Some(Ok(inbound)),
            Ok(Step::Done(inbound)) => Held::Done(Box::new(inbound)),
            Ok(Step::Held(held)) => held,
        };
        self.signatures += held.signatures().map_or(0, |signatures| signatures.len());
        self.bytes += bytes.len();
        self.waiting.push((from, held));
        None
    }

    /// Whether frames of this link wait.
    fn waits_for(&self, link: Principal) -> bool {
        self.waiting.iter().any(|(from, _)| *from == link)
    }

    /// Whether anything waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether as much waits as a batch should hold.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.signatures.max(self.waiting.len()) >= self.gather.signatures
            || self.bytes >= self.gather.bytes
    }

    /// Checks the signatures of all that waits, as one batch, and gives what came of each frame, in
    /// the order in which they came. A bad signature costs no frame but its own.
    pub fn decide(&mut self) -> Vec<Outcome<M>> {
        (self.signatures, self.bytes) = (0, 0);
        let mut waiting = std::mem::take(&mut self.waiting);
        self.keyring.decide(waiting.iter_mut().filter_map(|(_, held)| held.signatures()));
        let finish = |(from, held): (Principal, Held<M>)| {
            (from, held.finish().map_err(|dropped| self.count(dropped)))
        };
        waiting.into_iter().map(finish).collect()
    }

    fn count(&mut self, dropped: Dropped) -> Dropped {
        *self.dropped.entry(dropped.reason()).or_default() += 1;
        dropped
    }

    fn admit(&mut self, from: Principal, bytes: &Bytes) -> Result<Step<M>, Dropped> {
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
            (Kind::REQUEST, Principal::Client(_)) => {
                self.step(frame, Inbound::Request, Held::Request)
            }
            (Kind::QUERY | Kind::NUMBERS, Principal::Client(_)) => {
                self.plain(frame, Inbound::Query)
            }
            (Kind::FORWARD, Principal::Replica(_)) => {
                self.step(frame, Inbound::Forward, Held::Forward)
            }
            (Kind::FETCH_BLOCKS, Principal::Replica(_)) => self.plain(frame, Inbound::FetchBlocks),
            (Kind::BLOCKS, Principal::Replica(_)) => self.plain(frame, Inbound::Blocks),
            (Kind::FETCH_STATE, Principal::Replica(_)) => self.plain(frame, Inbound::FetchState),
            (Kind::STATE, Principal::Replica(_)) => self.plain(frame, Inbound::State),
            (Kind::CHECKPOINT | Kind::ATTEST, Principal::Replica(_)) => {
                self.step(frame, Inbound::Protocol, Held::Protocol)
            }
            (Kind(kind), Principal::Replica(_))
                if (Kind::PROTOCOL..Kind::FETCH_BLOCKS.0).contains(&kind) =>
            {
                self.step(frame, Inbound::Protocol, Held::Protocol)
            }
            _ => Err(Dropped::WrongKind { kind, from }),
        }
    }

    fn plain(
        &mut self,
        frame: Frame,
        done: fn(Verified<Received<Plain>>) -> Inbound<M>,
    ) -> Result<Step<M>, Dropped> {
        self.step(frame, done, |pending| Held::Plain(pending, done))
    }

    fn step<T: Message>(
        &mut self,
        frame: Frame,
        done: impl FnOnce(Verified<Received<T>>) -> Inbound<M>,
        held: impl FnOnce(Box<Pending<Received<T>>>) -> Held<M>,
    ) -> Result<Step<M>, Dropped> {
        let suite = self.keyring.membership().suite();
        Ok(match self.keyring.admit(Received::from_frame(frame, suite)?)? {
            Admitted::Verified(message) => Step::Done(done(message)),
            Admitted::Pending(pending) => Step::Held(held(pending)),
        })
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

    /// How many signatures were checked, and how.
    #[must_use]
    pub fn checked(&self) -> Checked {
        self.keyring.checked()
    }
}
