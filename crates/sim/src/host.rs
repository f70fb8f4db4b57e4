//! A simulated machine: a disk, and a replica that runs on it, or has stopped.

use crate::actors::{Actor, Stage};
use crate::checks::Held;
use crate::halting::{Halt, Halting};
use crate::pace::{Pace, SeededPace};
use crate::witness::{Journal, Witness};
use crate::{Cast, Disk, Forger, Rng, Tear, WorldSettings};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{Instant, Protocol, ProtocolKind, Settings, Status};
use tercio_execution::Executor;
use tercio_ledger::{BlockLogSettings, MediaFault, WalSettings};
use tercio_replica::{
    Durability, LedgerSettings, NoLog, Node, NodeError, NodeSettings, NodeStatus, Output,
};
use tercio_sync::SyncSettings;
use tercio_types::{ClientId, Principal, ReplicaId, RequestSeq};

/// How a machine goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed; the page cache stays.
    Kill,
    /// The power fails now.
    Power,
    /// The power fails after this many more changes to the disk: between an append and its sync, or
    /// in the midst of a recovery.
    PowerAfter(u64),
    /// After this many more changes to the disk one fails; a failed sync drops what it should have
    /// written. The replica must stop by itself.
    DiskFailsAfter(u64),
    /// The disk is full after this many more bytes. The replica must stop by itself.
    DiskFullAfter(u64),
}

/// How long the header of a segment of the block log is, in bytes (`docs/format-disk.md`).
const SEGMENT_HEADER: u64 = 96;

/// Files so small that a short run closes and prunes some.
fn small_files(forgetful: bool) -> LedgerSettings {
    let retain_bytes = if forgetful { 1 } else { u64::MAX };
    let blocks_per_segment = if forgetful { 4 } else { 16 };
    LedgerSettings {
        wal: WalSettings { file_bytes: 16 << 10, ahead_bytes: 256 },
        blocks: BlockLogSettings {
            blocks_per_segment,
            retain_bytes,
            ..BlockLogSettings::default()
        },
    }
}

/// A machine.
pub struct Host<P: Protocol = Pbft> {
    id: ReplicaId,
    node: Option<Node<Disk, P>>,
    disk: Disk,
    journal: Journal,
    halt: Halt,
    actor: Option<Box<dyn Actor>>,
    /// How far its clock is ahead of the time of the world, in microseconds.
    clock: i64,
    /// Whether its disk's medium has failed.
    hit: bool,
    /// Whether its write-ahead log was damaged, so that it may do anything.
    distrusted: bool,
    /// Made when it is needed: deriving keys takes a while.
    forger: Option<Forger>,
    rng: Rng,
    /// When the replica wants to be woken; no earlier than just after it was woken last.
    due: Option<Instant>,
    /// Whether it has run before, so that a disk without a log is one that was lost.
    ran: bool,
    tear: Option<Tear>,
    torn: u64,
    settings: Settings,
    lag: u16,
    forgetful: bool,
    durability: Durability,
    /// How its disk keeps pace; without, everything is durable at once.
    pace: Option<Pace>,
    /// Commits that fell between two commands of one step.
    split_commits: Arc<AtomicU64>,
    cast: Arc<Cast>,
}

impl<P: ProtocolKind> Host<P> {
    /// A machine with an empty disk, on which nothing runs yet.
    #[must_use]
    pub fn new(cast: &Arc<Cast>, id: ReplicaId, world: &WorldSettings, rng: Rng) -> Self {
        Self {
            id,
            node: None,
            disk: Disk::new(),
            journal: Journal::default(),
            halt: Halt::default(),
            actor: None,
            clock: 0,
            hit: false,
            distrusted: false,
            forger: None,
            rng,
            due: None,
            ran: false,
            tear: None,
            torn: 0,
            settings: world.consensus.clone(),
            lag: world.lag,
            forgetful: world.forgetful,
            durability: world.group.map_or(Durability::Sync, Durability::Group),
            pace: world.pace,
            split_commits: Arc::default(),
            cast: cast.clone(),
        }
    }

    /// Which replica.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Makes the replica Byzantine.
    pub fn corrupt(&mut self, actor: Box<dyn Actor>) {
        self.actor = Some(actor);
        self.forger = Some(Forger::new(&self.cast, self.id));
    }

    /// Whether it does what a correct replica does.
    #[must_use]
    pub fn is_correct(&self) -> bool {
        self.actor.is_none() && !self.distrusted
    }

    /// Expects anything of it from now on, though nobody is behind that.
    pub fn distrust(&mut self) {
        self.distrusted = true;
    }

    /// Whether what it says when it stops, or does not start, is right of a replica whose disk's
    /// medium failed, so that its operator has to put an empty one in: its write-ahead log is damaged,
    /// or the header of a segment of its block log; or blocks are, and others have released them.
    #[must_use]
    pub fn is_beyond_repair(&self, said: &str) -> bool {
        let at = said.split_once("damaged at byte ").map(|(_, rest)| rest);
        let at = at.and_then(|rest| rest.split([':', ' ']).next()?.parse::<u64>().ok());
        let log = self.distrusted && said.contains("wal-") && at.is_some();
        let header = said.contains("blocks-") && at.is_some_and(|at| at < SEGMENT_HEADER);
        let gone = self.forgetful && said.contains("no other replica has whole copies");
        log || self.hit && (header || gone)
    }

    /// The medium of its disk fails in a file that `hits` picks.
    pub fn media_fault(
        &mut self,
        fault: MediaFault,
        hits: impl Fn(&str) -> bool,
    ) -> Option<(String, Range<usize>)> {
        let found = self.disk.media_fault(fault, hits, &mut self.rng);
        self.hit |= found.is_some();
        found
    }

    /// How far above its low watermark the replica votes.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.settings.window
    }

    /// What kind of Byzantine replica it is.
    #[must_use]
    pub fn role(&self) -> Option<&'static str> {
        self.actor.as_ref().map(|actor| actor.name())
    }

    /// Whether a replica runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.node.is_some()
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Puts another disk in. The machine must be down.
    pub fn replace_disk(&mut self, disk: Disk) {
        assert!(!self.is_up(), "the machine runs");
        self.disk = disk;
    }

    /// Gives the replica settings of its own, from its next start on. The machine must be down.
    pub fn set_consensus(&mut self, settings: Settings) {
        assert!(!self.is_up(), "the machine runs");
        self.settings = settings;
    }

    /// Where the replica says it stands, if it runs.
    #[must_use]
    pub fn status(&self) -> Option<NodeStatus> {
        self.node.as_ref().map(Node::status)
    }

    /// How much the replica keeps, if it runs.
    #[must_use]
    pub fn held(&self) -> Option<Held> {
        let status = self.status()?;
        let Status { slots, batch_bytes, votes, checkpoints, pending, .. } = status.protocol;
        Some(Held { slots, batch_bytes, votes, checkpoints, pending })
    }

    /// What the application was made to do since the last call.
    #[must_use]
    pub fn deeds(&self) -> Vec<crate::witness::Deed> {
        self.journal.take()
    }

    /// Damages what the application's memory has of one operation, until the next start.
    pub fn damage_memory(&self, client: ClientId, seq: RequestSeq) {
        self.journal.damage(client, seq);
    }

    /// Halts execution, and lets it go on.
    #[must_use]
    pub fn halt(&self) -> &Halt {
        &self.halt
    }

    /// Starts the replica from what is on the disk.
    ///
    /// # Errors
    /// When it refuses to start.
    pub fn start(&mut self, now: Instant) -> Result<(), NodeError> {
        assert!(!self.is_up(), "it runs");
        let forgets = self.actor.as_ref().is_some_and(|actor| actor.forgets());
        if forgets {
            self.disk = Disk::new();
        }
        let secret = self.cast.secret(Principal::Replica(self.id)).clone();
        let settings = NodeSettings {
            consensus: self.settings.clone(),
            lag: self.lag,
            ledger: small_files(self.forgetful),
            durability: self.durability,
            snapshot_every: 2,
            sync: SyncSettings { timeout: Duration::from_millis(200), ..SyncSettings::default() },
            no_log: if self.ran && !forgets { NoLog::Lost } else { NoLog::Fresh },
            ..NodeSettings::new(self.id, secret, self.cast.membership().clone())
        };
        self.journal = Journal::default();
        let app = Box::new(Witness::new(self.journal.clone(), self.cast.suite()));
        let executor: Box<dyn Executor> = Box::new(Halting::new(app, self.halt.clone()));
        let node = Node::open(settings, self.disk.clone(), executor, now)?;
        self.due = node.deadline();
        self.node = Some(node);
        self.set_clock(self.clock);
        self.keep_pace();
        self.ran = true;
        Ok(())
    }

    /// Says what the next power failure leaves, instead of leaving it to chance.
    pub fn tear(&mut self, tear: Tear) {
        self.tear = Some(tear);
    }

    /// Takes the machine down.
    pub fn stop(&mut self, how: Crash) {
        self.node = None;
        self.due = None;
        match (how, self.tear.take()) {
            (Crash::Kill, _) => self.disk.kill(),
            (_, Some(tear)) => self.torn = self.disk.crash_torn(tear),
            (_, None) => self.disk.crash(&mut self.rng),
        }
    }

    /// How many unsynced bytes the last power failure met that [`Self::tear`] was said for.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// From now on its clock is so many microseconds ahead of the time of the world.
    pub fn set_clock(&mut self, ahead_micros: i64) {
        self.clock = ahead_micros;
        if let Some(node) = &mut self.node {
            node.set_wall_clock(ahead_micros);
        }
    }

    /// From now on its disk keeps this pace.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = Some(pace);
        self.keep_pace();
    }

    fn keep_pace(&mut self) {
        if let (Some(pace), Some(node)) = (self.pace, &mut self.node) {
            let split = self.split_commits.clone();
            node.set_disk_pace(Box::new(SeededPace::new(pace, self.rng.fork(), split)));
        }
    }

    /// How many commits fell between two commands of one step.
    #[must_use]
    pub fn split_commits(&self) -> u64 {
        self.split_commits.load(Ordering::Relaxed)
    }

    /// When [`Self::wake`] is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The actor, and what it has at hand; what it sends goes to `out`.
    fn stage<'a>(
        &'a mut self,
        out: &'a mut Vec<(Principal, Bytes)>,
    ) -> Option<(&'a mut Box<dyn Actor>, Stage<'a>)> {
        let actor = self.actor.as_mut()?;
        let forger = self.forger.as_mut().expect("made with the actor");
        Some((actor, Stage { forger, rng: &mut self.rng, out }))
    }

    /// A frame arrived; gives what a Byzantine replica sends at once.
    pub fn receive(
        &mut self,
        from: Principal,
        bytes: &Bytes,
        now: Instant,
    ) -> Vec<(Principal, Bytes)> {
        let mut out = Vec::new();
        if self.node.is_none() {
            return out;
        }
        let heard = match self.stage(&mut out) {
            Some((actor, mut stage)) => actor.receive(from, bytes, &mut stage),
            None => true,
        };
        if let Some(node) = self.node.as_mut().filter(|_| heard) {
            node.handle_frame(from, bytes, now);
        }
        out
    }

    /// Time has come.
    pub fn wake(&mut self, now: Instant) {
        if let Some(node) = &mut self.node {
            node.handle_timeout(now);
        }
    }

    /// Lets the replica work off what it has; gives what it wants to send, and what stopped it if
    /// something did.
    pub fn work(&mut self, now: Instant) -> (Vec<(Principal, Bytes)>, Result<(), NodeError>) {
        let mut wanted = Vec::new();
        let Some(node) = &mut self.node else { return (wanted, Ok(())) };
        let outcome = node.step(now);
        while let Some(Output::Send { to, bytes }) = node.poll_output() {
            wanted.push((to, bytes));
        }
        // Just after now at the earliest, so that time goes on whatever the replica wants.
        self.due = node.deadline().map(|at| at.max(Instant(now.0 + 1_000)));
        (wanted, outcome)
    }

    /// What a Byzantine replica makes of what the replica underneath wants to send.
    pub fn act(&mut self, wanted: Vec<(Principal, Bytes)>) -> Vec<(Principal, Bytes)> {
        if self.actor.is_none() {
            return wanted;
        }
        let mut out = Vec::new();
        for (to, bytes) in wanted {
            if let Some((actor, mut stage)) = self.stage(&mut out) {
                actor.send(to, bytes, &mut stage);
            }
        }
        out
    }
}
