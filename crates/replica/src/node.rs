//! One replica without sockets, threads or clocks.

use crate::commits::{Commits, DiskPace};
use crate::home::Home;
use crate::stages::{Outbox, Stages};
use crate::{Durability, NodeError, StartProgress};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{Instant, Protocol, ProtocolKind, Recovery, Settings, Status};
use tercio_crypto::sm2::Backend;
use tercio_crypto::{Checked, SecretKey, Signer};
use tercio_execution::Executor;
use tercio_ledger::{BlockLogSettings, WalSettings};
use tercio_sync::transfer::TransferStatus;
use tercio_sync::{Divergence, RepairStatus, SyncSettings};
use tercio_types::{Checkpoint, Digest, Height, Membership, Principal, ReplicaId};
use tercio_verify::Gather;

/// How the ledger's files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LedgerSettings {
    /// The write-ahead log.
    pub wal: WalSettings,
    /// The block log.
    pub blocks: BlockLogSettings,
}

/// What it means that a replica's home has no write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NoLog {
    /// The replica never ran. Right for a home that is made as the replica starts.
    #[default]
    Fresh,
    /// The log was lost, so that the replica may have promised anything: it takes part again by
    /// the rules for that (`docs/protocol/pbft.md`, L1 to L6). Right for a home that was set up
    /// before ([`tercio_ledger::DataDir::create`]).
    Lost,
}

/// How signatures are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifySettings {
    /// What fills a batch.
    pub batch: Gather,
    /// How long a frame waits for company at most while others keep coming. One that comes alone
    /// does not wait. A [`Node`] has no use for it: there frames wait until [`Node::step`].
    pub gather: Duration,
    /// How many threads of their own verify; 0 for the loop's thread. A [`Node`] has no threads.
    pub threads: usize,
    /// The arithmetic for SM2. Opening a replica fails when the processor does not have it.
    pub sm2: Backend,
}

impl Default for VerifySettings {
    fn default() -> Self {
        let (batch, gather) = (Gather::default(), Duration::from_micros(200));
        Self { batch, gather, threads: 0, sm2: Backend::best() }
    }
}

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Which replica it is.
    pub me: ReplicaId,
    /// The secret of its identity.
    pub secret: SecretKey,
    /// Who takes part.
    pub membership: Arc<Membership>,
    /// The ordering protocol.
    pub consensus: Settings,
    /// Headers carry results and state digest this many heights late; 0 for not at all. All
    /// replicas of a network must agree on it.
    pub lag: u16,
    /// The files.
    pub ledger: LedgerSettings,
    /// When what is written counts as durable. A [`Node`] syncs in [`Node::step`].
    pub durability: Durability,
    /// How many checkpoints from one snapshot to the next; 0 for not by their number.
    pub snapshot_every: u64,
    /// How many bytes of blocks from one snapshot to the next at least, rounded up to a power of
    /// two; more while snapshots are longer than that. 0 for not by bytes.
    pub snapshot_bytes: u64,
    /// Catching up.
    pub sync: SyncSettings,
    /// How signatures are checked.
    pub verify: VerifySettings,
    /// What a home without a write-ahead log means.
    pub no_log: NoLog,
    /// How many bytes of the block log are scrubbed each second; 0 for none.
    pub scrub_bytes: u64,
    /// Tells how far the start is.
    pub progress: StartProgress,
}

impl NodeSettings {
    /// The settings of a replica with everything else at its default.
    #[must_use]
    pub fn new(me: ReplicaId, secret: SecretKey, membership: Arc<Membership>) -> Self {
        Self {
            me,
            secret,
            membership,
            consensus: Settings::default(),
            lag: 0,
            ledger: LedgerSettings::default(),
            durability: Durability::default(),
            snapshot_every: 0,
            snapshot_bytes: 64 << 20,
            sync: SyncSettings::default(),
            verify: VerifySettings::default(),
            no_log: NoLog::default(),
            scrub_bytes: 1 << 20,
            progress: StartProgress::default(),
        }
    }
}

/// Another replica, as one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Which.
    pub id: ReplicaId,
    /// Whether there is a link to it.
    pub linked: bool,
    /// For how long it has been so.
    pub since: Duration,
    /// How long ago a frame last came from it; never while there is none.
    pub heard: Option<Duration>,
    /// Why there is no link, as far as that is known.
    pub problem: Option<String>,
}

/// Where a replica stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Which replica.
    pub id: ReplicaId,
    /// When this was, by the replica's clock; zero without one. Ages are measured from here, not
    /// from the last event: a loop that stands still has none.
    pub at: Instant,
    /// The last executed block.
    pub height: Height,
    /// The hash of its header; the chain id at height 0.
    pub block: Digest,
    /// The last checkpoint that was computed, or passed while catching up, with the state digest.
    pub checkpoint: Option<Checkpoint>,
    /// Whether blocks or state are being fetched from others.
    pub catching_up: bool,
    /// How many bytes of missed blocks came from others.
    pub fetched_block_bytes: u64,
    /// How the fetching of state goes, or went the last time.
    pub transfer: Option<TransferStatus>,
    /// Whether clients are refused as busy, since later stages are behind.
    pub busy: bool,
    /// How many delivered numbers are not executed yet.
    pub executing: u64,
    /// Since when execution has had something to do and finished nothing.
    pub executing_since: Option<Instant>,
    /// Since when the loop has read nothing from the links, because a queue before a later stage is
    /// full. Never without threads.
    pub stalled_since: Option<Instant>,
    /// How the block log is.
    pub repair: RepairStatus,
    /// Where the protocol stands.
    pub protocol: Status,
    /// What was dropped before the protocol, by reason: frames, requests, blocks.
    pub dropped: BTreeMap<&'static str, u64>,
    /// How others broke the protocol, by reason.
    pub evidence: BTreeMap<&'static str, u64>,
    /// Whom that names, each with the last reason.
    pub accused: BTreeMap<ReplicaId, &'static str>,
    /// How states differ that others signed, the last of each replica.
    pub divergences: BTreeMap<ReplicaId, Divergence>,
    /// How many signatures were checked, and how.
    pub checked: Checked,
    /// What the links dropped or lost, by reason. Empty without sockets.
    pub links: BTreeMap<&'static str, u64>,
    /// The other replicas. Empty without sockets.
    pub peers: Vec<PeerStatus>,
}

/// What a node wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a frame. It may be lost.
    Send {
        /// To whom.
        to: Principal,
        /// The frame.
        bytes: Bytes,
    },
}

/// One replica: all stages, run by its caller. The same stages as on threads, and what the
/// simulator runs.
///
/// Hand in frames and timeouts, call [`Self::step`], and send what [`Self::poll_output`] gives.
/// After an error it must not be used any more.
pub struct Node<S, P: Protocol = Pbft> {
    stages: Stages<P>,
    output: VecDeque<Output>,
    commits: Commits,
    failed: Option<NodeError>,
    _home: S,
}

impl<S: Home + 'static, P: ProtocolKind> Node<S, P> {
    /// Opens a replica on its files, fresh or where it stopped.
    ///
    /// # Errors
    /// When its files are damaged or cannot be read, or the settings make no sense.
    pub fn open(
        settings: NodeSettings,
        home: S,
        executor: impl Into<Box<dyn Executor>>,
        now: Instant,
    ) -> Result<Self, NodeError> {
        let stages = Stages::open(&settings, &home, executor, now)?;
        Ok(Self::new(stages, home, settings.durability))
    }
}

impl<S: Home + 'static, P: Protocol> Node<S, P> {
    /// As [`Node::open`], with the protocol that `make` gives.
    ///
    /// # Errors
    /// As [`Node::open`], and when `make` fails.
    pub fn with_protocol(
        settings: NodeSettings,
        home: S,
        executor: impl Into<Box<dyn Executor>>,
        now: Instant,
        make: impl FnOnce(Signer, Recovery) -> Result<P, NodeError>,
    ) -> Result<Self, NodeError> {
        let stages = Stages::with_protocol(&settings, &home, executor, now, make)?;
        Ok(Self::new(stages, home, settings.durability))
    }

    fn new(stages: Stages<P>, home: S, durability: Durability) -> Self {
        let (output, commits) = (VecDeque::new(), Commits::new(durability));
        Self { stages, output, commits, failed: None, _home: home }
    }

    /// Says when its log commits from now on, and how long that takes. Without, all that waits is
    /// committed in the step in which it came.
    pub fn set_disk_pace(&mut self, pace: Box<dyn DiskPace>) {
        self.commits.set_pace(pace);
    }

    /// Takes a frame that came from `from`. One with signatures is verified with others when
    /// enough have come, and in [`Self::step`]. What does not verify is dropped and counted.
    pub fn handle_frame(&mut self, from: Principal, bytes: &Bytes, now: Instant) {
        let Stages { order, outbox, .. } = &mut self.stages;
        if !order.reads() {
            return;
        }
        let mut result = order.handle_frame(from, bytes, now, outbox);
        // Each frame comes by itself here.
        order.flush();
        if result.is_ok() && order.must_verify(false, now) {
            result = order.verify(now, outbox);
        }
        self.note(result);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        // What came before may be what is waited for.
        let result = self.stages.verify(now);
        self.note(result);
        let result = self.stages.order.handle_timeout(now, &mut self.stages.outbox);
        self.note(result);
    }

    fn note(&mut self, result: Result<(), NodeError>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    /// The wall clock is so many microseconds ahead of the time that this node is handed.
    pub fn set_wall_clock(&mut self, ahead_micros: i64) {
        self.stages.order.set_wall_clock(ahead_micros);
    }

    /// When to call [`Self::handle_timeout`] and [`Self::step`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let commit = self.commits.deadline(&self.stages.log);
        self.stages.order.deadline().into_iter().chain(commit).min()
    }

    /// Runs all stages until none has anything left to do now. With [`Durability::Group`] what was
    /// written becomes durable when the time of its group is over: here a group gathers for all of
    /// that time.
    ///
    /// # Errors
    /// When the replica must stop.
    pub fn step(&mut self, now: Instant) -> Result<(), NodeError> {
        let result = self.stages.verify(now);
        self.note(result);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let result = self.stages.run(&mut self.commits, now);
        // What was let go before a failure is on its way, as it is with the stages on threads.
        let send = self.stages.outbox.send.drain(..);
        self.output.extend(send.map(|(to, bytes)| Output::Send { to, bytes }));
        result
    }

    /// The next thing to do for the node.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        self.stages.order.status()
    }

    /// The stages, to look at.
    #[must_use]
    pub fn stages(&self) -> &Stages<P> {
        &self.stages
    }
}

impl<P: Protocol> Stages<P> {
    /// Verifies all that waits for it.
    fn verify(&mut self, now: Instant) -> Result<(), NodeError> {
        while self.order.gathers() {
            self.order.verify(now, &mut self.outbox)?;
        }
        Ok(())
    }

    /// Runs all stages on this thread until nothing is left but frames to send, and what the log is to
    /// take or to commit later.
    ///
    /// # Errors
    /// When the replica must stop.
    fn run(&mut self, commits: &mut Commits, now: Instant) -> Result<(), NodeError> {
        // What an executor elsewhere has done meanwhile.
        self.execute.progress(&mut self.outbox)?;
        loop {
            let out: &mut Outbox = &mut self.outbox;
            if let Some(command) = out.execute.pop_front() {
                self.execute.handle(command, out)?;
            } else if let Some(message) = out.order.pop_front() {
                self.order.handle(message, now, out)?;
            } else if !out.log.is_empty() && commits.is_free() {
                commits.take(&mut self.log, out)?;
                commits.go_on(&mut self.log, out, now)?;
            } else if commits.go_on(&mut self.log, out, now)? {
            } else if let Some(removal) = out.removals.pop_front() {
                removal.run()?;
            } else if self.log.has_work() && commits.is_free() {
                self.log.work(out)?;
            } else {
                return Ok(());
            }
        }
    }
}
