//! Replicas that lag: how they catch up, and what they keep meanwhile. Rule names are those of
//! `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_consensus::*;
use tercio_types::*;

const LONG: Duration = Duration::from_secs(20);

/// A network of four in which replica 3 slept through a hundred requests, has just woken up, and
/// gets no blocks unless the test serves them.
fn with_a_laggard() -> Net {
    let mut net = Net::with(4, |_| {});
    net.serve_blocks = false;
    let disk = net.stop(3);
    order(&mut net, 1..=100);
    net.pass(LONG);
    net.start(3, disk);
    net
}

/// Has replica 0 order requests of client 0, each in a batch of its own.
fn order(net: &mut Net, numbers: std::ops::RangeInclusive<u64>) {
    for k in numbers {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(Duration::from_millis(4));
    }
}

/// S3: one that missed a stable checkpoint is told to fetch blocks, and goes on from there.
#[test]
fn a_laggard_is_told_to_catch_up() {
    let mut net = with_a_laggard();
    net.pass(Duration::from_secs(2));
    let certificate = net.peer(3).catch_up.last().unwrap().clone();
    assert!(certificate.signatures.len() >= 3);
    let upto = certificate.checkpoint.seq;
    assert_eq!(upto, net.status(0).stable);
    net.catch_up(3, certificate);
    net.drain(3);
    order(&mut net, 101..=110);
    net.pass(LONG);
    assert_eq!(net.log(3).len(), net.agree().len());
}

/// T1, S3: requests that came while blocks were fetched have not waited for the primary.
#[test]
fn one_that_caught_up_gives_the_primary_its_time() {
    let mut net = with_a_laggard();
    net.pass(Duration::from_secs(2));
    let certificate = net.peer(3).catch_up.last().unwrap().clone();
    // Nobody else takes it, so it waits until its time is over.
    let package = net.package(1, 1, 1, Some(&[3]));
    assert!(net.request(3, &package));
    net.pass(Duration::from_secs(2));
    net.catch_up(3, certificate);
    net.pass(Duration::from_millis(400));
    assert_eq!((net.status(3).delivered, net.status(3).pending), (SeqNum(101), 1));
    net.pass(Duration::from_millis(200));
    assert_eq!(net.status(3).pending, 0, "its time began when the blocks were there");
}

/// V1, W3: one that lags, votes in a new view far above what it reached, and then leaves that view
/// as well, says what others can believe.
#[test]
fn one_that_lags_leaves_with_a_sensible_word() {
    let mut net = with_a_laggard();
    // The next batch prepares and does not commit; view 1 proposes it again.
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Commit { .. }));
    let package = net.package(1, 1, 1, None);
    to_all(&mut net, &package);
    net.pass(Duration::from_millis(100));
    net.stop(0);
    net.pass(Duration::from_secs(20));
    let voted = net.peer(3).sent.iter().any(|m| matches!(m, PbftMessage::Prepare { .. }));
    let left = net.peer(3).sent.iter().any(|m| matches!(m, PbftMessage::ViewChange(_)));
    assert!(voted && left);
    assert!(net.peer(1).evidence.is_empty() && net.peer(2).evidence.is_empty());
}

/// W2, W3: one that gets nothing but what views begin with, each of them windows above the one
/// before, keeps one window's numbers and its votes for them, and so when it is started again.
#[test]
fn w3_a_laggard_keeps_one_window_through_many_views() {
    let mut net = Net::with(4, |s| (s.pipeline, s.batch_ops) = (32, 1));
    net.serve_blocks = false;
    let window = net.settings.window as usize;
    let begins = |m: &PbftMessage| matches!(m, PbftMessage::NewView(_) | PbftMessage::Body { .. });
    let (mut windows, mut next) = (0, 1);
    while windows < 5 {
        net.filter = Box::new(move |_, to, m| to != 3 || begins(m));
        for _ in 0..2 * window {
            let package = net.package(0, next, 1, None);
            (0..3).for_each(|i| _ = net.request(i, &package));
            net.pass(Duration::from_millis(2));
            next += 1;
        }
        net.pass(LONG);
        // What comes now prepares and does not commit; the next view proposes it again.
        net.filter = Box::new(move |_, to, m| match m {
            PbftMessage::Commit { .. } => false,
            _ => to != 3 || begins(m),
        });
        for _ in 0..window / 2 {
            let package = net.package(0, next, 1, None);
            (0..3).for_each(|i| _ = net.request(i, &package));
            next += 1;
        }
        let before = net.status(3).view_changes;
        while net.status(3).view_changes == before {
            net.pass(Duration::from_millis(50));
        }
        net.settle();
        let disk = net.peer(3).disk.clone();
        for restarted in [false, true] {
            if restarted {
                net.stop(3);
                net.start(3, disk.clone());
            }
            let status = net.status(3);
            assert_eq!(status.delivered, SeqNum(0));
            assert_eq!(status.stable, net.status(0).stable, "restarted: {restarted}");
            assert!(status.slots <= window && status.votes <= 2 * window, "{status:?}");
            assert!(status.slots >= window / 2, "it takes part in the view: {status:?}");
        }
        windows += 1;
    }
    // And it comes home.
    net.serve_blocks = true;
    net.filter = Box::new(|_, _, _| true);
    net.pass(LONG);
    assert_eq!(net.log(3).len(), net.agree().len());
}

/// A NEW-VIEW for view 1 of VIEW-CHANGEs that know no certificate and bind nobody.
fn empty_view(net: &Net) -> PbftMessage {
    new_view(net, 1, 1, (0..3).map(|from| view_change(net, from, 1)).collect())
}

/// Tells replica 3 of the certificate that the others have.
fn tell(net: &mut Net) -> Arc<CertifiedCheckpoint> {
    let certificate = Arc::new(net.peer(0).disk.stable.clone().unwrap());
    net.inject(0, 3, &PbftMessage::Stable(certificate.clone()));
    certificate
}

/// W3, P2: where the window went is known after a restart, though the view that was entered then
/// does not tell: nothing is promised twice below.
#[test]
fn w3_a_skipped_window_is_known_after_a_restart() {
    let mut net = with_a_laggard();
    net.queue.clear();
    net.filter = Box::new(|_, _, _| false);
    let known = tell(&mut net).checkpoint.seq;
    let begin = empty_view(&net);
    net.inject(1, 3, &begin);
    net.settle();
    for _ in 0..2 {
        let status = net.status(3);
        assert_eq!((status.view, status.stable, status.delivered), (View(1), known, SeqNum(0)));
        let disk = net.stop(3);
        net.start(3, disk);
    }
    // A faulty primary begins the view from the first number.
    let batch = net.peer(0).disk.delivered[0].1.clone().unwrap();
    for seq in [SeqNum(1), known, known.next()] {
        let batch = batch.clone();
        net.inject(1, 3, &PbftMessage::PrePrepare { view: View(1), seq, batch });
    }
    net.settle();
    let voted = net.peer(3).sent.iter().filter_map(|m| match m {
        PbftMessage::Prepare { seq, .. } => Some(*seq),
        _ => None,
    });
    assert_eq!(voted.collect::<Vec<_>>(), [known.next()]);
    // When the others leave, so does it, and what it says begins there.
    for from in [1, 2] {
        let left = PbftMessage::ViewChange(view_change(&net, from, 2));
        net.inject(from, 3, &left);
    }
    net.settle();
    let left = net.peer(3).sent.iter().find_map(|m| match m {
        PbftMessage::ViewChange(vc) => vc.content.stable.clone(),
        _ => None,
    });
    assert_eq!(left.map(|stable| stable.checkpoint.seq), Some(known));
}

/// W3, P2: a certificate that only the log's NEW-VIEW shows moves the window at the start as well.
#[test]
fn w3_a_window_follows_the_view_after_a_restart() {
    let mut net = Net::with(4, |_| {});
    order(&mut net, 1..=40);
    net.pass(LONG);
    let stable = net.status(3).stable;
    net.stop(0);
    let package = net.package(1, 1, 1, None);
    to_all(&mut net, &package);
    net.pass(LONG);
    assert!(net.status(3).view_changes > 0);
    net.filter = Box::new(|_, _, _| false);
    net.serve_blocks = false;
    let mut disk = net.stop(3);
    disk.stable = None;
    // Nor does the record of a stable checkpoint.
    const STATE: u8 = 8;
    disk.records.retain(|record| record[0] != STATE);
    disk.delivered.truncate(10);
    net.start(3, disk);
    let status = net.status(3);
    assert_eq!((status.delivered, status.stable), (SeqNum(10), stable));
}

/// P5: the record of a stable checkpoint forgets what is below, so it says on what it stands: a disk
/// whose certificate is gone is no lost memory.
#[test]
fn p5_a_state_record_carries_its_certificate() {
    let mut net = Net::with(4, |_| {});
    order(&mut net, 1..=20);
    net.pass(LONG);
    let before = net.status(3);
    assert!(before.stable >= SeqNum(16));
    net.filter = Box::new(|_, _, _| false);
    net.serve_blocks = false;
    let mut disk = net.stop(3);
    disk.stable = None;
    disk.delivered.truncate(10);
    net.start(3, disk);
    assert_eq!(net.status(3).stable, before.stable);
    // A faulty primary begins from the first number.
    let batch = net.peer(1).disk.delivered[1].1.clone().unwrap();
    net.inject(0, 3, &PbftMessage::PrePrepare { view: View(0), seq: SeqNum(1), batch });
    net.settle();
    let votes = |m: &PbftMessage| matches!(m, PbftMessage::Prepare { seq: SeqNum(1), .. });
    assert!(!net.peer(3).sent.iter().any(votes));
}

/// W3, S3: blocks that were asked for before the window moved on are not the last.
#[test]
fn w3_who_skips_while_it_fetches_asks_for_the_rest() {
    let mut net = with_a_laggard();
    net.queue.clear();
    let first = tell(&mut net);
    net.settle();
    assert_eq!(net.peer(3).catch_up.len(), 1);
    net.filter = Box::new(|from, to, _| from != 3 && to != 3);
    order(&mut net, 101..=164);
    net.pass(LONG);
    let second = tell(&mut net);
    let begin = empty_view(&net);
    net.inject(1, 3, &begin);
    net.settle();
    assert_eq!(net.status(3).stable, second.checkpoint.seq);
    assert_eq!(net.peer(3).catch_up.len(), 1, "one thing at a time");
    net.catch_up(3, first.clone());
    net.drain(3);
    assert_eq!(net.status(3).delivered, first.checkpoint.seq);
    assert_eq!(net.peer(3).catch_up.last(), Some(&second));
    net.catch_up(3, second.clone());
    net.drain(3);
    assert_eq!(net.status(3).delivered, second.checkpoint.seq);
    assert_eq!(net.peer(3).disk.stable.as_ref(), Some(&*second), "kept when it is reached");
    // When the disk has lost that, what the log says does as well.
    let mut disk = net.stop(3);
    disk.stable = None;
    net.start(3, disk);
    assert_eq!(net.peer(3).disk.stable.as_ref(), Some(&*second));
}

/// W1, W3: who has delivered what the window moves past, and has not executed it, has nothing to
/// fetch, and the checkpoint is kept once it is executed.
#[test]
fn w3_a_checkpoint_is_kept_once_it_is_executed() {
    let mut net = Net::with(4, |_| {});
    net.peer(3).execute = false;
    order(&mut net, 1..=8);
    net.settle();
    assert_eq!((net.status(3).delivered, net.status(3).stable), (SeqNum(8), SeqNum(0)));
    let begin = empty_view(&net);
    net.inject(1, 3, &begin);
    net.settle();
    assert_eq!(net.status(3).stable, SeqNum(8));
    assert_eq!(net.peer(3).disk.stable, None, "it is not executed");
    assert!(net.peer(3).catch_up.is_empty());
    for (seq, batch) in net.peer(3).disk.delivered.clone() {
        let delivery = Delivery { seq, batch, checkpoint: seq == SeqNum(8) };
        let event = net.executed(3, &delivery);
        net.handle(3, event);
    }
    let kept = net.peer(3).disk.stable.as_ref().map(|stable| stable.checkpoint.seq);
    assert_eq!(kept, Some(SeqNum(8)));
    assert!(net.peer(3).evidence.is_empty());
}
