//! The results of blocks ([`super::results`]): kept, read, and mended with copies from others.
//!
//! What the highest lost record must be chained to is known: a certificate at its height says it, or
//! the record above, which has what is before it. So a copy from anybody will do, and mending begins
//! with the highest; each copy says what the one below must give. That a copy's results give its
//! digests, these its root, and that its packages are the block's, is checked too.

use super::BlockLog;
use crate::segment::results_name;
use crate::{BlockResults, Kept, LedgerError};
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
    /// Keeps the results of a block that the log has, in the buffer until the next flush. They come in
    /// order of height; those that come again must be the same, and mend what was lost.
    ///
    /// # Errors
    /// When the storage fails, now or before, and when results are kept that are not these.
    ///
    /// # Panics
    /// When the log does not have the block: it is logged before it is executed.
    pub fn put_results(&mut self, results: &BlockResults) -> Result<(), LedgerError> {
        assert!(results.height <= self.tip.0, "a block is logged before it is executed");
        let Some(segment) = self.segment_of(results.height) else { return Ok(()) };
        self.results.put(&mut self.disk, segment, results)
    }

    /// The results of a block; `None` when none were kept: they are not there yet, the block was
    /// pruned or fetched as part of a state, or the setting is off.
    ///
    /// # Errors
    /// When the storage fails or the results were kept and are damaged.
    pub fn results(&mut self, height: Height) -> Result<Option<BlockResults>, LedgerError> {
        let Some(segment) = self.segment_of(height) else { return Ok(None) };
        self.results.read(&mut self.disk, segment, height)
    }

    /// The first and the last block of which results were kept.
    #[must_use]
    pub fn results_extent(&self) -> Option<(Height, Height)> {
        self.results.extent()
    }

    /// Of how many blocks results were kept and are known to be lost, and of how many they were mended
    /// since the log was opened.
    #[must_use]
    pub fn results_damage(&self) -> (u64, u64) {
        self.results.damage()
    }

    /// How long all results are, in bytes.
    #[must_use]
    pub fn results_bytes(&self) -> u64 {
        self.results.bytes()
    }

    /// Makes the results durable that were put. They come before a snapshot that covers their blocks:
    /// nobody executes those again then.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_results(&mut self) -> Result<(), LedgerError> {
        self.results.sync(&mut self.disk)
    }

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
            let whole = stripped
                || copy.packages.iter().all(|package| matches!(package.kept, Kept::Results(_)));
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
