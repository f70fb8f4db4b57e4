//! What replicas fetch from each other: blocks and state, asked for, taken in, and given.
//!
//! - When the protocol asks to catch up, blocks are fetched once all that was delivered is executed
//!   ([`CatchUp`]), or first a state, when the blocks are gone or more bytes than it ([`Transfer`]).
//! - Blocks that are damaged in the log are fetched to mend it.
//! - What others want the log reads, as fast as they may be given it.
//!
//! After each event all that [`Sync::poll`] gives is to be done, in order, before the next one.

use crate::divergence::Divergences;
use crate::repair::{Repair, RepairStep};
use crate::results::{ResultsRepair, ResultsStep};
use crate::serving::{Read, Serving};
use crate::transfer::message::FetchState;
use crate::transfer::{Pieces, Transfer, TransferStep};
use crate::{
    BeyondRepair, CatchUp, CatchUpStep, FetchBlocks, Head, Health, Step, SyncSetup, SyncStatus,
};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tercio_consensus::Instant;
use tercio_execution::TreeTop;
use tercio_types::{
    CertifiedCheckpoint, Checkpoint, CheckpointField, ClientId, Digest, Height, ReplicaId,
    RequestWindow, SeqNum, Suite,
};
use tercio_wire::{Decode, Encode, Kind};

/// What a replica fetches from the others, and gives them.
#[derive(Debug)]
pub struct Sync {
    suite: Suite,
    catch_up: CatchUp,
    transfer: Transfer,
    /// What is being caught up with.
    target: Option<Arc<CertifiedCheckpoint>>,
    repair: Repair,
    results: ResultsRepair,
    divergences: Divergences,
    /// Where to catch up to, once all deliveries are executed.
    wanted: Option<Arc<CertifiedCheckpoint>>,
    /// Deliveries that are not executed yet.
    executing: u64,
    /// Since when execution has had deliveries and finished none.
    executing_since: Option<Instant>,
    head: Head,
    serving: Serving,
    /// Further behind than this, state may be the shorter way.
    state_after: u64,
    dropped: BTreeMap<&'static str, u64>,
    steps: VecDeque<Step>,
}

impl Sync {
    /// Nothing to fetch, and nobody has asked.
    #[must_use]
    pub fn new(setup: SyncSetup) -> Self {
        let SyncSetup { me, membership, settings, lag, room, scrub_bytes, head } = setup;
        let suite = membership.suite();
        Self {
            suite,
            results: ResultsRepair::new(me, &membership, settings.timeout),
            repair: Repair::new(me, &membership, settings.timeout, scrub_bytes),
            divergences: Divergences::new(suite),
            transfer: Transfer::new(me, membership.clone(), lag, settings),
            catch_up: CatchUp::new(me, membership, settings, room),
            target: None,
            wanted: None,
            executing: 0,
            executing_since: None,
            head,
            serving: Serving::new(settings.serve_bytes),
            state_after: settings.state_after,
            dropped: BTreeMap::new(),
            steps: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> SyncStatus {
        SyncStatus {
            head: self.head.clone(),
            executing: self.executing,
            executing_since: self.executing_since,
            catching_up: self.target.is_some() || self.wanted.is_some(),
            fetched_block_bytes: self.catch_up.fetched(),
            transfer: self.transfer.status(),
            repair: self.repair.status(),
            divergences: self.divergences.found().clone(),
        }
    }

    /// What was dropped, by reason; a reason may come more than once.
    pub fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let parts = self.catch_up.dropped().iter().chain(self.transfer.dropped());
        self.dropped.iter().chain(parts).map(|(reason, count)| (*reason, *count))
    }

    fn drop(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn send(&mut self, to: ReplicaId, kind: Kind, number: u64, body: Bytes) {
        self.steps.push_back(Step::Send { to, kind, number, body });
    }

    fn ask_blocks(&mut self, to: ReplicaId, request: FetchBlocks) {
        self.send(to, Kind::FETCH_BLOCKS, request.from.0, request.body());
    }

    /// Execution is to get a delivery.
    pub fn on_delivered(&mut self, now: Instant) {
        self.executing += 1;
        self.executing_since.get_or_insert(now);
    }

    /// A delivery was executed, of number `seq`, and made `block`, or none. What waits for all of
    /// them begins with [`Self::begin`].
    pub fn on_executed(&mut self, seq: SeqNum, block: Option<(Height, Digest)>, now: Instant) {
        self.executing -= 1;
        self.executing_since = (self.executing > 0).then_some(now);
        let tip = &mut self.head.tip;
        tip.seq = seq;
        if let Some((height, hash)) = block {
            (tip.height, tip.block) = (height, hash);
        }
    }

    /// A checkpoint was computed; `top` is the upper part of the tree of its state.
    pub fn on_checkpoint(&mut self, checkpoint: &Checkpoint, top: Option<TreeTop>) {
        if let Some(top) = top {
            self.divergences.reached(checkpoint.seq, top);
        }
        self.head.checkpoint = Some(checkpoint.clone());
    }

    /// The protocol asks to catch up with `target`.
    pub fn catch_up_to(&mut self, target: Arc<CertifiedCheckpoint>, now: Instant) {
        self.wanted = Some(target);
        self.begin(now);
    }

    /// Begins to catch up when everything that was delivered is executed: only then is it known
    /// where the chain goes on, and nobody else uses the state.
    pub fn begin(&mut self, now: Instant) {
        if self.executing > 0 {
            return;
        }
        if let Some(target) = self.wanted.take() {
            let behind = target.checkpoint.height.0.saturating_sub(self.head.tip.height.0);
            self.target = Some(target.clone());
            if behind > self.state_after {
                self.begin_transfer(true, now);
            } else {
                self.begin_blocks(target, now);
            }
        }
    }

    fn begin_blocks(&mut self, target: Arc<CertifiedCheckpoint>, now: Instant) {
        self.catch_up.begin(target, self.head.tip, now);
        self.do_catch_up(now);
    }

    /// Looks for a state to fetch; with `undecided`, if that is the shorter way.
    fn begin_transfer(&mut self, undecided: bool, now: Instant) {
        self.transfer.begin(self.head.tip, undecided, now);
        self.do_transfer(now);
    }

    fn do_transfer(&mut self, now: Instant) {
        while let Some(step) = self.transfer.poll() {
            match step {
                TransferStep::Ask { to, number, request } => {
                    self.send(to, Kind::FETCH_STATE, number, request.to_bytes());
                }
                TransferStep::Own => self.steps.extend([Step::OwnPieces, Step::Staged]),
                TransferStep::Stage(pieces, limit) => {
                    self.steps.push_back(Step::Stage { pieces, limit });
                }
                TransferStep::Install(install) => self.steps.push_back(Step::Install(install)),
                TransferStep::Blocks => {
                    if let Some(target) = self.target.clone() {
                        self.begin_blocks(target, now);
                    }
                }
            }
        }
    }

    fn do_catch_up(&mut self, now: Instant) {
        while let Some(step) = self.catch_up.poll() {
            match step {
                CatchUpStep::NobodyHas => self.begin_transfer(false, now),
                CatchUpStep::Ask { to, request } => self.ask_blocks(to, request),
                CatchUpStep::Replay(blocks) => self.steps.push_back(Step::Replay(blocks)),
            }
        }
    }

    fn do_repair(&mut self, steps: impl IntoIterator<Item = RepairStep>) {
        for step in steps {
            match step {
                RepairStep::Scrub(bytes) => self.steps.push_back(Step::Scrub { bytes }),
                RepairStep::Place(copies) => self.steps.push_back(Step::Place { copies }),
                RepairStep::Ask { to, request } => self.ask_blocks(to, request),
            }
        }
    }

    fn do_results(&mut self, step: Option<ResultsStep>) {
        match step {
            None => {}
            Some(ResultsStep::Ask { to, number, request }) => {
                self.send(to, Kind::FETCH_STATE, number, request.to_bytes());
            }
            Some(ResultsStep::Place { copies, stripped }) => {
                self.steps.push_back(Step::PlaceResults { copies, stripped });
            }
        }
    }

    /// Has the log read what others may be given now.
    fn serve(&mut self, now: Instant) {
        while let Some(read) = self.serving.poll(now) {
            self.steps.push_back(match read {
                Read::Blocks { by, request } => Step::ReadBlocks { by, request },
                Read::State { by, number, request } => Step::ReadState { by, number, request },
            });
        }
    }

    /// Certified blocks were executed up to `certificate`; at the last, with what clients have
    /// executed. The protocol knows that a quorum is `ahead` of all that it asked for.
    ///
    /// # Panics
    /// When there are no windows at the end of what was handed out as the last.
    pub fn on_replayed(
        &mut self,
        certificate: Arc<CertifiedCheckpoint>,
        windows: Option<BTreeMap<ClientId, RequestWindow>>,
        ahead: Option<Arc<CertifiedCheckpoint>>,
        now: Instant,
    ) {
        self.head = Head::at(&certificate.checkpoint);
        // Others go on meanwhile. To compare states here and there on the way to where they
        // are would cost more than to get there.
        if let (None, Some(ahead)) = (&windows, ahead) {
            self.catch_up.raise(ahead);
        }
        let is_there = self.catch_up.on_replayed(&certificate, now);
        self.do_catch_up(now);
        if !is_there {
            return;
        }
        self.target = None;
        self.steps.push_back(Step::Unstage);
        let windows = windows.expect("the state was compared at the target");
        self.steps.push_back(Step::CaughtUp { certificate, windows });
    }

    /// A fetched state is installed, durably. The protocol knows that a quorum is `ahead` of all
    /// that it asked for.
    pub fn on_installed(
        &mut self,
        certificate: Arc<CertifiedCheckpoint>,
        windows: BTreeMap<ClientId, RequestWindow>,
        ahead: Option<Arc<CertifiedCheckpoint>>,
        now: Instant,
    ) {
        self.transfer.on_installed();
        self.head = Head::at(&certificate.checkpoint);
        // Others have gone on meanwhile: so far at once, with one comparison of states.
        let seq = |target: &Arc<CertifiedCheckpoint>| target.checkpoint.seq;
        let targets = self.target.take().into_iter().chain(ahead);
        match targets.max_by_key(seq).filter(|target| seq(target) > seq(&certificate)) {
            Some(target) => {
                self.target = Some(target.clone());
                self.begin_blocks(target, now);
            }
            None => self.steps.push_back(Step::CaughtUp { certificate, windows }),
        }
    }

    /// Pieces that are here: of our own state, or kept by an earlier fetch.
    pub fn on_own(&mut self, pieces: Pieces, now: Instant) {
        self.transfer.on_own(pieces, now);
        self.do_transfer(now);
    }

    /// How the block log is.
    ///
    /// # Errors
    /// When nothing can mend it.
    pub fn on_health(&mut self, health: Health, now: Instant) -> Result<(), BeyondRepair> {
        let results = self.results.on_health(health.results.clone(), now);
        self.do_results(results);
        let step = self.repair.on_health(health, now)?;
        self.do_repair(step);
        Ok(())
    }

    /// A replica signed another checkpoint than ours at `seq`, with the state `state`.
    pub fn on_divergence(
        &mut self,
        replica: ReplicaId,
        seq: SeqNum,
        what: CheckpointField,
        state: Digest,
    ) {
        if let Some((number, request)) = self.divergences.differs(replica, seq, what, state) {
            self.send(replica, Kind::FETCH_STATE, number, request.to_bytes());
        }
    }

    /// A replica's BLOCKS from the height `from` on.
    ///
    /// # Errors
    /// When nothing can mend the block log.
    pub fn on_blocks(
        &mut self,
        peer: ReplicaId,
        from: Height,
        body: &Bytes,
        now: Instant,
    ) -> Result<(), BeyondRepair> {
        // Both may have asked the same peer from the same block on.
        let is_ambiguous = self.catch_up.expects(peer, from);
        if self.repair.expects(peer, from) && (!is_ambiguous || self.repair.fits(body)) {
            let step = self.repair.on_blocks(peer, body, now)?;
            self.do_repair(step);
            return Ok(());
        }
        self.catch_up.on_blocks(peer, from, body, now);
        self.do_catch_up(now);
        Ok(())
    }

    /// A replica's STATE of this number.
    pub fn on_state(&mut self, peer: ReplicaId, number: u64, body: &Bytes, now: Instant) {
        if Divergences::is_about(number) {
            if let Err(reason) = self.divergences.on_state(peer, number, body) {
                self.drop(reason);
            }
            return;
        }
        if ResultsRepair::is_about(number) {
            match self.results.on_state(peer, number, body, now) {
                Ok(step) => self.do_results(step),
                Err(reason) => self.drop(reason),
            }
            return;
        }
        self.transfer.on_state(peer, number, body, now);
        self.do_transfer(now);
    }

    /// A replica's FETCH_BLOCKS from the height `from` on.
    pub fn on_fetch_blocks(&mut self, by: ReplicaId, from: Height, body: &Bytes, now: Instant) {
        let Ok(request) = FetchBlocks::decode(from.0, body, self.suite) else {
            return self.drop("fetch_malformed");
        };
        self.serving.ask_blocks(by, request).unwrap_or_else(|reason| self.drop(reason));
        self.serve(now);
    }

    /// A replica's FETCH_STATE of this number.
    pub fn on_fetch_state(&mut self, by: ReplicaId, number: u64, body: &Bytes, now: Instant) {
        let Ok(request) = FetchState::from_bytes(body, self.suite) else {
            return self.drop("fetch_state_malformed");
        };
        if Divergences::is_about(number) {
            return match self.divergences.answer(by, &request) {
                Some(body) => self.send(by, Kind::STATE, number, body),
                None => self.drop("divergence_not_known"),
            };
        }
        let asked = self.serving.ask_state(by, number, request);
        asked.unwrap_or_else(|reason| self.drop(reason));
        self.serve(now);
    }

    /// The log has read blocks for a replica, from the height `from` on.
    pub fn on_blocks_read(&mut self, to: ReplicaId, from: Height, body: Bytes, now: Instant) {
        self.serving.gave_blocks(to);
        self.send(to, Kind::BLOCKS, from.0, body);
        self.serve(now);
    }

    /// The log has read pieces of state for a replica, under its number for the question.
    pub fn on_state_read(&mut self, to: ReplicaId, number: u64, body: Bytes, now: Instant) {
        self.serving.gave_state(to, body.len(), now);
        self.send(to, Kind::STATE, number, body);
        self.serve(now);
    }

    /// When to call [`Self::on_timeout`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let fetching = [self.catch_up.deadline(), self.transfer.deadline()];
        let repairs = [self.repair.deadline(), self.results.deadline()];
        let others = [self.serving.deadline()].into_iter().chain(repairs);
        others.chain(fetching).flatten().min()
    }

    /// Time has passed.
    ///
    /// # Errors
    /// When nothing can mend the block log.
    pub fn on_timeout(&mut self, now: Instant) -> Result<(), BeyondRepair> {
        self.serve(now);
        if self.catch_up.deadline().is_some_and(|at| at <= now) {
            self.catch_up.on_timeout(now);
            self.do_catch_up(now);
        }
        if self.transfer.deadline().is_some_and(|at| at <= now) {
            self.transfer.on_timeout(now);
            self.do_transfer(now);
        }
        if self.results.deadline().is_some_and(|at| at <= now) {
            let step = self.results.on_timeout(now);
            self.do_results(step);
        }
        if self.repair.deadline().is_some_and(|at| at <= now) {
            let steps = self.repair.on_timeout(now)?;
            self.do_repair(steps);
        }
        Ok(())
    }
}
