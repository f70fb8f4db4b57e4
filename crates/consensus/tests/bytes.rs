//! How many bytes a primary can make the others keep. Rule names are those of
//! `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_consensus::{MAX_BATCH, MAX_PACKAGE};
use tercio_types::*;
use tercio_wire::{EncodedBatch, encode_package_content, package_from_content, request_key};

const LONG: Duration = Duration::from_secs(20);

/// A package of client 0 with one operation of this many bytes.
fn package_of(net: &Net, bytes: usize, first: u64) -> Package {
    let mut content = Vec::new();
    let ops = [bytes::Bytes::from(vec![0; bytes])];
    let (client, first) = (ClientId(0), RequestSeq(first));
    encode_package_content(client, first, OpKind::User, ReplicaId(0), &ops, &mut content);
    let none = Authenticator::Mac(Tag::default());
    let mut package = package_from_content(&content.into(), none, SUITE).unwrap();
    let client = ring(&net.membership, Principal::Client(client));
    package.auth = client.mac_vector(&request_key(&package).to_array());
    package
}

/// A batch of one such package, which `time` tells from others.
fn batch_of(net: &Net, bytes: usize, time: u64) -> Arc<EncodedBatch> {
    let packages = vec![package_of(net, bytes, 1)];
    let batch = Batch { packages, time: Timestamp(time), checkpoint: false };
    Arc::new(EncodedBatch::new(batch, SUITE))
}

/// Proposes a batch to replica `to` at `seq`, as the primary of view 0.
fn propose(net: &mut Net, to: usize, seq: u64, batch: &Arc<EncodedBatch>) {
    let (view, seq) = (View(0), SeqNum(seq));
    net.inject(0, to, &PbftMessage::PrePrepare { view, seq, batch: batch.clone() });
    net.settle();
}

/// A network with the least room that there can be, in which only bytes bring checkpoints.
fn with_little_room() -> Net {
    Net::with(4, |s| {
        (s.checkpoint_interval, s.window) = (100, 200);
        (s.checkpoint_bytes, s.held_bytes) = (1 << 20, 32 << 20);
        // One client's share of it is what five long packages take.
        s.pool.total_bytes = 128 << 20;
    })
}

/// Proposes to all backups at `seq`.
fn propose_to_all(net: &mut Net, seq: u64, batch: &Arc<EncodedBatch>) {
    (1..4).for_each(|to| propose(net, to, seq, batch));
}

/// W4: a primary cannot make a replica keep any amount of bytes between the watermarks.
#[test]
fn w4_what_is_proposed_is_bounded_in_bytes() {
    let mut net = with_little_room();
    net.filter = Box::new(|_, _, _| false);
    let batch = batch_of(&net, 8 << 20, 1);
    (1..=20).for_each(|seq| propose(&mut net, 1, seq, &batch));
    let status = net.status(1);
    assert_eq!(status.slots, 3, "a little more than 24 MiB");
    assert!(status.batch_bytes <= 32 << 20, "{status:?}");
    assert_eq!(status.dropped["too_much_proposed"], 17);
}

/// W4: nor can it when it has all of that ordered, and nor when the replica is started again. What is
/// held already is voted for; and a checkpoint makes room, which there always is for one.
#[test]
fn w4_what_is_delivered_takes_room_until_it_is_stable() {
    let mut net = with_little_room();
    net.filter = Box::new(|from, _, _| from != 0);
    let batch = batch_of(&net, 8 << 20, 1);
    let around = batch.bytes.len() - (8 << 20);
    let rest = batch_of(&net, (32 << 20) - 3 * batch.bytes.len() - around, 1);
    let refused = |net: &Net| net.status(1).dropped.get("too_much_proposed").copied();
    for restarted in [false, true] {
        (1..=3).for_each(|seq| propose_to_all(&mut net, seq, &batch));
        propose_to_all(&mut net, 4, &rest);
        (5..=7).for_each(|seq| propose_to_all(&mut net, seq, &batch));
        let status = net.status(1);
        assert_eq!((status.delivered, status.stable), (SeqNum(4), SeqNum(0)), "{restarted}");
        assert_eq!(status.batch_bytes, 32 << 20, "to the last byte");
        assert_eq!(refused(&net), Some(3), "{restarted}");
        let disk = net.stop(1);
        net.start(1, disk);
    }
    propose_to_all(&mut net, 3, &batch);
    assert_eq!(refused(&net), None, "it is held");
    let asks = Batch { checkpoint: true, ..Batch::default() };
    propose_to_all(&mut net, 5, &Arc::new(EncodedBatch::new(asks, SUITE)));
    assert_eq!(net.status(1).stable, SeqNum(5));
    assert_eq!(net.status(1).batch_bytes, 0);
    propose_to_all(&mut net, 6, &batch);
    assert_eq!(net.status(1).delivered, SeqNum(6));
}

/// W4, C5: a primary whose view begins with no room for packages asks for a checkpoint, and once.
#[test]
fn w4_a_primary_without_room_asks_for_a_checkpoint() {
    let mut net = with_little_room();
    net.filter = Box::new(|from, _, _| from != 0);
    let batch = batch_of(&net, 8 << 20, 1);
    (1..=3).for_each(|seq| propose_to_all(&mut net, seq, &batch));
    net.stop(0);
    net.filter = Box::new(|from, _, m| {
        from != 2 || !matches!(m, PbftMessage::Checkpoint { .. } | PbftMessage::Stable(_))
    });
    let package = net.package(1, 1, 1, None);
    to_all(&mut net, &package);
    net.pass(Duration::from_millis(800));
    let status = net.status(1);
    assert_eq!((status.view, status.delivered, status.stable), (View(1), SeqNum(4), SeqNum(0)));
    net.filter = Box::new(|_, _, _| true);
    net.pass(LONG);
    for i in 1..4 {
        assert!(net.operations(i).contains(&"op 1 1".into()), "{:?}", net.status(i));
        assert_eq!(net.status(i).view, View(1));
    }
    assert_eq!(net.status(1).stable, SeqNum(6), "C3 covers the package's");
}

/// W4, C5: nor does one that is alone stay without room after a restart.
#[test]
fn w4_one_that_is_alone_finds_room_after_a_restart() {
    let mut net = Net::with(1, |s| (s.checkpoint_bytes, s.held_bytes) = (1 << 20, 32 << 20));
    net.peer(0).execute = false;
    for k in 1..=3 {
        let package = package_of(&net, 6 << 20, k);
        net.request(0, &package);
        net.settle();
    }
    assert_eq!(net.status(0).delivered, SeqNum(3), "18 MiB");
    // All of it was executed, and the checkpoints were lost with the power.
    let disk = net.stop(0);
    net.start(0, disk);
    let package = package_of(&net, 1, 4);
    net.request(0, &package);
    net.pass(LONG);
    assert_eq!(net.operations(0).len(), 4);
}

/// W4: a correct primary leaves half of the room free, and goes on when a checkpoint is stable.
#[test]
fn w4_a_primary_fills_half_of_the_room() {
    let mut net = with_little_room();
    (0..4).for_each(|i| net.peer(i).execute = false);
    let packages: Vec<_> = (1..=5).map(|k| package_of(&net, 6 << 20, k)).collect();
    packages.iter().for_each(|package| assert!(net.request(0, package)));
    net.pass(Duration::from_millis(100));
    assert_eq!(net.status(3).delivered, SeqNum(3), "18 MiB");
    for _ in 0..2 {
        (0..4).for_each(|i| net.execute(i));
        net.settle();
    }
    assert_eq!(net.status(3).delivered, SeqNum(5));
    assert_eq!(net.operations(3).len(), 5);
}

/// W4, S3: one that executes slowly, or not at all, does not keep all that the others order, though
/// it hears every vote; and it takes part again when it is through.
#[test]
fn w4_who_executes_slowly_keeps_no_more() {
    // Each body can be had from the others for a while: every fourth batch brings a checkpoint.
    let mut net = Net::with(4, |s| {
        (s.checkpoint_interval, s.window) = (100, 200);
        (s.checkpoint_bytes, s.held_bytes) = (4 << 20, 40 << 20);
    });
    net.peer(3).execute = false;
    net.serve_blocks = false;
    for k in 1..=80 {
        let package = package_of(&net, 1 << 20, k);
        net.request(0, &package);
        net.pass(Duration::from_millis(20));
        let status = net.status(3);
        assert!(status.batch_bytes <= 42 << 20, "{status:?}");
    }
    assert!(net.status(3).batch_bytes > 30 << 20);
    assert_eq!(net.operations(0).len(), 80);
    assert!(net.status(3).delivered < net.status(0).stable);
    net.execute(3);
    net.peer(3).execute = true;
    let certificate = net.peer(3).catch_up.last().unwrap().clone();
    net.catch_up(3, certificate);
    net.drain(3);
    net.serve_blocks = true;
    net.pass(LONG);
    assert_eq!(net.log(3).len(), net.agree().len());
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

/// A1: nor is a package that is too long for a batch of its own, whoever forwards it.
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

/// W4: the room that one primary has used up is not lost to the next.
#[test]
fn w4_a_primary_that_fills_the_room_does_not_stop_the_next() {
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
