//! Hostile bytes: each is dropped and counted by its reason, and the network goes on.

use crate::common;
use crate::running;

use bytes::Bytes;
use common::{Asker, CLIENT, Net, membership_of, secret};
use running::{Network, client_secret, number, wait};
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tercio_client::Client;
use tercio_consensus::pbft::PbftMessage;
use tercio_crypto::{Instance, Keyring, SecretKey};
use tercio_replica::{Durability, Layout};
use tercio_sync::FetchBlocks;
use tercio_transport::{Transport, TransportEvent};
use tercio_types::{
    Authenticator, Batch, ChainId, ClientId, Height, Principal, ReplicaId, SeqNum, Suite, Tag, View,
};
use tercio_wire::{
    AUTHENTICATED, CLIENT_SENDER, EncodedBatch, Frame, Key, Kind, Message, package_content,
    request_key,
};

/// Sends one frame to replica 1 and expects it to be dropped for this reason, and nothing else to
/// happen.
fn dropped(reason: &'static str, from: Principal, make: impl FnOnce(&Asker, &Net) -> Bytes) {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 2);
    net.until("all are there", |net| net.agree());
    net.answers.clear();
    let bytes = make(&asker, &net);
    net.send(from, 1, bytes);
    net.settle();
    let found = net.status(1).dropped;
    assert_eq!(found.get(reason), Some(&1), "{reason}: {found:?}");
    assert!(net.answers.is_empty() && net.all_at(2));
    net.order(&asker, 3, 2);
    net.until("it goes on", |net| net.all_at(4));
}

const ME: Principal = Principal::Client(CLIENT);

#[test]
fn garbage() {
    dropped("wrong_version", ME, |_, _| Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n"));
    dropped("truncated", ME, |_, _| Bytes::from_static(b"short"));
    let version = tercio_wire::WIRE_VERSION;
    let head = [9, 0, 0, 0, version, 1, 0, 0, 0, 0, 0, 0];
    dropped("not_canonical", ME, |_, _| Bytes::copy_from_slice(&head));
}

#[test]
fn truncated_and_trailing() {
    dropped("truncated", ME, |asker, _| {
        let bytes = asker.request(3, 0, &[b"op"]);
        bytes.slice(..bytes.len() - 1)
    });
    dropped("trailing", ME, |asker, _| {
        let mut bytes = asker.request(3, 0, &[b"op"]).to_vec();
        bytes.push(0);
        bytes.into()
    });
}

#[test]
fn oversized() {
    dropped("too_long", ME, |_, _| {
        let mut head = vec![0; 12];
        head[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        head[4] = tercio_wire::WIRE_VERSION;
        head.into()
    });
}

#[test]
fn another_version() {
    dropped("wrong_version", ME, |asker, _| {
        let mut bytes = asker.request(3, 0, &[b"op"]).to_vec();
        bytes[4] += 1;
        bytes.into()
    });
}

#[test]
fn a_body_that_is_not_the_signed_one() {
    dropped("wrong_digest", ME, |asker, _| {
        let mut bytes = asker.request(3, 0, &[b"op"]).to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        bytes.into()
    });
}

#[test]
fn a_wrong_signature() {
    dropped("bad_signature", ME, |asker, _| {
        let package = asker.package(3, 0, &[b"op"]);
        let wrong = SecretKey::from_seed([77; 32]).sign(&[0; 112]);
        let (key, body) = (request_key(&package), package_content(&package));
        Frame { key, auth: wrong.into(), body }.to_bytes()
    });
}

#[test]
fn a_wrong_tag() {
    let from = Principal::Replica(ReplicaId(0));
    dropped("bad_mac", from, |_, _| {
        let key = Key::of_replica(Kind(17), ReplicaId(0), 0, 3, tercio_types::Digest([5; 32]));
        Frame { key, auth: vec![Tag::default(); 4].into(), body: Bytes::new() }.to_bytes()
    });
}

/// Good on another chain, worth nothing here.
#[test]
fn another_chain() {
    dropped("bad_signature", ME, |_, _| {
        let other = membership_of(4, ChainId([10; 32]));
        Asker::new(CLIENT, &other).request(3, 0, &[b"op"])
    });
}

#[test]
fn an_unknown_client() {
    let stranger = ClientId(99);
    dropped("unknown_client", Principal::Client(stranger), |_, net| {
        Asker { id: stranger, ..Asker::new(CLIENT, &net.membership) }.request(1, 0, &[b"op"])
    });
}

#[test]
fn one_that_speaks_for_another() {
    dropped("not_the_peer", Principal::Client(ClientId(8)), |asker, _| {
        asker.request(3, 0, &[b"op"])
    });
    dropped("not_the_peer", Principal::Replica(ReplicaId(2)), |asker, _| {
        asker.request(3, 0, &[b"op"])
    });
}

#[test]
fn a_kind_that_is_not_the_senders_to_send() {
    for kind in [Kind(16), Kind::CHECKPOINT, Kind::REPLY, Kind::BLOCKS, Kind::FORWARD, Kind(200)] {
        dropped("wrong_kind", ME, |asker, _| asker.frame(kind, 1, Bytes::new()).to_bytes());
    }
}

#[test]
fn a_request_for_blocks_that_is_none() {
    let (from, to) = (Principal::Replica(ReplicaId(0)), Principal::Replica(ReplicaId(1)));
    dropped("fetch_malformed", from, |_, net| {
        let mut keyring =
            Keyring::new(from, secret(0), net.membership.clone(), Instance::default());
        let body = Bytes::from_static(b"seven..");
        let digest = tercio_crypto::hash(Suite::default(), &[&body]);
        let key = Key::of_replica(Kind::FETCH_BLOCKS, ReplicaId(0), 0, 1, digest);
        let auth = Authenticator::Mac(keyring.tag(to, &key.to_array()).unwrap());
        Frame { key, auth, body }.to_bytes()
    });
}

/// A range from nowhere to nowhere is answered with nothing, and costs nothing.
#[test]
fn absurd_ranges_of_blocks() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 6);
    let (from, to) = (Principal::Replica(ReplicaId(0)), Principal::Replica(ReplicaId(1)));
    let mut keyring = Keyring::new(from, secret(0), net.membership.clone(), Instance::default());
    for (first, last) in [(0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 0), (5, 2), (1, 0)] {
        let request = FetchBlocks { from: Height(first), to: Height(last) };
        let body = request.body();
        let digest = tercio_crypto::hash(Suite::default(), &[&body]);
        let key = Key::of_replica(Kind::FETCH_BLOCKS, ReplicaId(0), 0, first, digest);
        let auth = Authenticator::Mac(keyring.tag(to, &key.to_array()).unwrap());
        net.send(from, 1, Frame { key, auth, body }.to_bytes());
        net.settle();
    }
    assert_eq!(net.status(0).dropped["blocks_not_asked_for"], 5);
    net.order(&asker, 7, 1);
}

/// Frames with their sender and receiver.
type Heard = Arc<Mutex<Vec<(Principal, Principal, Bytes)>>>;

/// Keeps a copy of every frame from now on.
fn record(net: &mut Net) -> Heard {
    let heard = Heard::default();
    let recorded = heard.clone();
    net.tamper = Some(Box::new(move |from, to, bytes| {
        recorded.lock().unwrap().push((from, to, bytes.clone()));
        Some(bytes.clone())
    }));
    heard
}

/// Every frame that was ever sent comes again, to everybody, in any order.
#[test]
fn replays_change_nothing() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    let heard = record(&mut net);
    net.order(&asker, 1, 20);
    net.until("all are there", |net| net.agree());
    net.tamper = None;
    let (before, heard) = (net.status(2).block, heard.lock().unwrap().clone());
    assert!(heard.len() > 500);
    net.wire.extend(heard.iter().rev().cloned());
    net.wire.extend(heard.iter().cloned());
    net.until("all of it is through", |_| true);
    assert!(net.all_at(20) && net.agree());
    assert_eq!(net.status(2).block, before);
    assert!(net.stopped.is_empty());
    net.order(&asker, 21, 3);
    let full = net.replies(CLIENT, 23).into_iter().find(|r| !r.body.is_empty()).unwrap();
    assert_eq!(common::results(&full), [23]);
}

/// Each prefix of each frame, and each frame with a byte changed: no panic, no effect.
#[test]
fn broken_frames_of_every_kind() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    let heard = record(&mut net);
    net.cut.insert(ReplicaId(3));
    net.order(&asker, 1, 30);
    net.cut.clear();
    net.order(&asker, 31, 1);
    net.until("all are there", |net| net.agree());
    net.tamper = None;
    // One of each kind and length.
    let mut frames = heard.lock().unwrap().clone();
    frames.retain(|(_, to, _)| matches!(to, Principal::Replica(_)));
    frames.sort_by_key(|(_, _, bytes)| (bytes[12], bytes.len()));
    frames.dedup_by_key(|(_, _, bytes)| (bytes[12], bytes.len()));
    assert!(frames.len() > 10);
    for (from, to, bytes) in frames {
        let step = bytes.len().div_ceil(150);
        for at in (0..bytes.len()).step_by(step) {
            net.wire.push_back((from, to, bytes.slice(..at)));
            let mut changed = bytes.to_vec();
            changed[at] ^= 1 << (at % 8);
            net.wire.push_back((from, to, changed.into()));
        }
        net.settle();
    }
    assert!(net.stopped.is_empty());
    assert!(net.all_at(31) && net.agree());
    net.order(&asker, 32, 1);
}

/// On the links themselves.
#[test]
fn hostile_links() {
    let net = Network::start(4, Layout::AllInOne, Durability::Memory);
    let mut client = net.client(CLIENT);
    assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), 1);
    let links = || net.replicas[0].as_ref().unwrap().status().links;
    let counted = |reason: &'static str| {
        wait(reason, || links().get(reason).is_some_and(|n| *n > 0));
    };

    // A stranger that speaks something else.
    let mut stream = TcpStream::connect(net.address(0)).unwrap();
    stream.write_all(&[0x5a; 4096]).unwrap();
    counted("garbage");

    // A client of another network, and one that the genesis does not know.
    let mut other = net.genesis.clone();
    other.name = "other".into();
    let visit = |genesis: &tercio_genesis::Genesis, client: ClientId, within: Duration| {
        let settings = tercio_client::Settings {
            connect_timeout: within,
            ..tercio_client::Settings::new(
                client,
                client_secret(client),
                genesis.membership().unwrap(),
            )
        };
        Client::connect(settings).unwrap_err().to_string()
    };
    // How much time is enough is the machine's to say.
    let times = (0..10).map(|doublings| Duration::from_millis(300) * (1 << doublings));
    let mut errors = times.map(|within| visit(&other, CLIENT, within));
    let said = errors.any(|error| error.contains("this client's home is of chain"));
    assert!(said, "not why there is no link");
    counted("wrong_chain");

    // A linked client that sends too long a frame, and one that sends no frame.
    for (reason, bytes) in [("frame_too_long", long_frame()), ("bad_frame_header", no_frame())] {
        let mut transport = Transport::bind(tercio_transport::Settings {
            me: Principal::Client(ClientId(8)),
            secret: client_secret(ClientId(8)),
            membership: net.membership.clone(),
            listen: None,
            limits: Default::default(),
        })
        .unwrap();
        let to = Principal::Replica(ReplicaId(0));
        let mut events = vec![];
        while !transport.is_connected(to) {
            transport.poll(Some(Duration::from_millis(50)), &mut events);
        }
        transport.send(to, bytes).unwrap();
        while !events
            .iter()
            .any(|e| matches!(e, TransportEvent::Disconnected(who, _) if *who == to))
        {
            transport.poll(Some(Duration::from_millis(50)), &mut events);
        }
        counted(reason);
    }
    assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), 2);
}

fn long_frame() -> Bytes {
    let key = Key {
        kind: Kind::REQUEST,
        flags: 0,
        sender: CLIENT_SENDER,
        view: 8,
        seq: 1,
        digest: tercio_types::Digest::NULL,
    };
    let auth = Authenticator::Mac(Tag::default());
    Frame { key, auth, body: vec![0; 2 << 20].into() }.to_bytes()
}

fn no_frame() -> Bytes {
    Bytes::from_static(&[0xff; 64])
}

/// What is far ahead is of no use to a replica, whoever vouches for it: it is dropped before it is
/// verified, so that a replica which is behind has its processor for catching up.
#[test]
fn what_is_far_ahead_is_not_verified() {
    let mut net = Net::new(4);
    let (from, to) = (Principal::Replica(ReplicaId(0)), 1);
    let now = net.now;
    // A proposal that is no batch and votes whose tags are wrong, far above the window; and within
    // it, where that is found out.
    for (number, reason, count) in [(1 << 40, "above_watermark", 3), (1, "bad_mac", 2)] {
        for kind in (0..3).map(|i| Kind(Kind::PROTOCOL + i)) {
            let digest = tercio_crypto::hash(Suite::default(), &[]);
            let key = Key::of_replica(kind, ReplicaId(0), 0, number, digest);
            let auth = Authenticator::Mac(Tag::default());
            let frame = Frame { key, auth, body: Bytes::new() }.to_bytes();
            net.nodes[to].as_mut().unwrap().handle_frame(from, &frame, now);
        }
        let status = net.status(to);
        let all: u64 = [&status.dropped, &status.protocol.dropped]
            .iter()
            .filter_map(|dropped| dropped.get(reason))
            .sum();
        assert_eq!(all, count, "{reason}: {:?} {:?}", status.dropped, status.protocol.dropped);
    }
}

/// Of a proposal that is far ahead no client's signature is checked, as it is of one that is not.
#[test]
fn no_signature_of_what_is_far_ahead_is_checked() {
    for (number, checked) in [(1 << 40, 0), (3, 5)] {
        let mut net = Net::new(4);
        let asker = Asker::new(CLIENT, &net.membership);
        let from = Principal::Replica(ReplicaId(0));
        let keyring = Keyring::new(from, secret(0), net.membership.clone(), Instance::default());
        let packages = (1..=5).map(|first| asker.package(first, 0, &[b"op"])).collect();
        let batch = EncodedBatch::new(Batch { packages, ..Batch::default() }, Suite::default());
        let (view, seq) = (View(0), SeqNum(number));
        let proposal = PbftMessage::PrePrepare { view, seq, batch: Arc::new(batch) };
        let said = |key: &[u8; AUTHENTICATED]| keyring.mac_vector(key);
        let frame = proposal.to_frame(ReplicaId(0), Suite::default(), said).to_bytes();
        net.nodes[1].as_mut().unwrap().handle_frame(from, &frame, net.now);
        net.work(1);
        let status = net.status(1);
        assert_eq!(status.checked.signatures, checked, "{:?}", status.dropped);
        assert_eq!(status.protocol.dropped.contains_key("above_watermark"), checked == 0);
        assert_eq!(status.protocol.slots, usize::from(checked > 0), "that one is of use");
    }
}
