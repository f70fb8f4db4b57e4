//! Removing files that nothing needs any more.
//!
//! To unlink a file of the write-ahead log, of 16 MiB, takes 15 ms while the disk is busy; segments of
//! the block log, snapshots and fetched states may be far longer; and all promises wait for the log's
//! thread. So another does it. Its queue has no bound of its own: what waits there are names of files
//! that are still on the disk.

use super::Ending;
use crate::NodeError;
use crossbeam_channel::Receiver;
use std::sync::Arc;
use tercio_ledger::Removal;

pub(super) struct UpkeepThread {
    pub(super) queue: Receiver<Removal>,
    pub(super) ending: Arc<Ending>,
}

impl UpkeepThread {
    pub(super) fn run(self) -> Result<(), NodeError> {
        for removal in self.queue {
            if self.ending.is_at_once() {
                break;
            }
            removal.run()?;
        }
        Ok(())
    }
}
