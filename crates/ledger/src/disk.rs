//! A storage that stops at the first failure, files that are to go, and a window to read a file
//! through.

use crate::storage::TEMPORARY;
use crate::{LedgerError, Storage};
use bytes::Bytes;
use std::{fmt, io};
use tercio_types::zoo::{Defence, stands};

/// A storage that refuses every change after the first one that failed: a failed fsync may have
/// dropped dirty pages and marked them clean, so that the next fsync would succeed over a hole.
pub(crate) struct Disk {
    storage: Box<dyn Storage>,
    failed: Option<String>,
}

impl Disk {
    pub(crate) fn new(storage: Box<dyn Storage>) -> Self {
        Self { storage, failed: None }
    }

    /// For reading.
    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Refuses when an earlier change failed.
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        match &self.failed {
            Some(why) => Err(LedgerError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// Makes a change.
    pub(crate) fn change<R>(
        &mut self,
        mut change: impl FnMut(&mut dyn Storage) -> io::Result<R>,
    ) -> Result<R, LedgerError> {
        self.check()?;
        let mut changed = change(&mut *self.storage);
        if changed.is_err() && !stands(Defence::F36FailStop) {
            // What cost others their data: a second try, which succeeds over the hole.
            changed = change(&mut *self.storage);
        }
        changed.map_err(|error| {
            self.failed = Some(error.to_string());
            error.into()
        })
    }

    /// Writes the first `len` bytes of a file anew, durably, with `front` in place of the first of
    /// them, and drops the rest; removes the file when `len` is 0.
    ///
    /// Opening does this to each file that was being appended to. An fsync that failed before the
    /// process died may have left pages that can be read but are not on the disk, and another
    /// fsync would not write them: only writing them again does.
    pub(crate) fn rewrite(
        &mut self,
        name: &str,
        front: &[u8],
        len: u64,
    ) -> Result<(), LedgerError> {
        if len == 0 {
            self.change(|s| s.remove(name))?;
            return self.change(|s| s.sync_dir());
        }
        let temporary = format!("{name}{TEMPORARY}");
        if !front.is_empty() {
            self.change(|s| s.append(&temporary, front))?;
        }
        let mut at = front.len() as u64;
        while at < len {
            let bytes = self.storage.read_at(name, at, (len - at).min(WINDOW) as usize)?;
            self.change(|s| s.append(&temporary, &bytes))?;
            at += bytes.len() as u64;
        }
        self.change(|s| {
            s.sync(&temporary)?;
            s.rename(&temporary, name)?;
            s.sync_dir()
        })
    }

    /// Removes what an interrupted [`Storage::write_atomic`] left behind.
    pub(crate) fn remove_temporaries(&mut self) -> Result<(), LedgerError> {
        for name in self.storage().list()? {
            if name.ends_with(TEMPORARY) {
                self.change(|s| s.remove(&name))?;
            }
        }
        Ok(())
    }
}

/// Files that nothing needs any more. To unlink a long file takes milliseconds on a busy disk, and
/// the thread that writes a log is waited for: so the log gives them to the upkeep thread.
///
/// Until they are removed, and when the process dies before, they are as they were: the log that is
/// opened next finds them, and lets them go again.
pub struct Removal {
    disk: Disk,
    names: Vec<String>,
}

impl Removal {
    /// Of files that `disk` releases.
    pub(crate) fn new(disk: &mut Disk, names: Vec<String>) -> Result<Self, LedgerError> {
        let storage = disk.change(|s| s.hand_over(&names))?;
        Ok(Self { disk: Disk::new(storage), names })
    }

    /// Removes them, durably, one after the other, so that a crash leaves no gap in a row of
    /// numbers; gives how many. Of one log, they are to be run in the order in which they came.
    ///
    /// # Errors
    /// When the storage fails: the replica must stop then.
    pub fn run(mut self) -> Result<usize, LedgerError> {
        for name in &self.names {
            self.disk.change(|s| s.remove(name))?;
            self.disk.change(|s| s.sync_dir())?;
        }
        Ok(self.names.len())
    }
}

impl fmt::Debug for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Removal").field(&self.names).finish()
    }
}

/// How much a window reads at once, in bytes.
const WINDOW: u64 = 1 << 20;

/// A file, read in few calls. What it hands out are slices of what was read.
pub(crate) struct Window<'a> {
    source: Option<(&'a dyn Storage, &'a str)>,
    len: u64,
    /// How much is read at least, in bytes.
    ahead: u64,
    start: u64,
    bytes: Bytes,
}

impl<'a> Window<'a> {
    /// For reading front to back.
    pub(crate) fn new(storage: &'a dyn Storage, name: &'a str) -> io::Result<Self> {
        Ok(Self { ahead: WINDOW, ..Self::exact(storage, name)? })
    }

    /// For reading here and there: reads what is asked for, and no more.
    pub(crate) fn exact(storage: &'a dyn Storage, name: &'a str) -> io::Result<Self> {
        let len = storage.len(name)?;
        Ok(Self { source: Some((storage, name)), len, ahead: 0, start: 0, bytes: Bytes::new() })
    }

    /// The end of a file that is still in memory and begins at `start`.
    pub(crate) fn over(bytes: Bytes, start: u64) -> Self {
        let len = start + bytes.len() as u64;
        Self { source: None, len, ahead: 0, start, bytes }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// `n` bytes from `at` on, or fewer where the file ends.
    pub(crate) fn take(&mut self, at: u64, n: usize) -> io::Result<Bytes> {
        let end = self.len.min(at.saturating_add(n as u64));
        let at = at.min(end);
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            let (storage, name) = self.source.expect("what is in memory is asked for alone");
            let read = (end - at).max(self.ahead).min(self.len - at);
            self.bytes = storage.read_at(name, at, read as usize)?.into();
            self.start = at;
        }
        Ok(self.bytes.slice((at - self.start) as usize..(end - self.start) as usize))
    }

    /// The first place from `from` on where `magic` stands.
    pub(crate) fn find(&mut self, from: u64, magic: [u8; 4]) -> io::Result<Option<u64>> {
        let mut at = from;
        while at + 4 <= self.len {
            let bytes = self.take(at, WINDOW as usize)?;
            if let Some(i) = bytes.windows(4).position(|w| w == magic) {
                return Ok(Some(at + i as u64));
            }
            // The last three bytes may begin the magic.
            at += bytes.len() as u64 - 3;
        }
        Ok(None)
    }
}
