//! A small network that makes blocks, certificates and attestations, and a chooser from a seed.
#![allow(dead_code, reason = "each test file uses its part")]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{Instance, Keyring, SecretKey};
use tercio_ledger::{BlockLog, BlockLogSettings, MemStorage, Recovery, attestation_key};
use tercio_types::{
    Batch, BlockHeader, CertifiedCheckpoint, ChainId, Checkpoint, ClientId, Digest, EMPTY_ROOT,
    Epoch, FaultModel, Height, Member, Membership, OpKind, Principal, ReplicaId, RequestSeq,
    SeqNum, SignatureBytes, Suite, Timestamp,
};
use tercio_wire::{
    Encode, block_hash, checkpoint_key, encode_package_content, package_from_content,
};

pub(crate) const CHAIN: ChainId = ChainId([7; 32]);

/// Numbers that look random and are the same for one seed (splitmix64).
pub(crate) fn chooser(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |n| {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn secret(i: u16) -> SecretKey {
    SecretKey::from_seed([i as u8 + 1; 32])
}

pub(crate) fn membership() -> Arc<Membership> {
    let member = |i| Member { key: secret(i).public(), address: String::new() };
    let members = (0..4).map(member).collect();
    let (suite, model) = (Suite::default(), FaultModel::Byzantine);
    let clients = BTreeMap::new();
    Arc::new(Membership::new(CHAIN, Epoch(0), suite, model, members, clients).unwrap())
}

fn sign(replica: u16, said: &[u8; 52]) -> SignatureBytes {
    let me = Principal::Replica(ReplicaId(replica));
    Keyring::new(me, secret(replica), membership(), Instance(0)).sign(said)
}

/// A batch of one package with operations of these lengths.
pub(crate) fn batch(time: u64, lengths: &[usize]) -> Batch {
    let ops: Vec<Bytes> = lengths.iter().map(|&n| Bytes::from(vec![n as u8; n])).collect();
    let mut content = Vec::new();
    let (client, first) = (ClientId(3), RequestSeq(time));
    encode_package_content(client, first, OpKind::User, ReplicaId(0), &ops, &mut content);
    let auth = SignatureBytes::new(&[9; 64]).unwrap().into();
    let package = package_from_content(&content.into(), auth, Suite::default()).unwrap();
    Batch { time: Timestamp(time), checkpoint: false, packages: vec![package] }
}

/// The block after `parent`.
pub(crate) fn block_after(parent: (Height, Digest), batch: &Batch) -> (BlockHeader, Bytes) {
    let body = batch.to_bytes();
    let height = parent.0.next();
    let header = BlockHeader {
        suite: Suite::default(),
        epoch: Epoch(0),
        height,
        seq: SeqNum(2 * height.0),
        parent: parent.1,
        body: tercio_crypto::hash(Suite::default(), &[&body]),
        time: batch.time,
        ops: batch.ops() as u32,
        lag: 0,
        results: EMPTY_ROOT,
        state: EMPTY_ROOT,
    };
    (header, body)
}

/// A chain of `n` blocks; block h has h % 3 + 1 operations.
pub(crate) fn blocks(n: u64) -> Vec<(BlockHeader, Bytes)> {
    let mut tip = (Height(0), Digest(CHAIN.0));
    let mut all = Vec::new();
    for h in 1..=n {
        let lengths: Vec<usize> = (0..h % 3 + 1).map(|i| (h % 13 + i) as usize).collect();
        let block = block_after(tip, &batch(1000 + h, &lengths));
        tip = (Height(h), block_hash(&block.0));
        all.push(block);
    }
    all
}

pub(crate) fn checkpoint(header: &BlockHeader) -> Checkpoint {
    Checkpoint {
        seq: header.seq,
        height: header.height,
        block: block_hash(header),
        results: Digest([1; 32]),
        state: Digest([2; 32]),
        clients: Digest([3; 32]),
        membership: Digest([4; 32]),
        epoch: Epoch(0),
        time: header.time,
    }
}

pub(crate) fn certify(checkpoint: Checkpoint, signers: &[u16]) -> CertifiedCheckpoint {
    let signature = |&i: &u16| {
        let key = checkpoint_key(Suite::default(), ReplicaId(i), &checkpoint);
        (ReplicaId(i), sign(i, &key.to_array()))
    };
    let signatures = signers.iter().map(signature).collect();
    CertifiedCheckpoint { checkpoint, signatures }
}

pub(crate) fn attest(
    height: Height,
    block: Digest,
    signers: &[u16],
) -> Vec<(ReplicaId, SignatureBytes)> {
    let signature = |&i: &u16| {
        let key = attestation_key(ReplicaId(i), height, block);
        (ReplicaId(i), sign(i, &key.to_array()))
    };
    signers.iter().map(signature).collect()
}

pub(crate) fn settings(blocks_per_segment: u32) -> BlockLogSettings {
    BlockLogSettings { blocks_per_segment, ..BlockLogSettings::default() }
}

pub(crate) fn open(storage: &MemStorage, blocks_per_segment: u32) -> (BlockLog, Recovery) {
    BlockLog::open(Box::new(storage.clone()), CHAIN, settings(blocks_per_segment)).unwrap()
}

pub(crate) fn segment(first: u64) -> String {
    format!("blocks-{first:020}")
}

/// A log of `n` blocks, synced.
pub(crate) fn log_of(n: u64, blocks_per_segment: u32) -> (MemStorage, Vec<(BlockHeader, Bytes)>) {
    let storage = MemStorage::new();
    let (mut log, _) = open(&storage, blocks_per_segment);
    let all = blocks(n);
    all.iter().for_each(|(header, body)| log.append(header, body).unwrap());
    log.sync().unwrap();
    (storage, all)
}

/// The same, all of it certified.
pub(crate) fn certified_log_of(
    n: u64,
    blocks_per_segment: u32,
) -> (MemStorage, Vec<(BlockHeader, Bytes)>) {
    let (storage, all) = log_of(n, blocks_per_segment);
    certify_at(&storage, blocks_per_segment, &all, n);
    (storage, all)
}

/// Puts the certificate of a block.
pub(crate) fn certify_at(
    storage: &MemStorage,
    blocks_per_segment: u32,
    all: &[(BlockHeader, Bytes)],
    height: u64,
) {
    let (mut log, _) = open(storage, blocks_per_segment);
    let checkpoint = checkpoint(&all[height as usize - 1].0);
    log.put_certificate(&certify(checkpoint, &[0, 1, 2])).unwrap();
    log.sync().unwrap();
}
