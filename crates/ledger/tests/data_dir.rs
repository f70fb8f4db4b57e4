//! Data directories and the real file system.

use crate::common;

use common::{CHAIN, blocks, membership, settings};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tercio_ledger::{
    BlockLog, DataDir, DataDirError, DirStorage, Identity, Storage, Wal, WalSettings, audit,
};
use tercio_types::{ChainId, ReplicaId, Suite};

const US: Identity = Identity { chain: CHAIN, replica: ReplicaId(2), suite: Suite::Sha256Ed25519 };

#[test]
fn a_directory_is_made_once_and_belongs_to_one_replica_of_one_chain() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a/replica-2");
    assert!(matches!(DataDir::open(&path), Err(DataDirError::Missing(_))));
    let dir = DataDir::open_or_create(&path, &US).unwrap();
    let mode = |p: &std::path::Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("manifest"))), (0o700, 0o600));
    // A second user of the directory is told.
    assert!(matches!(DataDir::open_or_create(&path, &US), Err(DataDirError::InUse(_))));
    assert!(matches!(DataDir::open(&path), Err(DataDirError::InUse(_))));
    drop(dir);
    assert_eq!(*DataDir::open(&path).unwrap().identity(), US);
    let other = Identity { chain: ChainId([1; 32]), ..US };
    let error = DataDir::open_or_create(&path, &other).unwrap_err();
    assert!(matches!(error, DataDirError::OtherChain { .. }), "{error}");
    let other = Identity { replica: ReplicaId(1), ..US };
    let error = DataDir::open_or_create(&path, &other).unwrap_err();
    assert!(matches!(error, DataDirError::OtherReplica { .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()));
    DataDir::open_or_create(&path, &US).unwrap();
}

#[test]
fn a_directory_that_was_set_up_has_a_log_and_one_that_start_makes_has_none() {
    let parent = tempfile::tempdir().unwrap();
    let blank = |dir: &DataDir| {
        let wal = Box::new(dir.wal().unwrap());
        Wal::open(wal, CHAIN, WalSettings::default()).unwrap().0.is_blank()
    };
    let path = parent.path().join("set-up");
    let dir = DataDir::create(&path, &US).unwrap();
    assert!(!blank(&dir));
    drop(dir);
    assert!(matches!(DataDir::create(&path, &US), Err(DataDirError::Exists(_))));
    assert!(!blank(&DataDir::open_or_create(&path, &US).unwrap()));
    fs::remove_dir_all(&path).unwrap();
    assert!(blank(&DataDir::open_or_create(&path, &US).unwrap()), "its log is lost");
}

#[test]
fn strangers_damage_and_other_versions_are_told_apart() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("d");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("thesis.txt"), "mine").unwrap();
    let error = DataDir::open_or_create(&path, &US).unwrap_err();
    assert!(matches!(&error, DataDirError::NotOurs { entry, .. } if entry == "thesis.txt"));
    assert!(matches!(DataDir::open(&path), Err(DataDirError::NotOurs { .. })));
    fs::remove_file(path.join("thesis.txt")).unwrap();
    assert!(matches!(DataDir::open(&path), Err(DataDirError::Damaged { .. })));
    drop(DataDir::open_or_create(&path, &US).unwrap());
    let manifest = path.join("manifest");
    let good = fs::read(&manifest).unwrap();
    for bit in 0..8 * good.len() {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&manifest, bad).unwrap();
        assert!(DataDir::open_or_create(&path, &US).is_err(), "bit {bit}");
    }
    let text = String::from_utf8(good).unwrap();
    fs::write(&manifest, text.replacen("data 3", "data 4", 1)).unwrap();
    let error = DataDir::open(&path).unwrap_err();
    assert!(matches!(&error, DataDirError::Version { found, .. } if found == "4"), "{error}");
    fs::write(&manifest, "x".repeat(10_000)).unwrap();
    assert!(matches!(DataDir::open(&path), Err(DataDirError::Damaged { .. })));
}

#[test]
fn a_file_in_the_place_of_the_directory_is_a_clear_error() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("file");
    fs::write(&path, "").unwrap();
    let error = DataDir::open_or_create(&path, &US).unwrap_err().to_string();
    assert!(
        error.contains(path.to_str().unwrap()) && error.contains("name a directory"),
        "{error}"
    );
}

/// The files of a directory that this process holds open, by name.
fn open_files(dir: &Path) -> Vec<String> {
    let held = fs::read_dir("/proc/self/fd").unwrap();
    let held = held.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let mut names: Vec<String> = held
        .filter(|file| file.parent() == Some(dir))
        .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn logs_stand_on_real_files() {
    let parent = tempfile::tempdir().unwrap();
    let dir = DataDir::open_or_create(parent.path().join("r"), &US).unwrap();
    let all = blocks(9);
    {
        let blocks = Box::new(dir.blocks().unwrap());
        let (mut log, _) = BlockLog::open(blocks, CHAIN, settings(4)).unwrap();
        let settings = WalSettings { file_bytes: 500, ahead_bytes: 100 };
        let (mut wal, _) = Wal::open(Box::new(dir.wal().unwrap()), CHAIN, settings).unwrap();
        for (i, (header, body)) in all.iter().enumerate() {
            log.append(header, body).unwrap();
            wal.append(i as u64 + 1, body).unwrap();
            wal.sync().unwrap();
        }
        log.sync().unwrap();
        let removal = wal.prune(8).unwrap().expect("some files are full");
        assert!(removal.run().unwrap() > 0);
        // A file that is open is freed by whoever closes it, and that takes the time.
        let open = open_files(&parent.path().join("r/wal"));
        assert!(
            !open.is_empty() && !open.iter().any(|name| name.ends_with("(deleted)")),
            "{open:?}"
        );
    }
    let (log, recovery) =
        BlockLog::open(Box::new(dir.blocks().unwrap()), CHAIN, settings(4)).unwrap();
    assert_eq!(recovery.head, Some(log.tip().0));
    for (header, body) in &all {
        assert_eq!(log.read(header.height).unwrap().unwrap().body, body);
    }
    let wal = Box::new(dir.wal().unwrap());
    let (_, records) = Wal::open(wal, CHAIN, WalSettings::default()).unwrap();
    assert_eq!(records.last().unwrap().bytes, all[8].1);
    let report = audit(&dir.blocks().unwrap(), &membership(), &mut |_| {}).unwrap();
    assert_eq!(report.blocks, 9);
}

#[test]
fn storage_errors_name_the_file() {
    let parent = tempfile::tempdir().unwrap();
    let mut storage = DirStorage::open(parent.path()).unwrap();
    let path = parent.path().join("x");
    for error in [
        storage.len("x").unwrap_err(),
        storage.read_at("x", 0, 1).unwrap_err(),
        storage.sync("x").unwrap_err(),
        storage.remove("x").unwrap_err(),
        storage.rename("x", "y").unwrap_err(),
    ] {
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    assert!(DirStorage::open_existing(&path).is_err());
    storage.write_atomic("x", b"one").unwrap();
    storage.append("x", b"two").unwrap();
    assert_eq!(storage.read_at("x", 2, 3).unwrap(), b"etw");
    assert!(storage.read_at("x", 2, 5).is_err());
    assert_eq!(storage.list().unwrap(), ["x"]);
}
