//! The agreed chain on disk: blocks in segment files of a fixed number each, with certificates and
//! attestations beside them.
//!
//! A segment `blocks-H` begins with block H. It is closed when it is full: its footer holds the
//! offset of every block, so that a read by height takes two reads of the file, however long the
//! chain. A closed segment is synced before the next begins; so only the last file can be torn,
//! and opening cuts that tail. Between two syncs it is written many times, so that the tail may
//! have a hole with whole blocks behind it: what lies above the latest certificate may not have
//! been durable, and is cut from the first flaw on. Every header names its parent's hash, and every
//! segment the hash of the block before it.
//!
//! `docs/format-disk.md` lists every byte.

mod behind;
mod kept;
mod last;
mod open;
mod repair;
// The audit reads what these write.
pub(crate) mod results;
pub(crate) mod side;

pub use kept::WantedResults;
pub use repair::Wanted;

use crate::disk::{Disk, Removal, Window};
use crate::records::Cut;
use crate::segment::{
    self, Footer, SegmentHeader, attestation_name, parse_name, read_block, results_name,
    segment_name,
};
use crate::{LedgerError, Storage};
use bytes::Bytes;
use repair::{Damaged, Patch, Scrub};
use results::Results;
use side::Side;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use tercio_types::{
    BlockHeader, CertifiedCheckpoint, ChainId, Digest, Height, ReplicaId, SignatureBytes,
};

/// How a block log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLogSettings {
    /// How many blocks a new segment takes, at least 1.
    pub blocks_per_segment: u32,
    /// `retain.bytes`: [`BlockLog::prune`] releases the oldest segments while the log is longer, the
    /// results of its blocks counted.
    pub retain_bytes: u64,
    /// `retain.blocks`: or while it holds more blocks than this.
    pub retain_blocks: u64,
    /// `retain.results`: whether the results of blocks are kept beside them.
    pub keep_results: bool,
}

impl Default for BlockLogSettings {
    fn default() -> Self {
        Self {
            blocks_per_segment: 1024,
            retain_bytes: u64::MAX,
            retain_blocks: u64::MAX,
            keep_results: true,
        }
    }
}

/// A block as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its header.
    pub header: BlockHeader,
    /// The canonical encoding of its batch.
    pub body: Bytes,
}

/// What opening a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The lowest block, when there is one.
    pub first: Option<Height>,
    /// The highest block, when there is one.
    pub head: Option<Height>,
    /// How many segments there are.
    pub segments: usize,
    /// Torn tails that were cut, and holes in certificates and attestations.
    pub cuts: Vec<Cut>,
    /// Whether the last segment was full and its footer had to be written again.
    pub footer_rebuilt: bool,
}

/// The segment that is appended to.
struct Open {
    header: SegmentHeader,
    name: String,
    offsets: Vec<u64>,
    /// How much of it the storage has; the rest is in the buffer.
    written: u64,
    unsynced: bool,
    new_name: bool,
}

impl Open {
    /// A segment that has no file yet: its header goes to the buffer.
    fn begin(header: SegmentHeader, buffer: &mut Vec<u8>) -> Self {
        assert!(buffer.is_empty(), "the segment before is written");
        header.encode(buffer);
        let name = segment_name(header.first);
        Self { header, name, offsets: vec![], written: 0, unsynced: false, new_name: true }
    }
}

/// The log of blocks. After an error in a call that changes something, every later change is
/// refused.
pub struct BlockLog {
    disk: Disk,
    settings: BlockLogSettings,
    /// The closed segments by their first height.
    closed: BTreeMap<Height, Footer>,
    open: Open,
    buffer: Vec<u8>,
    tip: (Height, Digest),
    head: Option<BlockHeader>,
    side: Side,
    results: Results,
    /// Blocks that cannot be read, and wait for a whole copy.
    damaged: Damaged,
    /// Copies that came.
    patch: Option<Patch>,
    scrub: Scrub,
}

impl BlockLog {
    /// Opens the log of `chain`, or begins it, cuts a torn tail, and makes what is left durable.
    ///
    /// # Errors
    /// When the storage fails, or a file is damaged other than by a torn tail at its end, missing,
    /// of another chain, or of another version.
    pub fn open(
        storage: Box<dyn Storage>,
        chain: ChainId,
        settings: BlockLogSettings,
    ) -> Result<(Self, Recovery), LedgerError> {
        open::open(Disk::new(storage), chain, settings)
    }

    /// Appends a block to the buffer. The block that fills its segment writes and syncs it.
    ///
    /// That the block follows the last one is the caller's invariant and asserted; that the body
    /// hashes to `header.body` was checked when the batch was agreed on, and is not hashed again.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn append(&mut self, header: &BlockHeader, body: &Bytes) -> Result<(), LedgerError> {
        self.disk.check()?;
        let (height, hash) = self.tip;
        assert_eq!(header.height, height.next(), "blocks are appended in order");
        assert_eq!(header.parent, hash, "a block names the one before it");
        debug_assert_eq!(header.body, tercio_crypto::hash(header.suite, &[body]));
        self.open.offsets.push(self.open.written + self.buffer.len() as u64);
        let hash = segment::put_block(header, body, &mut self.buffer);
        self.tip = (header.height, hash);
        self.head = Some(header.clone());
        if self.open.offsets.len() == self.open.header.capacity as usize {
            self.close_segment()?;
        }
        Ok(())
    }

    /// Writes the footer, makes the segment durable, and begins the next.
    fn close_segment(&mut self) -> Result<(), LedgerError> {
        let start = self.open.written + self.buffer.len() as u64;
        let SegmentHeader { first, capacity, chain, .. } = self.open.header;
        let last = self.tip.1;
        segment::put_footer(first, &self.open.offsets, &last, &mut self.buffer);
        let len = self.open.written + self.buffer.len() as u64;
        self.write_segment()?;
        self.sync_segment()?;
        self.closed.insert(first, Footer { count: capacity, last, start, len });
        let next = SegmentHeader {
            base: false,
            capacity: self.settings.blocks_per_segment,
            chain,
            first: self.tip.0.next(),
            parent: last,
        };
        self.open = Open::begin(next, &mut self.buffer);
        Ok(())
    }

    fn write_segment(&mut self) -> Result<(), LedgerError> {
        // The header of a segment without blocks waits for the first.
        if self.buffer.is_empty() || self.open.offsets.is_empty() {
            return Ok(());
        }
        self.disk.change(|s| s.append(&self.open.name, &self.buffer))?;
        self.open.written += self.buffer.len() as u64;
        self.open.unsynced = true;
        self.buffer.clear();
        Ok(())
    }

    fn sync_segment(&mut self) -> Result<(), LedgerError> {
        if self.open.unsynced {
            self.disk.change(|s| s.sync(&self.open.name))?;
            self.open.unsynced = false;
            if self.open.new_name {
                self.disk.change(|s| s.sync_dir())?;
                self.open.new_name = false;
            }
        }
        Ok(())
    }

    /// Gives all appended blocks to the storage with one append.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn flush(&mut self) -> Result<(), LedgerError> {
        self.disk.check()?;
        self.write_segment()?;
        self.results.flush_some(&mut self.disk)?;
        self.side.flush(&mut self.disk)
    }

    /// Makes everything durable: blocks first, then what is said about them, and their results.
    ///
    /// # Errors
    /// When the storage fails, now or before; what was appended since the last success may be
    /// lost then.
    pub fn sync(&mut self) -> Result<(), LedgerError> {
        self.sync_blocks()?;
        self.sync_side()?;
        self.sync_results()
    }

    /// Makes the blocks durable.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_blocks(&mut self) -> Result<(), LedgerError> {
        self.disk.check()?;
        self.write_segment()?;
        self.sync_segment()
    }

    /// Makes certificates and attestations durable. The blocks that they are about come first
    /// ([`Self::sync_blocks`]).
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_side(&mut self) -> Result<(), LedgerError> {
        self.side.sync(&mut self.disk)
    }

    /// The highest block: its height, hash and header. `None` while the log holds none.
    #[must_use]
    pub fn head(&self) -> Option<(Height, Digest, BlockHeader)> {
        self.head.clone().map(|header| (self.tip.0, self.tip.1, header))
    }

    /// What the next block must follow: the height and hash of the last block, or of the block
    /// that the log was started after; height 0 and the chain id in a new log.
    #[must_use]
    pub fn tip(&self) -> (Height, Digest) {
        self.tip
    }

    /// The lowest block that the log holds, or will hold when it is empty.
    #[must_use]
    pub fn first_height(&self) -> Height {
        self.closed.first_key_value().map_or(self.open.header.first, |(first, _)| *first)
    }

    /// How long all segments are, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.values().map(|footer| footer.len).sum();
        closed + self.open.written + self.buffer.len() as u64
    }

    /// About how long the blocks above `height` are, in bytes, to a segment; `None` when the first
    /// of them is gone.
    #[must_use]
    pub fn bytes_after(&self, height: Height) -> Option<u64> {
        if height >= self.tip.0 {
            return Some(0);
        }
        let first = self.segment_of(height.next())?;
        let closed: u64 = self.closed.range(first..).map(|(_, footer)| footer.len).sum();
        Some(closed + self.open.written + self.buffer.len() as u64)
    }

    /// The first height of the segment that has `height`.
    fn segment_of(&self, height: Height) -> Option<Height> {
        if height < self.first_height() || height > self.tip.0 {
            return None;
        }
        if height >= self.open.header.first {
            return Some(self.open.header.first);
        }
        self.closed.range(..=height).next_back().map(|(first, _)| *first)
    }

    /// Reads a block; `None` when the log does not hold it (pruned, or not there yet).
    ///
    /// # Errors
    /// When the storage fails or the block is damaged.
    pub fn read(&self, height: Height) -> Result<Option<Block>, LedgerError> {
        let Some(first) = self.segment_of(height) else { return Ok(None) };
        match self.read_in(first, height) {
            // A file that is gone, or ends too early.
            Err(LedgerError::Io(error))
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) =>
            {
                Err(block_damage(&segment_name(first), 0, height, &error.to_string()))
            }
            other => other.map(Some),
        }
    }

    fn read_in(&self, first: Height, height: Height) -> Result<Block, LedgerError> {
        let name = segment_name(first);
        if let Some((offset, field)) = self.damaged.place(height) {
            return Err(block_damage(&name, offset, height, field));
        }
        let i = (height.0 - first.0) as usize;
        let (mut window, at, end) = match self.closed.get(&first) {
            Some(footer) => {
                let mut window = Window::exact(self.disk.storage(), &name)?;
                if window.len() != footer.len {
                    return Err(block_damage(&name, window.len(), height, "file length"));
                }
                let Some((at, end)) = footer.extent(&mut window, i as u32)? else {
                    let field = format!("index entry {i}");
                    return Err(block_damage(&name, footer.start, height, &field));
                };
                (window, at, end)
            }
            None => {
                let at = self.open.offsets[i];
                let len = self.open.written + self.buffer.len() as u64;
                let end = self.open.offsets.get(i + 1).copied().unwrap_or(len);
                let window = if at >= self.open.written {
                    let part =
                        (at - self.open.written) as usize..(end - self.open.written) as usize;
                    Window::over(Bytes::copy_from_slice(&self.buffer[part]), at)
                } else {
                    Window::exact(self.disk.storage(), &name)?
                };
                (window, at, end)
            }
        };
        // One read for all of the record.
        window.take(at, (end - at) as usize)?;
        match read_block(&mut window, at, Some(height))? {
            Ok(record) => Ok(Block { header: record.header, body: record.body }),
            Err(flaw) => Err(block_damage(&name, at, height, flaw.field)),
        }
    }

    /// Releases the oldest closed segments while the log is longer than `retain_bytes`, or holds
    /// `retain_blocks` and the segment, but of none with a block above `snapshot`, the height of the
    /// latest snapshot, and not of the last before a segment that is not durable; gives their files
    /// to be removed, if there are any.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn prune(&mut self, snapshot: Height) -> Result<Option<Removal>, LedgerError> {
        self.disk.check()?;
        let mut gone = Vec::new();
        while let Some((&first, footer)) = self.closed.first_key_value() {
            // This many blocks are left at least: a segment goes when the others have enough.
            let left = self.tip.0.0 - first.0 + 1 - u64::from(footer.count);
            let BlockLogSettings { retain_bytes, retain_blocks, .. } = self.settings;
            if self.bytes() + self.results.bytes() <= retain_bytes && left < retain_blocks {
                break;
            }
            if footer.last_height(first) > snapshot {
                break;
            }
            // Until the open segment's header is durable, only a closed one says where it begins.
            if self.closed.len() == 1 && self.open.new_name {
                break;
            }
            self.closed.remove(&first);
            gone.push(first);
        }
        self.let_go_of(gone)
    }

    /// Gives the files of these segments, of what is attested about them, and of their results, to be
    /// removed. What is
    /// certified of blocks before goes when their files are seen to be gone.
    fn let_go_of(&mut self, segments: Vec<Height>) -> Result<Option<Removal>, LedgerError> {
        if segments.is_empty() {
            return Ok(None);
        }
        let first = self.first_height();
        self.damaged.forget_before(first);
        let there = self.disk.storage().list()?;
        let lowest = there.iter().find_map(|name| parse_name(name, "blocks"));
        self.side.prune(&mut self.disk, first, lowest.unwrap_or(first))?;
        self.results.prune(first);
        // A segment that is damaged may have no file, and few have attestations.
        let names = [segment_name, attestation_name, results_name].into_iter();
        let mut names: Vec<_> = names.flat_map(|name| segments.iter().copied().map(name)).collect();
        names.retain(|name| there.binary_search(name).is_ok());
        Removal::new(&mut self.disk, names).map(Some)
    }

    /// Starts the log anew behind block `height` with hash `block`, as after a snapshot that was
    /// fetched from others: the next block is `height + 1`, and all that the log held is gone; gives
    /// its files to be removed, if there are any. After a crash in the middle the log is the old one
    /// or the new one. A log that goes further already, with damage that kept its blocks from being
    /// executed, stays as it is.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    ///
    /// # Panics
    /// When the log has another block at `height`.
    pub fn restart_after(
        &mut self,
        height: Height,
        block: Digest,
    ) -> Result<Option<Removal>, LedgerError> {
        self.disk.check()?;
        if height < self.tip.0 {
            return Ok(None);
        }
        if height == self.tip.0 {
            assert_eq!(block, self.tip.1, "two blocks of one height");
            return Ok(None);
        }
        let header = SegmentHeader {
            base: true,
            capacity: self.settings.blocks_per_segment,
            chain: self.open.header.chain,
            first: height.next(),
            parent: block,
        };
        self.buffer.clear();
        let mut open = Open::begin(header, &mut self.buffer);
        self.disk.change(|s| s.write_atomic(&open.name, &self.buffer))?;
        open.written = self.buffer.len() as u64;
        open.new_name = false;
        self.buffer.clear();
        // The new segment voids them, for whoever opens the log before they are removed.
        let old = std::mem::replace(&mut self.open, open).header.first;
        let gone = std::mem::take(&mut self.closed).into_keys().chain([old]).collect();
        (self.tip, self.head) = ((height, block), None);
        self.let_go_of(gone)
    }

    /// Keeps a certificate. Written at once; durable after the next [`Self::sync`].
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn put_certificate(
        &mut self,
        certificate: &CertifiedCheckpoint,
    ) -> Result<(), LedgerError> {
        // What it proves is on its way to the disk when it is.
        self.results.flush(&mut self.disk)?;
        self.side.put_certificate(&mut self.disk, certificate)
    }

    /// The certificate of the lowest checkpoint at or above `height`: what proves that block.
    ///
    /// # Errors
    /// When the storage fails or the certificate is damaged.
    pub fn certificate_at_or_after(
        &self,
        height: Height,
    ) -> Result<Option<CertifiedCheckpoint>, LedgerError> {
        self.side.certificate_at_or_after(&self.disk, height)
    }

    /// The certificate of the highest checkpoint.
    ///
    /// # Errors
    /// When the storage fails or the certificate is damaged.
    pub fn latest_certificate(&self) -> Result<Option<CertifiedCheckpoint>, LedgerError> {
        self.side.latest_certificate(&self.disk)
    }

    /// Keeps signatures on a block, in the buffer until the next flush. Only blocks of the last
    /// two segments take signatures; false when `height` is in neither.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn put_attestation(
        &mut self,
        height: Height,
        block: Digest,
        signatures: &[(ReplicaId, SignatureBytes)],
    ) -> Result<bool, LedgerError> {
        let Some(segment) = self.segment_of(height) else { return Ok(false) };
        let oldest = self.closed.last_key_value().map_or(segment, |(first, _)| *first);
        if segment < oldest {
            return Ok(false);
        }
        self.side.put_attestation(&mut self.disk, segment, height, block, signatures)?;
        Ok(true)
    }

    /// All signatures that are kept on a block, each with the hash that it is on, in the order in
    /// which they came. Reads the attestations of the whole segment.
    ///
    /// # Errors
    /// When the storage fails or the file is damaged.
    pub fn attestations(
        &mut self,
        height: Height,
    ) -> Result<Vec<(Digest, ReplicaId, SignatureBytes)>, LedgerError> {
        match self.segment_of(height) {
            Some(segment) => self.side.attestations(&mut self.disk, segment, height),
            None => Ok(vec![]),
        }
    }
}

fn block_damage(name: &str, offset: u64, height: Height, field: &str) -> LedgerError {
    let (file, field) = (name.to_owned(), field.to_owned());
    LedgerError::Damage { file, offset, height: Some(height), field }
}
