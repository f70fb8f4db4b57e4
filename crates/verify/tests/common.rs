//! Principals, their keys, and what they send.

use bytes::Bytes;
use std::sync::Arc;
use tercio_crypto::{Claim, Instance, Keyring, SecretKey};
use tercio_types::{
    Authenticator, ChainId, ClientId, ClientInfo, Epoch, FaultModel, Member, Membership, OpKind,
    Package, Principal, ReplicaId, RequestSeq, SignatureBytes, Suite, Tag,
};
use tercio_wire::{
    Carries, DecodeError, Frame, Key, Kind, Message, encode_package_content, package_from_content,
    request_key,
};

/// The first of the clients.
pub(crate) const CLIENT: ClientId = ClientId(3);
pub(crate) const CLIENTS: u8 = 10;
pub(crate) const SUITE: Suite = Suite::Sha256Ed25519;

/// The kind of a message that nobody survives.
pub(crate) const DEADLY: Kind = Kind(47);

/// A protocol of one message that is its kind.
#[derive(Clone, Debug)]
pub(crate) struct Word(pub(crate) u8);

impl Message for Word {
    fn from_frame(frame: &Frame, _suite: Suite) -> Result<Self, DecodeError> {
        assert_ne!(frame.key.kind, DEADLY, "a message that breaks us");
        Ok(Self(frame.key.kind.0))
    }

    fn carries(&self) -> Carries {
        Carries::Macs
    }

    fn inner_claims(&self, _suite: Suite, _claim: &mut dyn FnMut(Claim<'_>)) {}

    fn parts(&self, sender: ReplicaId, _suite: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
        let digest = tercio_types::Digest([7; 32]);
        (Key::of_replica(Kind(self.0), sender, 0, 0, digest), Bytes::new(), None)
    }
}

pub(crate) fn secret(i: u8) -> SecretKey {
    SecretKey::from_seed([i + 1; 32])
}

pub(crate) fn membership() -> Arc<Membership> {
    membership_of(CLIENTS)
}

/// With so many clients.
pub(crate) fn membership_of(clients: u8) -> Arc<Membership> {
    let members =
        (0..4).map(|i| Member { key: secret(i).public(), address: String::new() }).collect();
    let client = |i: u8| (ClientId(3 + u64::from(i)), ClientInfo::new(secret(50 + i).public()));
    let clients = (0..clients).map(client).collect();
    let (chain, model) = (ChainId([1; 32]), FaultModel::Byzantine);
    Arc::new(Membership::new(chain, Epoch(0), SUITE, model, members, clients).unwrap())
}

pub(crate) fn ring(me: Principal, secret: SecretKey) -> Keyring {
    Keyring::new(me, secret, membership(), Instance::default())
}

pub(crate) fn replica(i: u16) -> Principal {
    Principal::Replica(ReplicaId(i))
}

/// A package of the client under MACs, and the content that the client sends.
pub(crate) fn package() -> (Package, Bytes) {
    let (first, kind, replier) = (RequestSeq(1), OpKind::User, ReplicaId(0));
    let ops = [Bytes::from_static(b"operation")];
    let mut content = Vec::new();
    encode_package_content(CLIENT, first, kind, replier, &ops, &mut content);
    let (content, auth) = (Bytes::from(content), Authenticator::Mac(Tag::default()));
    let mut package = package_from_content(&content, auth, SUITE).unwrap();
    let client = ring(Principal::Client(CLIENT), secret(50));
    package.auth = client.mac_vector(&request_key(&package).to_array());
    (package, content)
}

pub(crate) fn of_replica(message: &impl Message) -> Bytes {
    by_replica(&ring(replica(0), secret(0)), message)
}

/// What a replica sends to all.
pub(crate) fn by_replica(from: &Keyring, message: &impl Message) -> Bytes {
    let Principal::Replica(id) = from.me() else { unreachable!() };
    message.to_frame(id, SUITE, |said| from.mac_vector(said)).to_bytes()
}

/// Requests of many clients, each under its signature.
pub(crate) struct Signers(pub(crate) Vec<Keyring>);

impl Signers {
    pub(crate) fn new() -> Self {
        let of = |i: u8| ring(Principal::Client(ClientId(3 + u64::from(i))), secret(50 + i));
        Self((0..CLIENTS).map(of).collect())
    }

    /// The i-th client's request of this number and size.
    pub(crate) fn request(&self, i: usize, first: u64, size: usize) -> (Principal, Bytes) {
        let Principal::Client(client) = self.0[i].me() else { unreachable!() };
        let (first, kind, replier) = (RequestSeq(first), OpKind::User, ReplicaId(0));
        let mut content = Vec::new();
        let ops = [Bytes::from(vec![1; size])];
        encode_package_content(client, first, kind, replier, &ops, &mut content);
        let body = Bytes::from(content);
        let nobodys = Authenticator::Mac(Tag::default());
        let key = request_key(&package_from_content(&body, nobodys, SUITE).unwrap());
        let auth = self.0[i].sign(&key.to_array()).into();
        (self.0[i].me(), Frame { key, auth, body }.to_bytes())
    }

    /// A question, under MACs.
    pub(crate) fn question(&self, i: usize, number: u64) -> (Principal, Bytes) {
        let Principal::Client(client) = self.0[i].me() else { unreachable!() };
        let (body, sender) = (Bytes::from_static(b"?"), tercio_wire::CLIENT_SENDER);
        let digest = tercio_crypto::hash(SUITE, &[&body]);
        let key = Key { kind: Kind::QUERY, flags: 0, sender, view: client.0, seq: number, digest };
        let auth = self.0[i].mac_vector(&key.to_array());
        (self.0[i].me(), Frame { key, auth, body }.to_bytes())
    }
}

/// The signature of a frame, altered.
pub(crate) fn spoilt(bytes: &Bytes) -> Bytes {
    let frame = Frame::decode(bytes, SUITE).unwrap();
    let Authenticator::Signature(signature) = &frame.auth else { panic!("a signed frame") };
    let mut altered = signature.as_slice().to_vec();
    altered[40] ^= 1;
    let auth = SignatureBytes::new(&altered).unwrap().into();
    Frame { auth, ..frame }.to_bytes()
}
