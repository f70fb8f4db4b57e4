//! A replica's disk: the ledger's [`MemStorage`] with a fuse. When the fuse blows, the power fails
//! exactly there, between two operations: an append may be done and its sync not.

use crate::Rng;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use tercio_ledger::{MediaFault, MemStorage, Storage};
use tercio_replica::{Home, Part};

#[derive(Debug, Default)]
struct Fuse {
    /// How many changes are still carried out.
    left: Option<u64>,
    blown: bool,
    /// Whether an operation failed though there was power.
    failed: bool,
}

/// What a power failure leaves of the bytes that were written and not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// This many of them, and nothing behind.
    Cut(u64),
    /// This many of them, and zeros in the place of the others: the length reached the disk first.
    Zeros(u64),
}

/// A disk. Clones are handles of the same one; a handle that was given out before a crash must not
/// be used after it.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: MemStorage,
    fuse: Arc<Mutex<Fuse>>,
    /// Tails that power failures left in pieces.
    holes: u64,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these files, all durable.
    #[must_use]
    pub fn with_files(files: MemStorage) -> Self {
        Self { files, ..Self::default() }
    }

    /// Another disk with what is durable or in the page cache of this one.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self::with_files(self.files.fork())
    }

    /// How many tails power failures left in pieces, with holes in them as a rule.
    #[must_use]
    pub fn holes(&self) -> u64 {
        self.holes
    }

    /// The medium fails in one of the files that `hits` picks: which, and where.
    pub fn media_fault(
        &mut self,
        fault: MediaFault,
        hits: impl Fn(&str) -> bool,
        rng: &mut Rng,
    ) -> Option<(String, Range<usize>)> {
        let names = self.files.list().unwrap_or_default();
        let names: Vec<_> = names.into_iter().filter(|name| hits(name)).collect();
        let name = (!names.is_empty()).then(|| rng.pick(&names).clone())?;
        let place = self.files.media_fault(&name, fault, &mut |n| rng.below(n))?;
        Some((name, place))
    }

    /// The files, to look at or to damage.
    #[must_use]
    pub fn files(&self) -> &MemStorage {
        &self.files
    }

    fn fuse(&self) -> MutexGuard<'_, Fuse> {
        self.fuse.lock().expect("no holder panics")
    }

    /// Lets the power fail after `changes` more changes.
    pub fn blow_after(&self, changes: u64) {
        *self.fuse() = Fuse { left: Some(changes), ..Fuse::default() };
    }

    /// Lets the change after `changes` more fail, once. A sync that fails drops the pages that it
    /// should have written, and they count as written.
    pub fn fail_after(&self, changes: u64) {
        self.files.clone().fail_in(changes);
    }

    /// Lets the disk be full after this many bytes.
    pub fn full_after(&self, bytes: u64) {
        self.files.clone().full_after(bytes);
    }

    /// Whether an operation failed, other than for want of power.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.fuse().failed
    }

    fn note<R>(&self, result: io::Result<R>) -> io::Result<R> {
        self.fuse().failed |= result.is_err();
        result
    }

    /// Takes the fuse out, unless it has blown, and every fault that has not come yet.
    pub fn mend(&self) {
        self.fuse().left = None;
        self.files.clone().kill();
    }

    /// Whether the power failed.
    #[must_use]
    pub fn blown(&self) -> bool {
        self.fuse().blown
    }

    /// The process died and its machine did not: all that it wrote is still there.
    pub fn kill(&mut self) {
        self.files.kill();
        *self.fuse() = Fuse::default();
    }

    /// The power failed: of what was not synced, `rng` says what is left and how it is torn.
    pub fn crash(&mut self, rng: &mut Rng) {
        let mut holes = 0;
        self.files.crash(&mut |n| {
            let chosen = rng.below(n);
            // What the storage asks five ways for: the last two leave sectors or pages in any order.
            holes += u64::from(n == 5 && chosen >= 3);
            chosen
        });
        self.holes += holes;
        *self.fuse() = Fuse::default();
    }

    /// The power failed and left this of each file's unsynced bytes, and of the sectors that were
    /// written over those that the bits of the tear's number name; files that were created or
    /// removed before are so. Gives the most unsynced bytes that a file had.
    pub fn crash_torn(&mut self, tear: Tear) -> u64 {
        let (kept, manner) = match tear {
            Tear::Cut(kept) => (kept, 2),
            Tear::Zeros(kept) => (kept, 0),
        };
        let mut most = 0;
        let mut sector = 0;
        // What the storage asks: two ways for a name, three for a sector that was written over,
        // five for the manner of a tear, and how many bytes stay.
        self.files.crash(&mut |n| match n {
            2 => 1,
            3 => {
                sector += 1;
                kept.checked_shr(sector - 1).unwrap_or(0) & 1
            }
            5 => manner,
            _ => {
                most = most.max(n - 1);
                kept.min(n - 1)
            }
        });
        *self.fuse() = Fuse::default();
        most
    }

    fn change(&self) -> io::Result<()> {
        let mut fuse = self.fuse();
        let blown = fuse.blown;
        match &mut fuse.left {
            _ if blown => Err(io::Error::other("there is no power")),
            Some(0) => {
                fuse.blown = true;
                Err(io::Error::other("the power failed"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Home for Disk {
    /// One flat directory for all parts: their file names differ.
    fn open(&self, _part: Part, _durable: bool) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(self.clone()))
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.files.len(name)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.files.read_at(name, offset, len)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.change()?;
        let done = self.files.append(name, bytes);
        self.note(done)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.change()?;
        let done = self.files.write_at(name, at, bytes);
        self.note(done)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.change()?;
        let done = self.files.sync(name);
        self.note(done)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.change()?;
        let done = self.files.remove(name);
        self.note(done)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.change()?;
        let done = self.files.rename(from, to);
        self.note(done)
    }

    fn hand_over(&mut self, _names: &[String]) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(self.clone()))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        self.change()?;
        let done = self.files.sync_dir();
        self.note(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_fails_between_append_and_sync() {
        let mut disk = Disk::new();
        disk.append("log", b"kept").unwrap();
        disk.sync("log").unwrap();
        disk.sync_dir().unwrap();
        disk.blow_after(1);
        disk.append("log", b"lost").unwrap();
        assert!(disk.sync("log").is_err() && disk.blown());
        assert!(disk.append("log", b"never").is_err(), "no power");
        disk.crash(&mut Rng::new(1));
        assert!(!disk.blown());
        let left = disk.files().contents("log").unwrap();
        assert!(left.starts_with(b"kept") && left.len() <= 8);
        disk.append("log", b"again").unwrap();
    }
}
