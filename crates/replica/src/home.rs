//! Where a replica's files live.

use std::io;
use std::path::PathBuf;
use tercio_ledger::{DataDir, DirStorage, MemStorage, Storage};

/// The part of a replica's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The write-ahead log.
    Wal,
    /// The block log.
    Blocks,
    /// The snapshots.
    Snapshots,
    /// Pieces of a state that is being fetched.
    Staging,
}

/// Where a replica's files live. It is held as long as the replica runs.
pub trait Home: Send {
    /// The files of one part. With `durable` unset a sync may leave them to the page cache.
    ///
    /// # Errors
    /// When they cannot be opened.
    fn open(&self, part: Part, durable: bool) -> io::Result<Box<dyn Storage>>;
}

impl Home for MemStorage {
    /// One flat directory for all parts: their file names differ.
    fn open(&self, _part: Part, _durable: bool) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(self.clone()))
    }
}

impl Home for DataDir {
    fn open(&self, part: Part, durable: bool) -> io::Result<Box<dyn Storage>> {
        let storage = match part {
            Part::Wal => self.wal(),
            Part::Blocks => self.blocks(),
            Part::Snapshots => self.snapshots(),
            Part::Staging => self.staging(),
        }?;
        if durable {
            return Ok(Box::new(storage));
        }
        Ok(Box::new(PageCache { path: storage.path().to_owned(), storage }))
    }
}

/// A directory whose syncs leave the bytes to the page cache: they survive the end of the process,
/// and not that of the machine.
#[derive(Debug)]
struct PageCache {
    path: PathBuf,
    storage: DirStorage,
}

impl Storage for PageCache {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.storage.len(name)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.storage.read_at(name, offset, len)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.storage.append(name, bytes)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.storage.write_at(name, at, bytes)
    }

    /// Only releases the open files, which are kept as long as they are not synced.
    fn sync(&mut self, _name: &str) -> io::Result<()> {
        self.storage = DirStorage::open_existing(&self.path)?;
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(from, to)
    }

    fn hand_over(&mut self, names: &[String]) -> io::Result<Box<dyn Storage>> {
        self.storage.hand_over(names)?;
        let storage = DirStorage::open_existing(&self.path)?;
        Ok(Box::new(Self { path: self.path.clone(), storage }))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        Ok(())
    }
}
