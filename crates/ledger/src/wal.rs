//! The write-ahead log of consensus: opaque records that must be durable before the messages that
//! they promise leave (Castro and Liskov, TOCS'02 section 5.4: what must survive a restart).
//!
//! Records go to files `wal-NNNNNNNNNN` of consecutive numbers, in the form that
//! `docs/format-disk.md` gives. Only the last file is written to, and the one before it is synced
//! before the next begins, so that only the last can have a torn tail; on open that tail is cut.
//! Damage anywhere else, or a missing file between two others, is an error that names the place:
//! a lost promise must not go unnoticed.
//!
//! The last file is lengthened with zeros ahead of its records, and they are written over the
//! zeros. What was buffered together is one group, which a crash may leave with holes; the next is
//! written when it is durable.
//!
//! Nor must a lost log: one that was begun ([`Wal::begin`]) has at least one record from then on,
//! since pruning keeps the last that nothing supersedes. So a log without any ([`Wal::is_blank`])
//! was never begun, or is gone.

use crate::disk::{Disk, Removal};
use crate::records::{self, Ahead, Cut, FILE_HEADER, FILES, FileKind, Ident, Record, RecordFile};
use crate::wal_mark::WalEnd;
use crate::{LedgerError, Storage};
use bytes::Bytes;
use std::collections::VecDeque;
use tercio_types::ChainId;

/// The longest record, in bytes.
pub const MAX_RECORD: usize = 64 << 20;

/// How a write-ahead log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalSettings {
    /// The length at which a file is closed and the next begun, in bytes.
    pub file_bytes: u64,
    /// By how many zeros at a time the last file is lengthened ahead of the records, in bytes; 0
    /// for not at all. It saves most syncs the change of the file's length, and is of no use where
    /// nothing is synced.
    pub ahead_bytes: u64,
}

impl Default for WalSettings {
    fn default() -> Self {
        Self { file_bytes: 16 << 20, ahead_bytes: 1 << 20 }
    }
}

impl WalSettings {
    /// A file that is closed has no zeros behind its records: they end where it is full.
    fn ahead(self) -> Ahead {
        Ahead { step: self.ahead_bytes, end: self.file_bytes }
    }
}

/// A record, with the number up to which it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalRecord {
    /// The record may be forgotten once this number is stable; 0 when a later record supersedes
    /// it whenever pruning happens.
    pub tag: u64,
    /// The content.
    pub bytes: Bytes,
}

impl From<Record> for WalRecord {
    fn from(record: Record) -> Self {
        Self { tag: record.tag, bytes: record.bytes }
    }
}

/// A closed file.
struct Closed {
    number: u64,
    highest_tag: u64,
}

/// The write-ahead log. After any error that is not about reading, every call is refused.
pub struct Wal {
    disk: Disk,
    chain: ChainId,
    settings: WalSettings,
    closed: VecDeque<Closed>,
    current: RecordFile,
    highest_tag: u64,
    /// The file of the last record that only a later one supersedes (tag 0); it is not pruned.
    lasting: Option<u64>,
    blank: bool,
    cut: Option<Cut>,
}

fn file_name(number: u64) -> String {
    format!("wal-{number:010}")
}

fn file_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("wal-")?.parse().ok()?;
    (number < FILES && file_name(number) == name).then_some(number)
}

impl Wal {
    /// Opens the log of `chain`, or begins it, and gives all its records in the order in which
    /// they were appended. What it gives is durable.
    ///
    /// # Errors
    /// When the storage fails, a file is damaged before its tail, missing between two others, of
    /// another chain, or of another version.
    pub fn open(
        storage: Box<dyn Storage>,
        chain: ChainId,
        settings: WalSettings,
    ) -> Result<(Self, Vec<WalRecord>), LedgerError> {
        let mut disk = Disk::new(storage);
        disk.remove_temporaries()?;
        let names = disk.storage().list()?;
        let numbers: Vec<u64> = names.iter().filter_map(|name| file_number(name)).collect();
        if let Some(gap) = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1) {
            return Err(records::damage(&file_name(gap[0] + 1), 0, "the file is missing"));
        }
        let ahead = settings.ahead();
        let ident = |number| Ident { kind: FileKind::Wal, chain, number };
        let highest = |records: &[Record]| records.iter().map(|r| r.tag).max().unwrap_or(0);
        let mut lasting = None;
        let mut all: Vec<WalRecord> = Vec::new();
        let mut take = |number: u64, records: Vec<Record>| {
            if records.iter().any(|record| record.tag == 0) {
                lasting = Some(number);
            }
            all.extend(records.into_iter().map(WalRecord::from));
        };
        let mut closed = VecDeque::new();
        let last = numbers.last().copied();
        for &number in numbers.iter().take(numbers.len().saturating_sub(1)) {
            let name = file_name(number);
            let contents = records::read_all(disk.storage(), &name, &ident(number))?;
            if let Some(flaw) = contents.tail {
                return Err(records::damage(&name, contents.end, flaw.field));
            }
            closed.push_back(Closed { number, highest_tag: highest(&contents.records) });
            take(number, contents.records);
        }
        let (current, highest_tag, cut) = match last {
            None => (RecordFile::new(file_name(1), ident(1), ahead), 0, None),
            Some(number) => {
                let name = file_name(number);
                let (file, records, cut) =
                    RecordFile::recover(&mut disk, name, ident(number), ahead)?;
                let highest_tag = highest(&records);
                take(number, records);
                (file, highest_tag, cut)
            }
        };
        disk.change(|s| s.sync_dir())?;
        let blank = all.is_empty();
        all.retain(|record| !record.bytes.is_empty());
        let mut wal =
            Self { disk, chain, settings, closed, current, highest_tag, lasting, blank, cut };
        wal.roll_if_full()?;
        Ok((wal, all))
    }

    /// Begins a log that has no record yet, durably: from here on it can be told from a lost one.
    ///
    /// # Errors
    /// When the storage fails; the log is of no use then.
    ///
    /// # Panics
    /// When the log has a record.
    pub fn begin(&mut self) -> Result<(), LedgerError> {
        assert!(self.blank, "a log begins once");
        self.push(0, &[])?;
        self.sync()
    }

    /// Whether opening found no record at all, and none was appended since: the log was never
    /// begun, or it was lost.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.blank
    }

    /// What opening cut from the end.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Appends a record to the buffer; nothing is written yet.
    ///
    /// # Errors
    /// [`LedgerError::Poisoned`] after a failure.
    pub fn append(&mut self, tag: u64, bytes: &[u8]) -> Result<(), LedgerError> {
        assert!(!bytes.is_empty(), "an empty record is the beginning's");
        self.push(tag, bytes)
    }

    fn push(&mut self, tag: u64, bytes: &[u8]) -> Result<(), LedgerError> {
        assert!(bytes.len() <= MAX_RECORD, "consensus keeps its records within bounds");
        self.disk.check()?;
        self.blank = false;
        if tag == 0 {
            self.lasting = Some(self.current.number());
        }
        self.current.push(tag, bytes);
        self.highest_tag = self.highest_tag.max(tag);
        Ok(())
    }

    /// Gives all buffered records to the storage with one write, as a group. Where records are to
    /// survive more than the end of the process, a [`Self::sync`] must come before the next. A
    /// file that is full then is synced and closed.
    ///
    /// # Errors
    /// When the storage fails; the log is of no use then.
    pub fn flush(&mut self) -> Result<(), LedgerError> {
        self.current.flush(&mut self.disk)?;
        self.roll_if_full()
    }

    /// Makes all appended records durable.
    ///
    /// # Errors
    /// When the storage fails; the log is of no use then, and what was appended since the last
    /// success may be lost.
    pub fn sync(&mut self) -> Result<(), LedgerError> {
        self.current.sync(&mut self.disk)?;
        self.roll_if_full()
    }

    fn roll_if_full(&mut self) -> Result<(), LedgerError> {
        if self.current.len() < self.settings.file_bytes.max(FILE_HEADER as u64 + 1) {
            return Ok(());
        }
        // Only the last file may be torn, so the next begins when this one is safe.
        self.current.sync(&mut self.disk)?;
        let number = self.current.number();
        self.closed
            .push_back(Closed { number, highest_tag: std::mem::take(&mut self.highest_tag) });
        let ident = Ident { kind: FileKind::Wal, chain: self.chain, number: number + 1 };
        self.current = RecordFile::new(file_name(number + 1), ident, self.settings.ahead());
        Ok(())
    }

    /// Releases closed files, oldest first, as long as all their records have a tag of at most
    /// `stable`, but not of the file of the last record of tag 0; gives them to be removed.
    /// Whatever supersedes records of tag 0 must have been appended before; it is made durable
    /// first.
    ///
    /// # Errors
    /// When the storage fails; the log is of no use then.
    pub fn prune(&mut self, stable: u64) -> Result<Option<Removal>, LedgerError> {
        self.disk.check()?;
        let goes = |file: &&Closed| {
            file.highest_tag <= stable && self.lasting.is_none_or(|lasting| file.number < lasting)
        };
        let count = self.closed.iter().take_while(goes).count();
        if count == 0 {
            return Ok(None);
        }
        self.sync()?;
        let names = self.closed.drain(..count).map(|file| file_name(file.number)).collect();
        Removal::new(&mut self.disk, names).map(Some)
    }

    /// Up to where it is durable.
    #[must_use]
    pub fn durable_end(&self) -> WalEnd {
        WalEnd { file: self.current.number(), bytes: self.current.synced() }
    }

    /// How long the records of the file are that is not closed, buffered ones included.
    #[must_use]
    pub fn current_bytes(&self) -> u64 {
        self.current.len()
    }

    /// How many closed files wait to be pruned.
    #[must_use]
    pub fn closed_files(&self) -> usize {
        self.closed.len()
    }
}
