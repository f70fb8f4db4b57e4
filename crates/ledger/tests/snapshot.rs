//! Snapshots: whole or not there, two are kept and those that are read, every byte counts.

use crate::common;

use bytes::Bytes;
use common::{CHAIN, blocks, certify, checkpoint, chooser};
use tercio_ledger::{
    Child, LedgerError, MemStorage, Removal, SnapshotHead, SnapshotRecord, SnapshotStore, Storage,
    StoredSnapshot,
};
use tercio_types::{ChainId, Digest};

fn open(storage: &MemStorage) -> SnapshotStore {
    SnapshotStore::open(Box::new(storage.clone()), CHAIN).unwrap()
}

fn snapshot(height: usize, chunks: usize, size: usize) -> StoredSnapshot {
    let checkpoint = checkpoint(&blocks(height as u64)[height - 1].0);
    let head =
        SnapshotHead { certificate: certify(checkpoint, &[0, 1, 2]), chain_bytes: height as u64 };
    let chunk = |i: usize| (Bytes::from(format!("part {i}")), Bytes::from(vec![i as u8; size]));
    StoredSnapshot { head, chunks: (0..chunks).map(chunk).collect() }
}

fn digest(i: usize) -> Digest {
    Digest([i as u8; 32])
}

/// Writes a snapshot with a tree that leans to the left.
fn write(store: &mut SnapshotStore, snapshot: &StoredSnapshot) -> Result<(), LedgerError> {
    if !store.begin(&snapshot.head)? {
        return Ok(());
    }
    let mut root: Option<Child> = None;
    for (i, (label, data)) in snapshot.chunks.iter().enumerate() {
        let leaf = Child { offset: store.push_chunk(label, digest(i), data), digest: digest(i) };
        root = Some(match root {
            None => leaf,
            Some(left) => Child { offset: store.push_node([left, leaf]), digest: digest(100 + i) },
        });
        if store.buffered() > 500_000 {
            store.flush()?;
        }
    }
    store.finish(&[(b'a', root.unwrap().offset)])?.map_or(Ok(0), Removal::run).map(|_| ())
}

#[test]
fn the_last_two_are_kept_and_read_back() {
    let storage = MemStorage::new();
    let mut store = open(&storage);
    assert_eq!(store.latest().unwrap(), None);
    for height in 1..=4 {
        let written = snapshot(height, height, 700_000);
        write(&mut store, &written).unwrap();
        assert_eq!(store.latest().unwrap(), Some(written));
    }
    let store = open(&storage);
    assert_eq!(store.kept().len(), 2);
    assert_eq!(store.latest().unwrap(), Some(snapshot(4, 4, 700_000)));
    assert_eq!(store.read(store.kept()[0]).unwrap(), snapshot(3, 3, 700_000));
    assert_eq!(storage.list().unwrap().len(), 2);
}

#[test]
fn records_are_read_by_their_offsets() {
    let storage = MemStorage::new();
    let mut store = open(&storage);
    let written = snapshot(1, 5, 300);
    write(&mut store, &written).unwrap();
    let seq = store.kept()[0];
    assert_eq!(store.head(seq).unwrap().0, written.head);
    let mut found = Vec::new();
    let mut open = store.roots(seq).unwrap();
    while let Some((_, at)) = open.pop() {
        match store.record(seq, at).unwrap() {
            SnapshotRecord::Node([left, right]) => {
                open.extend([(b'a', right.offset), (b'a', left.offset)]);
            }
            SnapshotRecord::Chunk { label, digest: named, at, len } => {
                assert_eq!(named, digest(found.len()));
                found.push((label, store.data(seq, at, len as usize).unwrap()));
            }
        }
    }
    assert_eq!(found, written.chunks);
    assert!(store.record(seq, 7).is_err());
}

/// A snapshot that somebody reads stays while he does; one that nobody reads any more goes.
#[test]
fn what_is_read_is_kept() {
    let storage = MemStorage::new();
    let mut store = open(&storage);
    write(&mut store, &snapshot(1, 1, 9)).unwrap();
    let first = store.kept()[0];
    for height in 2..6 {
        store.roots(first).unwrap();
        write(&mut store, &snapshot(height, 1, 9)).unwrap();
        assert!(store.kept().contains(&first) && store.kept().len() <= 3);
    }
    write(&mut store, &snapshot(6, 1, 9)).unwrap();
    write(&mut store, &snapshot(7, 1, 9)).unwrap();
    assert!(!store.kept().contains(&first) && store.kept().len() == 2);
    for height in 8..20 {
        let all = store.kept().to_vec();
        all.iter().for_each(|seq| drop(store.roots(*seq).unwrap()));
        write(&mut store, &snapshot(height, 1, 9)).unwrap();
        assert!(store.kept().len() <= 4);
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let mut storage = MemStorage::new();
    let written = snapshot(1, 3, 5);
    write(&mut open(&storage), &written).unwrap();
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
    for k in 0..10 {
        for seed in 0..20 {
            let mut storage = MemStorage::new();
            let (old, new) = (snapshot(1, 2, 50), snapshot(2, 3, 600_000));
            write(&mut open(&storage), &old).unwrap();
            let mut store = open(&storage);
            storage.fail_in(k);
            let done = write(&mut store, &new);
            if done.is_err() {
                let again = write(&mut store, &new);
                assert!(matches!(again, Err(LedgerError::Poisoned(_))));
            }
            storage.crash(&mut chooser(seed));
            let latest = open(&storage).latest().unwrap();
            assert!(latest == Some(new) || (latest == Some(old) && done.is_err()));
        }
    }
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let storage = MemStorage::new();
    let mut store = open(&storage);
    assert!(store.begin(&snapshot(1, 1, 1).head).unwrap());
    store.push_chunk(b"x", digest(1), b"data");
    store.flush().unwrap();
    write(&mut store, &snapshot(2, 1, 1)).unwrap();
    assert_eq!(storage.list().unwrap().len(), 1);
    assert!(!store.begin(&snapshot(2, 1, 1).head).unwrap(), "it is there already");
}

#[test]
fn another_chain_is_foreign() {
    let storage = MemStorage::new();
    write(&mut open(&storage), &snapshot(1, 1, 1)).unwrap();
    let store = SnapshotStore::open(Box::new(storage), ChainId([1; 32])).unwrap();
    assert!(matches!(store.latest(), Err(LedgerError::Foreign { .. })));
}
