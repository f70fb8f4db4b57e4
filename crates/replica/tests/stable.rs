//! What the log makes durable around a checkpoint, and in which order (rules P4 and P5 of
//! `docs/protocol/pbft.md`), with the power failing at every operation of the disk.

use crate::common;

use bytes::Bytes;
use common::{counter, membership, secret};
use std::sync::Arc;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{Instant, PersistId};
use tercio_execution::Engine;
use tercio_ledger::{BlockLog, BlockLogSettings, MemStorage, Wal, WalSettings};
use tercio_replica::stages::{LogStage, Outbox, Stages, ToLog, ToOrder};
use tercio_replica::{Durability, NodeError, NodeSettings};
use tercio_types::{
    Batch, CertifiedCheckpoint, Height, Package, ReplicaId, SeqNum, Suite, Timestamp,
};
use tercio_wire::EncodedBatch;

const STATE: &[u8] = b"what binds beyond the checkpoint";
const BLOCKS: u64 = 4;

fn open(disk: &MemStorage) -> LogStage {
    let mut settings = NodeSettings::new(ReplicaId(0), secret(0), membership(4));
    settings.durability = Durability::Sync;
    let stages: Stages<Pbft> = Stages::open(&settings, disk, counter(), Instant(0)).unwrap();
    stages.log
}

/// Blocks 1 to 4, as execution hands them to the log, and the certificate of the last.
fn chain() -> (Vec<ToLog>, Arc<CertifiedCheckpoint>) {
    let mut engine = Engine::new(counter(), membership(4), 0);
    let asker = common::Asker::new(common::CLIENT, &membership(4));
    let block = |seq: u64| {
        let packages: Vec<Package> = vec![asker.package(seq, 0, &[b"op"])];
        let batch = Batch { time: Timestamp(seq), checkpoint: false, packages };
        let batch = EncodedBatch::new(batch, Suite::default());
        let executed = engine.execute(SeqNum(seq), &batch.batch, batch.digest);
        ToLog::Block { header: executed.block.unwrap().header, body: batch.bytes }
    };
    let blocks = (1..=BLOCKS).map(block).collect();
    let checkpoint = engine.checkpoint(SeqNum(BLOCKS));
    (blocks, Arc::new(CertifiedCheckpoint { checkpoint, signatures: vec![] }))
}

fn promise(id: u64) -> ToLog {
    let record = Bytes::from(format!("promise {id}"));
    ToLog::Persist { id: PersistId(id), tag: SeqNum(id), record }
}

/// Hands it to the log, with a commit after each command whose number is in `commits`.
fn tell(log: &mut LogStage, commands: Vec<ToLog>, commits: u64) -> Result<Outbox, NodeError> {
    let mut out = Outbox::default();
    for (i, command) in commands.into_iter().enumerate() {
        log.handle(command, &mut out)?;
        if commits >> i & 1 == 1 {
            log.commit(true, &mut out)?;
        }
    }
    Ok(out)
}

/// How many blocks are there, the height of the latest certificate, and the records of promises.
fn found(disk: &MemStorage) -> (Height, Height, Vec<Bytes>) {
    let chain = membership(4).chain();
    let home = || Box::new(disk.clone());
    let (blocks, _) = BlockLog::open(home(), chain, BlockLogSettings::default()).unwrap();
    let certified = blocks.latest_certificate().unwrap();
    let (_, records) = Wal::open(home(), chain, WalSettings::default()).unwrap();
    let records = records.into_iter().map(|record| record.bytes).collect();
    (blocks.tip().0, certified.map_or(Height(0), |c| c.checkpoint.height), records)
}

/// P5: wherever the power fails, and wherever a commit falls, a record that stands for all before is
/// not known without the blocks and the certificate that it stands on.
#[test]
fn p5_the_record_of_a_stable_checkpoint_follows_what_it_stands_on() {
    let (mut with, mut without) = (0, 0);
    for commits in (0..8).map(|after| after << BLOCKS) {
        for operation in 0..12 {
            let mut disk = MemStorage::new();
            let mut log = open(&disk);
            let (mut commands, certificate) = chain();
            commands.push(promise(1));
            let record = Bytes::from_static(STATE);
            commands.push(ToLog::Stable { certificate, id: PersistId(2), record });
            commands.push(promise(3));
            disk.fail_in(operation);
            let failed = tell(&mut log, commands, commits).is_err();
            drop(log);
            disk.crash(&mut |_| 0);
            let (tip, certified, records) = found(&disk);
            if records.iter().any(|record| record == STATE) {
                with += u64::from(failed);
                assert_eq!((tip, certified), (Height(BLOCKS), Height(BLOCKS)), "at {operation}");
            } else {
                without += 1;
            }
        }
    }
    assert!(with > 0 && without > 0, "{with} with the record, {without} without");
}

/// P4: what a checkpoint is signed on is acknowledged when its blocks are durable, once, by the
/// commit that makes the records of its time durable.
#[test]
fn p4_blocks_are_durable_when_that_is_acknowledged() {
    for commits in (0..8).map(|after| after << (BLOCKS - 1)) {
        let mut disk = MemStorage::new();
        let mut log = open(&disk);
        let (mut commands, _) = chain();
        let height = Height(BLOCKS);
        commands.extend([promise(1), ToLog::PersistBlocks { id: PersistId(2), height }]);
        let out = tell(&mut log, commands, commits).unwrap();
        let last = out.order.iter().rev().find_map(|said| match said {
            ToOrder::Persisted(id) => Some(*id),
            _ => None,
        });
        drop(log);
        disk.crash(&mut |_| 0);
        let (tip, _, records) = found(&disk);
        if last >= Some(PersistId(1)) {
            assert_eq!(records, ["promise 1"]);
        }
        let durable = commits >> (BLOCKS + 1) & 1 == 1;
        assert_eq!(last == Some(PersistId(2)), durable);
        assert!(!durable || tip == height, "{tip} of {height}");
    }
}
