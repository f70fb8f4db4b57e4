//! Snapshots: whole or not there, two are kept, every byte counts.

mod common;

use bytes::Bytes;
use common::{CHAIN, blocks, checkpoint, chooser};
use tercio_ledger::{LedgerError, MemStorage, Snapshot, SnapshotStore, Storage};
use tercio_types::ChainId;

fn open(storage: &MemStorage) -> SnapshotStore {
    SnapshotStore::open(Box::new(storage.clone()), CHAIN).unwrap()
}

fn snapshot(height: usize, chunks: usize, size: usize) -> Snapshot {
    let checkpoint = checkpoint(&blocks(height as u64)[height - 1].0);
    let chunk = |i: usize| (Bytes::from(format!("part {i}")), Bytes::from(vec![i as u8; size]));
    Snapshot { checkpoint, chunks: (0..chunks).map(chunk).collect() }
}

#[test]
fn the_last_two_are_kept_and_read_back() {
    let storage = MemStorage::new();
    let mut store = open(&storage);
    assert_eq!(store.latest().unwrap(), None);
    for height in 1..=4 {
        let written = snapshot(height, height, 700_000);
        store.write(&written.checkpoint, written.chunks.clone()).unwrap();
        assert_eq!(store.latest().unwrap(), Some(written));
    }
    let store = open(&storage);
    assert_eq!(store.kept().len(), 2);
    assert_eq!(store.latest().unwrap(), Some(snapshot(4, 4, 700_000)));
    assert_eq!(store.read(store.kept()[0]).unwrap(), snapshot(3, 3, 700_000));
    assert_eq!(storage.list().unwrap().len(), 2);
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let mut storage = MemStorage::new();
    let written = snapshot(1, 2, 5);
    open(&storage).write(&written.checkpoint, written.chunks).unwrap();
    let name = storage.list().unwrap()[0].clone();
    let len = storage.contents(&name).unwrap().len();
    let damaged = |storage: &MemStorage| open(storage).latest().is_err();
    for bit in 0..8 * len {
        storage.edit(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        assert!(damaged(&storage), "bit {bit}");
        storage.edit(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
    }
    for cut in 0..len {
        let mut storage = storage.fork();
        storage.edit(&name, |bytes| bytes.truncate(cut));
        assert!(damaged(&storage), "cut at {cut}");
    }
    storage.edit(&name, |bytes| bytes.push(0));
    assert!(damaged(&storage));
}

/// Wherever writing fails and the power with it, the snapshot before is there, or the new one.
#[test]
fn a_snapshot_is_whole_or_not_there() {
    for k in 0..8 {
        for seed in 0..20 {
            let mut storage = MemStorage::new();
            let (old, new) = (snapshot(1, 2, 50), snapshot(2, 3, 600_000));
            open(&storage).write(&old.checkpoint, old.chunks.clone()).unwrap();
            let mut store = open(&storage);
            storage.fail_in(k);
            let done = store.write(&new.checkpoint, new.chunks.clone());
            if done.is_err() {
                let again = store.write(&new.checkpoint, new.chunks.clone());
                assert!(matches!(again, Err(LedgerError::Poisoned(_))));
            }
            storage.crash(&mut chooser(seed));
            let latest = open(&storage).latest().unwrap();
            assert!(latest == Some(new) || (latest == Some(old) && done.is_err()));
        }
    }
}

#[test]
fn another_chain_is_foreign() {
    let storage = MemStorage::new();
    let written = snapshot(1, 1, 1);
    open(&storage).write(&written.checkpoint, written.chunks).unwrap();
    let store = SnapshotStore::open(Box::new(storage), ChainId([1; 32])).unwrap();
    assert!(matches!(store.latest(), Err(LedgerError::Foreign { .. })));
}
