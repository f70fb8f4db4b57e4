//! The fault of torn tails with its defences taken away: the tests would notice.
#![cfg(feature = "zoo")]

mod common;

use common::CHAIN;
use tercio_ledger::{MemStorage, Wal, WalRecord, WalSettings};
use tercio_types::zoo::{Defence, without};

/// Writes two promises, tears the second, promises once more after the restart, and reads back.
fn scenario() -> Option<Vec<WalRecord>> {
    let mut storage = MemStorage::new();
    let settings = WalSettings { ahead_bytes: 0, ..WalSettings::default() };
    let (mut wal, _) = Wal::open(Box::new(storage.clone()), CHAIN, settings).ok()?;
    wal.append(1, b"first").ok()?;
    wal.append(2, b"second").ok()?;
    wal.sync().ok()?;
    storage.edit("wal-0000000001", |bytes| bytes.truncate(bytes.len() - 3));
    let (mut wal, _) = Wal::open(Box::new(storage.clone()), CHAIN, settings).ok()?;
    wal.append(3, b"third").ok()?;
    wal.sync().ok()?;
    Wal::open(Box::new(storage), CHAIN, settings).ok().map(|(_, records)| records)
}

#[test]
fn f35_an_uncut_tail_loses_what_is_promised_after_it() {
    let tags = |records: Vec<WalRecord>| records.iter().map(|r| r.tag).collect::<Vec<_>>();
    assert_eq!(scenario().map(tags), Some(vec![1, 3]));
    let broken = without(Defence::F35CutTornTail, scenario).map(tags);
    assert_ne!(broken, Some(vec![1, 3]));
}

/// Writes a promise, then a group of three of which the power leaves all but the first.
fn hole() -> Option<Vec<WalRecord>> {
    let mut storage = MemStorage::new();
    let settings = WalSettings::default();
    let (mut wal, _) = Wal::open(Box::new(storage.clone()), CHAIN, settings).ok()?;
    wal.append(1, b"first").ok()?;
    wal.sync().ok()?;
    let begin = wal.current_bytes() as usize;
    (2..=4).for_each(|tag| wal.append(tag, b"later").unwrap());
    wal.sync().ok()?;
    storage.edit("wal-0000000001", |bytes| bytes[begin..begin + 20].fill(0));
    Wal::open(Box::new(storage), CHAIN, settings).ok().map(|(_, records)| records)
}

#[test]
fn f35_without_groups_a_hole_in_the_last_looks_like_damage() {
    assert_eq!(hole().map(|records| records.len()), Some(1));
    assert_eq!(without(Defence::F35HoleInGroup, hole), None);
}
