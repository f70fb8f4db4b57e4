//! From a frame to a message, as far as that needs no signature.

use crate::{Dropped, Filter, Inbound, Plain, cost};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{Admitted, Checked, Keyring, Pending, Signatures, Verified};
use tercio_types::{ClientId, Membership, Principal};
use tercio_wire::{Arena, Forward, Frame, Kind, Message, Received, Request};

/// Requests shorter than this are copied out of the receive buffer that they came in: they wait
/// long, and one of them must not hold a whole buffer.
const COPIED: usize = 64 << 10;
/// The bytes of the allocations that a client's requests share. One that waits for ever holds on to
/// the others of its client that are there.
const ARENA: usize = 4 << 10;

/// A frame that waits.
#[derive(Debug)]
pub(crate) enum Held<M> {
    Protocol(Box<Pending<Received<M>>>),
    Request(Box<Pending<Received<Request>>>),
    Forward(Box<Pending<Received<Forward>>>),
    Plain(Box<Pending<Received<Plain>>>, fn(Verified<Received<Plain>>) -> Inbound<M>),
    /// It waits for others of its link only.
    Done(Box<Inbound<M>>),
}

impl<M> Held<M> {
    pub(crate) fn signatures(&mut self) -> Option<&mut Signatures> {
        match self {
            Self::Protocol(pending) => Some(pending.signatures()),
            Self::Request(pending) => Some(pending.signatures()),
            Self::Forward(pending) => Some(pending.signatures()),
            Self::Plain(pending, _) => Some(pending.signatures()),
            Self::Done(_) => None,
        }
    }

    /// What its signatures cost if none is known yet.
    pub(crate) fn cost(&mut self) -> u64 {
        self.signatures().map_or(0, |signatures| signatures.schemes().map(cost::of_signature).sum())
    }

    /// What they did cost, once they are decided.
    pub(crate) fn spent(&mut self) -> u64 {
        let Some(signatures) = self.signatures() else { return 0 };
        let (computed, all) = (signatures.computed() as u64, signatures.len() as u64);
        self.cost() * computed / all
    }

    pub(crate) fn finish(self) -> Result<Inbound<M>, Dropped> {
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
pub(crate) enum Step<M> {
    Done(Inbound<M>),
    Held(Held<M>),
}

/// Decodes frames, and checks all in them but signatures, which are left to [`Self::decide`].
#[derive(Debug)]
pub(crate) struct Decoder {
    keyring: Keyring,
    filter: Filter,
    copies: BTreeMap<ClientId, Arena>,
}

impl Decoder {
    /// With the keys of `keyring`, in the name of its owner.
    pub(crate) fn new(keyring: Keyring) -> Self {
        Self { keyring, filter: Filter::default(), copies: BTreeMap::new() }
    }

    pub(crate) fn set_membership(&mut self, membership: Arc<Membership>) {
        self.keyring.set_membership(membership);
    }

    pub(crate) fn set_filter(&mut self, filter: &Filter) {
        self.filter.clone_from(filter);
    }

    pub(crate) fn checked(&self) -> Checked {
        self.keyring.checked()
    }

    /// Checks the signatures of all of these as one batch.
    pub(crate) fn decide<'a, M: 'a>(&mut self, held: impl IntoIterator<Item = &'a mut Held<M>>) {
        self.keyring.decide(held.into_iter().filter_map(Held::signatures));
    }

    /// Reads a frame that came on the link of `from`.
    pub(crate) fn admit<M: Message>(
        &mut self,
        from: Principal,
        bytes: &Bytes,
    ) -> Result<Step<M>, Dropped> {
        self.filter.pass(from, bytes)?;
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

    fn plain<M: Message>(
        &mut self,
        frame: Frame,
        done: fn(Verified<Received<Plain>>) -> Inbound<M>,
    ) -> Result<Step<M>, Dropped> {
        self.step(frame, done, |pending| Held::Plain(pending, done))
    }

    fn step<T: Message, M>(
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
}
