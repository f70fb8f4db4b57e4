//! The results of blocks: one file `results-H` beside each segment `blocks-H`, a record a block.
//!
//! - Records come in order of height, and behind the blocks: what executes may lag, and after a
//!   restart it executes again from the latest snapshot on. A block's results are a function of the
//!   chain, so results that come again are compared, and must be those that are there.
//! - A results root is the Merkle root over the packages' digests, and results are chained,
//!   `R(h) = H(R(h-1) | root [| state])`. A record has `R(h-1)`: so what record h must be follows from
//!   record h+1, or from a certificate, which has `R` at its height.
//! - Nothing is promised on results, and all of them can be computed again from a state and the blocks
//!   behind it. So they are written 64 KiB at a time, and with each certificate, and synced when a snapshot is to be kept, before
//!   the snapshot is ([`super::BlockLog::sync_results`]): what the end of a process or a power failure
//!   takes lies above the latest snapshot, and comes again.
//! - Files are read as certificates are ([`salvage`]): every whole record counts, and a place that
//!   holds none is passed over. Results that were kept and cannot be read are damage, and reading them
//!   says so, until they are mended: by results that come again, or by copies from others.
//! - Of a package with more than 1 MiB of results, and of those that would make a block's more than
//!   64 MiB, the digest alone is kept ([`crate::results`]).

use super::Recovery;
use crate::disk::{Disk, Window};
use crate::records::{
    Ahead, FILE_HEADER, FileKind, Ident, Record, RecordFile, peek_record, read_header, read_record,
};
use crate::results::MAX_KEPT;
use crate::salvage;
use crate::segment::{parse_name, results_name};
use crate::{BlockResults, LedgerError, Storage};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use tercio_types::{ChainId, Digest, Height};

/// How much is written at once, unless it is to be durable or read.
const WRITE: usize = 64 << 10;
/// How many bytes of copies wait before a file is written anew.
const PATCH: usize = 8 << 20;

pub(crate) fn results_ident(chain: ChainId, segment: Height) -> Ident {
    Ident { kind: FileKind::Results, chain, number: segment.0 }
}

/// Whether a record can be what is kept there.
pub(crate) fn is_results(record: &Record) -> bool {
    BlockResults::of_record(record.tag, &record.bytes).is_ok()
}

fn lost(segment: Height, height: Height, field: &str) -> LedgerError {
    let (file, field) = (results_name(segment), format!("results: {field}"));
    LedgerError::Damage { file, offset: 0, height: Some(height), field }
}

/// The file that is appended to.
struct Current {
    segment: Height,
    file: RecordFile,
    /// Where each record stands.
    places: BTreeMap<Height, u64>,
}

/// Copies of lost results, of one segment, that wait to be put in place.
struct Patch {
    segment: Height,
    copies: BTreeMap<Height, Bytes>,
    bytes: usize,
}

pub(super) struct Results {
    chain: ChainId,
    keep: bool,
    current: Option<Current>,
    /// Files that are full and not durable.
    full: Vec<RecordFile>,
    /// How long each file is, but for the current one.
    lens: BTreeMap<Height, u64>,
    /// The first block of which results were kept.
    base: Option<Height>,
    /// The last, and the chained results after it.
    tip: Option<(Height, Digest)>,
    /// Kept, and known to be lost.
    damaged: BTreeSet<Height>,
    patch: Option<Patch>,
    mended: u64,
    /// Where the records of a file stand that is not the current one, and was looked at last.
    looked_at: Option<(Height, BTreeMap<Height, u64>)>,
}

impl Results {
    /// Opens the results of the blocks from `first` on, and removes those of blocks before, which an
    /// interrupted pruning left; all of them when none are to be kept.
    pub(super) fn open(
        disk: &mut Disk,
        chain: ChainId,
        first: Height,
        keep: bool,
        recovery: &mut Recovery,
    ) -> Result<Self, LedgerError> {
        let mut results = Self {
            chain,
            keep,
            current: None,
            full: Vec::new(),
            lens: BTreeMap::new(),
            base: None,
            tip: None,
            damaged: BTreeSet::new(),
            patch: None,
            mended: 0,
            looked_at: None,
        };
        let names = disk.storage().list()?;
        for segment in names.iter().filter_map(|name| parse_name(name, "results")) {
            let name = results_name(segment);
            if segment < first || !keep {
                disk.change(|s| s.remove(&name))?;
            } else {
                results.lens.insert(segment, disk.storage().len(&name)?);
            }
        }
        let Some((&lowest, _)) = results.lens.first_key_value() else { return Ok(results) };
        let begins = first_record(disk, chain, lowest)?.filter(|(_, base)| *base);
        results.base = Some(begins.map_or(first, |(found, _)| found.height));
        // Where the last file holds nothing, the one before it is the last.
        while let Some((segment, _)) = results.lens.pop_last() {
            if results.open_current(disk, segment, recovery)? {
                break;
            }
        }
        if results.tip.is_none() {
            results.base = None;
        }
        Ok(results)
    }

    /// Takes a file to append to, if there is anything in it.
    fn open_current(
        &mut self,
        disk: &mut Disk,
        segment: Height,
        recovery: &mut Recovery,
    ) -> Result<bool, LedgerError> {
        let ident = results_ident(self.chain, segment);
        let (file, records, cuts) =
            salvage::recover(disk, results_name(segment), ident, is_results)?;
        recovery.cuts.extend(cuts);
        let Some(last) = records.last() else { return Ok(false) };
        let (last, _) = BlockResults::of_record(last.tag, &last.bytes).expect("it was decoded");
        self.tip = Some((last.height, last.chained()));
        let places: BTreeMap<_, _> = records.iter().map(|r| (Height(r.tag), r.offset)).collect();
        let from = segment.max(self.base.unwrap_or(segment));
        let within = (from.0..last.height.0).map(Height);
        self.damaged.extend(within.filter(|height| !places.contains_key(height)));
        self.current = Some(Current { segment, file, places });
        Ok(true)
    }

    /// Appends the results of a block of `segment`, or compares them with those that are there.
    pub(super) fn put(
        &mut self,
        disk: &mut Disk,
        segment: Height,
        results: &BlockResults,
    ) -> Result<(), LedgerError> {
        disk.check()?;
        let height = results.height;
        if !self.keep || self.base.is_some_and(|base| height < base) {
            return Ok(());
        }
        match self.tip {
            Some((tip, _)) if height <= tip => return self.compare(disk, segment, results),
            Some((tip, chained)) if height == tip.next() && chained != results.before => {
                return Err(LedgerError::OtherResults { height, file: results_name(segment) });
            }
            // Those in between are lost.
            Some((tip, _)) => self.damaged.extend((tip.0 + 1..height.0).map(Height)),
            None => self.base = Some(height),
        }
        let base = self.base == Some(height);
        if self.current.as_ref().is_none_or(|current| current.segment != segment) {
            if let Some(mut full) = self.current.take() {
                full.file.flush(disk)?;
                self.lens.insert(full.segment, full.file.len());
                self.full.push(full.file);
            }
            let ident = results_ident(self.chain, segment);
            let file = RecordFile::new(results_name(segment), ident, Ahead::NONE);
            self.current = Some(Current { segment, file, places: BTreeMap::new() });
        }
        let current = self.current.as_mut().expect("just made");
        let at = current.file.push_with(height.0, |out| results.to_record(base, MAX_KEPT, out));
        current.places.insert(height, at);
        self.tip = Some((height, results.chained()));
        Ok(())
    }

    /// Results that came again.
    fn compare(
        &mut self,
        disk: &mut Disk,
        segment: Height,
        results: &BlockResults,
    ) -> Result<(), LedgerError> {
        let height = results.height;
        if self.copy_waits(height) {
            return Ok(());
        }
        match self.read(disk, segment, height) {
            Ok(Some(kept)) if kept.same(results) => Ok(()),
            Ok(Some(_)) => Err(LedgerError::OtherResults { height, file: results_name(segment) }),
            Ok(None) => Ok(()),
            Err(LedgerError::Damage { .. }) => {
                self.damaged.insert(height);
                self.mend(disk, segment, results)
            }
            Err(other) => Err(other),
        }
    }

    fn copy_waits(&self, height: Height) -> bool {
        self.patch.as_ref().is_some_and(|patch| patch.copies.contains_key(&height))
    }

    /// Puts a copy in the place of lost results, which it is known to be of.
    pub(super) fn mend(
        &mut self,
        disk: &mut Disk,
        segment: Height,
        copy: &BlockResults,
    ) -> Result<(), LedgerError> {
        if self.patch.as_ref().is_some_and(|patch| patch.segment != segment) {
            self.write_patch(disk)?;
        }
        let (copies, bytes) = (BTreeMap::new(), 0);
        let patch = self.patch.get_or_insert(Patch { segment, copies, bytes });
        let mut record = Vec::new();
        copy.to_record(self.base == Some(copy.height), MAX_KEPT, &mut record);
        patch.bytes += record.len();
        patch.copies.insert(copy.height, record.into());
        if patch.bytes >= PATCH {
            self.write_patch(disk)?;
        }
        Ok(())
    }

    /// Writes a file anew from its whole records and the copies.
    pub(super) fn write_patch(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        let Some(Patch { segment, copies, .. }) = self.patch.take() else { return Ok(()) };
        self.looked_at = None;
        self.flush(disk)?;
        let (name, ident) = (results_name(segment), results_ident(self.chain, segment));
        let mended = copies.len() as u64;
        for height in copies.keys() {
            self.damaged.remove(height);
        }
        let mut all: BTreeMap<u64, Bytes> = BTreeMap::new();
        if disk.storage().list()?.contains(&name) {
            let found = salvage::read(disk.storage(), &name, &ident, is_results)?;
            all.extend(found.records.into_iter().map(|record| (record.tag, record.bytes)));
        }
        all.extend(copies.into_iter().map(|(height, bytes)| (height.0, bytes)));
        let content: Vec<(u64, Bytes)> = all.into_iter().collect();
        let (image, offsets) = RecordFile::image(&ident, &content);
        disk.change(|s| s.write_atomic(&name, &image))?;
        match &mut self.current {
            Some(current) if current.segment == segment => {
                current.file.replaced(image.len() as u64);
                let heights = content.iter().map(|(height, _)| Height(*height));
                current.places = heights.zip(offsets).collect();
            }
            _ => drop(self.lens.insert(segment, image.len() as u64)),
        }
        self.mended += mended;
        Ok(())
    }

    /// The results of a block of `segment`; `None` when none were kept, or are not there yet.
    pub(super) fn read(
        &mut self,
        disk: &mut Disk,
        segment: Height,
        height: Height,
    ) -> Result<Option<BlockResults>, LedgerError> {
        let (Some(base), Some((tip, _))) = (self.base, self.tip) else { return Ok(None) };
        if height < base || height > tip {
            return Ok(None);
        }
        self.flush(disk)?;
        if let Some(bytes) = self.patch.as_ref().and_then(|patch| patch.copies.get(&height)) {
            let (found, _) = BlockResults::of_record(height.0, bytes).expect("just written");
            return Ok(Some(found));
        }
        let place = match &self.current {
            Some(current) if current.segment == segment => current.places.get(&height),
            _ => {
                if self.looked_at.as_ref().is_none_or(|(looked_at, _)| *looked_at != segment) {
                    self.looked_at = Some((segment, places(disk.storage(), segment)?));
                }
                self.looked_at.as_ref().and_then(|(_, places)| places.get(&height))
            }
        };
        let at = *place.ok_or_else(|| lost(segment, height, "no record"))?;
        read_at(disk.storage(), segment, height, at).map(Some)
    }

    /// Takes note that results cannot be read, so that they are mended.
    pub(super) fn note_damage(&mut self, height: Height) {
        self.damaged.insert(height);
    }

    /// Takes note that results are not missed any more.
    pub(super) fn forget_damage(&mut self, height: Height) {
        self.damaged.remove(&height);
    }

    /// Whether results are lost and no copy waits for its place.
    pub(super) fn is_lost(&self, height: Height) -> bool {
        self.damaged.contains(&height) && !self.copy_waits(height)
    }

    /// The highest of them.
    pub(super) fn highest_lost(&self) -> Option<Height> {
        self.damaged.iter().rev().copied().find(|height| !self.copy_waits(*height))
    }

    /// Whether any of these blocks' are.
    pub(super) fn lacks(&self, blocks: RangeInclusive<Height>) -> bool {
        self.damaged.range(blocks).any(|height| !self.copy_waits(*height))
    }

    /// The last block of which results were kept, and the chained results after it.
    pub(super) fn tip(&self) -> Option<(Height, Digest)> {
        self.tip
    }

    /// Writes what is in the buffer once that is worth a write.
    pub(super) fn flush_some(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        match &mut self.current {
            Some(current) if current.file.buffered() >= WRITE => current.file.flush(disk),
            _ => Ok(()),
        }
    }

    pub(super) fn flush(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        match &mut self.current {
            Some(current) => current.file.flush(disk),
            None => Ok(()),
        }
    }

    pub(super) fn sync(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        self.write_patch(disk)?;
        for mut file in self.full.drain(..) {
            file.sync(disk)?;
        }
        match &mut self.current {
            Some(current) => current.file.sync(disk),
            None => Ok(()),
        }
    }

    /// Forgets the results of blocks before `first`, whose files go.
    pub(super) fn prune(&mut self, first: Height) {
        self.lens = self.lens.split_off(&first);
        self.damaged = self.damaged.split_off(&first);
        self.base = self.base.map(|base| base.max(first));
        self.full.retain(|file| file.number() >= first.0);
        if self.patch.as_ref().is_some_and(|patch| patch.segment < first) {
            self.patch = None;
        }
        if self.current.as_ref().is_some_and(|current| current.segment < first) {
            self.current = None;
        }
        if self.current.is_none() {
            (self.tip, self.base) = (None, None);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |current| current.file.len());
        current + self.lens.values().sum::<u64>()
    }

    pub(super) fn extent(&self) -> Option<(Height, Height)> {
        Some((self.base?, self.tip?.0))
    }

    pub(super) fn damage(&self) -> (u64, u64) {
        (self.damaged.len() as u64, self.mended)
    }
}

/// The first record of a file, if it is whole, and whether nothing before it was kept.
fn first_record(
    disk: &Disk,
    chain: ChainId,
    segment: Height,
) -> Result<Option<(BlockResults, bool)>, LedgerError> {
    let name = results_name(segment);
    let mut window = Window::exact(disk.storage(), &name)?;
    // The header of another file of ours may stand here.
    match read_header(&mut window, &name, &results_ident(chain, segment)) {
        Ok(None) => {}
        Ok(Some(_)) | Err(LedgerError::Damage { .. }) => return Ok(None),
        Err(other) => return Err(other),
    }
    let first = read_record(&mut window, segment.0, FILE_HEADER as u64)?;
    Ok(first.ok().and_then(|r| BlockResults::of_record(r.tag, &r.bytes).ok()))
}

fn read_at(
    storage: &dyn Storage,
    segment: Height,
    height: Height,
    at: u64,
) -> Result<BlockResults, LedgerError> {
    let name = results_name(segment);
    let read = || {
        let mut window = Window::exact(storage, &name)?;
        read_record(&mut window, segment.0, at)
    };
    let record = match read() {
        Ok(Ok(record)) => record,
        Ok(Err(flaw)) => return Err(lost(segment, height, flaw.field)),
        Err(error) if is_gone(&error) => return Err(lost(segment, height, &error.to_string())),
        Err(error) => return Err(error.into()),
    };
    match BlockResults::of_record(record.tag, &record.bytes) {
        Ok((found, _)) if found.height == height => Ok(found),
        _ => Err(lost(segment, height, "record content")),
    }
}

/// Whether a file is gone, or ends too early.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
}

/// Where the records of a file stand, from head to head; behind one that is not whole, byte by byte.
fn places(storage: &dyn Storage, segment: Height) -> Result<BTreeMap<Height, u64>, LedgerError> {
    let name = results_name(segment);
    let walk = || {
        let mut window = Window::exact(storage, &name)?;
        let mut places = BTreeMap::new();
        let mut at = FILE_HEADER as u64;
        while at < window.len() {
            let Ok((tag, end)) = peek_record(&mut window, segment.0, at)? else {
                let all = salvage::scan(storage, &name, segment.0, None, is_results)?.records;
                return Ok(all.iter().map(|record| (Height(record.tag), record.offset)).collect());
            };
            places.insert(Height(tag), at);
            at = end;
        }
        Ok(places)
    };
    match walk() {
        Err(error) if is_gone(&error) => Ok(BTreeMap::new()),
        other => Ok(other?),
    }
}

/// The results of a block of `segment`.
pub(crate) fn find(
    storage: &dyn Storage,
    segment: Height,
    height: Height,
) -> Result<BlockResults, LedgerError> {
    match places(storage, segment)?.get(&height) {
        Some(at) => read_at(storage, segment, height, *at),
        None => Err(lost(segment, height, "no record")),
    }
}
