//! PBFT's messages (Castro and Liskov, TOCS 2002, sections 4.2 to 4.5) and their bodies.
//! `docs/format.md` lists the bytes.

use super::trips::Echo;
use crate::Instant;
use bytes::Bytes;
use std::sync::Arc;
use tercio_crypto::{Claim, Proof, Signer};
use tercio_types::{
    CertifiedCheckpoint, Checkpoint, ClientId, Digest, Height, MAX_REPLICAS, Principal, ReplicaId,
    SeqNum, SignatureBytes, Suite, View,
};
use tercio_wire::{
    Carries, Decode, DecodeError, Encode, EncodedBatch, Frame, Key, Kind, Message, Reader,
    certificate_claims, checkpoint_key, list, package_claim,
};

pub(super) const PRE_PREPARE: Kind = Kind(Kind::PROTOCOL);
pub(super) const PREPARE: Kind = Kind(Kind::PROTOCOL + 1);
pub(super) const COMMIT: Kind = Kind(Kind::PROTOCOL + 2);
pub(super) const VIEW_CHANGE: Kind = Kind(Kind::PROTOCOL + 3);
pub(super) const NEW_VIEW: Kind = Kind(Kind::PROTOCOL + 4);
pub(super) const STATUS: Kind = Kind(Kind::PROTOCOL + 5);
pub(super) const FETCH_BODY: Kind = Kind(Kind::PROTOCOL + 6);
pub(super) const BODY: Kind = Kind(Kind::PROTOCOL + 7);
pub(super) const STABLE: Kind = Kind(Kind::PROTOCOL + 8);
pub(super) const LEARN: Kind = Kind(Kind::PROTOCOL + 9);
pub(super) const REPORT: Kind = Kind(Kind::PROTOCOL + 10);

/// The kinds that are part of agreeing on the number that they carry, and of no use beside that.
pub(super) const OF_A_SLOT: &[Kind] = &[PRE_PREPARE, PREPARE, COMMIT];

/// The most entries of a P or Q set that are read: a window of 65,536 numbers.
const MAX_CLAIMS: usize = 1 << 16;
/// The most clients that a VIEW-CHANGE may name.
pub(super) const MAX_BLAMED: usize = 64;

/// What replicas say to each other. Votes are most of it, so what is larger than a vote is boxed.
#[derive(Clone, Debug)]
pub enum PbftMessage {
    /// The primary proposes a batch.
    PrePrepare {
        /// The view.
        view: View,
        /// The number.
        seq: SeqNum,
        /// The batch.
        batch: Arc<EncodedBatch>,
    },
    /// 'I accepted this and nothing else.'
    Prepare {
        /// The view.
        view: View,
        /// The number.
        seq: SeqNum,
        /// The batch's digest.
        digest: Digest,
    },
    /// 'A quorum accepted this.'
    Commit {
        /// The view.
        view: View,
        /// The number.
        seq: SeqNum,
        /// The batch's digest.
        digest: Digest,
    },
    /// 'This is my state.' Signed.
    Checkpoint {
        /// The state.
        checkpoint: Box<Checkpoint>,
        /// The sender's signature.
        signature: Box<SignatureBytes>,
    },
    /// 'This block is in my chain.' Signed.
    Attest {
        /// The block.
        height: Height,
        /// Its hash.
        block: Digest,
        /// The sender's signature.
        signature: Box<SignatureBytes>,
    },
    /// 'I have left all views below this one.' Signed.
    ViewChange(Arc<SignedViewChange>),
    /// 'This is where the view begins.' Signed.
    NewView(Arc<SignedNewView>),
    /// 'This is where I stand; send me what I lack.'
    Status(Standing),
    /// 'Send me the batch with this digest.'
    FetchBody {
        /// The number that it was proposed for.
        seq: SeqNum,
        /// Its digest.
        digest: Digest,
    },
    /// A batch that was asked for.
    Body {
        /// The number that it was proposed for.
        seq: SeqNum,
        /// The batch.
        batch: Arc<EncodedBatch>,
    },
    /// A checkpoint certificate, for one that lags.
    Stable(Arc<CertifiedCheckpoint>),
    /// 'I started again; tell me where you stand, and what I signed last.'
    Learn {
        /// Names the question, so that no older answer passes for one to it.
        nonce: u64,
    },
    /// The answer to that.
    Report(Report),
}

/// Where a replica stands, for one that lost its log or started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The question's.
    pub nonce: u64,
    /// The view that it is in or waits for.
    pub view: View,
    /// The highest number that it accepted, delivered or holds a certificate for.
    pub reach: SeqNum,
    /// The asker's latest signed state that it knows, under that signature alone.
    pub said: Option<Arc<CertifiedCheckpoint>>,
}

/// Where a replica stands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Standing {
    /// Its view.
    pub view: View,
    /// Whether it waits for that view to begin.
    pub changing: bool,
    /// The last number it delivered.
    pub delivered: SeqNum,
    /// Its stable checkpoint.
    pub stable: SeqNum,
    /// Whether it does well and wants no help: it only says what time it is.
    pub well: bool,
    /// Its time.
    pub sent: Instant,
    /// The times that it has of others, in ascending order of those.
    pub echoes: Vec<Echo>,
}

/// A number with what a replica says of it: an entry of the P or Q set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimed {
    /// The number.
    pub seq: SeqNum,
    /// The batch's digest.
    pub digest: Digest,
    /// P: the view in which it prepared. Q: the latest view in which it was pre-prepared.
    pub view: View,
}

/// What a replica says when it leaves its view (TOCS section 4.5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewChange {
    /// The view that it wants.
    pub view: View,
    /// Its stable checkpoint with the proof; `None` at the very beginning.
    pub stable: Option<CertifiedCheckpoint>,
    /// P: for each number above the stable checkpoint, the batch that prepared in the latest view.
    pub prepared: Vec<Claimed>,
    /// Q: for each number, the batches that were pre-prepared, each with its latest view.
    pub preprepared: Vec<Claimed>,
    /// Clients whose MACs kept it from voting.
    pub blamed: Vec<ClientId>,
}

impl ViewChange {
    /// The low watermark: h.
    #[must_use]
    pub fn low(&self) -> SeqNum {
        self.stable.as_ref().map_or(SeqNum(0), |c| c.checkpoint.seq)
    }
}

/// A VIEW-CHANGE with who says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedViewChange {
    /// Its sender.
    pub sender: ReplicaId,
    /// What it says.
    pub content: ViewChange,
    /// Its encoding: what is hashed and signed.
    pub body: Bytes,
    /// The sender's signature.
    pub signature: SignatureBytes,
}

/// A NEW-VIEW: the VIEW-CHANGEs that a new primary builds on. What they lead to is computed from
/// them by everybody alike ([`super::select`]), so it is not said again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedNewView {
    /// The new primary.
    pub sender: ReplicaId,
    /// The view that begins.
    pub view: View,
    /// A quorum's VIEW-CHANGEs for it.
    pub view_changes: Vec<Arc<SignedViewChange>>,
    /// Its encoding.
    pub body: Bytes,
    /// The new primary's signature.
    pub signature: SignatureBytes,
}

fn encode_claims(claims: &[Claimed], out: &mut Vec<u8>) {
    out.extend_from_slice(&(claims.len() as u32).to_le_bytes());
    for claim in claims {
        out.extend_from_slice(&claim.seq.0.to_le_bytes());
        out.extend_from_slice(&claim.digest.0);
        out.extend_from_slice(&claim.view.0.to_le_bytes());
    }
}

fn decode_claims(input: &mut Reader, what: &'static str) -> Result<Vec<Claimed>, DecodeError> {
    let count = input.count(48, MAX_CLAIMS, what)?;
    let mut claims: Vec<Claimed> = Vec::with_capacity(count);
    for _ in 0..count {
        let (seq, digest) = (SeqNum(input.u64(what)?), input.digest(what)?);
        let claim = Claimed { seq, digest, view: View(input.u64(what)?) };
        if claims.last().is_some_and(|last| (last.seq, last.digest) >= (seq, digest)) {
            return Err(DecodeError::NotCanonical(what));
        }
        claims.push(claim);
    }
    Ok(claims)
}

fn encode_echoes(echoes: &[Echo], out: &mut Vec<u8>) {
    out.extend_from_slice(&(echoes.len() as u32).to_le_bytes());
    for Echo { of, sent, held } in echoes {
        out.extend_from_slice(&of.0.to_le_bytes());
        out.extend_from_slice(&sent.0.to_le_bytes());
        out.extend_from_slice(&held.to_le_bytes());
    }
}

fn decode_echoes(input: &mut Reader) -> Result<Vec<Echo>, DecodeError> {
    let what = "echoes";
    let mut echoes: Vec<Echo> = Vec::new();
    for _ in 0..input.count(18, MAX_REPLICAS, what)? {
        let (of, sent) = (ReplicaId(input.u16(what)?), Instant(input.u64(what)?));
        if echoes.last().is_some_and(|last| last.of >= of) {
            return Err(DecodeError::NotCanonical(what));
        }
        echoes.push(Echo { of, sent, held: input.u64(what)? });
    }
    Ok(echoes)
}

impl Encode for ViewChange {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.view.0.to_le_bytes());
        out.push(self.stable.is_some().into());
        if let Some(stable) = &self.stable {
            stable.encode(out);
        }
        encode_claims(&self.prepared, out);
        encode_claims(&self.preprepared, out);
        out.extend_from_slice(&(self.blamed.len() as u32).to_le_bytes());
        self.blamed.iter().for_each(|client| out.extend_from_slice(&client.0.to_le_bytes()));
    }
}

impl Decode for ViewChange {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let view = View(input.u64("view")?);
        let stable = match input.flag("stable flag")? {
            true => Some(CertifiedCheckpoint::decode(input)?),
            false => None,
        };
        let prepared = decode_claims(input, "P set")?;
        let preprepared = decode_claims(input, "Q set")?;
        let mut blamed: Vec<ClientId> = Vec::new();
        for _ in 0..input.count(8, MAX_BLAMED, "blamed clients")? {
            let client = ClientId(input.u64("blamed clients")?);
            if blamed.last().is_some_and(|last| *last >= client) {
                return Err(DecodeError::NotCanonical("blamed clients"));
            }
            blamed.push(client);
        }
        Ok(Self { view, stable, prepared, preprepared, blamed })
    }
}

fn view_change_key(sender: ReplicaId, content: &ViewChange, body: &Bytes, suite: Suite) -> Key {
    let digest = tercio_crypto::hash(suite, &[body]);
    Key::of_replica(VIEW_CHANGE, sender, content.view.0, content.low().0, digest)
}

impl SignedViewChange {
    /// Signs `content`.
    #[must_use]
    pub fn new(sender: ReplicaId, content: ViewChange, signer: &Signer, suite: Suite) -> Self {
        let body = content.to_bytes();
        let key = view_change_key(sender, &content, &body, suite);
        let signature = signer.sign(&key.to_array());
        Self { sender, content, body, signature }
    }

    fn claims(&self, suite: Suite, claim: &mut dyn FnMut(Claim<'_>)) {
        let said = view_change_key(self.sender, &self.content, &self.body, suite).to_array();
        let by = Principal::Replica(self.sender);
        claim(Claim { by, said, proof: Proof::Signature(&self.signature) });
        self.inner_claims(suite, claim);
    }

    fn inner_claims(&self, suite: Suite, claim: &mut dyn FnMut(Claim<'_>)) {
        if let Some(stable) = &self.content.stable {
            certificate_claims(suite, stable, claim);
        }
    }
}

impl Encode for SignedViewChange {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sender.0.to_le_bytes());
        self.signature.encode(out);
        out.extend_from_slice(&self.body);
    }
}

impl Decode for SignedViewChange {
    /// Takes all that is left: it stands alone or is an item of a list.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let sender = ReplicaId(input.u16("sender")?);
        let signature = SignatureBytes::decode(input)?;
        let body = input.take_rest();
        let content = ViewChange::from_bytes(&body, input.suite())?;
        Ok(Self { sender, content, body, signature })
    }
}

impl SignedNewView {
    /// Signs a new view over `view_changes`.
    #[must_use]
    pub fn new(
        sender: ReplicaId,
        view: View,
        view_changes: Vec<Arc<SignedViewChange>>,
        signer: &Signer,
        suite: Suite,
    ) -> Self {
        let mut body = Vec::new();
        list::encode(&mut body, view_changes.len(), |i, out| view_changes[i].encode(out));
        let body = Bytes::from(body);
        let signature = signer.sign(&Self::key(sender, view, &body, suite).to_array());
        Self { sender, view, view_changes, body, signature }
    }

    fn key(sender: ReplicaId, view: View, body: &Bytes, suite: Suite) -> Key {
        let digest = tercio_crypto::hash(suite, &[body]);
        Key::of_replica(NEW_VIEW, sender, view.0, 0, digest)
    }

    fn from_body(
        sender: ReplicaId,
        view: View,
        body: &Bytes,
        signature: SignatureBytes,
        suite: Suite,
    ) -> Result<Self, DecodeError> {
        let mut input = Reader::new(body.clone(), suite);
        let list = list::List::decode(&mut input, MAX_REPLICAS, "view changes")?;
        input.finish()?;
        let view_changes = list
            .iter()
            .map(|item| SignedViewChange::from_bytes(&item, suite).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { sender, view, view_changes, body: body.clone(), signature })
    }
}

impl Encode for SignedNewView {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sender.0.to_le_bytes());
        out.extend_from_slice(&self.view.0.to_le_bytes());
        self.signature.encode(out);
        out.extend_from_slice(&self.body);
    }
}

impl Decode for SignedNewView {
    /// Takes all that is left.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let sender = ReplicaId(input.u16("sender")?);
        let view = View(input.u64("view")?);
        let signature = SignatureBytes::decode(input)?;
        let suite = input.suite();
        Self::from_body(sender, view, &input.take_rest(), signature, suite)
    }
}

/// A new view forwarded by a replica that is not its primary travels whole, under the carrier's
/// MAC, with the primary's signature inside.
fn carried_key(sender: ReplicaId, body: &Bytes, kind: Kind, suite: Suite) -> Key {
    Key::of_replica(kind, sender, 0, 0, tercio_crypto::hash(suite, &[body]))
}

fn signature_of(frame: &Frame) -> Result<SignatureBytes, DecodeError> {
    match &frame.auth {
        tercio_types::Authenticator::Signature(signature) => Ok(**signature),
        _ => Err(DecodeError::NotCanonical("authenticator: a signature is needed")),
    }
}

fn no_body(frame: &Frame) -> Result<(), DecodeError> {
    if frame.body.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(frame.body.len())) }
}

impl Message for PbftMessage {
    fn from_frame(frame: &Frame, suite: Suite) -> Result<Self, DecodeError> {
        let Key { kind, view, seq, digest, sender, .. } = frame.key;
        let (view, seq, sender) = (View(view), SeqNum(seq), ReplicaId(sender));
        let batch = || -> Result<_, DecodeError> {
            if frame.body.is_empty() {
                return Err(DecodeError::Truncated("batch"));
            }
            Ok(Arc::new(EncodedBatch::from_bytes(frame.body.clone(), digest, suite)?))
        };
        let message = match kind {
            PRE_PREPARE => Self::PrePrepare { view, seq, batch: batch()? },
            PREPARE | COMMIT | FETCH_BODY | LEARN => {
                no_body(frame)?;
                match kind {
                    PREPARE => Self::Prepare { view, seq, digest },
                    COMMIT => Self::Commit { view, seq, digest },
                    FETCH_BODY => Self::FetchBody { seq, digest },
                    _ => Self::Learn { nonce: seq.0 },
                }
            }
            BODY => Self::Body { seq, batch: batch()? },
            Kind::CHECKPOINT => {
                let checkpoint = Checkpoint::from_bytes(&frame.body, suite)?.into();
                Self::Checkpoint { checkpoint, signature: signature_of(frame)?.into() }
            }
            Kind::ATTEST => {
                no_body(frame)?;
                Self::Attest {
                    height: Height(seq.0),
                    block: digest,
                    signature: signature_of(frame)?.into(),
                }
            }
            VIEW_CHANGE => {
                let content = ViewChange::from_bytes(&frame.body, suite)?;
                let (body, signature) = (frame.body.clone(), signature_of(frame)?);
                Self::ViewChange(Arc::new(SignedViewChange { sender, content, body, signature }))
            }
            NEW_VIEW => Self::NewView(Arc::new(SignedNewView::from_bytes(&frame.body, suite)?)),
            STATUS => {
                let mut input = Reader::new(frame.body.clone(), suite);
                let changing = input.flag("status")?;
                let stable = SeqNum(input.u64("status")?);
                let (well, sent) = (input.flag("status")?, Instant(input.u64("status")?));
                let echoes = decode_echoes(&mut input)?;
                input.finish()?;
                let delivered = seq;
                Self::Status(Standing { view, changing, delivered, stable, well, sent, echoes })
            }
            REPORT => {
                let mut input = Reader::new(frame.body.clone(), suite);
                let nonce = input.u64("report")?;
                let said = match input.remaining() {
                    0 => None,
                    _ => Some(Arc::new(CertifiedCheckpoint::decode(&mut input)?)),
                };
                input.finish()?;
                Self::Report(Report { nonce, view, reach: seq, said })
            }
            STABLE => Self::Stable(Arc::new(CertifiedCheckpoint::from_bytes(&frame.body, suite)?)),
            Kind(other) => {
                return Err(DecodeError::Unknown { what: "kind", found: other.into() });
            }
        };
        // One encoding: the key of what was read must be the key that came.
        if message.parts(sender, suite).0 != frame.key {
            return Err(DecodeError::NotCanonical("key"));
        }
        Ok(message)
    }

    /// What others must be shown later is signed.
    fn carries(&self) -> Carries {
        match self {
            Self::Checkpoint { .. } | Self::Attest { .. } | Self::ViewChange(_) => {
                Carries::Signature
            }
            // The signature of a new view's primary travels inside: others may carry it on.
            _ => Carries::Macs,
        }
    }

    fn inner_claims(&self, suite: Suite, claim: &mut dyn FnMut(Claim<'_>)) {
        match self {
            // Backups check clients themselves, whatever the primary says.
            Self::PrePrepare { batch, .. } => {
                batch.batch.packages.iter().for_each(|p| package_claim(p, claim));
            }
            Self::ViewChange(signed) => signed.inner_claims(suite, claim),
            Self::NewView(signed) => {
                let said = SignedNewView::key(signed.sender, signed.view, &signed.body, suite);
                let proof = Proof::Signature(&signed.signature);
                let by = Principal::Replica(signed.sender);
                claim(Claim { by, said: said.to_array(), proof });
                signed.view_changes.iter().for_each(|vc| vc.claims(suite, claim));
            }
            Self::Stable(certificate) | Self::Report(Report { said: Some(certificate), .. }) => {
                certificate_claims(suite, certificate, claim);
            }
            // A body is wanted for its digest alone, which a quorum or a view change vouches for.
            Self::Body { .. }
            | Self::Prepare { .. }
            | Self::Commit { .. }
            | Self::Checkpoint { .. }
            | Self::Attest { .. }
            | Self::Status(_)
            | Self::FetchBody { .. }
            | Self::Learn { .. }
            | Self::Report(_) => {}
        }
    }

    fn parts(&self, sender: ReplicaId, suite: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
        let key = |kind, view: View, seq: SeqNum, digest| {
            Key::of_replica(kind, sender, view.0, seq.0, digest)
        };
        let none = Bytes::new;
        match self {
            Self::PrePrepare { view, seq, batch } => {
                (key(PRE_PREPARE, *view, *seq, batch.digest), batch.bytes.clone(), None)
            }
            Self::Prepare { view, seq, digest } => {
                (key(PREPARE, *view, *seq, *digest), none(), None)
            }
            Self::Commit { view, seq, digest } => (key(COMMIT, *view, *seq, *digest), none(), None),
            Self::FetchBody { seq, digest } => {
                (key(FETCH_BODY, View(0), *seq, *digest), none(), None)
            }
            Self::Body { seq, batch } => {
                (key(BODY, View(0), *seq, batch.digest), batch.bytes.clone(), None)
            }
            Self::Checkpoint { checkpoint, signature } => {
                let key = checkpoint_key(suite, sender, checkpoint);
                (key, checkpoint.to_bytes(), Some(**signature))
            }
            Self::Attest { height, block, signature } => {
                (key(Kind::ATTEST, View(0), SeqNum(height.0), *block), none(), Some(**signature))
            }
            Self::ViewChange(signed) => {
                let key = view_change_key(sender, &signed.content, &signed.body, suite);
                (key, signed.body.clone(), Some(signed.signature))
            }
            Self::NewView(signed) => {
                let body = signed.to_bytes();
                (carried_key(sender, &body, NEW_VIEW, suite), body, None)
            }
            Self::Status(standing) => {
                let mut body = vec![u8::from(standing.changing)];
                body.extend_from_slice(&standing.stable.0.to_le_bytes());
                body.push(standing.well.into());
                body.extend_from_slice(&standing.sent.0.to_le_bytes());
                encode_echoes(&standing.echoes, &mut body);
                let body = Bytes::from(body);
                let digest = tercio_crypto::hash(suite, &[&body]);
                (key(STATUS, standing.view, standing.delivered, digest), body, None)
            }
            Self::Stable(certificate) => {
                let body = certificate.to_bytes();
                (carried_key(sender, &body, STABLE, suite), body, None)
            }
            Self::Learn { nonce } => {
                (key(LEARN, View(0), SeqNum(*nonce), Digest::NULL), none(), None)
            }
            Self::Report(Report { nonce, view, reach, said }) => {
                let mut body = nonce.to_le_bytes().to_vec();
                if let Some(said) = said {
                    said.encode(&mut body);
                }
                let body = Bytes::from(body);
                let digest = tercio_crypto::hash(suite, &[&body]);
                (key(REPORT, *view, *reach, digest), body, None)
            }
        }
    }
}
