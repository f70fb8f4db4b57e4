//! Clients that are added in order: all replicas serve them from then on, also those that were not
//! there, restarted, or lost their disk.

use crate::common;

use bytes::Bytes;
use common::{Asker, CLIENT, Net, client_secret, counter, pbft, quick, request_frame, secret};
use std::sync::{Arc, Mutex};
use tercio_consensus::pbft::Pbft;
use tercio_crypto::{Instance, Keyring};
use tercio_replica::NodeSettings;
use tercio_types::{ClientId, ClientInfo, Height, OpKind, Principal, ReplicaId, Suite, SystemOp};
use tercio_wire::{Encode, Frame, Kind, OpResult, approval_key, decode_results};

/// The number that the first added client gets: the genesis has 7 and 8.
const NEW: ClientId = ClientId(9);

/// Peers let blocks go as soon as snapshots cover them, so that state is fetched.
fn forgetful(settings: &mut NodeSettings) {
    quick(settings);
    settings.ledger.blocks.retain_bytes = 1;
}

fn net(tune: fn(&mut NodeSettings)) -> Net<Pbft> {
    Net::with(4, Box::new(counter), Box::new(tune), pbft())
}

/// The request of `asker` to add [`NEW`], approved by the operators of `by`.
fn addition(net: &Net<Pbft>, asker: &Asker, first: u64, by: &[u16]) -> Bytes {
    let info = ClientInfo::new(client_secret(NEW).public());
    let approve = |&id: &u16| {
        let (id, key) = (ReplicaId(id), secret(usize::from(id)));
        let me = Principal::Replica(id);
        let ring = Keyring::new(me, key, net.membership.clone(), Instance::default());
        (id, ring.sign(&approval_key(Suite::default(), id, &info).to_array()))
    };
    let approvals = by.iter().map(approve).collect();
    let op = SystemOp::AddClient { info, approvals }.to_bytes();
    request_frame(asker.package_of(OpKind::System, first, 0, &[op]))
}

fn send_all(net: &mut Net<Pbft>, asker: &Asker, frame: &Bytes) {
    for i in 0..4 {
        net.send(Principal::Client(asker.id), i, frame.clone());
    }
}

fn add(net: &mut Net<Pbft>, asker: &Asker, first: u64) {
    let frame = addition(net, asker, first, &[1, 2]);
    send_all(net, asker, &frame);
    net.until("it is answered", |net| net.replies(asker.id, first).len() > 1);
    let full = net.replies(asker.id, first).into_iter().find(|answer| !answer.body.is_empty());
    let results = decode_results(&full.unwrap().body, Suite::default()).unwrap();
    assert_eq!(results, [OpResult::Executed(Bytes::copy_from_slice(&9u64.to_le_bytes()))]);
}

fn knows(net: &Net<Pbft>, i: usize) -> bool {
    let node = net.nodes[i].as_ref().unwrap();
    node.stages().execute.execution().membership().client(NEW).is_some()
}

/// The added client's request under MACs, which all four check and all four answer under theirs.
fn served_by_all(net: &mut Net<Pbft>, number: u64) {
    let new = Asker::new(NEW, &net.membership);
    let frame = new.maced(number, 0, &[b"op"]);
    send_all(net, &new, &frame);
    net.until("all answer", |net| net.replies(NEW, number).len() == 4);
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
}

#[test]
fn an_added_client_is_served_by_all_and_a_stranger_by_none() {
    let mut net = net(quick);
    let (asker, new) = (Asker::new(CLIENT, &net.membership), Asker::new(NEW, &net.membership));
    send_all(&mut net, &new, &new.maced(1, 0, &[b"op"]));
    net.settle();
    assert!((0..4).all(|i| net.status(i).dropped["unknown_client"] == 1));
    // Nor does it count when one operator approves.
    let frame = addition(&net, &asker, 1, &[2]);
    send_all(&mut net, &asker, &frame);
    net.until("it is declined", |net| net.replies(CLIENT, 1).len() == 4);
    assert!((0..4).all(|i| !knows(&net, i)));

    add(&mut net, &asker, 2);
    net.until("all have executed it", |net| (0..4).all(|i| knows(net, i)));
    served_by_all(&mut net, 1);
    // Over a restart from the log, and later from a snapshot.
    for round in 0..2 {
        for i in 0..4 {
            net.stop(i);
            net.start(i);
            assert!(knows(&net, i), "replica {i} in round {round}");
        }
        served_by_all(&mut net, 2 + round);
        net.order(&asker, 3 + 40 * round, 40);
        net.until("all are there", |net| net.agree());
    }
    served_by_all(&mut net, 4);
}

/// One that was away learns of it from certified blocks, or from the state when those are gone.
#[test]
fn a_replica_that_was_away_learns_of_it() {
    for (tune, state) in [(quick as fn(&mut NodeSettings), false), (forgetful, true)] {
        let mut net = net(tune);
        let asker = Asker::new(CLIENT, &net.membership);
        net.stop(3);
        add(&mut net, &asker, 1);
        net.order(&asker, 2, 60);
        net.disks[3] = Default::default();
        net.start(3);
        assert!(!knows(&net, 3));
        net.order(&asker, 62, 1);
        net.until("all are at one head", |net| net.agree());
        assert_eq!(net.status(3).transfer.is_some_and(|t| t.phase == "done"), state);
        assert!(knows(&net, 3));
        served_by_all(&mut net, 1);
    }
}

/// A backup that has not executed the addition yet drops what the new client's first request comes
/// in. It gets it again when it has, without a view change.
#[test]
fn one_that_is_behind_gets_the_first_request_again() {
    let mut net = net(quick);
    let asker = Asker::new(CLIENT, &net.membership);
    // No COMMIT reaches replica 3, so that it executes nothing.
    let held = Arc::new(Mutex::new(true));
    let holds = held.clone();
    net.tamper = Some(Box::new(move |_, to, bytes| {
        let kind = Frame::decode(bytes, Suite::default()).unwrap().key.kind;
        let commit = kind == Kind(Kind::PROTOCOL + 2) && to == Principal::Replica(ReplicaId(3));
        (!(commit && *holds.lock().unwrap())).then(|| bytes.clone())
    }));
    add(&mut net, &asker, 1);
    let new = Asker::new(NEW, &net.membership);
    let frame = new.maced(1, 0, &[b"op"]);
    send_all(&mut net, &new, &frame);
    net.until("the others answer", |net| net.replies(NEW, 1).len() == 3);
    assert_eq!(net.status(3).height, Height(0));
    assert!(net.status(3).dropped["unknown_client"] >= 2, "the request and its PRE-PREPARE");
    *held.lock().unwrap() = false;
    net.until("it is there too", |net| net.agree());
    assert_eq!(net.status(3).protocol.view_changes, 0);
    served_by_all(&mut net, 2);
}
