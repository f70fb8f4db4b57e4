//! What one replica says of its promises over views and restarts, and when it counts what others say:
//! replica 3 of four, to which the test speaks for the three others. Rule names are those of
//! `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::sync::Arc;
use tercio_consensus::pbft::{Claimed, PbftMessage, Report, ViewChange};
use tercio_consensus::*;
use tercio_types::*;
use tercio_wire::{EncodedBatch, checkpoint_key};

const ME: usize = 3;

fn alone() -> Net {
    let mut net = Net::with(4, |_| {});
    (0..ME).for_each(|i| drop(net.stop(i)));
    net.queue.clear();
    net
}

fn batch(net: &Net, first: u64, checkpoint: bool) -> Arc<EncodedBatch> {
    let packages = vec![net.signed(0, first, 1)];
    let batch = Batch { packages, checkpoint, ..Batch::default() };
    Arc::new(EncodedBatch::new(batch, SUITE))
}

fn propose(net: &mut Net, view: u64, seq: u64, batch: &Arc<EncodedBatch>) {
    let message =
        PbftMessage::PrePrepare { view: View(view), seq: SeqNum(seq), batch: batch.clone() };
    net.inject(view as usize % 4, ME, &message);
    net.settle();
}

fn prepare(net: &mut Net, view: u64, seq: u64, digest: Digest, from: &[usize]) {
    for &from in from {
        let message = PbftMessage::Prepare { view: View(view), seq: SeqNum(seq), digest };
        net.inject(from, ME, &message);
    }
    net.settle();
}

fn commit(net: &mut Net, view: u64, seq: u64, digest: Digest, from: &[usize]) {
    for &from in from {
        let message = PbftMessage::Commit { view: View(view), seq: SeqNum(seq), digest };
        net.inject(from, ME, &message);
    }
    net.settle();
}

/// Two others leave for `view`, and so does it; what it says.
fn leave(net: &mut Net, view: u64) -> ViewChange {
    for from in [0, 1] {
        let left = PbftMessage::ViewChange(view_change(net, from, view));
        net.inject(from, ME, &left);
    }
    net.settle();
    let said = net.peer(ME).sent.iter().rev().find_map(|m| match m {
        PbftMessage::ViewChange(said) => Some(said.content.clone()),
        _ => None,
    });
    said.filter(|said| said.view == View(view)).expect("it has left")
}

/// The view begins without a word of anybody.
fn begin(net: &mut Net, view: u64) {
    let on = (0..ME).map(|from| view_change(net, from, view)).collect();
    let begin = new_view(net, view as usize % 4, view, on);
    net.inject(view as usize % 4, ME, &begin);
    net.settle();
}

fn restart(net: &mut Net) {
    let disk = net.stop(ME);
    net.start(ME, disk);
    net.settle();
}

fn claim(seq: u64, digest: Digest, view: u64) -> Claimed {
    Claimed { seq: SeqNum(seq), digest, view: View(view) }
}

fn says(net: &mut Net, what: impl Fn(&PbftMessage) -> bool) -> bool {
    net.peer(ME).sent.iter().any(what)
}

fn place(net: &Net) -> (View, bool) {
    (net.status(ME).view, net.status(ME).changing)
}

/// N4: two COMMITs decide nothing, three do.
#[test]
fn n4_commits_below_a_quorum_decide_nothing() {
    let mut net = alone();
    let one = batch(&net, 1, false);
    propose(&mut net, 0, 1, &one);
    prepare(&mut net, 0, 1, one.digest, &[0, 1]);
    commit(&mut net, 0, 1, one.digest, &[0]);
    assert_eq!(net.status(ME).delivered, SeqNum(0));
    commit(&mut net, 0, 1, one.digest, &[1]);
    assert_eq!(net.status(ME).delivered, SeqNum(1));
}

/// P1: its own COMMIT counts when it is durable.
#[test]
fn p1_its_own_commit_counts_once_it_is_durable() {
    let mut net = alone();
    let one = batch(&net, 1, false);
    propose(&mut net, 0, 1, &one);
    commit(&mut net, 0, 1, one.digest, &[0, 1]);
    net.peer(ME).acknowledge = false;
    prepare(&mut net, 0, 1, one.digest, &[0, 1]);
    assert_eq!(net.status(ME).delivered, SeqNum(0));
    let id = net.peer(ME).pending_acks.pop_front().expect("that it prepared");
    net.handle(ME, Event::Persisted(id));
    assert_eq!(net.status(ME).delivered, SeqNum(1));
}

/// V1: P has what prepared in the latest view, Q all that was accepted.
#[test]
fn v1_p_names_the_latest_view() {
    let mut net = alone();
    let [one, other] = [1, 2].map(|first| batch(&net, first, false));
    propose(&mut net, 0, 1, &one);
    prepare(&mut net, 0, 1, one.digest, &[0, 1]);
    let left = leave(&mut net, 1);
    assert_eq!(left.prepared, [claim(1, one.digest, 0)]);
    begin(&mut net, 1);
    propose(&mut net, 1, 1, &other);
    prepare(&mut net, 1, 1, other.digest, &[0, 1]);
    let left = leave(&mut net, 2);
    assert_eq!(left.prepared, [claim(1, other.digest, 1)]);
    let mut accepted = vec![claim(1, one.digest, 0), claim(1, other.digest, 1)];
    accepted.sort();
    assert_eq!(left.preprepared, accepted);
}

/// V1: Q has each digest with the latest view in which it was accepted.
#[test]
fn v1_q_names_the_latest_view_of_a_digest() {
    let mut net = alone();
    let one = batch(&net, 1, false);
    propose(&mut net, 0, 1, &one);
    leave(&mut net, 1);
    begin(&mut net, 1);
    propose(&mut net, 1, 1, &one);
    assert_eq!(leave(&mut net, 2).preprepared, [claim(1, one.digest, 1)]);
}

/// V1: who has left a view says nothing new in it.
#[test]
fn v1_nothing_is_voted_in_a_view_that_was_left() {
    let mut net = alone();
    let one = batch(&net, 1, false);
    propose(&mut net, 0, 1, &one);
    leave(&mut net, 1);
    prepare(&mut net, 0, 1, one.digest, &[0, 1]);
    assert!(!says(&mut net, |m| matches!(m, PbftMessage::Commit { .. })));
}

/// V4: nor anything in the next, before it has begun.
#[test]
fn v4_nothing_is_voted_in_a_view_that_has_not_begun() {
    let mut net = alone();
    leave(&mut net, 1);
    assert_eq!(place(&net), (View(1), true));
    let one = batch(&net, 1, false);
    propose(&mut net, 1, 1, &one);
    assert!(!says(&mut net, |m| matches!(m, PbftMessage::Prepare { .. })));
    begin(&mut net, 1);
    propose(&mut net, 1, 1, &one);
    assert!(says(&mut net, |m| matches!(m, PbftMessage::Prepare { .. })));
}

/// V5: the beginning of an older view moves nobody back.
#[test]
fn v5_an_older_view_is_not_entered_again() {
    let mut net = alone();
    begin(&mut net, 1);
    begin(&mut net, 2);
    begin(&mut net, 1);
    assert_eq!(place(&net), (View(2), false));
    leave(&mut net, 4);
    begin(&mut net, 2);
    assert_eq!(place(&net), (View(4), true));
}

/// P2: that a view was left outlives a restart.
#[test]
fn p2_a_view_that_was_left_is_left() {
    let mut net = alone();
    leave(&mut net, 1);
    restart(&mut net);
    assert_eq!(place(&net), (View(1), true));
}

/// P2: so does that a view was entered.
#[test]
fn p2_a_view_that_was_entered_is_entered() {
    let mut net = alone();
    leave(&mut net, 1);
    begin(&mut net, 1);
    restart(&mut net);
    assert_eq!(place(&net), (View(1), false));
}

/// P2: P and Q are as they were.
#[test]
fn p2_p_and_q_outlive_a_restart() {
    let mut net = alone();
    let one = batch(&net, 1, false);
    propose(&mut net, 0, 1, &one);
    prepare(&mut net, 0, 1, one.digest, &[0, 1]);
    restart(&mut net);
    let left = leave(&mut net, 1);
    let told = [claim(1, one.digest, 0)];
    assert_eq!((&left.prepared[..], &left.preprepared[..]), (&told[..], &told[..]));
}

/// P2: what is said again is said of the view in which it was said.
#[test]
fn p2_votes_are_repeated_in_their_own_view() {
    let mut net = alone();
    let one = batch(&net, 1, false);
    propose(&mut net, 0, 1, &one);
    leave(&mut net, 1);
    begin(&mut net, 1);
    restart(&mut net);
    let in_view =
        |m: &PbftMessage, at| matches!(m, PbftMessage::Prepare { view, .. } if *view == at);
    assert!(says(&mut net, |m| in_view(m, View(0))));
    assert!(!says(&mut net, |m| in_view(m, View(1))));
}

/// What it signed at number 1, which asks for a checkpoint.
fn signed_one(net: &mut Net) -> Checkpoint {
    let one = batch(net, 1, true);
    propose(net, 0, 1, &one);
    prepare(net, 0, 1, one.digest, &[0, 1]);
    commit(net, 0, 1, one.digest, &[0, 1]);
    let signed = net.peer(ME).sent.iter().find_map(|m| match m {
        PbftMessage::Checkpoint { checkpoint, .. } => Some((**checkpoint).clone()),
        _ => None,
    });
    signed.expect("it executed a batch that asks for it")
}

fn sign(net: &mut Net, from: usize, checkpoint: &Checkpoint) {
    let said = checkpoint_key(SUITE, ReplicaId(from as u16), checkpoint).to_array();
    let signature = signer(&net.membership, from).sign(&said).into();
    let checkpoint = checkpoint.clone().into();
    net.inject(from, ME, &PbftMessage::Checkpoint { checkpoint, signature });
    net.settle();
}

/// C2: two equal states are no certificate, three are.
#[test]
fn c2_a_certificate_takes_a_quorum() {
    let mut net = alone();
    let checkpoint = signed_one(&mut net);
    sign(&mut net, 0, &checkpoint);
    assert_eq!(net.status(ME).stable, SeqNum(0));
    sign(&mut net, 1, &checkpoint);
    assert_eq!(net.status(ME).stable, SeqNum(1));
}

/// P2: the record that stands for all promises at a stable checkpoint tells of P.
#[test]
fn p2_p_outlives_a_stable_checkpoint_and_a_restart() {
    let mut net = alone();
    let checkpoint = signed_one(&mut net);
    let two = batch(&net, 2, false);
    propose(&mut net, 0, 2, &two);
    prepare(&mut net, 0, 2, two.digest, &[0, 1]);
    [0, 1].into_iter().for_each(|from| sign(&mut net, from, &checkpoint));
    assert_eq!(net.status(ME).stable, SeqNum(1));
    restart(&mut net);
    assert_eq!(leave(&mut net, 1).prepared, [claim(2, two.digest, 0)]);
}

/// L3: of a quorum's reports the highest counts, not the lowest: the others may lag.
#[test]
fn l3_a_laggards_report_does_not_lower_the_floor() {
    let mut net = alone();
    net.stop(ME);
    net.start(ME, Disk { lost: true, ..Disk::default() });
    let nonce = net.now.0;
    for (from, view, reach) in [(0, 0, 0), (1, 5, 40), (2, 4, 41)] {
        let report = Report { nonce, view: View(view), reach: SeqNum(reach), said: None };
        net.inject(from, ME, &PbftMessage::Report(report));
    }
    net.settle();
    let floor = net.status(ME).learning.expect("it is a learner").floor;
    assert_eq!(floor, Some(Floor { seq: SeqNum(41 + 32), view: View(5) }));
}
