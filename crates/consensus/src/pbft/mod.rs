//! PBFT (Castro and Liskov, OSDI'99; TOCS 2002) with signed view changes.
//!
//! `docs/protocol/pbft.md` states the protocol as numbered rules, each with its source and the
//! test that holds it; the code names the rules where it carries them out. In short:
//!
//! - **Normal case** (`normal`): the primary of view `v` = replica `v mod n` gives the next number
//!   to a batch and proposes it (PRE-PREPARE). A backup accepts one digest for each (view, number)
//!   and says so to all (PREPARE), as does the primary. On a quorum of those the batch is
//!   *prepared*, which each says to all (COMMIT). On a quorum of those it is *committed*: no other
//!   batch ever will be at that number. Committed batches are delivered in order.
//! - **Checkpoints** (`checkpoint`): after every K numbers each replica signs its state. A quorum
//!   of equal ones makes the checkpoint stable: everything up to it is forgotten, and the window of
//!   usable numbers moves up.
//! - **View change** (`view_change`, `selection`): a replica that waits too long leaves its view
//!   and says what it had prepared and accepted (VIEW-CHANGE). On a quorum of those the next
//!   primary begins the view (NEW-VIEW); what is proposed again is a function of those messages
//!   that everybody computes alike.
//! - **Room** (`room`): what is held above the stable checkpoint is bounded in bytes, too.
//! - **Retransmission** (`resend`): messages may be lost at any time. A replica that waits says
//!   where it stands, and the others send it again what it lacks.
//! - **Promises** (`record`): what a replica has said it must never contradict, not even after a
//!   crash. Every promise is recorded first and sent, and counted, when the record is durable. A
//!   proposal is none: it leaves at once, and a primary that starts again leaves its view.

mod checkpoint;
mod handed_on;
mod learner;
mod message;
mod normal;
mod record;
mod resend;
mod room;
mod selection;
mod slot;
mod view_change;

pub use message::{
    Claimed, PbftMessage, Report, SignedNewView, SignedViewChange, Standing, ViewChange,
};
pub use record::RecoverError;
pub use selection::{Selection, select};
pub(crate) use slot::MAX_PREPREPARED;

use crate::pool::Admission;
use crate::{
    Delivery, Effect, Event, Evidence, Floor, HostVotes, Instant, Learning, MAX_PACKAGE, PersistId,
    Phase, Protocol, RequestPool, Settings, Status, Vote, VoteTable,
};
use bytes::Bytes;
use handed_on::HandedOn;
use learner::Learner;
use record::Record;
use slot::Slot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::Signer;
use tercio_types::zoo::{Defence, Mutant, mutated, stands};
use tercio_types::{
    CertifiedCheckpoint, Checkpoint, ClientId, Digest, Height, Membership, Package, Principal,
    ReplicaId, ReplicaSet, RequestSeq, RequestWindow, SeqNum, SignatureBytes, Suite, Timestamp,
    View,
};
use tercio_wire::reject::Reason;
use tercio_wire::{Encode, EncodedBatch, Kind, package_len};

/// What a replica brings along from before a restart. The default is a fresh start.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The records of the write-ahead log, in order.
    pub records: Vec<Bytes>,
    /// Whether there are none because the log was lost: the replica may have promised anything.
    pub lost_log: bool,
    /// The latest checkpoint certificate that was kept.
    pub stable: Option<CertifiedCheckpoint>,
    /// The last number that the executed state reflects.
    pub delivered: SeqNum,
    /// Which of each client's requests are done in that state.
    pub windows: BTreeMap<ClientId, RequestWindow>,
}

/// A promise whose record is not durable yet: what follows when it is.
#[derive(Clone, Debug)]
enum Promise {
    /// Vote PREPARE.
    Prepare { view: View, seq: SeqNum, digest: Digest },
    /// Vote COMMIT.
    Commit { view: View, seq: SeqNum, digest: Digest },
    /// Say VIEW-CHANGE.
    Leave(Arc<SignedViewChange>),
    /// Say NEW-VIEW and propose in the view, if it is ours.
    Enter(Arc<SignedNewView>),
    /// Propose in the first view, which begins without a NEW-VIEW.
    Lead,
    /// Sign this state, whose blocks are durable, and say CHECKPOINT.
    Checkpoint(Checkpoint),
}

/// One replica's part in PBFT.
pub struct Pbft<T: VoteTable = HostVotes> {
    me: ReplicaId,
    membership: Arc<Membership>,
    suite: Suite,
    signer: Signer,
    settings: Settings,

    // Where we are.
    view: View,
    /// Whether we have left all views below `view` and wait for it to begin.
    changing: bool,
    /// The low watermark: the stable checkpoint.
    low: SeqNum,
    stable: Option<Arc<CertifiedCheckpoint>>,
    delivered: SeqNum,
    /// The last number whose [`Event::Executed`] came.
    executed: SeqNum,
    /// Primary: whether we may propose in this view: it began since we started, and the log says
    /// so durably (rule P3).
    leads: bool,
    /// Primary: the next number to propose.
    next_seq: SeqNum,

    // What we hold.
    slots: BTreeMap<SeqNum, Slot>,
    votes: T,
    pool: RequestPool,
    /// Proposals one window above the high watermark, until it moves.
    parked: BTreeMap<SeqNum, (View, Arc<EncodedBatch>, Vec<ClientId>)>,
    /// Clients whose MACs count for nothing in this epoch.
    must_sign: BTreeSet<ClientId>,
    /// Requests whose tags fail for us and that others hand on.
    handed_on: HandedOn,

    // Checkpoints.
    own_checkpoints: BTreeMap<SeqNum, Checkpoint>,
    /// Each replica's latest signed states, bounded per replica.
    said_checkpoints: BTreeMap<ReplicaId, BTreeMap<SeqNum, (Checkpoint, SignatureBytes)>>,
    /// The highest number at which each replica signed our state, as far as that has put off rule T4.
    agreed_checkpoints: BTreeMap<ReplicaId, SeqNum>,
    /// A certificate above what we delivered.
    ahead: Option<Arc<CertifiedCheckpoint>>,
    /// The driver is fetching blocks up to here; nothing is delivered meanwhile.
    catching_up: Option<SeqNum>,
    attested: Height,
    said_attestations: BTreeMap<Height, BTreeMap<ReplicaId, (Digest, SignatureBytes)>>,

    /// Our log was lost, and we may not yet promise everything again.
    learner: Option<Learner>,

    // View changes.
    /// The latest VIEW-CHANGE of each replica.
    view_changes: BTreeMap<ReplicaId, Arc<SignedViewChange>>,
    /// Our own VIEW-CHANGE for the view that we wait for.
    leaving: Option<Arc<SignedViewChange>>,
    /// What began the view we are in, to show to others.
    new_view: Option<Arc<SignedNewView>>,
    /// View changes in a row without a delivery between them: the timeout's exponent.
    failed_views: u32,
    entered_views: u64,

    // Time.
    /// That of the last event.
    now: Instant,
    /// View change: when the next primary has had its time. Runs once a quorum has left.
    view_deadline: Option<Instant>,
    /// Primary: when the waiting requests go out though the batch is small.
    batch_deadline: Option<Instant>,
    status_deadline: Instant,
    /// `delivered` at the last status, to see whether it moves.
    delivered_at_status: SeqNum,
    /// Since when nothing was delivered.
    idle_since: Instant,
    /// When we entered the view.
    entered_at: Instant,
    /// The last number after which a checkpoint was due.
    last_checkpoint: SeqNum,
    /// Primary: bytes proposed since a checkpoint was due; when a view begins, as many as bring one
    /// (rule C5), since nobody knows what became of those that were due before.
    uncovered_bytes: usize,
    /// How long the batches are that are delivered and held, since no stable checkpoint covers them.
    delivered_bytes: usize,
    /// A proposal is with the application.
    building: bool,
    candidates: Vec<Package>,
    /// When each replica was last sent what it lacked.
    helped: BTreeMap<ReplicaId, Instant>,
    /// How many bodies each replica was sent since when.
    bodies_given: BTreeMap<ReplicaId, (Instant, u64)>,

    // What we do.
    effects: VecDeque<Effect<PbftMessage>>,
    promises: VecDeque<(PersistId, Promise)>,
    last_persist: PersistId,
    durable: PersistId,
    dropped: BTreeMap<&'static str, u64>,
}

impl Pbft {
    /// A replica that starts fresh or again. A restarted one repeats its promises.
    ///
    /// # Errors
    /// When the settings make no sense or the records are not of this protocol.
    pub fn new(
        me: ReplicaId,
        membership: Arc<Membership>,
        signer: Signer,
        settings: Settings,
        recovery: Recovery,
        now: Instant,
    ) -> Result<Self, RecoverError> {
        Self::with_votes(me, membership, signer, settings, recovery, HostVotes::default(), now)
    }
}

impl<T: VoteTable> Pbft<T> {
    /// As [`Pbft::new`], counting votes in a table of another kind.
    ///
    /// # Errors
    /// As [`Pbft::new`].
    pub fn with_votes(
        me: ReplicaId,
        membership: Arc<Membership>,
        signer: Signer,
        settings: Settings,
        mut recovery: Recovery,
        votes: T,
        now: Instant,
    ) -> Result<Self, RecoverError> {
        settings.check(&membership)?;
        assert!(membership.contains(me), "the configuration names a member");
        let windows = std::mem::take(&mut recovery.windows);
        let mut pbft = Self {
            me,
            suite: membership.suite(),
            signer,
            pool: RequestPool::new(settings.pool, windows, 2 * membership.f()),
            view: View(0),
            changing: false,
            low: SeqNum(0),
            stable: None,
            delivered: recovery.delivered,
            executed: recovery.delivered,
            leads: false,
            next_seq: recovery.delivered.next(),
            slots: BTreeMap::new(),
            votes,
            parked: BTreeMap::new(),
            must_sign: BTreeSet::new(),
            handed_on: HandedOn::default(),
            own_checkpoints: BTreeMap::new(),
            said_checkpoints: BTreeMap::new(),
            agreed_checkpoints: BTreeMap::new(),
            ahead: None,
            catching_up: None,
            attested: Height(0),
            said_attestations: BTreeMap::new(),
            learner: None,
            view_changes: BTreeMap::new(),
            leaving: None,
            new_view: None,
            failed_views: 0,
            entered_views: 0,
            now,
            view_deadline: None,
            batch_deadline: None,
            status_deadline: now + settings.status_interval,
            delivered_at_status: recovery.delivered,
            idle_since: now,
            entered_at: now,
            last_checkpoint: SeqNum(0),
            uncovered_bytes: 0,
            delivered_bytes: 0,
            building: false,
            candidates: Vec::new(),
            helped: BTreeMap::new(),
            bodies_given: BTreeMap::new(),
            effects: VecDeque::new(),
            promises: VecDeque::new(),
            last_persist: PersistId(0),
            durable: PersistId(0),
            dropped: BTreeMap::new(),
            settings,
            membership,
        };
        pbft.recover(&recovery)?;
        Ok(pbft)
    }

    fn primary(&self) -> ReplicaId {
        self.membership.primary(self.view)
    }

    fn is_primary(&self) -> bool {
        self.primary() == self.me
    }

    fn high(&self) -> SeqNum {
        SeqNum(self.low.0 + self.settings.window)
    }

    /// Rule W2: proposals and votes are kept for one window above the high watermark.
    fn is_above_watermark(&self, seq: SeqNum) -> bool {
        seq.0 > self.high().0 + self.settings.window && stands(Defence::F30Watermarks)
    }

    /// How long to wait for a primary, after so many failed in a row.
    fn timeout(&self) -> Duration {
        let doublings = self.failed_views.saturating_sub(1).min(20);
        let doubled = self.settings.view_timeout.saturating_mul(1 << doublings);
        doubled.min(self.settings.view_timeout_max)
    }

    /// The time that a primary proposes. No vote depends on it; execution makes it monotonic.
    fn proposed_time(&self) -> Timestamp {
        Timestamp(self.now.0 / 1000)
    }

    fn drop_message(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn evidence(&mut self, evidence: Evidence) {
        self.drop_message(evidence.reason());
        self.effects.push_back(Effect::Evidence(evidence));
    }

    fn broadcast(&mut self, message: PbftMessage) {
        self.effects.push_back(Effect::Broadcast(message));
    }

    fn send(&mut self, to: ReplicaId, message: PbftMessage) {
        self.effects.push_back(Effect::Send { to, message });
    }

    /// Names what the log is given next.
    fn next_persist(&mut self) -> PersistId {
        self.last_persist = PersistId(self.last_persist.0 + 1);
        self.last_persist
    }

    /// Records something; what it promises follows when the record is durable.
    fn persist(&mut self, record: &Record, promise: Option<Promise>) {
        let (id, tag) = (self.next_persist(), record.tag());
        self.effects.push_back(Effect::Persist { id, tag, record: record.to_bytes() });
        let Some(promise) = promise else { return };
        if stands(Defence::F04PersistBeforeSend) {
            self.promises.push_back((id, promise));
        } else {
            // The broken order that the zoo shows: say it, then write it.
            let written = self.effects.pop_back();
            self.keep(promise);
            self.effects.extend(written);
        }
    }

    fn on_persisted(&mut self, id: PersistId) {
        assert!(id <= self.last_persist, "the log acknowledges only what it was given");
        self.durable = self.durable.max(id);
        while self.promises.front().is_some_and(|(id, _)| *id <= self.durable) {
            let (_, promise) = self.promises.pop_front().expect("just seen");
            self.keep(promise);
        }
    }

    /// Rule P1: a promise is sent, and counted, once its record is durable.
    fn keep(&mut self, promise: Promise) {
        match promise {
            Promise::Prepare { view, seq, digest } if self.is_current(view) && seq > self.low => {
                self.say_prepare(view, seq, digest);
            }
            Promise::Commit { view, seq, digest } if self.is_current(view) && seq > self.low => {
                self.broadcast(PbftMessage::Commit { view, seq, digest });
                self.count(self.me, Vote { phase: Phase::Commit, view, seq, digest });
            }
            // We have left that view meanwhile, or the number is done.
            Promise::Prepare { .. } | Promise::Commit { .. } => {}
            Promise::Leave(view_change) => {
                self.broadcast(PbftMessage::ViewChange(view_change.clone()));
                self.on_own_view_change(view_change);
            }
            Promise::Enter(new_view) => {
                if new_view.sender == self.me {
                    self.leads |= self.is_current(new_view.view);
                    self.broadcast(PbftMessage::NewView(new_view));
                }
            }
            Promise::Lead => self.leads |= self.is_current(View(0)),
            Promise::Checkpoint(checkpoint) => self.say_checkpoint(checkpoint),
        }
    }

    fn is_current(&self, view: View) -> bool {
        view == self.view && !self.changing || mutated(Mutant::VotesAfterLeaving)
    }

    fn on_request(&mut self, package: Package, from_client: bool) {
        let (client, first, count) = (package.client, package.first, package.ops.len());
        // A replica can hand on a longer one than its client could send us.
        if package_len(&package) > MAX_PACKAGE {
            return self.drop_message("package_too_long");
        }
        if !package.is_signed() && self.must_sign.contains(&client) {
            self.effects.push_back(Effect::Decline { client, first, reason: Reason::MustSign });
            return;
        }
        // A copy to hand on shares the package's bytes.
        let copy = (from_client && !self.is_primary()).then(|| package.clone());
        let admission = self.pool.admit(package, self.now);
        if from_client && admission == Admission::Known {
            self.pool.sent_again((client, first), self.now);
        }
        match admission {
            Admission::Done => self.effects.push_back(Effect::Repeat { client, first, count }),
            Admission::Full => {
                self.effects.push_back(Effect::Decline { client, first, reason: Reason::Busy });
            }
            Admission::New | Admission::Known if self.is_primary() => {}
            // The client turned to us: either it does not know the primary, or the primary does
            // not answer it.
            Admission::New | Admission::Known => {
                if let Some(package) = copy.filter(|_| !self.changing) {
                    self.effects.push_back(Effect::Forward { to: self.primary(), package });
                }
            }
        }
    }

    /// Rule A4: who hands a request on says that the client's tag is good for it. Of f+1 that hand
    /// on a request whose tag fails for us, one is correct.
    fn on_forwarded(&mut self, from: Principal, package: Package, doubted: bool) {
        let Principal::Replica(from) = from else {
            return self.drop_message("not_from_a_replica");
        };
        let weak = self.membership.weak_quorum();
        if doubted && self.handed_on.note(from, &package, self.suite) < weak {
            return self.drop_message("forwarded_bad_mac");
        }
        self.on_request(package.clone(), false);
        self.pool.vouch(&package, from, self.ago(self.timeout() / 2));
    }

    /// The time that lies so far back.
    fn ago(&self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.now.0.saturating_sub(nanos))
    }

    fn on_timeout(&mut self) {
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= self.now);
        let (batch, checkpoint) = (due(self.batch_deadline), due(self.checkpoint_deadline()));
        self.check_view_timers();
        if batch {
            self.batch_deadline = None;
            self.propose_batch();
        }
        if checkpoint {
            self.propose_checkpoint();
        }
        if self.status_deadline <= self.now {
            self.on_status_tick();
        }
    }

    fn on_message(&mut self, from: ReplicaId, message: PbftMessage, doubts: &[ClientId]) {
        match message {
            PbftMessage::PrePrepare { view, seq, batch } => {
                self.on_pre_prepare(from, view, seq, batch, doubts);
            }
            PbftMessage::Prepare { view, seq, digest } => {
                self.on_vote(from, Vote { phase: Phase::Prepare, view, seq, digest });
            }
            PbftMessage::Commit { view, seq, digest } => {
                self.on_vote(from, Vote { phase: Phase::Commit, view, seq, digest });
            }
            PbftMessage::Checkpoint { checkpoint, signature } => {
                self.on_checkpoint(from, checkpoint, signature);
            }
            PbftMessage::Attest { height, block, signature } => {
                self.on_attest(from, height, block, signature);
            }
            PbftMessage::ViewChange(view_change) => self.on_view_change(from, view_change),
            PbftMessage::NewView(new_view) => self.on_new_view(new_view),
            PbftMessage::Status(standing) => self.on_status(from, standing),
            PbftMessage::FetchBody { seq, digest } => self.on_fetch_body(from, seq, digest),
            PbftMessage::Body { seq, batch } => self.on_body(seq, batch),
            PbftMessage::Stable(certificate) => self.on_certificate(certificate),
            PbftMessage::Learn { nonce } => self.on_learn(from, nonce),
            PbftMessage::Report(report) => self.on_report(from, report),
        }
    }
}

impl<T: VoteTable> Protocol for Pbft<T> {
    type Message = PbftMessage;

    fn handle(&mut self, event: Event<PbftMessage>, now: Instant) {
        self.now = self.now.max(now);
        match event {
            Event::Message(message) => {
                let doubts = message.doubts().to_vec();
                let received = message.into_inner();
                match received.sender() {
                    Principal::Replica(from) if from != self.me => {
                        self.on_message(from, received.message, &doubts);
                    }
                    _ => self.drop_message("not_from_a_replica"),
                }
            }
            Event::Request(request) => {
                self.on_request(request.into_inner().message.0, true);
            }
            Event::Forwarded(forward) => {
                let doubted = !forward.doubts().is_empty();
                let received = forward.into_inner();
                let from = received.sender();
                self.on_forwarded(from, received.message.0, doubted);
            }
            Event::Counted { vote, voters } => {
                voters.iter().for_each(|voter| self.on_vote(voter, vote));
            }
            Event::Timeout => self.on_timeout(),
            Event::Persisted(id) => self.on_persisted(id),
            Event::Executed { seq, block, checkpoint } => self.on_executed(seq, block, checkpoint),
            Event::Proposal(keep) => self.on_proposal(&keep),
            Event::Verdict { seq, digest, accept } => self.on_verdict(seq, digest, accept),
            Event::CaughtUp { certificate, windows } => self.on_caught_up(certificate, windows),
        }
        // Whatever it was, it may have completed a quorum, freed the window or filled a batch.
        self.deliver_committed();
        self.propose();
        self.see_whether_learnt();
    }

    fn poll_effect(&mut self) -> Option<Effect<PbftMessage>> {
        self.effects.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let primary_only = if self.is_primary() && !self.changing {
            [self.batch_deadline, self.checkpoint_deadline()]
        } else {
            [None, None]
        };
        [
            Some(self.status_deadline),
            self.view_deadline,
            self.request_deadline(),
            self.uncovered_deadline(),
            self.unvouched_deadline(),
            self.forward_deadline(),
        ]
        .into_iter()
        .chain(primary_only)
        .flatten()
        .min()
    }

    fn view(&self) -> View {
        self.view
    }

    fn turns_away(&mut self, client: ClientId, first: RequestSeq) -> Option<Duration> {
        self.pool.turns_away(client, first)
    }

    fn passes_over(&mut self, kind: Kind, seq: SeqNum) -> bool {
        let is = message::is_of_a_slot(kind) && self.is_above_watermark(seq);
        if is {
            self.drop_message("above_watermark");
        }
        is
    }

    fn ahead(&self) -> Option<Arc<CertifiedCheckpoint>> {
        self.ahead.clone()
    }

    fn retry_after(&self) -> Duration {
        self.pool.retry_after()
    }

    fn status(&self) -> Status {
        Status {
            view: self.view,
            changing: self.changing,
            primary: self.primary(),
            delivered: self.delivered,
            stable: self.low,
            pending: self.pool.len(),
            slots: self.slots.len() + self.parked.len(),
            batch_bytes: self.bytes_in_memory(),
            votes: self.votes.len(),
            checkpoints: self.said_checkpoints.values().map(BTreeMap::len).sum(),
            view_changes: self.entered_views,
            oldest_pending: self.pool.oldest_arrival(),
            progress_at: self.idle_since,
            waiting: self.waiting_for(),
            learning: self.learner.as_ref().map(Learner::status),
            dropped: self.dropped.clone(),
        }
    }
}
