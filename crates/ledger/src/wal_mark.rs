//! How far the write-ahead log was durable: a small file beside the blocks, in another directory than
//! the log itself.
//!
//! A log that was cut, of which files were removed, or in whose place an older copy was put, looks
//! like one that a crash has torn. But it ends before a place up to which it was durable once: that
//! is what the mark says, as of the last stable checkpoint. A mark is written for bytes that are
//! durable already, over the one before, and synced where it goes back, after a loss, and at an orderly end. So it
//! is never ahead of a log that is whole; where the last one did not reach the disk, less is found. One that is not whole
//! says nothing, nor does that of another replica: blocks may be copied.
//!
//! ```text
//! magic "TERCIO\0M" | version: u32 | replica: u32 | chain: 32 B | file: u64 | bytes: u64 | crc: u32
//! ```

use crate::disk::Disk;
use crate::records::{chain_at, le32, le64};
use crate::{DISK_VERSION, LedgerError, Storage, Wal};
use std::fmt;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{ChainId, ReplicaId};

const FILE: &str = "log-mark";
const MAGIC: [u8; 8] = *b"TERCIO\0M";
const LEN: usize = 68;

/// A place in the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalEnd {
    /// The number of the file.
    pub file: u64,
    /// How many bytes of it.
    pub bytes: u64,
}

impl fmt::Display for WalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of wal-{:010}", self.bytes, self.file)
    }
}

/// A write-ahead log that ends before a place up to which it was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalWentBack {
    /// Where it ends.
    pub ends: WalEnd,
    /// Up to where it was durable.
    pub was: WalEnd,
}

impl fmt::Display for WalWentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends, was } = self;
        write!(
            f,
            "the write-ahead log ends at {ends}, and was durable up to {was}: it was cut, or an older \
             copy was put in its place. What this replica promised in between is forgotten, so it \
             learns from the others before it votes (docs/backup.md)"
        )
    }
}

/// The mark of a replica's write-ahead log.
pub struct WalMark {
    disk: Disk,
    chain: ChainId,
    replica: ReplicaId,
    /// Where the log ended when it was opened, and what the mark says since.
    last: WalEnd,
    /// The disk says more than that.
    ahead: bool,
}

impl WalMark {
    /// Opens the mark of a log that was just opened, and compares the two. `storage` is another than
    /// the log's.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn open(
        storage: Box<dyn Storage>,
        chain: ChainId,
        replica: ReplicaId,
        wal: &Wal,
    ) -> Result<(Self, Option<WalWentBack>), LedgerError> {
        let disk = Disk::new(storage);
        let ends = wal.durable_end();
        let was = read(disk.storage(), chain, replica)?;
        let ahead = was.is_some_and(|was| was > ends);
        let lost = was.filter(|_| ahead && stands(Defence::F64MarkLog));
        let mark = Self { disk, chain, replica, last: ends, ahead };
        Ok((mark, lost.map(|was| WalWentBack { ends, was })))
    }

    /// Takes note that the log is durable up to here. After a loss the mark goes back no sooner than
    /// something is durable behind where the log was opened: that it was lost is the first that it
    /// says. It is synced then: the one before would call the log cut that is whole again.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn note(&mut self, end: WalEnd) -> Result<(), LedgerError> {
        // A file that nothing is in yet may not be there after a crash.
        if end.bytes == 0 || end <= self.last {
            return Ok(());
        }
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&DISK_VERSION.to_le_bytes());
        out.extend_from_slice(&u32::from(self.replica.0).to_le_bytes());
        out.extend_from_slice(&self.chain.0);
        out.extend_from_slice(&end.file.to_le_bytes());
        out.extend_from_slice(&end.bytes.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        self.disk.change(|s| s.write_at(FILE, 0, &out))?;
        if self.ahead {
            self.disk.change(|s| s.sync(FILE))?;
            self.ahead = false;
        }
        self.last = end;
        Ok(())
    }

    /// Makes it durable: an orderly end.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn sync(&mut self) -> Result<(), LedgerError> {
        if !self.disk.storage().list()?.iter().any(|name| name == FILE) {
            return Ok(());
        }
        self.disk.change(|s| s.sync(FILE))?;
        self.disk.change(|s| s.sync_dir())
    }
}

/// What the mark says, if it is whole and this replica's.
fn read(
    storage: &dyn Storage,
    chain: ChainId,
    replica: ReplicaId,
) -> Result<Option<WalEnd>, LedgerError> {
    if !storage.list()?.iter().any(|name| name == FILE) || storage.len(FILE)? != LEN as u64 {
        return Ok(None);
    }
    let bytes = storage.read_at(FILE, 0, LEN)?;
    let whole = bytes[..8] == MAGIC
        && le32(&bytes, 8) == DISK_VERSION
        && crc32fast::hash(&bytes[..LEN - 4]) == le32(&bytes, LEN - 4);
    let ours = le32(&bytes, 12) == u32::from(replica.0) && chain_at(&bytes, 16) == chain;
    Ok((whole && ours).then(|| WalEnd { file: le64(&bytes, 48), bytes: le64(&bytes, 56) }))
}
