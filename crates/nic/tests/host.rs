//! What comes through verification, what does not, and that each drop is counted by its reason.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{Claim, Instance, Keyring, SecretKey};
use tercio_nic::{Dropped, HostNic, Inbound, Plain};
use tercio_types::{
    Authenticator, ChainId, ClientId, ClientInfo, Epoch, FaultModel, Member, Membership, OpKind,
    Package, Principal, ReplicaId, RequestSeq, SignatureBytes, Suite, Tag,
};
use tercio_wire::{
    DecodeError, Forward, Frame, Key, Kind, Message, encode_package_content, package_from_content,
    request_key,
};

const CLIENT: ClientId = ClientId(3);
const SUITE: Suite = Suite::Sha256Ed25519;

/// A protocol of one message that is its kind.
#[derive(Clone, Debug)]
struct Word(u8);

impl Message for Word {
    fn from_frame(frame: &Frame, _suite: Suite) -> Result<Self, DecodeError> {
        Ok(Self(frame.key.kind.0))
    }

    fn inner_claims(&self, _suite: Suite, _claim: &mut dyn FnMut(Claim<'_>)) {}

    fn parts(&self, sender: ReplicaId, _suite: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
        let digest = tercio_types::Digest([7; 32]);
        (Key::of_replica(Kind(self.0), sender, 0, 0, digest), Bytes::new(), None)
    }
}

fn secret(i: u8) -> SecretKey {
    SecretKey::from_seed([i + 1; 32])
}

fn membership() -> Arc<Membership> {
    let members =
        (0..4).map(|i| Member { key: secret(i).public(), address: String::new() }).collect();
    let clients = BTreeMap::from([(CLIENT, ClientInfo::new(secret(50).public()))]);
    let (chain, model) = (ChainId([1; 32]), FaultModel::Byzantine);
    Arc::new(Membership::new(chain, Epoch(0), SUITE, model, members, clients).unwrap())
}

fn ring(me: Principal, secret: SecretKey) -> Keyring {
    Keyring::new(me, secret, membership(), Instance::default())
}

fn replica(i: u16) -> Principal {
    Principal::Replica(ReplicaId(i))
}

fn nic() -> HostNic {
    HostNic::new(ring(replica(1), secret(1)))
}

/// A package of the client under MACs, and the content that the client sends.
fn package() -> (Package, Bytes) {
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

fn of_replica(message: &impl Message) -> Bytes {
    let from = ring(replica(0), secret(0));
    message.to_frame(ReplicaId(0), SUITE, |said| from.mac_vector(said)).to_bytes()
}

#[test]
fn what_is_good_comes_through_as_what_it_is() {
    let mut nic = nic();
    let (package, content) = package();
    let frame = Frame { key: request_key(&package), auth: package.auth.clone(), body: content };
    let client = Principal::Client(CLIENT);
    let Ok(Inbound::Request(request)) = nic.receive::<Word>(client, &frame.to_bytes()) else {
        panic!("a request");
    };
    assert_eq!(request.message.0, package);
    let forward = of_replica(&Forward(package));
    let Ok(Inbound::Forward(forward)) = nic.receive::<Word>(replica(0), &forward) else {
        panic!("a forwarded request");
    };
    assert!(forward.doubts().is_empty());
    let word = of_replica(&Word(20));
    let Ok(Inbound::Protocol(word)) = nic.receive::<Word>(replica(0), &word) else {
        panic!("a message of the protocol");
    };
    assert_eq!((word.message.0, word.sender()), (20, replica(0)));
    for kind in [Kind::FETCH_BLOCKS, Kind::BLOCKS] {
        let plain = of_replica(&Plain { kind, seq: 4, body: Bytes::from_static(b"body") });
        let message = match nic.receive::<Word>(replica(0), &plain) {
            Ok(Inbound::FetchBlocks(m)) if kind == Kind::FETCH_BLOCKS => m,
            Ok(Inbound::Blocks(m)) if kind == Kind::BLOCKS => m,
            other => panic!("{other:?}"),
        };
        assert_eq!((message.message.seq, &message.message.body[..]), (4, &b"body"[..]));
    }
    assert!(nic.dropped().is_empty());
}

/// The sender vouches for a client's tag that is no good for us: the message comes through, in
/// doubt. A signature that is no good does not.
#[test]
fn a_clients_bad_tag_inside_is_a_doubt_and_a_bad_signature_is_not() {
    let mut nic = nic();
    let (mut package, _) = package();
    package.auth = vec![Tag::default(); 4].into();
    let Ok(Inbound::Forward(forward)) =
        nic.receive::<Word>(replica(0), &of_replica(&Forward(package.clone())))
    else {
        panic!("a forwarded request");
    };
    assert_eq!(forward.doubts(), [CLIENT]);
    package.auth = SignatureBytes::new(&[0; 64]).unwrap().into();
    let result = nic.receive::<Word>(replica(0), &of_replica(&Forward(package)));
    assert!(matches!(result, Err(Dropped::Reject(_))));
    assert_eq!(*nic.dropped(), BTreeMap::from([("bad_signature", 1)]));
}

#[test]
fn each_drop_is_counted_by_its_reason() {
    let mut nic = nic();
    let word = of_replica(&Word(20));
    let mut expect = |from, bytes: &Bytes, dropped: Dropped| {
        assert_eq!(nic.receive::<Word>(from, bytes).unwrap_err(), dropped);
    };
    expect(replica(2), &word, Dropped::NotThePeer { claimed: replica(0), peer: replica(2) });
    let reply = of_replica(&Word(Kind::REPLY.0));
    let (kind, from) = (Kind::REPLY, replica(0));
    expect(from, &reply, Dropped::WrongKind { kind, from });
    expect(
        replica(0),
        &Bytes::from([&word[..4], &[9], &word[5..]].concat()),
        Dropped::Decode(DecodeError::Version { found: 9, expected: 2 }),
    );
    let counted = [("not_the_peer", 1), ("wrong_kind", 1), ("wrong_version", 1)];
    assert_eq!(*nic.dropped(), BTreeMap::from(counted));
}

/// A waiting request must not hold the receive buffer that it came in.
#[test]
fn a_short_request_is_copied_out_of_its_buffer() {
    let (package, content) = package();
    let frame = Frame { key: request_key(&package), auth: package.auth, body: content };
    let buffer = Bytes::from([&frame.to_bytes()[..], &[0; 100_000]].concat());
    let bytes = buffer.slice(..buffer.len() - 100_000);
    let received = nic().receive::<Word>(Principal::Client(CLIENT), &bytes).unwrap();
    drop(bytes);
    assert!(buffer.is_unique(), "nobody else holds the buffer");
    drop(received);
}
