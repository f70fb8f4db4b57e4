//! The results of blocks, held against the blocks, each other and certificates.

use super::{Audit, AuditFailure, failure, segments, unreadable};
use crate::block_log::results::{find, is_results, results_ident};
use crate::segment::results_name;
use crate::{BlockResults, LedgerError, Storage};
use tercio_types::{ChainId, EMPTY_ROOT, Height};

/// The results of a block in a log that [`crate::audit()`] found good; `None` when there are none of it.
///
/// # Errors
/// As [`crate::audit()`]; also when the results were kept and cannot be read.
pub fn results_at(
    storage: &dyn Storage,
    chain: ChainId,
    height: Height,
) -> Result<Option<BlockResults>, AuditFailure> {
    let names = storage.list().map_err(|e| failure("the directory", None, e.to_string()))?;
    let firsts = segments(storage, &names, chain);
    let Some(first) = firsts.into_iter().rfind(|first| *first <= height) else { return Ok(None) };
    let name = results_name(first);
    if !names.contains(&name) {
        return Ok(None);
    }
    match find(storage, first, height) {
        Ok(found) => Ok(Some(found)),
        Err(LedgerError::Damage { .. }) => Ok(None),
        Err(other) => Err(unreadable(&name, &other)),
    }
}

impl Audit<'_> {
    /// Holds the results of a segment's blocks against the blocks, each other and certificates.
    pub(super) fn results(&mut self, first: Height, is_there: bool) -> Result<(), AuditFailure> {
        let name = results_name(first);
        if !is_there {
            // With nothing behind it, these blocks may not be executed yet.
            self.missing.get_or_insert(name);
            return Ok(());
        }
        let ident = results_ident(self.membership.chain(), first);
        for record in &self.records(&name, &ident, is_results)? {
            let (found, base) = BlockResults::of_record(record.tag, &record.bytes)
                .map_err(|e| failure(&name, Some(Height(record.tag)), format!("results: {e}")))?;
            // A crash may have taken the block and left its results.
            if found.height > self.previous.height {
                break;
            }
            self.results_of(&name, &found, base)?;
        }
        Ok(())
    }

    fn results_of(
        &mut self,
        name: &str,
        found: &BlockResults,
        base: bool,
    ) -> Result<(), AuditFailure> {
        let height = found.height;
        let bad = |field: &str| Err(failure(name, Some(height), field));
        let own = found.packages.iter().map(|package| (package.client, package.first));
        match self.packages.get(&height) {
            Some(packages) if own.eq(packages.iter().copied()) => {}
            Some(_) => return bad("packages of the results"),
            None => return bad("height of the results"),
        }
        if found.suite != self.membership.suite() {
            return bad("suite of the results");
        }
        if let Err(field) = found.check() {
            return bad(field);
        }
        let before = Height(height.0 - 1);
        let known = match self.chained {
            Some((last, _)) if last >= height => return bad("height of the results"),
            Some((last, chained)) if last == before => Some(chained),
            _ => {
                let first = self.chained.map_or(self.report.first, |(last, _)| Some(last.next()));
                if let Some(first) = first.filter(|first| *first < height && !base) {
                    let what = format!("the results up to block {before} are missing");
                    let file = self.missing.as_deref().unwrap_or(name);
                    self.report.lost.push(failure(file, Some(first), what));
                }
                self.run = Some(height);
                match before {
                    Height(0) => Some(EMPTY_ROOT),
                    before => self.certified_results.get(&before).copied(),
                }
            }
        };
        if known.is_some_and(|known| known != found.before) {
            return bad("chained results before the block");
        }
        let chained = found.chained();
        if let Some(certified) = self.certified_results.get(&height) {
            if *certified != chained {
                return bad("chained results (others are certified)");
            }
            let from = self.run.take().unwrap_or(height);
            match self.report.results_proven.last_mut() {
                Some(last) if last.end().next() == from => *last = *last.start()..=height,
                _ => self.report.results_proven.push(from..=height),
            }
        }
        if self.run.is_none() && !self.certified_results.contains_key(&height) {
            self.run = Some(height);
        }
        self.chained = Some((height, chained));
        self.missing = None;
        self.report.results += 1;
        self.report.results_first.get_or_insert(height);
        self.report.results_last = Some(height);
        Ok(())
    }
}
