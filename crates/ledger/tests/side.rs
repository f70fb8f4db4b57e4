//! Certificates and attestations: of what a crash or a bad disk leaves of them every whole record
//! is kept, and none stops the replica.

use crate::common;

use common::{
    CHAIN, attest, blocks, certify, certify_at, checkpoint, chooser, log_of, membership, open,
    settings,
};
use tercio_ledger::{BlockLog, BlockLogSettings, MemStorage, Recovery, Removal, Storage, audit};
use tercio_types::{Height, ReplicaId};
use tercio_wire::block_hash;

const ATTESTED: &str = "attest-00000000000000000001";
const CERTIFICATES: &str = "certificates";

/// Nine blocks of one segment, all certified and attested.
fn network() -> MemStorage {
    let (storage, all) = log_of(9, 16);
    let (mut log, _) = open(&storage, 16);
    for (header, _) in &all {
        let hash = block_hash(header);
        log.put_certificate(&certify(checkpoint(header), &[0, 1, 2])).unwrap();
        let said = attest(header.height, hash, &[1, 3]);
        log.put_attestation(header.height, hash, &said).unwrap();
        log.flush().unwrap();
    }
    log.sync().unwrap();
    storage
}

/// Where the `i`-th of nine equally long records stands.
fn record(storage: &MemStorage, name: &str, i: usize) -> std::ops::Range<usize> {
    let len = (storage.contents(name).unwrap().len() - 60) / 9;
    60 + i * len..60 + (i + 1) * len
}

fn certified(log: &BlockLog) -> Vec<u64> {
    let at = |height| log.certificate_at_or_after(Height(height)).unwrap();
    let mut all: Vec<_> = (1..=9).filter_map(at).map(|c| c.checkpoint.height.0).collect();
    all.dedup();
    all
}

fn attested(log: &mut BlockLog) -> Vec<u64> {
    let mut said = |height| log.attestations(Height(height)).unwrap();
    (1..=9).filter(|height| said(*height).iter().map(|s| s.1.0).eq([1, 3])).collect()
}

fn both(storage: &MemStorage) -> (Vec<u64>, Vec<u64>, Recovery) {
    let (mut log, recovery) = open(storage, 16);
    (certified(&log), attested(&mut log), recovery)
}

#[test]
fn whole_records_behind_a_hole_are_kept() {
    let all: Vec<u64> = (1..=9).collect();
    for name in [CERTIFICATES, ATTESTED] {
        let kept = |storage: &MemStorage| {
            let (certified, attested, recovery) = both(storage);
            let (this, other) =
                if name == ATTESTED { (attested, certified) } else { (certified, attested) };
            assert_eq!(other, all);
            (this, recovery.cuts)
        };
        let whole = network();
        let third = record(&whole, name, 2);
        let ends =
            [(third.start, third.end), (0, third.end), (0, 60), (third.start + 30, third.end)];
        for (from, to) in ends {
            for way in 0..2 {
                let mut storage = whole.fork();
                storage.edit(name, |bytes| match way {
                    0 => bytes[from..to].fill(0),
                    _ => bytes[from..to].iter_mut().for_each(|byte| *byte ^= 0x55),
                });
                let expected: Vec<u64> = match (from, to) {
                    (0, 60) => all.clone(),
                    (0, _) => (4..=9).collect(),
                    _ => all.iter().copied().filter(|height| *height != 3).collect(),
                };
                let (found, cuts) = kept(&storage);
                assert_eq!(found, expected, "{name} {from}..{to}");
                let at = if from == 0 { 0 } else { third.start };
                assert_eq!(
                    (cuts.len(), cuts[0].at, cuts[0].bytes),
                    (1, at as u64, (to - at) as u64)
                );
                // What is left is whole, and durable.
                storage.crash(&mut |_| 0);
                assert_eq!(kept(&storage), (expected, vec![]));
                audit(&storage, &membership(), &mut |_| {}).unwrap();
            }
        }
    }
}

#[test]
fn a_file_of_which_nothing_is_whole_is_begun_anew() {
    for name in [CERTIFICATES, ATTESTED] {
        for keep in [0, 40, 60, 100] {
            let mut storage = network();
            storage.edit(name, |bytes| bytes[keep..].fill(0));
            let (certified, attested, _) = both(&storage);
            assert_eq!(if name == ATTESTED { attested } else { certified }, []);
            certify_at(&storage, 16, &blocks(9), 9);
            assert!(both(&storage).0.contains(&9));
        }
    }
}

/// Records come and go to the storage one by one; then the power fails.
#[test]
fn no_hole_in_side_files_keeps_a_replica_from_starting() {
    let (whole, all) = log_of(40, 64);
    let said = |(header, _): &(tercio_types::BlockHeader, bytes::Bytes)| {
        let (height, hash) = (header.height, block_hash(header));
        let certificate = certify(checkpoint(header), &[0, 1, 2]);
        (certificate, height, hash, attest(height, hash, &[1]))
    };
    let said: Vec<_> = all.iter().map(said).collect();
    let mut cut = 0;
    for seed in 0..100 {
        let mut choose = chooser(seed);
        let mut storage = whole.fork();
        let (mut log, _) = open(&storage, 64);
        let mut synced = 0;
        for (certificate, height, hash, signatures) in &said {
            log.put_certificate(certificate).unwrap();
            log.put_attestation(*height, *hash, signatures).unwrap();
            log.flush().unwrap();
            if choose(10) == 0 {
                log.sync().unwrap();
                synced = height.0;
            }
        }
        drop(log);
        storage.crash(&mut choose);
        let (mut log, recovery) = open(&storage, 64);
        cut += recovery.cuts.len();
        for height in (1..=synced).map(Height) {
            let found = log.certificate_at_or_after(height).unwrap().unwrap();
            assert_eq!(found.checkpoint.height, height);
            assert_eq!(log.attestations(height).unwrap()[0].1, ReplicaId(1));
        }
        log.put_certificate(&said[39].0).unwrap();
        log.sync().unwrap();
        if seed < 10 {
            let report = audit(&storage, &membership(), &mut |_| {}).unwrap();
            assert_eq!((report.lost, report.torn_bytes), (vec![], 0));
        }
    }
    assert!(cut > 50, "{cut}");
}

/// The disk goes bad under a log that is open: what cannot be read is passed over.
#[test]
fn a_record_that_rots_is_passed_over() {
    let mut storage = network();
    let (mut log, _) = open(&storage, 16);
    for (i, height) in [(2, 3), (8, 9)] {
        for name in [CERTIFICATES, ATTESTED] {
            let place = record(&storage, name, i);
            storage.edit(name, |bytes| bytes[place.start + 50] ^= 4);
        }
        assert!(!certified(&log).contains(&height) && !attested(&mut log).contains(&height));
    }
    let served = |log: &BlockLog, height| {
        let found = log.certificate_at_or_after(Height(height)).unwrap();
        found.map(|found| found.checkpoint.height.0)
    };
    assert_eq!((served(&log, 3), served(&log, 8), served(&log, 9)), (Some(4), Some(8), None));
    assert_eq!(log.latest_certificate().unwrap().unwrap().checkpoint.height, Height(8));
    // The file's header, then its end, then all of it.
    storage.edit(ATTESTED, |bytes| bytes[..60].fill(0));
    assert_eq!(attested(&mut log), [1, 2, 4, 5, 6, 7, 8]);
    for name in [CERTIFICATES, ATTESTED] {
        let end = record(&storage, name, 4).start + 7;
        storage.edit(name, |bytes| bytes.truncate(end));
    }
    assert_eq!((certified(&log), attested(&mut log)), (vec![1, 2, 4], vec![1, 2, 4]));
    storage.remove(CERTIFICATES).unwrap();
    assert_eq!((certified(&log), log.latest_certificate().unwrap()), (vec![], None));
}

#[test]
fn pruning_drops_a_certificate_that_rots() {
    for rotten in [3, 9, 15] {
        let (mut storage, all) = log_of(16, 4);
        let limited = BlockLogSettings { retain_bytes: 1, ..settings(4) };
        let mut log = BlockLog::open(Box::new(storage.clone()), CHAIN, limited).unwrap().0;
        for (header, _) in &all {
            log.put_certificate(&certify(checkpoint(header), &[0, 1, 2])).unwrap();
        }
        log.sync().unwrap();
        let len = (storage.contents(CERTIFICATES).unwrap().len() - 60) / 16;
        storage.edit(CERTIFICATES, |bytes| bytes[60 + rotten * len + 40] ^= 1);
        for height in [8, 16] {
            log.prune(Height(height)).unwrap().map(Removal::run).unwrap().unwrap();
        }
        let served = |log: &BlockLog, height| {
            let found = log.certificate_at_or_after(Height(height)).unwrap();
            found.map(|found| found.checkpoint.height.0)
        };
        let expected = |height| (height..=16).find(|h| *h != rotten as u64 + 1);
        (9..=16).for_each(|height| assert_eq!(served(&log, height), expected(height)));
        drop(log);
        let log = BlockLog::open(Box::new(storage.clone()), CHAIN, limited).unwrap().0;
        (9..=16).for_each(|height| assert_eq!(served(&log, height), expected(height)));
    }
}
