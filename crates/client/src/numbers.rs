//! The numbers that a client has used, in a file.
//!
//! A client that keeps its numbers goes on above them for certain, whatever was in flight when its
//! process ended. The file holds the next number in decimal digits and is locked while it is open,
//! since two processes under one id would use the same numbers (and replicas keep one link of a
//! client): the second waits for the first to end.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tercio_types::RequestSeq;
use thiserror::Error;

/// As many digits as the greatest number has, and a line's end: a write is always as long.
const WIDTH: usize = 21;

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
    next: RequestSeq,
}

impl Numbers {
    /// Opens the file, or makes it with mode 0600. When another process has it, tells `waits` and
    /// waits.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(path: &Path, waits: impl FnOnce()) -> Result<Self, NumbersError> {
        let error = |source| NumbersError::Io { path: path.to_owned(), source };
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waits();
                file.lock().map_err(error)?;
            }
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
        Ok(Self { path: path.to_owned(), file, next })
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
        if next > self.next {
            let text = format!("{:0width$}\n", next.0, width = WIDTH - 1);
            let written = self.file.write_all_at(text.as_bytes(), 0);
            written.map_err(|source| NumbersError::Io { path: self.path.clone(), source })?;
            self.next = next;
        }
        Ok(())
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
        let open = || Numbers::open(&path, || panic!("nobody else has it"));
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
    fn a_second_one_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let mut first = Numbers::open(&path, || {}).unwrap();
        let (waits, waiting) = std::sync::mpsc::channel();
        let second = {
            let path = path.clone();
            std::thread::spawn(move || {
                Numbers::open(&path, || waits.send(()).unwrap()).unwrap().next()
            })
        };
        waiting.recv().unwrap();
        first.use_below(RequestSeq(9)).unwrap();
        drop(first);
        assert_eq!(second.join().unwrap(), RequestSeq(9));
    }
}
