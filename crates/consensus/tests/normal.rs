//! The normal case, watermarks and checkpoints. Rule names are those of `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::collections::BTreeSet;
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_consensus::*;
use tercio_crypto::Counted;
use tercio_types::*;

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(5);

/// N1 to N5, for every size that the issue of scale names, and for sizes that are not 3f+1.
#[test]
fn n1_n5_every_size_orders_alike() {
    for n in [1, 4, 5, 6, 7, 10] {
        let mut net = Net::with(n, |_| {});
        for k in 1..=50 {
            let package = net.package(k % 3, 1 + k / 3, 1, None);
            net.request(0, &package);
        }
        net.pass(LONG);
        let log = net.agree();
        assert!((0..n).all(|i| net.log(i).len() == log.len()), "n = {n}: everybody has all");
        assert_eq!(net.operations(0).len(), 50, "n = {n}");
        assert_eq!(net.status(0).view_changes, 0);
    }
}

/// N1: a lone request does not wait, and under load batches grow.
#[test]
fn n1_batches_adapt_to_the_load() {
    let mut net = Net::with(4, |_| {});
    let lone = net.package(0, 1, 1, None);
    net.request(0, &lone);
    net.settle();
    assert_eq!(net.log(3).len(), 1, "no time had to pass");
    for k in 2..=101 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
    }
    net.pass(MOMENT);
    assert_eq!(net.operations(3).len(), 101);
    assert!(net.log(3).len() <= 4, "one at once, the others together: {:?}", net.log(3).len());
    let most = Settings::default().batch_ops;
    let big = net.package(1, 1, 1000, None);
    let rest = net.package(1, 1001, 24, None);
    let next = net.package(2, 1, 1, None);
    let before = net.log(3).len();
    for package in [&big, &rest, &next] {
        net.request(0, package);
    }
    net.pass(MOMENT);
    let batches = &net.peer(3).disk.delivered[before..];
    assert!(batches.iter().all(|(_, b)| b.as_ref().unwrap().batch.ops() <= most));
}

/// N1: a primary that gets one thing after the other proposes when the batch time has passed, though
/// its timer has not gone off yet.
#[test]
fn n1_a_batch_whose_time_is_over_does_not_wait_for_the_timer() {
    let mut net = Net::with(4, |_| {});
    let packages: Vec<_> = (1..=4).map(|k| net.package(0, k, 1, None)).collect();
    net.request(0, &packages[0]);
    net.request(0, &packages[1]);
    net.now = net.now + Settings::default().batch_time;
    net.request(0, &packages[2]);
    net.request(0, &packages[3]);
    net.settle();
    assert_eq!(net.operations(3).len(), 4);
    assert_eq!(net.log(3).len(), 3, "the first; the next two; the last, which came after that");
}

/// N2: one digest for each number of a view; the second is refused and kept as evidence (f01).
#[test]
fn n2_a_second_proposal_is_refused() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|from, _, _| from != 0);
    let (a, b) = (net.package(0, 1, 1, None), net.package(1, 1, 1, None));
    for package in [a, b] {
        let batch = tercio_wire::EncodedBatch::new(
            Batch { packages: vec![package], ..Batch::default() },
            SUITE,
        );
        let (view, seq) = (View(0), SeqNum(1));
        net.inject(0, 1, &PbftMessage::PrePrepare { view, seq, batch: batch.into() });
    }
    net.settle();
    let peer = net.peer(1);
    assert!(matches!(peer.evidence[..], [Evidence::Equivocation { .. }]), "{:?}", peer.evidence);
    let prepares = peer.sent.iter().filter(|m| matches!(m, PbftMessage::Prepare { .. })).count();
    assert_eq!(prepares, 1);
}

/// N3, N4: one vote less than a quorum moves nothing.
#[test]
fn n3_n4_nothing_happens_below_a_quorum() {
    let mut net = Net::with(4, |s| s.view_timeout = Duration::from_secs(1000));
    net.stop(2);
    net.stop(3);
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.pass(LONG);
    assert!(net.log(0).is_empty() && net.log(1).is_empty());
    assert!(!net.peer(1).sent.iter().any(|m| matches!(m, PbftMessage::Commit { .. })));
    let (phase, missing) = net.status(0).waiting.unwrap();
    assert_eq!(phase, Awaited::Vote(Phase::Prepare));
    assert_eq!(missing.iter().collect::<Vec<_>>(), [ReplicaId(2), ReplicaId(3)]);
    net.start(2, Disk::default());
    net.pass(LONG);
    net.agree();
    assert_eq!(net.operations(2).len(), 1, "a third one completes it");
}

/// P1: nothing that a record promises is sent before the record is durable.
#[test]
fn p1_promises_wait_for_the_log() {
    let mut net = Net::with(4, |_| {});
    net.peer(1).acknowledge = false;
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.settle();
    assert!(net.peer(1).sent.is_empty(), "{:?}", net.peer(1).sent);
    let id = net.peer(1).pending_acks.pop_front().unwrap();
    net.handle(1, Event::Persisted(id));
    assert!(matches!(net.peer(1).sent[..], [PbftMessage::Prepare { .. }]));
}

/// P4: CHECKPOINT says that the state is there whatever happens, so its blocks are durable first.
#[test]
fn p4_a_checkpoint_waits_for_its_blocks() {
    let mut net = Net::with(4, |s| s.checkpoint_interval = 1);
    net.stop(3);
    net.peer(1).acknowledge = false;
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    let said = |net: &Net, i: usize| {
        let sent = &net.peers[i].as_ref().unwrap().sent;
        sent.iter().any(|m| matches!(m, PbftMessage::Checkpoint { .. }))
    };
    let durable = |net: &mut Net| {
        net.settle();
        let id = net.peer(1).pending_acks.pop_front().unwrap();
        net.handle(1, Event::Persisted(id));
        net.settle();
    };
    (0..2).for_each(|_| durable(&mut net));
    assert!(net.log(1).len() == 1 && said(&net, 0) && said(&net, 2), "all have executed it");
    assert!(!said(&net, 1) && net.status(0).stable == SeqNum(0), "and it is on two disks");
    durable(&mut net);
    assert!(said(&net, 1) && net.status(0).stable == SeqNum(1));
}

/// P3: a proposal promises nothing and waits for nothing; the primary's vote waits as everybody's.
#[test]
fn p3_a_proposal_leaves_at_once_and_is_no_vote() {
    let mut net = Net::with(4, |_| {});
    net.peer(0).acknowledge = false;
    let disk = net.stop(3);
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.settle();
    assert!(matches!(net.peer(0).sent[..], [PbftMessage::PrePrepare { .. }]));
    let commits = |m: &PbftMessage| matches!(m, PbftMessage::Commit { .. });
    assert!(!net.peer(1).sent.iter().any(commits), "two have voted, and the primary has not");
    let id = net.peer(0).pending_acks.pop_front().unwrap();
    net.handle(0, Event::Persisted(id));
    assert!(matches!(net.peer(0).sent[1..], [PbftMessage::Prepare { .. }]));
    net.settle();
    assert!(net.peer(1).sent.iter().any(commits));
    // With all backups there, nobody waits for the primary's disk.
    net.start(3, disk);
    net.pass(MOMENT * 10);
    let done = net.log(1).len();
    let package = net.package(0, 2, 1, None);
    net.request(0, &package);
    net.settle();
    assert!((0..4).all(|i| net.log(i).len() == done + 1));
}

/// P3: the very first proposal waits until the log shows that there was one.
#[test]
fn p3_nothing_is_proposed_before_the_log_is_begun() {
    let net = Net::with(4, |_| {});
    let (me, m, signer) = (ReplicaId(0), net.membership.clone(), net.rings[0].signer());
    let recovery = tercio_consensus::pbft::Recovery::default();
    let mut pbft = pbft::Pbft::new(me, m, signer, net.settings.clone(), recovery, net.now).unwrap();
    let package = net.package(0, 1, 1, None);
    let (key, body) = (tercio_wire::request_key(&package), tercio_wire::package_content(&package));
    let frame = tercio_wire::Frame { key, auth: package.auth, body };
    let request = tercio_wire::Received::from_frame(frame, SUITE).unwrap();
    let mut rings = net.rings;
    pbft.handle(Event::Request(rings[0].verify(request).unwrap()), net.now);
    let effects: Vec<_> = std::iter::from_fn(|| pbft.poll_effect()).collect();
    let [Effect::Persist { id, .. }] = effects[..] else { panic!("{effects:?}") };
    pbft.handle(Event::Persisted(id), net.now);
    let proposes = |e| matches!(e, Effect::Broadcast(PbftMessage::PrePrepare { .. }));
    assert!(std::iter::from_fn(|| pbft.poll_effect()).any(proposes));
}

/// N6: votes that come before their proposal count when it comes (f33).
#[test]
fn n6_early_votes_count() {
    let mut net = Net::with(4, |_| {});
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    // All that is not for replica 3 goes on; what is for it waits, and comes last first.
    let mut late = Vec::new();
    while let Some((from, to, bytes)) = net.queue.pop_front() {
        if to == 3 {
            late.push((from, bytes));
        } else {
            let verified = net.verify(to, &bytes);
            net.handle(to, Event::Message(verified));
        }
    }
    assert!(late.len() >= 5, "a proposal, two PREPAREs, three COMMITs less its own");
    for (_, bytes) in late.into_iter().rev() {
        let verified = net.verify(3, &bytes);
        net.handle(3, Event::Message(verified));
    }
    assert_eq!(net.log(3).len(), 1, "without any retransmission");
}

/// N7: what a card has counted is worth what single votes are.
#[test]
fn n7_counted_quorums_stand_for_votes() {
    let mut net = Net::with(4, |_| {});
    net.filter =
        Box::new(|_, _, m| !matches!(m, PbftMessage::Prepare { .. } | PbftMessage::Commit { .. }));
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.settle();
    assert!(net.log(3).is_empty());
    let digest = match &net.peer(0).sent[0] {
        PbftMessage::PrePrepare { batch, .. } => batch.digest,
        other => panic!("{other:?}"),
    };
    let (view, seq) = (View(0), SeqNum(1));
    let vote = |message: &PbftMessage| match *message {
        PbftMessage::Prepare { view, seq, digest } => {
            Vote { phase: Phase::Prepare, view, seq, digest }
        }
        PbftMessage::Commit { view, seq, digest } => {
            Vote { phase: Phase::Commit, view, seq, digest }
        }
        ref other => panic!("{other:?}"),
    };
    for message in
        [PbftMessage::Prepare { view, seq, digest }, PbftMessage::Commit { view, seq, digest }]
    {
        let votes = [1, 2].map(|from| {
            let frame = net.frame(from, &message);
            net.verify(3, &frame)
        });
        let counted = Counted::of(&votes, |received| vote(&received.message)).unwrap();
        assert_eq!(counted.voters(), [ReplicaId(1), ReplicaId(2)].into_iter().collect());
        net.handle(3, Event::Counted(counted));
    }
    assert_eq!(net.log(3).len(), 1);
    // Votes for different things are no count, nor are none.
    let other = PbftMessage::Commit { view: View(1), seq, digest };
    let votes = [net.frame(1, &other), net.frame(2, &PbftMessage::Commit { view, seq, digest })]
        .map(|frame| net.verify(3, &frame));
    assert!(Counted::of(&votes, |received| vote(&received.message)).is_none());
    assert!(Counted::of(&votes[..0], |received| vote(&received.message)).is_none());
}

/// C1, C2, W1: checkpoints become stable and let go of everything below.
#[test]
fn c1_c2_w1_stable_checkpoints_bound_memory() {
    let mut net = Net::with(4, |s| s.pipeline = 4);
    for k in 1..=200 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(Duration::from_millis(3));
        for i in 0..4 {
            let status = net.status(i);
            assert!(status.slots <= 64 && status.votes <= 64 * 8, "{status:?}");
        }
    }
    net.pass(LONG);
    for i in 0..4 {
        let status = net.status(i);
        assert_eq!(status.stable, status.delivered, "C3: an idle network covers its last batches");
        assert_eq!(status.slots, 0);
        assert!(net.peer(i).disk.stable.is_some());
    }
    assert_eq!(net.operations(2).len(), 200);
}

/// C5: what lies above the stable checkpoint is bounded in bytes, too.
#[test]
fn c5_large_batches_bring_checkpoints_sooner() {
    let mut net = Net::with(4, |s| {
        s.checkpoint_interval = 1000;
        s.window = 2000;
        s.checkpoint_bytes = 1500;
    });
    let mut stable = BTreeSet::new();
    for k in 1..=60 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.settle();
        for i in 0..4 {
            // A package has some 110 bytes.
            let status = net.status(i);
            assert!(status.slots <= 16, "{status:?}");
            stable.insert(status.stable);
        }
    }
    assert!(stable.len() >= 4, "{stable:?}");
    assert_eq!(net.operations(3).len(), 60);
}

/// W2: between the watermarks or one window above; the rest is refused and counted (f30).
#[test]
fn w2_numbers_beyond_the_watermarks_cost_nothing() {
    let mut net = Net::with(4, |_| {});
    let package = net.package(0, 1, 1, None);
    let batch = tercio_wire::EncodedBatch::new(
        Batch { packages: vec![package], ..Batch::default() },
        SUITE,
    );
    let batch = std::sync::Arc::new(batch);
    net.filter = Box::new(|from, _, _| from != 0);
    for seq in (1..10_000).chain([u64::MAX - 1, u64::MAX]) {
        let (view, seq, digest) = (View(0), SeqNum(seq), batch.digest);
        net.inject(0, 1, &PbftMessage::PrePrepare { view, seq, batch: batch.clone() });
        net.inject(0, 1, &PbftMessage::Commit { view, seq, digest });
        net.inject(0, 1, &PbftMessage::Prepare { view, seq, digest });
    }
    net.settle();
    let status = net.status(1);
    assert!(status.slots <= 64, "{} slots", status.slots);
    assert!(status.votes <= 64 * 2 * 4, "{} votes", status.votes);
    assert!(status.dropped["above_watermark"] > 20_000);
}

/// W2: what is passed over unverified is what would be dropped for its number, and nothing else:
/// proposals and votes of any view, from the first number on that is refused.
#[test]
fn w2_what_is_passed_over_would_be_dropped() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|_, to, _| to != 1);
    let batch = Batch { packages: vec![net.package(0, 1, 1, None)], ..Batch::default() };
    let batch = std::sync::Arc::new(tercio_wire::EncodedBatch::new(batch, SUITE));
    let refused = |net: &Net| net.status(1).dropped.get("above_watermark").copied().unwrap_or(0);
    let last = 2 * net.settings.window;
    let mut kinds = BTreeSet::new();
    for (view, seq) in (0..2).flat_map(|view| (last - 2..=last + 2).map(move |seq| (view, seq))) {
        let (view, seq, digest) = (View(view), SeqNum(seq), batch.digest);
        for message in [
            PbftMessage::PrePrepare { view, seq, batch: batch.clone() },
            PbftMessage::Prepare { view, seq, digest },
            PbftMessage::Commit { view, seq, digest },
        ] {
            let elsewhere = view.0 > 0 && matches!(message, PbftMessage::PrePrepare { .. });
            let frame = net.frame(0, &message);
            let (kind, number) = tercio_wire::Key::peek(&frame).unwrap();
            kinds.insert(kind.0);
            let before = refused(&net);
            let passed = net.peer(1).pbft.passes_over(kind, SeqNum(number));
            assert_eq!(passed, seq.0 > last, "{message:?}");
            let Horizon { kinds, last } = net.peer(1).pbft.horizon();
            assert_eq!(passed, kinds.contains(&kind) && number > last.0, "{message:?}");
            assert_eq!(refused(&net) - before, u64::from(passed), "it counts as dropped");
            let message = net.verify(1, &frame);
            net.handle(1, Event::Message(message));
            let at_last = refused(&net) - before - u64::from(passed);
            // A proposal of another view is dropped for that.
            assert_eq!(at_last, u64::from(passed && !elsewhere), "{seq} of {view}");
        }
    }
    assert_eq!(kinds.len(), 3);
    let passed = (0..=u8::MAX)
        .filter(|k| net.peer(1).pbft.passes_over(tercio_wire::Kind(*k), SeqNum(u64::MAX)));
    assert!(passed.eq(kinds), "nothing that is not of one number");
}

/// W1: without checkpoints ordering stops at the high watermark, and goes on when they come.
#[test]
fn w1_ordering_stops_at_the_high_watermark() {
    let mut net = Net::with(4, |s| s.view_timeout = Duration::from_secs(1000));
    (0..4).for_each(|i| net.peer(i).execute = false);
    for k in 1..=60 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(Duration::from_millis(5));
    }
    assert_eq!(net.status(0).delivered, SeqNum(32));
    for i in 0..4 {
        net.peer(i).execute = true;
        let all = net.peer(i).disk.delivered.clone();
        for (k, (seq, batch)) in all.iter().enumerate() {
            net.peer(i).disk.delivered = all[..=k].to_vec();
            let checkpoint = seq.0 % 8 == 0;
            let delivery = Delivery { seq: *seq, batch: batch.clone(), checkpoint };
            let event = net.executed(i, &delivery);
            net.peer(i).disk.delivered = all.clone();
            net.handle(i, event);
        }
    }
    net.pass(LONG);
    assert_eq!(net.operations(1).len(), 60);
}

/// C2: a replica whose state differs from a certified one hears of it.
#[test]
fn c2_a_diverged_replica_is_told() {
    let mut net = Net::with(4, |_| {});
    // Replica 3 leaves out what it was given first.
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.pass(MOMENT);
    net.peer(3).disk.delivered.clear();
    for k in 2..=20 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(MOMENT);
    }
    net.pass(LONG);
    let what = tercio_types::CheckpointField::Height;
    let told = |e: &Evidence| matches!(e, Evidence::OwnStateDiffers { what: w, .. } if *w == what);
    assert!(net.peer(3).evidence.iter().any(told));
    assert!(!net.peer(0).evidence.iter().any(told));
    assert!(
        net.peer(0)
            .evidence
            .iter()
            .any(|e| matches!(e, Evidence::Divergence { replica: ReplicaId(3), .. }))
    );
}

/// C2: what another signed before we were there is compared when we are.
#[test]
fn c2_what_was_said_before_is_compared_too() {
    let mut net = Net::with(4, |_| {});
    let (by, seq, state) = (ReplicaId(3), SeqNum(8), Digest([9; 32]));
    let checkpoint = Checkpoint {
        seq,
        height: Height(8),
        block: state,
        results: state,
        state,
        clients: state,
        membership: state,
        epoch: Epoch(0),
        time: Timestamp(0),
    };
    let key = tercio_wire::checkpoint_key(SUITE, by, &checkpoint).to_array();
    let signature = net.rings[3].signer().sign(&key).into();
    net.inject(3, 0, &PbftMessage::Checkpoint { checkpoint: checkpoint.into(), signature });
    net.settle();
    assert_eq!(net.peer(0).evidence, []);
    for k in 1..=8 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.settle();
    }
    let what = CheckpointField::Block;
    assert_eq!(net.peer(0).evidence, [Evidence::Divergence { replica: by, seq, what, state }]);
}

/// C4: with attestations on, a quorum signs every block.
#[test]
fn c4_blocks_are_attested() {
    let mut net = Net::with(4, |s| s.attest = true);
    for k in 1..=20 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(Duration::from_millis(5));
    }
    net.pass(LONG);
    let blocks = net.log(0).iter().flatten().count() - 1;
    for i in 0..4 {
        let heights: Vec<u64> = net.peer(i).attested.iter().map(|h| h.0).collect();
        assert_eq!(heights, (1..=blocks as u64).collect::<Vec<_>>(), "the last batch is no block");
    }
}

/// H1: the application chooses what to propose, and a backup's application may veto.
#[test]
fn h1_proposal_hooks_choose_and_veto() {
    let mut net = Net::with(4, |s| s.proposal_hooks = true);
    let first = net.package(0, 1, 1, None);
    net.request(0, &first);
    for k in 1..=3 {
        let package = net.package(1, k, 1, None);
        net.request(0, &package);
    }
    net.pass(MOMENT);
    assert_eq!(
        net.operations(2)[1..],
        ["op 1 3", "op 1 2", "op 1 1"],
        "the builder turns them round"
    );
    net.peer(1).veto = true;
    let second = net.package(2, 1, 1, None);
    net.request(0, &second);
    net.pass(MOMENT);
    assert_eq!(net.operations(2).len(), 5, "one veto is outvoted");
    net.peer(2).veto = true;
    let third = net.package(2, 2, 1, None);
    net.request(0, &third);
    net.pass(MOMENT);
    assert_eq!(net.operations(3).len(), 5, "f+1 vetoes hold a batch up");
    assert_eq!(net.status(1).dropped["vetoed"], 2);
}

/// H2: with a window of one and execution first, batches come one by one, each on an executed one.
#[test]
fn h2_execute_before_propose() {
    let mut net = Net::with(4, |s| (s.pipeline, s.execute_before_propose) = (1, true));
    net.peer(0).execute = false;
    for k in 1..=3 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(MOMENT);
    }
    assert_eq!(net.log(0).len(), 1);
    let (seq, batch) = net.peer(0).disk.delivered[0].clone();
    let event = net.executed(0, &Delivery { seq, batch, checkpoint: false });
    net.handle(0, event);
    net.pass(MOMENT);
    assert_eq!(net.log(0).len(), 2);
}

/// A1: a package that was delivered is answered again, not ordered again; one that does not fit is
/// declined.
#[test]
fn a1_duplicates_are_answered_and_floods_declined() {
    let mut net = Net::with(4, |s| {
        s.pool = PoolLimits { client_ops: 10, total_ops: 15, total_bytes: 1 << 20 };
        s.view_timeout = Duration::from_secs(1000);
    });
    let package = net.package(0, 1, 2, None);
    net.request(0, &package);
    net.pass(MOMENT);
    net.request(0, &package);
    net.request(2, &package);
    net.pass(MOMENT);
    assert_eq!(net.log(0).len(), 1);
    assert_eq!((net.peer(0).repeated.len(), net.peer(2).repeated.len()), (1, 1));
    net.stop(2);
    net.stop(3);
    for k in 2..=20 {
        for client in 0..2 {
            let package = net.package(client, 2 * k, 1, None);
            net.request(0, &package);
        }
    }
    let busy = net.peer(0).declined.iter().filter(|d| d.2 == tercio_wire::reject::Reason::Busy);
    assert_eq!(busy.count(), 38 - 15);
    assert_eq!(net.status(0).pending, 15);
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let error = |n: usize, change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check(&membership(n)).unwrap_err().to_string()
    };
    assert!(error(4, |s| s.window = 200).starts_with("window: must be at least twice"));
    assert!(error(4, |s| s.pipeline = 0).starts_with("pipeline: must be at least 1"));
    assert!(error(100, |s| s.window = 4096).contains("would not fit a frame"));
    assert_eq!(Settings::default().check(&membership(100)), Ok(()));
}

/// C3: the timer of the idle checkpoint runs only while it can be proposed.
#[test]
fn an_idle_primary_that_may_not_propose_sleeps() {
    let mut net = Net::with(4, |s| {
        s.execute_before_propose = true;
        s.pipeline = 1;
    });
    net.peer(0).execute = false;
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.settle();
    net.now = net.now + Duration::from_secs(5);
    net.handle(0, Event::Timeout);
    let now = net.now;
    assert!(net.peer(0).pbft.deadline().unwrap() > now);
}

/// C4: what a liar attests stands in the way of nobody.
#[test]
fn a_false_attestation_hides_no_true_ones() {
    let mut net = Net::with(4, |s| s.attest = true);
    net.filter = Box::new(|from, _, m| from != 3 || !matches!(m, PbftMessage::Attest { .. }));
    let s = signer(&net.membership, 3);
    for h in 1..=5 {
        let block = Digest([7; 32]);
        let key =
            tercio_wire::Key::of_replica(tercio_wire::Kind::ATTEST, ReplicaId(3), 0, h, block);
        for i in 0..3 {
            let signature = s.sign(&key.to_array()).into();
            net.inject(3, i, &PbftMessage::Attest { height: Height(h), block, signature });
        }
    }
    for k in 1..=5 {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(Duration::from_millis(5));
    }
    assert!((0..3).all(|i| net.peer(i).attested.len() == 5), "{:?}", net.peer(0).attested);
}

/// C4: after a restart the next blocks are attested again.
#[test]
fn attestations_go_on_far_from_the_genesis() {
    let mut net = Net::with(4, |s| s.attest = true);
    for i in 0..4 {
        // As if it had been there all along.
        let block = Some((Height(100_000), Digest([1; 32])));
        net.handle(i, Event::Executed { seq: SeqNum(0), block, checkpoint: None });
    }
    net.settle();
    net.handle(
        0,
        Event::Executed {
            seq: SeqNum(0),
            block: Some((Height(100_001), Digest([2; 32]))),
            checkpoint: None,
        },
    );
    for i in 1..4 {
        let block = Some((Height(100_001), Digest([2; 32])));
        net.handle(i, Event::Executed { seq: SeqNum(0), block, checkpoint: None });
    }
    net.settle();
    assert!((0..4).all(|i| net.peer(i).attested.contains(&Height(100_001))));
}
