//! Snapshots that were overtaken before anybody wrote them: nobody else may have what changed since,
//! and to let go of all of that at once would hold up promises.

mod common;

use bytes::Bytes;
use common::{counter, membership, secret};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tercio_consensus::Instant;
use tercio_consensus::pbft::Pbft;
use tercio_execution::{Engine, Snapshot};
use tercio_ledger::MemStorage;
use tercio_replica::NodeSettings;
use tercio_replica::stages::{Outbox, Stages, StateAt, ToLog};
use tercio_types::{CertifiedCheckpoint, ReplicaId, SeqNum};

const CHUNKS: usize = 5000;

#[test]
fn they_are_let_go_of_in_bites() {
    let settings = NodeSettings::new(ReplicaId(0), secret(0), membership(4));
    let stages: Stages<Pbft> =
        Stages::open(&settings, &MemStorage::default(), counter(), Instant(0)).unwrap();
    let (mut log, mut out) = (stages.log, Outbox::default());
    let gone = Arc::new(AtomicUsize::new(0));
    let mut engine = Engine::new(counter(), membership(4), 0);
    let mut state = |seq: u64| {
        let gone = gone.clone();
        let chunks = (0..CHUNKS).map(move |_| {
            gone.fetch_add(1, Ordering::Relaxed);
            (Bytes::new(), Bytes::new())
        });
        let checkpoint = engine.checkpoint(SeqNum(seq));
        StateAt { checkpoint, chain_bytes: 0, snapshot: Snapshot::new(0, chunks) }
    };
    let (first, second) = (state(1), state(2));
    let later = CertifiedCheckpoint { checkpoint: state(3).checkpoint, signatures: vec![] };
    // One waits for its certificate; the next is of no use then, and with a later one both are not.
    for command in
        [ToLog::Snapshot(first), ToLog::Snapshot(second), ToLog::Certificate(Arc::new(later))]
    {
        log.handle(command, &mut out).unwrap();
    }
    let mut bites = 0;
    while log.has_work() {
        let before = gone.load(Ordering::Relaxed);
        log.work(&mut out).unwrap();
        let bite = gone.load(Ordering::Relaxed) - before;
        assert!(bite <= 1024, "{bite} chunks at once");
        bites += 1;
    }
    assert_eq!(gone.load(Ordering::Relaxed), 2 * CHUNKS);
    assert!(bites >= 2 * CHUNKS / 1024, "{bites}");
}
