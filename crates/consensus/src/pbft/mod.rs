//! PBFT (Castro and Liskov, OSDI'99; TOCS 2002) with signed view changes.
//!
//! `docs/protocol/pbft.md` states the protocol as numbered rules, each with its source and the
//! test that holds it; the code names the rules where it carries them out. In short:
//!
//! - **Normal case** (`normal`): the primary of view `v`, the member at place `v mod n`, gives the next number
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
//!
//! Each part owns its fields, and is told what it needs of the others (`context`); what it wants
//! done it puts into the outbox or gives back. [`Pbft`] hands events to the parts; steps that move
//! several of them stand in `steps`, deadlines in `timers`, restarts in `recovery`.

mod agreed;
mod attest;
mod checkpoint;
mod context;
mod kind;
mod learner;
mod learning;
mod lone;
mod message;
mod normal;
mod outbox;
mod proposer;
mod reach;
mod record;
mod recovery;
mod requests;
mod resend;
mod selection;
mod steps;
mod timers;
mod trips;
mod view_change;

pub use crate::kind::{RecoverError, Recovery};
pub use agreed::{Decided, agreed_records};
pub use message::{
    Claimed, PbftMessage, Report, SignedNewView, SignedViewChange, Standing, ViewChange,
};
pub use selection::{Selection, select};
pub use trips::Echo;

use crate::{
    Awaited, BatchStep, Delivery, Effect, Event, Evidence, Floor, Horizon, HostVotes, Instant,
    Learning, LeaveCause, PersistId, Phase, Protocol, RequestPool, Settings, Status, ViewStep,
    Vote, VoteTable,
};
use attest::Attestations;
use bytes::Bytes;
use checkpoint::Checkpoints;
use context::{At, Config};
use learner::Learner;
use lone::Lone;
use normal::{Proposal, Slots};
use outbox::{Outbox, Promise};
use proposer::Proposer;
use reach::Reach;
use record::Record;
use requests::{Forwarded, Requests};
use resend::Resend;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::Signer;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{
    CertifiedCheckpoint, Checkpoint, ClientId, Digest, Height, Membership, Package, Principal,
    ReplicaId, ReplicaSet, RequestSeq, RequestWindow, SeqNum, SignatureBytes, Timestamp, View,
};
use tercio_wire::{EncodedBatch, Kind};
use timers::Full;
use trips::Trips;
use view_change::Views;

/// One replica's part in PBFT.
pub struct Pbft<T: VoteTable = HostVotes> {
    config: Config,
    /// The time of the last event.
    now: Instant,
    /// How far the wall clock is ahead of it, in microseconds.
    wall_ahead: i64,
    views: Views,
    slots: Slots<T>,
    proposer: Proposer,
    requests: Requests,
    checkpoints: Checkpoints,
    attestations: Attestations,
    learner: Learner,
    resend: Resend,
    full: Full,
    reach: Reach,
    trips: Trips,
    lone: Lone,
    out: Outbox,
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
        let pool = RequestPool::new(settings.pool, windows, 2 * membership.f());
        let config = Config { me, suite: membership.suite(), membership, signer, settings };
        let delivered = recovery.delivered;
        let mut pbft = Self {
            now,
            wall_ahead: 0,
            views: Views::new(now),
            slots: Slots::new(votes, delivered, now),
            proposer: Proposer::new(delivered.next()),
            requests: Requests::new(pool),
            checkpoints: Checkpoints::new(delivered),
            attestations: Attestations::default(),
            learner: Learner::new(now, recovery.height),
            resend: Resend::new(&config, delivered, now),
            full: Full::default(),
            reach: Reach::new(now),
            trips: Trips::default(),
            lone: Lone::default(),
            out: Outbox::default(),
            config,
        };
        pbft.recover(&recovery)?;
        Ok(pbft)
    }

    /// Where we stand now. Stale as soon as a part has changed.
    fn at(&self) -> At {
        let view = self.views.view();
        At {
            now: self.now,
            wall: Timestamp((self.now.0 / 1000).saturating_add_signed(self.wall_ahead)),
            view,
            changing: self.views.is_changing(),
            entered: self.views.last_entered(),
            may_vote: self.learner.may_vote(view),
            executed: self.checkpoints.executed(),
            catching_up: self.checkpoints.is_catching_up(),
            behind: self.checkpoints.ahead().is_some(),
            trip: self.trips.quorum(),
        }
    }

    /// Keeps the promises that are due.
    fn keep_promises(&mut self) {
        while let Some(promise) = self.out.next_due() {
            self.keep(promise);
        }
    }

    fn keep(&mut self, promise: Promise) {
        match promise {
            Promise::Prepare { view, seq, digest } => {
                self.vote(Vote { phase: Phase::Prepare, view, seq, digest });
            }
            Promise::Commit { view, seq, digest } => {
                self.vote(Vote { phase: Phase::Commit, view, seq, digest });
            }
            Promise::Leave(view_change) => {
                self.out.broadcast(PbftMessage::ViewChange(view_change.clone()));
                self.on_own_view_change(view_change);
            }
            Promise::Enter(new_view) => {
                self.views.entry_is_logged(new_view.view);
                if new_view.sender == self.config.me {
                    self.lead(new_view.view);
                    self.out.broadcast(PbftMessage::NewView(new_view));
                }
            }
            Promise::Lead => self.lead(View(0)),
            Promise::Checkpoint(checkpoint) => self.say_checkpoint(checkpoint),
        }
    }

    fn vote(&mut self, vote: Vote) {
        self.slots.vote(&self.config, self.at(), vote, &mut self.out);
    }

    fn on_vote(&mut self, from: ReplicaId, vote: Vote) {
        self.slots.on_vote(&self.config, self.at(), from, vote, &mut self.out);
    }

    fn lead(&mut self, view: View) {
        if self.at().is_current(view) {
            self.proposer.lead();
        }
    }

    fn on_request(&mut self, package: Package) {
        self.requests.on_request(&self.config, self.at(), package, true, &mut self.out);
    }

    fn on_forwarded(&mut self, from: Principal, package: Package, doubted: bool) {
        let Principal::Replica(from) = from else {
            return self.out.drop_message("not_from_a_replica");
        };
        let at = self.at();
        let timeout = self.views.timeout(&self.config, at);
        let forwarded = Forwarded { from, package, doubted };
        self.requests.on_forwarded(&self.config, at, forwarded, timeout, &mut self.out);
    }

    fn on_message(&mut self, from: ReplicaId, message: PbftMessage, doubts: Vec<ClientId>) {
        match message {
            PbftMessage::PrePrepare { view, seq, batch } => {
                self.on_pre_prepare(from, seq, Proposal { view, batch, doubts });
            }
            PbftMessage::Prepare { view, seq, digest } => {
                self.on_vote(from, Vote { phase: Phase::Prepare, view, seq, digest });
            }
            PbftMessage::Commit { view, seq, digest } => {
                self.on_vote(from, Vote { phase: Phase::Commit, view, seq, digest });
            }
            PbftMessage::Checkpoint { checkpoint, signature } => {
                self.on_checkpoint(from, *checkpoint, *signature);
            }
            PbftMessage::Attest { height, block, signature } => {
                let (config, out) = (&self.config, &mut self.out);
                self.attestations.on_attest(config, from, height, block, *signature, out);
            }
            PbftMessage::ViewChange(view_change) => self.on_view_change(from, view_change),
            PbftMessage::NewView(new_view) => {
                self.see_own_views(&new_view);
                let selection = self.views.on_new_view(&self.config, &new_view, &mut self.out);
                if let Some(selection) = selection {
                    self.enter(new_view, &selection);
                }
            }
            PbftMessage::Status(standing) => self.on_status(from, standing),
            PbftMessage::FetchBody { seq, digest } => self.on_fetch_body(from, seq, digest),
            PbftMessage::Body { seq, batch } => {
                self.slots.on_body(&self.config, self.at(), seq, batch, &mut self.out);
            }
            PbftMessage::Stable(certificate) => self.on_certificate(certificate),
            PbftMessage::Learn { nonce } => self.on_learn(from, nonce),
            PbftMessage::Report(report) => self.on_report(from, report),
        }
    }

    fn on_fetch_body(&mut self, from: ReplicaId, seq: SeqNum, digest: Digest) {
        let Some(batch) = self.slots.body(&self.config, seq, digest) else { return };
        if !self.resend.may_give_body(&self.config, from, self.now) {
            return self.out.drop_message("fetch_body_too_often");
        }
        self.out.send(from, PbftMessage::Body { seq, batch });
    }

    /// Rule N5: hands on what is committed, in order.
    fn deliver(&mut self) {
        let at = self.at();
        while let Some(delivery) = self.slots.next_delivery(&self.config, at) {
            self.requests.on_delivered(&delivery, self.now);
            self.proposer.is_taken(delivery.seq);
            self.views.on_delivered();
            if delivery.checkpoint {
                self.checkpoints.fell_due(delivery.seq);
            }
            self.out.push(Effect::Deliver(delivery));
        }
    }

    fn propose(&mut self) {
        let (config, at, out) = (&self.config, self.at(), &mut self.out);
        self.proposer.propose(config, at, self.requests.pool_mut(), &mut self.slots, out);
    }

    /// What the next number waits for, and who has not sent it.
    fn waiting_for(&self) -> Option<(Awaited, ReplicaSet)> {
        let at = self.at();
        let but = |spoke: ReplicaSet| {
            let all = self.config.membership.replicas();
            all.filter(|replica| !spoke.contains(*replica)).collect()
        };
        let primary = || std::iter::once(at.primary(&self.config)).collect();
        if at.changing {
            let left = self.views.left();
            return Some(match left.len() >= self.config.quorum() {
                true => (Awaited::NewView, primary()),
                false => (Awaited::ViewChange, but(left)),
            });
        }
        match self.slots.waiting_for(at.view) {
            Some((awaited, voters)) => Some((awaited, but(voters))),
            None => (!self.requests.pool().is_empty() && !at.is_primary(&self.config))
                .then(|| (Awaited::PrePrepare, primary())),
        }
    }
}

impl<T: VoteTable> Protocol for Pbft<T> {
    type Message = PbftMessage;

    fn handle(&mut self, event: Event<PbftMessage>, now: Instant) {
        self.now = self.now.max(now);
        self.note_pause();
        self.note_reach(&event);
        match event {
            Event::Message(message) => {
                let doubts = message.doubts().to_vec();
                let received = message.into_inner();
                match received.sender() {
                    Principal::Replica(from) if from != self.config.me => {
                        self.on_message(from, received.message, doubts);
                    }
                    _ => self.out.drop_message("not_from_a_replica"),
                }
            }
            Event::Request(request) => {
                self.on_request(request.into_inner().message.0);
            }
            Event::Forwarded(forward) => {
                let doubted = !forward.doubts().is_empty();
                let received = forward.into_inner();
                let from = received.sender();
                self.on_forwarded(from, received.message.0, doubted);
            }
            Event::Counted(counted) => {
                counted.voters().iter().for_each(|voter| self.on_vote(voter, *counted.vote()));
            }
            Event::Timeout => self.on_timeout(),
            Event::Persisted(id) => {
                self.out.on_persisted(id);
                self.keep_promises();
            }
            Event::Executed { seq, block, checkpoint } => self.on_executed(seq, block, checkpoint),
            Event::Proposal(keep) => {
                let (config, at, out) = (&self.config, self.at(), &mut self.out);
                self.proposer.on_proposal(config, at, &keep, &mut self.slots, out);
            }
            Event::Verdict { seq, digest, accept } => {
                let (config, at, out) = (&self.config, self.at(), &mut self.out);
                self.slots.on_verdict(config, at, seq, digest, accept, out);
            }
            Event::CaughtUp { certificate, windows } => self.on_caught_up(certificate, windows),
        }
        // Whatever it was, it may have completed a quorum, freed the window or filled a batch.
        self.deliver();
        self.propose();
        self.note_full();
        self.see_whether_learnt();
        self.let_in();
        if !stands(Defence::F04PersistBeforeSend) {
            self.keep_promises();
            self.out.write_last();
        }
    }

    fn set_wall_clock(&mut self, ahead_micros: i64) {
        self.wall_ahead = ahead_micros;
    }

    fn poll_effect(&mut self) -> Option<Effect<PbftMessage>> {
        self.out.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_deadline()
    }

    fn view(&self) -> View {
        self.views.view()
    }

    fn turns_away(&mut self, client: ClientId, first: RequestSeq) -> Option<Duration> {
        self.requests.pool_mut().turns_away(client, first)
    }

    fn is_full(&self) -> bool {
        self.requests.pool().is_full()
    }

    fn horizon(&self) -> Horizon {
        Horizon { kinds: message::OF_A_SLOT, last: self.slots.last_parked(&self.config) }
    }

    fn passes_over(&mut self, kind: Kind, seq: SeqNum) -> bool {
        let Horizon { kinds, last } = self.horizon();
        let is = kinds.contains(&kind) && seq > last;
        if is {
            self.out.drop_message("above_watermark");
        }
        is
    }

    fn step_of(message: &PbftMessage) -> Option<(BatchStep, SeqNum)> {
        match message {
            PbftMessage::PrePrepare { seq, .. } | PbftMessage::Prepare { seq, .. } => {
                Some((BatchStep::Proposed, *seq))
            }
            PbftMessage::Commit { seq, .. } => Some((BatchStep::Prepared, *seq)),
            _ => None,
        }
    }

    fn on_link(&mut self, _peer: ReplicaId, now: Instant) {
        self.resend.hurry(&self.config, now);
    }

    fn ahead(&self) -> Option<Arc<CertifiedCheckpoint>> {
        self.checkpoints.ahead().cloned()
    }

    fn retry_after(&self) -> Duration {
        self.requests.pool().retry_after()
    }

    fn status(&self) -> Status {
        let at = self.at();
        Status {
            view: at.view,
            changing: at.changing,
            primary: at.primary(&self.config),
            delivered: self.slots.delivered(),
            stable: self.slots.low(),
            pending: self.requests.pool().len(),
            slots: self.slots.len(),
            batch_bytes: self.slots.bytes_in_memory(),
            votes: self.slots.votes(),
            checkpoints: self.checkpoints.len(),
            view_changes: self.views.entered(),
            oldest_pending: self.requests.pool().oldest_arrival(),
            progress_at: self.slots.idle_since(),
            patience: self.views.timeout(&self.config, at),
            waiting: self.waiting_for(),
            learning: self.learner.status(),
            clock: self.slots.clock(),
            dropped: self.out.dropped().clone(),
        }
    }
}
