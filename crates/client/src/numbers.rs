//! The numbers that a client has used, in a file.
//!
//! A client that keeps its numbers goes on above them for certain, whatever was under way when its
//! process ended. The file holds the next number in decimal digits.
//!
//! - It is locked while it is open: two processes under one id would use the same numbers, and
//!   replicas keep one link of a client. [`Numbers::open`] says so at once ([`NumbersError::InUse`]),
//!   [`Numbers::wait`] waits for the other to end.
//! - A number is noted as used before it is sent, and numbers ahead of it with it, so that a busy
//!   client does not write for each: as many as it used since it opened the file, and at most
//!   [`AHEAD`]. What was noted and not used is given back when the file is closed. A process that
//!   was killed skips it, and [`crate::Client::resume`] uses it up.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tercio_types::{RequestSeq, WINDOW};
use thiserror::Error;

/// As many digits as the greatest number has, and a line's end: a write is always as long.
const WIDTH: usize = 21;

/// The most numbers that are noted ahead of the last one used: far within the window, so that those
/// that a killed process skipped are used up by one package.
pub const AHEAD: u64 = WINDOW / 16;

/// Why the file is of no use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process uses this client.
    #[error(
        "{}: another process uses this client; wait for it to end, or use another client", .0.display()
    )]
    InUse(PathBuf),
    /// It holds something else.
    #[error(
        "{}: line 1 is no number; write the client's next number there, or delete the file when \
         nothing of this client is under way", .0.display()
    )]
    NoNumber(PathBuf),
}

/// A client's numbers, kept in a file. Nobody else uses the client while this is open.
#[derive(Debug)]
pub struct Numbers {
    path: PathBuf,
    file: File,
    /// The lowest number that was not used when the file was opened.
    opened: RequestSeq,
    /// The lowest number that was not used.
    next: RequestSeq,
    /// What the file says: not below `next`.
    noted: RequestSeq,
}

impl Numbers {
    /// Opens the file, or makes it with mode 0600.
    ///
    /// # Errors
    /// When it cannot be used; [`NumbersError::InUse`] when another process has it open.
    pub fn open(path: &Path) -> Result<Self, NumbersError> {
        Self::open_or(path, |_| Err(NumbersError::InUse(path.to_owned())))
    }

    /// The same, but when another process has it, tells `waits` and waits for that to end.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn wait(path: &Path, waits: impl FnOnce()) -> Result<Self, NumbersError> {
        Self::open_or(path, |file| {
            waits();
            file.lock().map_err(|source| NumbersError::Io { path: path.to_owned(), source })
        })
    }

    fn open_or(
        path: &Path,
        in_use: impl FnOnce(&File) -> Result<(), NumbersError>,
    ) -> Result<Self, NumbersError> {
        let error = |source| NumbersError::Io { path: path.to_owned(), source };
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => in_use(&file)?,
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
        let mut text = String::new();
        (&mut file).take(1 << 10).read_to_string(&mut text).map_err(error)?;
        let next = match text.trim() {
            "" => RequestSeq(1),
            digits => {
                let number =
                    digits.parse().ok().filter(|number| (1..u64::MAX / 2).contains(number));
                RequestSeq(number.ok_or_else(|| NumbersError::NoNumber(path.to_owned()))?)
            }
        };
        Ok(Self { path: path.to_owned(), file, opened: next, next, noted: next })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lowest number that was not used.
    #[must_use]
    pub fn next(&self) -> RequestSeq {
        self.next
    }

    /// Takes note that all numbers below `next` are used; before they are sent. It is in the page
    /// cache then: a client whose machine loses power asks the replicas alone.
    ///
    /// # Errors
    /// When the file cannot be written; the numbers must not be used then.
    pub fn use_below(&mut self, next: RequestSeq) -> Result<(), NumbersError> {
        if next > self.noted {
            let ahead = (self.next.0 - self.opened.0).min(AHEAD);
            let written = self.note(RequestSeq(next.0.saturating_add(ahead)));
            written.map_err(|source| NumbersError::Io { path: self.path.clone(), source })?;
        }
        self.next = self.next.max(next);
        Ok(())
    }

    fn note(&mut self, next: RequestSeq) -> io::Result<()> {
        let text = format!("{:0width$}\n", next.0, width = WIDTH - 1);
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.noted = next;
        Ok(())
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        if self.noted > self.next {
            // What cannot be written stays noted, and is skipped.
            let _ = self.note(self.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn numbers_are_kept_and_never_go_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let open = || Numbers::open(&path);
        let mut numbers = open().unwrap();
        assert_eq!(numbers.next(), RequestSeq(1));
        numbers.use_below(RequestSeq(70)).unwrap();
        numbers.use_below(RequestSeq(7)).unwrap();
        assert_eq!(numbers.next(), RequestSeq(70));
        drop(numbers);
        assert_eq!(open().unwrap().next(), RequestSeq(70));
        assert_eq!(fs::read_to_string(&path).unwrap().len(), WIDTH);
        for bad in ["x", "-1", "0", "18446744073709551615", "1 2"] {
            fs::write(&path, bad).unwrap();
            let error = open().unwrap_err().to_string();
            assert!(error.contains("no number"), "{bad}: {error}");
        }
    }

    #[test]
    fn numbers_are_noted_ahead_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let noted = || fs::read_to_string(&path).unwrap().trim().parse::<u64>().unwrap();
        let mut numbers = Numbers::open(&path).unwrap();
        let (mut writes, mut last) = (0, 0);
        for next in 2..=10_000 {
            numbers.use_below(RequestSeq(next)).unwrap();
            assert!(noted() >= next && noted() <= next + AHEAD, "{} for {next}", noted());
            writes += u64::from(noted() != last);
            last = noted();
        }
        assert!(writes < 10_000 / AHEAD + 20, "{writes} writes");
        // As a process that is killed leaves it, and one that ends in an orderly way.
        let skipped = noted();
        std::mem::forget(numbers);
        assert!(skipped > 10_000);
        fs::copy(&path, folder.path().join("copy")).unwrap();
        let mut numbers = Numbers::open(&folder.path().join("copy")).unwrap();
        assert_eq!(numbers.next(), RequestSeq(skipped));
        (1..=50).for_each(|i| numbers.use_below(RequestSeq(skipped + i)).unwrap());
        drop(numbers);
        let numbers = Numbers::open(&folder.path().join("copy")).unwrap();
        assert_eq!(numbers.next(), RequestSeq(skipped + 50));
    }

    #[test]
    fn a_second_one_is_told_or_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let mut first = Numbers::open(&path).unwrap();
        let error = Numbers::open(&path).unwrap_err();
        assert!(matches!(error, NumbersError::InUse(_)), "{error}");
        let (waits, waiting) = std::sync::mpsc::channel();
        let second = {
            let path = path.clone();
            std::thread::spawn(move || {
                Numbers::wait(&path, || waits.send(()).unwrap()).unwrap().next()
            })
        };
        waiting.recv().unwrap();
        first.use_below(RequestSeq(9)).unwrap();
        drop(first);
        assert_eq!(second.join().unwrap(), RequestSeq(9));
    }
}
