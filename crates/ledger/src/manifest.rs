//! The data directory of a replica: whose it is, and that one process uses it.
//!
//! ```text
//! manifest    five lines of text: the word 'tercio-data' and the format version; chain, replica
//!             and suite, each with its value; the crc of these lines
//! lock        empty; locked by the process that uses the directory
//! wal/ blocks/ snapshots/
//! ```

use crate::storage::{TEMPORARY, describe};
use crate::{DISK_VERSION, DirStorage, LedgerError, Storage, Wal, WalSettings};
use std::fmt::Write;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tercio_types::{ChainId, ReplicaId, Suite};
use thiserror::Error;

const MANIFEST: &str = "manifest";
const LOCK: &str = "lock";
/// A manifest is far shorter.
const MAX_MANIFEST: u64 = 4096;

/// Whose a data directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The network.
    pub chain: ChainId,
    /// The replica.
    pub replica: ReplicaId,
    /// The hash and signature scheme.
    pub suite: Suite,
}

/// Why a data directory is not used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// There is none.
    #[error("{} does not exist; check the path, or start the replica once to create it", .0.display())]
    Missing(PathBuf),
    /// It is a directory with other things in it.
    #[error(
        "{} is no data directory of Tercio: it has '{entry}' and no manifest; name an empty or a \
         new directory",
        path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Something that is in it.
        entry: String,
    },
    /// Its manifest is not what was written.
    #[error(
        "{} is damaged: {what}; move the data directory aside and start on none (docs/backup.md)",
        path.display()
    )]
    Damaged {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It was written by another version.
    #[error(
        "{} has disk format version {found}, but this build reads version {expected}; use a \
         build of that version",
        path.display()
    )]
    Version {
        /// The directory.
        path: PathBuf,
        /// The version in the manifest.
        found: String,
        /// The version that this build reads.
        expected: u32,
    },
    /// It belongs to another network.
    #[error(
        "{} belongs to chain {found}, not to {expected}; name the directory of this network",
        path.display()
    )]
    OtherChain {
        /// The directory.
        path: PathBuf,
        /// Its chain.
        found: ChainId,
        /// Our chain.
        expected: ChainId,
    },
    /// It belongs to another replica.
    #[error(
        "{} belongs to replica {found}, not to replica {expected}; name this replica's directory",
        path.display()
    )]
    OtherReplica {
        /// The directory.
        path: PathBuf,
        /// Its replica.
        found: ReplicaId,
        /// Our replica.
        expected: ReplicaId,
    },
    /// It belongs to a network with other schemes.
    #[error("{} uses other hash and signature schemes than this network", .0.display())]
    OtherSuite(PathBuf),
    /// It was made before.
    #[error(
        "{} is a data directory already; start the replica on it, or name a new directory",
        .0.display()
    )]
    Exists(PathBuf),
    /// The write-ahead log cannot be begun.
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    /// Another process uses it.
    #[error("{} is in use by another process; stop that one first", .0.display())]
    InUse(PathBuf),
    /// The file system failed. The text names the file and what to do.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A data directory, locked for this process until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    _lock: File,
}

fn encode(identity: &Identity) -> String {
    let Identity { chain, replica, suite } = identity;
    let number = suite.number();
    let mut text =
        format!("tercio-data {DISK_VERSION}\nchain {chain}\nreplica {replica}\nsuite {number}\n");
    let crc = crc32fast::hash(text.as_bytes());
    writeln!(text, "crc {crc:08x}").expect("a string takes all");
    text
}

/// Reads a manifest strictly: it must be what [`encode`] writes.
fn decode(path: &Path, text: &str) -> Result<Identity, DataDirError> {
    let bad = |what: &str| DataDirError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let mut lines = text.lines();
    let mut value = |word: &str| {
        let value = lines.next().and_then(|line| line.strip_prefix(word)?.strip_prefix(' '));
        value.ok_or_else(|| bad(&format!("expected a line '{word} ...'")))
    };
    let version = value("tercio-data")?;
    if version != DISK_VERSION.to_string() {
        let (path, found) = (path.to_owned(), version.chars().take(20).collect());
        return Err(DataDirError::Version { path, found, expected: DISK_VERSION });
    }
    let chain =
        value("chain")?.parse().map_err(|_| bad("the chain is no 64 hexadecimal digits"))?;
    let replica = value("replica")?.parse().map_err(|_| bad("the replica is no number"))?;
    let suite = value("suite")?.parse().ok().and_then(Suite::from_number);
    let suite = suite.ok_or_else(|| bad("the suite is unknown"))?;
    let identity = Identity { chain, replica: ReplicaId(replica), suite };
    if encode(&identity) != text {
        return Err(bad("the checksum is wrong"));
    }
    Ok(identity)
}

impl DataDir {
    /// Makes the data directory of a replica that has never run, with its write-ahead log begun
    /// ([`Wal::begin`]). This belongs to setting a replica up. A replica that is started on a
    /// directory without a log has lost it, and takes part again by the rules for that only.
    ///
    /// # Errors
    /// When there is one already, another thing is in its place, or it cannot be written.
    pub fn create(path: impl Into<PathBuf>, identity: &Identity) -> Result<Self, DataDirError> {
        let path = path.into();
        DirStorage::open(&path)?;
        if Self::has_manifest(&path)? {
            return Err(DataDirError::Exists(path));
        }
        let dir = Self::open_or_create(path, identity)?;
        let storage = Box::new(dir.wal()?);
        let settings = WalSettings { ahead_bytes: 0, ..WalSettings::default() };
        let (mut wal, _) = Wal::open(storage, identity.chain, settings)?;
        wal.begin()?;
        Ok(dir)
    }

    /// Opens the data directory of `identity`, and creates it when there is none; what is created
    /// here has no write-ahead log.
    ///
    /// # Errors
    /// When it belongs to somebody else, is in use, damaged, of another version, or cannot be
    /// read or written.
    pub fn open_or_create(
        path: impl Into<PathBuf>,
        identity: &Identity,
    ) -> Result<Self, DataDirError> {
        let path = path.into();
        let mut storage = DirStorage::open(&path)?;
        let fresh = !Self::has_manifest(&path)?;
        if fresh {
            Self::refuse_strangers(&path)?;
        }
        let lock = Self::lock(&path)?;
        if fresh && !Self::has_manifest(&path)? {
            storage.write_atomic(MANIFEST, encode(identity).as_bytes())?;
        }
        let found = Self::read_manifest(&path)?;
        if found.chain != identity.chain {
            let (found, expected) = (found.chain, identity.chain);
            return Err(DataDirError::OtherChain { path, found, expected });
        }
        if found.replica != identity.replica {
            let (found, expected) = (found.replica, identity.replica);
            return Err(DataDirError::OtherReplica { path, found, expected });
        }
        if found.suite != identity.suite {
            return Err(DataDirError::OtherSuite(path));
        }
        Ok(Self { path, identity: found, _lock: lock })
    }

    /// Opens a data directory that must exist, whosever it is: for an audit.
    ///
    /// # Errors
    /// When it does not exist, is no data directory, is in use, damaged, of another version, or
    /// cannot be read.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let path = path.into();
        if !path.try_exists().map_err(|e| describe("open", &path, &e))? {
            return Err(DataDirError::Missing(path));
        }
        if !Self::has_manifest(&path)? {
            Self::refuse_strangers(&path)?;
            let (path, what) = (path.join(MANIFEST), "the file is missing".to_owned());
            return Err(DataDirError::Damaged { path, what });
        }
        let lock = Self::lock(&path)?;
        let identity = Self::read_manifest(&path)?;
        Ok(Self { path, identity, _lock: lock })
    }

    fn has_manifest(path: &Path) -> io::Result<bool> {
        let manifest = path.join(MANIFEST);
        manifest.try_exists().map_err(|e| describe("open", &manifest, &e))
    }

    /// Only what an interrupted creation leaves may be in a directory without a manifest.
    fn refuse_strangers(path: &Path) -> Result<(), DataDirError> {
        for entry in fs::read_dir(path).map_err(|e| describe("open", path, &e))? {
            let entry = entry.map_err(|e| describe("read", path, &e))?.file_name();
            let entry = entry.to_string_lossy().into_owned();
            if entry != LOCK && entry != format!("{MANIFEST}{TEMPORARY}") {
                return Err(DataDirError::NotOurs { path: path.to_owned(), entry });
            }
        }
        Ok(())
    }

    fn lock(path: &Path) -> Result<File, DataDirError> {
        let lock = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&lock).map_err(|e| describe("open", &lock, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(DataDirError::InUse(path.to_owned())),
            Err(TryLockError::Error(e)) => Err(describe("lock", &lock, &e).into()),
        }
    }

    fn read_manifest(path: &Path) -> Result<Identity, DataDirError> {
        let path = path.join(MANIFEST);
        let text = fs::metadata(&path).and_then(|meta| {
            if meta.len() > MAX_MANIFEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
            }
            fs::read_to_string(&path)
        });
        match text {
            Ok(text) => decode(&path, &text),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                Err(DataDirError::Damaged { path, what: e.to_string() })
            }
            Err(e) => Err(describe("read", &path, &e).into()),
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of the write-ahead log.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn wal(&self) -> io::Result<DirStorage> {
        DirStorage::open(self.path.join("wal"))
    }

    /// The files of the block log.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn blocks(&self) -> io::Result<DirStorage> {
        DirStorage::open(self.path.join("blocks"))
    }

    /// The files of the snapshots.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn snapshots(&self) -> io::Result<DirStorage> {
        DirStorage::open(self.path.join("snapshots"))
    }

    /// The pieces of a state that is being fetched.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn staging(&self) -> io::Result<DirStorage> {
        DirStorage::open(self.path.join("staging"))
    }
}
