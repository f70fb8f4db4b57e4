//! The log: all that is written.
//!
//! - A record of the write-ahead log is acknowledged once it is durable, in the sense of the
//!   durability that was asked for, together with all before it.
//! - Old records go only when the blocks that replace them are as durable as they were.
//! - A snapshot is written when the checkpoint that it stands for has a certificate.
//! - Blocks are read for others, at most about 1 MiB at a time.
//!
//! A failed write or sync stops the replica: what is on the disk is not known any more.

use super::{Outbox, ToLog, ToOrder};
use crate::NodeError;
use crate::sync;
use bytes::Bytes;
use std::collections::BTreeMap;
use tercio_consensus::PersistId;
use tercio_ledger::{BlockLog, LedgerError, SnapshotStore, Wal};
use tercio_types::{Checkpoint, Digest, Height, ReplicaId, SeqNum, SignatureBytes};

/// How many attestations wait for their block.
const MAX_EARLY: usize = 1024;

/// The write-ahead log, the block log and the snapshots of a replica.
pub struct LogStage {
    wal: Wal,
    blocks: BlockLog,
    snapshots: SnapshotStore,
    /// The last record appended, and the last acknowledged.
    appended: PersistId,
    acknowledged: PersistId,
    /// Whether anything waits to be handed to the storage.
    dirty: bool,
    /// Attestations of blocks that are not here yet: a quorum of the others may be ahead.
    early: BTreeMap<Height, (Digest, Vec<(ReplicaId, SignatureBytes)>)>,
    /// The latest certified checkpoint.
    certified: Option<Checkpoint>,
    /// A snapshot that has no certificate yet.
    pending: Option<(Checkpoint, Vec<(Bytes, Bytes)>)>,
}

impl LogStage {
    pub(crate) fn new(wal: Wal, blocks: BlockLog, snapshots: SnapshotStore) -> Self {
        Self {
            wal,
            blocks,
            snapshots,
            appended: PersistId(0),
            acknowledged: PersistId(0),
            dirty: false,
            early: BTreeMap::new(),
            certified: None,
            pending: None,
        }
    }

    /// The block log, for reading.
    #[must_use]
    pub fn blocks(&self) -> &BlockLog {
        &self.blocks
    }

    /// Does what it is told. Nothing is durable before [`Self::commit`].
    ///
    /// # Errors
    /// When the storage fails; the replica stops then.
    pub fn handle(&mut self, command: ToLog, out: &mut Outbox) -> Result<(), NodeError> {
        match command {
            ToLog::Persist { id, tag, record } => {
                self.wal.append(tag.0, &record)?;
                self.appended = id;
                self.dirty = true;
            }
            ToLog::Prune(stable) => self.prune(stable)?,
            ToLog::Certificate(certificate) => {
                self.blocks.put_certificate(&certificate)?;
                self.certified = Some(certificate.checkpoint.clone());
                self.dirty = true;
                self.keep_snapshot()?;
            }
            ToLog::Attestation { height, block, signatures } => {
                if height <= self.blocks.tip().0 {
                    self.blocks.put_attestation(height, block, &signatures)?;
                    self.dirty = true;
                } else if self.early.len() < MAX_EARLY {
                    self.early.insert(height, (block, signatures));
                }
            }
            ToLog::Block { header, body } => {
                self.blocks.append(&header, &body)?;
                if let Some((block, signatures)) = self.early.remove(&header.height) {
                    self.blocks.put_attestation(header.height, block, &signatures)?;
                }
                self.dirty = true;
            }
            ToLog::Snapshot { checkpoint, chunks } => {
                // One at a time is in memory; it waits for its certificate or is overtaken.
                self.pending.get_or_insert((checkpoint, chunks));
                self.keep_snapshot()?;
            }
            ToLog::Fetch { by, request } => {
                let body = sync::serve(&self.blocks, request)?;
                out.order.push_back(ToOrder::Blocks { to: by, from: request.from, body });
            }
        }
        Ok(())
    }

    /// Old records are replaced by blocks, which therefore come first.
    fn prune(&mut self, stable: SeqNum) -> Result<(), LedgerError> {
        self.blocks.sync()?;
        self.wal.prune(stable.0)?;
        Ok(())
    }

    /// Writes the snapshot whose checkpoint is the certified one, and lets go of blocks that it
    /// makes unnecessary.
    fn keep_snapshot(&mut self) -> Result<(), LedgerError> {
        let Some(certified) = &self.certified else { return Ok(()) };
        if self.pending.as_ref().is_none_or(|(checkpoint, _)| checkpoint.seq > certified.seq) {
            return Ok(());
        }
        let (checkpoint, chunks) = self.pending.take().expect("just seen");
        // One that was overtaken was certified too, but by now it is of no more use than the next.
        if checkpoint == *certified {
            self.blocks.sync()?;
            self.snapshots.write(&checkpoint, chunks)?;
            self.blocks.prune(checkpoint.height)?;
        }
        Ok(())
    }

    /// Whether a [`Self::commit`] has something to do.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Hands everything to the storage, with `sync` makes the write-ahead log durable, and
    /// acknowledges.
    ///
    /// # Errors
    /// When the storage fails; the replica stops then.
    pub fn commit(&mut self, sync: bool, out: &mut Outbox) -> Result<(), NodeError> {
        if !self.dirty {
            return Ok(());
        }
        self.blocks.flush()?;
        if sync {
            self.wal.sync()?;
        } else {
            self.wal.flush()?;
        }
        self.dirty = false;
        if self.acknowledged < self.appended {
            self.acknowledged = self.appended;
            out.order.push_back(ToOrder::Persisted(self.appended));
        }
        Ok(())
    }

    /// Makes everything durable: an orderly end.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn close(&mut self) -> Result<(), NodeError> {
        self.wal.sync()?;
        self.blocks.sync()?;
        Ok(())
    }

    /// The lowest and the highest block.
    #[must_use]
    pub fn extent(&self) -> (Height, Height) {
        (self.blocks.first_height(), self.blocks.tip().0)
    }
}
