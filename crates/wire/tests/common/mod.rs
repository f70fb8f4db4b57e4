//! Every decoder of the crate behind one interface, for the tests that hold them all to one rule.
#![allow(dead_code, reason = "each test file uses what it needs")]

use bytes::Bytes;
use tercio_types::{
    Attested, AttestedKind, Authenticator, Batch, BlockHeader, CertifiedCheckpoint, Checkpoint,
    ClientId, ClientInfo, Digest, Epoch, Height, OpKind, Package, PublicKey, ReplicaId, RequestSeq,
    Scheme, SeqNum, SignatureBytes, SigningKey, Suite, SystemOp, Tag, Timestamp,
};
use tercio_wire::{
    Decode, DecodeError, Encode, Frame, Key, Kind, Reader, decode_authenticator,
    encode_authenticator, encode_package_content, list, package_from_content, reject::Reject,
};

pub(crate) const SUITE: Suite = Suite::Sha256Ed25519;

/// A counter's certificate, with values as its kind has them.
pub(crate) fn attested(kind: AttestedKind, certificate: SignatureBytes) -> Attested {
    let at = |half: u128| 3 << 64 | half;
    let (value, previous) = match kind {
        AttestedKind::Independent => (at(9), 0),
        AttestedKind::Continuing => (at(9), at(8)),
        AttestedKind::Trusted => (0, 0),
    };
    Attested { kind, counter: 5, incarnation: 7, value, previous, certificate }
}

/// An authenticator in the form in which it stands beside a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Auth(pub(crate) Authenticator);

impl Encode for Auth {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_authenticator(&self.0, out);
    }
}

impl Decode for Auth {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        decode_authenticator(input).map(Self)
    }
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Framed(pub(crate) Frame);

impl Encode for Framed {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for Framed {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Frame::decode(&input.take_rest(), SUITE).map(Self)
    }
}

/// A list of byte strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Items(pub(crate) Vec<Bytes>);

pub(crate) const MAX_ITEMS: usize = 1000;

impl Encode for Items {
    fn encode(&self, out: &mut Vec<u8>) {
        list::encode(out, self.0.len(), |i, out| out.extend_from_slice(&self.0[i]));
    }
}

impl Decode for Items {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        list::List::decode(input, MAX_ITEMS, "items").map(|list| Self(list.iter().collect()))
    }
}

/// What a decoder made of some bytes: the bytes that the value encodes to, or why they are refused.
pub(crate) type Recoder = fn(&Bytes) -> Result<Bytes, DecodeError>;

fn recode<T: Encode + Decode>(bytes: &Bytes) -> Result<Bytes, DecodeError> {
    T::from_bytes(bytes, SUITE).map(|value| value.to_bytes())
}

/// Every decoder of the crate, with its name.
pub(crate) const DECODERS: [(&str, Recoder); 12] = [
    ("reject", recode::<Reject>),
    ("package", recode::<Package>),
    ("batch", recode::<Batch>),
    ("block header", recode::<BlockHeader>),
    ("checkpoint", recode::<Checkpoint>),
    ("certified checkpoint", recode::<CertifiedCheckpoint>),
    ("signature", recode::<SignatureBytes>),
    ("authenticator", recode::<Auth>),
    ("frame", recode::<Framed>),
    ("list", recode::<Items>),
    ("client", recode::<ClientInfo>),
    ("system operation", recode::<SystemOp>),
];

/// A header whose fields all differ.
pub(crate) fn block_header() -> BlockHeader {
    BlockHeader {
        suite: SUITE,
        epoch: Epoch(1),
        height: Height(2),
        seq: SeqNum(3),
        parent: Digest([4; 32]),
        body: Digest([5; 32]),
        time: Timestamp(6),
        ops: 7,
        lag: 8,
        results: Digest([9; 32]),
        state: Digest([10; 32]),
    }
}

/// A checkpoint whose fields all differ.
pub(crate) fn checkpoint() -> Checkpoint {
    Checkpoint {
        seq: SeqNum(1),
        height: Height(2),
        block: Digest([3; 32]),
        results: Digest([4; 32]),
        state: Digest([5; 32]),
        clients: Digest([6; 32]),
        membership: Digest([7; 32]),
        epoch: Epoch(8),
        time: Timestamp(9),
    }
}

/// One encoding for each decoder.
pub(crate) fn samples() -> Vec<(&'static str, Bytes)> {
    let ops = vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")];
    let mut content = Vec::new();
    let (client, first) = (ClientId(7), RequestSeq(300));
    encode_package_content(client, first, OpKind::System, ReplicaId(2), &ops, &mut content);
    let auth = Authenticator::from(vec![Tag([0xaa; 16]), Tag([0xbb; 16])]);
    let package = package_from_content(&content.into(), auth.clone(), SUITE).expect("a package");
    let signature = SignatureBytes::new(&[3; 64]).expect("within the limit");
    let signatures = vec![(ReplicaId(1), signature), (ReplicaId(3), signature)];
    let public = |len: usize| PublicKey::new(&vec![5; len]).expect("within the limit");
    let signing = Some(SigningKey { scheme: Scheme::EcdsaP256, key: public(65) });
    let info = ClientInfo { key: public(32), signing };
    let approvals = signatures.clone();
    let certificate = CertifiedCheckpoint { checkpoint: checkpoint(), signatures };
    let packages = vec![package.clone(), package.clone()];
    let batch = Batch { time: Timestamp(5), checkpoint: true, packages };
    let key = Key::of_replica(Kind(17), ReplicaId(1), 2, 3, Digest([4; 32]));
    let attested = attested(AttestedKind::Continuing, signature);
    let attested = Authenticator::Attested(Box::new(attested));
    let reason = tercio_wire::reject::Reason::MustSign;
    vec![
        ("reject", Reject { reason, retry_after_ms: 77 }.to_bytes()),
        ("package", package.to_bytes()),
        ("batch", batch.to_bytes()),
        ("block header", block_header().to_bytes()),
        ("checkpoint", checkpoint().to_bytes()),
        ("certified checkpoint", certificate.to_bytes()),
        ("signature", signature.to_bytes()),
        ("authenticator", Auth(attested).to_bytes()),
        ("frame", Framed(Frame { key, auth, body: Bytes::new() }).to_bytes()),
        ("list", Items(ops).to_bytes()),
        ("client", info.to_bytes()),
        ("system operation", SystemOp::AddClient { info, approvals }.to_bytes()),
    ]
}
