//! The log's part in being mended ([`crate::repair`]).

use super::{LogStage, Outbox, ToOrder};
use crate::NodeError;
use crate::repair::Health;
use crate::sync::{self, Blocks, FetchBlocks};
use tercio_ledger::{Block, LedgerError};
use tercio_types::ReplicaId;
use tercio_wire::Encode;

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
        out.order.push_back(ToOrder::Health(Health { scrubbed, damaged, repaired, wanted, took }));
        Ok(())
    }

    pub(super) fn scrub(&mut self, bytes: u64, out: &mut Outbox) -> Result<(), NodeError> {
        let read = self.blocks.scrub(bytes)?;
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
        let body = match sync::serve(&self.blocks, request) {
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
