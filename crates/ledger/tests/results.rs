//! Results beside the blocks: kept in order, compared when they come again, gone with their segment;
//! and what a crash, a bad disk or a liar makes of them is found.

use crate::common;

use bytes::Bytes;
use common::{CHAIN, block_after, certify, checkpoint, log_of, membership, open, segment};
use tercio_ledger::{
    AuditReport, BlockLog, BlockLogSettings, BlockResults, Kept, LedgerError, MemStorage,
    PackageResults, Storage, audit, audit::results_at,
};
use tercio_types::{Batch, BlockHeader, CertifiedCheckpoint, Digest, EMPTY_ROOT, Height, Suite};
use tercio_wire::{Decode, OpResult, block_hash, encode_results, results_digest};

const SUITE: Suite = Suite::Sha256Ed25519;

fn name(first: u64) -> String {
    format!("results-{first:020}")
}

/// The results of a chain of blocks: each operation's are its own bytes.
fn results_of(blocks: &[(BlockHeader, Bytes)]) -> Vec<BlockResults> {
    let mut before = EMPTY_ROOT;
    let of = |(header, body): &(BlockHeader, Bytes)| {
        let batch = Batch::from_bytes(body, SUITE).unwrap();
        let (mut bodies, mut digests) = (Vec::new(), Vec::new());
        let package = |package: &tercio_types::Package| {
            let done = |op: &[u8]| OpResult::Executed(Bytes::copy_from_slice(op));
            let body = encode_results(&package.ops.iter().map(done).collect::<Vec<_>>());
            let (client, first) = (package.client, package.first);
            digests.push(results_digest(SUITE, client, first, &body).unwrap());
            let from = bodies.len();
            bodies.extend_from_slice(&body);
            PackageResults { client, first, kept: Kept::Results(from..bodies.len()) }
        };
        let packages: Vec<_> = batch.packages.iter().map(package).collect();
        let root = tercio_crypto::merkle_root(SUITE, &digests);
        let results = BlockResults {
            height: header.height,
            suite: SUITE,
            before,
            root,
            state: None,
            packages,
            bodies: bodies.into(),
        };
        before = results.chained();
        results
    };
    blocks.iter().map(of).collect()
}

fn certificate(header: &BlockHeader, results: &BlockResults) -> CertifiedCheckpoint {
    let checkpoint = tercio_types::Checkpoint { results: results.chained(), ..checkpoint(header) };
    certify(checkpoint, &[0, 1, 2])
}

/// A log of `n` blocks, eight a segment, with all their results and a certificate at each of
/// `certified`, synced.
pub(crate) fn log_with(n: u64, certified: &[u64]) -> (MemStorage, Vec<BlockResults>) {
    let (storage, blocks) = log_of(n, 8);
    let results = results_of(&blocks);
    let (mut log, _) = open(&storage, 8);
    results.iter().for_each(|results| log.put_results(results).unwrap());
    for &height in certified {
        let at = height as usize - 1;
        log.put_certificate(&certificate(&blocks[at].0, &results[at])).unwrap();
    }
    log.sync().unwrap();
    (storage, results)
}

/// Which results can be read, and which were kept and are lost.
fn readable(log: &mut BlockLog, expected: &[BlockResults]) -> (Vec<u64>, Vec<u64>) {
    let (mut good, mut lost) = (vec![], vec![]);
    for one in expected {
        match log.results(one.height) {
            Ok(Some(found)) => {
                assert_eq!(found, *one);
                good.push(one.height.0);
            }
            Ok(None) => {}
            Err(LedgerError::Damage { file, height, .. }) => {
                assert!(file.starts_with("results-") && height == Some(one.height));
                lost.push(one.height.0);
            }
            Err(other) => panic!("{other}"),
        }
    }
    (good, lost)
}

fn audited(storage: &MemStorage) -> AuditReport {
    audit(storage, &membership(), &mut |_| {}).unwrap()
}

fn proven(report: &AuditReport) -> Vec<(u64, u64)> {
    report.results_proven.iter().map(|range| (range.start().0, range.end().0)).collect()
}

#[test]
fn results_are_read_back_proven_and_gone_with_their_segment() {
    let (storage, results) = log_with(30, &[5, 24]);
    let (mut log, recovery) = open(&storage, 8);
    assert_eq!((recovery.cuts, log.results_extent()), (vec![], Some((Height(1), Height(30)))));
    assert_eq!(readable(&mut log, &results), ((1..=30).collect(), vec![]));
    assert_eq!(log.results(Height(31)).unwrap(), None);
    drop(log);
    let report = audited(&storage);
    assert_eq!((report.results, report.lost.len()), (30, 0));
    assert_eq!((report.results_first, report.results_last), (Some(Height(1)), Some(Height(30))));
    assert_eq!(proven(&report), [(1, 24)]);
    for one in &results {
        assert_eq!(results_at(&storage, CHAIN, one.height).unwrap().as_ref(), Some(one));
    }
    assert_eq!(results_at(&storage, CHAIN, Height(31)).unwrap(), None);

    // Their bytes count, and they go with their blocks; opening removes what an interrupted pruning
    // left.
    let settings =
        BlockLogSettings { blocks_per_segment: 8, retain_blocks: 8, ..Default::default() };
    let (mut log, _) = BlockLog::open(Box::new(storage.clone()), CHAIN, settings).unwrap();
    let bytes = log.results_bytes();
    let removal = log.prune(Height(24)).unwrap().unwrap();
    assert!(log.results_bytes() < bytes);
    assert_eq!(readable(&mut log, &results), ((17..=30).collect(), vec![]));
    assert_eq!(log.results_extent(), Some((Height(17), Height(30))));
    removal.run().unwrap();
    let there = |storage: &MemStorage| -> Vec<String> {
        storage.list().unwrap().into_iter().filter(|name| name.starts_with("results")).collect()
    };
    assert_eq!(there(&storage), [name(17), name(25)]);
    assert_eq!(proven(&audited(&storage)), [(17, 24)]);
    drop(log);
    let mut stray = storage.fork();
    stray.append(&name(9), b"left over").unwrap();
    drop(open(&stray, 8));
    assert_eq!(there(&stray), [name(17), name(25)]);
}

#[test]
fn results_that_come_again_must_be_the_same() {
    let (storage, results) = log_with(20, &[]);
    let (mut log, _) = open(&storage, 8);
    let before = storage.contents(&name(17));
    // As after a restart from a snapshot at 6.
    results[6..].iter().for_each(|one| log.put_results(one).unwrap());
    log.sync().unwrap();
    assert_eq!(storage.contents(&name(17)), before, "nothing is written again");
    for at in [6, 19] {
        let mut other = results[at].clone();
        other.root = Digest([9; 32]);
        let error = log.put_results(&other).unwrap_err();
        assert!(
            matches!(error, LedgerError::OtherResults { height, .. } if height.0 == at as u64 + 1)
        );
        assert!(error.to_string().contains("not deterministic"), "{error}");
    }
    // The next must go on from there.
    let (header, body) = block_after((log.tip().0, log.tip().1), &common::batch(2_000, &[3]));
    log.append(&header, &body).unwrap();
    let mut next = results_of(&[(header, body)]).remove(0);
    assert!(matches!(log.put_results(&next), Err(LedgerError::OtherResults { .. })));
    next.before = results[19].chained();
    log.put_results(&next).unwrap();
    assert_eq!(log.results(Height(21)).unwrap(), Some(next));
}

/// The log begins to keep results in its middle, behind a state from elsewhere: what was never kept
/// is not missed.
#[test]
fn results_can_begin_anywhere_and_be_switched_off() {
    let (storage, blocks) = log_of(30, 8);
    let results = results_of(&blocks);
    let (mut log, _) = open(&storage, 8);
    results[11..].iter().for_each(|one| log.put_results(one).unwrap());
    log.put_certificate(&certificate(&blocks[27].0, &results[27])).unwrap();
    log.sync().unwrap();
    drop(log);
    let (mut log, _) = open(&storage, 8);
    assert_eq!(readable(&mut log, &results), ((12..=30).collect(), vec![]));
    // Executed again from further down.
    results[3..].iter().for_each(|one| log.put_results(one).unwrap());
    drop(log);
    let report = audited(&storage);
    assert_eq!((proven(&report), report.lost.len()), (vec![(12, 28)], 0));

    let off = BlockLogSettings { blocks_per_segment: 8, keep_results: false, ..Default::default() };
    let (mut log, _) = BlockLog::open(Box::new(storage.clone()), CHAIN, off).unwrap();
    results.iter().for_each(|one| log.put_results(one).unwrap());
    log.sync().unwrap();
    assert_eq!((readable(&mut log, &results), log.results_extent()), ((vec![], vec![]), None));
    assert!(storage.list().unwrap().iter().all(|name| !name.starts_with("results")));
    drop(log);
    // A log that goes on behind a fetched state.
    let (mut log, _) = open(&storage, 8);
    let block = Digest([5; 32]);
    log.restart_after(Height(40), block).unwrap().unwrap().run().unwrap();
    let (header, body) = block_after((Height(40), block), &common::batch(3_000, &[1]));
    log.append(&header, &body).unwrap();
    let next = BlockResults { before: Digest([6; 32]), ..results_of(&[(header, body)]).remove(0) };
    log.put_results(&next).unwrap();
    log.sync().unwrap();
    drop(log);
    let (mut log, _) = open(&storage, 8);
    assert_eq!(log.results_extent(), Some((Height(41), Height(41))));
    assert_eq!(log.results(Height(41)).unwrap(), Some(next));
}

/// The file that is being written, cut at every byte: whole records are left, and the others come
/// again when their blocks are executed again.
#[test]
fn a_torn_tail_is_cut_and_comes_again() {
    let (whole, results) = log_with(13, &[]);
    let full = whole.contents(&name(9)).unwrap();
    for len in 0..full.len() {
        let mut storage = whole.fork();
        storage.edit(&name(9), |bytes| bytes.truncate(len));
        let (mut log, _) = open(&storage, 8);
        let (good, lost) = readable(&mut log, &results);
        assert_eq!(lost, [], "{len}");
        assert_eq!(good, (1..=good.len() as u64).collect::<Vec<_>>(), "{len}");
        results[4..].iter().for_each(|one| log.put_results(one).unwrap());
        log.sync().unwrap();
        assert_eq!(readable(&mut log, &results), ((1..=13).collect(), vec![]), "{len}");
        drop(log);
        storage.crash(&mut |_| 0);
        let report = audited(&storage);
        assert_eq!((report.results, report.lost.len(), report.torn_bytes), (13, 0, 0), "{len}");
    }
}

/// A byte is flipped in each record of each file, and each file is lost: reading says so, the audit
/// names it, and results that come again mend it.
#[test]
fn damage_is_found_named_and_mended() {
    let (whole, results) = log_with(20, &[20]);
    let mut cases: Vec<(String, Option<usize>)> = Vec::new();
    for first in [1, 9, 17] {
        let len = whole.contents(&name(first)).unwrap().len();
        cases.extend((60..len).step_by(37).map(|at| (name(first), Some(at))));
        cases.push((name(first), None));
    }
    for (file, at) in cases {
        let what = format!("{file} at {at:?}");
        let mut storage = whole.fork();
        match at {
            Some(at) => storage.edit(&file, |bytes| bytes[at] ^= 0x10),
            None => storage.remove(&file).unwrap(),
        }
        let report = audited(&storage);
        let (is_last, is_first) = (file == name(17), file == name(1));
        let named = report.lost.iter().any(|lost| lost.file == file) || report.torn_bytes > 0;
        let found = named || !report.lost.is_empty();
        // Of a lost last file nothing says how far it went; of a lost first one, the next.
        assert!(found || (at.is_none() && is_last), "{what}: {report:?}");
        assert!(report.results < 20, "{what}");

        let (mut log, _) = open(&storage, 8);
        let (good, lost) = readable(&mut log, &results);
        let tip = log.results_extent().map_or(0, |(_, tip)| tip.0);
        assert_eq!(good.len() + lost.len(), tip as usize, "{what}: {good:?} {lost:?}");
        assert!(is_last || !lost.is_empty(), "{what}");
        assert!(!(is_first && at.is_none()) || lost == (1..=8).collect::<Vec<u64>>(), "{what}");
        results.iter().for_each(|one| log.put_results(one).unwrap());
        log.sync().unwrap();
        assert_eq!(readable(&mut log, &results), ((1..=20).collect(), vec![]), "{what}");
        assert_eq!(log.results_damage().0, 0, "{what}");
        drop(log);
        storage.crash(&mut |_| 0);
        let report = audited(&storage);
        assert_eq!((report.results, report.lost.len()), (20, 0), "{what}");
        assert_eq!(proven(&report), [(1, 20)], "{what}");
    }
}

/// Records that are whole and say something else: the audit holds them against blocks, themselves,
/// each other and certificates.
#[test]
fn the_audit_refuses_results_that_are_made_up() {
    let (_, blocks) = log_of(6, 8);
    let truth = results_of(&blocks);
    let audit_of = |change: &dyn Fn(&mut Vec<BlockResults>)| {
        let (storage, _) = log_of(6, 8);
        let mut results = truth.clone();
        change(&mut results);
        let (mut log, _) = open(&storage, 8);
        results.iter().for_each(|one| log.put_results(one).unwrap());
        log.put_certificate(&certificate(&blocks[5].0, &truth[5])).unwrap();
        log.sync().unwrap();
        drop(log);
        audit(&storage, &membership(), &mut |_| {}).map_err(|e| (e.height, e.field))
    };
    /// Chains those from `at` on anew, as a liar would.
    fn chain(results: &mut [BlockResults], at: usize) {
        for i in at..results.len() {
            if i > 0 {
                results[i].before = results[i - 1].chained();
            }
        }
    }
    let lie = |block: &mut BlockResults| {
        let other = encode_results(&[OpResult::Executed(Bytes::from_static(b"other"))]);
        block.replace(0, Ok(&other));
    };
    assert!(audit_of(&|_| {}).is_ok());
    let bad = |height, field: &str| Some((Some(Height(height)), field.to_owned()));
    let changed = |change: &dyn Fn(&mut Vec<BlockResults>)| audit_of(change).err();
    assert_eq!(changed(&|r| r[2].replace(0, Ok(b"no results"))), bad(3, "results of a package"));
    assert_eq!(changed(&|r| lie(&mut r[2])), bad(3, "results root"));
    assert_eq!(changed(&|r| r[2].packages[0].client.0 += 1), bad(3, "packages of the results"));
    assert_eq!(changed(&|r| r[2].packages.truncate(0)), bad(3, "packages of the results"));
    let whole_lie = |r: &mut Vec<BlockResults>| {
        lie(&mut r[2]);
        r[2].root = r[2].digest(&r[2].packages[0]).unwrap();
        chain(r, 3);
    };
    assert_eq!(changed(&whole_lie), bad(6, "chained results (others are certified)"));
    let elsewhere = |r: &mut Vec<BlockResults>| {
        r[0].before = Digest([8; 32]);
        chain(r, 1);
    };
    assert_eq!(changed(&elsewhere), bad(1, "chained results before the block"));
    // What is left out for its length leaves its digest.
    let long = audit_of(&|r| {
        let digest = r[4].digest(&r[4].packages[0]).unwrap();
        r[4].replace(0, Err(digest));
    });
    let long = long.unwrap();
    assert_eq!(proven(&long), [(1, 6)]);
    // A gap is named, and proves nothing below.
    let gap = audit_of(&|r| drop(r.remove(2))).unwrap();
    assert_eq!((gap.lost.len(), proven(&gap)), (1, vec![(4, 6)]));
    assert_eq!(gap.lost[0].height, Some(Height(3)));
}

#[test]
fn results_are_above_no_lost_block() {
    let (mut storage, results) = log_with(13, &[]);
    // The power takes the last blocks and not their results.
    storage.edit(&segment(9), |bytes| bytes.truncate(bytes.len() - 300));
    let (mut log, _) = open(&storage, 8);
    let (tip, _) = log.tip();
    assert!(tip < Height(13));
    assert_eq!(readable(&mut log, &results).1, []);
    assert_eq!(log.results(Height(13)).unwrap(), None);
    let report = audited(&storage);
    assert_eq!(report.results_last, Some(tip));
    assert_eq!(report.last, Some(tip));
    assert_ne!(report.head, block_hash(&log_of(13, 8).1[12].0));
}
