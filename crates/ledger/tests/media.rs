//! The storage in memory leaves what real media leave: of a power failure and of bad sectors.

use tercio_ledger::{MediaFault, MemStorage, Storage};

const SECTOR: usize = 512;

/// A file with these durable bytes and others that are not.
fn file(synced: usize, unsynced: usize) -> MemStorage {
    let mut storage = MemStorage::new();
    storage.append("file", &vec![1; synced]).unwrap();
    storage.sync("file").unwrap();
    storage.sync_dir().unwrap();
    storage.append("file", &vec![2; unsynced]).unwrap();
    storage
}

/// Answers what is asked in order, and 1 from then on.
fn answers(given: Vec<u64>) -> impl FnMut(u64) -> u64 {
    let mut given = given.into_iter();
    move |n| given.next().unwrap_or(1).min(n - 1)
}

#[test]
fn a_power_failure_leaves_holes_in_what_was_appended() {
    // By sector: the rest of the second, the third, the fourth, a part of the fifth.
    let mut storage = file(700, 2000);
    storage.crash(&mut answers(vec![1900, 3, 0, 1, 0, 2]));
    let mut expected = vec![1; 700];
    expected.resize(1024, 0);
    expected.resize(1536, 2);
    expected.resize(2048, 0);
    expected.resize(2600, 2);
    assert!(storage.contents("file").unwrap() == expected);
    // By page.
    let mut storage = file(700, 20_000);
    storage.crash(&mut answers(vec![20_000, 4, 1, 0]));
    let mut expected = vec![1; 700];
    expected.resize(4096, 2);
    expected.resize(8192, 0);
    expected.resize(20_700, 2);
    assert!(storage.contents("file").unwrap() == expected);
}

#[test]
fn what_was_synced_has_no_holes() {
    for seed in 0..200_u64 {
        let mut x = seed;
        let mut choose = |n| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        let mut storage = file(3000, 9000);
        storage.crash(&mut choose);
        let left = storage.contents("file").unwrap();
        assert!(left.len() >= 3000 && left[..3000].iter().all(|byte| *byte == 1));
    }
}

#[test]
fn rotten_bits_are_in_one_sector() {
    let mut storage = file(3000, 500);
    // The fourth sector, three flips of which one is the same again.
    let range = storage.media_fault("file", MediaFault::BitRot, &mut answers(vec![3, 2, 0, 9, 9]));
    assert_eq!(range, Some(3 * SECTOR..3 * SECTOR + 2));
    let left = storage.contents("file").unwrap();
    assert_eq!(left[3 * SECTOR..][..3], [1 ^ 1, 1 ^ 2, 1]);
    assert_eq!(storage.media_fault("none", MediaFault::BitRot, &mut |_| 0), None);
}

#[test]
fn a_lost_write_reads_as_what_stood_there_before() {
    let mut storage = file(700, 1300);
    storage.sync("file").unwrap();
    storage.write_at("file", 600, &[3; 50]).unwrap();
    storage.sync("file").unwrap();
    // From the second sector on, three of them.
    let lost = storage.media_fault("file", MediaFault::LostWrite, &mut answers(vec![1, 2]));
    assert_eq!(lost, Some(600..2000));
    let mut expected = vec![1; 700];
    expected.resize(1024, 2);
    expected.resize(2000, 0);
    assert!(storage.contents("file").unwrap() == expected);
    // What is about to be written again is not lost.
    let mut storage = file(512, 0);
    storage.write_at("file", 0, &[3]).unwrap();
    assert_eq!(storage.media_fault("file", MediaFault::LostWrite, &mut |_| 0), None);
}

#[test]
fn a_misdirected_write_stands_in_another_place() {
    let mut storage = file(2000, 0);
    storage.edit("other", |bytes| bytes.extend([7; 600]));
    // The second sector of the other file, which is short, at the third of this.
    let choose = &mut answers(vec![5, 2]);
    let range = storage.media_fault("file", MediaFault::MisdirectedWrite, choose);
    assert_eq!(range, Some(1024..1112));
    let left = storage.contents("file").unwrap();
    assert!(left[1024..1112] == [7; 88] && left[1112..] == [1; 888]);
    assert_eq!(storage.contents("other").unwrap(), [7; 600]);
    // It stays.
    storage.crash(&mut |_| 0);
    assert_eq!(storage.contents("file").unwrap(), left);
}
