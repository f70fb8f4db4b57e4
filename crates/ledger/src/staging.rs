//! Pieces of a state that others send, kept until all of it is here: a replica that starts again in
//! the midst of that goes on with what it has.
//!
//! ```text
//! file    magic "TERCIO\0F" | version: u32, then records
//! record  length of the payload: u32 | crc of length, kind and payload: u32 | kind: u8 | payload
//! ```
//! Nothing of it is made durable, and nothing has to be: whoever reads a piece knows it by a digest
//! that he computes again, and fetches what is not here. A file is read up to the first record that
//! is not whole. Each start writes into a new file, so that nothing comes behind a torn end.

use crate::disk::{Disk, Removal, Window};
use crate::records::{FILES, le32};
use crate::{DISK_VERSION, LedgerError, Storage};
use bytes::Bytes;

const FILE_MAGIC: [u8; 8] = *b"TERCIO\0F";
const HEADER: usize = 12;
const RECORD: usize = 9;

/// Pieces of a state, each with a kind that says what it is.
pub struct Staging {
    disk: Disk,
    files: Vec<u64>,
    /// The number of the file that is written to.
    next: u64,
    /// How long all files are together.
    bytes: u64,
    buffer: Vec<u8>,
}

fn file_name(number: u64) -> String {
    format!("pieces-{number:010}")
}

fn file_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("pieces-")?.parse().ok()?;
    (number < FILES && file_name(number) == name).then_some(number)
}

fn crc(length: [u8; 4], kind: u8, payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    [&length[..], &[kind], payload].iter().for_each(|part| crc.update(part));
    crc.finalize()
}

impl Staging {
    /// Opens what an earlier start has left.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn open(storage: Box<dyn Storage>) -> Result<Self, LedgerError> {
        let disk = Disk::new(storage);
        let names = disk.storage().list()?;
        let files: Vec<u64> = names.iter().filter_map(|name| file_number(name)).collect();
        let next = files.last().map_or(1, |last| last + 1);
        let mut bytes = 0;
        for number in &files {
            bytes += disk.storage().len(&file_name(*number))?;
        }
        Ok(Self { disk, files, next, bytes, buffer: Vec::new() })
    }

    /// How many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds pieces, as long as all together are at most `limit` bytes.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn put<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = (u8, &'a [u8])>,
        limit: u64,
    ) -> Result<(), LedgerError> {
        self.buffer.clear();
        let is_new = self.files.last() != Some(&self.next);
        if is_new {
            self.buffer.extend_from_slice(&FILE_MAGIC);
            self.buffer.extend_from_slice(&DISK_VERSION.to_le_bytes());
        }
        let start = self.buffer.len();
        for (kind, payload) in pieces {
            let all = self.bytes + (self.buffer.len() + RECORD + payload.len()) as u64;
            let Ok(length) = u32::try_from(payload.len()) else { break };
            if all > limit {
                break;
            }
            let length = length.to_le_bytes();
            self.buffer.extend_from_slice(&length);
            self.buffer.extend_from_slice(&crc(length, kind, payload).to_le_bytes());
            self.buffer.push(kind);
            self.buffer.extend_from_slice(payload);
        }
        if self.buffer.len() == start {
            return Ok(());
        }
        let (name, buffer) = (file_name(self.next), &self.buffer);
        self.disk.change(|s| s.append(&name, buffer))?;
        if is_new {
            self.files.push(self.next);
        }
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Reads all whole pieces, in the order in which they were written.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn read(&self, mut each: impl FnMut(u8, Bytes)) -> Result<(), LedgerError> {
        for number in &self.files {
            let name = file_name(*number);
            let mut window = Window::new(self.disk.storage(), &name)?;
            let header = window.take(0, HEADER)?;
            if header.len() < HEADER
                || header[..8] != FILE_MAGIC
                || le32(&header, 8) != DISK_VERSION
            {
                continue;
            }
            let mut at = HEADER as u64;
            loop {
                let head = window.take(at, RECORD)?;
                let start = at + RECORD as u64;
                if head.len() < RECORD || u64::from(le32(&head, 0)) > window.len() - start {
                    break;
                }
                let payload = window.take(start, le32(&head, 0) as usize)?;
                let length = *head.first_chunk().expect("a whole head");
                if crc(length, head[8], &payload) != le32(&head, 4) {
                    break;
                }
                // A copy, so that a piece does not keep a whole window in memory.
                each(head[8], Bytes::copy_from_slice(&payload));
                at = start + payload.len() as u64;
            }
        }
        Ok(())
    }

    /// Releases everything; gives its files to be removed, if there are any. What is put from
    /// then on goes into a file of another name.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn clear(&mut self) -> Result<Option<Removal>, LedgerError> {
        (self.buffer, self.bytes) = (Vec::new(), 0);
        let Some(last) = self.files.last() else { return Ok(None) };
        self.next = last + 1;
        let names = self.files.drain(..).map(file_name).collect();
        Removal::new(&mut self.disk, names).map(Some)
    }
}
