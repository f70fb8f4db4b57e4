//! Snapshots: a certified checkpoint, the labelled chunks of state that it stands for, and the
//! Merkle trees over them, in one file each.
//!
//! ```text
//! file   magic "TERCIO\0S" | version: u32 | chain: 32 B | head length: u32 | crc: u32
//!        | certified checkpoint | bytes of all blocks up to it: u64 | records of epochs
//! chunk  magic "TCHK" | label length: u32 | data length: u64 | crc: u32 | digest: 32 B
//!        | label | data
//! node   magic "TNOD" | crc: u32 | left: offset: u64, digest: 32 B | right: the same
//! end    magic "TMAN" | chunks: u64 | length of all before: u64 | crc of all crcs: u32
//!        | roots: u32 | tree: u8, offset: u64 each | crc: u32 | length of the end: u32 | "TEND"
//! ```
//! Nodes come after their children, between the chunks, so that a snapshot is written from front
//! to back with as much memory as its trees are deep, and any node or chunk is read by its offset
//! alone. What the digests mean is for the caller to say; a file is whole or it is not there.
//!
//! Records of epochs say how the members came to be those who signed. There are none yet, and an empty
//! list is not written; a file with any is refused, and is no damage: it is not to be passed over.

use crate::disk::{Disk, Removal, Window};
use crate::records::{LIMIT, chain_at, check_origin, damage, le32, le64};
use crate::storage::TEMPORARY;
use crate::{DISK_VERSION, LedgerError, Storage};
use bytes::Bytes;
use std::collections::BTreeMap;
use tercio_types::{CertifiedCheckpoint, ChainId, Digest, SeqNum, Suite};
use tercio_wire::{Decode, DecodeError, Encode, Reader};

const FILE_MAGIC: [u8; 8] = *b"TERCIO\0S";
const CHUNK_MAGIC: [u8; 4] = *b"TCHK";
const NODE_MAGIC: [u8; 4] = *b"TNOD";
const END_MAGIC: [u8; 4] = *b"TMAN";
const FILE_END: [u8; 4] = *b"TEND";
const HEADER: usize = 52;
const CHUNK_HEAD: usize = 52;
const NODE: usize = 88;
const ROOT: usize = 9;
/// The end without its roots.
const END: usize = 40;
/// The version of records of epochs, which stands before them.
const EPOCHS: u8 = 1;
const MAX_LABEL: usize = 1 << 16;
/// How many snapshots are kept.
const KEPT: usize = 2;
/// How many are kept at most while others read them.
const KEPT_READ: usize = 4;
/// How much is read at once where a record is expected, in bytes.
const PEEK: u64 = 256;

/// What a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHead {
    /// The checkpoint, and who signed it.
    pub certificate: CertifiedCheckpoint,
    /// How long the bodies of all blocks up to it are together, in bytes. Of a snapshot that came from
    /// others nothing certifies it: any number may stand here.
    pub chain_bytes: u64,
}

/// A snapshot as it was stored, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// What it is of.
    pub head: SnapshotHead,
    /// Labels and data, in the order in which they were written.
    pub chunks: Vec<(Bytes, Bytes)>,
}

impl StoredSnapshot {
    /// How long the data of all chunks are together; labels do not count.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|(_, data)| data.len() as u64).sum()
    }
}

/// A place in a snapshot's tree: where its record is, and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// The offset of the record in the file.
    pub offset: u64,
    /// The digest of the node.
    pub digest: Digest,
}

/// A record of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotRecord {
    /// An inner node: left and right.
    Node([Child; 2]),
    /// A chunk.
    Chunk {
        /// Its label.
        label: Bytes,
        /// The digest of its data.
        digest: Digest,
        /// Where in the file the data begins.
        at: u64,
        /// How long the data is.
        len: u64,
    },
}

/// A snapshot that is being written.
struct Writing {
    seq: SeqNum,
    temporary: String,
    written: u64,
    buffer: Vec<u8>,
    count: u64,
    crcs: crc32fast::Hasher,
}

/// The snapshots of a replica. The last two are kept, and those that somebody reads.
pub struct SnapshotStore {
    disk: Disk,
    chain: ChainId,
    kept: Vec<SeqNum>,
    writing: Option<Writing>,
    /// Snapshots that were read by record, and how many were written since.
    read: BTreeMap<SeqNum, u32>,
}

fn file_name(seq: SeqNum) -> String {
    format!("snapshot-{:020}", seq.0)
}

fn file_seq(name: &str) -> Option<SeqNum> {
    let seq = SeqNum(name.strip_prefix("snapshot-")?.parse().ok()?);
    (seq.0 < LIMIT && file_name(seq) == name).then_some(seq)
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.finalize()
}

fn digest_at(bytes: &[u8], at: usize) -> Digest {
    Digest(*bytes[at..].first_chunk().expect("the caller took a whole record"))
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
        Ok(Self { disk, chain, kept, writing: None, read: BTreeMap::new() })
    }

    /// The checkpoints of which there are snapshots, by sequence number, the latest last.
    #[must_use]
    pub fn kept(&self) -> &[SeqNum] {
        &self.kept
    }

    /// Begins a snapshot; one that was begun before and not finished is given up. False when there
    /// is one of this checkpoint already.
    ///
    /// # Errors
    /// When the storage fails, now or before; so do all that follow.
    pub fn begin(&mut self, head: &SnapshotHead) -> Result<bool, LedgerError> {
        self.disk.check()?;
        let seq = head.certificate.checkpoint.seq;
        if self.kept.contains(&seq) {
            return Ok(false);
        }
        self.give_up()?;
        let mut encoded = head.certificate.to_bytes().to_vec();
        encoded.extend_from_slice(&head.chain_bytes.to_le_bytes());
        let mut buffer = Vec::new();
        buffer.extend_from_slice(&FILE_MAGIC);
        buffer.extend_from_slice(&DISK_VERSION.to_le_bytes());
        buffer.extend_from_slice(&self.chain.0);
        buffer.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
        let crc = crc(&[&buffer, &encoded]);
        buffer.extend_from_slice(&crc.to_le_bytes());
        buffer.extend_from_slice(&encoded);
        self.writing = Some(Writing {
            seq,
            temporary: format!("{}{TEMPORARY}", file_name(seq)),
            written: 0,
            buffer,
            count: 0,
            crcs: crc32fast::Hasher::new(),
        });
        Ok(true)
    }

    /// Gives up the snapshot that is being written, if there is one.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn give_up(&mut self) -> Result<(), LedgerError> {
        if let Some(writing) = self.writing.take().filter(|writing| writing.written > 0) {
            self.disk.change(|s| s.remove(&writing.temporary))?;
        }
        Ok(())
    }

    fn writing(&mut self) -> &mut Writing {
        self.writing.as_mut().expect("a snapshot was begun")
    }

    /// Appends a chunk to the buffer; gives its offset. Labels ascend, which is the caller's to
    /// know.
    ///
    /// # Panics
    /// When no snapshot was begun, or the label is too long.
    pub fn push_chunk(&mut self, label: &[u8], digest: Digest, data: &[u8]) -> u64 {
        assert!(label.len() <= MAX_LABEL, "labels are short");
        let writing = self.writing();
        let (start, offset) = (writing.buffer.len(), writing.end());
        let out = &mut writing.buffer;
        out.extend_from_slice(&CHUNK_MAGIC);
        out.extend_from_slice(&(label.len() as u32).to_le_bytes());
        out.extend_from_slice(&(data.len() as u64).to_le_bytes());
        let crc = crc(&[&out[start..], &digest.0, label, data]).to_le_bytes();
        out.extend_from_slice(&crc);
        out.extend_from_slice(&digest.0);
        out.extend_from_slice(label);
        out.extend_from_slice(data);
        writing.crcs.update(&crc);
        writing.count += 1;
        offset
    }

    /// Appends an inner node to the buffer; gives its offset.
    ///
    /// # Panics
    /// When no snapshot was begun.
    pub fn push_node(&mut self, children: [Child; 2]) -> u64 {
        let writing = self.writing();
        let offset = writing.end();
        let mut body = [0; NODE - 8];
        for (i, child) in children.iter().enumerate() {
            body[40 * i..][..8].copy_from_slice(&child.offset.to_le_bytes());
            body[40 * i + 8..][..32].copy_from_slice(&child.digest.0);
        }
        let crc = crc(&[&NODE_MAGIC, &body]).to_le_bytes();
        writing.buffer.extend_from_slice(&NODE_MAGIC);
        writing.buffer.extend_from_slice(&crc);
        writing.buffer.extend_from_slice(&body);
        writing.crcs.update(&crc);
        offset
    }

    /// How many bytes wait in the buffer.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.writing.as_ref().map_or(0, |writing| writing.buffer.len())
    }

    /// Writes the buffer, and makes it durable, so that [`Self::finish`] has little left to do.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn flush(&mut self) -> Result<(), LedgerError> {
        let writing = self.writing.as_mut().expect("a snapshot was begun");
        self.disk.change(|s| {
            s.append(&writing.temporary, &writing.buffer)?;
            s.sync(&writing.temporary)
        })?;
        writing.written += writing.buffer.len() as u64;
        writing.buffer.clear();
        Ok(())
    }

    /// Ends the snapshot that is being written: it is durable and has its name. `roots` are where
    /// its trees begin, by tree. All others but the one before it and those that are read are given
    /// to be removed.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn finish(&mut self, roots: &[(u8, u64)]) -> Result<Option<Removal>, LedgerError> {
        let writing = self.writing();
        let before = writing.end();
        let (count, crcs) = (writing.count, writing.crcs.clone().finalize());
        let out = &mut writing.buffer;
        let start = out.len();
        out.extend_from_slice(&END_MAGIC);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&before.to_le_bytes());
        out.extend_from_slice(&crcs.to_le_bytes());
        out.extend_from_slice(&(roots.len() as u32).to_le_bytes());
        for (tree, offset) in roots {
            out.push(*tree);
            out.extend_from_slice(&offset.to_le_bytes());
        }
        let crc = crc(&[&out[start..]]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&((END + ROOT * roots.len()) as u32).to_le_bytes());
        out.extend_from_slice(&FILE_END);
        self.flush()?;
        let Writing { seq, temporary, .. } = self.writing.take().expect("it was being written");
        self.disk.change(|s| {
            s.rename(&temporary, &file_name(seq))?;
            s.sync_dir()
        })?;
        self.kept.push(seq);
        self.kept.sort_unstable();
        self.let_go_of_surplus()
    }

    fn let_go_of_surplus(&mut self) -> Result<Option<Removal>, LedgerError> {
        self.read.values_mut().for_each(|written| *written += 1);
        self.read.retain(|seq, written| *written <= 1 && self.kept.contains(seq));
        let mut surplus = self.kept.len().saturating_sub(KEPT);
        let mut most = self.kept.len().saturating_sub(KEPT_READ);
        let mut names = Vec::new();
        self.kept.retain(|seq| {
            let goes = surplus > 0 && (most > 0 || !self.read.contains_key(seq));
            if goes {
                names.push(file_name(*seq));
                (surplus, most) = (surplus - 1, most.saturating_sub(1));
            }
            !goes
        });
        (!names.is_empty()).then(|| Removal::new(&mut self.disk, names)).transpose()
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn remove(&mut self, seq: SeqNum) -> Result<(), LedgerError> {
        self.kept.retain(|kept| *kept != seq);
        self.disk.change(|s| s.remove(&file_name(seq)))
    }

    /// The latest snapshot, read whole.
    ///
    /// # Errors
    /// When the storage fails or the snapshot is damaged; [`Self::read`] may give the one before.
    pub fn latest(&self) -> Result<Option<StoredSnapshot>, LedgerError> {
        self.kept.last().map(|&seq| self.read(seq)).transpose()
    }

    /// A snapshot of [`Self::kept`], read whole. Beyond what it gives, little memory is used.
    ///
    /// # Errors
    /// When the storage fails, or any byte of the file is not as it was written.
    pub fn read(&self, seq: SeqNum) -> Result<StoredSnapshot, LedgerError> {
        let name = file_name(seq);
        let mut window = Window::new(self.disk.storage(), &name)?;
        let (head, mut at) = self.read_head(&mut window, &name, seq)?;
        let bad = |at: u64, field: &str| Err(damage(&name, at, field));
        let mut chunks = Vec::new();
        let mut crcs = crc32fast::Hasher::new();
        loop {
            let peek = window.take(at, NODE)?;
            if peek.len() < 20 {
                return bad(at, "end of the snapshot");
            }
            if peek[..4] == END_MAGIC {
                break;
            }
            match read_record(&mut window, &name, at)? {
                SnapshotRecord::Node(_) => {
                    crcs.update(&peek[4..8]);
                    at += NODE as u64;
                }
                SnapshotRecord::Chunk { label, digest, at: start, len } => {
                    let data = window.take(start, len as usize)?;
                    if crc(&[&peek[..16], &digest.0, &label, &data]) != le32(&peek, 16) {
                        return bad(at, "chunk checksum");
                    }
                    crcs.update(&peek[16..20]);
                    at = start + len;
                    // Copies, so that a chunk does not keep a whole window in memory.
                    let label = Bytes::copy_from_slice(&label);
                    chunks.push((label, Bytes::copy_from_slice(&data)));
                }
            }
        }
        let end = read_end(&mut window, &name)?;
        if end.at != at {
            return bad(at, "length of the snapshot");
        }
        if end.chunks != chunks.len() as u64 {
            return bad(at, "number of chunks");
        }
        if end.crcs != crcs.finalize() {
            return bad(at, "checksum of all records");
        }
        Ok(StoredSnapshot { head, chunks })
    }

    fn read_head(
        &self,
        window: &mut Window<'_>,
        name: &str,
        seq: SeqNum,
    ) -> Result<(SnapshotHead, u64), LedgerError> {
        let bad = |at: u64, field: &str| Err(damage(name, at, field));
        let header = window.take(0, HEADER)?;
        if header.len() < HEADER || header[..8] != FILE_MAGIC {
            return bad(0, "snapshot magic");
        }
        let len = le32(&header, 44) as usize;
        let encoded = window.take(HEADER as u64, len)?;
        if crc(&[&header[..48], &encoded]) != le32(&header, 48) {
            return bad(0, "snapshot header checksum");
        }
        check_origin(name, le32(&header, 8), chain_at(&header, 12), self.chain)?;
        let mut input = Reader::new(encoded, Suite::default());
        let mut decode = || {
            let certificate = CertifiedCheckpoint::decode(&mut input)?;
            let chain_bytes = input.u64("bytes of the chain")?;
            Ok::<_, DecodeError>(SnapshotHead { certificate, chain_bytes })
        };
        let Ok(head) = decode() else { return bad(HEADER as u64, "checkpoint") };
        match input.rest() {
            [] => {}
            [EPOCHS, ..] => return Err(LedgerError::EpochRecords { file: name.to_owned() }),
            _ => return bad(HEADER as u64, "records of epochs"),
        }
        if head.certificate.checkpoint.seq != seq {
            return bad(HEADER as u64, "sequence number of the checkpoint");
        }
        if head.certificate.checkpoint.height.0 >= LIMIT {
            return bad(HEADER as u64, "height of the checkpoint");
        }
        Ok((head, (HEADER + len) as u64))
    }

    /// What a snapshot of [`Self::kept`] is of, and how long its file is.
    ///
    /// # Errors
    /// When the storage fails or the file is damaged there.
    pub fn head(&self, seq: SeqNum) -> Result<(SnapshotHead, u64), LedgerError> {
        let name = file_name(seq);
        let mut window = Window::exact(self.disk.storage(), &name)?;
        let len = window.len();
        Ok((self.read_head(&mut window, &name, seq)?.0, len))
    }

    /// Where the trees of a snapshot begin. From here on it counts as being read.
    ///
    /// # Errors
    /// When the storage fails or the file is damaged there.
    pub fn roots(&mut self, seq: SeqNum) -> Result<Vec<(u8, u64)>, LedgerError> {
        self.read.insert(seq, 0);
        let name = file_name(seq);
        let mut window = Window::exact(self.disk.storage(), &name)?;
        Ok(read_end(&mut window, &name)?.roots)
    }

    /// The record at an offset that the snapshot itself named.
    ///
    /// # Errors
    /// When the storage fails or the file is damaged there.
    pub fn record(&self, seq: SeqNum, at: u64) -> Result<SnapshotRecord, LedgerError> {
        let name = file_name(seq);
        let mut window = Window::exact(self.disk.storage(), &name)?;
        window.take(at, PEEK as usize)?;
        read_record(&mut window, &name, at)
    }

    /// Part of a chunk's data, as [`SnapshotRecord::Chunk`] says where it is.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn data(&self, seq: SeqNum, at: u64, len: usize) -> Result<Bytes, LedgerError> {
        Ok(self.disk.storage().read_at(&file_name(seq), at, len)?.into())
    }
}

impl Writing {
    /// Where the next record begins.
    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }
}

fn read_record(
    window: &mut Window<'_>,
    name: &str,
    at: u64,
) -> Result<SnapshotRecord, LedgerError> {
    let bad = |field: &str| Err(damage(name, at, field));
    let head = window.take(at, NODE)?;
    if head.len() >= NODE && head[..4] == NODE_MAGIC {
        if crc(&[&NODE_MAGIC, &head[8..NODE]]) != le32(&head, 4) {
            return bad("node checksum");
        }
        let child = |i: usize| Child {
            offset: le64(&head, 8 + 40 * i),
            digest: digest_at(&head, 16 + 40 * i),
        };
        return Ok(SnapshotRecord::Node([child(0), child(1)]));
    }
    if head.len() < CHUNK_HEAD || head[..4] != CHUNK_MAGIC {
        return bad("record magic");
    }
    let (label_len, len) = (le32(&head, 4) as usize, le64(&head, 8));
    let start = at + CHUNK_HEAD as u64;
    if label_len > MAX_LABEL || (label_len as u64).saturating_add(len) > window.len() - start {
        return bad("chunk length");
    }
    let label = window.take(start, label_len)?;
    let at = start + label_len as u64;
    Ok(SnapshotRecord::Chunk { label, digest: digest_at(&head, 20), at, len })
}

/// The end of a snapshot.
struct End {
    at: u64,
    chunks: u64,
    crcs: u32,
    roots: Vec<(u8, u64)>,
}

fn read_end(window: &mut Window<'_>, name: &str) -> Result<End, LedgerError> {
    let len = window.len();
    let bad = |field: &str| Err(damage(name, len, field));
    let last = window.take(len.saturating_sub(8), 8)?;
    if last.len() < 8 || last[4..] != FILE_END {
        return bad("end of the snapshot");
    }
    let end_len = u64::from(le32(&last, 0));
    if end_len < END as u64 || end_len > len || !(end_len as usize - END).is_multiple_of(ROOT) {
        return bad("length of the end");
    }
    let at = len - end_len;
    let end = window.take(at, end_len as usize)?;
    let body = end.len() - 12;
    if crc(&[&end[..body]]) != le32(&end, body) {
        return bad("checksum of the end");
    }
    let count = le32(&end, 24) as usize;
    if end[..4] != END_MAGIC || le64(&end, 12) != at || END + ROOT * count != end.len() {
        return bad("end of the snapshot");
    }
    let root = |i: usize| (end[28 + ROOT * i], le64(&end, 29 + ROOT * i));
    let roots = (0..count).map(root).collect();
    Ok(End { at, chunks: le64(&end, 4), crcs: le32(&end, 20), roots })
}
