//! The write-ahead log: nothing synced is lost, recovery gives a prefix, damage is named.

use crate::common;

use common::{CHAIN, chooser};
use proptest::prelude::*;
use std::collections::VecDeque;
use tercio_ledger::{LedgerError, MemStorage, Removal, Storage, Wal, WalRecord, WalSettings};
use tercio_types::ChainId;

const SMALL: WalSettings = WalSettings { file_bytes: 200, ahead_bytes: 0 };
/// One file, without zeros ahead.
const PLAIN: WalSettings = WalSettings { file_bytes: 1 << 20, ahead_bytes: 0 };
/// One with zeros ahead.
const AHEAD: WalSettings = WalSettings { file_bytes: 1 << 20, ahead_bytes: 8192 };

fn open(storage: &MemStorage) -> Result<(Wal, Vec<WalRecord>), LedgerError> {
    open_with(storage, SMALL)
}

fn open_with(
    storage: &MemStorage,
    settings: WalSettings,
) -> Result<(Wal, Vec<WalRecord>), LedgerError> {
    Wal::open(Box::new(storage.clone()), CHAIN, settings)
}

fn record(i: u64) -> (u64, Vec<u8>) {
    (i, [i.to_le_bytes().to_vec(), vec![i as u8; (i % 40) as usize]].concat())
}

fn filled(count: u64, settings: WalSettings) -> MemStorage {
    let storage = MemStorage::new();
    let (mut wal, _) = Wal::open(Box::new(storage.clone()), CHAIN, settings).unwrap();
    for (tag, bytes) in (1..=count).map(record) {
        wal.append(tag, &bytes).unwrap();
        wal.flush().unwrap();
    }
    wal.sync().unwrap();
    storage
}

fn wal_files(storage: &MemStorage) -> Vec<String> {
    storage.list().unwrap()
}

fn assert_records(found: &[WalRecord], expected: impl Iterator<Item = u64>) {
    let found: Vec<_> = found.iter().map(|r| (r.tag, r.bytes.to_vec())).collect();
    assert_eq!(found, expected.map(record).collect::<Vec<_>>());
}

#[test]
fn records_come_back_in_order_over_several_files() {
    let storage = filled(40, SMALL);
    assert!(wal_files(&storage).len() > 5);
    let (wal, records) = open(&storage).unwrap();
    assert_records(&records, 1..=40);
    assert_eq!(wal.cut(), None);
}

/// f35: a tail that is torn at any byte is cut, and the log goes on behind it.
#[test]
fn a_tail_torn_at_every_byte_is_cut() {
    let whole = filled(4, PLAIN);
    let name = &wal_files(&whole)[0];
    let bytes = whole.contents(name).unwrap();
    // Where each record ends.
    let mut ends = vec![60];
    (1..=4).for_each(|i| ends.push(ends.last().unwrap() + 28 + record(i).1.len()));
    assert_eq!(*ends.last().unwrap(), bytes.len());
    for len in 0..bytes.len() {
        let mut storage = whole.fork();
        storage.edit(name, |bytes| bytes.truncate(len));
        let left = ends.iter().filter(|&&end| end <= len).count().saturating_sub(1) as u64;
        let (mut wal, records) = open(&storage).unwrap();
        assert_records(&records, 1..=left);
        assert_eq!(wal.cut().is_some(), !ends.contains(&len) && len > 0, "cut at {len}");
        wal.append(left + 1, &record(left + 1).1).unwrap();
        wal.sync().unwrap();
        storage.crash(&mut chooser(len as u64));
        assert_records(&open(&storage).unwrap().1, 1..=left + 1);
    }
}

/// A flipped bit is never read as another record, and in a closed file always an error that names
/// the file.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let whole = filled(12, SMALL);
    let names = wal_files(&whole);
    let (closed, last) = (&names[0], names.last().unwrap());
    for bit in 0..8 * whole.contents(closed).unwrap().len() {
        let mut storage = whole.fork();
        storage.edit(closed, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let error = open(&storage).err().unwrap_or_else(|| panic!("bit {bit} went unnoticed"));
        assert!(error.to_string().contains(closed.as_str()), "{error}");
    }
    let in_last = whole.contents(last).unwrap();
    let all = open(&whole.fork()).unwrap().1;
    for bit in 0..8 * in_last.len() {
        let mut storage = whole.fork();
        storage.edit(last, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        // Only the very last record may be taken for a torn one.
        if let Ok((_, records)) = open(&storage) {
            assert_eq!(records, all[..all.len() - 1], "bit {bit}");
        }
    }
}

#[test]
fn damage_in_the_middle_of_the_last_file_is_no_tail() {
    let mut storage = filled(4, PLAIN);
    let name = wal_files(&storage)[0].clone();
    storage.edit(&name, |bytes| bytes[60 + 4] ^= 1);
    match open(&storage).err() {
        Some(LedgerError::Damage { file, offset, .. }) => assert_eq!((file, offset), (name, 60)),
        other => panic!("{other:?}"),
    }
}

/// How many records each group of [`grouped`] has.
const GROUPS: [u64; 4] = [3, 40, 2, 60];

/// A file of several groups with zeros behind; gives where each group ends.
fn grouped() -> (MemStorage, Vec<usize>) {
    let storage = MemStorage::new();
    let (mut wal, _) = open_with(&storage, AHEAD).unwrap();
    let (mut tag, mut ends) = (0, vec![]);
    for count in GROUPS {
        for _ in 0..count {
            tag += 1;
            wal.append(tag, &record(tag).1).unwrap();
        }
        wal.sync().unwrap();
        ends.push(wal.current_bytes() as usize);
    }
    let len = storage.contents("wal-0000000001").unwrap().len();
    assert!(len > ends[3] + 1024, "{len} bytes: zeros follow the records");
    (storage, ends)
}

/// f35: a crash may leave any sectors of the last group and not others, whole records behind a hole
/// included. The groups before it come back, and of it what stands before the first hole; the log
/// goes on from there.
#[test]
fn a_hole_in_the_last_group_is_cut() {
    let (whole, ends) = grouped();
    let (begin, end) = (ends[2], ends[3]);
    let before: u64 = GROUPS[..3].iter().sum();
    let name = "wal-0000000001";
    let check = |what: &str, seed: usize, damage: &dyn Fn(&mut Vec<u8>)| {
        let mut storage = whole.fork();
        storage.edit(name, |bytes| damage(bytes));
        let (mut wal, records) =
            open_with(&storage, AHEAD).unwrap_or_else(|error| panic!("{what}: {error}"));
        let left = records.len() as u64;
        assert!(left >= before, "{what}: {left} records");
        assert_records(&records, 1..=left);
        wal.append(left + 1, &record(left + 1).1).unwrap();
        wal.sync().unwrap();
        storage.crash(&mut chooser(seed as u64));
        assert_records(&open_with(&storage, AHEAD).unwrap().1, 1..=left + 1);
    };
    // At every byte: nothing behind it, zeros behind it, a hole of a sector's length.
    for at in begin..end {
        check(&format!("cut at {at}"), at, &|bytes| bytes.truncate(at));
        check(&format!("zeros from {at}"), at, &|bytes| bytes[at..].fill(0));
        let hole = at..(at + 512).min(end);
        check(&format!("hole {hole:?}"), at, &|bytes| bytes[hole.clone()].fill(0));
    }
    // Every choice of sectors.
    let sectors = begin / 512..end.div_ceil(512);
    assert!(sectors.len() >= 6, "{sectors:?}");
    for lost in 0..1_u32 << sectors.len().min(10) {
        check(&format!("lost {lost:b}"), lost as usize, &|bytes| {
            for (i, sector) in sectors.clone().enumerate().filter(|(i, _)| lost >> i & 1 == 1) {
                let _ = i;
                bytes[(sector * 512).max(begin)..((sector + 1) * 512).min(end)].fill(0);
            }
        });
    }
}

/// What a later group shows to have been durable is damage when it is not whole.
#[test]
fn a_hole_before_a_later_group_is_damage() {
    let (whole, ends) = grouped();
    let name = "wal-0000000001";
    for len in [1, 16, 512] {
        for at in 0..ends[2] {
            let mut storage = whole.fork();
            let mut same = true;
            storage.edit(name, |bytes| {
                let hole = &mut bytes[at..(at + len).min(ends[2])];
                same = hole.iter().all(|byte| *byte == 0);
                hole.fill(0);
            });
            match open_with(&storage, AHEAD).err() {
                Some(LedgerError::Damage { file, .. }) => assert_eq!(file, name),
                None if same => {}
                other => panic!("a hole of {len} bytes at {at}: {other:?}"),
            }
        }
    }
}

/// Zeros end where a file is full, so that in a closed file they are damage; and a log with zeros
/// ahead is read as one without.
#[test]
fn a_closed_file_has_no_zeros_behind_its_records() {
    let settings = WalSettings { file_bytes: 3000, ahead_bytes: 1000 };
    let storage = filled(200, settings);
    let names = wal_files(&storage);
    assert!(names.len() > 3);
    let (wal, records) = open_with(&storage, settings).unwrap();
    assert_records(&records, 1..=200);
    assert_eq!(wal.cut(), None, "zeros made ahead are nothing that was cut");
    for (i, name) in names[..names.len() - 1].iter().enumerate() {
        let mut longer = storage.fork();
        longer.edit(name, |bytes| bytes.push(0));
        let error = open_with(&longer, settings).err().unwrap().to_string();
        assert!(error.contains(name.as_str()), "{i}: {error}");
    }
}

#[test]
fn a_payload_that_looks_like_a_record_does_not_make_a_tail_damage() {
    let donor = filled(1, PLAIN);
    let name = &wal_files(&donor)[0];
    let inner = donor.contents(name).unwrap()[60..].to_vec();
    let storage = MemStorage::new();
    let (mut wal, _) = open(&storage).unwrap();
    wal.append(5, &[inner.clone(), inner].concat()).unwrap();
    wal.sync().unwrap();
    let whole = storage.contents(name).unwrap().len();
    for len in 60..whole {
        let mut torn = storage.fork();
        torn.edit(name, |bytes| bytes.truncate(len));
        assert!(open(&torn).unwrap().1.is_empty(), "torn at {len}");
    }
}

#[test]
fn foreign_missing_and_newer_files_are_named() {
    let storage = filled(40, SMALL);
    let other = Wal::open(Box::new(storage.fork()), ChainId([1; 32]), SMALL).err();
    assert!(matches!(other, Some(LedgerError::Foreign { .. })), "{other:?}");
    let mut gap = storage.fork();
    gap.remove("wal-0000000003").unwrap();
    let error = open(&gap).err().unwrap().to_string();
    assert!(error.contains("wal-0000000003") && error.contains("missing"), "{error}");
    let mut newer = storage.fork();
    newer.edit("wal-0000000001", |bytes| {
        bytes[8] = 4;
        let crc = crc32fast::hash(&bytes[..56]);
        bytes[56..60].copy_from_slice(&crc.to_le_bytes());
    });
    let error = open(&newer).err();
    assert!(matches!(error, Some(LedgerError::Version { found: 4, .. })), "{error:?}");
}

/// Prunes, and removes what is to go at once; gives how many files.
fn prune(wal: &mut Wal, stable: u64) -> Result<usize, LedgerError> {
    wal.prune(stable)?.map_or(Ok(0), Removal::run)
}

#[test]
fn pruning_removes_what_is_stable_and_nothing_else() {
    let storage = filled(40, SMALL);
    let (mut wal, _) = open(&storage).unwrap();
    assert_eq!(prune(&mut wal, 0).unwrap(), 0);
    assert!(prune(&mut wal, 20).unwrap() > 0);
    let (_, records) = open(&storage).unwrap();
    assert!((21..=40).all(|i| records.iter().any(|r| r.tag == i)));
    assert!(records[0].tag > 10, "at most one file of stable records is left");
}

/// Wherever the power fails in pruning, no file is missing between two others.
#[test]
fn a_crash_in_pruning_leaves_no_gap() {
    for k in 0..14 {
        for seed in 0..20 {
            let mut storage = filled(40, SMALL);
            let (mut wal, _) = open(&storage).unwrap();
            storage.fail_in(k);
            let _ = prune(&mut wal, 35);
            storage.crash(&mut chooser(seed));
            let (_, records) = open(&storage).unwrap();
            assert_records(&records, records[0].tag..=40);
            assert!(records[0].tag <= 36);
        }
    }
}

/// Files that are to go are no longer the log's, which goes on meanwhile. When the process dies
/// before they went, the next finds them and lets them go again.
#[test]
fn what_is_to_go_may_stay_until_later() {
    let storage = filled(40, SMALL);
    let (mut wal, _) = open(&storage).unwrap();
    let files = wal_files(&storage).len();
    let removal = wal.prune(20).unwrap().expect("some are full of what is stable");
    assert!(wal.prune(20).unwrap().is_none(), "once");
    assert_eq!(wal_files(&storage).len(), files);
    wal.append(41, &record(41).1).unwrap();
    wal.sync().unwrap();
    drop((removal, wal));
    let (mut wal, records) = open(&storage).unwrap();
    assert_records(&records, 1..=41);
    let first = wal.prune(20).unwrap().expect("they are there again");
    wal.append(42, &record(42).1).unwrap();
    wal.sync().unwrap();
    let second = wal.prune(30).unwrap().expect("more are stable now");
    let gone = first.run().unwrap() + second.run().unwrap();
    assert!(gone > 2 && wal_files(&storage).len() <= files + 1 - gone);
    drop(wal);
    let records = open(&storage).unwrap().1;
    assert_records(&records, records[0].tag..=42);
    assert!(records[0].tag > 20);
}

#[test]
fn a_record_of_tag_zero_keeps_no_file() {
    let storage = MemStorage::new();
    let (mut wal, _) = open(&storage).unwrap();
    wal.append(0, &[1; 300]).unwrap();
    wal.flush().unwrap();
    wal.append(0, b"later").unwrap();
    assert_eq!(prune(&mut wal, 0).unwrap(), 1);
    // What supersedes it was made durable before it went.
    let mut storage = storage;
    storage.crash(&mut chooser(3));
    let (_, records) = open(&storage).unwrap();
    assert_eq!(records, [WalRecord { tag: 0, bytes: b"later"[..].into() }]);
}

/// What supersedes the older records may be in a file that was closed before they are pruned; it
/// stays, whatever its own file's tags are.
#[test]
fn the_last_record_of_tag_zero_stays() {
    let storage = MemStorage::new();
    let (mut wal, _) = open(&storage).unwrap();
    wal.append(3, b"old").unwrap();
    wal.append(0, &[7; 300]).unwrap();
    wal.flush().unwrap();
    assert_eq!(wal.closed_files(), 1);
    assert_eq!(prune(&mut wal, 9).unwrap(), 0);
    drop(wal);
    let (mut wal, records) = open(&storage).unwrap();
    assert_eq!(records.last().map(|r| r.bytes.len()), Some(300));
    assert_eq!(prune(&mut wal, 9).unwrap(), 0, "nor after a restart");
}

/// A log that was begun can be told from one that is gone, wherever the power fails.
#[test]
fn a_lost_log_is_blank() {
    for seed in 0..40 {
        let mut storage = MemStorage::new();
        let (mut wal, records) = open(&storage).unwrap();
        assert!(wal.is_blank() && records.is_empty());
        storage.fail_in(seed % 5);
        let begun = wal.begin().is_ok();
        storage.crash(&mut chooser(seed));
        let (wal, records) = open(&storage).unwrap();
        assert!(records.is_empty(), "the beginning is no record of the user's");
        assert!(!begun || !wal.is_blank());
        drop(wal);
        for name in wal_files(&storage) {
            storage.remove(&name).unwrap();
        }
        assert!(open(&storage).unwrap().0.is_blank());
    }
}

#[test]
fn one_write_a_flush() {
    let mut storage = MemStorage::new();
    let (mut wal, _) = open(&storage).unwrap();
    (1..=3).for_each(|i| wal.append(i, b"x").unwrap());
    storage.fail_in(1);
    wal.flush().unwrap();
    assert!(wal.sync().is_err(), "the sync is the second change");
}

/// A failed fsync may have lost what it should have written, so nothing is accepted after it; and
/// a restart of the process writes again what can still be read.
#[test]
fn a_failed_fsync_poisons_and_a_restart_writes_again() {
    let mut storage = filled(3, PLAIN);
    let (mut wal, _) = open(&storage).unwrap();
    wal.append(4, &record(4).1).unwrap();
    storage.fail_in(1);
    assert!(matches!(wal.sync(), Err(LedgerError::Io(_))));
    assert!(matches!(wal.append(5, b"x"), Err(LedgerError::Poisoned(_))));
    assert!(matches!(wal.flush(), Err(LedgerError::Poisoned(_))));
    assert!(matches!(wal.sync(), Err(LedgerError::Poisoned(_))));
    assert!(matches!(wal.prune(9), Err(LedgerError::Poisoned(_))));
    drop(wal);
    // The power fails: what was synced before is there.
    let mut dead = storage.fork();
    dead.crash(&mut chooser(1));
    assert!(open(&dead).unwrap().1.len() >= 3);
    // The process is restarted: it reads the fourth record from the page cache, and may rely on
    // it from then on.
    storage.kill();
    assert_records(&open(&storage).unwrap().1, 1..=4);
    storage.crash(&mut chooser(2));
    assert_records(&open(&storage).unwrap().1, 1..=4);
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing_synced() {
    for room in 0..120 {
        let mut storage = filled(3, PLAIN);
        let (mut wal, _) = open(&storage).unwrap();
        storage.full_after(room);
        wal.append(4, &[0; 97]).unwrap();
        let error = wal.sync().expect_err("121 bytes do not fit");
        assert!(error.to_string().contains("disk is full"), "{error}");
        assert!(matches!(wal.append(5, b"x"), Err(LedgerError::Poisoned(_))));
        storage.kill();
        assert_records(&open(&storage).unwrap().1, 1..=3);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append,
    Flush,
    Sync,
    Prune,
    Remove,
    Fail(u8),
    Crash(u64),
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Append),
        3 => Just(Step::Flush),
        2 => Just(Step::Sync),
        1 => Just(Step::Prune),
        1 => Just(Step::Remove),
        1 => (0..6u8).prop_map(Step::Fail),
        1 => any::<u64>().prop_map(Step::Crash),
        1 => Just(Step::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    /// Against a list: whatever happens, what comes back is a run of what was appended, from a
    /// place that pruning allowed to no less than what was synced (after a crash) or flushed
    /// (after a restart of the process).
    #[test]
    fn nothing_synced_is_ever_lost(
        steps in proptest::collection::vec(step(), 1..80),
        ahead_bytes in prop_oneof![Just(0), Just(1500)],
    ) {
        let file_bytes = if ahead_bytes == 0 { 200 } else { 4000 };
        let settings = WalSettings { file_bytes, ahead_bytes };
        let mut storage = MemStorage::new();
        let (mut wal, _) = open_with(&storage, settings).unwrap();
        // What is to go, and did not yet: it is forgotten when the process dies.
        let mut removals = VecDeque::new();
        let mut appended: u64 = 0;
        let (mut flushed, mut synced, mut stable) = (0, 0, 0);
        for step in steps {
            let outcome = match step {
                Step::Append => {
                    appended += 1;
                    let (tag, bytes) = record(appended);
                    wal.append(tag, &bytes)
                }
                // With zeros ahead a group is durable before the next is written.
                Step::Flush if ahead_bytes == 0 => wal.flush().map(|()| flushed = appended),
                Step::Flush => Ok(()),
                Step::Sync => wal.sync().map(|()| (flushed, synced) = (appended, appended)),
                Step::Prune => {
                    stable = appended / 2;
                    wal.prune(stable).map(|removal| removals.extend(removal))
                }
                Step::Remove => removals.pop_front().map_or(Ok(0), Removal::run).map(|_| ()),
                Step::Fail(k) => {
                    storage.fail_in(k.into());
                    Ok(())
                }
                Step::Crash(_) | Step::Kill => Ok(()),
            };
            let least = match (&step, &outcome) {
                (Step::Crash(seed), _) => {
                    storage.crash(&mut chooser(*seed));
                    synced
                }
                (Step::Kill, _) | (_, Err(_)) => {
                    storage.kill();
                    flushed
                }
                _ => continue,
            };
            let (again, records) = open_with(&storage, settings).unwrap();
            wal = again;
            removals.clear();
            if let (Some(first), Some(last)) = (records.first(), records.last()) {
                prop_assert!(first.tag <= stable + 1, "{} was pruned above {stable}", first.tag);
                prop_assert!(last.tag >= least && last.tag <= appended);
                assert_records(&records, first.tag..=last.tag);
                appended = last.tag;
            } else {
                prop_assert!(least <= stable);
                // Numbers go on where they were.
                appended = least.min(appended);
            }
            (flushed, synced) = (appended, appended);
        }
    }
}
