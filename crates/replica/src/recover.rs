//! Taking up where a replica stopped.
//!
//! The latest whole snapshot, then every block behind it executed again, each of which must give the
//! header that the log has, then the promises of the write-ahead log. Where a certificate was kept
//! the state must be the certified one. A damaged snapshot is passed over and removed: the one before
//! it will do, or the beginning of the chain, with the blocks behind that; and where nothing will do
//! that is here, the state and the blocks of the other replicas. What the replica promised it knows
//! from the write-ahead log all the same. A torn tail is cut; any other damage is an error that names
//! the file and the block, and so is a damaged snapshot where there is no other replica. A write-ahead
//! log that ends before where it was durable ([`WalMark`]) counts as lost, with what is left of it.

use crate::home::Part;
use crate::node::{NoLog, NodeSettings};
use crate::stages::{
    ExecuteStage, LogStage, OrderStage, Outbox, Rhythm, ToLog, ToOrder, block_results, must_equal,
};
use crate::{Home, NodeError, StartProgress};
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{Event, Instant, Protocol, ProtocolKind, Recovery, Setup};
use tercio_crypto::{BatchVerifier, Instance, Keyring, Signer};
use tercio_execution::{Engine, Executor};
use tercio_ledger::{
    BlockLog, LedgerError, SnapshotHead, SnapshotStore, Staging, StoredSnapshot, Wal, WalMark,
    WalSettings,
};
use tercio_sync::transfer::message::bounded_chain_bytes;
use tercio_sync::{Head, Sync, SyncSetup, Tip, buffer_bytes};
use tercio_types::{CertifiedCheckpoint, Checkpoint, Height, Principal, SeqNum};
use tercio_wire::EncodedBatch;
use tracing::warn;

/// All stages of a replica, with what they want done first.
pub struct Stages<P: Protocol = Pbft> {
    /// Ordering.
    pub order: OrderStage<P>,
    /// The log.
    pub log: LogStage,
    /// Execution.
    pub execute: ExecuteStage,
    /// What the protocol wants done at the start: a restarted replica repeats its promises.
    pub outbox: Outbox,
}

impl<P: ProtocolKind> Stages<P> {
    /// Opens a replica.
    ///
    /// # Errors
    /// When its files are damaged or cannot be read, or do not belong to it.
    pub fn open(
        settings: &NodeSettings,
        home: &dyn Home,
        executor: impl Into<Box<dyn Executor>>,
        now: Instant,
    ) -> Result<Self, NodeError> {
        Self::with_protocol(settings, home, executor, now, |signer, recovery| {
            let NodeSettings { me, membership, consensus, .. } = settings;
            let (membership, settings) = (membership.clone(), consensus.clone());
            Ok(P::open(Setup { me: *me, membership, signer, settings, recovery, now })?)
        })
    }
}

impl<P: Protocol> Stages<P> {
    /// Opens a replica that orders with the protocol that `make` gives.
    ///
    /// # Errors
    /// As [`Stages::open`], and when `make` fails.
    pub fn with_protocol(
        settings: &NodeSettings,
        home: &dyn Home,
        executor: impl Into<Box<dyn Executor>>,
        now: Instant,
        make: impl FnOnce(Signer, Recovery) -> Result<P, NodeError>,
    ) -> Result<Self, NodeError> {
        let membership = &settings.membership;
        let (chain, suite) = (membership.chain(), membership.suite());
        let durable = settings.durability.syncs();
        let files = |part| home.open(part, durable);
        let (mut blocks, _) = BlockLog::open(files(Part::Blocks)?, chain, settings.ledger.blocks)?;
        let mut snapshots = SnapshotStore::open(files(Part::Snapshots)?, chain)?;
        let ahead_bytes = if durable { settings.ledger.wal.ahead_bytes } else { 0 };
        let wal = WalSettings { ahead_bytes, ..settings.ledger.wal };
        let (mut wal, records) = Wal::open(files(Part::Wal)?, chain, wal)?;
        let staging = Staging::open(files(Part::Staging)?)?;
        let (mark, cut) = WalMark::open(files(Part::Blocks)?, chain, settings.me, &wal)?;
        let lost_log = cut.is_some() || wal.is_blank() && settings.no_log == NoLog::Lost;
        let fresh = wal.is_blank() && !lost_log;
        if fresh {
            wal.begin()?;
        }

        let mut engine = Engine::over(executor.into(), membership.clone(), settings.lag);
        let mut rhythm = Rhythm::new(settings.snapshot_every, settings.snapshot_bytes);
        let mut stable = blocks.latest_certificate()?;
        let alone = membership.n() == 1;
        let (latest, passed_over) = latest_whole(&mut snapshots, &blocks, alone)?;
        if let Some(stored) = latest {
            let bytes = stored.bytes();
            let StoredSnapshot { head: SnapshotHead { certificate, chain_bytes }, chunks } = stored;
            let (seq, height) = (certificate.checkpoint.seq, certificate.checkpoint.height);
            // An earlier version took any number from others.
            rhythm.restored(bounded_chain_bytes(height, chain_bytes), bytes);
            let restored = engine.restore(&certificate.checkpoint, &chunks);
            restored.map_err(|why| NodeError::Snapshot { height, why })?;
            // The log's end may have been lost with the page cache, but the snapshot was not; or
            // the snapshot came from others, and the log was not begun anew yet.
            if blocks.tip().0 < height
                && let Some(old) = blocks.restart_after(height, engine.block())?
            {
                old.run()?;
            }
            if stable.as_ref().is_none_or(|stable| stable.checkpoint.seq < seq) {
                blocks.put_certificate(&certificate)?;
                stable = Some(certificate);
            }
        } else {
            // Before the first request comes, and not while it waits.
            engine.state_digest();
        }
        let interval = settings.consensus.checkpoint_interval;
        let checkpoints = Vec::new();
        let stable_here = stable.as_ref();
        let progress = &settings.progress;
        let mut replay =
            Replay { engine, rhythm, stable: stable_here, interval, checkpoints, alone, progress };
        let delivered = replay.run(&mut blocks)?;
        if let Some(damaged) = blocks.first_damaged().filter(|_| alone) {
            // Nobody has another copy: this names the place.
            blocks.read(damaged)?;
        }
        let Replay { mut engine, rhythm, checkpoints, .. } = replay;

        let me = Principal::Replica(settings.me);
        // With the clients that were added.
        let membership = engine.membership().clone();
        let verifier = BatchVerifier::new(settings.verify.sm2)?;
        let secret = settings.secret.clone();
        let keyring = Keyring::new(me, secret, membership.clone(), Instance::default())
            .checking_with(verifier);
        let records = records.into_iter().map(|record| record.bytes).collect();
        let windows = engine.windows();
        let checkpoint = checkpoints.last().cloned();
        let head = Head {
            tip: Tip { height: engine.height(), block: engine.block(), seq: delivered },
            checkpoint: Some(checkpoint.unwrap_or_else(|| engine.checkpoint(delivered))),
        };
        // What is there may be an older copy of what was.
        let ask_first = !fresh;
        let height = engine.height();
        let recovery =
            Recovery { records, lost_log, stable, delivered, height, ask_first, windows };
        let protocol = make(keyring.signer(), recovery)?;
        let pre_check = engine.pre_check();
        let (chain, execution) = engine.split();
        let execute = ExecuteStage::new(settings.me, keyring.clone(), execution, delivered, rhythm);
        let sync = Sync::new(SyncSetup {
            me: settings.me,
            membership: membership.clone(),
            settings: settings.sync,
            lag: settings.lag,
            room: buffer_bytes(&settings.consensus),
            scrub_bytes: settings.scrub_bytes,
            head,
        });
        let mut order = OrderStage::new(
            settings.me,
            keyring,
            protocol,
            sync,
            settings.verify,
            chain,
            pre_check,
        );
        let log = LogStage::new(suite, (wal, mark), blocks, snapshots, staging);
        let mut outbox = Outbox { membership: Some(membership), ..Outbox::default() };
        let damaged = (0..passed_over).map(|_| ToOrder::Dropped("snapshot_damaged"));
        outbox.order.extend(damaged);
        if let Some(cut) = cut {
            warn!("{cut}");
            outbox.order.push_back(ToOrder::Dropped("own_log_was_cut"));
        }
        // It says what opening found.
        outbox.log.push_back(ToLog::Scrub { bytes: 0 });
        order.do_effects(now, &mut outbox)?;
        for checkpoint in checkpoints {
            let (seq, checkpoint) = (checkpoint.seq, Some(checkpoint));
            order.tell(Event::Executed { seq, block: None, checkpoint }, now, &mut outbox)?;
        }
        Ok(Self { order, log, execute, outbox })
    }
}

/// The latest snapshot of which every byte is as it was written and from which the block log goes
/// on, if there is one, and how many damaged ones were passed over and removed on the way to it.
/// Without one the state is that of the beginning; a replica that is `alone` must have the blocks
/// from there on, then, and another can fetch what is missing.
fn latest_whole(
    snapshots: &mut SnapshotStore,
    blocks: &BlockLog,
    alone: bool,
) -> Result<(Option<StoredSnapshot>, usize), NodeError> {
    let mut damaged = Vec::new();
    let mut latest = None;
    for seq in snapshots.kept().iter().rev().copied().collect::<Vec<_>>() {
        match snapshots.read(seq) {
            Err(damage @ LedgerError::Damage { .. }) => damaged.push((seq, damage)),
            Err(error) => return Err(error.into()),
            Ok(whole) => {
                latest = Some(whole);
                break;
            }
        }
    }
    let next = latest.as_ref().map_or(Height(0), |s| s.head.certificate.checkpoint.height).next();
    let passed_over = damaged.len();
    if alone && blocks.first_height() > next {
        if let Some((_, damage)) = damaged.into_iter().next() {
            return Err(damage.into());
        }
    } else {
        for (seq, _) in damaged {
            snapshots.remove(seq)?;
        }
    }
    Ok((latest, passed_over))
}

/// Executes the log's blocks again.
struct Replay<'a> {
    engine: Engine,
    rhythm: Rhythm,
    stable: Option<&'a CertifiedCheckpoint>,
    interval: u64,
    /// Those above the stable one, for the protocol to sign again.
    checkpoints: Vec<Checkpoint>,
    /// Whether there is no other replica that has the blocks.
    alone: bool,
    progress: &'a StartProgress,
}

impl Replay<'_> {
    /// Gives the last number that the state reflects. What follows a damaged block, or blocks that
    /// are gone, is executed when others have sent it.
    fn run(&mut self, blocks: &mut BlockLog) -> Result<SeqNum, NodeError> {
        let head = blocks.tip().0;
        self.progress.begin(self.engine.height(), head);
        while self.engine.height() < head {
            let height = self.engine.height().next();
            if !self.alone && height < blocks.first_height() {
                break;
            }
            let block = match blocks.read(height) {
                Err(LedgerError::Damage { .. }) => {
                    blocks.note_damage(height);
                    break;
                }
                block => block?.ok_or(NodeError::MissingBlock { height })?,
            };
            self.pass(block.header.seq)?;
            let suite = block.header.suite;
            let body = EncodedBatch::from_bytes(block.body, block.header.body, suite)
                .map_err(|why| NodeError::Body { height, why })?;
            let (asks, bytes) = (body.batch.checkpoint, body.bytes.len());
            let replayed = self.engine.replay(&block.header, body);
            let executed =
                replayed.map_err(|why| NodeError::of_replay(self.engine.app_name(), why))?;
            if let Some(results) = block_results(&executed) {
                blocks.put_results(&results)?;
            }
            self.rhythm.block(bytes);
            self.progress.reach(height);
            let seq = block.header.seq;
            if asks && seq > self.stable_seq() && !seq.0.is_multiple_of(self.interval) {
                self.checkpoints.push(self.engine.checkpoint(seq));
            }
        }
        self.finish(self.engine.height())
    }

    fn stable_seq(&self) -> SeqNum {
        self.stable.map_or(SeqNum(0), |stable| stable.checkpoint.seq)
    }

    /// Before the block of number `next` is executed: the checkpoints between it and the last.
    fn pass(&mut self, next: SeqNum) -> Result<(), NodeError> {
        let executed = self.engine.seq();
        self.compare(|stable| executed <= stable && stable < next)?;
        let from = executed.max(self.stable_seq().next());
        let mut seq = from.0.next_multiple_of(self.interval);
        while seq < next.0 {
            if seq > 0 {
                self.checkpoints.push(self.engine.checkpoint(SeqNum(seq)));
            }
            seq += self.interval;
        }
        Ok(())
    }

    /// Our state must be the certified one wherever we pass it.
    fn compare(&mut self, here: impl FnOnce(SeqNum) -> bool) -> Result<(), NodeError> {
        let Some(stable) = self.stable.filter(|stable| here(stable.checkpoint.seq)) else {
            return Ok(());
        };
        must_equal(&self.engine.checkpoint(stable.checkpoint.seq), &stable.checkpoint)
    }

    /// After the last block. A certificate of the same height covers null requests behind it.
    fn finish(&mut self, head: Height) -> Result<SeqNum, NodeError> {
        let executed = self.engine.seq();
        let covered = self.stable.filter(|stable| stable.checkpoint.height == head);
        let delivered = covered.map_or(executed, |stable| stable.checkpoint.seq.max(executed));
        if covered.is_some() {
            self.compare(|stable| stable >= executed)?;
        }
        self.pass_up_to(delivered);
        Ok(delivered)
    }

    fn pass_up_to(&mut self, delivered: SeqNum) {
        let from = self.engine.seq().max(self.stable_seq().next());
        let seq = SeqNum(from.0.next_multiple_of(self.interval));
        if seq.0 > 0 && seq <= delivered {
            self.checkpoints.push(self.engine.checkpoint(seq));
        }
    }
}
