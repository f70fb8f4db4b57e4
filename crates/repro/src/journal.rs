//! What every run gave, one line each, so that an interrupted command goes on where it was.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The repetition, from 0 on.
    pub repetition: usize,
}

/// What it gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The repetition, from 0 on.
    pub repetition: usize,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The JSON object that it printed.
    pub result: Value,
}

/// Why there is no journal.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Its file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Another command writes there.
    #[error("{}: another command works in this folder; wait for it, or name another folder", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A line of it is no record.
    #[error("{}, line {line}: {error}; remove the folder, or name another one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        error: serde_json::Error,
    },
}

/// The runs of a folder.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    runs: BTreeMap<Key, Record>,
}

impl Journal {
    /// Opens or begins that of a folder. A last line that was cut off while it was written is no run:
    /// it is removed.
    ///
    /// # Errors
    /// When its file cannot be read or written, or holds something else.
    pub fn open(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join("runs.jsonl");
        let fail = |error| JournalError::File { path: path.clone(), error };
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { path }),
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        let text = fs::read_to_string(&path).map_err(fail)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut runs = BTreeMap::new();
        for (i, line) in text[..whole].lines().enumerate() {
            let record: Record = serde_json::from_str(line).map_err(|error| {
                JournalError::Damaged { path: path.clone(), line: i + 1, error }
            })?;
            let key = Key { arguments: record.arguments.clone(), repetition: record.repetition };
            runs.insert(key, record);
        }
        file.set_len(whole as u64).map_err(fail)?;
        Ok(Self { path, file, runs })
    }

    /// What a run gave, if it was made.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Record> {
        self.runs.get(key)
    }

    /// Keeps what a run gave.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, record: Record) -> Result<(), JournalError> {
        let mut line = serde_json::to_string(&record).unwrap_or_default();
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| JournalError::File { path: self.path.clone(), error })?;
        let key = Key { arguments: record.arguments.clone(), repetition: record.repetition };
        self.runs.insert(key, record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(repetition: usize) -> Record {
        let arguments = vec!["bench".into()];
        Record { arguments, repetition, seconds: 1.0, result: Value::from(7) }
    }

    #[test]
    fn two_commands_do_not_share_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::open(dir.path()).unwrap();
        assert!(matches!(Journal::open(dir.path()), Err(JournalError::InUse { .. })));
        drop(first);
        assert!(Journal::open(dir.path()).is_ok());
    }

    #[test]
    fn a_line_that_was_cut_off_is_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.add(record(0)).unwrap();
        journal.add(record(1)).unwrap();
        drop(journal);
        let path = dir.path().join("runs.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        let key = |repetition| Key { arguments: vec!["bench".into()], repetition };
        assert_eq!((journal.get(&key(0)), journal.get(&key(1))), (Some(&record(0)), None));
        journal.add(record(2)).unwrap();
        drop(journal);
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!((journal.get(&key(1)), journal.get(&key(2))), (None, Some(&record(2))));
        drop(journal);
        fs::write(&path, "{\"arguments\": []}\n").unwrap();
        let error = Journal::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("runs.jsonl, line 1: missing field"), "{error}");
    }
}
