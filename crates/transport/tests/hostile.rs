//! Peers that break the rules.

use crate::common;

use bytes::Bytes;
use common::{Node, PATIENCE, Plan, client, drive, frame, plan, replica};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tercio_transport::{
    DialError, Disconnect, Limits, PROTOCOL_VERSION, ProtocolName, Refusal, TransportEvent,
};
use tercio_types::{Principal, ReplicaId};
use tercio_wire::WIRE_VERSION;

fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A hello as the documentation gives it.
fn hello(plan: &Plan, from: Principal, to: Principal) -> Vec<u8> {
    let number = |who| match who {
        Principal::Replica(id) => (0, u64::from(id.0)),
        Principal::Client(id) => (1, id.0),
    };
    let ((role, id), (to_role, to_id)) = (number(from), number(to));
    let mut out = b"TRCO".to_vec();
    out.extend([WIRE_VERSION, PROTOCOL_VERSION, role, to_role]);
    out.extend(plan.epoch.to_le_bytes());
    out.extend(id.to_le_bytes());
    out.extend(to_id.to_le_bytes());
    out.extend([plan.chain; 32]);
    let mut protocol = b"pbft".to_vec();
    protocol.resize(24, 0);
    out.extend(protocol);
    out.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// A hello, and a proof and a Noise message that nobody computed.
fn opening(plan: &Plan, from: Principal, to: Principal) -> Vec<u8> {
    [hello(plan, from, to), vec![0x42; 16 + 48]].concat()
}

/// Connects from another address of this machine.
fn dial_from(from: &str, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    connect(&socket, &to).unwrap();
    socket.into()
}

fn lone_replica(limits: Limits) -> (Plan, Node, SocketAddr) {
    let (plan, mut sockets) = plan(2);
    let node = Node::new(replica(0), &plan, Some(sockets.swap_remove(0).into()), limits);
    let address = plan.addresses[0];
    (plan, node, address)
}

fn rejections(node: &Node) -> Vec<Refusal> {
    let of = |e: &TransportEvent| match e {
        TransportEvent::Rejected { reason, .. } => Some(*reason),
        _ => None,
    };
    node.events.iter().filter_map(of).collect()
}

/// Sends `bytes`, and gives what comes back until the replica ends the connection.
fn exchange(node: &mut Node, address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let before = rejections(node).len();
    let mut stream = dial(address);
    stream.write_all(bytes).unwrap();
    drive(&mut [node], "a rejection", |n| rejections(n[0]).len() > before);
    let mut answer = vec![];
    // A reset instead of an end is an end too.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn hellos_that_do_not_fit_are_refused_with_the_reason() {
    let (plan, mut node, address) = lone_replica(Limits::default());
    let good = opening(&plan, client(1), replica(0));
    let bent = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let ours = plan.membership().chain();
    let mut theirs = ours;
    theirs.0[8] = 9;
    let other_version = Refusal::WrongVersion { wire: 9, protocol: PROTOCOL_VERSION };
    let older = Refusal::WrongVersion { wire: WIRE_VERSION, protocol: 2 };
    let named = "the peer speaks wire 2 and protocol 2, this build 2 and 5";
    assert!(older.to_string().contains(named), "{older}");
    let cases = [
        (bent(4, 9), Some(1), other_version),
        (bent(4, 9)[..6].to_vec(), Some(1), other_version),
        (bent(5, 2), Some(1), older),
        (bent(64, b'q'), Some(11), Refusal::WrongProtocol(ProtocolName::of("qbft"))),
        (bent(88, 3), Some(11), Refusal::WrongProtocol(ProtocolName::of("pbft"))),
        (bent(89, 1), Some(12), Refusal::EpochRecords),
        (bent(95, 1), None, Refusal::Garbage),
        (bent(40, 9), Some(2), Refusal::WrongChain(theirs)),
        (bent(9, 9), Some(3), Refusal::WrongEpoch),
        (bent(16, 77), Some(4), Refusal::UnknownId),
        (bent(6, 5), Some(4), Refusal::UnknownId),
        (opening(&plan, replica(700), replica(0)), Some(4), Refusal::UnknownId),
        (bent(24, 1), Some(5), Refusal::NotForMe),
        (opening(&plan, replica(0), replica(0)), Some(7), Refusal::WrongDirection),
        (good.clone(), Some(8), Refusal::BadProof),
        (opening(&plan, replica(1), replica(0)), Some(8), Refusal::BadProof),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None, Refusal::Garbage),
        (vec![0; 3], None, Refusal::Garbage),
    ];
    for (i, (bytes, status, reason)) in cases.into_iter().enumerate() {
        let mut answer = exchange(&mut node, address, &bytes);
        if reason == Refusal::BadProof {
            let challenge: Vec<u8> = answer.drain(..24).collect();
            assert_eq!(
                challenge[..8],
                [b"TRCO", &[WIRE_VERSION, PROTOCOL_VERSION, 0, 0][..]].concat()
            );
        }
        let expected: Vec<u8> = match status {
            Some(status) => {
                let head = [WIRE_VERSION, PROTOCOL_VERSION, status, 0];
                let behind = match status {
                    2 => &ours.0[..],
                    11 => &ProtocolName::of("pbft").0[..],
                    _ => &[],
                };
                [&b"TRCO"[..], &head, behind].concat()
            }
            None => vec![],
        };
        assert_eq!((answer, rejections(&node).last()), (expected, Some(&reason)), "case {i}");
    }
    assert_eq!(node.connects(), 0);
    assert_eq!((node.counter("wrong_version"), node.counter("bad_proof")), (3, 2));
}

/// Both sides say why: the dialler learns it from the reason byte.
#[test]
fn diallers_learn_why_they_are_refused() {
    let (good, mut node, _address) = lone_replica(Limits::default());
    type Change = fn(&mut Plan);
    let changes: [(Change, [Refusal; 2]); 4] = [
        (
            |p| p.protocol = "sequencer",
            ["pbft", "sequencer"].map(|name| Refusal::WrongProtocol(ProtocolName::of(name))),
        ),
        (|p| p.chain = 2, [Refusal::WrongChain(good.membership().chain()); 2]),
        (|p| p.epoch = 2, [Refusal::WrongEpoch; 2]),
        (|p| p.clients[0].1 = common::secret(client(99)), [Refusal::BadProof; 2]),
    ];
    for (change, [reason, seen]) in changes {
        let mut other = good.clone();
        change(&mut other);
        let settings = tercio_transport::Settings {
            me: client(1),
            secret: other.clients[0].1.clone(),
            membership: other.membership(),
            listen: None,
            limits: Limits::default(),
        };
        let transport = tercio_transport::Transport::bind(settings).unwrap();
        let mut dialler = Node { transport, events: vec![] };
        drive(&mut [&mut node, &mut dialler], "a refusal", |n| !rejections(n[1]).is_empty());
        assert_eq!(rejections(&dialler)[0], reason);
        // Each side names the other's.
        let seen = match seen {
            Refusal::WrongChain(_) => Refusal::WrongChain(other.membership().chain()),
            same => same,
        };
        assert_eq!(rejections(&node).last(), Some(&seen));
        let error = dialler.transport.last_error(ReplicaId(0)).cloned();
        assert_eq!(error, Some(DialError::Refused(good.addresses[0], reason)));
        assert_eq!((node.connects(), dialler.connects()), (0, 0));
    }
}

/// The listener proves itself too: one without the replica's secret is no replica.
#[test]
fn a_listener_without_the_secret_is_not_believed() {
    let (plan, mut sockets) = plan(2);
    let impostor = sockets.swap_remove(0);
    let mut dialler = Node::client(1, &plan);
    let answers: [(Vec<u8>, Refusal); 3] = [
        (
            [
                b"TRCO",
                &[WIRE_VERSION, PROTOCOL_VERSION, 0, 0][..],
                &[0x42; 16],
                b"TRCO",
                &[WIRE_VERSION, PROTOCOL_VERSION, 0, 0],
                &[0x42; 48],
            ]
            .concat(),
            Refusal::BadProof,
        ),
        ([b"TRCO", &[9, 8, 1, 0][..]].concat(), Refusal::WrongVersion { wire: 9, protocol: 8 }),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), Refusal::Garbage),
    ];
    impostor.set_nonblocking(true).unwrap();
    for (i, (answer, reason)) in answers.into_iter().enumerate() {
        let mut held = None;
        drive(&mut [&mut dialler], "a refusal", |n| {
            if held.is_none()
                && let Ok((mut stream, _)) = impostor.accept()
            {
                stream.write_all(&answer).unwrap();
                held = Some(stream);
            }
            rejections(n[0]).len() > i
        });
        assert_eq!(rejections(&dialler)[i], reason);
    }
    assert_eq!(dialler.connects(), 0);
}

#[test]
fn a_handshake_cut_short_or_dragged_out_ends() {
    let with = |handshake_timeout| Limits { handshake_timeout, ..Limits::default() };
    // However slow the machine is, none of these is late.
    let (plan, mut node, address) = lone_replica(with(Duration::from_secs(3600)));
    let good = opening(&plan, client(1), replica(0));
    for len in [0, 1, 5, 63, 64, 95, 96, 111, 159] {
        let broken = node.counter("handshake_broken_off");
        let mut stream = dial(address);
        stream.write_all(&good[..len]).unwrap();
        drop(stream);
        drive(&mut [&mut node], "the end", |n| n[0].counter("handshake_broken_off") > broken);
    }
    let (plan, mut node, address) = lone_replica(with(Duration::from_millis(200)));
    let good = opening(&plan, client(1), replica(0));
    let mut slow = dial(address);
    slow.write_all(&good[..100]).unwrap();
    drive(&mut [&mut node], "the deadline", |n| rejections(n[0]) == [Refusal::TimedOut]);
    let _ = slow.read_to_end(&mut vec![]);
}

/// What a dialler said once convinces nobody a second time.
#[test]
fn a_recorded_handshake_is_no_link() {
    let (mut plan, mut sockets) = plan(1);
    let mut node = Node::replica(0, &plan, sockets.pop().unwrap());
    let real = plan.addresses[0];
    let tap = TcpListener::bind("127.0.0.1:0").unwrap();
    plan.addresses[0] = tap.local_addr().unwrap();
    let recorder = std::thread::spawn(move || {
        let (mut dialler, _) = tap.accept().unwrap();
        let mut replica = dial(real);
        let (mut opening, mut answer, mut confirm) = ([0; 96 + 64], [0; 56], [0; 16]);
        dialler.read_exact(&mut opening[..96]).unwrap();
        replica.write_all(&opening[..96]).unwrap();
        let mut challenge = [0; 24];
        replica.read_exact(&mut challenge).unwrap();
        dialler.write_all(&challenge).unwrap();
        dialler.read_exact(&mut opening[96..]).unwrap();
        replica.write_all(&opening[96..]).unwrap();
        replica.read_exact(&mut answer).unwrap();
        dialler.write_all(&answer).unwrap();
        dialler.read_exact(&mut confirm).unwrap();
        replica.write_all(&confirm).unwrap();
        (opening, confirm, dialler, replica)
    });
    let mut honest = Node::client(1, &plan);
    drive(&mut [&mut node, &mut honest], "the honest link", |n| {
        n.iter().all(|n| n.connects() == 1)
    });
    let (opening, confirm, ..) = recorder.join().unwrap();
    drive(&mut [&mut node], "its end", |n| !n[0].transport.is_connected(client(1)));

    let mut replay = dial(real);
    replay.write_all(&[&opening[..], &confirm, &frame(1, 10)].concat()).unwrap();
    drive(&mut [&mut node], "the rejection", |n| rejections(n[0]) == [Refusal::BadProof]);
    assert_eq!(node.connects(), 1);
    assert!(node.frames_from(client(1)).is_empty(), "nothing behind it was taken");
}

#[test]
fn a_flood_of_half_open_links_gives_way() {
    let limits = Limits { max_half_open: 8, ..Limits::default() };
    let (plan, mut node, address) = lone_replica(limits);
    let flood: Vec<TcpStream> = (0..60).map(|_| dial(address)).collect();
    drive(&mut [&mut node], "evictions", |n| n[0].counter("half_open_evicted") == 52);
    let mut honest = Node::client(1, &plan);
    drive(&mut [&mut node, &mut honest], "an honest link all the same", |n| n[0].connects() == 1);
    drop(flood);
}

#[test]
fn links_of_clients_are_bounded() {
    let limits = Limits { max_clients: 2, ..Limits::default() };
    let (plan, mut node, _) = lone_replica(limits);
    let (mut one, mut two) = (Node::client(1, &plan), Node::client(2, &plan));
    drive(&mut [&mut node, &mut one, &mut two], "two links", |n| n[0].connects() == 2);
    let mut three = Node::client(3, &plan);
    drive(&mut [&mut node, &mut one, &mut two, &mut three], "the bound", |n| {
        rejections(n[3]).first() == Some(&Refusal::TooManyLinks)
    });
    drop(one);
    drive(&mut [&mut node, &mut two, &mut three], "room again", |n| n[2].connects() == 1);
}

/// Whoever holds one key takes one place, and an idle client's place goes to who needs it.
#[test]
fn an_idle_client_gives_way_when_all_places_are_taken() {
    let limits = Limits { max_clients: 2, client_idle: Duration::ZERO, ..Limits::default() };
    let (plan, mut node, _) = lone_replica(limits);
    let (mut one, mut two) = (Node::client(1, &plan), Node::client(2, &plan));
    drive(&mut [&mut node, &mut one], "the first", |n| n[0].connects() == 1);
    drive(&mut [&mut node, &mut two], "the second", |n| n[0].connects() == 2);
    one.transport.send(replica(0), frame(1, 10)).unwrap();
    drive(&mut [&mut node, &mut one], "the first speaks", |n| {
        !n[0].frames_from(client(1)).is_empty()
    });
    let mut three = Node::client(3, &plan);
    drive(&mut [&mut node, &mut three], "a third", |n| {
        n[1].connects() == 1 && n[0].connects() == 3
    });
    let idle = TransportEvent::Disconnected(client(2), Disconnect::Idle);
    assert!(node.events.contains(&idle), "{:?}", node.events);
    assert!(node.transport.is_connected(client(1)) && node.transport.is_connected(client(3)));
    assert_eq!(node.counter("link_idle"), 1);
}

/// Made-up handshakes in the name of client 1, more than an identity is granted at once; how many
/// were counted against it.
fn made_up_handshakes() -> (Plan, Node, u64) {
    let (plan, mut node, address) = lone_replica(Limits::default());
    for _ in 0..1000 {
        let answer = exchange(&mut node, address, &opening(&plan, client(1), replica(0)));
        assert_eq!(answer.len(), 24 + 8, "a challenge and a refusal");
        if node.counter("too_often") > 0 {
            break;
        }
    }
    let counted = node.counter("too_often");
    (plan, node, counted)
}

/// What was recorded of an earlier connection, or made up, is refused before anything is computed on
/// the curve, and costs the identity that it names nothing.
#[test]
fn f58_without_a_proof_nothing_is_computed_and_nobody_pays() {
    let (plan, mut node, counted) = made_up_handshakes();
    assert_eq!((counted, node.counter("bad_proof")), (0, 1000));
    let mut honest = Node::client(1, &plan);
    drive(&mut [&mut node, &mut honest], "the client itself", |n| n[1].connects() == 1);
    assert_eq!((rejections(&honest), node.counter("too_often")), (vec![], 0));
}

#[cfg(feature = "zoo")]
#[test]
fn f58_without_the_defence() {
    use tercio_types::zoo::{Defence, without};
    let (.., counted) = without(Defence::F58ProofFirst, made_up_handshakes);
    assert!(counted > 0, "the client pays for what others made up");
}

/// One admitted key buys a bounded number of handshakes; others have their own.
#[test]
fn who_opens_links_too_often_is_told_to_wait() {
    let (plan, mut node, _) = lone_replica(Limits::default());
    let mut told = false;
    let end = common::now() + PATIENCE;
    while !told {
        assert!(common::now() < end, "never told, and {} links", node.connects());
        let mut again = Node::client(1, &plan);
        drive(&mut [&mut node, &mut again], "an outcome", |n| {
            n[1].connects() == 1 || !rejections(n[1]).is_empty()
        });
        told = rejections(&again) == [Refusal::TooOften];
    }
    assert!(node.connects() >= 64, "a burst is granted: {}", node.connects());
    let mut other = Node::client(2, &plan);
    drive(&mut [&mut node, &mut other], "another", |n| n[1].connects() == 1);
}

/// A flood of connections evicts its own: who comes from another address keeps its place.
#[test]
fn a_flood_from_one_address_evicts_itself() {
    // The members are elsewhere, or their address would be precious.
    let (mut plan, mut sockets) = plan(1);
    let address = plan.addresses[0];
    plan.addresses[0] = "192.0.2.1:1".parse().unwrap();
    let limits = Limits { max_half_open: 8, ..Limits::default() };
    let mut node = Node::new(replica(0), &plan, Some(sockets.swap_remove(0).into()), limits);
    let lone = dial_from("127.0.0.2", address);
    drive(&mut [&mut node], "the lone one", |n| {
        n[0].turn();
        true
    });
    let flood: Vec<TcpStream> = (0..60).map(|_| dial(address)).collect();
    drive(&mut [&mut node], "evictions", |n| n[0].counter("half_open_evicted") == 53);
    // It is still listened to.
    let mut lone = lone;
    lone.write_all(&hello(&plan, client(1), replica(0))).unwrap();
    let mut challenge = [0; 24];
    lone.set_nonblocking(true).unwrap();
    drive(&mut [&mut node], "a challenge", |_| match lone.read(&mut challenge) {
        Ok(n) => {
            assert_eq!(n, 24, "it was evicted");
            true
        }
        Err(_) => false,
    });
    drop(flood);
}

#[test]
fn bytes_that_are_no_frame_end_the_link() {
    let limits = Limits { max_client_frame: 1000, ..Limits::default() };
    let (plan, mut node, _) = lone_replica(limits);
    let mut wrong_version = frame(1, 10).to_vec();
    wrong_version[4] = 77;
    let mut wrong_length = frame(1, 10).to_vec();
    wrong_length[0] ^= 1;
    let mut endless = frame(1, 10).to_vec();
    endless[..4].fill(0xff);
    let cases: [(Bytes, &str); 5] = [
        (wrong_version.into(), "bad_frame_header"),
        (wrong_length.into(), "bad_frame_header"),
        (endless.into(), "bad_frame_header"),
        (Bytes::from_static(&[0; 64]), "bad_frame_header"),
        (frame(1, 2000), "frame_too_long"),
    ];
    let mut peer = Node::client(1, &plan);
    for (i, (bytes, reason)) in cases.into_iter().enumerate() {
        let before = node.counter(reason);
        drive(&mut [&mut node, &mut peer], "a link", |n| {
            n[1].connects() == i + 1 && n[0].transport.is_connected(client(1))
        });
        peer.transport.send(replica(0), frame(i as u64, 20)).unwrap();
        peer.transport.send(replica(0), bytes).unwrap();
        peer.transport.send(replica(0), frame(99, 20)).unwrap();
        drive(&mut [&mut node, &mut peer], reason, |n| n[0].counter(reason) > before);
    }
    let good: Vec<Bytes> = (0..5).map(|i| frame(i, 20)).collect();
    assert_eq!(node.frames_from(client(1)), good, "what came before counts, what came after not");
}
