//! Recovery of the last segment, the only one that was not durable as a whole.
//!
//! It was written at each flush and synced now and then, so that a power failure leaves any of what
//! was written since: a part of it, with holes. What is certified was durable when its certificate
//! was, so that
//!
//! - a flaw at a height above the latest certificate may be such a hole, and what lies behind it may
//!   be what was written after: all of it is a torn tail, which is cut. The replica has the promises
//!   for those blocks in its write-ahead log, or others have the blocks. A footer behind such a
//!   place is cut with it;
//! - a hole at or below that height is damage, and is mended from others, as far as a certificate
//!   proves what lies behind it ([`super::behind`]); from there on the segment is cut;
//! - any flaw behind which nothing is proven is the end of the log.

use super::Open;
use super::open::{Opening, check_link};
use crate::LedgerError;
use crate::disk::Window;
use crate::records::{Cut, Flaw, damage};
use crate::segment::{
    Footer, SEGMENT_HEADER, SegmentHeader, read_block, read_footer, segment_name,
};
use tercio_types::Height;
use tercio_types::zoo::{Defence, stands};

/// The blocks of a segment that has no footer to be believed.
pub(super) struct Walk {
    pub(super) offsets: Vec<u64>,
    pub(super) end: u64,
    pub(super) len: u64,
}

impl Opening {
    /// The segment that is appended to: the last, or the one behind it.
    pub(super) fn last(
        &mut self,
        last: Option<(Height, Result<SegmentHeader, Flaw>)>,
    ) -> Result<Open, LedgerError> {
        match last {
            None => Ok(self.begin(true)),
            Some((first, Err(flaw))) => self.without_header(first, flaw),
            Some((first, Ok(header))) => {
                self.fill_gap(first, Ok(header));
                let name = segment_name(first);
                check_link(&name, &header, self.closed.is_empty(), self.tip)?;
                self.tip = (Height(first.0 - 1), header.parent);
                self.with_header(name, header)
            }
        }
    }

    /// A segment that has no file yet, behind all others.
    fn begin(&mut self, base: bool) -> Open {
        let (first, parent) = (self.tip.0.next(), self.tip.1);
        let (capacity, chain) = (self.capacity, self.chain);
        let header = SegmentHeader { base, capacity, chain, first, parent };
        Open::begin(header, &mut self.buffer)
    }

    /// What the header was is known, when the segment follows another or is the first of all; but
    /// for how many blocks it takes.
    fn without_header(&mut self, first: Height, flaw: Flaw) -> Result<Open, LedgerError> {
        let name = segment_name(first);
        if first != self.tip.0.next() {
            return Err(damage(&name, 0, flaw.field));
        }
        let base = self.closed.is_empty();
        if first > self.certified {
            let len = self.disk.storage().len(&name)?;
            let mut open = self.begin(base);
            open.written = self.cut(&name, &[], 0, len)?;
            return Ok(open);
        }
        let (capacity, chain, parent) = (self.capacity, self.chain, self.tip.1);
        let header = SegmentHeader { base, capacity, chain, first, parent };
        self.walk_last(name, header)
    }

    fn with_header(&mut self, name: String, header: SegmentHeader) -> Result<Open, LedgerError> {
        let mut window = Window::exact(self.disk.storage(), &name)?;
        if let Ok(footer) = read_footer(&mut window, &header)?
            && self.is_whole_above_the_certified(&mut window, &header, &footer)?
        {
            let len = window.len();
            self.close(header.first, footer);
            self.cut(&name, &[], len, len)?;
            return Ok(self.begin(false));
        }
        self.walk_last(name, header)
    }

    /// Whether the blocks that may not have been durable are there, all of them.
    fn is_whole_above_the_certified(
        &self,
        window: &mut Window<'_>,
        header: &SegmentHeader,
        footer: &Footer,
    ) -> Result<bool, LedgerError> {
        let SegmentHeader { first, .. } = *header;
        let from = first.0.max(self.certified.0.saturating_add(1));
        let mut parent = (from == first.0).then_some(header.parent);
        for height in (from..=footer.last_height(first).0).map(Height) {
            let Some((at, end)) = footer.extent(window, (height.0 - first.0) as u32)? else {
                return Ok(false);
            };
            window.take(at, (end - at) as usize)?;
            match read_block(window, at, Some(height))? {
                Ok(record) if record.end != end => return Ok(false),
                Ok(record) if parent.is_some_and(|hash| hash != record.header.parent) => {
                    return Ok(false);
                }
                Ok(record) => parent = Some(record.hash),
                Err(_) => return Ok(false),
            }
        }
        Ok(parent.is_none_or(|hash| hash == footer.last))
    }

    /// Rebuilds the index of the segment, and cuts its tail.
    fn walk_last(&mut self, name: String, header: SegmentHeader) -> Result<Open, LedgerError> {
        let walk = self.walk(&name, &header)?;
        let mut front = Vec::new();
        header.encode(&mut front);
        let written = self.cut(&name, &front, walk.end, walk.len)?;
        let offsets = walk.offsets;
        if offsets.len() < header.capacity as usize || !self.damaged.reaches(header.first) {
            return Ok(Open { header, name, offsets, written, unsynced: false, new_name: false });
        }
        // Its footer needs offsets that are not known: it is mended as a whole.
        self.damaged.lose(header.first, header.capacity, "footer");
        self.close(header.first, Footer::lost(header.capacity, self.tip.1));
        Ok(self.begin(false))
    }

    fn walk(&mut self, name: &str, header: &SegmentHeader) -> Result<Walk, LedgerError> {
        let mut window = Window::new(self.disk.storage(), name)?;
        let (offsets, end, len) = (Vec::new(), SEGMENT_HEADER as u64, window.len());
        let mut walk = Walk { offsets, end, len };
        // What is behind a full one is a torn footer.
        while walk.end < len && walk.offsets.len() < header.capacity as usize {
            let height = self.tip.0.next();
            let field = match read_block(&mut window, walk.end, Some(height))? {
                Ok(record) if record.header.parent == self.tip.1 => {
                    walk.offsets.push(walk.end);
                    self.tip = (height, record.hash);
                    self.head = Some(record.header);
                    walk.end = record.end;
                    continue;
                }
                Ok(_) => "parent",
                Err(flaw) => flaw.field,
            };
            if height <= self.certified {
                self.behind(&mut walk, name, header, field)?;
            }
            break;
        }
        Ok(walk)
    }

    /// Cuts what is behind `end`, and makes what is left durable, with `front` in place of its
    /// first bytes; gives its length.
    fn cut(
        &mut self,
        name: &str,
        front: &[u8],
        mut end: u64,
        len: u64,
    ) -> Result<u64, LedgerError> {
        if !stands(Defence::F35CutTornTail) {
            end = len;
        }
        self.disk.rewrite(name, front, end)?;
        if end < len {
            self.recovery.cuts.push(Cut { file: name.to_owned(), at: end, bytes: len - end });
        }
        Ok(end)
    }
}
