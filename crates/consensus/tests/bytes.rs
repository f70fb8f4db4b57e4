//! How many bytes a primary can make the others keep. Rule names are those of
//! `docs/protocol/pbft.md`.

mod common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_consensus::{MAX_BATCH, MAX_PACKAGE};
use tercio_types::*;
use tercio_wire::{EncodedBatch, encode_package_content, package_from_content, request_key};

const LONG: Duration = Duration::from_secs(20);

/// A batch of one operation of so many bytes, which `time` tells from others.
fn batch_of(net: &Net, bytes: usize, time: u64) -> Arc<EncodedBatch> {
    let mut content = Vec::new();
    let ops = [bytes::Bytes::from(vec![0; bytes])];
    let (client, first) = (ClientId(0), RequestSeq(1));
    encode_package_content(client, first, OpKind::User, ReplicaId(0), &ops, &mut content);
    let none = Authenticator::Mac(Tag::default());
    let mut package = package_from_content(&content.into(), none, SUITE).unwrap();
    let client = ring(&net.membership, Principal::Client(client));
    package.auth = client.mac_vector(&request_key(&package).to_array());
    let batch = Batch { packages: vec![package], time: Timestamp(time), checkpoint: false };
    Arc::new(EncodedBatch::new(batch, SUITE))
}

/// Proposes a batch to replica `to` at `seq`, as the primary of view 0.
fn propose(net: &mut Net, to: usize, seq: u64, batch: &Arc<EncodedBatch>) {
    let (view, seq) = (View(0), SeqNum(seq));
    net.inject(0, to, &PbftMessage::PrePrepare { view, seq, batch: batch.clone() });
    net.settle();
}

/// W2: a primary cannot make a replica keep any amount of bytes between the watermarks.
#[test]
fn w2_what_is_proposed_is_bounded_in_bytes() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|from, _, _| from != 0);
    let batch = batch_of(&net, 8 << 20, 1);
    (1..=20).for_each(|seq| propose(&mut net, 1, seq, &batch));
    let status = net.status(1);
    assert_eq!(status.slots, 7, "a little less than 64 MiB");
    assert_eq!(status.dropped["too_much_proposed"], 13);
}

/// N2: what would not fit a frame with all that a block has is not accepted, but for one byte less.
#[test]
fn n2_a_batch_is_no_longer_than_a_block_can_be() {
    let of = |bytes| {
        let mut net = Net::with(4, |_| {});
        net.filter = Box::new(|from, _, _| from != 0);
        let batch = batch_of(&net, bytes, 1);
        propose(&mut net, 1, 1, &batch);
        (batch.bytes.len(), net.status(1).slots, format!("{:?}", net.peer(1).evidence))
    };
    let around = of(1 << 20).0 - (1 << 20);
    let (length, slots, evidence) = of(MAX_BATCH - around);
    assert_eq!((length, slots), (MAX_BATCH, 1), "{evidence}");
    let (length, slots, evidence) = of(MAX_BATCH - around + 1);
    assert_eq!((length, slots), (MAX_BATCH + 1, 0));
    assert!(evidence.contains("batch_too_long"), "{evidence}");
}

/// A1: nor is a package that is too long for a batch of its own, whoever hands it on.
#[test]
fn a1_a_package_fits_a_batch() {
    let mut net = Net::with(4, |_| {});
    let package = |bytes| batch_of(&net, bytes, 1).batch.packages[0].clone();
    let [fits, longer] = [MAX_PACKAGE - 4096, MAX_PACKAGE].map(package);
    net.request(1, &longer);
    net.settle();
    assert_eq!(net.status(1).dropped["package_too_long"], 1);
    net.request(0, &fits);
    net.pass(LONG);
    assert!((0..4).all(|i| net.operations(i).len() == 1));
}

/// W2: the room that one primary has used up is not lost to the next.
#[test]
fn w2_a_primary_that_fills_the_room_does_not_stop_the_next() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|from, _, _| from != 0);
    for to in 1..4 {
        // Ever smaller batches, each size until there is no more room for it.
        let (mut bytes, mut refused) = (8 << 20, 0);
        for seq in 1.. {
            let batch = batch_of(&net, bytes, 1 + to as u64);
            propose(&mut net, to, seq, &batch);
            let dropped = net.status(to).dropped.get("too_much_proposed").copied();
            if dropped.is_some_and(|dropped| dropped > refused) {
                (bytes, refused) = (bytes / 2, refused + 1);
            }
            if bytes == 0 {
                break;
            }
        }
    }
    net.stop(0);
    let package = net.package(1, 1, 1, None);
    to_all(&mut net, &package);
    net.pass(LONG);
    for i in 1..4 {
        assert!(net.operations(i).contains(&"op 1 1".into()), "{:?}", net.status(i));
    }
}

/// W2, N2: nothing but what was delivered is kept for a number that is delivered.
#[test]
fn w2_nothing_else_is_kept_where_something_is_delivered() {
    let mut net = Net::with(4, |_| {});
    // Replica 3 gets what the others voted for by asking for it.
    net.filter = Box::new(|_, to, m| to != 3 || !matches!(m, PbftMessage::PrePrepare { .. }));
    for k in 1..=5 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(Duration::from_millis(20));
    }
    assert_eq!((net.status(3).delivered, net.status(3).stable), (SeqNum(5), SeqNum(0)));
    let sent = |net: &mut Net| -> Vec<_> {
        let of = |m: &PbftMessage| match m {
            PbftMessage::Prepare { seq, digest, .. } => Some((*seq, *digest)),
            _ => None,
        };
        net.peer(3).sent.iter().filter_map(of).collect()
    };
    assert!(sent(&mut net).is_empty());
    let (view, seq) = (View(0), SeqNum(1));
    let batch = batch_of(&net, 1, 9);
    net.inject(0, 3, &PbftMessage::PrePrepare { view, seq, batch });
    net.settle();
    assert_eq!(net.status(3).dropped["delivered_otherwise"], 1);
    // What was delivered it votes for: others may need its word.
    let batch = net.peer(0).disk.delivered[0].1.clone().unwrap();
    let digest = batch.digest;
    net.inject(0, 3, &PbftMessage::PrePrepare { view, seq, batch });
    net.settle();
    assert_eq!(sent(&mut net), [(seq, digest)]);
}

/// W2: what nobody accepted goes with the view that it was proposed in.
#[test]
fn w2_what_nobody_accepted_goes_with_its_view() {
    let mut net = Net::with(4, |s| s.proposal_hooks = true);
    (1..4).for_each(|i| net.peer(i).veto = true);
    for k in 1..=3 {
        let package = net.package(0, k, 1, None);
        to_all(&mut net, &package);
        net.pass(Duration::from_millis(1));
    }
    let proposed = net.peer(0).sent.iter().find_map(|m| match m {
        PbftMessage::PrePrepare { seq: SeqNum(3), batch, .. } => Some(batch.digest),
        _ => None,
    });
    let digest = proposed.unwrap();
    for (view, held) in [(View(0), true), (View(1), false)] {
        assert_eq!(net.status(1).view, view);
        net.peer(1).sent.clear();
        net.inject(2, 1, &PbftMessage::FetchBody { seq: SeqNum(3), digest });
        net.settle();
        let given = net.peer(1).sent.iter().any(|m| matches!(m, PbftMessage::Body { .. }));
        assert_eq!(given, held, "{view:?}");
        (1..4).for_each(|i| net.peer(i).veto = false);
        net.pass(LONG);
    }
    assert!((0..4).all(|i| net.operations(i).len() == 3), "no request is lost");
    assert!(net.status(1).delivered < SeqNum(3), "they fitted into fewer batches");
}
