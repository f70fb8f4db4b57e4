//! What replicas fetch from each other: blocks and state, asked for, taken in, and given.
//!
//! - When the protocol asks to catch up, blocks are fetched once all that was delivered is executed
//!   ([`crate::sync`]), or first a state, when the blocks are gone or more bytes than it
//!   ([`crate::transfer`]).
//! - Blocks that are damaged in the log are fetched to mend it ([`crate::repair`]).
//! - What others want the log reads, as fast as they may be given it ([`crate::serving`]).

use super::{Head, OrderStage};
use crate::NodeError;
use crate::divergence::Divergences;
use crate::repair::RepairStep;
use crate::stages::{Outbox, ToExecute, ToLog};
use crate::sync::{FetchBlocks, Step};
use crate::transfer;
use crate::transfer::message::FetchState;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_consensus::{Event, Instant, Protocol};
use tercio_crypto::Verified;
use tercio_types::{CertifiedCheckpoint, ClientId, Height, Principal, RequestWindow};
use tercio_verify::Plain;
use tercio_wire::{Decode, Encode, Kind, Received};

impl<P: Protocol> OrderStage<P> {
    /// Begins to catch up when everything that was delivered is executed: only then is it known
    /// where the chain goes on, and nobody else uses the state.
    pub(super) fn begin_catch_up(&mut self, now: Instant, out: &mut Outbox) {
        if self.executing > 0 {
            return;
        }
        if let Some(target) = self.wanted.take() {
            let behind = target.checkpoint.height.0.saturating_sub(self.head.height.0);
            self.target = Some(target.clone());
            if behind > self.state_after {
                self.begin_transfer(true, now, out);
            } else {
                self.begin_blocks(target, now, out);
            }
        }
    }

    fn begin_blocks(&mut self, target: Arc<CertifiedCheckpoint>, now: Instant, out: &mut Outbox) {
        let head = (self.head.height, self.head.block, self.head.seq);
        self.catch_up.begin(target, head, now);
        self.do_catch_up(now, out);
    }

    /// Looks for a state to fetch; with `undecided`, if that is the shorter way.
    fn begin_transfer(&mut self, undecided: bool, now: Instant, out: &mut Outbox) {
        self.transfer.begin((self.head.height, self.head.seq), undecided, now);
        self.do_transfer(now, out);
    }

    pub(super) fn do_transfer(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(step) = self.transfer.poll() {
            match step {
                transfer::Step::Ask { to, number, request } => {
                    let body = request.to_bytes();
                    self.send(to, &Plain { kind: Kind::FETCH_STATE, seq: number, body }, out);
                }
                transfer::Step::Own => {
                    out.execute.push_back(ToExecute::Pieces);
                    out.log.push_back(ToLog::Staged);
                }
                transfer::Step::Stage(pieces, limit) => {
                    out.log.push_back(ToLog::Stage { pieces, limit });
                }
                transfer::Step::Install(install) => {
                    out.execute.push_back(ToExecute::Install(install));
                }
                transfer::Step::Blocks => {
                    if let Some(target) = self.target.clone() {
                        self.begin_blocks(target, now, out);
                    }
                }
            }
        }
    }

    pub(super) fn do_catch_up(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(step) = self.catch_up.poll() {
            match step {
                Step::NobodyHas => self.begin_transfer(false, now, out),
                Step::Ask { to, request } => {
                    let (seq, body) = (request.from.0, request.body());
                    self.send(to, &Plain { kind: Kind::FETCH_BLOCKS, seq, body }, out);
                }
                Step::Replay(blocks) => out.execute.push_back(ToExecute::Replay(blocks)),
            }
        }
    }

    pub(super) fn do_repair(
        &mut self,
        steps: impl IntoIterator<Item = RepairStep>,
        out: &mut Outbox,
    ) {
        for step in steps {
            match step {
                RepairStep::Scrub(bytes) => out.log.push_back(ToLog::Scrub { bytes }),
                RepairStep::Place(copies) => out.log.push_back(ToLog::Repair { copies }),
                RepairStep::Ask { to, request } => {
                    let (seq, body) = (request.from.0, request.body());
                    self.send(to, &Plain { kind: Kind::FETCH_BLOCKS, seq, body }, out);
                }
            }
        }
    }

    /// Blocks up to `certificate` were executed; at the last, with what clients have executed.
    pub(super) fn on_replayed(
        &mut self,
        certificate: Arc<CertifiedCheckpoint>,
        windows: Option<BTreeMap<ClientId, RequestWindow>>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        self.head = Head::at(&certificate.checkpoint);
        // Others go on meanwhile. To compare states here and there on the way to where they
        // are would cost more than to get there.
        if let (None, Some(ahead)) = (&windows, self.protocol.ahead()) {
            self.catch_up.raise(ahead);
        }
        let is_there = self.catch_up.on_replayed(&certificate, now);
        self.do_catch_up(now, out);
        if !is_there {
            return Ok(());
        }
        self.target = None;
        out.log.push_back(ToLog::Unstage);
        let windows = windows.expect("the state was compared at the target");
        self.tell(Event::CaughtUp { certificate, windows }, now, out)
    }

    /// A fetched state is installed, durably.
    pub(super) fn on_installed(
        &mut self,
        certificate: Arc<CertifiedCheckpoint>,
        windows: BTreeMap<ClientId, RequestWindow>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        self.transfer.on_installed();
        self.head = Head::at(&certificate.checkpoint);
        // Others have gone on meanwhile: so far at once, with one comparison of states.
        let seq = |target: &Arc<CertifiedCheckpoint>| target.checkpoint.seq;
        let targets = self.target.take().into_iter().chain(self.protocol.ahead());
        match targets.max_by_key(seq).filter(|target| seq(target) > seq(&certificate)) {
            Some(target) => {
                self.target = Some(target.clone());
                self.begin_blocks(target, now, out);
                Ok(())
            }
            None => self.tell(Event::CaughtUp { certificate, windows }, now, out),
        }
    }

    /// Blocks that were asked for.
    pub(super) fn on_blocks(
        &mut self,
        blocks: &Verified<Received<Plain>>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let Principal::Replica(peer) = blocks.sender() else { return Ok(()) };
        let Plain { seq, body, .. } = &blocks.message;
        let from = Height(*seq);
        // Both may have asked the same peer from the same block on.
        let is_ambiguous = self.catch_up.expects(peer, from);
        if self.repair.expects(peer, from) && (!is_ambiguous || self.repair.fits(body)) {
            let step = self.repair.on_blocks(peer, body, now)?;
            self.do_repair(step, out);
            return Ok(());
        }
        self.catch_up.on_blocks(peer, from, body, now);
        self.do_catch_up(now, out);
        Ok(())
    }

    /// Pieces of state that were asked for.
    pub(super) fn on_state(
        &mut self,
        state: &Verified<Received<Plain>>,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Principal::Replica(peer) = state.sender() else { return };
        let Plain { seq: number, body, .. } = &state.message;
        if Divergences::is_about(*number) {
            if let Err(reason) = self.divergences.on_state(peer, *number, body) {
                self.drop(reason);
            }
            return;
        }
        self.transfer.on_state(peer, *number, body, now);
        self.do_transfer(now, out);
    }

    /// A replica wants blocks.
    pub(super) fn on_fetch(
        &mut self,
        fetch: &Verified<Received<Plain>>,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Principal::Replica(by) = fetch.sender() else { return };
        let Plain { seq, body, .. } = &fetch.message;
        let Ok(request) = FetchBlocks::decode(*seq, body, self.suite) else {
            return self.drop("fetch_malformed");
        };
        self.serving.ask_blocks(by, request).unwrap_or_else(|reason| self.drop(reason));
        self.serve(now, out);
    }

    /// A replica wants pieces of state.
    pub(super) fn on_fetch_state(
        &mut self,
        fetch: &Verified<Received<Plain>>,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Principal::Replica(by) = fetch.sender() else { return };
        let Plain { seq: number, body, .. } = &fetch.message;
        let Ok(request) = FetchState::from_bytes(body, self.suite) else {
            return self.drop("fetch_state_malformed");
        };
        if Divergences::is_about(*number) {
            return match self.divergences.answer(by, &request) {
                Some(body) => self.send(by, &Plain { kind: Kind::STATE, seq: *number, body }, out),
                None => self.drop("divergence_not_known"),
            };
        }
        let asked = self.serving.ask_state(by, *number, request);
        asked.unwrap_or_else(|reason| self.drop(reason));
        self.serve(now, out);
    }

    /// Has the log read what others may be given now.
    pub(super) fn serve(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(command) = self.serving.poll(now) {
            out.log.push_back(command);
        }
    }
}
