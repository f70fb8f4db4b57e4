//! The log: all that is written.
//!
//! - A record of the write-ahead log is acknowledged once it is durable, in the sense of the
//!   durability that was asked for, together with all before it. So are the blocks that a signed
//!   checkpoint stands for: one fsync of the block log a checkpoint, in the commit of its group.
//! - The record of a stable checkpoint replaces all before. It is appended when certificate and
//!   blocks are as durable as those were, by one command ([`ToLog::Stable`]), so that no commit comes
//!   between. Then the old records go; their files are removed elsewhere
//!   ([`Removal`](tercio_ledger::Removal)).
//! - A snapshot is written when the checkpoint that it stands for has a certificate, in slices
//!   ([`LogStage::work`]), each made durable on its own, so that nothing waits long behind one.
//! - At most five snapshots are in memory: when two that were overtaken are still to be released,
//!   the next is passed over. When one is due does not depend on that: it is due at the same
//!   checkpoint at all replicas, and a replica that passed one over serves the one before.
//! - Pieces of a state that comes from others are kept, without a sync, until it is whole. It is a
//!   snapshot first, and only then they go and the block log begins anew.
//! - The block log is scrubbed in slices of 64 KiB and 16 blocks.
//! - Blocks are read for others, at most about 1 MiB at a time; pieces of state from a snapshot's
//!   file, at most about 256 KiB at a time.
//!
//! A failed write or sync stops the replica: what is on the disk is not known any more.

use super::mend::Scrub;
use super::{Outbox, StateAt, ToLog, ToOrder};
use crate::NodeError;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tercio_consensus::PersistId;
use tercio_execution::{Chain, Snapshot};
use tercio_ledger::{BlockLog, LedgerError, SnapshotHead, SnapshotStore, Staging, Wal, WalMark};
use tercio_sync::transfer::message::FetchState;
use tercio_sync::transfer::{Keep, Piece, Pieces, Server};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{CertifiedCheckpoint, Digest, Height, ReplicaId, SignatureBytes, Suite};

/// How many attestations wait for their block.
const MAX_EARLY: usize = 1024;

/// How many chunks of a snapshot that is of no more use are released at a time.
const BITE: usize = 1024;

/// How many snapshots that were overtaken may wait to be released before a new one is passed over:
/// each may hold on to as much memory as the state takes, where all of that changed since. With the
/// one that waits for its certificate, the one that waits to be written and the one that is written
/// there are never more than three beyond these.
const MAX_OVERTAKEN: usize = 2;

/// How many times as long as what can wait took, nothing of the kind is done: a fifth of the thread's
/// time is for that.
const REST: u32 = 4;

/// The same while a state that came from others becomes durable. Nothing of this replica waits behind
/// that, since it orders nothing yet, and it cannot go on before; half of the time is left to others.
const REST_INSTALLING: u32 = 1;

/// The write-ahead log, the block log and the snapshots of a replica.
pub struct LogStage {
    wal: Wal,
    mark: WalMark,
    pub(super) blocks: BlockLog,
    snapshots: SnapshotStore,
    staging: Staging,
    /// The last record appended, and the last acknowledged.
    appended: PersistId,
    acknowledged: PersistId,
    /// Whether anything waits to be handed to the storage.
    dirty: bool,
    /// The height up to which this stage knows the blocks to be durable, and the one up to which the
    /// next commit makes them so.
    durable: Height,
    durable_next: Height,
    /// Attestations of blocks that are not here yet: a quorum of the others may be ahead.
    early: BTreeMap<Height, (Digest, Vec<(ReplicaId, SignatureBytes)>)>,
    suite: Suite,
    /// The latest certified checkpoint.
    certified: Option<Arc<CertifiedCheckpoint>>,
    /// A snapshot that has no certificate yet.
    pending: Option<StateAt>,
    /// One that has, and waits until that before it is written.
    ready: Option<(Arc<CertifiedCheckpoint>, StateAt)>,
    /// Those that were overtaken. Nobody else may have what changed since: to release all of that
    /// at once would take long.
    overtaken: Vec<Snapshot>,
    /// The snapshot that is being written, and what it is of.
    keep: Option<(Keep, Height)>,
    /// What is said when the snapshot that is being written is durable: a state was installed.
    installing: Option<(Arc<CertifiedCheckpoint>, Box<Chain>)>,
    /// Who wants pieces of a state.
    asked: VecDeque<(ReplicaId, u64, FetchState)>,
    server: Server,
    /// What is to be scrubbed.
    pub(super) scrub: Option<Scrub>,
}

impl LogStage {
    pub(crate) fn new(
        suite: Suite,
        (wal, mark): (Wal, WalMark),
        blocks: BlockLog,
        snapshots: SnapshotStore,
        staging: Staging,
    ) -> Self {
        // Opening makes durable what it finds.
        let durable = blocks.tip().0;
        Self {
            suite,
            wal,
            mark,
            durable,
            durable_next: durable,
            blocks,
            snapshots,
            staging,
            appended: PersistId(0),
            acknowledged: PersistId(0),
            dirty: false,
            early: BTreeMap::new(),
            certified: None,
            pending: None,
            ready: None,
            overtaken: Vec::new(),
            keep: None,
            installing: None,
            asked: VecDeque::new(),
            server: Server::default(),
            scrub: None,
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
            ToLog::PersistBlocks { id, height } => {
                assert!(height <= self.blocks.tip().0, "blocks come before what stands on them");
                self.durable_next = self.durable_next.max(height);
                self.appended = id;
                self.dirty = true;
            }
            ToLog::Stable { certificate, id, record } => {
                self.stabilize(certificate, id, &record, out)?;
            }
            ToLog::Certificate(certificate) => {
                // What a certificate covers was durable before it: so a hole that a crash leaves below
                // one is damage, and none above.
                self.sync_blocks(certificate.checkpoint.height)?;
                self.blocks.put_certificate(&certificate)?;
                self.certified = Some(certificate);
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
            // Executed again behind damage: the log has it, or it is being mended.
            ToLog::Block { header, .. } if header.height <= self.blocks.tip().0 => {}
            ToLog::Block { header, body } => {
                self.blocks.append(&header, &body)?;
                if let Some((block, signatures)) = self.early.remove(&header.height) {
                    self.blocks.put_attestation(header.height, block, &signatures)?;
                }
                self.dirty = true;
            }
            ToLog::Results(results) => {
                self.blocks.put_results(&results)?;
                self.dirty = true;
            }
            // It was taken just now, and hardly anything changed since: it is released at once.
            ToLog::Snapshot(_) if self.overtaken.len() >= MAX_OVERTAKEN => {
                out.order.push_back(ToOrder::Dropped("snapshot_passed_over"));
            }
            ToLog::Snapshot(state) => {
                // One at a time waits for its certificate or is overtaken.
                match self.pending {
                    Some(_) => self.overtaken.push(state.snapshot),
                    None => self.pending = Some(state),
                }
                self.keep_snapshot()?;
            }
            ToLog::Installed { certificate, state, chain } => {
                // Whatever was to be kept is of less use than this.
                let waiting = [self.pending.take(), self.ready.take().map(|(_, state)| state)];
                self.overtaken.extend(waiting.into_iter().flatten().map(|state| state.snapshot));
                self.overtaken.extend(self.keep.take().map(|(keep, _)| keep.give_up()));
                self.installing = Some((certificate.clone(), chain));
                self.begin_keeping(&certificate, state)?;
                if self.keep.is_none() {
                    self.finish_install(out)?;
                }
            }
            ToLog::Stage { pieces, limit } => {
                self.staging.put(pieces.iter().map(Piece::parts), limit)?;
            }
            ToLog::Staged => {
                let mut pieces = Box::new(Pieces::default());
                let suite = self.suite;
                self.staging.read(|kind, bytes| pieces.put_kept(suite, kind, bytes))?;
                out.order.push_back(ToOrder::Pieces(pieces));
            }
            ToLog::Unstage => out.removals.extend(self.staging.clear()?),
            ToLog::FetchState { by, number, request } => {
                self.asked.push_back((by, number, request));
            }
            ToLog::Fetch { by, request } => self.serve(by, request, out)?,
            ToLog::Scrub { bytes } => self.scrub = Some(Scrub { left: bytes, read: 0 }),
            ToLog::Repair { copies } => self.repair(&copies, out)?,
            ToLog::RepairResults { copies, stripped } => {
                self.repair_results(&copies, stripped, out)?;
            }
        }
        Ok(())
    }

    /// The record of a stable checkpoint follows what it stands on, and old records go last.
    fn stabilize(
        &mut self,
        certificate: Arc<CertifiedCheckpoint>,
        id: PersistId,
        record: &[u8],
        out: &mut Outbox,
    ) -> Result<(), LedgerError> {
        let (seq, height) = (certificate.checkpoint.seq, certificate.checkpoint.height);
        if stands(Defence::F45StateFollows) {
            self.sync_blocks(height)?;
            self.blocks.put_certificate(&certificate)?;
            self.blocks.sync_side()?;
            self.mark.note(self.wal.durable_end())?;
            self.wal.append(0, record)?;
        } else {
            // What a commit could do that came before certificate and blocks were durable.
            self.blocks.put_certificate(&certificate)?;
            self.wal.append(0, record)?;
            self.wal.sync()?;
        }
        self.appended = id;
        self.dirty = true;
        out.removals.extend(self.wal.prune(seq.0)?);
        self.certified = Some(certificate);
        self.keep_snapshot()
    }

    /// Makes the blocks durable up to `height` at least.
    fn sync_blocks(&mut self, height: Height) -> Result<(), LedgerError> {
        if self.durable < height {
            self.blocks.sync_blocks()?;
            self.durable = self.blocks.tip().0;
        }
        Ok(())
    }

    /// Begins to write the snapshot whose checkpoint is the certified one.
    fn keep_snapshot(&mut self) -> Result<(), LedgerError> {
        let Some(certified) = &self.certified else { return Ok(()) };
        let stable = certified.checkpoint.seq;
        if self.pending.as_ref().is_none_or(|state| state.checkpoint.seq > stable) {
            return Ok(());
        }
        let state = self.pending.take().expect("just seen");
        // One that was overtaken was certified too, but by now it is of no more use than the next.
        if state.checkpoint == certified.checkpoint {
            let before = self.ready.replace((certified.clone(), state));
            self.overtaken.extend(before.map(|(_, state)| state.snapshot));
            return self.keep_ready();
        }
        self.overtaken.push(state.snapshot);
        Ok(())
    }

    fn keep_ready(&mut self) -> Result<(), LedgerError> {
        if self.keep.is_none()
            && let Some((certificate, state)) = self.ready.take()
        {
            self.begin_keeping(&certificate, state)?;
        }
        Ok(())
    }

    fn begin_keeping(
        &mut self,
        certificate: &CertifiedCheckpoint,
        state: StateAt,
    ) -> Result<(), LedgerError> {
        let StateAt { checkpoint, chain_bytes, snapshot, app } = state;
        let head = SnapshotHead { certificate: certificate.clone(), chain_bytes };
        // Whoever starts from it executes nothing below again.
        self.blocks.sync_results()?;
        let keep = Keep::begin(&mut self.snapshots, self.suite, &head, snapshot, app)?;
        self.keep = keep.map(|keep| (keep, checkpoint.height));
        Ok(())
    }

    /// Whether [`Self::work`] has something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.keep.is_some()
            || !self.asked.is_empty()
            || !self.overtaken.is_empty()
            || self.scrub.is_some()
    }

    /// How many times as long as [`Self::work`] takes to rest after it.
    #[must_use]
    pub fn rest(&self) -> u32 {
        if self.installing.is_some() { REST_INSTALLING } else { REST }
    }

    /// Background work: a slice of a snapshot, a slice of one that was overtaken, an
    /// answer to a replica that fetches state, a look at the block log. Each takes at most about as
    /// long as writing or reading half a megabyte.
    ///
    /// # Errors
    /// When the storage fails; the replica stops then.
    pub fn work(&mut self, out: &mut Outbox) -> Result<(), NodeError> {
        if let Some((by, number, request)) = self.asked.pop_front() {
            let answer = self.server.answer(&mut self.snapshots, &mut self.blocks, &request)?;
            let (body, damaged) = answer;
            if damaged {
                out.order.push_back(ToOrder::Dropped("snapshot_damaged"));
            }
            out.order.push_back(ToOrder::State { to: by, number, body });
        }
        self.scrub_a_bite(out)?;
        if let Some(snapshot) = self.overtaken.last_mut()
            && snapshot.by_ref().take(BITE).count() < BITE
        {
            self.overtaken.pop();
        }
        let Some((keep, _)) = &mut self.keep else { return Ok(()) };
        if !keep.step(&mut self.snapshots, &mut out.removals)? {
            return Ok(());
        }
        self.keep = None;
        if self.installing.is_some() {
            self.finish_install(out)?;
        }
        // Blocks that every kept snapshot covers may go; a replica that fetches one needs those above it.
        let oldest = self.snapshots.kept().first().copied().expect("one was just written");
        match self.snapshots.head(oldest) {
            // It covers nothing any more; when it goes, the next says what may go.
            Err(LedgerError::Damage { .. }) => {
                out.order.push_back(ToOrder::Dropped("snapshot_damaged"));
            }
            head => {
                self.blocks.sync()?;
                let height = head?.0.certificate.checkpoint.height;
                out.removals.extend(self.blocks.prune(height)?);
            }
        }
        Ok(self.keep_ready()?)
    }

    /// The fetched state is a durable snapshot: the block log goes on behind it.
    fn finish_install(&mut self, out: &mut Outbox) -> Result<(), LedgerError> {
        let (certificate, chain) = self.installing.take().expect("a state was installed");
        let checkpoint = &certificate.checkpoint;
        self.early = self.early.split_off(&checkpoint.height.next());
        out.removals.extend(self.blocks.restart_after(checkpoint.height, checkpoint.block)?);
        self.blocks.put_certificate(&certificate)?;
        self.blocks.sync()?;
        out.removals.extend(self.staging.clear()?);
        self.certified = Some(certificate.clone());
        out.order.push_back(ToOrder::Installed { certificate, chain });
        Ok(())
    }

    /// Whether a [`Self::commit`] has something to do.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Hands everything to the storage; nothing is acknowledged, and a [`Self::commit`] follows before
    /// the next command.
    ///
    /// # Errors
    /// When the storage fails; the replica stops then.
    pub fn write(&mut self) -> Result<(), NodeError> {
        self.blocks.flush()?;
        self.wal.flush()?;
        Ok(())
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
        self.write()?;
        if sync {
            self.sync_blocks(self.durable_next)?;
            self.wal.sync()?;
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
        self.mark.note(self.wal.durable_end())?;
        self.mark.sync()?;
        Ok(())
    }

    /// The lowest and the highest block.
    #[must_use]
    pub fn extent(&self) -> (Height, Height) {
        (self.blocks.first_height(), self.blocks.tip().0)
    }
}
