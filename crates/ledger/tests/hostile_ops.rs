//! What a client writes into its operations is no block of the log, whatever bytes around it are
//! lost.

mod common;

use bytes::Bytes;
use common::{CHAIN, block_after, certify, checkpoint, open, segment};
use tercio_ledger::{Block, BlockLog, LedgerError, MemStorage};
use tercio_types::{
    Batch, BlockHeader, ClientId, Digest, EMPTY_ROOT, Epoch, Height, OpKind, ReplicaId, RequestSeq,
    SeqNum, SignatureBytes, Suite, Timestamp,
};
use tercio_wire::{Encode, block_hash, encode_package_content, package_from_content};

/// The batch of one operation.
fn batch(time: u64, op: Bytes) -> Batch {
    let mut content = Vec::new();
    let (client, first) = (ClientId(3), RequestSeq(time));
    encode_package_content(client, first, OpKind::User, ReplicaId(0), &[op], &mut content);
    let auth = SignatureBytes::new(&[9; 64]).unwrap().into();
    let package = package_from_content(&content.into(), auth, Suite::default()).unwrap();
    Batch { time: Timestamp(time), checkpoint: false, packages: vec![package] }
}

/// The record of a block that nobody ordered, as the log would write it.
fn record(height: u64, parent: Digest) -> Vec<u8> {
    let header = BlockHeader {
        suite: Suite::default(),
        epoch: Epoch(0),
        height: Height(height),
        seq: SeqNum(2 * height),
        parent,
        body: tercio_crypto::hash(Suite::default(), &[b""]),
        time: Timestamp(1),
        ops: 0,
        lag: 0,
        results: EMPTY_ROOT,
        state: EMPTY_ROOT,
    };
    let header = header.to_bytes();
    let mut head = b"TBLK".to_vec();
    head.extend(1u16.to_le_bytes());
    head.extend((header.len() as u16).to_le_bytes());
    head.extend(0u32.to_le_bytes());
    head.extend(height.to_le_bytes());
    head.extend(crc32fast::hash(b"").to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(&header);
    head.extend(crc.finalize().to_le_bytes());
    [head, header.to_vec()].concat()
}

/// Ten blocks, the sixth with this operation.
fn chain(op: &[u8]) -> Vec<(BlockHeader, Bytes)> {
    let mut tip = (Height(0), Digest(CHAIN.0));
    let next = |h| {
        let op = if h == 6 { op.to_vec() } else { vec![h as u8; 700] };
        let block = block_after(tip, &batch(h, op.into()));
        tip = (Height(h), block_hash(&block.0));
        block
    };
    (1..=10).map(next).collect()
}

/// What is left of them when the power fails while a replica catches up: it writes blocks, and the
/// certificate that came with them, and syncs later. One sector of the blocks did not get there, that
/// with the head of block 6.
fn left(all: &[(BlockHeader, Bytes)]) -> MemStorage {
    let mut storage = MemStorage::new();
    let (mut log, _) = open(&storage, 16);
    all.iter().for_each(|(header, body)| log.append(header, body).unwrap());
    log.put_certificate(&certify(checkpoint(&all[9].0), &[0, 1, 2])).unwrap();
    log.flush().unwrap();
    drop(log);
    let at = 96 + all[..5].iter().map(|(_, body)| 28 + 167 + body.len()).sum::<usize>();
    storage.edit(&segment(1), |bytes| {
        assert_eq!(bytes[at..at + 4], *b"TBLK");
        bytes[at / 512 * 512..at / 512 * 512 + 512].fill(0);
    });
    storage
}

fn open_left(all: &[(BlockHeader, Bytes)]) -> Result<BlockLog, LedgerError> {
    let storage = Box::new(left(all));
    BlockLog::open(storage, CHAIN, common::settings(16)).map(|(log, _)| log)
}

/// Behind enough other bytes that the lost sector does not reach it.
fn behind(records: &[Vec<u8>]) -> Vec<u8> {
    [vec![0; 600], records.concat()].concat()
}

#[test]
fn an_honest_operation_does_no_harm() {
    assert!(open_left(&chain(&behind(&[]))).is_ok());
}

#[test]
fn no_operation_keeps_a_replica_from_starting() {
    let pair = [record(7, Digest([1; 32])), record(8, Digest([2; 32]))];
    let opened = open_left(&chain(&behind(&pair)));
    assert!(opened.is_ok(), "{}", opened.err().unwrap());
}

#[test]
fn no_operation_keeps_a_log_from_being_mended() {
    let all = chain(&behind(&[record(7, Digest([1; 32]))]));
    let mut log = open_left(&all).unwrap();
    for _ in 0..100 {
        let Some(wanted) = log.wanted().unwrap() else { break };
        let run = &all[wanted.from.0 as usize - 1..wanted.to.0 as usize];
        let copies: Vec<_> = run
            .iter()
            .map(|(header, body)| Block { header: header.clone(), body: body.clone() })
            .collect();
        log.repair(&copies).unwrap();
    }
    assert_eq!(log.damage().0, 0, "first {:?}", log.first_damaged());
    for (header, _) in &all {
        assert_eq!(log.read(header.height).unwrap().unwrap().header, *header);
    }
}
