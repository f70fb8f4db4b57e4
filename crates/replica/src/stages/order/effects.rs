//! What the protocol, fetching and serving want done, to where it belongs.

use super::{OrderStage, Payer};
use crate::NodeError;
use crate::stages::execute::proposal_time;
use crate::stages::{Outbox, ToExecute, ToLog};
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::{Delivery, Effect, Event, Evidence, Instant, Protocol};
use tercio_crypto::Verified;
use tercio_sync::Step;
use tercio_types::{Height, Principal};
use tercio_verify::{Lane, Plain};
use tercio_wire::reject::Reason;
use tercio_wire::{Forward, Kind, Received};

impl<P: Protocol> OrderStage<P> {
    /// Hands an event to the protocol and does what it wants done.
    pub(crate) fn tell(
        &mut self,
        event: Event<P::Message>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        self.protocol.handle(event, now);
        self.do_effects(now, out)
    }

    /// Does what the protocol wants done.
    pub(crate) fn do_effects(&mut self, now: Instant, out: &mut Outbox) -> Result<(), NodeError> {
        while let Some(effect) = self.protocol.poll_effect() {
            match effect {
                Effect::Send { to, message } => self.outgoing.send(to, &message, out),
                Effect::Broadcast(message) => {
                    if let Some((step, seq)) = P::step_of(&message) {
                        self.probe.step(step, seq);
                    }
                    self.outgoing.broadcast(&message, out);
                }
                Effect::Persist { id, tag, record } => {
                    self.probe.persist(id);
                    out.log.push_back(ToLog::Persist { id, tag, record });
                }
                Effect::PersistBlocks { id, height } => {
                    out.log.push_back(ToLog::PersistBlocks { id, height });
                }
                Effect::Stable { certificate, id, record } => {
                    out.log.push_back(ToLog::Stable { certificate, id, record });
                }
                Effect::Deliver(delivery) => {
                    self.backlog.delivered(now);
                    self.probe.delivered(&delivery);
                    self.sync.on_delivered(now);
                    self.delivered.push_back(delivery);
                    self.append_delivered(out);
                }
                Effect::CatchUp(certificate) => {
                    self.sync.catch_up_to(certificate, now);
                    self.do_sync(now, out)?;
                }
                Effect::Forward { to, package } => {
                    self.outgoing.send(to, &Forward(package), out);
                }
                Effect::Repeat { .. }
                    if matches!(self.payer, Some(Payer { lane: Lane::Forwards(_), .. })) =>
                {
                    // Who wants an answer again asks for it on its own link.
                    self.charge_answer();
                    self.tally.drop("forwarded_done");
                }
                Effect::Repeat { .. } if self.lags() => {
                    // The client asks again; its results may be on their way.
                    self.charge_answer();
                    self.tally.drop("repeat_while_behind");
                }
                Effect::Repeat { client, first, count, digest } => {
                    self.charge_answer();
                    let view = self.protocol.view();
                    let repeat = ToExecute::Repeat { client, first, count, digest, view };
                    out.execute.push_back(repeat);
                }
                Effect::Decline { client, first, reason } => {
                    let again = match reason {
                        Reason::Busy => self.protocol.retry_after(),
                        _ => Duration::ZERO,
                    };
                    self.reject(client, first.0, reason, again, out);
                }
                Effect::BuildProposal(packages) => {
                    let time = proposal_time(now.0, self.wall_ahead);
                    out.execute.push_back(ToExecute::Build { packages, time });
                }
                Effect::ValidateProposal { seq, batch } => {
                    out.execute.push_back(ToExecute::Validate { seq, batch });
                }
                Effect::Attested { height, block, signatures } => {
                    out.log.push_back(ToLog::Attestation { height, block, signatures });
                }
                Effect::Evidence(Evidence::OwnStateDiffers { seq, what }) => {
                    return Err(NodeError::OwnStateDiffers { seq, what });
                }
                Effect::Evidence(evidence) => {
                    self.tally.accuse(&evidence);
                    if let Evidence::Divergence { replica, seq, what, state } = evidence {
                        self.sync.on_divergence(replica, seq, what, state);
                        self.do_sync(now, out)?;
                    }
                }
                Effect::View(step) => self.probe.view(step),
            }
        }
        Ok(())
    }

    /// Appends what was delivered to the chain, as far as headers can be made: its blocks go to the log,
    /// and it goes to execution.
    pub(super) fn append_delivered(&mut self, out: &mut Outbox) {
        while self.chain.is_ready()
            && let Some(Delivery { seq, batch, checkpoint }) = self.delivered.pop_front()
        {
            let ordered = match &batch {
                Some(batch) => self.chain.order(seq, &batch.batch, batch.digest),
                None => self.chain.pass(seq),
            };
            if let (Some(block), Some(batch)) = (&ordered.block, &batch) {
                let (header, body) = (block.header.clone(), batch.bytes.clone());
                out.log.push_back(ToLog::Block { header, body });
            }
            if !Arc::ptr_eq(self.chain.membership(), self.outgoing.membership()) {
                self.set_membership(self.chain.membership().clone(), out);
            }
            let view = self.protocol.view();
            out.execute.push_back(ToExecute::Deliver { ordered, batch, checkpoint, view });
        }
    }

    /// What another replica wants of ours, or has sent of what we want.
    pub(super) fn on_sync(
        &mut self,
        message: &Verified<Received<Plain>>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let Principal::Replica(peer) = message.sender() else { return Ok(()) };
        let Plain { kind, seq: number, ref body } = message.message;
        match kind {
            Kind::FETCH_BLOCKS => self.sync.on_fetch_blocks(peer, Height(number), body, now),
            Kind::FETCH_STATE => self.sync.on_fetch_state(peer, number, body, now),
            Kind::STATE => self.sync.on_state(peer, number, body, now),
            _ => self.sync.on_blocks(peer, Height(number), body, now)?,
        }
        self.do_sync(now, out)
    }

    /// Does what fetching and serving want done.
    pub(super) fn do_sync(&mut self, now: Instant, out: &mut Outbox) -> Result<(), NodeError> {
        while let Some(step) = self.sync.poll() {
            match step {
                Step::Send { to, kind, number, body } => {
                    self.outgoing.send(to, &Plain { kind, seq: number, body }, out);
                }
                Step::ReadBlocks { by, request } => {
                    out.log.push_back(ToLog::Fetch { by, request });
                }
                Step::ReadState { by, number, request } => {
                    out.log.push_back(ToLog::FetchState { by, number, request });
                }
                Step::Stage { pieces, limit } => {
                    out.log.push_back(ToLog::Stage { pieces, limit });
                }
                Step::Staged => out.log.push_back(ToLog::Staged),
                Step::Unstage => out.log.push_back(ToLog::Unstage),
                Step::Scrub { bytes } => out.log.push_back(ToLog::Scrub { bytes }),
                Step::Place { copies } => out.log.push_back(ToLog::Repair { copies }),
                Step::PlaceResults { copies, stripped } => {
                    out.log.push_back(ToLog::RepairResults { copies, stripped });
                }
                Step::OwnPieces => out.execute.push_back(ToExecute::Pieces),
                Step::Replay(blocks) => out.execute.push_back(ToExecute::Replay(blocks)),
                Step::Install(install) => out.execute.push_back(ToExecute::Install(install)),
                Step::CaughtUp { certificate, windows } => {
                    self.tell(Event::CaughtUp { certificate, windows }, now, out)?;
                }
            }
        }
        Ok(())
    }
}
