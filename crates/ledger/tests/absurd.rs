//! Files whose checksums are right and whose numbers are absurd: an error or a record that is passed
//! over, and never a panic or memory without bound.

use crate::common;

use bytes::Bytes;
use common::{
    CHAIN, attest, blocks, certified_log_of, certify, checkpoint, log_of, membership, open,
    segment, settings,
};
use tercio_ledger::{
    BlockLog, LedgerError, MemStorage, SnapshotHead, SnapshotStore, Staging, Storage, Wal,
    WalSettings, audit,
};
use tercio_types::{CertifiedCheckpoint, Digest, Height, SeqNum};
use tercio_wire::{Encode, block_hash};

const ABSURD: [u64; 4] = [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 62];
const ATTESTED: &str = "attest-00000000000000000001";

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Puts the right checksum of `covered` at `at`.
fn seal(bytes: &mut [u8], covered: std::ops::Range<usize>, at: usize) {
    let crc = crc32fast::hash(&bytes[covered]);
    put(bytes, at, &crc.to_le_bytes());
}

/// A record of a file with this number, at this place.
fn record(number: u64, at: usize, tag: u64, back: u32, length: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = b"TREC".to_vec();
    out.extend(length.to_le_bytes());
    out.extend(tag.to_le_bytes());
    out.extend(back.to_le_bytes());
    out.extend(crc32fast::hash(payload).to_le_bytes());
    let mut covered = [number.to_le_bytes(), (at as u64).to_le_bytes()].concat();
    covered.extend(&out);
    out.extend(crc32fast::hash(&covered).to_le_bytes());
    out.extend(payload);
    out
}

/// Opens the log, and asks it for everything.
fn use_log(storage: &MemStorage) -> Result<BlockLog, LedgerError> {
    let _ = audit(storage, &membership(), &mut |_| {});
    let (mut log, _) = BlockLog::open(Box::new(storage.clone()), CHAIN, settings(4))?;
    for height in [0, 1, 3, 9, 10, u64::MAX].map(Height) {
        log.certificate_at_or_after(height).unwrap();
        log.attestations(height).unwrap();
        let _ = log.read(height);
    }
    log.latest_certificate().unwrap();
    log.scrub(u64::MAX, 100).unwrap();
    log.wanted().unwrap();
    log.prune(Height(u64::MAX)).unwrap();
    Ok(log)
}

fn absurd_certificates() -> Vec<CertifiedCheckpoint> {
    let header = &blocks(9)[8].0;
    let with = |height, seq| {
        let mut absurd = checkpoint(header);
        (absurd.height, absurd.seq) = (Height(height), SeqNum(seq));
        certify(absurd, &[0, 1, 2])
    };
    ABSURD.iter().flat_map(|&n| [with(n, 18), with(9, n), with(n, n)]).collect()
}

#[test]
fn absurd_numbers_in_certificates_are_passed_over() {
    for absurd in absurd_certificates() {
        let (mut storage, all) = certified_log_of(9, 4);
        let good = certify(checkpoint(&all[8].0), &[0, 1, 2]);
        storage.edit("certificates", |bytes| {
            let payload = absurd.to_bytes();
            let (at, tag) = (bytes.len(), absurd.checkpoint.height.0);
            bytes.extend(record(0, at, tag, 0, payload.len() as u32, &payload));
        });
        let log = use_log(&storage).unwrap();
        assert_eq!(log.latest_certificate().unwrap(), Some(good));
    }
}

#[test]
fn absurd_records_of_side_files_are_passed_over() {
    for name in ["certificates", ATTESTED] {
        let number = u64::from(name == ATTESTED);
        let hash = block_hash(&blocks(1)[0].0);
        let mut cases = vec![];
        for tag in ABSURD.into_iter().chain([0]) {
            for length in [u32::MAX, u32::MAX - 27, 1 << 31, 5, 0] {
                for back in [u32::MAX, 0] {
                    cases.push((tag, length, back, vec![7; 5]));
                }
            }
        }
        // So many signatures that nobody has them, and a certificate in a record of another height.
        cases.push((1, 36, 0, [&hash.0[..], &u32::MAX.to_le_bytes()].concat()));
        let other = certify(checkpoint(&blocks(1)[0].0), &[0, 1, 2]).to_bytes();
        cases.push((3, other.len() as u32, 0, other.to_vec()));
        for (tag, length, back, payload) in cases {
            let (mut storage, all) = certified_log_of(3, 4);
            let (mut log, _) = open(&storage, 4);
            let hash = block_hash(&all[0].0);
            let said = attest(Height(1), hash, &[1]);
            log.put_attestation(Height(1), hash, &said).unwrap();
            log.sync().unwrap();
            drop(log);
            storage.edit(name, |bytes| {
                let at = bytes.len();
                bytes.extend(record(number, at, tag, back, length, &payload));
            });
            let mut log = use_log(&storage).unwrap();
            assert_eq!(log.attestations(Height(1)).unwrap(), [(hash, said[0].0, said[0].1)]);
            let latest = log.latest_certificate().unwrap().unwrap();
            assert_eq!(latest.checkpoint.height, Height(3));
        }
    }
}

#[test]
fn absurd_numbers_in_segments_are_damage() {
    // In the footer: the offset of each record. In the header: capacity and first height.
    for n in ABSURD.into_iter().chain([0, 95, 1 << 31]) {
        for entry in 0..4 {
            for first in [1, 5] {
                let (mut storage, _) = log_of(8, 4);
                storage.edit(&segment(first), |bytes| {
                    let start = bytes.len() - 96;
                    put(bytes, start + 52 + 8 * entry, &n.to_le_bytes());
                    seal(bytes, start..start + 84, start + 84);
                });
                let _ = use_log(&storage);
            }
        }
        for (at, value) in [(16, &n.to_le_bytes()[..4]), (52, &n.to_le_bytes()[..])] {
            for first in [1, 5, 9] {
                let (mut storage, _) = log_of(10, 4);
                storage.edit(&segment(first), |bytes| {
                    put(bytes, at, value);
                    seal(bytes, 0..92, 92);
                });
                let _ = use_log(&storage);
            }
        }
        // A block of another height.
        let (mut storage, _) = log_of(3, 4);
        storage.edit(&segment(1), |bytes| {
            put(bytes, 96 + 12, &n.to_le_bytes());
            let covered = [&bytes[96..120], &bytes[124..291]].concat();
            put(bytes, 96 + 24, &crc32fast::hash(&covered).to_le_bytes());
        });
        let _ = use_log(&storage);
    }
}

/// What lies between two files is not fetched without bound.
#[test]
fn a_gap_of_absurd_length_is_an_error() {
    for far in [1_u64 << 21, 1 << 33, (1 << 62) - 1] {
        for broken in [true, false] {
            let (mut storage, _) = log_of(8, 4);
            let (mut header, parent) = (storage.contents(&segment(5)).unwrap(), [1; 32]);
            put(&mut header, 52, &far.to_le_bytes());
            put(&mut header, 60, &parent);
            seal(&mut header, 0..92, 92);
            storage.edit(&segment(far), |bytes| bytes.extend(&header[..96]));
            if broken {
                storage.edit(&segment(5), |bytes| bytes.truncate(300));
            }
            assert!(matches!(use_log(&storage).err(), Some(LedgerError::Damage { .. })));
        }
    }
}

#[test]
fn absurd_heads_of_snapshots_do_no_harm() {
    let mut cases: Vec<_> = absurd_certificates().into_iter().map(|c| (c, 5, false)).collect();
    let good = certify(checkpoint(&blocks(9)[8].0), &[0, 1, 2]);
    // What nothing certifies may be anything; whoever reads it minds that.
    cases.extend(ABSURD.map(|n| (good.clone(), n, true)));
    for (certificate, chain_bytes, is_read) in cases {
        let mut storage = MemStorage::new();
        let mut store = SnapshotStore::open(Box::new(storage.clone()), CHAIN).unwrap();
        let seq = good.checkpoint.seq;
        let head = SnapshotHead { certificate: good.clone(), chain_bytes: 5 };
        store.begin(&head).unwrap();
        let root = store.push_chunk(b"a", Digest([1; 32]), b"data");
        store.finish(&[(b'a', root)]).unwrap();
        let name = format!("snapshot-{:020}", seq.0);
        let named = format!("snapshot-{:020}", certificate.checkpoint.seq.0);
        let mut bytes = storage.contents(&name).unwrap();
        let encoded = certificate.to_bytes();
        put(&mut bytes, 52, &encoded);
        put(&mut bytes, 52 + encoded.len(), &chain_bytes.to_le_bytes());
        let covered = [&bytes[..48], &bytes[52..60 + encoded.len()]].concat();
        put(&mut bytes, 48, &crc32fast::hash(&covered).to_le_bytes());
        storage.remove(&name).unwrap();
        storage.edit(&named, |file| *file = bytes);
        let mut store = SnapshotStore::open(Box::new(storage), CHAIN).unwrap();
        for seq in store.kept().to_vec() {
            let damaged = |error| matches!(error, Some(LedgerError::Damage { .. }));
            assert!(is_read || damaged(store.read(seq).err()));
            assert_eq!(store.head(seq).is_ok(), is_read);
            assert!(is_read || damaged(store.head(seq).err()));
            let _ = store.roots(seq);
        }
    }
}

/// A snapshot that tells of other epochs is another version's: refused by name, and no damage, so that
/// nobody passes it over and removes it. Any other byte too much is damage.
#[test]
fn records_of_epochs_in_snapshots_are_refused_by_name() {
    for (more, refused) in
        [(&[1, 0, 0, 0, 0][..], true), (&[1], true), (&[0], false), (&[2], false)]
    {
        let mut storage = MemStorage::new();
        let mut store = SnapshotStore::open(Box::new(storage.clone()), CHAIN).unwrap();
        let certificate = certify(checkpoint(&blocks(9)[8].0), &[0, 1, 2]);
        let seq = certificate.checkpoint.seq;
        let head = 52 + certificate.to_bytes().len() + 8;
        store.begin(&SnapshotHead { certificate, chain_bytes: 5 }).unwrap();
        store.finish(&[]).unwrap();
        let name = format!("snapshot-{:020}", seq.0);
        let mut bytes = storage.contents(&name).unwrap();
        bytes.splice(head..head, more.iter().copied());
        put(&mut bytes, 44, &((head - 52 + more.len()) as u32).to_le_bytes());
        let covered = [&bytes[..48], &bytes[52..head + more.len()]].concat();
        put(&mut bytes, 48, &crc32fast::hash(&covered).to_le_bytes());
        storage.edit(&name, |file| *file = bytes.clone());
        let store = SnapshotStore::open(Box::new(storage), CHAIN).unwrap();
        let error = store.head(seq).unwrap_err();
        match refused {
            true => assert!(matches!(error, LedgerError::EpochRecords { .. }), "{error}"),
            false => assert!(matches!(error, LedgerError::Damage { .. }), "{error}"),
        }
    }
}

/// Places and lengths in a snapshot that lie outside of it.
#[test]
fn absurd_places_in_snapshots_are_damage() {
    let storage = MemStorage::new();
    let mut store = SnapshotStore::open(Box::new(storage.clone()), CHAIN).unwrap();
    let certificate = certify(checkpoint(&blocks(9)[8].0), &[0, 1, 2]);
    store.begin(&SnapshotHead { certificate, chain_bytes: 5 }).unwrap();
    let chunk = store.push_chunk(b"a", Digest([1; 32]), b"data");
    store.finish(&[(b'a', u64::MAX)]).unwrap();
    let (seq, name) = (SeqNum(18), format!("snapshot-{:020}", 18));
    assert_eq!(store.roots(seq).unwrap(), [(b'a', u64::MAX)]);
    for at in ABSURD {
        assert!(matches!(store.record(seq, at), Err(LedgerError::Damage { .. })));
    }
    let end = storage.contents(&name).unwrap().len() - 49;
    for n in ABSURD.into_iter().chain([1 << 31]) {
        // Length of the data, then number of chunks, length of all before the end, and roots.
        let places = [
            (chunk as usize + 8, 8),
            (chunk as usize + 4, 4),
            (end + 4, 8),
            (end + 12, 8),
            (end + 24, 4),
        ];
        for (at, len) in places {
            let mut storage = storage.fork();
            storage.edit(&name, |bytes| {
                put(bytes, at, &n.to_le_bytes()[..len]);
                seal(bytes, end..end + 37, end + 37);
            });
            let mut store = SnapshotStore::open(Box::new(storage), CHAIN).unwrap();
            assert!(store.read(seq).is_err() || len == 4);
            let (_, _) = (store.roots(seq), store.record(seq, chunk));
        }
    }
}

#[test]
fn absurd_names_are_no_files_of_ours() {
    let (mut storage, _) = log_of(3, 4);
    for n in ABSURD {
        for name in ["blocks", "attest", "snapshot"] {
            storage.edit(&format!("{name}-{n:020}"), |bytes| bytes.push(1));
        }
        for name in ["wal", "pieces"] {
            storage.edit(&format!("{name}-{n:010}"), |bytes| bytes.push(1));
        }
    }
    assert_eq!(use_log(&storage).unwrap().tip().0, Height(3));
    let (mut wal, records) =
        Wal::open(Box::new(storage.clone()), CHAIN, WalSettings::default()).unwrap();
    assert_eq!(records, []);
    wal.append(1, b"a promise").unwrap();
    wal.sync().unwrap();
    let mut staging = Staging::open(Box::new(storage.clone())).unwrap();
    staging.put([(1, &b"a piece"[..])], 1000).unwrap();
    let mut read = Vec::new();
    staging.read(|kind, bytes| read.push((kind, bytes))).unwrap();
    assert_eq!(read, [(1, Bytes::from_static(b"a piece"))]);
    staging.clear().unwrap();
    assert_eq!(SnapshotStore::open(Box::new(storage), CHAIN).unwrap().kept(), []);
}
