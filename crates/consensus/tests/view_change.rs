//! View changes, retransmission and restarts. Rule names are those of `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::{PbftMessage, Standing};
use tercio_consensus::*;
use tercio_types::*;
use tercio_wire::checkpoint_key;

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

/// V1 to V4, T1: a silent primary is replaced, and the requests of its time are executed.
#[test]
fn a_crashed_primary_is_replaced() {
    for n in [4, 7, 10] {
        let mut net = Net::with(n, |_| {});
        let package = net.package(0, 1, 1, None);
        to_all(&mut net, &package);
        net.pass(MOMENT);
        net.stop(0);
        let package = net.package(0, 2, 1, None);
        to_all(&mut net, &package);
        net.pass(LONG);
        net.agree();
        assert!((1..n).all(|i| net.operations(i).len() == 2), "n = {n}");
        assert!((1..n).all(|i| net.status(i).view == View(1) && net.status(i).view_changes == 1));
    }
}

/// T3: primaries that fail in a row are each given twice the time, and skipped.
#[test]
fn f_crashed_primaries_in_a_row_are_skipped_with_back_off() {
    let mut net = Net::with(10, |_| {});
    (0..3).for_each(|i| drop(net.stop(i)));
    let start = net.now;
    let package = net.package(0, 1, 1, None);
    to_all(&mut net, &package);
    while net.operations(3).is_empty() && net.now.since(start) < LONG {
        net.pass(MOMENT);
    }
    // The request's time, then once and twice that for the two new primaries that fail.
    let waited = net.now.since(start).as_millis();
    assert!((2000..2300).contains(&waited), "0.5 + 0.5 + 1.0 s, not {waited} ms");
    net.pass(LONG);
    assert!((3..10).all(|i| net.operations(i).len() == 1 && net.status(i).view == View(3)));
}

/// V2: one impatient replica moves nobody (f10), and still learns what is committed.
#[test]
fn one_impatient_replica_moves_nobody() {
    let mut net = Net::with(4, |s| s.view_timeout = Duration::from_secs(1));
    // Replica 3 alone waits for a request that nobody else hears of.
    let secret = net.signed(1, 1, 1);
    assert!(net.request(3, &secret));
    // What it forwards is lost.
    net.queue.clear();
    net.lose_forwards = true;
    let mut waited = 0;
    while !net.status(3).changing {
        net.pass(MOMENT);
        waited += 1;
        assert!(waited < 1000, "it never left");
    }
    net.lose_forwards = false;
    // Clients send again what gets no answer.
    net.request(3, &secret);
    for k in 1..=40 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(MOMENT);
    }
    // Not for so long that the primary lets it in (rule V8).
    net.pass(Duration::from_secs(2));
    assert!((0..3).all(|i| net.status(i).view == View(0)));
    assert_eq!(net.operations(0).len(), 41, "the request that it waited for among them");
    net.agree();
    assert_eq!(net.operations(3).len(), 41, "COMMITs of a view it has left still count");
}

/// V3: what committed anywhere is proposed again at its number (f06).
#[test]
fn a_batch_committed_at_one_replica_survives_the_view_change() {
    let mut net = Net::with(4, |_| {});
    // COMMITs reach replica 1 alone.
    net.filter = Box::new(|_, to, m| to == 1 || !matches!(m, PbftMessage::Commit { .. }));
    let package = net.package(0, 1, 1, None);
    to_all(&mut net, &package);
    net.settle();
    assert_eq!((net.log(1).len(), net.log(2).len()), (1, 0));
    net.stop(0);
    net.filter = Box::new(|_, _, _| true);
    net.pass(LONG);
    assert_eq!(net.log(1)[0], net.log(2)[0]);
    net.agree();
    assert!((1..4).all(|i| net.operations(i).len() == 1));
}

/// V3: numbers that nothing prepared at are filled by null requests, which make no block (f14).
#[test]
fn gaps_are_filled_by_null_requests() {
    let mut net = Net::with(4, |_| {});
    // The proposal for number 2 reaches nobody; number 3 prepares, and nothing commits.
    net.filter = Box::new(|_, _, m| match m {
        PbftMessage::PrePrepare { seq, .. } => *seq != SeqNum(2),
        PbftMessage::Commit { seq, .. } => *seq < SeqNum(2),
        _ => true,
    });
    for k in 1..=3 {
        let package = net.package(0, k, 1, None);
        to_all(&mut net, &package);
        net.pass(Duration::from_millis(5));
    }
    assert_eq!(net.status(1).delivered, SeqNum(1));
    net.stop(0);
    net.filter = Box::new(|_, _, _| true);
    net.pass(LONG);
    let log = net.agree();
    assert_eq!(log[1], None, "number 2 is null");
    let all: BTreeSet<_> = net.operations(1).into_iter().collect();
    assert_eq!(all.len(), 3, "and its request got another number");
}

/// V4: a NEW-VIEW is worth a quorum of distinct VIEW-CHANGEs for its view, or nothing (f08).
#[test]
fn new_views_without_a_quorum_are_refused() {
    let mut net = Net::with(4, |_| {});
    let (a, b, c) = (view_change(&net, 1, 1), view_change(&net, 2, 1), view_change(&net, 3, 1));
    let other = view_change(&net, 3, 5);
    let cases = [
        new_view(&net, 1, 1, vec![a.clone(), b.clone()]),
        new_view(&net, 1, 1, vec![a.clone(), b.clone(), b.clone()]),
        new_view(&net, 1, 1, vec![a.clone(), b.clone(), other]),
        new_view(&net, 2, 1, vec![a.clone(), b.clone(), c.clone()]),
    ];
    for case in &cases {
        net.inject(1, 2, case);
        net.settle();
        assert_eq!(net.status(2).view, View(0), "{case:?}");
    }
    assert_eq!(net.peer(2).evidence.len(), cases.len());
    let good = new_view(&net, 1, 1, vec![a, b, c]);
    // Whoever carries it: the signature inside is the new primary's.
    net.inject(3, 2, &good);
    net.settle();
    assert_eq!((net.status(2).view, net.status(2).changing), (View(1), false));
}

/// V5: the view never goes back (f09), and one replica's absurd view moves nobody (f10).
#[test]
fn old_and_absurd_view_changes_move_nothing() {
    let mut net = Net::with(4, |_| {});
    let absurd = PbftMessage::ViewChange(view_change(&net, 3, u64::MAX / 2));
    net.inject(3, 1, &absurd);
    net.settle();
    assert_eq!((net.status(1).view, net.status(1).changing), (View(0), false));
    let vcs = vec![view_change(&net, 1, 1), view_change(&net, 2, 1), view_change(&net, 3, 1)];
    let begin = new_view(&net, 1, 1, vcs.clone());
    net.inject(1, 2, &begin);
    net.settle();
    assert_eq!(net.status(2).view, View(1));
    for vc in vcs {
        let from = vc.sender.index();
        if from != 2 {
            net.inject(from, 2, &PbftMessage::ViewChange(vc));
        }
    }
    net.inject(1, 2, &begin);
    net.settle();
    assert_eq!((net.status(2).view, net.status(2).changing), (View(1), false));
    assert_eq!(net.status(2).view_changes, 1);
}

/// P2: a restarted replica says again what it said, and votes for nothing else (f03, f05).
#[test]
fn a_restarted_replica_repeats_its_promises() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Commit { .. }));
    let package = net.package(0, 1, 1, None);
    to_all(&mut net, &package);
    net.settle();
    let votes = |net: &mut Net| -> BTreeSet<String> {
        let sent = net.peer(1).sent.iter();
        sent.filter(|m| matches!(m, PbftMessage::Prepare { .. } | PbftMessage::Commit { .. }))
            .map(|m| format!("{m:?}"))
            .collect()
    };
    let before = votes(&mut net);
    assert_eq!(before.len(), 2);
    let disk = net.stop(1);
    net.start(1, disk);
    assert_eq!(votes(&mut net), before);
    // The primary changes its mind; the restarted replica does not.
    let other = net.package(1, 1, 1, None);
    let batch = Batch { packages: vec![other], ..Batch::default() };
    let batch = Arc::new(tercio_wire::EncodedBatch::new(batch, SUITE));
    net.inject(0, 1, &PbftMessage::PrePrepare { view: View(0), seq: SeqNum(1), batch });
    net.settle();
    assert_eq!(votes(&mut net), before);
    assert!(matches!(net.peer(1).evidence[..], [Evidence::Equivocation { .. }]));
}

/// P2: all replicas stop and start again in the middle of everything, and nothing is lost.
#[test]
fn everybody_restarts_in_any_state() {
    let mut net = Net::with(4, |_| {});
    let mut k = 0;
    for round in 0..30u64 {
        for client in 0..3 {
            k += 1;
            let package = net.package(client, round + 1, 1, None);
            to_all(&mut net, &package);
        }
        // Let a different number of messages through each time, then stop all.
        for _ in 0..(round * 7 % 41) {
            if let Some((_, to, bytes)) = net.queue.pop_front() {
                let verified = net.verify(to, &bytes);
                net.handle(to, Event::Message(verified));
            }
        }
        net.queue.clear();
        for i in 0..4 {
            let disk = net.stop(i);
            net.start(i, disk);
        }
        if round % 3 == 0 {
            net.pass(Duration::from_millis(700));
        }
    }
    for round in 0..30u64 {
        for client in 0..3 {
            let package = net.package(client, round + 1, 1, None);
            to_all(&mut net, &package);
        }
    }
    net.pass(Duration::from_secs(60));
    net.agree();
    let all: BTreeSet<_> = net.operations(0).into_iter().collect();
    assert_eq!(all.len(), k, "every request of every round");
}

/// S1, S2: half of all messages lost, and everything arrives in the end.
#[test]
fn loss_is_normal() {
    for n in [4, 7] {
        let mut net = Net::with(n, |_| {});
        let mut x = 7u64;
        net.filter = Box::new(move |_, _, _| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            x >> 63 == 0
        });
        for k in 1..=40 {
            let package = net.package(0, k, 1, None);
            to_all(&mut net, &package);
            net.pass(MOMENT);
        }
        net.pass(Duration::from_secs(60));
        net.agree();
        net.filter = Box::new(|_, _, _| true);
        net.pass(Duration::from_secs(2));
        let longest = net.agree().len();
        assert!((0..n).all(|i| net.log(i).len() == longest), "n = {n}: everybody has all");
        let all: BTreeSet<_> = net.operations(0).into_iter().collect();
        assert_eq!(all.len(), 40, "n = {n}");
    }
}

/// T4: a replica that missed the last COMMITs gets what it lacks though no request waits anywhere.
#[test]
fn an_idle_network_does_not_leave_a_replica_behind() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|from, to, m| {
        let lost = matches!(m, PbftMessage::Commit { view: View(0), .. });
        !(lost && to == 0 && from >= 2)
    });
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.pass(MOMENT);
    assert_eq!((net.log(0).len(), net.log(1).len()), (0, 1));
    net.pass(LONG);
    assert!((0..4).all(|i| net.operations(i).len() == 1));
    assert!((0..4).all(|i| net.status(i).stable == net.status(i).delivered), "and all is covered");
    assert!((0..4).all(|i| net.status(i).view_changes == 1));
}

/// T4: each view has its time, however long what is not covered has been so: otherwise replicas leave
/// it before its primary can do anything about that, for ever.
#[test]
fn t4_begins_anew_with_each_view() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|from, to, m| match m {
        PbftMessage::Commit { view: View(0), .. } => !(to == 0 && from >= 2),
        // The next primary's word on a checkpoint is lost, so that nothing happens in its view.
        PbftMessage::PrePrepare { view: View(1), .. } => false,
        _ => true,
    });
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    let entered = |net: &Net| (0..4).all(|i| net.status(i).view_changes == 1);
    let mut tries = 0;
    while !entered(&net) {
        net.pass(Duration::from_millis(1));
        tries += 1;
        assert!(tries < 60_000, "nobody left the first view");
    }
    net.pass(MOMENT);
    let inside = |i| net.status(i).view == View(1) && !net.status(i).changing;
    assert!((0..4).all(inside), "they stay for a while");
    net.pass(LONG);
    assert!((0..4).all(|i| net.status(i).view == View(2)), "and leave");
    assert!((0..4).all(|i| net.status(i).stable == net.status(i).delivered), "and all is covered");
}

/// T4: CHECKPOINTs that bring nobody nearer to a certificate do not put it off, whether they name
/// another state, or ours once more when it was forgotten for others.
#[test]
fn t4_a_spammer_of_checkpoints_does_not_put_it_off() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Checkpoint { .. }));
    for k in 1..=9 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.settle();
    }
    let ours = net.peer(1).sent.iter().find_map(|m| match m {
        PbftMessage::Checkpoint { checkpoint, .. } => Some((**checkpoint).clone()),
        _ => None,
    });
    let ours = ours.expect("the eighth is signed");
    // The primary is gone, and one of the others lies.
    net.stop(0);
    net.stop(3);
    let signer = signer(&net.membership, 3);
    let say = |net: &mut Net, checkpoint: Checkpoint| {
        let said = checkpoint_key(SUITE, ReplicaId(3), &checkpoint);
        let signature = signer.sign(&said.to_array());
        for to in [1, 2] {
            let (checkpoint, signature) = (checkpoint.clone().into(), signature.into());
            net.inject(3, to, &PbftMessage::Checkpoint { checkpoint, signature });
        }
    };
    let left = |net: &Net| [1, 2].iter().all(|&i| net.status(i).changing);
    for round in 0..60 {
        say(
            &mut net,
            Checkpoint { seq: SeqNum(1 + round % 9), height: Height(round), ..ours.clone() },
        );
        say(&mut net, ours.clone());
        // Room is made for both again.
        for k in 0..20 {
            say(&mut net, Checkpoint { seq: SeqNum(100 + 20 * round + k), ..ours.clone() });
        }
        net.pass(Duration::from_millis(100));
    }
    assert!(left(&net), "they wait for the primary still");
}

/// T1, T2: a primary that passes over one client is replaced, though it serves the others (f18).
#[test]
fn a_censoring_primary_is_replaced() {
    let mut net = Net::with(4, |_| {});
    let victim = net.package(1, 1, 1, None);
    // Only replica 2 hears of it; the primary pretends not to.
    net.request(2, &victim);
    for k in 1..200 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        // What is forwarded to the primary while it leads is lost.
        net.pass_censored(Duration::from_millis(20), ClientId(1));
    }
    net.pass(LONG);
    assert!((0..4).all(|i| net.operations(i).contains(&"op 1 1".into())));
    assert_eq!(net.status(1).view_changes, 1);
}

/// V3: a null request that may have committed keeps its number, also when nothing is above it.
#[test]
fn a_committed_null_request_keeps_its_number() {
    let mut net = Net::with(4, |_| {});
    // In view 0 the proposal for 1 is lost, and 2 prepares at replica 3 alone.
    net.filter = Box::new(|_, to, m| match m {
        PbftMessage::PrePrepare { seq, .. } => *seq != SeqNum(1),
        PbftMessage::Prepare { seq, .. } => *seq == SeqNum(2) && to == 3,
        PbftMessage::Commit { .. } => false,
        _ => true,
    });
    for k in 1..=2 {
        let package = net.package(0, k, 1, None);
        to_all(&mut net, &package);
        net.pass(Duration::from_millis(5));
    }
    // View 1 builds on replica 3's word: null at 1, the batch at 2. Null commits at replica 3
    // alone, and 2 prepares nowhere.
    net.filter = Box::new(|from, to, m| match m {
        PbftMessage::ViewChange(vc) => vc.content.view == View(1) && (from != 0 || to != 1),
        PbftMessage::PrePrepare { view, .. } => *view == View(1),
        PbftMessage::Prepare { view, seq, .. } => *view == View(1) && *seq == SeqNum(1),
        PbftMessage::Commit { view, seq, .. } => *view == View(1) && *seq == SeqNum(1) && to == 3,
        _ => true,
    });
    while net.log(3).is_empty() {
        net.pass(MOMENT);
    }
    assert_eq!(net.log(3), [None]);
    assert!((0..3).all(|i| net.log(i).is_empty()));
    let disk = net.stop(3);
    // View 2 is begun without replica 3, and without what view 1 still had to say.
    net.filter = Box::new(|_, _, m| match m {
        PbftMessage::Prepare { view, .. } | PbftMessage::Commit { view, .. } => *view > View(1),
        _ => true,
    });
    net.pass(LONG);
    assert!((0..3).all(|i| net.log(i)[0].is_none() && net.operations(i).len() == 2));
    net.start(3, disk);
    net.pass(LONG);
    net.agree();
}

/// S2: a STATUS may name any number (it once made the sum of two overflow).
#[test]
fn absurd_standings_harm_nobody() {
    let mut net = Net::with(4, |_| {});
    let package = net.package(0, 1, 1, None);
    to_all(&mut net, &package);
    net.settle();
    for number in [u64::MAX, u64::MAX - 1, u64::MAX - 32] {
        for standing in [
            Standing {
                view: View(number),
                changing: true,
                delivered: SeqNum(number),
                stable: SeqNum(0),
                ..Standing::default()
            },
            Standing {
                view: View(0),
                changing: true,
                delivered: SeqNum(0),
                stable: SeqNum(number),
                ..Standing::default()
            },
        ] {
            net.inject(3, 1, &PbftMessage::Status(standing));
            net.pass(MOMENT * 2);
        }
    }
}

/// P2: backups that stop between entering a view and voting in it go on in that view.
#[test]
fn a_view_goes_on_after_its_backups_restart_at_its_beginning() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|_, _, m| match m {
        PbftMessage::PrePrepare { seq, .. } => *seq != SeqNum(1),
        PbftMessage::Commit { .. } => false,
        _ => true,
    });
    for k in 1..=2 {
        let package = net.package(0, k, 1, None);
        to_all(&mut net, &package);
        net.pass(Duration::from_millis(5));
    }
    net.stop(0);
    // View 1 begins, and no vote of it arrives.
    net.filter = Box::new(|_, _, m| {
        matches!(m, PbftMessage::ViewChange(_) | PbftMessage::NewView(_) | PbftMessage::Status(_))
    });
    while (1..4).any(|i| net.status(i).view_changes == 0) {
        net.pass(Duration::from_millis(1));
    }
    for i in 2..4 {
        let disk = net.stop(i);
        net.start(i, disk);
    }
    net.queue.clear();
    net.filter = Box::new(|_, _, _| true);
    net.pass(LONG);
    assert!((1..4).all(|i| net.log(i).len() >= 2), "{:?}", net.status(1));
    assert!((1..4).all(|i| net.status(i).view == View(1)), "{:?}", net.status(1));
}

/// P3, V6: a primary whose last proposals are in no log of its own proposes nothing else in their
/// place when it is back, and nobody waits for it (f42).
#[test]
fn a_restarted_primary_resigns() {
    for lost in [false, true] {
        let mut net = Net::with(4, |_| {});
        let package = net.package(0, 1, 1, None);
        to_all(&mut net, &package);
        net.settle();
        net.peer(0).acknowledge = !lost;
        // Number 2 reaches replica 1 alone.
        net.filter = Box::new(|_, to, m| match m {
            PbftMessage::PrePrepare { seq: SeqNum(2), .. } => to == 1,
            _ => true,
        });
        let package = net.package(0, 2, 1, None);
        net.request(0, &package);
        net.settle();
        let disk = net.stop(0);
        net.start(0, disk);
        net.filter = Box::new(|_, _, _| true);
        let package = net.package(1, 1, 1, None);
        to_all(&mut net, &package);
        let before = net.now;
        while net.operations(1).len() < 2 {
            net.pass(Duration::from_millis(1));
            assert!(net.now.since(before) < net.settings.view_timeout / 2, "they wait for it");
        }
        let package = net.package(0, 2, 1, None);
        to_all(&mut net, &package);
        net.pass(LONG);
        net.agree();
        assert!((0..4).all(|i| net.operations(i).len() == 3 && net.status(i).view == View(1)));
        assert!((1..4).all(|i| net.peer(i).evidence.is_empty()), "it said nothing twice");
    }
}

/// P3: a new primary proposes nothing before the beginning of its view is durable.
#[test]
fn a_view_that_is_not_durable_has_no_proposals() {
    let mut net = Net::with(4, |_| {});
    net.stop(0);
    net.peer(1).acknowledge = false;
    let package = net.package(0, 1, 1, None);
    to_all(&mut net, &package);
    net.pass(Duration::from_secs(1));
    // Its VIEW-CHANGE.
    let left = net.peer(1).pending_acks.pop_front().unwrap();
    net.handle(1, Event::Persisted(left));
    net.settle();
    assert_eq!((net.status(1).view, net.status(1).changing), (View(1), false));
    let begins =
        |m: &PbftMessage| matches!(m, PbftMessage::NewView(_) | PbftMessage::PrePrepare { .. });
    assert!(!net.peer(1).sent.iter().any(begins));
    let entered = net.peer(1).pending_acks.pop_front().unwrap();
    net.handle(1, Event::Persisted(entered));
    assert_eq!(net.peer(1).sent.iter().filter(|m| begins(m)).count(), 2, "{:?}", net.peer(1).sent);
}

/// V6: who leads the view and leaves it is followed; who leads another one is not.
#[test]
fn a_primary_that_leaves_is_followed() {
    for (from, moves) in [(3, false), (0, true)] {
        let mut net = Net::with(4, |_| {});
        let left = PbftMessage::ViewChange(view_change(&net, from, 7));
        net.inject(from, 1, &left);
        net.settle();
        let status = net.status(1);
        assert_eq!((status.view, status.changing), (View(u64::from(moves)), moves));
    }
}

/// S2: what one can ask for again and again is bounded by time.
#[test]
fn small_questions_do_not_get_many_large_answers() {
    let mut net = Net::with(4, |s| s.view_timeout = Duration::from_secs(1000));
    let package = net.package(0, 1, 1, None);
    to_all(&mut net, &package);
    net.settle();
    let digest = net.log(1)[0].unwrap();
    net.peer(1).sent.clear();
    for _ in 0..1000 {
        net.inject(3, 1, &PbftMessage::FetchBody { seq: SeqNum(1), digest });
    }
    net.settle();
    let bodies = net.peer(1).sent.len();
    // View 1.
    let vcs: Vec<_> = (1..4).map(|i| view_change(&net, i, 1)).collect();
    let begin = new_view(&net, 1, 1, vcs.clone());
    net.inject(2, 3, &begin);
    net.settle();
    net.peer(3).sent.clear();
    for _ in 0..1000 {
        net.inject(2, 3, &PbftMessage::ViewChange(vcs[1].clone()));
    }
    net.settle();
    assert!(net.peer(3).sent.len() == 1 && bodies == 32, "{bodies} bodies");
}
