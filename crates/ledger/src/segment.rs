//! The form of a segment file of the block log.
//!
//! ```text
//! file    magic "TERCIO\0B" | version: u32 | flags: u32 | capacity: u32 | chain: 32 B
//!         | first height: u64 | parent of the first block: 32 B | crc: u32
//! record  magic "TBLK" | version: u16 | header length: u16 | body length: u32 | height: u64
//!         | body crc: u32 | header crc: u32 | block header | body
//! footer  magic "TIDX" | version: u32 | count: u32 | first height: u64 | hash of the last block
//!         | offset of each record: u64 | crc: u32 | footer length: u32 | magic "TEND"
//! ```
//! Every byte is determined by the blocks and by the settings, or covered by a crc.

use crate::disk::Window;
use crate::records::{Flaw, LIMIT, chain_at, check_origin, damage, le32, le64};
use crate::{DISK_VERSION, LedgerError};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use tercio_types::{BlockHeader, ChainId, Digest, Height, Suite};
use tercio_wire::{Decode, Encode};

const SEGMENT_MAGIC: [u8; 8] = *b"TERCIO\0B";
const BLOCK_MAGIC: [u8; 4] = *b"TBLK";
const FOOTER_MAGIC: [u8; 4] = *b"TIDX";
const END_MAGIC: [u8; 4] = *b"TEND";
const RECORD_VERSION: u16 = 1;
/// Set when the log begins with this segment: whatever lies before it is void.
const FLAG_BASE: u32 = 1;

pub(crate) const SEGMENT_HEADER: usize = 96;
pub(crate) const BLOCK_HEAD: usize = 28;
const FOOTER_FIXED: usize = 52;
const FOOTER_END: usize = 12;
/// The longest encoding of a block header that is read.
const MAX_HEADER: usize = 1024;
/// The most blocks in a segment.
pub(crate) const MAX_CAPACITY: u32 = 1 << 20;

pub(crate) fn segment_name(first: Height) -> String {
    format!("blocks-{:020}", first.0)
}

pub(crate) fn attestation_name(first: Height) -> String {
    format!("attest-{:020}", first.0)
}

pub(crate) fn results_name(first: Height) -> String {
    format!("results-{:020}", first.0)
}

pub(crate) fn parse_name(name: &str, prefix: &str) -> Option<Height> {
    let digits = name.strip_prefix(prefix)?.strip_prefix('-')?;
    let height: u64 = digits.parse().ok()?;
    (height < LIMIT && digits == format!("{height:020}")).then_some(Height(height))
}

/// What stands at the front of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) base: bool,
    pub(crate) capacity: u32,
    pub(crate) chain: ChainId,
    pub(crate) first: Height,
    pub(crate) parent: Digest,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&DISK_VERSION.to_le_bytes());
        out.extend_from_slice(&(if self.base { FLAG_BASE } else { 0 }).to_le_bytes());
        out.extend_from_slice(&self.capacity.to_le_bytes());
        out.extend_from_slice(&self.chain.0);
        out.extend_from_slice(&self.first.0.to_le_bytes());
        out.extend_from_slice(&self.parent.0);
        let crc = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header of the segment that begins with `first`; `Ok(Err(..))` when the bytes may
    /// be a torn one, or were to be elsewhere.
    pub(crate) fn read(
        window: &mut Window<'_>,
        name: &str,
        chain: ChainId,
        first: Height,
    ) -> Result<Result<Self, Flaw>, LedgerError> {
        let bytes = window.take(0, SEGMENT_HEADER)?;
        if bytes.len() < SEGMENT_HEADER {
            let (field, resume) = ("segment header", window.len());
            return Ok(Err(Flaw { field, short: true, resume }));
        }
        if bytes[..8] != SEGMENT_MAGIC {
            return Ok(Err(Flaw { field: "segment magic", short: false, resume: 8 }));
        }
        if crc32fast::hash(&bytes[..92]) != le32(&bytes, 92) {
            return Ok(Err(Flaw { field: "segment header checksum", short: false, resume: 8 }));
        }
        check_origin(name, le32(&bytes, 8), chain_at(&bytes, 20), chain)?;
        let (flags, capacity) = (le32(&bytes, 12), le32(&bytes, 16));
        if flags & !FLAG_BASE != 0 {
            return Err(damage(name, 12, "segment flags"));
        }
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return Err(damage(name, 16, "segment capacity"));
        }
        if le64(&bytes, 52) != first.0 {
            // The header of another segment, which a disk has put here.
            return Ok(Err(Flaw { field: "first height", short: false, resume: 8 }));
        }
        let parent = Digest(chain_at(&bytes, 60).0);
        Ok(Ok(Self { base: flags & FLAG_BASE != 0, capacity, chain, first, parent }))
    }
}

fn header_crc(head: &[u8], header: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    crc.update(header);
    crc.finalize()
}

/// Appends a block's record; gives the hash of its header.
pub(crate) fn put_block(header: &BlockHeader, body: &[u8], out: &mut Vec<u8>) -> Digest {
    let start = out.len();
    out.resize(start + BLOCK_HEAD, 0);
    header.encode(out);
    let encoded = out.len() - start - BLOCK_HEAD;
    assert!(encoded <= MAX_HEADER, "a block header is short");
    let body_len = u32::try_from(body.len()).expect("a body is below 4 GiB");
    let (head, encoded_header) = out[start..].split_at_mut(BLOCK_HEAD);
    head[..4].copy_from_slice(&BLOCK_MAGIC);
    head[4..6].copy_from_slice(&RECORD_VERSION.to_le_bytes());
    head[6..8].copy_from_slice(&(encoded as u16).to_le_bytes());
    head[8..12].copy_from_slice(&body_len.to_le_bytes());
    head[12..20].copy_from_slice(&header.height.0.to_le_bytes());
    head[20..24].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let crc = header_crc(&head[..24], encoded_header);
    head[24..].copy_from_slice(&crc.to_le_bytes());
    let hash = tercio_crypto::hash(header.suite, &[encoded_header]);
    out.extend_from_slice(body);
    hash
}

/// A block's record as read: whole by its checksums, and no more.
pub(crate) struct BlockRecord {
    pub(crate) header: BlockHeader,
    pub(crate) hash: Digest,
    pub(crate) body: Bytes,
    /// Where the next record begins.
    pub(crate) end: u64,
}

/// Reads the record of block `height` (of any, when `None`) at `at`.
pub(crate) fn read_block(
    window: &mut Window<'_>,
    at: u64,
    height: Option<Height>,
) -> io::Result<Result<BlockRecord, Flaw>> {
    let flaw = |field, short, resume| Ok(Err(Flaw { field, short, resume }));
    let head = window.take(at, BLOCK_HEAD)?;
    if head.len() < BLOCK_HEAD {
        return flaw("record header", true, at + 1);
    }
    if head[..4] != BLOCK_MAGIC {
        return flaw("record magic", false, at + 1);
    }
    let header_len = usize::from(u16::from_le_bytes([head[6], head[7]]));
    if header_len > MAX_HEADER {
        return flaw("header length", false, at + 1);
    }
    let encoded = window.take(at + BLOCK_HEAD as u64, header_len)?;
    if encoded.len() < header_len {
        return flaw("block header", true, at + 1);
    }
    if header_crc(&head[..24], &encoded) != le32(&head, 24) {
        return flaw("header checksum", false, at + 1);
    }
    if head[4..6] != RECORD_VERSION.to_le_bytes() {
        return flaw("record version", false, at + 1);
    }
    let number = Height(le64(&head, 12));
    if height.is_some_and(|h| h != number) {
        // It may itself be the one that shows that something is missing before it.
        return flaw("record height", false, at);
    }
    let start = at + (BLOCK_HEAD + header_len) as u64;
    let body_len = le32(&head, 8) as usize;
    let end = start + body_len as u64;
    if end > window.len() {
        return flaw("body", true, window.len());
    }
    let body = window.take(start, body_len)?;
    if crc32fast::hash(&body) != le32(&head, 20) {
        return flaw("body checksum", false, end);
    }
    let Ok(header) = BlockHeader::from_bytes(&encoded, Suite::default()) else {
        return flaw("block header", false, end);
    };
    if header.height != number {
        return flaw("height", false, end);
    }
    let hash = tercio_crypto::hash(header.suite, &[&encoded]);
    Ok(Ok(BlockRecord { header, hash, body, end }))
}

/// The height that the head of a record names, and how long its block header is; `None` when the
/// bytes do not begin with a whole one.
fn head_of(bytes: &[u8]) -> Option<(Height, usize)> {
    let head = bytes.get(..BLOCK_HEAD)?;
    let header_len = usize::from(u16::from_le_bytes([head[6], head[7]]));
    if header_len > MAX_HEADER || head[..4] != BLOCK_MAGIC {
        return None;
    }
    let encoded = bytes.get(BLOCK_HEAD..BLOCK_HEAD + header_len)?;
    (header_crc(&head[..24], encoded) == le32(head, 24))
        .then(|| (Height(le64(head, 12)), header_len))
}

/// Every place from `from` on where the whole head of a record of these heights stands, ascending.
/// Bodies are looked through too, and not read as bodies: that costs the same whatever is in them.
pub(crate) fn heads(
    window: &mut Window<'_>,
    from: u64,
    heights: RangeInclusive<Height>,
) -> io::Result<BTreeMap<Height, Vec<u64>>> {
    const STEP: usize = 1 << 20;
    let mut found: BTreeMap<Height, Vec<u64>> = BTreeMap::new();
    let mut at = from;
    while at < window.len() {
        let bytes = window.take(at, STEP + BLOCK_HEAD + MAX_HEADER)?;
        for i in (0..STEP.min(bytes.len())).filter(|&i| bytes[i..].starts_with(&BLOCK_MAGIC)) {
            if let Some((height, _)) = head_of(&bytes[i..])
                && heights.contains(&height)
            {
                found.entry(height).or_default().push(at + i as u64);
            }
        }
        at += STEP as u64;
    }
    Ok(found)
}

/// The block header in the head at `at`, its hash, and where the body ends by what the head says.
pub(crate) fn read_head(
    window: &mut Window<'_>,
    at: u64,
) -> io::Result<Option<(BlockHeader, Digest, u64)>> {
    let bytes = window.take(at, BLOCK_HEAD + MAX_HEADER)?;
    let Some((_, header_len)) = head_of(&bytes) else { return Ok(None) };
    let encoded = bytes.slice(BLOCK_HEAD..BLOCK_HEAD + header_len);
    let Ok(header) = BlockHeader::from_bytes(&encoded, Suite::default()) else { return Ok(None) };
    let hash = tercio_crypto::hash(header.suite, &[&encoded]);
    let end = at + (BLOCK_HEAD + header_len) as u64 + u64::from(le32(&bytes, 8));
    Ok(Some((header, hash, end)))
}

/// The footer of a segment whose records begin at `offsets`.
pub(crate) fn put_footer(first: Height, offsets: &[u64], last: &Digest, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&FOOTER_MAGIC);
    out.extend_from_slice(&DISK_VERSION.to_le_bytes());
    out.extend_from_slice(&(offsets.len() as u32).to_le_bytes());
    out.extend_from_slice(&first.0.to_le_bytes());
    out.extend_from_slice(&last.0);
    offsets.iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
    let crc = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&(footer_len(offsets.len()) as u32).to_le_bytes());
    out.extend_from_slice(&END_MAGIC);
}

pub(crate) fn footer_len(count: usize) -> usize {
    FOOTER_FIXED + 8 * count + FOOTER_END
}

/// The field at a place of a footer of `count` entries.
pub(crate) fn footer_field(count: usize, at: usize) -> String {
    match at {
        0..4 => "footer magic".into(),
        4..8 => "footer version".into(),
        8..12 => "footer count".into(),
        12..20 => "footer first height".into(),
        20..52 => "footer head hash".into(),
        _ => match (at - FOOTER_FIXED) / 8 {
            entry if entry < count => format!("index entry {entry}"),
            _ => match at - FOOTER_FIXED - 8 * count {
                0..4 => "footer checksum".into(),
                4..8 => "footer length".into(),
                _ => "footer end".into(),
            },
        },
    }
}

/// What the footer of a closed segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) count: u32,
    pub(crate) last: Digest,
    /// Where it begins, which is where the last record ends.
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Footer {
    /// Of a segment of which nothing can be read.
    pub(crate) fn lost(count: u32, last: Digest) -> Self {
        Self { count, last, start: 0, len: 0 }
    }

    /// Where the offset of the `i`-th record stands; the entry behind the last is no offset.
    fn entry(&self, i: u32) -> u64 {
        self.start + FOOTER_FIXED as u64 + 8 * u64::from(i)
    }

    /// From where to where the `i`-th record goes, from the index in the file; `None` when no
    /// record can be there.
    pub(crate) fn extent(&self, window: &mut Window<'_>, i: u32) -> io::Result<Option<(u64, u64)>> {
        let entries = if i + 1 < self.count { 16 } else { 8 };
        let bytes = window.take(self.entry(i), entries)?;
        if bytes.len() < entries {
            return Ok(None);
        }
        let end = if entries == 16 { le64(&bytes, 8) } else { self.start };
        let at = le64(&bytes, 0);
        Ok((at < end && end <= self.start).then_some((at, end)))
    }

    /// The height of the last block of a segment that begins with `first`.
    pub(crate) fn last_height(&self, first: Height) -> Height {
        Height(first.0 + u64::from(self.count) - 1)
    }
}

/// Reads the footer; the error says which of its fields is wrong, `None` when the file does not
/// end like a closed segment at all.
pub(crate) fn read_footer(
    window: &mut Window<'_>,
    segment: &SegmentHeader,
) -> io::Result<Result<Footer, Option<&'static str>>> {
    let len = window.len();
    let body = len.saturating_sub(SEGMENT_HEADER as u64);
    if body < footer_len(1) as u64 {
        return Ok(Err(None));
    }
    let end = window.take(len - 8, 8)?;
    if end[4..] != END_MAGIC {
        return Ok(Err(None));
    }
    let footer = u64::from(le32(&end, 0));
    if footer > body || footer < footer_len(1) as u64 {
        return Ok(Err(Some("footer length")));
    }
    let start = len - footer;
    let bytes = window.take(start, footer as usize)?;
    let covered = bytes.len() - FOOTER_END;
    if bytes[..4] != FOOTER_MAGIC {
        return Ok(Err(Some("footer magic")));
    }
    if crc32fast::hash(&bytes[..covered]) != le32(&bytes, covered) {
        return Ok(Err(Some("footer checksum")));
    }
    if le32(&bytes, 4) != DISK_VERSION {
        return Ok(Err(Some("footer version")));
    }
    let count = le32(&bytes, 8);
    if count != segment.capacity || footer_len(count as usize) != bytes.len() {
        return Ok(Err(Some("footer count")));
    }
    if le64(&bytes, 12) != segment.first.0 {
        return Ok(Err(Some("footer first height")));
    }
    let last = Digest(chain_at(&bytes, 20).0);
    Ok(Ok(Footer { count, last, start, len }))
}
