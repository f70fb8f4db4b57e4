//! Lost results, mended with copies from others.
//!
//! What the highest lost record must be chained to is known: a certificate at its height says it, or
//! the record above, which has what is before it. So a copy from anybody will do, and mending begins
//! with the highest; each copy says what the one below must give. That a copy's results give its
//! digests, these its root, and that its packages are the block's, is checked too.

use super::BlockLog;
use crate::segment::results_name;
use crate::{BlockResults, LedgerError};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{Batch, Digest, Height};
use tercio_wire::Decode;

/// The most results that are asked for at once.
const RUN: u64 = 64;

/// Results that were kept and are lost, all of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedResults {
    /// Of the lowest block.
    pub from: Height,
    /// Of the highest.
    pub to: Height,
    /// The chained results after the highest; each record has those before it.
    pub chained: Digest,
    /// The file that lacks them.
    pub file: String,
}

impl BlockLog {
    /// Which results are to be fetched from others next; `None` when none are known to be lost.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn results_wanted(&mut self) -> Result<Option<WantedResults>, LedgerError> {
        loop {
            let Some(to) = self.results.highest_lost() else { return Ok(None) };
            let Some(segment) = self.segment_of(to) else {
                // Their blocks are gone, too.
                self.results.forget_damage(to);
                continue;
            };
            let Some(chained) = self.chained_after(to)? else {
                self.results.note_damage(to.next());
                continue;
            };
            let lowest = segment.0.max(to.0.saturating_sub(RUN - 1));
            let mut from = to;
            while from.0 > lowest && self.results.is_lost(Height(from.0 - 1)) {
                from = Height(from.0 - 1);
            }
            return Ok(Some(WantedResults { from, to, chained, file: results_name(segment) }));
        }
    }

    /// The chained results after a block; `None` when what would say them is lost too.
    fn chained_after(&mut self, height: Height) -> Result<Option<Digest>, LedgerError> {
        if let Some((tip, chained)) = self.results.tip()
            && tip == height
        {
            return Ok(Some(chained));
        }
        let certified = self.certificate_at_or_after(height)?.map(|found| found.checkpoint);
        if let Some(checkpoint) = certified.filter(|found| found.height == height) {
            return Ok(Some(checkpoint.results));
        }
        match self.results(height.next()) {
            Ok(next) => Ok(next.map(|next| next.before)),
            Err(LedgerError::Damage { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Takes copies of results in descending order, of which the first is of the highest block that
    /// [`Self::results_wanted`] named. With `stripped`, those are taken too that lack results: nothing
    /// says how long they were. False, and nothing is taken, when they are not what was lost.
    ///
    /// # Errors
    /// When the storage fails, now or before.
    pub fn repair_results(
        &mut self,
        copies: &[BlockResults],
        stripped: bool,
    ) -> Result<bool, LedgerError> {
        self.disk.check()?;
        let Some(wanted) = self.results_wanted()? else { return Ok(false) };
        let (mut height, mut chained) = (wanted.to, wanted.chained);
        for copy in copies {
            let whole = stripped || copy.packages.iter().all(|package| package.body.is_some());
            let same = copy.height == height
                && height >= wanted.from
                && copy.chained() == chained
                && whole
                && copy.check().is_ok()
                && self.are_of_its_block(copy)?;
            if !same && stands(Defence::F55ResultsByChain) {
                return Ok(false);
            }
            (height, chained) = (Height(copy.height.0.saturating_sub(1)), copy.before);
        }
        let segment = self.segment_of(wanted.to).expect("it was looked up");
        for copy in copies {
            self.results.mend(&mut self.disk, segment, copy)?;
        }
        let last = self.last_of(segment);
        if !self.results.lacks(segment..=last) {
            self.results.write_patch(&mut self.disk)?;
        }
        Ok(!copies.is_empty())
    }

    /// Whether results are of the packages of the block that the log has.
    fn are_of_its_block(&self, copy: &BlockResults) -> Result<bool, LedgerError> {
        let block = match self.read(copy.height) {
            Ok(Some(block)) => block,
            Ok(None) | Err(LedgerError::Damage { .. }) => return Ok(false),
            Err(other) => return Err(other),
        };
        let Ok(batch) = Batch::from_bytes(&block.body, block.header.suite) else {
            return Ok(false);
        };
        let own = batch.packages.iter().map(|package| (package.client, package.first));
        let theirs = copy.packages.iter().map(|package| (package.client, package.first));
        Ok(copy.suite == block.header.suite && own.eq(theirs))
    }
}
