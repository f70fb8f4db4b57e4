//! What a power failure leaves of blocks that were written and not synced: a hole above the latest
//! certificate is a torn tail, and one below it is damage.

use crate::common;

use bytes::Bytes;
use common::{
    CHAIN, blocks, certify, certify_at, checkpoint, chooser, log_of, open, segment, settings,
};
use std::ops::Range;
use tercio_ledger::{
    Block, BlockLog, LedgerError, MediaFault, MemStorage, Recovery, Removal, Storage, audit,
};
use tercio_types::{BlockHeader, CertifiedCheckpoint, Height};
use tercio_wire::block_hash;

type Blocks = [(BlockHeader, Bytes)];

fn block((header, body): &(BlockHeader, Bytes)) -> Block {
    Block { header: header.clone(), body: body.clone() }
}

/// Where block `height` stands in the segment that begins with `first`.
fn place(all: &Blocks, first: u64, height: u64) -> Range<usize> {
    let len = |h: u64| 28 + 167 + all[h as usize - 1].1.len();
    let start = 96 + (first..height).map(len).sum::<usize>();
    start..start + len(height)
}

fn zero(storage: &mut MemStorage, first: u64, range: Range<usize>) {
    storage.edit(&segment(first), |bytes| bytes[range].fill(0));
}

/// The blocks from `first` on are there, and no others; what follows them is appended and read back.
fn goes_on(storage: &MemStorage, capacity: u32, all: &Blocks, first: u64, tip: u64) {
    let (mut log, _) = open(storage, capacity);
    assert_eq!((log.first_height(), log.tip().0), (Height(first), Height(tip)));
    assert_eq!(log.damage(), (0, 0));
    all[tip as usize..].iter().for_each(|(header, body)| log.append(header, body).unwrap());
    log.sync().unwrap();
    drop(log);
    let mut storage = storage.clone();
    storage.crash(&mut |_| 0);
    let (log, recovery) = open(&storage, capacity);
    assert_eq!(recovery.cuts, []);
    for known in &all[first as usize - 1..] {
        assert_eq!(log.read(known.0.height).unwrap(), Some(block(known)));
    }
    audit(&storage, &common::membership(), &mut |_| {}).unwrap();
}

/// Gives the log all that it lacks.
fn mend(log: &mut BlockLog, all: &Blocks) {
    while let Some(wanted) = log.wanted().unwrap() {
        let run = &all[wanted.from.0 as usize - 1..wanted.to.0 as usize];
        let copies: Vec<_> = run.iter().map(block).collect();
        assert!(log.repair(&copies).unwrap(), "{wanted:?}");
    }
    assert_eq!(log.damage().0, 0);
}

/// Ten blocks in a segment that takes 16; with one certificate, or none.
fn ten(certified: Option<u64>) -> (MemStorage, Vec<(BlockHeader, Bytes)>) {
    let (storage, all) = log_of(10, 16);
    certified.into_iter().for_each(|height| certify_at(&storage, 16, &all, height));
    (storage, all)
}

#[test]
fn a_hole_above_the_certificate_is_a_torn_tail() {
    for certified in [None, Some(1), Some(4), Some(5)] {
        let (mut storage, all) = ten(certified);
        let hole = place(&all, 1, 6);
        zero(&mut storage, 1, hole.start + 3..hole.end - 5);
        let (log, recovery) = open(&storage, 16);
        assert_eq!(log.head().map(|(height, ..)| height), Some(Height(5)), "{certified:?}");
        assert_eq!((recovery.cuts.len(), recovery.cuts[0].at), (1, hole.start as u64));
        drop(log);
        goes_on(&storage, 16, &all, 1, 5);
    }
}

#[test]
fn a_hole_up_to_the_certificate_is_damage_and_is_mended() {
    // What is above the certificate hangs on nothing.
    for certified in [7, 10] {
        let (mut storage, all) = ten(None);
        let (mut log, _) = open(&storage, 16);
        log.put_certificate(&certify(checkpoint(&all[certified - 1].0), &[0, 1, 2])).unwrap();
        log.sync().unwrap();
        drop(log);
        zero(&mut storage, 1, place(&all, 1, 6));
        let (mut log, recovery) = open(&storage, 16);
        let tip = Height(certified as u64);
        assert_eq!((log.tip().0, recovery.cuts.len()), (tip, usize::from(certified < 10)));
        assert_eq!((log.first_damaged(), log.damage().0), (Some(Height(6)), 1));
        mend(&mut log, &all);
        drop(log);
        goes_on(&storage, 16, &all, 1, tip.0);
    }
}

/// The certified block is in the hole, or not there at all: it comes from others as those above it.
#[test]
fn behind_a_hole_that_no_certificate_ends_nothing_counts() {
    for certified in [6, 12] {
        let (mut storage, all) = ten(None);
        let (mut log, _) = open(&storage, 16);
        let there = checkpoint(&blocks(12)[certified - 1].0);
        log.put_certificate(&certify(there, &[0, 1, 2])).unwrap();
        log.sync().unwrap();
        drop(log);
        zero(&mut storage, 1, place(&all, 1, 6));
        goes_on(&storage, 16, &all, 1, 5);
    }
}

/// Two holes: what hangs between them is lost too, but for what an earlier certificate proves.
#[test]
fn between_two_holes_only_certified_blocks_count() {
    for (between, damaged) in [(None, vec![3, 4, 5, 6, 7]), (Some(5), vec![3, 6, 7])] {
        let (mut storage, all) = ten(between);
        certify_at(&storage, 16, &all, 10);
        for height in [3, 7] {
            zero(&mut storage, 1, place(&all, 1, height));
        }
        let (mut log, _) = open(&storage, 16);
        let lost = |h: &u64| log.read(Height(*h)).is_err();
        assert_eq!((1..=10).filter(lost).collect::<Vec<_>>(), damaged);
        mend(&mut log, &all);
        drop(log);
        goes_on(&storage, 16, &all, 1, 10);
    }
}

/// The certified block in it comes from others as those above it do.
#[test]
fn a_hole_across_the_certificate_is_a_torn_tail() {
    let (mut storage, all) = ten(Some(6));
    zero(&mut storage, 1, place(&all, 1, 5).start..place(&all, 1, 7).end);
    goes_on(&storage, 16, &all, 1, 4);
    // What lies below both is damage all the same.
    let (mut storage, all) = ten(Some(6));
    for height in [3, 8] {
        zero(&mut storage, 1, place(&all, 1, height));
    }
    let (mut log, _) = open(&storage, 16);
    assert_eq!((log.tip().0, log.damage().0), (Height(6), 1));
    mend(&mut log, &all);
    drop(log);
    goes_on(&storage, 16, &all, 1, 6);
}

/// A segment was written to its end, with its footer, and not yet synced.
#[test]
fn a_footer_behind_a_hole_is_not_believed() {
    for certified in [None, Some(1), Some(2), Some(4), Some(6), Some(8)] {
        for height in 5..=8 {
            let (mut storage, all) = log_of(8, 4);
            certified.into_iter().for_each(|certified| certify_at(&storage, 4, &all, certified));
            zero(&mut storage, 5, place(&all, 5, height));
            let (mut log, recovery) = open(&storage, 4);
            let tip = match certified {
                Some(certified) if certified >= height => {
                    assert_eq!(recovery.cuts, []);
                    log.note_damage(Height(height));
                    mend(&mut log, &all);
                    8
                }
                _ => height - 1,
            };
            drop(log);
            goes_on(&storage, 4, &all, 1, tip);
        }
    }
}

/// The first write of a segment has its header, too.
#[test]
fn a_lost_header_is_a_torn_tail_or_known() {
    for first in [1, 5] {
        for certified in [None, Some(first), Some(first + 2)] {
            for lost in [0..96, 0..place(&blocks(7), first, first).end] {
                let proven = certified.is_some_and(|height| height > first || lost.end == 96);
                let tip = if proven { first + 2 } else { first - 1 };
                let (mut storage, all) = log_of(first + 2, 4);
                certified.into_iter().for_each(|height| certify_at(&storage, 4, &all, height));
                let whole = storage.contents(&segment(first));
                zero(&mut storage, first, lost.clone());
                let (mut log, _) = open(&storage, 4);
                let damaged = u64::from(proven && lost.end > 96);
                assert_eq!((log.tip().0, log.damage().0), (Height(tip), damaged));
                mend(&mut log, &all);
                drop(log);
                if proven {
                    assert_eq!(storage.contents(&segment(first)), whole);
                }
                goes_on(&storage, 4, &all, 1, tip);
            }
        }
    }
}

/// The segment with which a log begins anew is durable; what was appended to it may not be.
#[test]
fn a_log_that_was_started_after_a_snapshot_has_torn_tails_too() {
    for certified in [false, true] {
        let (mut storage, _) = log_of(3, 16);
        let all = blocks(30);
        let (mut log, _) = open(&storage, 16);
        let gone = log.restart_after(Height(20), block_hash(&all[19].0)).unwrap();
        gone.map(Removal::run).unwrap().unwrap();
        if certified {
            log.put_certificate(&certify(checkpoint(&all[19].0), &[0, 1, 2])).unwrap();
        }
        all[20..].iter().for_each(|(header, body)| log.append(header, body).unwrap());
        log.sync().unwrap();
        drop(log);
        zero(&mut storage, 21, place(&all, 21, 24));
        goes_on(&storage, 16, &all, 21, 23);
    }
}

#[test]
fn a_segment_of_one_block_is_there_or_not() {
    for (certified, tip) in [(None, 4), (Some(4), 4), (Some(5), 5)] {
        let (mut storage, all) = log_of(5, 1);
        certified.into_iter().for_each(|height| certify_at(&storage, 1, &all, height));
        zero(&mut storage, 5, place(&all, 5, 5));
        let (mut log, _) = open(&storage, 1);
        mend(&mut log, &all);
        drop(log);
        goes_on(&storage, 1, &all, 1, tip);
    }
}

/// A log under a random hand, and what is known of it.
struct Model<'a> {
    all: &'a Blocks,
    certificates: &'a [CertifiedCheckpoint],
    capacity: u32,
    storage: MemStorage,
    log: BlockLog,
    /// The first block since the log was started.
    base: u64,
    /// Up to where a successful sync made blocks durable, and the latest certificate.
    synced: u64,
    certified: u64,
    /// What was met: holes that were cut, blocks that were lost in one and mended, faults, and
    /// faults beside a hole that leave nothing to say what a segment was.
    met: [u32; 4],
}

impl Model<'_> {
    fn tip(&self) -> u64 {
        self.log.tip().0.0
    }

    fn sync(&mut self) {
        self.log.sync().unwrap();
        self.synced = self.tip();
        let latest = self.log.latest_certificate().unwrap();
        self.certified = latest.map_or(0, |found| found.checkpoint.height.0);
    }

    fn certify(&mut self, height: u64) {
        if height >= self.base {
            self.log.put_certificate(&self.certificates[height as usize - 1]).unwrap();
        }
    }

    fn step(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        match choose(32) {
            0..=15 => {
                let (header, body) = &self.all[self.tip() as usize];
                self.log.append(header, body).unwrap();
            }
            16..=26 => self.log.flush().unwrap(),
            27 => self.sync(),
            // Of what is durable already, and of what becomes so with it.
            28 => self.certify(self.synced),
            29 => {
                self.log.flush().unwrap();
                self.certify(self.tip());
                if choose(2) == 0 {
                    self.sync();
                }
            }
            30 => {
                let (height, hash) = self.log.tip();
                self.log.put_attestation(height, hash, &[]).unwrap();
            }
            _ if choose(4) == 0 => {
                let height = self.tip() + 2;
                let hash = block_hash(&self.all[height as usize - 1].0);
                if let Some(gone) = self.log.restart_after(Height(height), hash).unwrap() {
                    gone.run().unwrap();
                }
                (self.base, self.synced) = (height + 1, height);
            }
            _ => {}
        }
    }

    /// The lowest block that is not known to be whole when these bytes of a file are not.
    fn touched(&self, name: &str, range: &Range<usize>) -> u64 {
        let Some(first) = name.strip_prefix("blocks-").and_then(|h| h.parse().ok()) else {
            return u64::MAX;
        };
        (first..first + u64::from(self.capacity))
            .find(|&h| place(self.all, first, h).end > range.start)
            .unwrap_or(u64::MAX)
    }

    /// A fault in any file, but not in the header of the first segment, which nothing else tells.
    fn fault(&mut self, choose: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        let names = self.storage.list().unwrap();
        let name = names.get(choose(names.len().max(1) as u64) as usize)?;
        let fault = [MediaFault::BitRot, MediaFault::LostWrite, MediaFault::MisdirectedWrite];
        let before = self.storage.contents(name).unwrap();
        let range = self.storage.media_fault(name, fault[choose(3) as usize], choose)?;
        if *name == segment(self.base) && range.start < 96 {
            self.storage.edit(name, |bytes| *bytes = before);
            return None;
        }
        self.met[2] += 1;
        Some(self.touched(name, &range))
    }

    fn crash(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        let last = self.tip();
        self.storage.crash(choose);
        let torn = self.storage.fork();
        let mut touched = if choose(3) == 0 { self.fault(choose) } else { None };
        let opened = BlockLog::open(Box::new(self.storage.clone()), CHAIN, settings(self.capacity));
        let recovery: Recovery;
        (self.log, recovery) = match opened {
            Err(LedgerError::Damage { offset: 0, .. }) if touched.is_some() => {
                self.met[3] += 1;
                (self.storage, touched) = (torn, None);
                open(&self.storage, self.capacity)
            }
            opened => opened.unwrap_or_else(|error| panic!("it refuses to start: {error}")),
        };
        let least = touched.map_or(self.synced, |touched| self.synced.min(touched - 1));
        assert!(self.tip() >= least && self.tip() <= last.max(self.base - 1), "{recovery:?}");
        assert_eq!(self.log.first_height(), Height(self.base));
        self.met[0] += u32::from(recovery.cuts.iter().any(|c| c.file.starts_with("blocks")));
        let latest = self.log.latest_certificate().unwrap().map_or(0, |c| c.checkpoint.height.0);
        for height in self.base..=self.tip() {
            match self.log.read(Height(height)) {
                Ok(found) => assert_eq!(found, Some(block(&self.all[height as usize - 1]))),
                Err(LedgerError::Damage { .. }) => {
                    // A quorum has what is certified; of what is not nobody else may have a copy.
                    let lost = height > self.synced && height <= latest;
                    assert!(lost || touched.is_some(), "{height}, certified {latest}");
                    self.log.note_damage(Height(height));
                    self.met[1] += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(latest >= self.certified || touched.is_some());
        mend(&mut self.log, self.all);
        self.log.scrub(u64::MAX, u64::MAX).unwrap();
        mend(&mut self.log, self.all);
        self.sync();
    }
}

/// Appends, flushes, syncs, certificates before and after a sync, new beginnings; crashes with
/// holes, and media that fail.
#[test]
fn what_a_sync_covered_is_there_after_every_hole() {
    let all = blocks(200);
    let certificates: Vec<_> =
        all.iter().map(|(header, _)| certify(checkpoint(header), &[0, 1, 2])).collect();
    let mut met = [0; 4];
    for seed in 0..1000 {
        let mut choose = chooser(seed);
        let capacity = [1, 4, 16, 64][choose(4) as usize];
        let storage = MemStorage::new();
        let log = open(&storage, capacity).0;
        let (base, synced, certified) = (1, 0, 0);
        let (all, certificates) = (&all[..], &certificates[..]);
        let mut model =
            Model { all, certificates, capacity, storage, log, base, synced, certified, met };
        for _ in 0..4 {
            for _ in 0..choose(40) {
                model.step(&mut choose);
            }
            let caught = std::panic::AssertUnwindSafe(|| model.crash(&mut choose));
            assert!(std::panic::catch_unwind(caught).is_ok(), "seed {seed}");
        }
        for height in model.base..=model.tip() {
            let known = block(&all[height as usize - 1]);
            assert_eq!(model.log.read(Height(height)).unwrap(), Some(known), "seed {seed}");
        }
        met = model.met;
    }
    let [cut, mended, faults, refused] = met;
    assert!(cut > 100 && mended > 100 && faults > 100, "{met:?}");
    assert!(refused * 50 < faults, "{met:?}");
}
