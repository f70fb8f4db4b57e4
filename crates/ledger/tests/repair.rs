//! Damage in the midst of the block log is mended with copies from others, and nothing else is
//! taken for one.

use crate::common;

use common::{
    CHAIN, block_after, blocks, certified_log_of, chooser, membership, segment, settings,
};
use tercio_ledger::{Block, BlockLog, MemStorage, Storage, audit};
use tercio_types::{Digest, Height};

/// Blocks that are all certified, so that what is wrong with them is no torn tail.
fn log_of(count: u64) -> (MemStorage, Vec<Block>) {
    let (storage, all) = certified_log_of(count, 4);
    (storage, all.into_iter().map(|(header, body)| Block { header, body }).collect())
}

fn open(storage: &MemStorage) -> BlockLog {
    BlockLog::open(Box::new(storage.clone()), CHAIN, settings(4)).unwrap().0
}

/// Gives the log what it asks for, until it asks for nothing.
fn mend(log: &mut BlockLog, all: &[Block]) -> u64 {
    let mut asked = 0;
    while let Some(wanted) = log.wanted().unwrap() {
        asked += 1;
        assert!(asked < 100, "{wanted:?}");
        let run = &all[wanted.from.0 as usize - 1..wanted.to.0 as usize];
        assert!(log.repair(run).unwrap());
    }
    asked
}

fn files(storage: &MemStorage) -> Vec<(String, Vec<u8>)> {
    let names = storage.list().unwrap();
    names.into_iter().map(|name| (name.clone(), storage.contents(&name).unwrap())).collect()
}

fn holds(log: &BlockLog, all: &[Block]) {
    for block in all {
        assert_eq!(log.read(block.header.height).unwrap().as_ref(), Some(block));
    }
}

/// Whatever byte is flipped, wherever the log is not merely torn: once it is found, it is mended,
/// the file is what it was to the last byte, and the log goes on.
#[test]
fn every_flipped_byte_is_found_and_mended() {
    let (whole, all) = log_of(11);
    let next = blocks(12).pop().unwrap();
    let before = files(&whole);
    let mut refused = 0;
    for first in [1, 5, 9] {
        let len = whole.contents(&segment(first)).unwrap().len();
        for at in (0..len).step_by(7) {
            let mut storage = whole.fork();
            storage.edit(&segment(first), |bytes| bytes[at] ^= 0x20);
            let Ok((mut log, recovery)) =
                BlockLog::open(Box::new(storage.clone()), CHAIN, settings(4))
            else {
                // Nothing says what the header of the first segment was.
                assert!(at < 96 && first == 1, "byte {at} of {first}");
                refused += 1;
                continue;
            };
            if at < 96 && first == 9 {
                // What that of the last was is known.
                assert_eq!(files(&storage), before, "byte {at} of segment {first}");
            }
            if !recovery.cuts.is_empty() {
                assert_eq!(first, 9, "only the end can be taken for a torn tail");
                continue;
            }
            log.scrub(u64::MAX, u64::MAX).unwrap();
            let (damaged, _) = log.damage();
            assert!(
                damaged > 0 || (at < 96 && first == 9),
                "byte {at} of segment {first} goes unnoticed"
            );
            mend(&mut log, &all);
            let (left, mended) = log.damage();
            assert_eq!(left, 0);
            assert!(mended >= damaged);
            holds(&log, &all);
            assert_eq!(files(&storage), before, "byte {at} of segment {first}");
            log.append(&next.0, &next.1).unwrap();
            log.sync().unwrap();
            storage.crash(&mut chooser(at as u64));
            holds(&open(&storage), &all);
            audit(&storage, &membership(), &mut |_| {}).unwrap();
        }
    }
    assert!(refused > 0);
}

fn all_hash(all: &[Block]) -> Digest {
    tercio_wire::block_hash(&all.last().unwrap().header)
}

/// The header of the lowest segment is lost while the log is open, with some of its blocks or without:
/// those say what it was.
#[test]
fn a_lowest_segment_without_header_is_made_again() {
    let (whole, all) = log_of(11);
    let before = files(&whole);
    for places in [&[10][..], &[10, 150], &[10, 300]] {
        let mut storage = whole.fork();
        let mut log = open(&storage);
        for &at in places {
            storage.edit(&segment(1), |bytes| bytes[at] ^= 0x20);
        }
        log.scrub(u64::MAX, u64::MAX).unwrap();
        // A replica may find out by a read, too.
        log.note_damage(Height(2));
        mend(&mut log, &all);
        assert_eq!(log.damage().0, 0);
        assert_eq!(files(&storage), before, "{places:?}");
    }
}

/// A whole file that is gone, or has another's bytes.
#[test]
fn a_lost_segment_is_made_again() {
    let (whole, all) = log_of(18);
    let before = files(&whole);
    let ways: [fn(&mut MemStorage); 3] = [
        |storage| storage.remove(&segment(5)).unwrap(),
        |storage| storage.edit(&segment(5), |bytes| bytes.fill(0)),
        |storage| storage.edit(&segment(5), |bytes| bytes.truncate(300)),
    ];
    for break_it in ways {
        let mut storage = whole.fork();
        break_it(&mut storage);
        let mut log = open(&storage);
        assert_eq!((log.first_damaged(), log.damage().0), (Some(Height(5)), 4));
        assert!(mend(&mut log, &all) >= 1);
        assert_eq!(files(&storage), before);
        audit(&storage, &membership(), &mut |_| {}).unwrap();
    }
}

/// Copies that are not what was lost are refused, and the log stays as it is.
#[test]
fn false_copies_are_refused() {
    let (mut storage, all) = log_of(11);
    storage.edit(&segment(5), |bytes| bytes[400] ^= 1);
    let mut log = open(&storage);
    log.scrub(u64::MAX, u64::MAX).unwrap();
    let damaged = files(&storage);
    let wanted = log.wanted().unwrap().unwrap();
    assert_eq!((wanted.from, wanted.to), (Height(5), Height(5)));
    let mut other = all[4].clone();
    other.body = all[6].body.clone();
    let (header, body) = block_after((Height(4), all_hash(&all[..4])), &common::batch(77, &[2]));
    for copies in
        [vec![other], vec![Block { header, body }], vec![all[5].clone()], all[3..5].into()]
    {
        assert!(!log.repair(&copies).unwrap());
    }
    assert_eq!(files(&storage), damaged);
    assert!(log.repair(&all[4..5]).unwrap());
    holds(&log, &all);
}

/// Wherever the power fails in mending, the log opens, and can be mended.
#[test]
fn a_crash_in_mending_leaves_the_old_file_or_the_new_one() {
    let (whole, all) = log_of(11);
    let before = files(&whole);
    for first in [5, 9] {
        for k in 0..12 {
            for seed in 0..10 {
                let mut storage = whole.fork();
                storage.edit(&segment(first), |bytes| bytes[400] ^= 1);
                let mut log = open(&storage);
                log.scrub(u64::MAX, u64::MAX).unwrap();
                storage.fail_in(k);
                let wanted = log.wanted().unwrap().unwrap();
                let run = &all[wanted.from.0 as usize - 1..wanted.to.0 as usize];
                let _ = log.repair(run);
                storage.crash(&mut chooser(seed));
                let mut log = open(&storage);
                log.scrub(u64::MAX, u64::MAX).unwrap();
                mend(&mut log, &all);
                drop(log);
                assert_eq!(files(&storage), before);
            }
        }
    }
}

/// What looking at a record counts beside its bytes.
const PAGE: u64 = 4 << 10;

/// Of small blocks it looks at as many as it may; and it says when it was at the end.
#[test]
fn scrubbing_counts_blocks_too() {
    let (storage, all) = log_of(11);
    let mut log = open(&storage);
    for _ in 0..3 {
        let took: Vec<_> = (0..4).map(|_| log.scrub(u64::MAX, 4).unwrap()).collect();
        let len = |blocks: &[Block]| blocks.iter().map(|b| b.body.len() as u64 + PAGE).sum::<u64>();
        assert_eq!(took[0], (len(&all[..4]), false));
        assert_eq!(took[1], (len(&all[4..8]), false));
        assert_eq!(took[2], (len(&all[8..]), true));
        assert_eq!(took[3], (len(&all[..4]), false), "it begins again");
        while !log.scrub(u64::MAX, 4).unwrap().1 {}
    }
}

/// Scrubbing takes as much as it may, and begins again at the end.
#[test]
fn scrubbing_is_gentle_and_never_ends() {
    let (mut storage, all) = log_of(11);
    let mut log = open(&storage);
    let mut calls = 0;
    for _ in 0..3 {
        loop {
            calls += 1;
            assert!(log.scrub(600, u64::MAX).unwrap().0 < 600 + PAGE + 200);
            if log.damage().0 > 0 || calls > 200 {
                break;
            }
            if calls == 20 {
                storage.edit(&segment(1), |bytes| bytes[400] ^= 1);
            }
        }
    }
    assert_eq!(log.damage().0, 1);
    mend(&mut log, &all);
    holds(&log, &all);
}
