//! The faults of torn tails and of holes with their defences taken away: the tests would notice.
#![cfg(feature = "zoo")]

use crate::common;

use common::{CHAIN, certify, checkpoint, log_of, open, settings};
use tercio_ledger::{BlockLog, MemStorage, Wal, WalRecord, WalSettings};
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

/// Three certificates, of which the power leaves the last alone; gives how many are read back.
fn hole_in_certificates() -> Option<usize> {
    let (mut storage, all) = log_of(3, 4);
    let (mut log, _) = open(&storage, 4);
    for (header, _) in &all {
        log.put_certificate(&certify(checkpoint(header), &[0, 1, 2])).ok()?;
    }
    drop(log);
    let third = |bytes: &[u8]| 60 + (bytes.len() - 60) / 3 * 2;
    storage.edit("certificates", |bytes| {
        let end = third(bytes);
        bytes[60..end].fill(0);
    });
    let (log, _) = BlockLog::open(Box::new(storage), CHAIN, settings(4)).ok()?;
    log.latest_certificate().ok()?.map(|found| found.checkpoint.height.0 as usize)
}

#[test]
fn f49_without_salvage_a_hole_in_certificates_stops_the_start() {
    assert_eq!(hole_in_certificates(), Some(3));
    assert_eq!(without(Defence::F49SalvageSideFiles, hole_in_certificates), None);
}

/// Six blocks, none certified, of which the power loses the third; gives what is left.
fn hole_in_blocks() -> (u64, u64) {
    let (mut storage, all) = log_of(6, 8);
    let len = |i: usize| 28 + 167 + all[i].1.len();
    let start = 96 + len(0) + len(1);
    storage.edit(&common::segment(1), |bytes| bytes[start..start + len(2)].fill(0));
    let (log, _) = open(&storage, 8);
    (log.tip().0.0, log.damage().0)
}

#[test]
fn f50_a_hole_that_nobody_can_mend_stays_unless_it_is_a_tail() {
    assert_eq!(hole_in_blocks(), (2, 0));
    assert_eq!(without(Defence::F50UnsyncedHoleIsTail, hole_in_blocks), (6, 1));
}

/// A copy that gives another root is offered for lost results.
#[test]
fn f55_made_up_results_are_taken() {
    let take = || {
        let (mut storage, mut results) = crate::results::log_with(9, &[9]);
        storage.edit("results-00000000000000000001", |bytes| bytes[200] ^= 1);
        let (mut log, _) = open(&storage, 8);
        results.iter().take(2).for_each(|one| drop(log.results(one.height)));
        while !log.scrub(u64::MAX, 100).unwrap().1 {}
        let wanted = log.results_wanted().unwrap().unwrap();
        let mut copy = results.swap_remove(wanted.to.0 as usize - 1);
        copy.root.0[0] ^= 1;
        log.repair_results(&[copy], false).unwrap()
    };
    assert!(!take());
    assert!(without(Defence::F55ResultsByChain, take));
}
