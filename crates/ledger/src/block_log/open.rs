//! Recovery of the block log: certificates, then all segments but the last, then that one
//! ([`super::last`]), then attestations.

use super::repair::{Damaged, Scrub};
use super::results::Results;
use super::side::Side;
use super::{BlockLog, BlockLogSettings, Recovery};
use crate::LedgerError;
use crate::disk::{Disk, Window};
use crate::records::{Flaw, damage};
use crate::segment::{
    Footer, MAX_CAPACITY, SegmentHeader, parse_name, read_block, read_footer, segment_name,
};
use std::collections::BTreeMap;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{BlockHeader, ChainId, Digest, Height};

/// Removes the segments, what is attested about them, and their results, that begin before `first`.
pub(super) fn remove_before(disk: &mut Disk, first: Height) -> Result<(), LedgerError> {
    for name in disk.storage().list()? {
        let begins =
            ["blocks", "attest", "results"].iter().find_map(|what| parse_name(&name, what));
        if begins.is_some_and(|height| height < first) {
            disk.change(|s| s.remove(&name))?;
        }
    }
    disk.change(|s| s.sync_dir())
}

fn segments(disk: &Disk) -> Result<Vec<Height>, LedgerError> {
    Ok(disk.storage().list()?.iter().filter_map(|name| parse_name(name, "blocks")).collect())
}

/// What is known of a log that is being opened.
pub(super) struct Opening {
    pub(super) disk: Disk,
    pub(super) side: Side,
    pub(super) chain: ChainId,
    /// How many blocks a new segment takes.
    pub(super) capacity: u32,
    /// Blocks up to this height were durable before the certificate of it was.
    pub(super) certified: Height,
    pub(super) closed: BTreeMap<Height, Footer>,
    pub(super) damaged: Damaged,
    /// Where the next segment must begin, and the block that it follows.
    pub(super) tip: (Height, Digest),
    pub(super) head: Option<BlockHeader>,
    /// What is not written yet: the header of the segment that is open.
    pub(super) buffer: Vec<u8>,
    pub(super) recovery: Recovery,
}

pub(super) fn open(
    mut disk: Disk,
    chain: ChainId,
    settings: BlockLogSettings,
) -> Result<(BlockLog, Recovery), LedgerError> {
    let capacity = settings.blocks_per_segment;
    assert!((1..=MAX_CAPACITY).contains(&capacity), "a segment takes 1 to {MAX_CAPACITY} blocks");
    disk.remove_temporaries()?;

    // A segment with the base flag voids all before it: an interrupted restart left those.
    let mut headers = read_headers(&disk, chain, &segments(&disk)?)?;
    if let Some(base) = headers.iter().rposition(|(_, h)| h.is_ok_and(|h| h.base))
        && base > 0
    {
        remove_before(&mut disk, headers[base].0)?;
        headers.drain(..base);
    }

    let mut recovery = Recovery { segments: headers.len(), ..Recovery::default() };
    let side = Side::open(&mut disk, chain, &mut recovery)?;
    let mut found = Opening {
        disk,
        chain,
        capacity,
        certified: match stands(Defence::F50UnsyncedHoleIsTail) {
            true => side.certified(),
            false => Height(u64::MAX),
        },
        closed: BTreeMap::new(),
        damaged: Damaged::default(),
        tip: (Height(0), Digest(chain.0)),
        head: None,
        buffer: Vec::new(),
        recovery,
        side,
    };
    let last = headers.pop();
    for (i, &(first, header)) in headers.iter().enumerate() {
        let next = headers.get(i + 1).or(last.as_ref()).expect("the last was just taken");
        found.closed(first, header, next)?;
    }
    let open = found.last(last)?;
    if found.head.is_none() {
        found.last_closed_head()?;
    }
    found.disk.change(|s| s.sync_dir())?;
    let Opening { mut disk, mut side, closed, damaged, tip, head, buffer, mut recovery, .. } =
        found;
    let first = closed.first_key_value().map_or(open.header.first, |(first, _)| *first);
    let newest = closed.last_key_value().map_or(open.header.first, |(first, _)| *first);
    side.open_attestations(&mut disk, (first, newest), &mut recovery)?;
    let keep = settings.keep_results;
    let results = Results::open(&mut disk, chain, first, keep, &mut recovery)?;
    let mut log = BlockLog {
        disk,
        settings,
        closed,
        open,
        buffer,
        tip,
        head,
        side,
        results,
        damaged,
        patch: None,
        scrub: Scrub::default(),
    };
    if log.open.offsets.len() == log.open.header.capacity as usize {
        recovery.footer_rebuilt = true;
        log.close_segment()?;
    }
    if let Some((height, ..)) = log.head() {
        (recovery.first, recovery.head) = (Some(log.first_height()), Some(height));
    }
    Ok((log, recovery))
}

type Headers = Vec<(Height, Result<SegmentHeader, Flaw>)>;

fn read_headers(disk: &Disk, chain: ChainId, firsts: &[Height]) -> Result<Headers, LedgerError> {
    let read = |&first: &Height| {
        let name = segment_name(first);
        let mut window = Window::exact(disk.storage(), &name)?;
        Ok((first, SegmentHeader::read(&mut window, &name, chain, first)?))
    };
    firsts.iter().map(read).collect()
}

/// Checks that a segment follows the one before it; what the first one follows is given by its
/// own header, but block 1 follows the genesis.
pub(super) fn check_link(
    name: &str,
    header: &SegmentHeader,
    is_first: bool,
    tip: (Height, Digest),
) -> Result<(), LedgerError> {
    if header.first.0 == 0 || (!is_first && header.first != tip.0.next()) {
        return Err(damage(
            name,
            0,
            format!(
                "first height; a segment before it is missing or twice, the last ends with block {}",
                tip.0
            ),
        ));
    }
    if header.parent != tip.1 && (!is_first || header.first.0 == 1) {
        return Err(damage(name, 60, "parent of the first block"));
    }
    Ok(())
}

impl Opening {
    /// A segment with another behind it.
    fn closed(
        &mut self,
        first: Height,
        header: Result<SegmentHeader, Flaw>,
        next: &(Height, Result<SegmentHeader, Flaw>),
    ) -> Result<(), LedgerError> {
        self.fill_gap(first, header);
        let footer = match self.footer_of(first, header)? {
            Ok(footer) => footer,
            // What is in it comes from others.
            Err(field) => {
                let count = u32::try_from(next.0.0 - first.0).ok();
                let Some(count) = count.filter(|count| *count <= MAX_CAPACITY) else {
                    return Err(damage(&segment_name(first), 0, field));
                };
                let hash = self.last_hash(first, count, next)?;
                self.damaged.lose(first, count, field);
                Footer::lost(count, hash)
            }
        };
        self.close(first, footer);
        Ok(())
    }

    /// What must be the hash of the last block of a damaged segment: the next one says it, or else
    /// its own footer.
    fn last_hash(
        &self,
        first: Height,
        count: u32,
        next: &(Height, Result<SegmentHeader, Flaw>),
    ) -> Result<Digest, LedgerError> {
        let flaw = match next.1 {
            Ok(header) => return Ok(header.parent),
            Err(flaw) => flaw,
        };
        let (capacity, chain, parent) = (count, self.chain, self.tip.1);
        let known = SegmentHeader { base: false, capacity, chain, first, parent };
        let name = segment_name(first);
        let mut window = Window::exact(self.disk.storage(), &name)?;
        let footer = read_footer(&mut window, &known)?;
        let footer = footer.map_err(|_| damage(&segment_name(next.0), 0, flaw.field))?;
        Ok(footer.last)
    }

    pub(super) fn close(&mut self, first: Height, footer: Footer) {
        self.tip = (footer.last_height(first), footer.last);
        self.closed.insert(first, footer);
    }

    /// A file that is missing between two others: its blocks come from others too.
    pub(super) fn fill_gap(&mut self, first: Height, header: Result<SegmentHeader, Flaw>) {
        let lowest = self.tip.0.next();
        let count = first.0.saturating_sub(lowest.0);
        let Ok(header) = header else { return };
        if self.closed.is_empty() || count == 0 || count > u64::from(MAX_CAPACITY) {
            return;
        }
        self.damaged.lose(lowest, count as u32, "the file is missing");
        self.close(lowest, Footer::lost(count as u32, header.parent));
    }

    /// The footer of a closed segment; otherwise what is wrong with the segment.
    fn footer_of(
        &self,
        first: Height,
        header: Result<SegmentHeader, Flaw>,
    ) -> Result<Result<Footer, &'static str>, LedgerError> {
        let name = segment_name(first);
        let is_first = self.closed.is_empty();
        let header = match header {
            Ok(header) => header,
            // Where it begins is known from its name; it must follow the one before it.
            Err(flaw) if !is_first && first == self.tip.0.next() => return Ok(Err(flaw.field)),
            Err(flaw) => return Err(damage(&name, 0, flaw.field)),
        };
        check_link(&name, &header, is_first, self.tip)?;
        let mut window = Window::exact(self.disk.storage(), &name)?;
        Ok(read_footer(&mut window, &header)?.map_err(|field| field.unwrap_or("footer end")))
    }

    /// The header of the last block, when the last segment that has blocks is closed.
    fn last_closed_head(&mut self) -> Result<(), LedgerError> {
        let Some((first, footer)) = self.closed.last_key_value() else { return Ok(()) };
        let (name, height) = (segment_name(*first), footer.last_height(*first));
        if self.damaged.contains(height) {
            return Ok(());
        }
        let mut window = Window::exact(self.disk.storage(), &name)?;
        let (place, field) = match footer.extent(&mut window, footer.count - 1)? {
            None => (footer.start, "index entry"),
            Some((at, _)) => match read_block(&mut window, at, Some(height))? {
                Ok(record) if record.hash == footer.last => {
                    self.head = Some(record.header);
                    return Ok(());
                }
                Ok(_) => return Err(damage(&name, footer.start + 20, "footer head hash")),
                Err(flaw) => (at, flaw.field),
            },
        };
        self.damaged.note_run(height, 1, place, field);
        Ok(())
    }
}
