//! The handshake without I/O: what to send, and what to think of what came. The crate's
//! documentation gives the bytes.

use crate::agreement::{builder, message_len};
use crate::{ProtocolName, Refusal};
use snow::HandshakeState;
use std::ops::Range;
use std::sync::Arc;
use tercio_crypto::{MacKey, SecretKey, agreement};
use tercio_types::{
    ChainId, ClientId, MAX_PROTOCOL_NAME, Membership, Principal, PublicKey, ReplicaId, Suite, Tag,
};
use tercio_wire::WIRE_VERSION;

/// The version of what replicas and clients must do alike, beyond the bytes that they exchange:
/// handshake, ordering, execution. Any other is refused. Version 1 knew no operations of the engine
/// itself: it answers one that adds a client with 'not supported', where others add it, and has
/// another state from there on. Version 2 takes a primary's proposal for its vote, and its primaries
/// send no other. Version 3 does not say which ordering protocol it runs. Version 4 asks for no proof
/// before it computes on the curve, knows no heartbeats, takes keys and ECDSA signatures in more than
/// one form, and has no echoes in its STATUS.
pub const PROTOCOL_VERSION: u8 = 5;

/// The bytes of a hello.
pub(crate) const HELLO: usize = 96;
/// The random bytes of a challenge, which are new for each connection.
const NONCE: usize = 16;
/// The bytes of a challenge.
pub(crate) const CHALLENGE: usize = ANSWER_HEAD + NONCE;
/// The bytes of a dialler's proof.
const PROOF: usize = 16;
/// Where a hello has the ordering protocol's name, the fault model, and how many records of epochs
/// follow, which is none.
const PROTOCOL: Range<usize> = 64..64 + MAX_PROTOCOL_NAME;
const MODEL: usize = PROTOCOL.end;
const EPOCHS: Range<usize> = MODEL + 1..MODEL + 3;
/// The bytes of an answer that refuses, but for what it names.
pub(crate) const ANSWER_HEAD: usize = 8;
/// The bytes of the dialler's confirmation.
pub(crate) const CONFIRM: usize = 16;

const MAGIC: [u8; 4] = *b"TRCO";
const ACCEPTED: u8 = 0;

/// What the dialler says to a challenge: its proof and a Noise message.
pub(crate) const fn opening_len(suite: Suite) -> usize {
    PROOF + message_len(suite)
}

/// What both sides said before anything was proven: the hello and the challenge's random bytes. It is
/// the prologue of the Noise handshake, and the proof covers it.
#[derive(Clone, Debug)]
pub(crate) struct Said([u8; HELLO + NONCE]);

impl Said {
    fn new(hello: &[u8], nonce: &[u8]) -> Self {
        let mut said = [0; HELLO + NONCE];
        said[..HELLO].copy_from_slice(hello);
        said[HELLO..].copy_from_slice(nonce);
        Self(said)
    }

    fn proof(&self, key: &MacKey, noise: &[u8]) -> Tag {
        key.tag(&[&self.0[..], noise].concat())
    }

    /// Whether an opening shows that its dialler is there now and holds `key`.
    pub(crate) fn is_proven_by(&self, opening: &[u8], key: &MacKey) -> bool {
        let (proof, noise) = opening.split_at(PROOF);
        let proof = Tag(*proof.first_chunk().expect("as long as a proof"));
        key.verify(&[&self.0[..], noise].concat(), &proof)
    }
}

/// What a listener says to a good hello, and what both have said with that; `None` when the system
/// has no randomness.
pub(crate) fn challenge(hello: &[u8]) -> Option<(Said, [u8; CHALLENGE])> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).ok()?;
    let mut out = [0; CHALLENGE];
    out[..ANSWER_HEAD].copy_from_slice(&answer_head(ACCEPTED));
    out[ANSWER_HEAD..].copy_from_slice(&nonce);
    Some((Said::new(hello, &nonce), out))
}

/// The bytes of an answer that goes on.
pub(crate) const fn answer_len(suite: Suite) -> usize {
    ANSWER_HEAD + message_len(suite)
}

fn code(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::WrongVersion { .. } => 1,
        Refusal::WrongChain(_) => 2,
        Refusal::WrongEpoch => 3,
        Refusal::UnknownId => 4,
        Refusal::NotForMe => 5,
        Refusal::TooManyLinks => 6,
        Refusal::WrongDirection => 7,
        Refusal::BadProof => 8,
        Refusal::Garbage => 9,
        Refusal::TimedOut => 10,
        Refusal::WrongProtocol(_) => 11,
        Refusal::EpochRecords => 12,
        Refusal::TooOften => 13,
    }
}

/// What a refusal says. One for another chain has that chain behind its head, and one for another
/// ordering protocol its name; `None` while that is not there.
fn refusal(code: u8, wire: u8, protocol: u8, behind: &[u8]) -> Option<Refusal> {
    Some(match code {
        1 => Refusal::WrongVersion { wire, protocol },
        2 => Refusal::WrongChain(ChainId(*behind.first_chunk()?)),
        3 => Refusal::WrongEpoch,
        4 => Refusal::UnknownId,
        5 => Refusal::NotForMe,
        6 => Refusal::TooManyLinks,
        7 => Refusal::WrongDirection,
        8 => Refusal::BadProof,
        10 => Refusal::TimedOut,
        11 => Refusal::WrongProtocol(ProtocolName(*behind.first_chunk()?)),
        12 => Refusal::EpochRecords,
        13 => Refusal::TooOften,
        _ => Refusal::Garbage,
    })
}

fn number(principal: Principal) -> (u8, u64) {
    match principal {
        Principal::Replica(id) => (0, id.0.into()),
        Principal::Client(id) => (1, id.0),
    }
}

fn principal(role: u8, id: u64) -> Option<Principal> {
    match role {
        0 => Some(Principal::Replica(ReplicaId(u16::try_from(id).ok()?))),
        1 => Some(Principal::Client(ClientId(id))),
        _ => None,
    }
}

fn key_of(membership: &Membership, who: Principal) -> Option<PublicKey> {
    match who {
        Principal::Replica(id) => membership.member(id).map(|m| m.key),
        Principal::Client(id) => membership.client(id).map(|c| c.key),
    }
}

/// The first bytes of an answer.
fn answer_head(status: u8) -> [u8; ANSWER_HEAD] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, WIRE_VERSION, PROTOCOL_VERSION, status, 0]
}

/// Magic and versions, as far as they are there. They stand first in every version, so that
/// another version is told apart from garbage.
fn check_head(bytes: &[u8]) -> Result<(), Refusal> {
    let have = bytes.len().min(MAGIC.len());
    if bytes[..have] != MAGIC[..have] {
        return Err(Refusal::Garbage);
    }
    if let Some(&[.., wire, protocol]) = bytes.first_chunk::<6>()
        && (wire, protocol) != (WIRE_VERSION, PROTOCOL_VERSION)
    {
        return Err(Refusal::WrongVersion { wire, protocol });
    }
    Ok(())
}

/// Who we are, and what we hold others against.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) me: Principal,
    pub(crate) secret: SecretKey,
    pub(crate) membership: Arc<Membership>,
}

impl Identity {
    pub(crate) fn suite(&self) -> Suite {
        self.membership.suite()
    }

    /// Our own key as the membership has it.
    pub(crate) fn listed_key(&self) -> Option<PublicKey> {
        key_of(&self.membership, self.me)
    }

    /// Whom we dial: a replica those with lower numbers, a client all.
    pub(crate) fn dials(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let me = self.me;
        self.membership.replicas().filter(move |id| match me {
            Principal::Replica(me) => *id < me,
            Principal::Client(_) => true,
        })
    }

    /// The protocol that we order with.
    fn protocol(&self) -> ProtocolName {
        ProtocolName::of(self.membership.protocol())
    }

    /// The answer that refuses.
    pub(crate) fn refuse(&self, why: Refusal) -> Vec<u8> {
        let mut out = answer_head(code(why)).to_vec();
        match why {
            Refusal::WrongProtocol(_) => out.extend(self.protocol().0),
            Refusal::WrongChain(_) => out.extend(self.membership.chain().0),
            _ => {}
        }
        out
    }

    /// What to say first to `to`.
    pub(crate) fn hello(&self, to: ReplicaId) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        let (role, id) = number(self.me);
        let (to_role, to_id) = number(Principal::Replica(to));
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&[WIRE_VERSION, PROTOCOL_VERSION, role, to_role]);
        out[8..16].copy_from_slice(&self.membership.epoch().0.to_le_bytes());
        out[16..24].copy_from_slice(&id.to_le_bytes());
        out[24..32].copy_from_slice(&to_id.to_le_bytes());
        out[32..64].copy_from_slice(&self.membership.chain().0);
        out[PROTOCOL].copy_from_slice(&self.protocol().0);
        out[MODEL] = self.membership.model().number();
        out
    }

    /// The key of `peer` that secrets are agreed on with; `None` when the membership has no usable
    /// one.
    pub(crate) fn agreement_key(&self, peer: Principal) -> Option<agreement::Public> {
        agreement::public_of_identity(self.suite(), &key_of(&self.membership, peer)?).ok()
    }

    fn noise(&self, peer: Principal, said: &Said, dials: bool) -> Option<HandshakeState> {
        let suite = self.suite();
        let theirs = self.agreement_key(peer)?;
        let ours = self.secret.agreement_secret();
        let builder = builder(suite)
            .prologue(&said.0)
            .and_then(|b| b.local_private_key(&*ours))
            .and_then(|b| b.remote_public_key(&theirs[..agreement::public_len(suite)]))
            .expect("each is set once, with the suite's lengths");
        let state = if dials { builder.build_initiator() } else { builder.build_responder() };
        Some(state.expect("the pattern has all keys that it needs"))
    }

    /// What to say to the whole challenge of `peer`, with which we share `key`. `None` when the
    /// membership has no usable key for it.
    pub(crate) fn open(
        &self,
        peer: ReplicaId,
        challenge: &[u8],
        key: &MacKey,
    ) -> Option<(Dialling, Vec<u8>)> {
        let said = Said::new(&self.hello(peer), &challenge[ANSWER_HEAD..CHALLENGE]);
        let mut noise = self.noise(Principal::Replica(peer), &said, true)?;
        let mut out = vec![0; opening_len(self.suite())];
        let wrote = noise.write_message(&[], &mut out[PROOF..]);
        assert_eq!(wrote, Ok(message_len(self.suite())), "an ephemeral key and a tag");
        let proof = said.proof(key, &out[PROOF..]);
        out[..PROOF].copy_from_slice(&proof.0);
        Some((Dialling { suite: self.suite(), noise: Box::new(noise) }, out))
    }

    /// What to think of a hello of which at least `bytes` are there; `None` while more must come.
    pub(crate) fn check_hello(&self, bytes: &[u8]) -> Result<Option<Principal>, Refusal> {
        check_head(bytes)?;
        let Some(hello) = bytes.get(..HELLO) else { return Ok(None) };
        let word = |at: usize| u64::from_le_bytes(*hello[at..].first_chunk().expect("8 bytes"));
        // Before the chain id, which has the protocol in it: so the refusal names it.
        let theirs = ProtocolName(*hello[PROTOCOL].first_chunk().expect("as long as a name"));
        if theirs != self.protocol() || hello[MODEL] != self.membership.model().number() {
            return Err(Refusal::WrongProtocol(theirs));
        }
        if hello[32..64] != self.membership.chain().0 {
            return Err(Refusal::WrongChain(ChainId(
                *hello[32..].first_chunk().expect("32 bytes"),
            )));
        }
        if hello[EPOCHS] != [0, 0] {
            return Err(Refusal::EpochRecords);
        }
        if hello[EPOCHS.end..HELLO].iter().any(|byte| *byte != 0) {
            return Err(Refusal::Garbage);
        }
        if word(8) != self.membership.epoch().0 {
            return Err(Refusal::WrongEpoch);
        }
        if principal(hello[7], word(24)) != Some(self.me) {
            return Err(Refusal::NotForMe);
        }
        let from = principal(hello[6], word(16)).ok_or(Refusal::UnknownId)?;
        if key_of(&self.membership, from).is_none() {
            return Err(Refusal::UnknownId);
        }
        match (from, self.me) {
            (Principal::Replica(a), Principal::Replica(b)) if a <= b => {
                Err(Refusal::WrongDirection)
            }
            _ => Ok(Some(from)),
        }
    }

    /// Answers an opening of `from`, which is proven.
    pub(crate) fn answer(
        &self,
        from: Principal,
        said: &Said,
        opening: &[u8],
    ) -> Result<(Answering, Vec<u8>), Refusal> {
        let mut noise = self.noise(from, said, false).ok_or(Refusal::BadProof)?;
        noise.read_message(&opening[PROOF..], &mut []).map_err(|_| Refusal::BadProof)?;
        let mut out = vec![0; answer_len(self.suite())];
        out[..ANSWER_HEAD].copy_from_slice(&answer_head(ACCEPTED));
        let wrote = noise.write_message(&[], &mut out[ANSWER_HEAD..]);
        assert_eq!(wrote, Ok(message_len(self.suite())), "an ephemeral key and a tag");
        Ok((Answering { from, noise: Box::new(noise) }, out))
    }
}

/// Who a hello says it is from: nothing of it is proven. `None` when too little is there, or it
/// names nobody.
pub(crate) fn claimed(bytes: &[u8]) -> Option<Principal> {
    check_head(bytes).ok()?;
    let role = *bytes.get(6)?;
    principal(role, u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?))
}

/// The dialler's half, waiting for the answer.
#[derive(Debug)]
pub(crate) struct Dialling {
    suite: Suite,
    noise: Box<HandshakeState>,
}

/// Whether `len` bytes of a listener that goes on are there; what it says when it refuses.
fn goes_on(bytes: &[u8], len: usize) -> Result<bool, Refusal> {
    if let Some(&[.., wire, protocol, status, _]) = bytes.first_chunk::<ANSWER_HEAD>()
        && bytes[..4] == MAGIC
        && status != ACCEPTED
    {
        return refusal(status, wire, protocol, &bytes[ANSWER_HEAD..]).map_or(Ok(false), Err);
    }
    check_head(bytes)?;
    Ok(bytes.len() >= len)
}

/// Whether the challenge is there, or a refusal already.
pub(crate) fn check_challenge(bytes: &[u8]) -> Result<bool, Refusal> {
    goes_on(bytes, CHALLENGE)
}

impl Dialling {
    /// Whether the answer is there, or refuses already.
    pub(crate) fn check_answer(&self, bytes: &[u8]) -> Result<bool, Refusal> {
        goes_on(bytes, answer_len(self.suite))
    }

    /// Takes the whole answer and gives the confirmation, after which the link is open.
    pub(crate) fn finish(mut self, answer: &[u8]) -> Result<[u8; CONFIRM], Refusal> {
        let second = &answer[ANSWER_HEAD..answer_len(self.suite)];
        self.noise.read_message(second, &mut []).map_err(|_| Refusal::BadProof)?;
        let mut session = self.noise.into_transport_mode().expect("both messages are through");
        let mut out = [0; CONFIRM];
        let wrote = session.write_message(&[], &mut out);
        assert_eq!(wrote, Ok(CONFIRM), "a tag");
        Ok(out)
    }
}

/// The listener's half, waiting for the confirmation.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) from: Principal,
    noise: Box<HandshakeState>,
}

impl Answering {
    /// Whether the confirmation shows that the dialler is there and holds its secret.
    pub(crate) fn confirmed(self, confirmation: &[u8]) -> bool {
        let mut session = self.noise.into_transport_mode().expect("both messages are through");
        session.read_message(&confirmation[..CONFIRM], &mut []).is_ok()
    }
}
