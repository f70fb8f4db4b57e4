//! Snapshots: a checkpoint and the labelled chunks of state that it stands for, in one file each.
//!
//! ```text
//! file   magic "TERCIO\0S" | version: u32 | chain: 32 B | checkpoint length: u32 | crc: u32
//!        | checkpoint
//! chunk  magic "TCHK" | label length: u32 | data length: u64 | crc: u32 | label | data
//! end    magic "TMAN" | chunks: u64 | length of all before: u64 | crc of all chunk crcs: u32
//!        | crc: u32
//! ```
//! A snapshot is written under another name and renamed when it is durable, so that there is never
//! half of one. Whether the chunks hash to the checkpoint's digests is for the application's state
//! to say.

use crate::disk::{Disk, Window};
use crate::records::{chain_at, check_origin, damage, le32, le64};
use crate::storage::TEMPORARY;
use crate::{DISK_VERSION, LedgerError, Storage};
use bytes::Bytes;
use tercio_types::{ChainId, Checkpoint, SeqNum, Suite};
use tercio_wire::{Decode, Encode};

const FILE_MAGIC: [u8; 8] = *b"TERCIO\0S";
const CHUNK_MAGIC: [u8; 4] = *b"TCHK";
const END_MAGIC: [u8; 4] = *b"TMAN";
const HEADER: usize = 52;
const CHUNK_HEAD: usize = 20;
const END: usize = 28;
const MAX_LABEL: usize = 1 << 16;
/// How much is gathered before it is written, in bytes.
const WRITE: usize = 1 << 20;
/// How many snapshots are kept.
const KEPT: usize = 2;

/// A snapshot as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What it is the state of.
    pub checkpoint: Checkpoint,
    /// Labels and data, in the order in which they were written.
    pub chunks: Vec<(Bytes, Bytes)>,
}

/// The snapshots of a replica; the last two are kept.
pub struct SnapshotStore {
    disk: Disk,
    chain: ChainId,
    kept: Vec<SeqNum>,
}

fn file_name(seq: SeqNum) -> String {
    format!("snapshot-{:020}", seq.0)
}

fn file_seq(name: &str) -> Option<SeqNum> {
    let seq = SeqNum(name.strip_prefix("snapshot-")?.parse().ok()?);
    (file_name(seq) == name).then_some(seq)
}

fn chunk_crc(head: &[u8], label: &[u8], data: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    crc.update(label);
    crc.update(data);
    crc.finalize()
}

impl SnapshotStore {
    /// Opens the snapshots of `chain`, and removes one that was not finished.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn open(storage: Box<dyn Storage>, chain: ChainId) -> Result<Self, LedgerError> {
        let mut disk = Disk::new(storage);
        disk.remove_temporaries()?;
        disk.change(|s| s.sync_dir())?;
        let kept = disk.storage().list()?.iter().filter_map(|name| file_seq(name)).collect();
        Ok(Self { disk, chain, kept })
    }

    /// The checkpoints of which there are snapshots, by sequence number, the latest last.
    #[must_use]
    pub fn kept(&self) -> &[SeqNum] {
        &self.kept
    }

    /// Writes a snapshot durably, and then removes all but the last two. One for whose sequence
    /// number there is a snapshot already is not written again.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn write(
        &mut self,
        checkpoint: &Checkpoint,
        chunks: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<(), LedgerError> {
        self.disk.check()?;
        if self.kept.contains(&checkpoint.seq) {
            return Ok(());
        }
        let name = file_name(checkpoint.seq);
        let temporary = format!("{name}{TEMPORARY}");
        if self.disk.storage().list()?.contains(&temporary) {
            self.disk.change(|s| s.remove(&temporary))?;
        }
        let mut out = Vec::with_capacity(WRITE);
        let encoded = checkpoint.to_bytes();
        out.extend_from_slice(&FILE_MAGIC);
        out.extend_from_slice(&DISK_VERSION.to_le_bytes());
        out.extend_from_slice(&self.chain.0);
        out.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
        let crc = chunk_crc(&out, &encoded, &[]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&encoded);
        let (mut written, mut count) = (0, 0u64);
        let mut crcs = crc32fast::Hasher::new();
        for (label, data) in chunks {
            assert!(label.len() <= MAX_LABEL, "labels are short");
            let start = out.len();
            out.extend_from_slice(&CHUNK_MAGIC);
            out.extend_from_slice(&(label.len() as u32).to_le_bytes());
            out.extend_from_slice(&(data.len() as u64).to_le_bytes());
            let crc = chunk_crc(&out[start..], &label, &data).to_le_bytes();
            out.extend_from_slice(&crc);
            crcs.update(&crc);
            out.extend_from_slice(&label);
            out.extend_from_slice(&data);
            count += 1;
            if out.len() >= WRITE {
                self.disk.change(|s| s.append(&temporary, &out))?;
                written += out.len() as u64;
                out.clear();
            }
        }
        let (start, before) = (out.len(), written + out.len() as u64);
        out.extend_from_slice(&END_MAGIC);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&before.to_le_bytes());
        out.extend_from_slice(&crcs.finalize().to_le_bytes());
        let crc = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
        self.disk.change(|s| {
            s.append(&temporary, &out)?;
            s.sync(&temporary)?;
            s.rename(&temporary, &name)?;
            s.sync_dir()
        })?;
        self.kept.push(checkpoint.seq);
        self.kept.sort_unstable();
        let surplus = self.kept.len().saturating_sub(KEPT);
        for seq in self.kept.drain(..surplus) {
            self.disk.change(|s| s.remove(&file_name(seq)))?;
        }
        Ok(())
    }

    /// The latest snapshot, read whole.
    ///
    /// # Errors
    /// When the storage fails or the snapshot is damaged; [`Self::read`] may give the one before.
    pub fn latest(&self) -> Result<Option<Snapshot>, LedgerError> {
        self.kept.last().map(|&seq| self.read(seq)).transpose()
    }

    /// A snapshot of [`Self::kept`], read whole. Memory is bounded by the length of the file.
    ///
    /// # Errors
    /// When the storage fails, or any byte of the file is not as it was written.
    pub fn read(&self, seq: SeqNum) -> Result<Snapshot, LedgerError> {
        let name = file_name(seq);
        let mut window = Window::new(self.disk.storage(), &name)?;
        let bad = |at: u64, field: &str| Err(damage(&name, at, field));
        let header = window.take(0, HEADER)?;
        if header.len() < HEADER || header[..8] != FILE_MAGIC {
            return bad(0, "snapshot magic");
        }
        let checkpoint_len = le32(&header, 44) as usize;
        let encoded = window.take(HEADER as u64, checkpoint_len)?;
        if chunk_crc(&header[..48], &encoded, &[]) != le32(&header, 48) {
            return bad(0, "snapshot header checksum");
        }
        check_origin(&name, le32(&header, 8), chain_at(&header, 12), self.chain)?;
        let Ok(checkpoint) = Checkpoint::from_bytes(&encoded, Suite::default()) else {
            return bad(HEADER as u64, "checkpoint");
        };
        if checkpoint.seq != seq {
            return bad(HEADER as u64, "sequence number of the checkpoint");
        }
        let mut at = (HEADER + checkpoint_len) as u64;
        let mut chunks = Vec::new();
        let mut crcs = crc32fast::Hasher::new();
        loop {
            let head = window.take(at, CHUNK_HEAD)?;
            if head.len() < CHUNK_HEAD {
                return bad(at, "end of the snapshot");
            }
            if head[..4] == END_MAGIC {
                break;
            }
            if head[..4] != CHUNK_MAGIC {
                return bad(at, "chunk magic");
            }
            let (label_len, data_len) = (le32(&head, 4) as usize, le64(&head, 8));
            let start = at + CHUNK_HEAD as u64;
            if label_len > MAX_LABEL || data_len > window.len() - start {
                return bad(at, "chunk length");
            }
            let label = window.take(start, label_len)?;
            let data = window.take(start + label_len as u64, data_len as usize)?;
            if chunk_crc(&head[..16], &label, &data) != le32(&head, 16) {
                return bad(at, "chunk checksum");
            }
            crcs.update(&head[16..20]);
            at = start + label_len as u64 + data_len;
            // Copies, so that a chunk does not keep a whole window in memory.
            chunks.push((Bytes::copy_from_slice(&label), Bytes::copy_from_slice(&data)));
        }
        let end = window.take(at, END)?;
        if end.len() < END || crc32fast::hash(&end[..24]) != le32(&end, 24) {
            return bad(at, "manifest checksum");
        }
        if le64(&end, 4) != chunks.len() as u64 {
            return bad(at, "number of chunks");
        }
        if le64(&end, 12) != at || at + END as u64 != window.len() {
            return bad(at, "length of the snapshot");
        }
        if le32(&end, 20) != crcs.finalize() {
            return bad(at, "checksum of all chunks");
        }
        Ok(Snapshot { checkpoint, chunks })
    }
}
