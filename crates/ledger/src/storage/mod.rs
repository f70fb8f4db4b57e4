//! A flat directory of files: all that the ledger asks of the medium.

mod dir;
mod mem;

pub use dir::DirStorage;
pub use dir::describe;
pub use mem::{MediaFault, MemStorage};

use std::io;

/// How the names of files end that an atomic write has not finished.
pub(crate) const TEMPORARY: &str = ".tmp";

/// A flat directory of files that grow at their end, are written over, renamed and removed.
///
/// What is assumed: bytes for which [`Storage::sync`] returned, in a file whose name
/// [`Storage::sync_dir`] covered, survive every crash. Of later writes, each sector of 512 bytes
/// is as it was or as it was to be, whatever became of the others: an append was to be behind what
/// is zeros, so that it may leave a hole of zeros with whole bytes behind it. Of later appends only
/// a part of the length may be there, possibly with wrong bytes at its end. Creations, renames and
/// removals since the last `sync_dir` have each happened or not; a rename is never half done.
///
/// Every error names the file.
pub trait Storage: Send {
    /// The names of all files, sorted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The length of a file, in bytes.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// Reads exactly `len` bytes from `offset` on.
    ///
    /// # Errors
    /// When the file is missing, ends before (`UnexpectedEof`), or cannot be read.
    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Appends to a file, which is created when there is none.
    ///
    /// # Errors
    /// When not all bytes were taken; some may have been.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Writes at `at`, which is at most the file's length: over what stands there, and as an append
    /// from where the file ends. A file is created when there is none.
    ///
    /// # Errors
    /// When not all bytes were taken; some may have been.
    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the file's bytes and length durable.
    ///
    /// # Errors
    /// When they may not be: then nothing that was written since the last success may be relied
    /// upon, even when a later call succeeds.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Gives a file another name; a file that had that name is gone.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Another handle of the directory, with which another thread removes these files: this one
    /// releases them, and must not name them again.
    ///
    /// # Errors
    /// When there can be none.
    fn hand_over(&mut self, names: &[String]) -> io::Result<Box<dyn Storage>>;

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// When they may not be.
    fn sync_dir(&mut self) -> io::Result<()>;

    /// Writes a whole file durably, so that after a crash it has the old content or the new.
    ///
    /// # Errors
    /// When any step fails.
    fn write_atomic(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = format!("{name}{TEMPORARY}");
        match self.remove(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        self.append(&temporary, bytes)?;
        self.sync(&temporary)?;
        self.rename(&temporary, name)?;
        self.sync_dir()
    }
}
