//! The server's side of [`crate::direct`]: memory that clients of the same machine can read by
//! themselves.
//!
//! Each region is a file in memory that only this process can write, and so is the *control* page: a
//! version, which is odd while anything may change, and a count of registrations.
//!
//! A client has no way to these files but to be handed their descriptors, which happens for those that its
//! capability opens. The process is undumpable, so that `/proc` shows them to nobody of the same user.

use super::{LINE, Memory, MemoryView, Pool, Region, Rights};
use crate::op::{Addr, Capability, Reject};
use rustix::fs::fstat;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use tercio_unsafe_sys::Words;

/// Where the control page has the version, and the count of registrations; each has its cache line.
const VERSION: usize = 0;
const REGISTERED: usize = 8;
const CONTROL_WORDS: usize = 16;
/// The words of a description before its regions, and of each region.
const HEAD: usize = 2;
const ENTRY: usize = 4;

#[derive(Debug)]
pub(super) struct Published {
    control: Words,
    file: SharedFile,
}

/// A file that is handed to others.
#[derive(Debug)]
pub(super) struct SharedFile {
    file: Arc<OwnedFd>,
    inode: u64,
}

/// Makes this process undumpable: from now on `/proc` shows its descriptors and its memory to nobody of
/// the same user, and no debugger of that user can attach to it; nor does it leave a core. Who may trace
/// any process (`CAP_SYS_PTRACE`) still can. A program that it becomes (`exec`) is dumpable again.
///
/// # Errors
/// What the system says.
pub fn make_undumpable() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Words that others can read.
pub(super) fn share(name: &str, count: usize) -> io::Result<(Words, SharedFile)> {
    let (words, file) = Words::published(name, count)?;
    let inode = fstat(&file)?.st_ino;
    Ok((words, SharedFile { file: Arc::new(file), inode }))
}

/// Something may be changing as long as this value lives.
#[derive(Debug)]
pub(crate) struct Change<'a>(&'a AtomicU64);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // What was changed comes before it.
        self.0.store(self.0.load(Relaxed) + 1, Release);
    }
}

impl Memory {
    /// Memory for one data plane thread that clients of the same machine and user can read by
    /// themselves, with what their capability opens (see [`crate::client::Client::read_directly`]).
    /// Its pages are made when a region is registered or buffers are posted, in large ones where the
    /// system has some. It makes this process undumpable ([`make_undumpable`]).
    ///
    /// # Errors
    /// When the system has no more memory or files.
    pub fn published() -> io::Result<Self> {
        make_undumpable()?;
        let (control, file) = share("tercio-prism-control", CONTROL_WORDS)?;
        Ok(Self { published: Some(Published { control, file }), ..Self::new() })
    }

    /// To be held while anything is changed that a request could read, so that who reads by himself
    /// notices. `None` where nobody does.
    ///
    /// # Panics
    /// When another change is in progress.
    pub(crate) fn change(&self) -> Option<Change<'_>> {
        let version = &self.published.as_ref()?.control[VERSION];
        let before = version.load(Relaxed);
        assert!(before.is_multiple_of(2), "changes come one after another");
        version.store(before + 1, Relaxed);
        // Before anything that is changed.
        fence(Release);
        Some(Change(version))
    }

    /// What others know of the regions is out of date.
    pub(super) fn registrations_changed(&self) {
        if let Some(published) = &self.published {
            published.control[REGISTERED].fetch_add(1, Release);
        }
    }

    /// The regions of another process's memory, as it described them to the holder of `by`, with the
    /// files that it handed over, to be read only; and its control page. What is the same in `known` is
    /// taken from there.
    ///
    /// # Errors
    /// When they are not what they should be.
    pub(crate) fn described(
        words: &[u64],
        files: &[OwnedFd],
        by: Capability,
        known: Option<&Self>,
    ) -> io::Result<(Self, Control)> {
        let (&[registered, inode], entries) =
            words.split_first_chunk::<HEAD>().ok_or_else(wrong)?;
        let (entries, rest) = entries.as_chunks::<ENTRY>();
        let Some((control, files)) = files.split_first() else { return Err(wrong()) };
        if !rest.is_empty() || files.len() != entries.len() {
            return Err(wrong());
        }
        let control = Control { words: map(control, inode, CONTROL_WORDS)?, registered };
        let memory = Self::new();
        let mut regions = memory.write();
        for (&[name, bytes, stride, inode], file) in entries.iter().zip(files) {
            let addr = Addr(name);
            let sizes = usize::try_from(bytes).ok().zip(usize::try_from(stride).ok());
            let (bytes, stride) = sizes.ok_or_else(wrong)?;
            let slot = regions.slots.get_mut(usize::from(addr.region())).ok_or_else(wrong)?;
            let is_region = addr.offset() == 0 && addr.region() != Addr::SCRATCH_REGION;
            if !is_region || !stride.is_multiple_of(LINE) || stride > bytes {
                return Err(wrong());
            }
            // A number and its generation name one region for as long as the server lives.
            let same = |region: &mut Region| {
                region.generation == addr.generation() && region.bytes == bytes
            };
            let known = known.and_then(|known| {
                known.write().slots[usize::from(addr.region())].take_if(same).map(|r| r.words)
            });
            let words = match known {
                Some(words) => words,
                None => map(file, inode, bytes.div_ceil(8))?,
            };
            let pool = (stride > 0).then(|| Pool { stride, limit: 0, state: Default::default() });
            let (capability, rights, generation) = (by, Rights::READ, addr.generation());
            *slot = Some(Region { capability, rights, words, bytes, generation, pool, file: None });
        }
        drop(regions);
        Ok((memory, control))
    }
}

/// How many files belong to a description.
///
/// # Errors
/// When it is none.
pub(crate) fn files_of(description: &[u64]) -> io::Result<usize> {
    match description.len().checked_sub(HEAD) {
        Some(entries) if entries.is_multiple_of(ENTRY) => Ok(1 + entries / ENTRY),
        _ => Err(wrong()),
    }
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server's description is wrong")
}

impl MemoryView<'_> {
    /// Appends what the holder of `by` needs to read by himself what it opens: the count of
    /// registrations and the control page's inode; and of each region its address, bytes, distance of
    /// buffers (0: it is no pool) and inode. Gives the files, the control page's first.
    pub(crate) fn describe(
        &self,
        by: Capability,
        out: &mut Vec<u64>,
    ) -> Result<Vec<Arc<OwnedFd>>, Reject> {
        let published = self.memory.published.as_ref().ok_or(Reject::UnknownMethod)?;
        let control = &published.file;
        let registered = published.control[REGISTERED].load(Relaxed);
        out.extend([registered, control.inode]);
        let mut files = vec![Arc::clone(&control.file)];
        for (at, region) in (0..=u8::MAX).zip(&self.regions.slots) {
            if let Some(region) = region
                && let Some(file) = &region.file
                && region.capability == by
                && region.rights.grant(Rights::READ)
            {
                let addr = Addr::new(region.generation, at, 0);
                let stride = region.pool.as_ref().map_or(0, |pool| pool.stride as u64);
                out.extend([addr.0, region.bytes as u64, stride, file.inode]);
                files.push(Arc::clone(&file.file));
            }
        }
        Ok(files)
    }
}

/// Maps a file of another process to be read. The inode shows that it is the one that was described: of
/// two descriptions, one's files must not be taken for the other's.
fn map(file: &OwnedFd, inode: u64, words: usize) -> io::Result<Words> {
    if fstat(file)?.st_ino != inode {
        let what = "the server handed over another file than it described";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Words::of_published(file, words)
}

/// Another process's control page, and the count of registrations that its description was of.
#[derive(Debug)]
pub(crate) struct Control {
    words: Words,
    registered: u64,
}

impl Control {
    /// The version, if nothing changes just now.
    #[inline]
    pub(crate) fn begin(&self) -> Option<u64> {
        let version = self.words[VERSION].load(Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Whether nothing has changed since [`Control::begin`] gave this version.
    #[inline]
    pub(crate) fn is_unchanged(&self, version: u64) -> bool {
        // After everything that was read.
        fence(Acquire);
        self.words[VERSION].load(Relaxed) == version
    }

    /// Whether the description is out of date.
    #[inline]
    pub(crate) fn is_outdated(&self) -> bool {
        self.words[REGISTERED].load(Acquire) != self.registered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Capability = Capability(4);

    /// What the holder of `OURS` is told and handed over.
    fn described(memory: &Memory) -> (Vec<u64>, Vec<OwnedFd>) {
        let mut words = Vec::new();
        let files = memory.view(0).describe(OURS, &mut words).unwrap();
        (words, files.iter().map(|file| file.try_clone().unwrap()).collect())
    }

    #[test]
    fn only_what_the_capability_opens_for_reading_is_described() {
        let memory = Memory::published().unwrap();
        let ours = memory.register(OURS, Rights::READ, 100).unwrap();
        memory.register(OURS, Rights::WRITE.and(Rights::ATOMIC), 100).unwrap();
        memory.register(Capability(5), Rights::ALL, 100).unwrap();
        let (words, files) = described(&memory);
        assert_eq!((words.len(), files.len()), (HEAD + ENTRY, 2));
        assert_eq!(files_of(&words).unwrap(), 2);
        assert_eq!(words[HEAD..][..3], [ours.0, 100, 0]);
        assert_eq!(fstat(&files[1]).unwrap().st_ino, words[HEAD + 3]);
        let refused =
            Memory::new().view(0).describe(OURS, &mut Vec::new()).map(|files| files.len());
        assert_eq!(refused, Err(Reject::UnknownMethod));
    }

    #[test]
    fn what_does_not_describe_memory_is_refused() {
        let memory = Memory::published().unwrap();
        memory.register_pool(OURS, Rights::ALL, 56, 4, 4).unwrap();
        let (good, files) = described(&memory);
        assert!(Memory::described(&good, &files, OURS, None).is_ok());
        for length in 0..good.len() {
            assert!(Memory::described(&good[..length], &files, OURS, None).is_err(), "{length}");
        }
        // Too few files, the same in another order, and those of another memory of the same shape.
        assert!(Memory::described(&good, &files[..1], OURS, None).is_err());
        assert!(Memory::described(&good, &[], OURS, None).is_err());
        let turned: Vec<_> = files.iter().rev().map(|file| file.try_clone().unwrap()).collect();
        assert!(Memory::described(&good, &turned, OURS, None).is_err());
        let other = Memory::published().unwrap();
        other.register_pool(OURS, Rights::ALL, 56, 4, 4).unwrap();
        let error = Memory::described(&good, &described(&other).1, OURS, None).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
        // Another file or region, a region that is longer than its file, a distance that is none; but
        // who knows of how many registrations is no harm.
        for (at, word) in good.iter().enumerate().skip(1) {
            for wrong in [u64::MAX, word ^ 1 << 20, word ^ 1 << 40] {
                let mut bad = good.clone();
                bad[at] = wrong;
                let refused = Memory::described(&bad, &files, OURS, None).is_err();
                // A region's generation and number are the server's to say.
                assert!(refused || at == HEAD, "word {at}: {wrong:x}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "one after another")]
    fn changes_do_not_overlap() {
        let memory = Memory::published().unwrap();
        let _one = memory.change();
        let _two = memory.change();
    }
}
