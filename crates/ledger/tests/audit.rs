//! The audit: what it reports of a good log, and that it finds every flipped bit and broken rule.

use crate::common;

use common::{
    CHAIN, attest, batch, block_after, certify, checkpoint, log_of, membership, open, segment,
};
use tercio_ledger::{
    AuditFailure, AuditReport, CertificateError, MemStorage, Storage, audit, hash_at, verify,
};
use tercio_types::{Batch, BlockHeader, Digest, Epoch, Height, SeqNum, Timestamp};
use tercio_wire::{Encode, block_hash};

fn run(storage: &MemStorage) -> Result<AuditReport, AuditFailure> {
    audit(storage, &membership(), &mut |_| {})
}

/// Nine blocks in segments of four; blocks 4 and 8 certified, block 7 attested.
fn network() -> (MemStorage, Vec<(BlockHeader, bytes::Bytes)>) {
    let (storage, all) = log_of(9, 4);
    let (mut log, _) = open(&storage, 4);
    for h in [4, 8] {
        log.put_certificate(&certify(checkpoint(&all[h - 1].0), &[0, 1, 2])).unwrap();
    }
    let hash = block_hash(&all[6].0);
    log.put_attestation(Height(7), hash, &attest(Height(7), hash, &[1, 2])).unwrap();
    log.sync().unwrap();
    (storage, all)
}

#[test]
fn a_good_log_is_reported() {
    let (storage, all) = network();
    let mut calls = Vec::new();
    let report = audit(&storage, &membership(), &mut |p| calls.push(*p)).unwrap();
    let expected = AuditReport {
        blocks: 9,
        operations: all.iter().map(|(header, _)| u64::from(header.ops)).sum(),
        segments: 3,
        certificates: 2,
        certificates_ahead: 0,
        attestations: 2,
        first: Some(Height(1)),
        last: Some(Height(9)),
        head: block_hash(&all[8].0),
        last_certified: Some(Height(8)),
        torn_bytes: 0,
        lost: vec![],
        ..AuditReport::default()
    };
    assert_eq!(report, expected);
    assert_eq!(calls.len(), 9);
    assert!(calls.windows(2).all(|w| w[0].bytes < w[1].bytes));
    assert!(calls[8].bytes <= calls[8].total_bytes);
    assert_eq!(run(&MemStorage::new()).unwrap().blocks, 0);
}

#[test]
fn the_hash_of_any_block_is_found() {
    let (storage, all) = network();
    let chain = membership().chain();
    for (header, _) in &all {
        let found = hash_at(&storage, chain, header.height).unwrap();
        assert_eq!(found, Some(block_hash(header)), "height {}", header.height.0);
    }
    let above = Height(all.len() as u64 + 1);
    assert_eq!(hash_at(&storage, chain, above).unwrap(), None);
    assert_eq!(hash_at(&storage, chain, Height(0)).unwrap(), None);
}

/// Every single bit of a closed segment, the last one of the log included.
#[test]
fn every_flipped_bit_in_a_closed_segment_is_found_and_named() {
    let (storage, _) = log_of(4, 2);
    for first in [1, 3] {
        let name = segment(first);
        let bits = 8 * storage.contents(&name).unwrap().len();
        for bit in 0..bits {
            let mut storage = storage.clone();
            storage.edit(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let failure = run(&storage).expect_err(&format!("bit {bit} of {name}"));
            assert_eq!(failure.file, name, "bit {bit}: {failure}");
            assert!(!failure.field.is_empty());
            let block = failure.height.is_none_or(|h| h.0 >= first && h.0 < first + 2);
            assert!(block, "bit {bit}: {failure}");
            storage.edit(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        }
    }
    run(&storage).unwrap();
}

#[test]
fn the_field_is_named() {
    let (storage, _) = network();
    let body = 96 + 28 + 167;
    let end = storage.contents(&segment(1)).unwrap().len();
    let cases = [
        (0, None, "segment magic"),
        (60, None, "segment header checksum"),
        (96, Some(1), "record magic"),
        (96 + 12, Some(1), "header checksum"),
        (96 + 28 + 30, Some(1), "header checksum"),
        (body, Some(1), "body checksum"),
        (end - 12, None, "footer checksum"),
        (end - 20, Some(4), "index entry 3"),
        (end - 8, None, "footer length"),
        (end - 1, None, "footer end"),
        (end - 96 + 20, None, "footer head hash"),
    ];
    for (at, height, field) in cases {
        let mut storage = storage.fork();
        storage.edit(&segment(1), |bytes| bytes[at] ^= 4);
        let expected =
            AuditFailure { file: segment(1), height: height.map(Height), field: field.to_owned() };
        assert_eq!(run(&storage), Err(expected));
    }
}

/// Where whole records are behind it, it is reported: what the others prove is good. Where none are,
/// nobody can say what it was about.
#[test]
fn every_flipped_bit_in_certificates_and_attestations_is_found() {
    let (storage, _) = network();
    let (mut lost, mut failed) = (0, 0);
    for name in ["certificates".to_owned(), "attest-00000000000000000005".to_owned()] {
        let last = storage.contents(&name).unwrap().len();
        for at in 0..last {
            let mut storage = storage.fork();
            storage.edit(&name, |bytes| bytes[at] ^= 1 << (at % 8));
            match run(&storage) {
                Ok(report) => {
                    assert_eq!(report.lost.len(), 1, "byte {at} of {name}");
                    assert_eq!(report.lost[0].file, name);
                    let all = name == "attest-00000000000000000005" || at < 60;
                    assert_eq!(report.certificates, if all { 2 } else { 1 }, "byte {at}");
                    assert_eq!((report.blocks, report.last_certified), (9, Some(Height(8))));
                    lost += 1;
                }
                Err(failure) => {
                    assert_eq!(failure.file, name);
                    failed += 1;
                }
            }
        }
    }
    assert!(lost > 300 && failed > 300, "{lost} {failed}");
}

/// As a power failure leaves them: a hole, and zeros at the end.
#[test]
fn holes_in_certificates_and_attestations_are_reported() {
    for (from, to, certificates, lost) in [(60, 200, 1, 1), (0, 60, 2, 1), (0, 200, 1, 1)] {
        let (mut storage, _) = network();
        storage.edit("certificates", |bytes| bytes[from..to].fill(0));
        let report = run(&storage).unwrap();
        assert_eq!((report.blocks, report.last_certified), (9, Some(Height(8))));
        assert_eq!((report.certificates, report.lost.len()), (certificates, lost));
    }
    let (mut storage, _) = network();
    let end = storage.contents("certificates").unwrap().len();
    let record = (end - 60) / 2;
    storage.edit("certificates", |bytes| bytes[end - record..].fill(0));
    let report = run(&storage).unwrap();
    assert_eq!((report.torn_bytes, report.lost.len()), (record as u64, 0));
    assert_eq!((report.certificates, report.last_certified), (1, Some(Height(4))));
}

#[test]
fn an_unfinished_tail_is_reported_and_wrong_bytes_are_not_forgiven() {
    let (mut storage, _) = network();
    storage.edit(&segment(9), |bytes| bytes.truncate(bytes.len() - 5));
    let report = run(&storage).unwrap();
    assert_eq!((report.blocks, report.last), (8, Some(Height(8))));
    assert!(report.torn_bytes > 200);
    let (mut storage, _) = network();
    storage.edit(&segment(9), |bytes| *bytes.last_mut().unwrap() ^= 1);
    let failure = run(&storage).unwrap_err();
    assert_eq!((failure.height, failure.field.as_str()), (Some(Height(9)), "body checksum"));
}

#[test]
fn missing_segments_are_found() {
    let (mut storage, _) = network();
    storage.remove(&segment(5)).unwrap();
    let failure = run(&storage).unwrap_err();
    assert_eq!((failure.file, failure.height), (segment(9), Some(Height(5))));
}

/// A log whose every checksum is right and whose blocks break a rule.
#[test]
fn broken_rules_are_found_behind_good_checksums() {
    type Forge = fn(&mut BlockHeader, &mut Batch);
    let epoch = "epoch: another than the genesis has, and there are no records of epochs";
    let rules: [(&str, Forge); 9] = [
        (epoch, |h, _| h.epoch = Epoch(1)),
        ("seq", |h, _| h.seq = SeqNum(3)),
        ("seq", |h, _| h.seq = SeqNum(2)),
        ("time", |h, _| h.time = Timestamp(999)),
        ("time", |h, b| (h.time, b.time) = (Timestamp(50), Timestamp(50))),
        ("ops", |h, _| h.ops += 1),
        ("lag", |h, _| h.state = Digest([1; 32])),
        ("body without packages", |_, b| b.packages.clear()),
        ("body without packages", |h, b| {
            b.packages.clear();
            h.ops = 0;
        }),
    ];
    for (field, forge) in rules {
        let (storage, all) = log_of(2, 4);
        let (mut log, _) = open(&storage, 4);
        let mut forged = batch(2000, &[1]);
        let (mut header, _) = block_after((Height(2), block_hash(&all[1].0)), &forged);
        forge(&mut header, &mut forged);
        let body = forged.to_bytes();
        header.body = tercio_crypto::hash(header.suite, &[&body]);
        log.append(&header, &body).unwrap();
        log.sync().unwrap();
        let failure = run(&storage).unwrap_err();
        assert_eq!((failure.height, failure.field.as_str()), (Some(Height(3)), field));
    }
}

#[test]
fn a_certificate_must_be_about_the_block_in_the_log() {
    let (storage, all) = network();
    let (mut log, _) = open(&storage, 4);
    let mut other = checkpoint(&all[5].0);
    other.block = Digest([5; 32]);
    log.put_certificate(&certify(other, &[0, 1, 2])).unwrap();
    log.sync().unwrap();
    let failure = run(&storage).unwrap_err();
    assert_eq!(failure.height, Some(Height(6)));
    assert!(failure.field.contains("block hash"), "{failure}");
}

#[test]
fn bad_certificates_and_attestations_are_found() {
    let (storage, all) = network();
    let (mut log, _) = open(&storage, 4);
    let mut bad = certify(checkpoint(&all[5].0), &[0, 1, 2]);
    bad.signatures[1].1 = bad.signatures[0].1;
    log.put_certificate(&bad).unwrap();
    log.sync().unwrap();
    let failure = run(&storage).unwrap_err();
    assert_eq!((failure.file.as_str(), failure.height), ("certificates", Some(Height(6))));
    assert!(failure.field.contains("signature of replica 1"), "{failure}");

    let (storage, all) = network();
    let (mut log, _) = open(&storage, 4);
    let hash = block_hash(&all[5].0);
    log.put_attestation(Height(6), hash, &attest(Height(5), hash, &[3])).unwrap();
    log.sync().unwrap();
    let failure = run(&storage).unwrap_err();
    assert_eq!(failure.height, Some(Height(6)));
    assert!(failure.field.contains("signature of replica 3"), "{failure}");
}

#[test]
fn a_certificate_needs_a_quorum_of_distinct_members() {
    let (_, all) = log_of(1, 4);
    let members = membership();
    let good = certify(checkpoint(&all[0].0), &[0, 1, 3]);
    assert_eq!(verify(&members, &good), Ok(()));
    let few = certify(checkpoint(&all[0].0), &[0, 1]);
    let wanted = CertificateError::NoQuorum { found: 2, needed: 3 };
    assert_eq!(verify(&members, &few), Err(wanted));
    let mut twice = good.clone();
    twice.signatures[1] = twice.signatures[0];
    assert!(matches!(verify(&members, &twice), Err(CertificateError::Order(_))));
    let stranger = certify(checkpoint(&all[0].0), &[0, 1, 4]);
    assert!(matches!(verify(&members, &stranger), Err(CertificateError::Signature(_))));
    let mut altered = good.clone();
    altered.checkpoint.state = Digest([8; 32]);
    assert!(matches!(verify(&members, &altered), Err(CertificateError::Signature(_))));
    let mut later = good;
    later.checkpoint.epoch = Epoch(1);
    assert!(matches!(verify(&members, &later), Err(CertificateError::Epoch { .. })));
    assert_eq!(members.chain(), CHAIN);
}
