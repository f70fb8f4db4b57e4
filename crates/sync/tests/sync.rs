//! The face as a whole: what goes in, and what it wants done.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_crypto::SecretKey;
use tercio_ledger::Wanted;
use tercio_sync::{Blocks, FetchBlocks, Head, Health, Step, Sync, SyncSettings, SyncSetup, Tip};
use tercio_types::{
    CertifiedCheckpoint, ChainId, Checkpoint, Digest, Epoch, FaultModel, Height, Member,
    Membership, ReplicaId, SeqNum, Suite, Timestamp,
};
use tercio_wire::{Encode, Kind};

const NOW: Instant = Instant(1_000_000_000);

/// Replica 3 of four, at the beginning of the chain.
fn sync(settings: SyncSettings) -> Sync {
    let key = |i: u8| SecretKey::from_seed([i; 32]).public();
    let members = (0..4).map(|i| Member { key: key(i), address: String::new() }).collect();
    let (chain, suite, clients) = (ChainId([1; 32]), Suite::default(), BTreeMap::new());
    let model = FaultModel::Byzantine;
    let membership = Membership::new(chain, Epoch(1), suite, model, members, clients).unwrap();
    let tip = Tip { height: Height(0), block: Digest([1; 32]), seq: SeqNum(0) };
    Sync::new(SyncSetup {
        me: ReplicaId(3),
        membership: Arc::new(membership),
        settings,
        lag: 0,
        room: 1 << 20,
        scrub_bytes: 0,
        head: Head { tip, checkpoint: None },
    })
}

fn certificate(height: u64) -> Arc<CertifiedCheckpoint> {
    let checkpoint = Checkpoint {
        seq: SeqNum(height),
        height: Height(height),
        block: Digest([3; 32]),
        results: Digest([4; 32]),
        state: Digest([5; 32]),
        clients: Digest([6; 32]),
        membership: Digest([7; 32]),
        epoch: Epoch(1),
        time: Timestamp(8),
    };
    Arc::new(CertifiedCheckpoint { checkpoint, signatures: vec![] })
}

fn steps(sync: &mut Sync) -> Vec<Step> {
    std::iter::from_fn(|| sync.poll()).collect()
}

/// Whom it sends what kind of message.
fn sent(sync: &mut Sync) -> Vec<(ReplicaId, Kind)> {
    let send = |step| match step {
        Step::Send { to, kind, .. } => (to, kind),
        other => panic!("{other:?}"),
    };
    steps(sync).into_iter().map(send).collect()
}

fn dropped(sync: &Sync, reason: &str) -> u64 {
    sync.dropped().filter(|(found, _)| *found == reason).map(|(_, count)| count).sum()
}

/// Only when all that was delivered is executed is it known where the chain goes on.
#[test]
fn catching_up_begins_when_all_that_was_delivered_is_executed() {
    let mut sync = sync(SyncSettings::default());
    sync.on_delivered(NOW);
    sync.on_delivered(NOW);
    sync.catch_up_to(certificate(9), NOW);
    assert!(sync.status().catching_up && steps(&mut sync).is_empty());
    for (height, begins) in [(1, false), (2, true)] {
        sync.on_executed(SeqNum(height), Some((Height(height), Digest([2; 32]))), NOW);
        sync.begin(NOW);
        let asked = steps(&mut sync);
        assert_eq!(asked.len(), usize::from(begins));
        if let Some(Step::Send { to, kind, number, .. }) = asked.first() {
            // What was executed is not asked for again.
            assert_eq!((*to, *kind, *number), (ReplicaId(0), Kind::FETCH_BLOCKS, 3));
        }
    }
    assert_eq!(sync.status().executing, 0);
}

/// Far behind, everybody is asked for a state; near, one for blocks.
#[test]
fn how_far_behind_decides_what_is_asked_for() {
    let settings = SyncSettings { state_after: 10, ..SyncSettings::default() };
    let mut near = sync(settings);
    near.catch_up_to(certificate(10), NOW);
    assert_eq!(sent(&mut near), [(ReplicaId(0), Kind::FETCH_BLOCKS)]);
    let mut far = sync(settings);
    far.catch_up_to(certificate(11), NOW);
    let everybody = [0, 1, 2].map(|i| (ReplicaId(i), Kind::FETCH_STATE));
    assert_eq!(sent(&mut far), everybody);
    // Nobody answers: then blocks after all.
    far.on_timeout(far.deadline().unwrap()).unwrap();
    assert_eq!(sent(&mut far), [(ReplicaId(0), Kind::FETCH_BLOCKS)]);
}

/// At the end the protocol is told, after the log was told that what it kept is of no more use.
#[test]
fn the_protocol_is_told_when_the_last_blocks_are_executed() {
    let mut sync = sync(SyncSettings::default());
    sync.catch_up_to(certificate(9), NOW);
    steps(&mut sync);
    // On the way a quorum went on: the end is there.
    sync.on_replayed(certificate(4), None, Some(certificate(12)), NOW);
    steps(&mut sync);
    sync.on_replayed(certificate(9), None, None, NOW);
    assert!(sync.status().catching_up);
    steps(&mut sync);
    sync.on_replayed(certificate(12), Some(BTreeMap::new()), None, NOW);
    let told = steps(&mut sync);
    assert!(matches!(&told[..], [Step::Unstage, Step::CaughtUp { certificate, .. }]
        if certificate.checkpoint.height == Height(12)));
    let status = sync.status();
    assert!(!status.catching_up);
    assert_eq!(status.head.tip.height, Height(12));
}

/// What others say costs a count at most.
#[test]
fn junk_is_counted_and_nothing_follows() {
    let mut sync = sync(SyncSettings::default());
    let (peer, junk) = (ReplicaId(1), Bytes::from_static(&[9; 5]));
    sync.on_fetch_blocks(peer, Height(1), &junk, NOW);
    sync.on_fetch_state(peer, 1, &junk, NOW);
    sync.on_blocks(peer, Height(1), &junk, NOW).unwrap();
    sync.on_state(peer, 1, &junk, NOW);
    sync.on_state(peer, u64::MAX, &junk, NOW);
    assert!(steps(&mut sync).is_empty());
    for (reason, count) in [
        ("fetch_malformed", 1),
        ("fetch_state_malformed", 1),
        ("blocks_not_asked_for", 1),
        ("state_not_asked_for", 2),
    ] {
        assert_eq!(dropped(&sync, reason), count, "{reason}");
    }
}

/// A question waits until the log has read what was asked before, and is answered to the asker.
#[test]
fn what_the_log_read_goes_to_who_asked() {
    let mut sync = sync(SyncSettings::default());
    let request = FetchBlocks { from: Height(1), to: Height(4) };
    for by in 0..3 {
        sync.on_fetch_blocks(ReplicaId(by), request.from, &request.body(), NOW);
    }
    let reading = steps(&mut sync);
    assert!(matches!(&reading[..], [Step::ReadBlocks { .. }, Step::ReadBlocks { .. }]));
    let Step::ReadBlocks { by, .. } = reading[0] else { unreachable!() };
    sync.on_blocks_read(by, request.from, Bytes::from_static(b"blocks"), NOW);
    let next = steps(&mut sync);
    assert!(matches!(&next[..], [Step::Send { to, kind: Kind::BLOCKS, number: 1, .. },
        Step::ReadBlocks { .. }] if *to == by));
}

/// When every other replica has said often enough that it has no copy, the replica must stop, and
/// says what is lost.
#[test]
fn damage_that_nobody_can_mend_is_an_error() {
    let mut sync = sync(SyncSettings::default());
    let wanted = Wanted { from: Height(5), to: Height(6), hash: Digest([8; 32]), file: "b".into() };
    let health = Health { damaged: 2, wanted: Some(wanted), ..Health::default() };
    sync.on_health(health, NOW).unwrap();
    let none = Blocks { blocks: vec![], certificate: None }.to_bytes();
    let mut now = NOW;
    let error = loop {
        let asked = sent(&mut sync);
        let Some((peer, _)) = asked.first() else {
            now = now + Duration::from_secs(1);
            sync.on_timeout(now).unwrap();
            continue;
        };
        if let Err(error) = sync.on_blocks(*peer, Height(5), &none, now) {
            break error;
        }
    };
    assert_eq!((error.from, error.to), (Height(5), Height(6)));
    assert!(error.to_string().starts_with("b: blocks 5 to 6 are damaged"), "{error}");
}
