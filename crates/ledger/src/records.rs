//! Files of opaque records with a number each: the form of the write-ahead log, of certificates
//! and of attestations.
//!
//! ```text
//! file    magic "TERCIO\0R" | version: u32 | kind: u32 | chain: 32 B | number: u64 | crc: u32
//! record  magic "TREC" | length: u32 | tag: u64 | back: u32 | payload crc: u32 | header crc: u32
//!         | payload
//! ```
//! The header crc covers the file's number and the record's offset too, so that a record is good
//! in one place only.
//!
//! The records that one write took are a group, and `back` is how many bytes before the record its
//! group begins. A group is written when the one before is as durable as the log ever makes it. So
//! a crash can leave a hole only in the last group, whatever order the medium wrote its sectors in;
//! a whole record of a later group behind a bad place shows that this is damage, and one of the
//! same group does not.
//!
//! A file may have zeros behind its records ([`Ahead`]): an fsync of bytes that overwrite others
//! costs the file system less than one that has lengthened the file.

use crate::disk::{Disk, Window};
use crate::{DISK_VERSION, LedgerError, Storage};
use bytes::Bytes;
use std::io;
use tercio_types::ChainId;
use tercio_types::zoo::{Defence, stands};

const FILE_MAGIC: [u8; 8] = *b"TERCIO\0R";
pub(crate) const FILE_HEADER: usize = 60;
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"TREC";
pub(crate) const RECORD_HEADER: usize = 28;
/// Heights, sequence numbers and lengths of chains this large are never reached, and sums of smaller
/// ones cannot overflow: a file that has one is damaged.
pub(crate) const LIMIT: u64 = 1 << 62;
/// Numbers of files have ten digits.
pub(crate) const FILES: u64 = 10_000_000_000;
/// Zeros are written this many at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What the records of a file are; a number on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Wal = 1,
    Certificates = 2,
    Attestations = 3,
    Results = 4,
}

/// What a file must say of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ident {
    pub(crate) kind: FileKind,
    pub(crate) chain: ChainId,
    pub(crate) number: u64,
}

/// How far a file is lengthened with zeros before records come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// By this many bytes at a time; 0 for not at all.
    pub(crate) step: u64,
    /// The length at which it ends.
    pub(crate) end: u64,
}

impl Ahead {
    pub(crate) const NONE: Self = Self { step: 0, end: 0 };
}

/// A record as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) offset: u64,
    /// Where its group begins.
    pub(crate) group: u64,
    pub(crate) tag: u64,
    pub(crate) bytes: Bytes,
}

/// What is wrong at some place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) field: &'static str,
    /// The bytes end too early; those that are there are not known to be wrong.
    pub(crate) short: bool,
    /// From where on a further record would show that this is no tail.
    pub(crate) resume: u64,
}

/// Bytes that are no whole record, which opening a file has cut out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: String,
    /// Where they stood; of those behind the last whole record, the length of the file now.
    pub at: u64,
    /// How many bytes went.
    pub bytes: u64,
}

/// The records of a file.
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    /// Where the last whole record ends; 0 when not even the file header is whole.
    pub(crate) end: u64,
    pub(crate) len: u64,
    /// What is behind `end`, when there is something.
    pub(crate) tail: Option<Flaw>,
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the caller took a whole header"))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the caller took a whole header"))
}

pub(crate) fn damage(file: &str, offset: u64, field: impl Into<String>) -> LedgerError {
    LedgerError::Damage { file: file.to_owned(), offset, height: None, field: field.into() }
}

/// Checks version and chain of a file whose header checksum is good.
pub(crate) fn check_origin(
    file: &str,
    version: u32,
    found: ChainId,
    expected: ChainId,
) -> Result<(), LedgerError> {
    if version != DISK_VERSION {
        let (file, expected) = (file.to_owned(), DISK_VERSION);
        return Err(LedgerError::Version { file, found: version, expected });
    }
    if found != expected {
        return Err(LedgerError::Foreign { file: file.to_owned(), found, expected });
    }
    Ok(())
}

fn put_file_header(ident: &Ident, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&FILE_MAGIC);
    out.extend_from_slice(&DISK_VERSION.to_le_bytes());
    out.extend_from_slice(&(ident.kind as u32).to_le_bytes());
    out.extend_from_slice(&ident.chain.0);
    out.extend_from_slice(&ident.number.to_le_bytes());
    let crc = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

fn record_crc(number: u64, offset: u64, header: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_le_bytes());
    crc.update(&offset.to_le_bytes());
    crc.update(header);
    crc.finalize()
}

/// Puts a record behind those of its group, which begins with `out` and at `group` in the file.
fn put_record(number: u64, group: u64, tag: u64, payload: &[u8], out: &mut Vec<u8>) {
    put_record_with(number, group, tag, |out| out.extend_from_slice(payload), out);
}

/// The same with a payload that is written in its place, without a copy.
fn put_record_with(
    number: u64,
    group: u64,
    tag: u64,
    payload: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let offset = group + start as u64;
    out.resize(start + RECORD_HEADER, 0);
    payload(out);
    let (head, payload) = out[start..].split_at_mut(RECORD_HEADER);
    let length = u32::try_from(payload.len()).expect("a record is below 4 GiB");
    let back = u32::try_from(start).expect("a group is below 4 GiB");
    head[..4].copy_from_slice(&RECORD_MAGIC);
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..16].copy_from_slice(&tag.to_le_bytes());
    head[16..20].copy_from_slice(&back.to_le_bytes());
    head[20..24].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    let crc = record_crc(number, offset, &head[..24]);
    head[24..].copy_from_slice(&crc.to_le_bytes());
}

/// The header of the record at `at`, when it is whole.
fn record_header(window: &mut Window<'_>, number: u64, at: u64) -> io::Result<Result<Bytes, Flaw>> {
    let flaw = |field, short| Ok(Err(Flaw { field, short, resume: at + 1 }));
    let header = window.take(at, RECORD_HEADER)?;
    if header.len() < RECORD_HEADER {
        return flaw("record header", true);
    }
    if header[..4] != RECORD_MAGIC {
        return flaw("record magic", false);
    }
    if record_crc(number, at, &header[..24]) != le32(&header, 24) {
        return flaw("record header checksum", false);
    }
    Ok(Ok(header))
}

/// The tag of the record at `at`, and where it ends: its payload is not read.
pub(crate) fn peek_record(
    window: &mut Window<'_>,
    number: u64,
    at: u64,
) -> io::Result<Result<(u64, u64), Flaw>> {
    let header = record_header(window, number, at)?;
    let end = |header: &Bytes| at + RECORD_HEADER as u64 + u64::from(le32(header, 4));
    Ok(header.map(|header| (le64(&header, 8), end(&header))))
}

/// Reads the record at `at`.
pub(crate) fn read_record(
    window: &mut Window<'_>,
    number: u64,
    at: u64,
) -> io::Result<Result<Record, Flaw>> {
    let flaw = |field, short, resume| Ok(Err(Flaw { field, short, resume }));
    let header = match record_header(window, number, at)? {
        Ok(header) => header,
        Err(flaw) => return Ok(Err(flaw)),
    };
    let Some(group) = at.checked_sub(le32(&header, 16).into()) else {
        return flaw("record group", false, at + 1);
    };
    let (len, start) = (le32(&header, 4) as usize, at + RECORD_HEADER as u64);
    let end = start + len as u64;
    if end > window.len() {
        return flaw("record payload", true, window.len());
    }
    let bytes = window.take(start, len)?;
    if crc32fast::hash(&bytes) != le32(&header, 20) {
        return flaw("record payload checksum", false, end);
    }
    Ok(Ok(Record { offset: at, group, tag: le64(&header, 8), bytes }))
}

/// Whether a whole record of a group that begins behind `hole` stands at `from` or behind.
fn a_later_group_follows(
    window: &mut Window<'_>,
    number: u64,
    hole: u64,
    from: u64,
) -> io::Result<bool> {
    let mut from = from;
    while let Some(at) = window.find(from, RECORD_MAGIC)? {
        if let Ok(record) = read_record(window, number, at)?
            && (record.group > hole || !stands(Defence::F35HoleInGroup))
        {
            return Ok(true);
        }
        from = at + 1;
    }
    Ok(false)
}

/// Reads the header of a file; gives what is wrong when it may be a torn one.
pub(crate) fn read_header(
    window: &mut Window<'_>,
    name: &str,
    ident: &Ident,
) -> Result<Option<Flaw>, LedgerError> {
    let header = window.take(0, FILE_HEADER)?;
    if header.len() < FILE_HEADER {
        return Ok(Some(Flaw { field: "file header", short: true, resume: window.len() }));
    }
    if header[..8] != FILE_MAGIC {
        return Ok(Some(Flaw { field: "file magic", short: false, resume: 8 }));
    }
    if crc32fast::hash(&header[..56]) != le32(&header, 56) {
        return Ok(Some(Flaw { field: "file header checksum", short: false, resume: 8 }));
    }
    check_origin(name, le32(&header, 8), chain_at(&header, 16), ident.chain)?;
    if le32(&header, 12) != ident.kind as u32 {
        return Err(damage(name, 12, "file kind"));
    }
    if le64(&header, 48) != ident.number {
        return Err(damage(name, 48, "file number"));
    }
    Ok(None)
}

/// Reads all records of a file.
///
/// A bad record is the tail when nothing good of a later group follows it; otherwise the file is
/// damaged in the middle and named.
pub(crate) fn read_all(
    storage: &dyn Storage,
    name: &str,
    ident: &Ident,
) -> Result<Contents, LedgerError> {
    let mut window = Window::new(storage, name)?;
    let mut contents = Contents { records: Vec::new(), end: 0, len: window.len(), tail: None };
    contents.tail = read_header(&mut window, name, ident)?;
    if contents.tail.is_none() {
        contents.end = FILE_HEADER as u64;
        while contents.end < contents.len {
            match read_record(&mut window, ident.number, contents.end)? {
                Ok(record) => {
                    contents.end += (RECORD_HEADER + record.bytes.len()) as u64;
                    contents.records.push(record);
                }
                Err(flaw) => {
                    contents.tail = Some(flaw);
                    break;
                }
            }
        }
    }
    if let Some(flaw) = contents.tail
        && a_later_group_follows(&mut window, ident.number, contents.end, flaw.resume)?
    {
        return Err(damage(name, contents.end, flaw.field));
    }
    Ok(contents)
}

/// Whether nothing but zeros stands from `at` on.
pub(crate) fn is_zero_from(storage: &dyn Storage, name: &str, at: u64) -> io::Result<bool> {
    let mut window = Window::new(storage, name)?;
    let mut at = at;
    while at < window.len() {
        let bytes = window.take(at, ZEROS.len())?;
        if bytes[..] != ZEROS[..bytes.len()] {
            return Ok(false);
        }
        at += bytes.len() as u64;
    }
    Ok(true)
}

pub(crate) fn chain_at(bytes: &[u8], at: usize) -> ChainId {
    ChainId(*bytes[at..].first_chunk().expect("the caller took a whole header"))
}

/// A file of records that is being written.
pub(crate) struct RecordFile {
    name: String,
    ident: Ident,
    /// Appended, and not yet given to the storage.
    buffer: Vec<u8>,
    /// Where the records end that the storage has.
    written: u64,
    /// How long the file is: zeros may follow the records.
    room: u64,
    ahead: Ahead,
    unsynced: bool,
    /// Where the records end that are durable.
    synced: u64,
    new_name: bool,
}

impl RecordFile {
    /// A file that does not exist yet; the first flush makes it.
    pub(crate) fn new(name: String, ident: Ident, ahead: Ahead) -> Self {
        let mut file = Self {
            name,
            ident,
            buffer: Vec::new(),
            written: 0,
            room: 0,
            ahead,
            unsynced: false,
            synced: 0,
            new_name: true,
        };
        put_file_header(&ident, &mut file.buffer);
        file
    }

    /// Reads a file that was being appended to, cuts its torn tail, and makes what is left
    /// durable: it may be in the page cache only.
    pub(crate) fn recover(
        disk: &mut Disk,
        name: String,
        ident: Ident,
        ahead: Ahead,
    ) -> Result<(Self, Vec<Record>, Option<Cut>), LedgerError> {
        let contents = read_all(disk.storage(), &name, &ident)?;
        let torn = contents.end == 0 || !is_zero_from(disk.storage(), &name, contents.end)?;
        let (mut end, len) = (contents.end, contents.len);
        if !stands(Defence::F35CutTornTail) {
            end = len;
        }
        disk.rewrite(&name, &[], end)?;
        let cut = torn && end < len;
        let cut = cut.then(|| Cut { file: name.clone(), at: end, bytes: len - end });
        let mut file = Self::new(name, ident, ahead);
        if end > 0 {
            file.replaced(end);
        }
        Ok((file, contents.records, cut))
    }

    pub(crate) fn number(&self) -> u64 {
        self.ident.number
    }

    /// Where the records end once everything is written.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Where the records end that are durable.
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// How much of that is in the buffer.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Appends a record to the buffer; gives its offset.
    pub(crate) fn push(&mut self, tag: u64, payload: &[u8]) -> u64 {
        let offset = self.len();
        put_record(self.ident.number, self.written, tag, payload, &mut self.buffer);
        offset
    }

    /// The same with a payload that is written in its place.
    pub(crate) fn push_with(&mut self, tag: u64, payload: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let offset = self.len();
        put_record_with(self.ident.number, self.written, tag, payload, &mut self.buffer);
        offset
    }

    /// Writes the buffered records with one write, and zeros behind them when the file got longer.
    pub(crate) fn flush(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        disk.check()?;
        if self.len() <= FILE_HEADER as u64 || self.buffer.is_empty() {
            return Ok(());
        }
        disk.change(|s| s.write_at(&self.name, self.written, &self.buffer))?;
        self.written = self.len();
        self.buffer.clear();
        self.unsynced = true;
        if self.written > self.room {
            self.room = self.written;
            let Ahead { step, end } = self.ahead;
            let until = (self.room + step).min(end);
            while self.room < until {
                let zeros = &ZEROS[..ZEROS.len().min((until - self.room) as usize)];
                disk.change(|s| s.append(&self.name, zeros))?;
                self.room += zeros.len() as u64;
            }
        }
        Ok(())
    }

    /// Writes the buffered records and makes them durable.
    pub(crate) fn sync(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        self.flush(disk)?;
        if self.unsynced {
            disk.change(|s| s.sync(&self.name))?;
            self.unsynced = false;
            if self.new_name {
                disk.change(|s| s.sync_dir())?;
                self.new_name = false;
            }
            self.synced = self.written;
        }
        Ok(())
    }

    /// Reads one record that has been written.
    pub(crate) fn read(&self, disk: &Disk, offset: u64) -> Result<Record, LedgerError> {
        let mut window = Window::exact(disk.storage(), &self.name)?;
        read_record(&mut window, self.ident.number, offset)?
            .map_err(|flaw| damage(&self.name, offset, flaw.field))
    }

    /// The whole content of a file with these records, to replace this one.
    pub(crate) fn image(ident: &Ident, records: &[(u64, Bytes)]) -> (Vec<u8>, Vec<u64>) {
        let (mut out, mut offsets) = (Vec::new(), Vec::new());
        put_file_header(ident, &mut out);
        for (tag, payload) in records {
            offsets.push(out.len() as u64);
            put_record(ident.number, 0, *tag, payload, &mut out);
        }
        (out, offsets)
    }

    /// This file after its content was replaced by a whole one of `len` bytes, durably.
    pub(crate) fn replaced(&mut self, len: u64) {
        self.buffer.clear();
        (self.written, self.room, self.synced) = (len, len, len);
        (self.unsynced, self.new_name) = (false, false);
    }
}
