//! Recovery of the block log.

use super::repair::{Damaged, Scrub};
use super::side::Side;
use super::{BlockLog, BlockLogSettings, Open, Recovery, block_damage};
use crate::LedgerError;
use crate::disk::{Disk, Window};
use crate::records::{Cut, Flaw, damage};
use crate::segment::{
    Footer, MAX_CAPACITY, SEGMENT_HEADER, SegmentHeader, next_block, parse_name, read_block,
    read_footer, segment_name,
};
use std::collections::BTreeMap;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{BlockHeader, ChainId, Digest, Height};

/// Removes the segments, and what is attested about them, that begin before `first`.
pub(super) fn remove_before(disk: &mut Disk, first: Height) -> Result<(), LedgerError> {
    for name in disk.storage().list()? {
        let begins = parse_name(&name, "blocks").or(parse_name(&name, "attest"));
        if begins.is_some_and(|height| height < first) {
            disk.change(|s| s.remove(&name))?;
        }
    }
    disk.change(|s| s.sync_dir())
}

fn segments(disk: &Disk) -> Result<Vec<Height>, LedgerError> {
    Ok(disk.storage().list()?.iter().filter_map(|name| parse_name(name, "blocks")).collect())
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

    let genesis = (Height(0), Digest(chain.0));
    let mut recovery = Recovery { segments: headers.len(), ..Recovery::default() };
    let mut closed = BTreeMap::new();
    let mut damaged = Damaged::default();
    let mut tip = genesis;
    let last = headers.pop();
    for (i, &(first, header)) in headers.iter().enumerate() {
        let next = headers.get(i + 1).or(last.as_ref()).expect("the last was just taken");
        fill_gap(first, header, &mut tip, &mut closed, &mut damaged);
        let footer = match closed_segment(&disk, first, header, closed.is_empty(), tip)? {
            Ok(footer) => footer,
            // What is in it comes from others; the next segment says what must be its last hash.
            Err(field) => {
                let last = next.1.map_err(|flaw| damage(&segment_name(next.0), 0, flaw.field))?;
                let footer = Footer::lost((next.0.0 - first.0) as u32, last.parent);
                damaged.lose(first, footer.count, field);
                footer
            }
        };
        tip = (Height(first.0 + u64::from(footer.count) - 1), footer.last);
        closed.insert(first, footer);
    }

    let mut buffer = Vec::new();
    let mut head = None;
    let next = |tip: (Height, Digest), base| SegmentHeader {
        base,
        capacity,
        chain,
        first: tip.0.next(),
        parent: tip.1,
    };
    let open = match last {
        None => Open::begin(next(tip, true), &mut buffer),
        Some((first, Err(flaw))) => {
            let name = segment_name(first);
            let known = first == tip.0.next();
            let mut window = Window::new(disk.storage(), &name)?;
            let len = window.len();
            if !known || next_block(&mut window, flaw.resume, tip.0)?.is_some() {
                return Err(damage(&name, 0, flaw.field));
            }
            let mut open = Open::begin(next(tip, closed.is_empty()), &mut buffer);
            open.written = recover(&mut disk, &name, 0, len, &mut recovery)?;
            open
        }
        Some((first, Ok(header))) => {
            let name = segment_name(first);
            fill_gap(first, Ok(header), &mut tip, &mut closed, &mut damaged);
            check_link(&name, &header, closed.is_empty(), tip)?;
            tip = (Height(first.0 - 1), header.parent);
            let mut window = Window::exact(disk.storage(), &name)?;
            if let Ok(footer) = read_footer(&mut window, &header)? {
                tip = (Height(first.0 + u64::from(footer.count) - 1), footer.last);
                closed.insert(first, footer);
                let len = window.len();
                recover(&mut disk, &name, len, len, &mut recovery)?;
                Open::begin(next(tip, false), &mut buffer)
            } else {
                let walk = walk(&disk, &name, &header, (&mut tip, &mut head, &mut damaged))?;
                let written = recover(&mut disk, &name, walk.end, walk.len, &mut recovery)?;
                let offsets = walk.offsets;
                if offsets.len() == header.capacity as usize && !damaged.is_empty() {
                    // Its footer needs offsets that are not known: it is mended as a whole.
                    damaged.lose(first, header.capacity, "footer");
                    closed.insert(first, Footer::lost(header.capacity, tip.1));
                    Open::begin(next(tip, false), &mut buffer)
                } else {
                    Open { header, name, offsets, written, unsynced: false, new_name: false }
                }
            }
        }
    };
    if head.is_none() {
        head = last_closed_head(&disk, &closed, &mut damaged)?;
    }
    disk.change(|s| s.sync_dir())?;
    let first = closed.first_key_value().map_or(open.header.first, |(first, _)| *first);
    let newest = closed.last_key_value().map_or(open.header.first, |(first, _)| *first);
    let side = Side::open(&mut disk, chain, (first, newest), &mut recovery)?;
    let (patch, scrub) = (None, Scrub::default());
    let mut log =
        BlockLog { disk, settings, closed, open, buffer, tip, head, side, damaged, patch, scrub };
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
fn check_link(
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

/// Cuts what is behind the last whole record, and makes what is left durable; gives its length.
fn recover(
    disk: &mut Disk,
    name: &str,
    mut end: u64,
    len: u64,
    recovery: &mut Recovery,
) -> Result<u64, LedgerError> {
    if !stands(Defence::F35CutTornTail) {
        end = len;
    }
    disk.rewrite(name, end)?;
    if end < len {
        recovery.cuts.push(Cut { file: name.to_owned(), at: end, bytes: len - end });
    }
    Ok(end)
}

struct Walk {
    offsets: Vec<u64>,
    end: u64,
    len: u64,
}

/// A file that is missing between two others: its blocks come from others too.
fn fill_gap(
    first: Height,
    header: Result<SegmentHeader, Flaw>,
    tip: &mut (Height, Digest),
    closed: &mut BTreeMap<Height, Footer>,
    damaged: &mut Damaged,
) {
    let lowest = tip.0.next();
    let count = first.0.saturating_sub(lowest.0);
    let Ok(header) = header else { return };
    if closed.is_empty() || count == 0 || count > u64::from(MAX_CAPACITY) {
        return;
    }
    damaged.lose(lowest, count as u32, "the file is missing");
    closed.insert(lowest, Footer::lost(count as u32, header.parent));
    *tip = (Height(first.0 - 1), header.parent);
}

/// The footer of a closed segment; otherwise what is wrong with the segment.
fn closed_segment(
    disk: &Disk,
    first: Height,
    header: Result<SegmentHeader, Flaw>,
    is_first: bool,
    tip: (Height, Digest),
) -> Result<Result<Footer, &'static str>, LedgerError> {
    let name = segment_name(first);
    let header = match header {
        Ok(header) => header,
        // Where it begins is known from its name; it must follow the one before it.
        Err(flaw) if !is_first && first == tip.0.next() => return Ok(Err(flaw.field)),
        Err(flaw) => return Err(damage(&name, 0, flaw.field)),
    };
    check_link(&name, &header, is_first, tip)?;
    let mut window = Window::exact(disk.storage(), &name)?;
    Ok(read_footer(&mut window, &header)?.map_err(|field| field.unwrap_or("footer end")))
}

/// Rebuilds the index of a segment that has no whole footer.
fn walk(
    disk: &Disk,
    name: &str,
    header: &SegmentHeader,
    (tip, head, damaged): (&mut (Height, Digest), &mut Option<BlockHeader>, &mut Damaged),
) -> Result<Walk, LedgerError> {
    let mut window = Window::new(disk.storage(), name)?;
    let (mut offsets, mut at, len) = (Vec::new(), SEGMENT_HEADER as u64, window.len());
    while at < len {
        let height = tip.0.next();
        let full = offsets.len() == header.capacity as usize;
        let record = if full {
            // What is here is a torn footer.
            Err(Flaw { field: "footer", short: false, resume: at })
        } else {
            read_block(&mut window, at, Some(height))?
        };
        match record {
            Ok(record) if record.header.parent != tip.1 => {
                return Err(block_damage(name, at, height, "parent"));
            }
            Ok(record) => {
                offsets.push(at);
                *tip = (height, record.hash);
                *head = Some(record.header);
                at = record.end;
            }
            Err(flaw) => {
                let Some((found, record)) = next_block(&mut window, flaw.resume, height)? else {
                    break;
                };
                let number = record.header.height;
                if number.0 >= header.first.0 + u64::from(header.capacity) {
                    return Err(block_damage(name, at, height, flaw.field));
                }
                // No torn tail: a hole, of which the next whole block tells the end.
                let count = (number.0 - height.0) as usize;
                offsets.extend(std::iter::repeat_n(at, count));
                damaged.note_run(height, count as u32, at, flaw.field);
                *tip = (Height(number.0 - 1), record.header.parent);
                at = found;
            }
        }
    }
    Ok(Walk { offsets, end: at, len })
}

fn last_closed_head(
    disk: &Disk,
    closed: &BTreeMap<Height, Footer>,
    damaged: &mut Damaged,
) -> Result<Option<BlockHeader>, LedgerError> {
    let Some((first, footer)) = closed.last_key_value() else { return Ok(None) };
    let name = segment_name(*first);
    let height = Height(first.0 + u64::from(footer.count) - 1);
    if damaged.contains(height) {
        return Ok(None);
    }
    let mut window = Window::exact(disk.storage(), &name)?;
    let (at, _) = footer.extent(&mut window, footer.count - 1)?;
    match read_block(&mut window, at, Some(height))? {
        Ok(record) if record.hash == footer.last => Ok(Some(record.header)),
        Ok(_) => Err(damage(&name, footer.start + 20, "footer head hash")),
        Err(flaw) => {
            damaged.note_run(height, 1, at, flaw.field);
            Ok(None)
        }
    }
}
