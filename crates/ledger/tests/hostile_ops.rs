//! What a client writes into its operations is no block of the log, whatever bytes around it are
//! lost.

use crate::common;

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
    record_of(&header, b"")
}

/// The record of this header with this body.
fn record_of(header: &BlockHeader, body: &[u8]) -> Vec<u8> {
    let encoded = header.to_bytes();
    let mut head = b"TBLK".to_vec();
    head.extend(1u16.to_le_bytes());
    head.extend((encoded.len() as u16).to_le_bytes());
    head.extend((body.len() as u32).to_le_bytes());
    head.extend(header.height.0.to_le_bytes());
    head.extend(crc32fast::hash(body).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(&encoded);
    head.extend(crc.finalize().to_le_bytes());
    [&head, &encoded[..], body].concat()
}

/// Ten blocks, the sixth with this operation.
fn chain(op: &[u8]) -> Vec<(BlockHeader, Bytes)> {
    chain_of(|h, _| if h == 6 { op.to_vec() } else { vec![h as u8; 700] })
}

/// Ten blocks, each with the operation that `op` makes of its height and of the block before.
fn chain_of(op: impl Fn(u64, Digest) -> Vec<u8>) -> Vec<(BlockHeader, Bytes)> {
    let mut tip = (Height(0), Digest(CHAIN.0));
    let next = |h| {
        let block = block_after(tip, &batch(h, op(h, tip.1).into()));
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
    let at = place(all, 6);
    storage.edit(&segment(1), |bytes| {
        assert_eq!(bytes[at..at + 4], *b"TBLK");
        bytes[at / 512 * 512..at / 512 * 512 + 512].fill(0);
    });
    storage
}

/// Where block `height` begins.
fn place(all: &[(BlockHeader, Bytes)], height: usize) -> usize {
    96 + all[..height - 1].iter().map(|(_, body)| 28 + 167 + body.len()).sum::<usize>()
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

/// The hole has the certified block and the heads of those behind it, and the operation in one of
/// them a block that names the certified one as its parent.
#[test]
fn no_operation_is_taken_for_a_block_above_the_certificate() {
    let all = chain_of(|h, parent| match h {
        7 => behind(&[record(7, parent)]),
        _ => vec![h as u8; 700],
    });
    let mut storage = MemStorage::new();
    let (mut log, _) = open(&storage, 16);
    all.iter().for_each(|(header, body)| log.append(header, body).unwrap());
    log.put_certificate(&certify(checkpoint(&all[5].0), &[0, 1, 2])).unwrap();
    log.flush().unwrap();
    drop(log);
    let lost = place(&all, 6)..place(&all, 7) + 28 + 167;
    storage.edit(&segment(1), |bytes| bytes[lost].fill(0));
    let (log, _) = open(&storage, 16);
    assert_eq!(log.tip(), (Height(5), all[5].0.parent));
}

/// An operation holds earlier blocks, whole, and one with another body.
#[test]
fn a_copy_of_a_block_in_an_operation_does_no_harm() {
    let first = chain_of(|h, _| vec![h as u8; 700]);
    let copies = [
        record_of(&first[4].0, &first[4].1),
        record_of(&first[5].0, &first[5].1),
        record_of(&first[6].0, b"another"),
    ];
    let all = chain_of(|h, _| match h {
        8 => behind(&copies),
        _ => vec![h as u8; 700],
    });
    assert_eq!(all[6], first[6]);
    let mut log = open_left(&all).unwrap();
    // The sector had the end of block 5, too.
    let wanted = log.wanted().unwrap().unwrap();
    assert_eq!((wanted.from, wanted.to), (Height(5), Height(6)));
    assert_eq!(wanted.hash, all[6].0.parent);
    let block = |(header, body): &(BlockHeader, Bytes)| Block {
        header: header.clone(),
        body: body.clone(),
    };
    assert!(log.repair(&[block(&all[4]), block(&all[5])]).unwrap());
    assert_eq!(log.damage().0, 0);
    for known in &all {
        assert_eq!(log.read(known.0.height).unwrap(), Some(block(known)));
    }
}
