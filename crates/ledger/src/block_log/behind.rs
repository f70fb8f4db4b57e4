//! What lies behind a hole in the last segment, and is proven.
//!
//! Where a record begins is known from where the one before it ends, and behind a hole it is not:
//! whatever looks like a record there may stand inside an operation, which a client wrote. A crc
//! keeps nobody from writing one. So a record behind a hole counts only when its hash is the one
//! that it must have: a certificate that the log holds says it of its block, and every block with
//! that says it of the one below. So it goes down from each certified block, to the next hole.
//!
//! - A block that is lost on the way, or hangs between two holes with no certificate, is damage, and
//!   is mended from others.
//! - Above the highest certified block that is there, nothing is proven: that is cut. It goes no
//!   further than the latest certificate, so that only what is in the write-ahead log or at others
//!   is lost with it.
//! - What is copied from a proven block into an operation is that block wherever it stands; the
//!   first copy is taken, as an operation can only hold copies of blocks before its own.

use super::block_damage;
use super::last::Walk;
use super::open::Opening;
use crate::LedgerError;
use crate::disk::Window;
use crate::segment::{SegmentHeader, heads, read_block, read_head};
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{BlockHeader, Digest, Height};

/// A block whose header is the one that it must be.
struct Proven {
    at: u64,
    end: u64,
    header: BlockHeader,
    hash: Digest,
    /// What is wrong with its body.
    flaw: Option<&'static str>,
}

impl Opening {
    /// Goes on behind the hole in which the walk ended, where `field` is wrong.
    pub(super) fn behind(
        &mut self,
        walk: &mut Walk,
        name: &str,
        segment: &SegmentHeader,
        field: &'static str,
    ) -> Result<(), LedgerError> {
        let lowest = self.tip.0.next();
        let full = Height(segment.first.0 + u64::from(segment.capacity) - 1);
        let mut proven = self.proven(name, walk.end, lowest..=full.min(self.certified))?;
        if proven.get(&lowest).is_some_and(|block| block.header.parent != self.tip.1) {
            return Err(block_damage(name, walk.end, lowest, "parent"));
        }
        let Some((&highest, _)) = proven.last_key_value() else { return Ok(()) };
        for height in (lowest.0..=highest.0).map(Height) {
            let Some(block) = proven.remove(&height) else {
                self.damaged.note_run(height, 1, walk.end, field);
                walk.offsets.push(walk.end);
                continue;
            };
            if let Some(field) = block.flaw {
                self.damaged.note_run(height, 1, block.at, field);
            }
            walk.offsets.push(block.at);
            walk.end = block.end;
            self.tip = (height, block.hash);
            self.head = Some(block.header);
        }
        Ok(())
    }

    /// The blocks of these heights that lie behind `from` and are proven, each before the next.
    fn proven(
        &self,
        name: &str,
        from: u64,
        heights: RangeInclusive<Height>,
    ) -> Result<BTreeMap<Height, Proven>, LedgerError> {
        let certified = self.side.certified_blocks(&self.disk, heights.clone())?;
        let mut window = Window::new(self.disk.storage(), name)?;
        let heads = heads(&mut window, from, heights.clone())?;
        let mut window = Window::exact(self.disk.storage(), name)?;
        let (mut limit, mut hash) = (window.len(), None);
        let mut proven = BTreeMap::new();
        for height in (heights.start().0..=heights.end().0).rev().map(Height) {
            hash = certified.get(&height).copied().or(hash);
            let places = heads.get(&height).map_or(&[][..], |places| places);
            let found = prove(&mut window, places, hash, (height, limit))?;
            hash = found.as_ref().map(|block| block.header.parent);
            if let Some(block) = found {
                limit = block.at;
                proven.insert(height, block);
            }
        }
        Ok(proven)
    }
}

/// The first block in these places of which this is the hash and that ends before `limit`.
fn prove(
    window: &mut Window<'_>,
    places: &[u64],
    hash: Option<Digest>,
    (height, limit): (Height, u64),
) -> io::Result<Option<Proven>> {
    let any = hash.is_none() && !stands(Defence::F50UnsyncedHoleIsTail);
    for &at in places.iter().filter(|_| any || hash.is_some()) {
        let Some((header, found, end)) = read_head(window, at)? else { continue };
        if (!any && hash != Some(found)) || header.height != height || end > limit {
            continue;
        }
        // Of one body, the first: many heads could claim the same bytes.
        let flaw = match read_block(window, at, Some(height))? {
            Ok(record) if tercio_crypto::hash(header.suite, &[&record.body]) == header.body => None,
            Ok(_) => Some("body"),
            Err(flaw) => Some(flaw.field),
        };
        return Ok(Some(Proven { at, end, header, hash: found, flaw }));
    }
    Ok(None)
}
