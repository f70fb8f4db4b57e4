//! Snapshots that were overtaken before anybody wrote them: nobody else may have what changed since,
//! and to release all of that at once would hold up promises.

use crate::common;

use bytes::Bytes;
use common::{counter, membership, secret};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tercio_consensus::Instant;
use tercio_consensus::pbft::Pbft;
use tercio_execution::{Engine, Snapshot, chunks_root};
use tercio_ledger::MemStorage;
use tercio_replica::NodeSettings;
use tercio_replica::stages::{LogStage, Outbox, Stages, StateAt, ToLog, ToOrder};
use tercio_types::{CertifiedCheckpoint, Checkpoint, Digest, ReplicaId, SeqNum, Suite};

const CHUNKS: usize = 5000;

fn label(i: usize) -> Bytes {
    format!("a{i:05}").into()
}

/// A replica's log, and the snapshots that it is given.
struct Log {
    stage: LogStage,
    out: Outbox,
    engine: Engine,
    /// The root of the snapshots' chunks.
    state: Digest,
    /// How many chunks were asked for. Whoever has a snapshot of ours holds it, too.
    asked: Arc<AtomicUsize>,
}

impl Log {
    fn open() -> Self {
        let settings = NodeSettings::new(ReplicaId(0), secret(0), membership(4));
        let stages: Stages<Pbft> =
            Stages::open(&settings, &MemStorage::default(), counter(), Instant(0)).unwrap();
        let engine = Engine::new(counter(), membership(4), 0);
        let chunks: Vec<_> = (0..CHUNKS).map(|i| (label(i).slice(1..), Bytes::new())).collect();
        let state = chunks_root(Suite::default(), &chunks);
        Self { stage: stages.log, out: Outbox::default(), engine, state, asked: Arc::default() }
    }

    fn snapshot(&mut self, seq: u64) {
        let asked = self.asked.clone();
        let chunks = (0..CHUNKS).map(move |i| {
            asked.fetch_add(1, Ordering::Relaxed);
            (label(i), Bytes::new())
        });
        let (checkpoint, snapshot) = (self.checkpoint(seq), Snapshot::new(0, chunks));
        self.tell(ToLog::Snapshot(StateAt { checkpoint, chain_bytes: 0, snapshot, app: "none" }));
    }

    fn certify(&mut self, seq: u64) {
        let checkpoint = self.checkpoint(seq);
        let certificate = CertifiedCheckpoint { checkpoint, signatures: vec![] };
        self.tell(ToLog::Certificate(Arc::new(certificate)));
    }

    fn checkpoint(&mut self, seq: u64) -> Checkpoint {
        Checkpoint { state: self.state, ..self.engine.checkpoint(SeqNum(seq)) }
    }

    fn tell(&mut self, command: ToLog) {
        self.stage.handle(command, &mut self.out).unwrap();
    }

    fn work(&mut self) {
        self.stage.work(&mut self.out).unwrap();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// How many snapshots it has.
    fn held(&self) -> usize {
        Arc::strong_count(&self.asked) - 1
    }

    fn passed_over(&self) -> usize {
        let passed = |said: &&ToOrder| matches!(said, ToOrder::Dropped("snapshot_passed_over"));
        self.out.order.iter().filter(passed).count()
    }
}

#[test]
fn they_are_let_go_of_in_bites() {
    let mut log = Log::open();
    // One waits for its certificate; the next is of no use then, and with a later one both are not.
    log.snapshot(1);
    log.snapshot(2);
    log.certify(3);
    let mut bites = 0;
    while log.stage.has_work() {
        let before = log.asked();
        log.work();
        let bite = log.asked() - before;
        assert!(bite <= 1024, "{bite} chunks at once");
        bites += 1;
    }
    assert_eq!((log.asked(), log.held()), (2 * CHUNKS, 0));
    assert!(bites >= 2 * CHUNKS / 1024, "{bites}");
}

/// Snapshots that come faster than any is written or let go of.
#[test]
fn only_a_few_are_in_memory() {
    let mut log = Log::open();
    for seq in 1..=50 {
        log.snapshot(seq);
        assert!(log.held() <= 5, "{} after {seq}", log.held());
        log.certify(seq);
    }
    // Whatever was passed over is gone, and nobody went through its chunks.
    assert_eq!((log.asked(), log.passed_over()), (0, 50 - log.held()));
    while log.stage.has_work() {
        log.work();
    }
    assert_eq!(log.held(), 0);
    // Now that there is room again, the next is taken in.
    let (asked, passed_over) = (log.asked(), log.passed_over());
    log.snapshot(51);
    log.certify(51);
    while log.stage.has_work() {
        log.work();
    }
    assert_eq!((log.asked() - asked, log.passed_over()), (CHUNKS, passed_over));
}
