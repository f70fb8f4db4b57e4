//! Mapped memory as atomic words.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

const WORD: usize = size_of::<u64>();
/// What a shared mapping must promise before it is mapped: it never shrinks (an access behind its
/// end would kill the process), and nobody can take the promise back.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A mapping of so many 64-bit words, zero at first, unmapped when dropped.
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
        if huge {
            // SAFETY: the range was mapped just now and is ours; this advice changes no content.
            // Only a wish: where it is refused, small pages do.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        }
        Ok(Self::own(start, count))
    }

    /// Memory that other processes can map from the descriptor, and whose size is fixed.
    ///
    /// # Errors
    /// When `count` is zero or the system has not that much memory.
    pub fn shared(name: &str, count: usize) -> io::Result<(Self, OwnedFd)> {
        let bytes = bytes_of(count)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Self::of_shared(&file, count)?, file))
    }

    /// Maps what another process made with [`Words::shared`].
    ///
    /// # Errors
    /// When the descriptor is not such memory, or is smaller than `count` words.
    pub fn of_shared(file: impl AsFd, count: usize) -> io::Result<Self> {
        let bytes = bytes_of(count)?;
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if !fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(wrong("the shared memory could shrink: it is not sealed"));
        }
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|size| size < bytes as u64) {
            return Err(wrong("the shared memory is too small"));
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose a range that nothing else uses. The file is
        // at least so long and sealed against shrinking, so that every access stays valid; that
        // others write it is allowed for by handing out atomics only.
        let start = unsafe { mmap(null_mut(), bytes, rights, MapFlags::SHARED, file, 0)? };
        Ok(Self::own(start, count))
    }

    fn own(start: *mut std::ffi::c_void, count: usize) -> Self {
        let start = NonNull::new(start.cast()).expect("the kernel does not map at null");
        Self { start, count }
    }
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
    fn memory_that_could_shrink_is_refused() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
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
