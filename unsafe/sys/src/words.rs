//! Mapped memory as atomic words.

use rustix::fs::{
    MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create, seek,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

const WORD: usize = size_of::<u64>();
/// A large page, in bytes.
const LARGE: usize = 2 << 20;
/// What a shared mapping must promise before it is mapped: it never shrinks (an access behind its
/// end would kill the process), and nobody can take the promise back.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// What others shall only read promises besides that nobody maps it anew to write it.
const READ_ONLY: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// A mapping of this many 64-bit words, zero at first, unmapped when dropped.
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to this value alone and stays until it is dropped; what is handed out
// are references to atomics, which any thread may use.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Memory of this process. Pages come into being when they are first touched; with `huge`, in
    /// large pages where the system has some, so that random accesses miss the TLB less.
    ///
    /// # Errors
    /// When `count` is zero or the system has not that much address space.
    pub fn private(count: usize, huge: bool) -> io::Result<Self> {
        let bytes = bytes_of(count)?;
        // SAFETY: a null hint lets the kernel choose a range that nothing else uses.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let words = Self::own(start, count);
        if huge {
            words.advise_huge();
        }
        Ok(words)
    }

    /// Only a wish: where it is refused, small pages do.
    fn advise_huge(&self) {
        // SAFETY: the range is mapped and ours; this advice changes no content.
        let _ = unsafe {
            madvise(self.start.as_ptr().cast(), self.count * WORD, Advice::LinuxHugepage)
        };
    }

    /// Memory that other processes can map from the descriptor, and whose size is fixed.
    ///
    /// # Errors
    /// When `count` is zero or the system has not that much memory.
    pub fn shared(name: &str, count: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memory_file(name, count)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Self::of_shared(&file, count)?, file))
    }

    /// Memory that other processes can map from the descriptor to read it ([`Words::of_published`])
    /// and that only this value writes. Its size is fixed. Its pages come into being when they are first
    /// touched, and are small then on most systems (`shmem_enabled`): see [`Words::make`].
    ///
    /// # Errors
    /// When `count` is zero or the system has not that much memory.
    pub fn published(name: &str, count: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memory_file(name, count)?;
        // Sealed against shrinking before it is mapped, against other writers after.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let words = Self::map(&file, count, MapFlags::SHARED, SealFlags::SHRINK)?;
        fcntl_add_seals(&file, READ_ONLY)?;
        Ok((words, file))
    }

    /// Maps what another process made with [`Words::shared`].
    ///
    /// # Errors
    /// When the descriptor is not such memory, or is smaller than `count` words.
    pub fn of_shared(file: impl AsFd, count: usize) -> io::Result<Self> {
        Self::map(file, count, MapFlags::SHARED, SEALS)
    }

    /// Maps what another process made with [`Words::published`], and follows what it stores there.
    /// What is stored here stays here: the page that it is stored to is this value's own from then on,
    /// and follows no more.
    ///
    /// # Errors
    /// When the descriptor is not such memory, or is smaller than `count` words.
    pub fn of_published(file: impl AsFd, count: usize) -> io::Result<Self> {
        let words = Self::map(&file, count, MapFlags::PRIVATE, READ_ONLY)?;
        words.populate(&file);
        Ok(words)
    }

    /// Prefaults the pages that the file has so far, not one page fault at a time later; those
    /// that it has not are left out, since to ask for them would make them. Only a wish, too.
    fn populate(&self, file: impl AsFd) {
        let bytes = (self.count * WORD) as u64;
        let mut at = 0;
        while let Ok(start) = seek(&file, SeekFrom::Data(at))
            && let Ok(end) = seek(&file, SeekFrom::Hole(start))
            && start < bytes
        {
            let (from, to) = (start as usize, end.min(bytes) as usize);
            // SAFETY: a page-aligned part of the mapping, which is ours; to be asked for as a read does
            // changes no content.
            let populated = unsafe {
                let from_here = self.start.as_ptr().cast::<u8>().add(from);
                madvise(from_here.cast(), to - from, Advice::LinuxPopulateRead)
            };
            if populated.is_err() {
                return;
            }
            at = end;
        }
    }

    /// Has the pages of these words made now, in large pages where the system lets it: also for memory
    /// that is shared, which on most systems gets none by itself. The end of the memory that no large
    /// page fits in is left out, and so is everything where it is refused (`MADV_COLLAPSE`, from Linux
    /// 6.1 on): only a wish.
    ///
    /// # Panics
    /// When there are no such words.
    pub fn make(&self, words: Range<usize>) {
        let last = words.end.checked_sub(1).expect("words from 0 on");
        assert!(words.start <= last && last < self.count, "there are no words {words:?}");
        let (bytes, small) = (self.count * WORD, page_size());
        let pages = words.start * WORD / LARGE..last * WORD / LARGE + 1;
        for page in pages.filter(|page| (page + 1) * LARGE <= bytes) {
            // Where there is nothing yet, nothing is gathered: so there has to be something, in the
            // part that was asked for.
            let some = (page * LARGE).max(words.start * WORD) / small * small;
            // SAFETY: page-aligned parts of the mapping, which is ours; to be asked for as a write does,
            // and to be gathered in a large page, changes no content.
            unsafe {
                let start = self.start.as_ptr().cast::<u8>();
                let _ = madvise(start.add(some).cast(), small, Advice::LinuxPopulateWrite);
                libc::madvise(start.add(page * LARGE).cast(), LARGE, libc::MADV_COLLAPSE);
            }
        }
    }

    fn map(file: impl AsFd, count: usize, kind: MapFlags, seals: SealFlags) -> io::Result<Self> {
        let bytes = bytes_of(count)?;
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if !fcntl_get_seals(&file)?.contains(seals) {
            return Err(wrong("the shared memory could shrink: it is not sealed"));
        }
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|size| size < bytes as u64) {
            return Err(wrong("the shared memory is too small"));
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let place = Place::reserve(bytes)?;
        // SAFETY: the place is ours, and what is mapped there gives way. The file is at least so long and
        // sealed against shrinking (all of `seals` are), so that every access stays valid; that others
        // write it is allowed for by handing out atomics only. A private mapping may be written whatever
        // the file permits.
        let start = unsafe { mmap(place.start(), bytes, rights, kind | MapFlags::FIXED, file, 0)? };
        place.keep(bytes);
        Ok(Self::own(start, count))
    }

    fn own(start: *mut std::ffi::c_void, count: usize) -> Self {
        let start = NonNull::new(start.cast()).expect("the kernel does not map at null");
        Self { start, count }
    }
}

/// Addresses that nothing else uses, let go of when dropped: for memory that large pages fit in, whose
/// addresses must begin with one. (For anonymous memory, the kernel sees to that.)
struct Place {
    all: *mut u8,
    bytes: usize,
}

impl Place {
    /// With room for this many bytes from [`Place::start`] on.
    fn reserve(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(page_size()) + LARGE;
        let kind = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a null hint lets the kernel choose a range that nothing else uses.
        let all = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), kind)? };
        Ok(Self { all: all.cast(), bytes })
    }

    /// The bytes before [`Place::start`].
    fn before(&self) -> usize {
        self.all.addr().next_multiple_of(LARGE) - self.all.addr()
    }

    /// Where a large page can begin.
    fn start(&self) -> *mut std::ffi::c_void {
        self.all.wrapping_add(self.before()).cast()
    }

    /// Releases all but this many bytes at the start.
    fn keep(mut self, bytes: usize) {
        let begin = self.before();
        let end = begin + bytes.next_multiple_of(page_size());
        self.free(0..begin);
        self.free(end..self.bytes);
        self.bytes = 0;
    }

    fn free(&mut self, part: Range<usize>) {
        if !part.is_empty() {
            // SAFETY: a part of what is reserved, of whole pages, which nobody was given.
            let _ = unsafe { munmap(self.all.add(part.start).cast(), part.len()) };
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.free(0..self.bytes);
    }
}

/// A file in memory for this many words, not sealed yet.
fn memory_file(name: &str, count: usize) -> io::Result<OwnedFd> {
    let bytes = bytes_of(count)?;
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Bytes of a small page. By the C library: to read what the kernel tells a program at its start
/// (`auxv`) fails where a program runs in an emulation of the processor, such as valgrind's.
fn page_size() -> usize {
    // SAFETY: it takes no pointer and changes nothing.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("a page has bytes")
}

fn bytes_of(count: usize) -> io::Result<usize> {
    match count.checked_mul(WORD) {
        Some(bytes) if bytes > 0 && bytes <= isize::MAX as usize => Ok(bytes),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "no such size of memory")),
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `count` words long, page-aligned, readable and writable, lives as
        // long as `self`, and fits an isize (`bytes_of`). Any bit pattern is a valid AtomicU64.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value, which alone owns it, and no reference into it
        // outlives the value. It cannot fail for a range that is mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.count * WORD) };
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_one_memory_see_each_other() {
        let (one, file) = Words::shared("test", 1024).unwrap();
        let other = Words::of_shared(&file, 1024).unwrap();
        one[1023].store(7, Relaxed);
        assert_eq!(other[1023].load(Relaxed), 7);
        assert!(Words::of_shared(&file, 1025).is_err(), "more than there is");
        assert!(ftruncate(&file, 8).is_err(), "the size is sealed");
    }

    #[test]
    fn published_memory_is_followed_and_not_written() {
        let (ours, file) = Words::published("test", 1024).unwrap();
        let theirs = Words::of_published(&file, 1024).unwrap();
        for value in 1..100 {
            ours[7].store(value, Relaxed);
            assert_eq!(theirs[7].load(Relaxed), value);
        }
        theirs[1000].store(5, Relaxed);
        assert_eq!(ours[1000].load(Relaxed), 0, "what a reader stores is its own");
        assert!(Words::of_shared(&file, 1024).is_err(), "nobody else maps it to write it");
        assert!(rustix::io::write(&file, &[1]).is_err(), "nor writes the file");
        let (_, file) = Words::shared("test", 1024).unwrap();
        assert!(Words::of_published(&file, 1024).is_err(), "others could write that");
        // A page here and there: the others are not made by mapping them.
        let (ours, file) = Words::published("test", 1 << 20).unwrap();
        for page in [3, 4, 700, 2047] {
            ours[page * 512].store(page as u64, Relaxed);
        }
        let theirs = Words::of_published(&file, 1 << 20).unwrap();
        assert_eq!(fstat(&file).unwrap().st_blocks, 4 * 8, "blocks of 512 bytes");
        assert!((0..2048).all(|page| theirs[page * 512].load(Relaxed)
            == if [3, 4, 700, 2047].contains(&page) { page as u64 } else { 0 }));
    }

    /// How much of the mapping is in large pages, in bytes.
    fn large(words: &Words) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let from = format!("{:x}-", words.start.as_ptr().addr());
        let mut entry = smaps.lines().skip_while(|line| !line.starts_with(&from));
        let line = entry.find_map(|line| line.strip_prefix("ShmemPmdMapped:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    #[test]
    fn pages_are_made_where_they_are_asked_for() {
        const PAGE: usize = LARGE / WORD;
        let (words, file) = Words::published("test", 10 * PAGE + 7).unwrap();
        words[PAGE + 5].store(9, Relaxed);
        // From the middle of the second to that of the fourth, and the end, which is less than a page.
        words.make(PAGE + PAGE / 2..3 * PAGE + 1);
        words.make(10 * PAGE..10 * PAGE + 7);
        let touched = fstat(&file).unwrap().st_blocks as usize * 512;
        assert!(touched <= 3 * LARGE, "{touched} bytes: nothing else is made");
        assert_eq!(words[PAGE + 5].load(Relaxed), 9);
        assert!(
            (0..words.len()).filter(|at| *at != PAGE + 5).all(|at| words[at].load(Relaxed) == 0)
        );
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut release = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let new = (release.next(), release.next()) >= (Some(6), Some(1));
        if new && std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            assert_eq!(touched, 3 * LARGE);
            assert_eq!(large(&words), 3 * LARGE);
            let reader = Words::of_published(&file, 10 * PAGE + 7).unwrap();
            assert_eq!(large(&reader), 3 * LARGE, "who reads them has them, too");
        }
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        let error = Words::of_shared(&file, 1).unwrap_err();
        assert!(error.to_string().contains("not sealed"), "{error}");
        assert!(Words::of_shared(std::io::stdin(), 1).is_err());
        assert!(Words::private(0, false).is_err());
    }

    #[test]
    fn private_memory_is_zero_and_ours() {
        let words = Words::private(1 << 20, true).unwrap();
        assert_eq!(words.len(), 1 << 20);
        assert!(words.iter().step_by(4096).all(|word| word.load(Relaxed) == 0));
    }
}
