//! Pieces of a state that is being fetched: what is whole comes back, and nothing else.

use bytes::Bytes;
use tercio_ledger::{MemStorage, Removal, Staging, Storage};

const LIMIT: u64 = 1 << 20;
const FIRST: &str = "pieces-0000000001";

fn open(storage: &MemStorage) -> Staging {
    Staging::open(Box::new(storage.clone())).unwrap()
}

fn piece(i: u8) -> (u8, Vec<u8>) {
    (i % 2, vec![i; 10 * usize::from(i)])
}

fn put(staging: &mut Staging, pieces: std::ops::Range<u8>, limit: u64) {
    let pieces: Vec<_> = pieces.map(piece).collect();
    staging.put(pieces.iter().map(|(kind, bytes)| (*kind, &bytes[..])), limit).unwrap();
}

/// Clears it, and removes what is to go at once; gives how many files.
fn clear(staging: &mut Staging) -> usize {
    staging.clear().unwrap().map_or(0, |removal: Removal| removal.run().unwrap())
}

fn read(staging: &Staging) -> Vec<(u8, Vec<u8>)> {
    let mut all = vec![];
    staging.read(|kind, bytes: Bytes| all.push((kind, bytes.to_vec()))).unwrap();
    all
}

#[test]
fn what_was_kept_is_there_after_a_start_until_it_is_cleared() {
    let storage = MemStorage::new();
    let mut staging = open(&storage);
    put(&mut staging, 0..3, LIMIT);
    put(&mut staging, 3..5, LIMIT);
    let mut again = open(&storage);
    put(&mut again, 5..9, LIMIT);
    let all: Vec<_> = (0..9).map(piece).collect();
    assert_eq!(read(&again), all);
    let last = open(&storage);
    assert_eq!((read(&last), last.bytes()), (all, again.bytes()));
    assert_eq!(clear(&mut again), 2);
    assert_eq!((read(&again), again.bytes()), (vec![], 0));
    assert!(storage.list().unwrap().is_empty());
    assert_eq!(clear(&mut again), 0);
    put(&mut again, 1..2, LIMIT);
    assert_eq!(read(&open(&storage)), [piece(1)]);
}

/// What is put before the old files were removed is not among them.
#[test]
fn what_is_to_go_may_stay_until_later() {
    let storage = MemStorage::new();
    let mut staging = open(&storage);
    put(&mut staging, 0..3, LIMIT);
    let removal = staging.clear().unwrap().expect("there is a file");
    put(&mut staging, 3..5, LIMIT);
    assert_eq!(removal.run().unwrap(), 1);
    put(&mut staging, 5..6, LIMIT);
    let all: Vec<_> = (3..6).map(piece).collect();
    assert_eq!((read(&staging), read(&open(&storage))), (all.clone(), all));
}

#[test]
fn it_grows_up_to_its_limit_and_no_further() {
    let storage = MemStorage::new();
    let mut staging = open(&storage);
    (0..50).for_each(|_| put(&mut staging, 7..9, 1000));
    assert!((900..=1000).contains(&staging.bytes()), "{}", staging.bytes());
    assert_eq!(staging.bytes(), storage.contents(FIRST).unwrap().len() as u64);
    // What earlier starts have left counts.
    let mut again = open(&storage);
    put(&mut again, 7..9, 1000);
    assert_eq!(again.bytes(), staging.bytes());
}

/// However a file ends, the whole records before the end are read; and those of the next start.
#[test]
fn a_torn_or_damaged_file_gives_what_is_whole() {
    let storage = MemStorage::new();
    put(&mut open(&storage), 1..5, LIMIT);
    let whole = storage.contents(FIRST).unwrap();
    for at in 0..whole.len() {
        for tear in [true, false] {
            let mut storage = MemStorage::new();
            put(&mut open(&storage), 1..5, LIMIT);
            let harm = |bytes: &mut Vec<u8>| match tear {
                true => bytes.truncate(at),
                false => bytes[at] ^= 0x40,
            };
            storage.edit(FIRST, harm);
            put(&mut open(&storage), 8..9, LIMIT);
            let mut all = read(&open(&storage));
            assert_eq!(all.pop(), Some(piece(8)), "byte {at}");
            let expected: Vec<_> = (1..5).map(piece).take(all.len()).collect();
            assert_eq!(all, expected, "byte {at}");
            assert!(all.len() < 4, "byte {at}");
        }
    }
}
