//! Damage in the midst of the log: found, named, and mended with whole copies from others.
//!
//! What a block must be is known: its hash stands in the header of the next block, or in the footer
//! of its segment. So a copy from anybody will do, and mending begins with the highest damaged
//! block. Copies gather in a side file; when a segment has all that it lacks, it is written anew
//! beside the old one, which it then replaces. A crash leaves the old file or the new one.
//!
//! Scrubbing reads the log from front to back, a piece at a time, so that damage is found while
//! others still have what is lost.

use super::{Block, BlockLog};
use crate::LedgerError;
use crate::disk::Window;
use crate::segment::{Footer, SegmentHeader, put_block, put_footer, segment_name};
use crate::storage::TEMPORARY;
use std::collections::BTreeMap;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{Digest, Height};
use tercio_wire::block_hash;

/// How much is gathered before it is written, in bytes.
const WRITE: usize = 1 << 20;
/// What looking at a record costs beside its bytes, as bytes: a page that is read, system calls.
const PAGE: u64 = 4 << 10;
/// The most blocks that are asked for at once.
const RUN: u64 = 64;
/// Where copies wait until their segment is whole. A crash leaves it to be removed on open.
const SIDE_FILE: &str = "repair.tmp";

/// The blocks that cannot be read, with the place and the field.
#[derive(Clone, Debug, Default)]
pub(super) struct Damaged {
    blocks: BTreeMap<Height, (u64, String)>,
    mended: u64,
}

impl Damaged {
    /// Whether `first` is one, or one above it.
    pub(super) fn reaches(&self, first: Height) -> bool {
        self.blocks.last_key_value().is_some_and(|(last, _)| *last >= first)
    }

    pub(super) fn contains(&self, height: Height) -> bool {
        self.blocks.contains_key(&height)
    }

    pub(super) fn place(&self, height: Height) -> Option<(u64, &str)> {
        self.blocks.get(&height).map(|(offset, field)| (*offset, field.as_str()))
    }

    /// `count` blocks from `first` on that lie at `offset`.
    pub(super) fn note_run(&mut self, first: Height, count: u32, offset: u64, field: &'static str) {
        for i in 0..u64::from(count) {
            self.blocks.insert(Height(first.0 + i), (offset, field.to_owned()));
        }
    }

    /// All of a segment.
    pub(super) fn lose(&mut self, first: Height, count: u32, field: &'static str) {
        self.note_run(first, count, 0, field);
    }

    pub(super) fn forget_before(&mut self, first: Height) {
        self.blocks = self.blocks.split_off(&first);
    }
}

/// Blocks that the log lacks, all of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The lowest.
    pub from: Height,
    /// The highest.
    pub to: Height,
    /// The hash of the highest; each names the one below it.
    pub hash: Digest,
    /// The file that lacks them.
    pub file: String,
}

/// Copies for one segment that wait in the side file: where each is, how long its record is, and
/// its parent.
pub(super) struct Patch {
    segment: Height,
    placed: BTreeMap<Height, (u64, usize, Digest)>,
    written: u64,
}

/// Where scrubbing goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scrub {
    /// The last block that was read, and its hash if the next must name it.
    at: Option<(Height, Option<Digest>)>,
}

impl BlockLog {
    /// The lowest block that cannot be read, if there is one.
    #[must_use]
    pub fn first_damaged(&self) -> Option<Height> {
        self.damaged.blocks.first_key_value().map(|(height, _)| *height)
    }

    /// How many blocks cannot be read, and how many were mended since the log was opened.
    #[must_use]
    pub fn damage(&self) -> (u64, u64) {
        (self.damaged.blocks.len() as u64, self.damaged.mended)
    }

    /// Takes note that reading `height` failed, so that it is mended.
    pub fn note_damage(&mut self, height: Height) {
        if self.segment_of(height).is_none() || self.damaged.contains(height) {
            return;
        }
        let place = match self.read(height) {
            Err(LedgerError::Damage { offset, field, .. }) => (offset, field),
            // Whole by its checksums, and not what it must be.
            _ => (0, "body".to_owned()),
        };
        self.damaged.blocks.insert(height, place);
    }

    /// What is to be fetched from others next; `None` when nothing is damaged.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn wanted(&mut self) -> Result<Option<Wanted>, LedgerError> {
        loop {
            let placed = |height: &Height| {
                self.patch.as_ref().is_some_and(|patch| patch.placed.contains_key(height))
            };
            let Some(to) = self.damaged.blocks.keys().rev().find(|h| !placed(h)).copied() else {
                return Ok(None);
            };
            let segment = self.segment_of(to).expect("damage lies in the log");
            let Some(hash) = self.expected(to)? else {
                // The one above cannot be read either.
                self.note_damage(to.next());
                continue;
            };
            let lacks = |height: Height| self.damaged.contains(height) && !placed(&height);
            let lowest = segment.0.max(to.0.saturating_sub(RUN - 1));
            let mut from = to;
            while from.0 > lowest && lacks(Height(from.0 - 1)) {
                from = Height(from.0 - 1);
            }
            return Ok(Some(Wanted { from, to, hash, file: segment_name(segment) }));
        }
    }

    /// The hash that block `height` must have; `None` when what would say it is damaged too.
    fn expected(&self, height: Height) -> Result<Option<Digest>, LedgerError> {
        if height == self.tip.0 {
            return Ok(Some(self.tip.1));
        }
        let next = height.next();
        if let Some((.., parent)) = self.patch.as_ref().and_then(|p| p.placed.get(&next)) {
            return Ok(Some(*parent));
        }
        let segment = self.segment_of(height).expect("damage lies in the log");
        if let Some(footer) = self.closed.get(&segment)
            && height == footer.last_height(segment)
        {
            return Ok(Some(footer.last));
        }
        match self.read(next) {
            Ok(block) => Ok(block.map(|block| block.header.parent)),
            Err(LedgerError::Damage { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Takes copies of consecutive blocks, of which the last is the one that [`Self::wanted`] named.
    /// False, and nothing is taken, when they are not what the log lost.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn repair(&mut self, blocks: &[Block]) -> Result<bool, LedgerError> {
        self.disk.check()?;
        let Some(wanted) = self.wanted()? else { return Ok(false) };
        let mut hash = wanted.hash;
        let mut height = wanted.to;
        for block in blocks.iter().rev() {
            let header = &block.header;
            let body = tercio_crypto::hash(header.suite, &[&block.body]);
            let same = header.height == height
                && height >= wanted.from
                && block_hash(header) == hash
                && header.body == body;
            if !same || !stands(Defence::F35MendFromOthers) {
                return Ok(false);
            }
            hash = header.parent;
            height = Height(height.0 - 1);
        }
        let segment = self.segment_of(wanted.to).expect("damage lies in the log");
        if self.patch.as_ref().is_none_or(|patch| patch.segment != segment) {
            self.drop_patch()?;
            self.patch = Some(Patch { segment, placed: BTreeMap::new(), written: 0 });
        }
        let patch = self.patch.as_mut().expect("just made");
        let mut out = Vec::new();
        for block in blocks {
            let start = out.len();
            put_block(&block.header, &block.body, &mut out);
            let place = (patch.written + start as u64, out.len() - start, block.header.parent);
            patch.placed.insert(block.header.height, place);
        }
        patch.written += out.len() as u64;
        self.disk.change(|s| s.append(SIDE_FILE, &out))?;
        if !self.lacks(segment) {
            self.rewrite_segment(segment)?;
        }
        Ok(true)
    }

    /// Whether a block of the segment is damaged and has no copy yet.
    fn lacks(&self, segment: Height) -> bool {
        let last = self.last_of(segment);
        let mut damaged = self.damaged.blocks.range(segment..=last).map(|(height, _)| height);
        let placed = self.patch.as_ref().map(|patch| &patch.placed);
        damaged.any(|height| placed.is_none_or(|placed| !placed.contains_key(height)))
    }

    pub(super) fn last_of(&self, segment: Height) -> Height {
        match self.closed.get(&segment) {
            Some(footer) => footer.last_height(segment),
            None => self.tip.0,
        }
    }

    fn drop_patch(&mut self) -> Result<(), LedgerError> {
        match self.patch.take() {
            Some(patch) if patch.written > 0 => self.disk.change(|s| s.remove(SIDE_FILE)),
            _ => Ok(()),
        }
    }

    /// Writes a segment anew from what is whole and from the copies.
    fn rewrite_segment(&mut self, segment: Height) -> Result<(), LedgerError> {
        let is_open = segment == self.open.header.first;
        if is_open {
            self.write_segment()?;
        }
        let (name, last) = (segment_name(segment), self.last_of(segment));
        let temporary = format!("{name}{TEMPORARY}");
        if self.disk.storage().list()?.contains(&temporary) {
            self.disk.change(|s| s.remove(&temporary))?;
        }
        let mut out = Vec::with_capacity(WRITE);
        let Some(header) = self.header_of(segment)? else {
            // The first block is damaged too; that is fetched first.
            self.note_damage(segment);
            return Ok(());
        };
        header.encode(&mut out);
        let (mut offsets, mut written, mut whole) = (Vec::new(), 0, true);
        for height in (segment.0..=last.0).map(Height) {
            offsets.push(written + out.len() as u64);
            let placed = self.patch.as_ref().and_then(|patch| patch.placed.get(&height)).copied();
            match placed {
                Some((at, len, _)) => {
                    out.extend_from_slice(&self.disk.storage().read_at(SIDE_FILE, at, len)?);
                }
                None => match self.read(height) {
                    Ok(block) => {
                        let block = block.expect("it is in the segment");
                        put_block(&block.header, &block.body, &mut out);
                    }
                    // More is damaged than was known; that is fetched first.
                    Err(LedgerError::Damage { .. }) => {
                        self.note_damage(height);
                        whole = false;
                    }
                    Err(other) => return Err(other),
                },
            }
            if out.len() >= WRITE {
                self.disk.change(|s| s.append(&temporary, &out))?;
                written += out.len() as u64;
                out.clear();
            }
        }
        if !whole {
            return Ok(());
        }
        if let Some(footer) = self.closed.get_mut(&segment) {
            let start = written + out.len() as u64;
            put_footer(segment, &offsets, &footer.last, &mut out);
            *footer = Footer { start, len: written + out.len() as u64, ..*footer };
        }
        written += out.len() as u64;
        self.disk.change(|s| {
            s.append(&temporary, &out)?;
            s.sync(&temporary)?;
            s.rename(&temporary, &name)?;
            s.sync_dir()
        })?;
        if is_open {
            (self.open.offsets, self.open.written) = (offsets, written);
            (self.open.unsynced, self.open.new_name) = (false, false);
        }
        let mut rest = self.damaged.blocks.split_off(&segment);
        let after = rest.split_off(&last.next());
        self.damaged.mended += rest.len() as u64;
        self.damaged.blocks.extend(after);
        self.drop_patch()
    }

    /// The header that the segment has, or must have had; `None` when nothing says what its first
    /// block follows.
    fn header_of(&self, segment: Height) -> Result<Option<SegmentHeader>, LedgerError> {
        if segment == self.open.header.first {
            return Ok(Some(self.open.header));
        }
        let (chain, name) = (self.open.header.chain, segment_name(segment));
        if self.disk.storage().list()?.contains(&name) {
            let mut window = Window::exact(self.disk.storage(), &name)?;
            if let Ok(header) = SegmentHeader::read(&mut window, &name, chain, segment)? {
                return Ok(Some(header));
            }
        }
        let placed = self.patch.as_ref().and_then(|patch| patch.placed.get(&segment));
        let (base, parent) = match (self.closed.range(..segment).next_back(), placed) {
            (Some((_, before)), _) => (false, before.last),
            // The first of the log: nothing before it counts.
            (None, Some((.., parent))) => (true, *parent),
            (None, None) => match self.read(segment) {
                Ok(block) => (true, block.expect("it is in the segment").header.parent),
                Err(LedgerError::Damage { .. }) => return Ok(None),
                Err(other) => return Err(other),
            },
        };
        let capacity = self.closed[&segment].count;
        Ok(Some(SegmentHeader { base, capacity, chain, first: segment, parent }))
    }

    /// Reads the results of a block, if they were kept; gives how many bytes that are.
    fn scrub_results(&mut self, height: Height) -> Result<u64, LedgerError> {
        let found = match self.results(height) {
            Ok(None) => return Ok(0),
            Ok(Some(found)) => Some(found).filter(|found| found.check().is_ok()),
            Err(LedgerError::Damage { .. }) => None,
            Err(other) => return Err(other),
        };
        if found.is_none() {
            self.results.note_damage(height);
        }
        Ok(PAGE + found.map_or(0, |found| found.bodies.len() as u64))
    }

    /// Reads about `bytes` further and at most `blocks` blocks, checking everything that a block
    /// must be. Gives how many bytes it read, and whether it came to the end; then the next call
    /// begins again. What it found is in [`Self::damage`].
    ///
    /// # Errors
    /// When the storage fails.
    pub fn scrub(&mut self, bytes: u64, blocks: u64) -> Result<(u64, bool), LedgerError> {
        let mut read = 0;
        for _ in 0..blocks {
            if read >= bytes {
                break;
            }
            let first = self.first_height();
            let (height, parent) = match self.scrub.at {
                Some((last, hash)) if last >= first && last < self.tip.0 => (last.next(), hash),
                Some(_) => {
                    self.scrub.at = None;
                    return Ok((read, true));
                }
                None => (first, None),
            };
            self.scrub.at = Some((height, None));
            match self.read(height) {
                Ok(None) => return Ok((read, true)),
                Ok(Some(Block { header, body })) => {
                    read += body.len() as u64 + PAGE;
                    let whole = parent.is_none_or(|parent| parent == header.parent)
                        && header.body == tercio_crypto::hash(header.suite, &[&body]);
                    if whole {
                        self.scrub.at = Some((height, Some(block_hash(&header))));
                        read += self.scrub_results(height)?;
                    } else {
                        self.note_damage(height);
                    }
                }
                Err(LedgerError::Damage { .. }) => {
                    read += PAGE;
                    self.note_damage(height);
                }
                Err(other) => return Err(other),
            }
        }
        Ok((read, false))
    }
}
