//! The mark of the write-ahead log: a log that was cut is told from a whole one.

use crate::common;

use common::CHAIN;
use tercio_ledger::{MemStorage, Storage, Wal, WalMark, WalSettings, WalWentBack};
use tercio_types::{ChainId, ReplicaId};

const SETTINGS: WalSettings = WalSettings { file_bytes: 4096, ahead_bytes: 1024 };
const ME: ReplicaId = ReplicaId(2);

/// A log and its mark, in directories of their own.
#[derive(Default)]
struct Dirs {
    wal: MemStorage,
    blocks: MemStorage,
}

impl Dirs {
    fn open(&self) -> (Wal, WalMark, Option<WalWentBack>) {
        let (wal, _) = Wal::open(Box::new(self.wal.clone()), CHAIN, SETTINGS).unwrap();
        let blocks = Box::new(self.blocks.clone());
        let (mark, back) = WalMark::open(blocks, CHAIN, ME, &wal).unwrap();
        (wal, mark, back)
    }

    fn went_back(&self) -> bool {
        self.open().2.is_some()
    }

    /// A log of so many records, durable and marked after the last but one.
    fn filled(count: u64) -> Self {
        let dirs = Self::default();
        let (mut wal, mut mark, back) = dirs.open();
        assert_eq!(back, None, "a new one");
        for i in 0..count {
            mark.note(wal.durable_end()).unwrap();
            wal.append(i + 1, &[i as u8; 100]).unwrap();
            wal.sync().unwrap();
        }
        dirs
    }

    fn last(&self) -> String {
        self.wal.list().unwrap().last().unwrap().clone()
    }
}

#[test]
fn a_whole_log_is_never_taken_for_a_cut_one() {
    for count in [0, 1, 2, 30, 31, 32, 100] {
        let dirs = Dirs::filled(count);
        assert!(!dirs.went_back(), "{count}");
        // What was not synced may be gone, of the log and of the mark.
        for seed in 0..50 {
            let mut choose = common::chooser(seed);
            let after = Dirs {
                wal: dirs.wal.after_crash(&mut choose),
                blocks: dirs.blocks.after_crash(&mut choose),
            };
            assert!(!after.went_back(), "{count}, {seed}");
        }
    }
}

/// A log that was full when it was opened again with longer files goes on in its last one.
#[test]
fn longer_files_are_no_loss() {
    for count in 20..40 {
        let dirs = Dirs::filled(count);
        let longer = WalSettings { file_bytes: 1 << 20, ..SETTINGS };
        let (mut wal, mut mark, _) = dirs.open();
        mark.note(wal.durable_end()).unwrap();
        wal.sync().unwrap();
        let (wal, _) = Wal::open(Box::new(dirs.wal.clone()), CHAIN, longer).unwrap();
        let (_, back) = WalMark::open(Box::new(dirs.blocks.clone()), CHAIN, ME, &wal).unwrap();
        assert_eq!(back, None, "{count}");
    }
}

#[test]
fn a_log_that_was_cut_is_told() {
    let cut = |count: u64, cut: &dyn Fn(&mut Dirs)| {
        let mut dirs = Dirs::filled(count);
        cut(&mut dirs);
        dirs.went_back()
    };
    assert!(cut(10, &|dirs| {
        let last = dirs.last();
        dirs.wal.edit(&last, |bytes| bytes.truncate(600));
    }));
    // Zeros in the place of records look like room ahead of them.
    assert!(cut(10, &|dirs| {
        let last = dirs.last();
        dirs.wal.edit(&last, |bytes| bytes[600..].fill(0));
    }));
    assert!(cut(100, &|dirs| {
        let last = dirs.last();
        dirs.wal.remove(&last).unwrap();
    }));
    assert!(cut(100, &|dirs| dirs.wal = MemStorage::new()));
    assert!(cut(100, &|dirs| dirs.wal = Dirs::filled(50).wal), "an older copy");
    // What came after the mark cannot be missed.
    assert!(!cut(10, &|dirs| {
        let last = dirs.last();
        let end = 60 + 9 * 128;
        dirs.wal.edit(&last, |bytes| bytes.truncate(end));
    }));
}

#[test]
fn only_a_whole_mark_of_this_replica_counts() {
    let cut = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut dirs = Dirs::filled(20);
        dirs.wal = Dirs::filled(5).wal;
        dirs.blocks.edit("log-mark", edit);
        dirs
    };
    assert!(cut(&|_| {}).went_back());
    for byte in [0, 8, 12, 16, 48, 56, 67] {
        assert!(!cut(&|bytes| bytes[byte] ^= 1).went_back(), "byte {byte}");
    }
    assert!(!cut(&|bytes| bytes.truncate(60)).went_back());
    assert!(!cut(&|bytes| bytes.push(0)).went_back());
    let dirs = cut(&|_| {});
    let (wal, _, _) = dirs.open();
    for (chain, me) in [(CHAIN, ReplicaId(1)), (ChainId([77; 32]), ME)] {
        let (_, back) = WalMark::open(Box::new(dirs.blocks.clone()), chain, me, &wal).unwrap();
        assert_eq!(back, None, "another's");
    }
}

/// The mark goes back only when the log says, durably, that it was lost.
#[test]
fn a_cut_log_is_told_until_it_says_so_itself() {
    let mut dirs = Dirs::filled(20);
    dirs.wal = Dirs::filled(5).wal;
    let (mut wal, mut mark, back) = dirs.open();
    let text = back.unwrap().to_string();
    assert!(text.contains("wal-0000000001") && text.contains("docs/backup.md"), "{text}");
    mark.note(wal.durable_end()).unwrap();
    assert!(dirs.went_back(), "nothing was said");
    wal.append(0, b"lost").unwrap();
    mark.note(wal.durable_end()).unwrap();
    assert!(dirs.went_back(), "nothing durable was said");
    wal.sync().unwrap();
    mark.note(wal.durable_end()).unwrap();
    mark.sync().unwrap();
    assert!(!dirs.went_back());
}

/// Once the log is durable behind the loss, and that is marked, a power failure brings the loss not back.
#[test]
fn a_loss_that_is_made_good_does_not_come_back_with_a_power_failure() {
    let mut dirs = Dirs::filled(10);
    let (wal, mut mark, _) = dirs.open();
    mark.note(wal.durable_end()).unwrap();
    mark.sync().unwrap();
    drop((wal, mark));
    let last = dirs.last();
    dirs.wal.edit(&last, |bytes| bytes.truncate(600));
    let (mut wal, mut mark, back) = dirs.open();
    assert!(back.is_some());
    for _ in 0..3 {
        wal.append(0, b"x").unwrap();
        wal.sync().unwrap();
        mark.note(wal.durable_end()).unwrap();
    }
    drop((wal, mark));
    for seed in 0..50 {
        let mut choose = common::chooser(seed);
        let after = Dirs {
            wal: dirs.wal.after_crash(&mut choose),
            blocks: dirs.blocks.after_crash(&mut choose),
        };
        assert!(!after.went_back(), "{seed}");
    }
}
