//! Recovery of the block log.

use super::side::Side;
use super::{BlockLog, BlockLogSettings, Open, Recovery, block_damage};
use crate::LedgerError;
use crate::disk::{Disk, Window};
use crate::records::{Cut, Flaw, damage};
use crate::segment::{
    Footer, MAX_CAPACITY, SEGMENT_HEADER, SegmentHeader, a_block_follows, parse_name, read_block,
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
    let mut tip = genesis;
    let last = headers.pop();
    for &(first, header) in &headers {
        let name = segment_name(first);
        let header = header.map_err(|flaw| damage(&name, 0, flaw.field))?;
        check_link(&name, &header, closed.is_empty(), tip)?;
        let mut window = Window::exact(disk.storage(), &name)?;
        let footer = read_footer(&mut window, &header)?
            .map_err(|field| damage(&name, window.len(), field.unwrap_or("footer end")))?;
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
            if !known || a_block_follows(&mut window, flaw.resume, tip.0)? {
                return Err(damage(&name, 0, flaw.field));
            }
            let mut open = Open::begin(next(tip, closed.is_empty()), &mut buffer);
            open.written = recover(&mut disk, &name, 0, len, &mut recovery)?;
            open
        }
        Some((first, Ok(header))) => {
            let name = segment_name(first);
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
                let walk = walk(&disk, &name, &header, &mut tip, &mut head)?;
                let written = recover(&mut disk, &name, walk.end, walk.len, &mut recovery)?;
                let offsets = walk.offsets;
                Open { header, name, offsets, written, unsynced: false, new_name: false }
            }
        }
    };
    if head.is_none() {
        head = last_closed_head(&disk, &closed)?;
    }
    disk.change(|s| s.sync_dir())?;
    let first = closed.first_key_value().map_or(open.header.first, |(first, _)| *first);
    let newest = closed.last_key_value().map_or(open.header.first, |(first, _)| *first);
    let side = Side::open(&mut disk, chain, (first, newest), &mut recovery)?;
    let mut log = BlockLog { disk, settings, closed, open, buffer, tip, head, side };
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

/// Rebuilds the index of a segment that has no whole footer.
fn walk(
    disk: &Disk,
    name: &str,
    header: &SegmentHeader,
    tip: &mut (Height, Digest),
    head: &mut Option<BlockHeader>,
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
                if a_block_follows(&mut window, flaw.resume, height)? {
                    return Err(block_damage(name, at, height, flaw.field));
                }
                break;
            }
        }
    }
    Ok(Walk { offsets, end: at, len })
}

fn last_closed_head(
    disk: &Disk,
    closed: &BTreeMap<Height, Footer>,
) -> Result<Option<BlockHeader>, LedgerError> {
    let Some((first, footer)) = closed.last_key_value() else { return Ok(None) };
    let name = segment_name(*first);
    let height = Height(first.0 + u64::from(footer.count) - 1);
    let mut window = Window::exact(disk.storage(), &name)?;
    let (at, _) = footer.extent(&mut window, footer.count - 1)?;
    let record = read_block(&mut window, at, Some(height))?
        .map_err(|flaw| block_damage(&name, at, height, flaw.field))?;
    if record.hash != footer.last {
        return Err(damage(&name, footer.start + 20, "footer head hash"));
    }
    Ok(Some(record.header))
}
