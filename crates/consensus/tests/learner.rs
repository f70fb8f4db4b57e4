//! A replica that lost its log. Rule names are those of `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::{Decided, PbftMessage, Report, agreed_records};
use tercio_consensus::*;
use tercio_types::*;
use tercio_wire::{EncodedBatch, checkpoint_key};

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);
/// That of the test network.
const WINDOW: u64 = 32;

fn lost() -> Disk {
    Disk { lost: true, ..Disk::default() }
}

/// Client 0 asks everybody for one thing after the other.
struct Load {
    next: u64,
}

impl Load {
    fn run(&mut self, net: &mut Net, count: u64) {
        for _ in 0..count {
            let package = net.package(0, self.next, 1, None);
            self.next += 1;
            for i in 0..net.peers.len() {
                if net.peers[i].is_some() {
                    net.request(i, &package);
                }
            }
            net.pass(MOMENT);
        }
    }
}

/// What a learner must not say.
fn binds(message: &PbftMessage) -> bool {
    matches!(
        message,
        PbftMessage::PrePrepare { .. }
            | PbftMessage::Prepare { .. }
            | PbftMessage::Commit { .. }
            | PbftMessage::Checkpoint { .. }
            | PbftMessage::ViewChange(_)
            | PbftMessage::NewView(_)
    )
}

fn promised(net: &mut Net, i: usize) -> Vec<PbftMessage> {
    net.peer(i).sent.iter().filter(|m| binds(m)).cloned().collect()
}

fn floor(net: &Net, i: usize) -> Option<Floor> {
    net.status(i).learning.expect("it is a learner").floor
}

/// L1, L2: without a log and without a quorum's word it follows, and promises nothing; nor does it
/// after a restart.
#[test]
fn l1_l2_a_lost_log_silences() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(2);
    net.start(2, lost());
    // One that reports is too few, and so are two.
    net.filter =
        Box::new(|from, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 2 && from == 3));
    for _ in 0..2 {
        load.run(&mut net, 40);
        net.pass(LONG);
        assert!(promised(&mut net, 2).is_empty());
        assert_eq!(floor(&net, 2), None);
        assert_eq!(net.operations(2), net.operations(0), "it follows");
        let disk = net.stop(2);
        assert!(!disk.records.is_empty(), "that it is a learner is in the log");
        net.start(2, disk);
    }
}

/// L2: a report counts for the question that it answers, so that none from before the loss does.
#[test]
fn l2_old_reports_do_not_count() {
    let mut net = Net::with(4, |_| {});
    net.stop(2);
    net.filter = Box::new(|_, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 2));
    net.start(2, lost());
    for from in [0, 1, 3] {
        let report = Report { nonce: net.now.0 - 1, view: View(0), reach: SeqNum(0), said: None };
        net.inject(from, 2, &PbftMessage::Report(report));
    }
    net.pass(MOMENT);
    let status = net.status(2);
    assert!(status.learning.unwrap().reports.is_empty());
    assert_eq!(status.dropped["stale_report"], 3);
}

/// L3: the floor is one window above what the others have accepted, and their highest view.
#[test]
fn l3_a_quorum_bounds_what_was_promised() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 5);
    net.stop(0);
    load.run(&mut net, 1);
    net.pass(LONG);
    assert_eq!(net.status(1).view, View(1));
    let reached = net.status(1).delivered;
    let learns = net.now;
    net.start(0, lost());
    net.pass(MOMENT);
    assert!(net.now > learns);
    let expected = Floor { seq: SeqNum(reached.0 + WINDOW), view: View(1) };
    assert_eq!(floor(&net, 0), Some(expected));
    assert!(net.status(0).learning.unwrap().to_string().contains("view above 1"));
}

/// L3: a proposal that was accepted and never delivered bounds it too.
#[test]
fn l3_what_was_accepted_counts() {
    let mut net = Net::with(4, |s| s.view_timeout = Duration::from_secs(1000));
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Commit { .. }));
    let mut load = Load { next: 1 };
    load.run(&mut net, 4);
    assert_eq!(net.status(1).delivered, SeqNum(0));
    net.stop(3);
    net.start(3, lost());
    net.pass(MOMENT);
    assert_eq!(floor(&net, 3).unwrap().seq, SeqNum(4 + WINDOW));
}

/// L3: with n = 7 a liar cannot put the floor out of reach.
#[test]
fn l3_a_liar_delays_nothing() {
    let mut net = Net::with(7, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(4);
    net.filter =
        Box::new(|from, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 4 && from == 6));
    net.start(4, lost());
    // The liar is among the first that answer.
    let report =
        Report { nonce: net.now.0, view: View(u64::MAX), reach: SeqNum(u64::MAX), said: None };
    net.inject(6, 4, &PbftMessage::Report(report));
    net.pass(MOMENT);
    let reached = net.status(1).delivered;
    assert_eq!(floor(&net, 4), Some(Floor { seq: SeqNum(reached.0 + WINDOW), view: View(0) }));
}

/// L2: learners do not answer each other: each may have promised what it forgot.
#[test]
fn l2_a_learner_reports_nothing() {
    let mut net = Net::with(7, |_| {});
    Load { next: 1 }.run(&mut net, 3);
    for i in [4, 5] {
        net.stop(i);
        net.start(i, lost());
    }
    net.pass(LONG);
    for (i, other) in [(4, 5), (5, 4)] {
        let learning = net.status(i).learning.unwrap();
        assert!(learning.floor.is_some() && !learning.reports.contains(ReplicaId(other)));
        assert!(net.status(i).dropped["asked_a_learner"] > 0);
    }
}

/// L4: in the view in which it lost its log it promises nothing, whatever is ordered; checkpoints
/// above the floor it signs.
#[test]
fn l4_it_votes_in_no_view_that_it_may_have_voted_in() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(3);
    net.start(3, lost());
    net.pass(MOMENT);
    let floor = floor(&net, 3).unwrap();
    load.run(&mut net, 3 * WINDOW);
    assert_eq!(net.operations(3), net.operations(0), "it follows");
    let above = |m: &PbftMessage| match m {
        PbftMessage::Checkpoint { checkpoint, .. } => checkpoint.seq > floor.seq,
        _ => false,
    };
    let promised = promised(&mut net, 3);
    assert!(!promised.is_empty() && promised.iter().all(above), "{promised:?}");
    assert!(net.status(3).stable >= floor.seq && net.status(3).learning.is_some());
}

/// L4: a view above: it votes at once, although it still says no VIEW-CHANGE.
#[test]
fn l4_it_votes_in_a_later_view() {
    let mut net = Net::with(7, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(5);
    net.start(5, lost());
    net.pass(MOMENT);
    net.stop(0);
    load.run(&mut net, 1);
    net.pass(LONG);
    assert_eq!(net.status(1).view, View(1));
    load.run(&mut net, 2);
    let said = promised(&mut net, 5);
    let later = |m: &PbftMessage| match m {
        PbftMessage::Prepare { view, .. } | PbftMessage::Commit { view, .. } => *view == View(1),
        _ => false,
    };
    assert!(!said.is_empty() && said.iter().all(later), "{said:?}");
    assert!(net.status(5).learning.is_some(), "its VIEW-CHANGE would not tell all yet");
    net.agree();
}

/// L5, L6: once the floor is stable it helps to replace a primary, votes in the new view, and is
/// a replica like any other; with another one down the network could do nothing without it.
#[test]
fn l5_l6_it_takes_part_again() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(3);
    net.start(3, lost());
    load.run(&mut net, 3 * WINDOW);
    net.stop(0);
    load.run(&mut net, 1);
    net.pass(LONG);
    assert_eq!((net.status(3).view, net.status(3).learning), (View(1), None));
    let done = net.operations(1).len() as u64;
    assert_eq!(done, load.next - 1);
    // It is so after a restart too, and answers others that lost their log.
    let disk = net.stop(3);
    net.start(3, disk);
    assert_eq!(net.status(3).learning, None);
    load.run(&mut net, 3);
    assert_eq!(net.operations(3).len() as u64, load.next - 1);
    net.agree();
}

/// L5: before that, it is no help: what it forgot might be what decides the next view.
#[test]
fn l5_it_leaves_no_view_too_early() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(3);
    net.start(3, lost());
    net.pass(MOMENT);
    let primary = net.stop(0);
    load.run(&mut net, 1);
    net.pass(LONG);
    assert!(promised(&mut net, 3).is_empty());
    assert!(net.status(1).changing && net.status(2).changing);
    // The primary is back, and the network goes on.
    net.start(0, primary);
    net.pass(LONG);
    assert_eq!(net.operations(1).len() as u64, load.next - 1);
}

/// L1: the floor outlives restarts.
#[test]
fn l1_the_floor_is_kept() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(1);
    net.start(1, lost());
    net.pass(MOMENT);
    let before = floor(&net, 1).unwrap();
    // Past a stable checkpoint, at which the log's records are replaced by one.
    load.run(&mut net, 12);
    for _ in 0..2 {
        let disk = net.stop(1);
        net.filter = Box::new(|_, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 1));
        net.start(1, disk);
        net.pass(MOMENT);
        assert_eq!(floor(&net, 1), Some(before));
    }
}

/// The disk as it is, of a replica that asks when it starts.
fn copy_of(net: &mut Net, i: usize) -> Disk {
    Disk { asks: true, ..net.peer(i).disk.clone() }
}

/// No report reaches it.
fn deaf(ear: usize) -> Filter {
    Box::new(move |_, to, m| !(matches!(m, PbftMessage::Report(_)) && to == ear))
}

/// L7: one that starts again promises nothing new until a quorum with it knows what it signed.
#[test]
fn l7_one_that_starts_again_asks_first() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    let disk = copy_of(&mut net, 3);
    net.stop(3);
    net.filter =
        Box::new(|from, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 3 && from != 1));
    net.start(3, disk);
    load.run(&mut net, 2 * WINDOW);
    assert!(promised(&mut net, 3).is_empty(), "one has told it, and two must");
    assert_eq!(net.operations(3), net.operations(0), "it follows");
    net.filter =
        Box::new(|from, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 3 && from == 2));
    load.run(&mut net, 20);
    assert_eq!(net.status(3).learning, None);
    let said = promised(&mut net, 3);
    assert!(said.iter().any(|m| matches!(m, PbftMessage::Commit { .. })), "{said:?}");
    assert!(said.iter().any(|m| matches!(m, PbftMessage::Checkpoint { .. })), "{said:?}");
    net.agree();
}

/// L7: what it executed meanwhile it signs when it may: nobody else may be there to make a quorum.
#[test]
fn l7_states_that_had_to_wait_are_signed() {
    let mut net = Net::with(4, |s| s.checkpoint_idle = Duration::from_secs(1000));
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    let disk = copy_of(&mut net, 3);
    net.stop(3);
    net.stop(2);
    net.filter = deaf(3);
    net.start(3, disk);
    load.run(&mut net, 1);
    assert_eq!(net.operations(1).len(), 3, "two are no quorum");
    net.filter = Box::new(|_, _, _| true);
    load.run(&mut net, 7);
    assert_eq!(net.operations(1).len() as u64, load.next - 1);
    assert_eq!(net.status(1).stable, SeqNum(8));
}

/// L7: when the power failed everywhere, all ask and all answer; nobody takes its log for lost. Nor
/// does one that starts while f are down.
#[test]
fn l7_all_may_start_at_once() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    for round in 0..3 {
        load.run(&mut net, 13);
        let disks: Vec<Disk> = (0..4).map(|i| copy_of(&mut net, i)).collect();
        (0..4).for_each(|i| drop(net.stop(i)));
        for (i, disk) in disks.into_iter().enumerate().filter(|(i, _)| *i != round) {
            net.start(i, disk);
        }
        net.pass(LONG);
        load.run(&mut net, 2);
        let up = (round + 1) % 4;
        assert_eq!(net.operations(up).len() as u64, load.next - 1);
        let disk = copy_of(&mut net, up);
        net.start(round, disk);
        net.pass(LONG);
        for i in 0..4 {
            assert_eq!(net.status(i).learning, None, "replica {i} in round {round}");
        }
    }
    net.agree();
}

/// L7, P3: a primary that starts again leaves its view, once it may.
#[test]
fn l7_a_restarted_primary_resigns_when_it_may() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    let disk = copy_of(&mut net, 0);
    net.stop(0);
    net.filter = deaf(0);
    net.start(0, disk);
    net.pass(MOMENT);
    assert!(promised(&mut net, 0).is_empty());
    net.filter = Box::new(|_, _, _| true);
    net.pass(4 * MOMENT);
    assert_eq!((net.status(0).view, net.status(1).view), (View(1), View(1)));
    load.run(&mut net, 2);
    assert_eq!(net.operations(1).len() as u64, load.next - 1);
}

/// L8: one whose log went back learns it from its own signature, before it promises anything; one
/// that knows is enough, and a liar's silence changes nothing.
#[test]
fn l8_a_log_that_went_back_counts_as_lost() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    let old = copy_of(&mut net, 3);
    load.run(&mut net, 15);
    assert_eq!(net.status(3).stable, SeqNum(16));
    // What others know of it outlives the checkpoint and, in their logs, their restarts.
    let disk = copy_of(&mut net, 1);
    net.stop(1);
    net.start(1, disk);
    net.pass(MOMENT);
    net.stop(3);
    // Replica 0 lies: it knows of nothing. Replica 2 is not heard.
    net.filter =
        Box::new(|from, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 3 && from != 1));
    let lies = Report { nonce: net.now.0, view: View(0), reach: SeqNum(0), said: None };
    net.start(3, old);
    net.inject(0, 3, &PbftMessage::Report(lies));
    load.run(&mut net, 40);
    let status = net.status(3);
    assert!(status.learning.is_some(), "{status:?}");
    assert_eq!(status.dropped["own_log_went_back"], 1);
    assert!(promised(&mut net, 3).is_empty());
    // That it is a learner is in its log, and it stays one over another start.
    let disk = copy_of(&mut net, 3);
    net.stop(3);
    net.start(3, disk);
    assert!(net.status(3).learning.is_some());
    // With all reports it takes part again, as after a loss.
    net.filter = Box::new(|_, _, _| true);
    load.run(&mut net, 3 * WINDOW);
    net.stop(0);
    load.run(&mut net, 1);
    net.pass(LONG);
    assert_eq!((net.status(3).view, net.status(3).learning), (View(1), None));
    assert_eq!(net.operations(3).len() as u64, load.next - 1);
}

/// L8: nobody else's signature, and none that the log knows of, says that it went back.
#[test]
fn l8_others_words_prove_nothing() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 10);
    let disk = copy_of(&mut net, 3);
    net.stop(3);
    net.start(3, disk);
    load.run(&mut net, 10);
    let known = net.peer(1).disk.stable.clone().expect("a stable checkpoint");
    let of_others = |by: u16| {
        let mut said = known.clone();
        said.checkpoint.seq = SeqNum(1000);
        said.checkpoint.height = Height(1000);
        let key = checkpoint_key(SUITE, ReplicaId(by), &said.checkpoint).to_array();
        let signature = signer(&net.membership, by.into()).sign(&key);
        said.signatures = vec![(ReplicaId(by), signature)];
        said
    };
    for said in [known.clone(), of_others(1), of_others(2)] {
        let (nonce, said) = (net.now.0, Some(std::sync::Arc::new(said)));
        let report = Report { nonce, view: View(0), reach: SeqNum(0), said };
        net.inject(1, 3, &PbftMessage::Report(report));
        net.settle();
    }
    assert_eq!(net.status(3).learning, None);
    net.agree();
}

/// L8: a view change that it signed and does not know of proves it as well, even when it is late.
#[test]
fn l8_a_forgotten_view_change_proves_it() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    let old = copy_of(&mut net, 3);
    net.stop(0);
    load.run(&mut net, 1);
    net.pass(LONG);
    assert_eq!(net.status(3).view, View(1));
    net.stop(3);
    net.start(3, old);
    net.pass(LONG);
    assert!(net.status(3).learning.is_some());
    assert!(promised(&mut net, 3).iter().all(|m| !matches!(
        m,
        PbftMessage::Prepare { view, .. } | PbftMessage::Commit { view, .. } if *view == View(1)
    )));
}

/// L8: a liar whose word counts may have named any view.
#[test]
fn l8_absurd_reports_harm_nobody() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    load.run(&mut net, 3);
    net.stop(3);
    net.filter =
        Box::new(|from, to, m| !(matches!(m, PbftMessage::Report(_)) && to == 3 && from == 2));
    let (view, reach) = (View(u64::MAX), SeqNum(u64::MAX));
    let report = Report { nonce: net.now.0, view, reach, said: None };
    net.start(3, lost());
    net.inject(2, 3, &PbftMessage::Report(report));
    net.pass(MOMENT);
    assert_eq!(floor(&net, 3), Some(Floor { seq: reach, view }));
    net.stop(0);
    load.run(&mut net, 1);
    net.pass(LONG);
    let new_view = new_view(&net, 1, 1, (0..3).map(|i| view_change(&net, i, 1)).collect());
    net.inject(1, 3, &new_view);
    net.settle();
    assert_eq!((net.status(3).view, net.status(3).learning.is_some()), (View(1), true));
}

/// The disk of a replica that operators gave the chain of `chosen` (decision 0045).
fn rebuilt(chosen: &Disk) -> Disk {
    let low = chosen.stable.as_ref().map_or(SeqNum(0), |stable| stable.checkpoint.seq);
    let reach = chosen.delivered.last().map_or(low, |(seq, _)| *seq);
    let tail =
        (chosen.delivered.iter()).filter(|(seq, _)| *seq > low).filter_map(|(seq, batch)| {
            let EncodedBatch { digest, bytes, .. } = batch.as_deref()?;
            Some(Decided { seq: *seq, digest: *digest, body: bytes.clone() })
        });
    let records = agreed_records(View(1000), reach, tail).into_iter().map(|(_, record)| record);
    Disk { records: records.collect(), asks: true, lost: false, ..chosen.clone() }
}

/// Ten batches, of which replica 2 has all; then four more, and all are stopped.
fn ten_and_four_lost(net: &mut Net, load: &mut Load) -> (Disk, Vec<Arc<EncodedBatch>>) {
    load.run(net, 10);
    let chosen = copy_of(net, 2);
    load.run(net, 4);
    let known = chosen.delivered.len();
    let lost = net.peer(0).disk.delivered[known..].iter().filter_map(|(_, batch)| batch.clone());
    let lost = lost.collect();
    (0..4).for_each(|i| drop(net.stop(i)));
    net.pass(Duration::from_secs(1));
    (chosen, lost)
}

/// L8 after operators agreed on a chain: somebody who was left out shows two others what they signed
/// before they lost their disks. It is no log of theirs that went back.
#[test]
fn l8_words_of_before_an_agreement_prove_nothing() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    let (chosen, _) = ten_and_four_lost(&mut net, &mut load);
    load.next = 11;
    (0..3).for_each(|i| net.start(i, rebuilt(&chosen)));
    for to in [0u16, 1] {
        let mut said = chosen.stable.clone().unwrap();
        said.checkpoint.seq = SeqNum(said.checkpoint.seq.0 + 8);
        said.checkpoint.height = Height(said.checkpoint.height.0 + 8);
        let key = checkpoint_key(SUITE, ReplicaId(to), &said.checkpoint).to_array();
        said.signatures = vec![(ReplicaId(to), signer(&net.membership, to.into()).sign(&key))];
        let (nonce, said) = (net.now.0, Some(Arc::new(said)));
        let report = Report { nonce, view: View(1000), reach: SeqNum(0), said };
        net.inject(3, to.into(), &PbftMessage::Report(report));
    }
    net.settle();
    net.pass(LONG);
    load.run(&mut net, 20);
    net.pass(LONG);
    for i in 0..3 {
        let status = net.status(i);
        assert!(status.learning.is_none() && status.delivered >= SeqNum(30), "{status:?}");
    }
}

/// After operators agreed on a chain, COMMITs that their senders have forgotten decide nothing.
#[test]
fn n4_votes_of_before_an_agreement_decide_nothing() {
    let mut net = Net::with(4, |_| {});
    let mut load = Load { next: 1 };
    let (chosen, lost) = ten_and_four_lost(&mut net, &mut load);
    let (seq, lost) = (SeqNum(11), lost[0].clone());
    (0..4).for_each(|i| net.start(i, rebuilt(&chosen)));
    net.settle();
    for from in 1..4 {
        let commit = PbftMessage::Commit { view: View(0), seq, digest: lost.digest };
        net.inject(from, 0, &commit);
    }
    net.inject(3, 0, &PbftMessage::Body { seq, batch: lost.clone() });
    net.settle();
    load.next = 30;
    load.run(&mut net, 20);
    net.pass(LONG);
    let at = |net: &mut Net, i: usize| {
        let delivered = &net.peer(i).disk.delivered;
        let (_, batch) = delivered.iter().find(|(number, _)| *number == seq).unwrap();
        batch.as_ref().map(|batch| batch.digest)
    };
    let others = at(&mut net, 1);
    assert_ne!(others, Some(lost.digest));
    assert_eq!(at(&mut net, 0), others);
    // It is remembered over a restart.
    assert!(net.status(0).dropped.get("before_agreement").is_some_and(|n| *n == 3));
    let disk = copy_of(&mut net, 0);
    net.stop(0);
    net.start(0, disk);
    net.settle();
    let next = net.status(0).delivered.next();
    let commit = PbftMessage::Commit { view: View(0), seq: next, digest: lost.digest };
    net.inject(1, 0, &commit);
    net.settle();
    assert!(net.status(0).dropped.get("before_agreement").is_some_and(|n| *n == 1));
}
