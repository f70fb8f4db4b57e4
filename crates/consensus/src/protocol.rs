//! The contract between an ordering protocol and its driver.

use crate::votes::Vote;
use crate::{BatchStep, Phase, PoolLimits, ViewStep};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::{Counted, Verified};
use tercio_types::{
    CertifiedCheckpoint, Checkpoint, CheckpointField, ClientId, Digest, Height, Membership,
    Package, ReplicaId, ReplicaSet, RequestSeq, RequestWindow, SeqNum, SignatureBytes, View,
};
use tercio_wire::{EncodedBatch, Forward, Kind, MAX_FRAME, Message, Received, Request};
use thiserror::Error;

/// The longest package that is taken in, from whomever, in bytes of its encoding: 8 MiB. A batch of it
/// alone must fit everything that carries batches.
pub const MAX_PACKAGE: usize = 8 << 20;

/// The longest batch that is accepted, in bytes of its encoding: a MiB less than a frame. Whoever asks
/// for the block gets header and certificate with it in one frame.
pub const MAX_BATCH: usize = MAX_FRAME - (1 << 20);

/// A point in time: nanoseconds since the Unix epoch as the driver reckons it. It never goes back:
/// a driver reads the wall clock once and a monotonic clock from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to here; zero when it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// Names a record given to the write-ahead log. Ids ascend; when one is durable, so are all
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PersistId(pub u64);

/// What happens to a protocol.
#[derive(Clone, Debug)]
pub enum Event<M> {
    /// A replica's message.
    Message(Verified<Received<M>>),
    /// A package from its client.
    Request(Verified<Received<Request>>),
    /// A client's package that another replica forwarded.
    Forwarded(Verified<Received<Forward>>),
    /// Votes that the verify stage counted (on a network card) before they came here.
    Counted(Counted<Vote>),
    /// [`Protocol::deadline`] has passed.
    Timeout,
    /// All records up to this one are durable.
    Persisted(PersistId),
    /// A delivered batch was executed.
    Executed {
        /// Its number.
        seq: SeqNum,
        /// The block that it made, if it made one.
        block: Option<(Height, Digest)>,
        /// The state after it, when the delivery asked for a checkpoint.
        checkpoint: Option<Checkpoint>,
    },
    /// Answers [`Effect::BuildProposal`]: the indices of the packages to keep, in order.
    Proposal(Vec<usize>),
    /// Answers [`Effect::ValidateProposal`].
    Verdict {
        /// The number that it was proposed for.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
        /// Whether to vote for it.
        accept: bool,
    },
    /// State was brought up to this certified checkpoint by other means than delivery.
    CaughtUp {
        /// Where it stands now.
        certificate: Arc<CertifiedCheckpoint>,
        /// Which of each client's requests are done there.
        windows: BTreeMap<ClientId, RequestWindow>,
    },
}

/// An ordered batch, handed to the application's side once and in order.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its number: one above the last.
    pub seq: SeqNum,
    /// The batch; `None` for a null request, which makes no block.
    pub batch: Option<Arc<EncodedBatch>>,
    /// Whether [`Event::Executed`] must carry a checkpoint.
    pub checkpoint: bool,
}

/// What a protocol wants done.
#[derive(Clone, Debug)]
pub enum Effect<M> {
    /// Send to one replica. May be lost.
    Send {
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: M,
    },
    /// Send to all other replicas. May be lost.
    Broadcast(M),
    /// Append to the write-ahead log, and answer [`Event::Persisted`] once it is durable. What the
    /// record promises is not sent before that.
    Persist {
        /// Its id.
        id: PersistId,
        /// The sequence number up to which a stable checkpoint makes the record worthless; zero
        /// when the record of the next [`Effect::Stable`] replaces it.
        tag: SeqNum,
        /// The record.
        record: Bytes,
    },
    /// Make all blocks up to this height durable, and answer [`Event::Persisted`] once they are, and
    /// all records before. What a signed checkpoint promises is not sent before that.
    PersistBlocks {
        /// Its id, one of the records'.
        id: PersistId,
        /// The height.
        height: Height,
    },
    /// Execute.
    Deliver(Delivery),
    /// A checkpoint is stable that was executed here. In this order, and durably: keep its
    /// certificate, with the blocks up to it; append the record to the write-ahead log, and answer
    /// [`Event::Persisted`] as for any other; drop the records whose tags are up to its number.
    /// Older snapshots may go.
    Stable {
        /// The certificate.
        certificate: Arc<CertifiedCheckpoint>,
        /// Names the record.
        id: PersistId,
        /// What binds the replica beyond the checkpoint, in the place of all records before.
        record: Bytes,
    },
    /// The network is ahead of what it can still hand us message by message: fetch the blocks up
    /// to this certificate, execute them, and answer [`Event::CaughtUp`].
    CatchUp(Arc<CertifiedCheckpoint>),
    /// Hand a package to another replica.
    Forward {
        /// The receiver.
        to: ReplicaId,
        /// The package.
        package: Package,
    },
    /// The package was delivered before: send the client its results again.
    Repeat {
        /// Whose.
        client: ClientId,
        /// Its first number.
        first: RequestSeq,
        /// How many operations it has.
        count: usize,
        /// Its digest: another package under these numbers has other results.
        digest: Digest,
    },
    /// Tell the client that its package is not taken.
    Decline {
        /// Whose.
        client: ClientId,
        /// Its first number.
        first: RequestSeq,
        /// Why.
        reason: tercio_wire::reject::Reason,
    },
    /// Let the application choose among these packages; answered by [`Event::Proposal`]. Only with
    /// [`Settings::proposal_hooks`].
    BuildProposal(Vec<Package>),
    /// Let the application look at a proposal before we vote; answered by [`Event::Verdict`]. Only
    /// with [`Settings::proposal_hooks`].
    ValidateProposal {
        /// The number that it is proposed for.
        seq: SeqNum,
        /// The batch.
        batch: Arc<EncodedBatch>,
    },
    /// A quorum signed this block.
    Attested {
        /// The block.
        height: Height,
        /// Its hash.
        block: Digest,
        /// Who signed, in ascending order.
        signatures: Vec<(ReplicaId, SignatureBytes)>,
    },
    /// Evidence that a replica or client broke the protocol.
    Evidence(Evidence),
    /// The replica left a view or entered one: told, with the cause, and nothing to be done.
    View(ViewStep),
}

/// How somebody broke the protocol. Of messages under MACs this is our own suspicion, which
/// convinces nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// A primary proposed two batches for one number of one view.
    Equivocation {
        /// The primary.
        replica: ReplicaId,
        /// The view.
        view: View,
        /// The number.
        seq: SeqNum,
        /// What was accepted, and what came after.
        digests: [Digest; 2],
    },
    /// A replica voted twice, differently.
    DoubleVote {
        /// The voter.
        replica: ReplicaId,
        /// Its later vote.
        vote: Vote,
        /// Its first vote's digest.
        first: Digest,
    },
    /// A message that no correct replica sends.
    Malformed {
        /// Its sender.
        replica: ReplicaId,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A quorum certified another state than ours: we are the ones who went wrong, and must stop.
    OwnStateDiffers {
        /// The number.
        seq: SeqNum,
        /// What differs first.
        what: CheckpointField,
    },
    /// A replica signed a state that differs from ours at the same number.
    Divergence {
        /// The other replica.
        replica: ReplicaId,
        /// The number.
        seq: SeqNum,
        /// What differs first.
        what: CheckpointField,
        /// The digest of the application's state that it signed.
        state: Digest,
    },
}

impl Evidence {
    /// Whom it names; nobody else than ourselves when there is none.
    #[must_use]
    pub fn replica(&self) -> Option<ReplicaId> {
        match self {
            Self::Equivocation { replica, .. }
            | Self::DoubleVote { replica, .. }
            | Self::Malformed { replica, .. }
            | Self::Divergence { replica, .. } => Some(*replica),
            Self::OwnStateDiffers { .. } => None,
        }
    }

    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Equivocation { .. } => "equivocation",
            Self::DoubleVote { .. } => "double_vote",
            Self::Malformed { why, .. } => why,
            Self::OwnStateDiffers { .. } => "own_state_differs",
            Self::Divergence { what, .. } => match what {
                CheckpointField::Height => "divergence_height",
                CheckpointField::Block => "divergence_block",
                CheckpointField::Results => "divergence_results",
                CheckpointField::State => "divergence_state",
                CheckpointField::Clients => "divergence_clients",
                CheckpointField::Membership => "divergence_membership",
                CheckpointField::Epoch => "divergence_epoch",
                CheckpointField::Time => "divergence_time",
            },
        }
    }
}

/// A message that a protocol waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The primary's proposal.
    PrePrepare,
    /// A vote for it.
    Vote(Phase),
    /// A replica's word that it leaves the view.
    ViewChange,
    /// The next primary's word that the new one begins.
    NewView,
    /// A message of another protocol, by its name there.
    Named(&'static str),
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrePrepare => "PRE-PREPARE",
            Self::Vote(Phase::Prepare) => "PREPARE",
            Self::Vote(Phase::Commit) => "COMMIT",
            Self::ViewChange => "VIEW-CHANGE",
            Self::NewView => "NEW-VIEW",
            Self::Named(name) => name,
        })
    }
}

/// Where a protocol stands, for people and dashboards.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Status {
    /// The view.
    pub view: View,
    /// Whether a view change runs.
    pub changing: bool,
    /// Who leads the view.
    pub primary: ReplicaId,
    /// The last delivered number.
    pub delivered: SeqNum,
    /// The stable checkpoint.
    pub stable: SeqNum,
    /// Packages that wait to be ordered.
    pub pending: usize,
    /// Sequence numbers that anything is held for, those above the high watermark included.
    pub slots: usize,
    /// How long the batches are that are held, in bytes of their encodings.
    pub batch_bytes: usize,
    /// Votes that are held.
    pub votes: usize,
    /// Signed states that are held.
    pub checkpoints: usize,
    /// How many views were entered after the first.
    pub view_changes: u64,
    /// When the oldest of them came.
    pub oldest_pending: Option<Instant>,
    /// When there was progress last: a number delivered or executed, a step towards a checkpoint.
    pub progress_at: Instant,
    /// How long a primary has for a request as things stand, long ones apart.
    pub patience: Duration,
    /// When the next number cannot move: what it waits for, and who has not sent it.
    pub waiting: Option<(Awaited, ReplicaSet)>,
    /// When its log was lost: what keeps it from voting.
    pub learning: Option<Learning>,
    /// How its clock differs from that of a primary, as of the last proposal that says so.
    pub clock: Option<ClockDifference>,
    /// Messages dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// How a replica's clock differs from a primary's: the time of a proposal, less its own when that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDifference {
    /// The primary.
    pub primary: ReplicaId,
    /// In microseconds: how far the primary's is ahead.
    pub micros: i64,
    /// Whether the replica would not vote for it of its own accord.
    pub refused: bool,
    /// Whether the proposal was decided.
    pub decided: bool,
}

/// Why a replica that lost its log does not vote yet (rules L1 to L6 of `docs/protocol/pbft.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// Who has reported where the network stands.
    pub reports: ReplicaSet,
    /// What it waits for, once a quorum has reported.
    pub floor: Option<Floor>,
}

/// Whatever a replica promised before it lost its log lies at or below this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The highest number that it can have voted at.
    pub seq: SeqNum,
    /// The highest view that it can have voted in.
    pub view: View,
}

impl fmt::Display for Learning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.floor {
            None => write!(
                f,
                "learner, since its log was lost: waits for a quorum's reports, has {}",
                self.reports.len()
            ),
            Some(Floor { seq, view }) => write!(
                f,
                "learner, since its log was lost: votes again in a view above {view}, and leaves \
                 views once number {seq} is stable"
            ),
        }
    }
}

/// Messages of these kinds with a number above [`Self::last`] are dropped, whatever they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Horizon {
    /// The kinds: those of a sequence number.
    pub kinds: &'static [Kind],
    /// The last number that is of use.
    pub last: SeqNum,
}

/// An ordering protocol.
pub trait Protocol: Send {
    /// What its replicas say to each other.
    type Message: Message + Clone + fmt::Debug + Send + 'static;

    /// Takes an event. Effects are to be polled before the next one.
    fn handle(&mut self, event: Event<Self::Message>, now: Instant);

    /// The wall clock is so many microseconds ahead of the time that events are handed with, which
    /// goes on steadily when the wall clock is set. Only what is proposed, and whether that is voted
    /// for, goes by it; no timer does.
    fn set_wall_clock(&mut self, ahead_micros: i64) {
        let _ = ahead_micros;
    }

    /// The next thing to do, in order; `None` when nothing is left.
    fn poll_effect(&mut self) -> Option<Effect<Self::Message>>;

    /// When to hand in [`Event::Timeout`]. Asked again after every event.
    fn deadline(&self) -> Option<Instant>;

    /// The view that it is in, or waits for: a hint for clients.
    fn view(&self) -> View;

    /// Where it stands, at length.
    fn status(&self) -> Status;

    /// Whether a new package of `client` would be declined for want of room as things stand, and
    /// after how long it may retry. Asked before a package is verified, so that declining
    /// costs little; it counts as declined then.
    fn turns_away(&mut self, client: ClientId, first: RequestSeq) -> Option<Duration> {
        let _ = (client, first);
        None
    }

    /// Whether no new package finds room, whosever it is. Published, so that no package is verified
    /// in vain.
    fn is_full(&self) -> bool {
        false
    }

    /// Which messages would be dropped for their number whatever they say. Published, so that none
    /// of them is verified.
    fn horizon(&self) -> Horizon {
        Horizon::default()
    }

    /// Whether a message of this kind with this number lies beyond the horizon; it counts as dropped
    /// then.
    fn passes_over(&mut self, kind: Kind, seq: SeqNum) -> bool {
        let _ = (kind, seq);
        false
    }

    /// The latest checkpoint above what is delivered that it knows a certificate of: whoever catches
    /// up need not go by all that were the latest before.
    fn ahead(&self) -> Option<Arc<CertifiedCheckpoint>> {
        None
    }

    /// The step of a batch that a replica takes by sending this message, and the batch's number; for
    /// probes.
    fn step_of(message: &Self::Message) -> Option<(BatchStep, SeqNum)>
    where
        Self: Sized,
    {
        let _ = message;
        None
    }

    /// A link to this replica is open again: what was on its way between the two may be lost. Asked
    /// for its deadline after that, the protocol may say where it stands, so that who is behind, on
    /// either side, is soon level.
    fn on_link(&mut self, peer: ReplicaId, now: Instant) {
        let _ = (peer, now);
    }

    /// After how long a client that was declined as too much may retry.
    fn retry_after(&self) -> Duration {
        Duration::from_millis(20)
    }
}

/// What may be tuned. Replicas of a network must agree on `checkpoint_interval` and `window`; the
/// others are each one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// K: a checkpoint follows every sequence number that K divides.
    pub checkpoint_interval: u64,
    /// The primary asks for one sooner when this many bytes of batches lie above the last: what
    /// lies above the stable checkpoint is kept in memory.
    pub checkpoint_bytes: usize,
    /// How many bytes of batches above the stable checkpoint are taken in (rule W4); a primary uses
    /// half of that.
    pub held_bytes: usize,
    /// How far numbers may run ahead of the stable checkpoint: the high watermark less the low.
    pub window: u64,
    /// The most operations in a batch.
    pub batch_ops: usize,
    /// The most bytes in a batch, unless a single package is larger.
    pub batch_bytes: usize,
    /// How long a request waits for company while batches are in flight. An idle primary does not
    /// wait at all.
    pub batch_time: Duration,
    /// How many batches may be in flight at once (a window of one: 1).
    pub pipeline: u64,
    /// Propose only on top of an executed batch.
    pub execute_before_propose: bool,
    /// Ask the application before proposing and before voting.
    pub proposal_hooks: bool,
    /// How long a request may wait for delivery before the primary is replaced; doubled for each
    /// view change in a row.
    pub view_timeout: Duration,
    /// Where the doubling ends.
    pub view_timeout_max: Duration,
    /// How often a replica that waits for something says where it stands, and so asks for what it
    /// missed.
    pub status_interval: Duration,
    /// How often an idle one does.
    pub idle_interval: Duration,
    /// After how much idleness a checkpoint covers the last batches.
    pub checkpoint_idle: Duration,
    /// Sign every block.
    pub attest: bool,
    /// How far a proposal's time may be ahead of a backup's clock (rule N8); any, when there is no
    /// bound. Replicas of a network agree on it.
    pub max_time_ahead: Option<Duration>,
    /// Bounds on requests that wait.
    pub pool: PoolLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            checkpoint_interval: 128,
            checkpoint_bytes: 2 << 20,
            held_bytes: 128 << 20,
            window: 512,
            batch_ops: 1024,
            batch_bytes: 256 << 10,
            batch_time: Duration::from_micros(500),
            pipeline: 8,
            execute_before_propose: false,
            proposal_hooks: false,
            view_timeout: Duration::from_millis(500),
            view_timeout_max: Duration::from_secs(30),
            status_interval: Duration::from_millis(50),
            idle_interval: Duration::from_millis(500),
            checkpoint_idle: Duration::from_secs(1),
            attest: false,
            max_time_ahead: None,
            pool: PoolLimits::default(),
        }
    }
}

/// The most digests that Q keeps for one number. A primary that equivocates in every view cannot
/// make the set grow; the entry of the oldest view goes first (thesis of Castro, section 3.2.4).
pub(crate) const MAX_PREPREPARED: usize = 6;

/// The least bound on the time of proposals: clocks that are kept in step differ by milliseconds.
const LEAST_TIME_AHEAD: Duration = Duration::from_millis(100);

/// Why settings make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{key}: {why}")]
pub struct SettingsError {
    /// The key.
    pub key: &'static str,
    /// What is wrong with its value.
    pub why: &'static str,
}

impl Settings {
    /// Checks the settings against each other and against the membership.
    ///
    /// # Errors
    /// Names the first key that makes no sense.
    pub fn check(&self, membership: &Membership) -> Result<(), SettingsError> {
        // The longest message is a NEW-VIEW: a quorum of VIEW-CHANGEs with full P and Q sets.
        let claims = self.window.saturating_mul(1 + MAX_PREPREPARED as u64);
        let new_view = (membership.quorum() as u64).saturating_mul(claims.saturating_mul(48));
        let checks = [
            (self.checkpoint_interval > 0, "checkpoint_interval", "must be at least 1"),
            (
                self.window >= self.checkpoint_interval.saturating_mul(2),
                "window",
                "must be at least twice checkpoint_interval, or ordering stops at each checkpoint",
            ),
            (
                self.window <= 1 << 16,
                "window",
                "must be at most 65536, since every replica keeps that many batches",
            ),
            (
                new_view <= (MAX_FRAME - (1 << 20)) as u64,
                "window",
                "is too large for so many replicas: a NEW-VIEW would not fit a frame",
            ),
            (
                self.held_bytes / 2 >= self.checkpoint_bytes.saturating_add(MAX_BATCH),
                "held_bytes",
                "must be at least twice checkpoint_bytes and the longest batch, 15 MiB, together, \
                 or ordering stops before a checkpoint is due",
            ),
            (self.batch_ops > 0, "batch_ops", "must be at least 1"),
            (self.batch_bytes <= 8 << 20, "batch_bytes", "must be at most 8388608 to fit a frame"),
            (self.pipeline > 0, "pipeline", "must be at least 1"),
            (!self.view_timeout.is_zero(), "view_timeout", "must be above 0"),
            (
                self.view_timeout_max >= self.view_timeout,
                "view_timeout_max",
                "must be at least view_timeout",
            ),
            (
                self.max_time_ahead.is_none_or(|bound| bound >= LEAST_TIME_AHEAD),
                "max_time_ahead_ms",
                "must be at least 100, since no two clocks are alike",
            ),
            (!self.status_interval.is_zero(), "status_interval", "must be above 0"),
        ];
        match checks.into_iter().find(|(good, ..)| !good) {
            Some((_, key, why)) => Err(SettingsError { key, why }),
            None => Ok(()),
        }
    }
}
