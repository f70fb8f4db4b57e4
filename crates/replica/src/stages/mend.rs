//! The log's part in being mended ([`tercio_sync::Step::Place`]), and in giving blocks to others.

use super::{LogStage, Outbox, ToOrder};
use crate::NodeError;
use tercio_ledger::{Block, BlockResults, LedgerError};
use tercio_sync::{Blocks, FetchBlocks, Health, ResultsHealth, read_blocks};
use tercio_types::ReplicaId;
use tercio_wire::Encode;

/// The most of the block log that a scrub reads at a time: bytes and, since each takes a few
/// system calls, blocks.
const BITE: (u64, u64) = (64 << 10, 16);

/// Scrubbing of the block log, a slice at a time.
pub(super) struct Scrub {
    /// How many bytes are left.
    pub(super) left: u64,
    /// How many were looked at.
    pub(super) read: u64,
}

impl LogStage {
    /// Says how the log is.
    fn say_health(
        &mut self,
        scrubbed: Option<u64>,
        took: Option<bool>,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let (damaged, repaired) = self.blocks.damage();
        let wanted = self.blocks.wanted()?;
        let results = self.results_health(None)?;
        let health = Health { scrubbed, damaged, repaired, wanted, took, results };
        out.order.push_back(ToOrder::Health(health));
        Ok(())
    }

    fn results_health(&mut self, took: Option<bool>) -> Result<ResultsHealth, NodeError> {
        let (lost, mended) = self.blocks.results_damage();
        let wanted = self.blocks.results_wanted()?;
        Ok(ResultsHealth { lost, mended, wanted, took })
    }

    pub(super) fn repair_results(
        &mut self,
        copies: &[BlockResults],
        stripped: bool,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let took = self.blocks.repair_results(copies, stripped)?;
        let (damaged, repaired) = self.blocks.damage();
        let (wanted, results) = (self.blocks.wanted()?, self.results_health(Some(took))?);
        let health = Health { damaged, repaired, wanted, results, ..Health::default() };
        out.order.push_back(ToOrder::Health(health));
        Ok(())
    }

    /// Scrubs a slice, and says how the log is when it was the last: all that was asked for was
    /// looked at, or the log's end is reached.
    pub(super) fn scrub_a_bite(&mut self, out: &mut Outbox) -> Result<(), NodeError> {
        let Some(Scrub { left, read }) = &mut self.scrub else { return Ok(()) };
        let (bytes, at_end) = self.blocks.scrub(BITE.0.min(*left), BITE.1)?;
        *read += bytes;
        *left = left.saturating_sub(bytes);
        if *left > 0 && !at_end {
            return Ok(());
        }
        let read = *read;
        self.scrub = None;
        self.say_health(Some(read), None, out)
    }

    pub(super) fn repair(&mut self, copies: &[Block], out: &mut Outbox) -> Result<(), NodeError> {
        let took = self.blocks.repair(copies)?;
        self.say_health(None, Some(took), out)
    }

    /// Reads blocks for another replica. What cannot be read is noted, and the answer is that it is
    /// not there.
    pub(super) fn serve(
        &mut self,
        by: ReplicaId,
        request: FetchBlocks,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let body = match read_blocks(&self.blocks, request) {
            Err(LedgerError::Damage { height: Some(height), .. }) => {
                self.blocks.note_damage(height);
                self.say_health(None, None, out)?;
                Blocks { blocks: vec![], certificate: None }.to_bytes()
            }
            other => other?,
        };
        out.order.push_back(ToOrder::Blocks { to: by, from: request.from, body });
        Ok(())
    }
}
