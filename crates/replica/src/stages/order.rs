//! Ordering: verified messages into the protocol, and its effects to where they belong.
//!
//! - A frame is verified once (`intake`, [`tercio_verify::HostVerify`]); what does not hold is dropped and counted.
//!   Those with signatures gather until there are enough for a batch, until there are no more
//!   frames to read, or until the first of them has waited long enough, whichever comes first.
//! - A request that the application's check refuses, or that comes while the replica is busy, is
//!   answered REJECT and never reaches the protocol.
//! - A message of the protocol is authenticated and encoded once, whoever and how many get it.
//! - What the protocol delivers is executed in order. What a replica lacks it fetches from others,
//!   which it serves, too ([`Sync`]).

mod clients;
mod effects;
mod intake;
mod outgoing;
mod tally;

use super::{Outbox, Reached, ToOrder};
use crate::NodeError;
use crate::node::{NodeStatus, VerifySettings};
use crate::probe::{NoProbe, Probe};
use bytes::Bytes;
use intake::Intake;
use outgoing::Outgoing;
use std::collections::BTreeMap;
use std::time::Duration;
use tally::Tally;
use tercio_consensus::{Event, Instant, Protocol};
use tercio_crypto::Keyring;
use tercio_execution::AppError;
use tercio_sync::{Sync, SyncStatus};
use tercio_types::{Principal, ReplicaId, SeqNum};
use tercio_verify::{Dropped, Inbound};
use tercio_wire::Key;

/// The application's cheap look at an operation, wherever the application is.
pub type Check<'a> = &'a dyn Fn(&[u8]) -> Result<(), AppError>;

/// The protocol between the network card's side and the other stages.
pub struct OrderStage<P: Protocol> {
    intake: Intake<P::Message>,
    outgoing: Outgoing,
    protocol: P,
    sync: Sync,
    /// Back-pressure: whether clients are refused as busy.
    busy: bool,
    tally: Tally,
    probe: Box<dyn Probe>,
}

impl<P: Protocol> OrderStage<P> {
    pub(crate) fn new(
        me: ReplicaId,
        keyring: Keyring,
        protocol: P,
        sync: Sync,
        verify: VerifySettings,
    ) -> Self {
        Self {
            intake: Intake::new(keyring.clone(), verify),
            outgoing: Outgoing::new(me, keyring),
            protocol,
            sync,
            busy: false,
            tally: Tally::default(),
            probe: Box::new(NoProbe),
        }
    }

    /// Who looks at what passes from now on.
    pub fn set_probe(&mut self, probe: Box<dyn Probe>) {
        self.probe = probe;
    }

    /// Whether clients are refused as busy, since later stages are behind.
    pub fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Takes a frame that came on the link of `from`. It may wait for others to be verified with:
    /// [`Self::must_verify`] is to be asked after each.
    ///
    /// # Errors
    /// When the replica must stop.
    pub fn handle_frame(
        &mut self,
        from: Principal,
        bytes: &Bytes,
        check: Check<'_>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        self.probe.frame(from, bytes, now);
        if let Principal::Client(client) = from
            && self.sheds(client, bytes, now, out)
        {
            return Ok(());
        }
        // A replica that is behind gets all that the others order, and can use none of it yet.
        if let (Principal::Replica(_), Some((kind, number))) = (from, Key::peek(bytes))
            && self.protocol.passes_over(kind, SeqNum(number))
        {
            return Ok(());
        }
        match self.intake.receive(from, bytes, now) {
            Some(result) => self.take(from, result, check, now, out),
            None => Ok(()),
        }
    }

    /// Whether anything waits to be verified.
    #[must_use]
    pub fn gathers(&self) -> bool {
        self.intake.waits()
    }

    /// Whether to call [`Self::verify`] now: something waits, and it is enough for a batch, no more
    /// frames are at hand, or the first has waited long enough.
    #[must_use]
    pub fn must_verify(&self, drained: bool, now: Instant) -> bool {
        self.intake.must_verify(drained, now)
    }

    /// Verifies all that waits for it.
    ///
    /// # Errors
    /// When the replica must stop.
    pub fn verify(
        &mut self,
        check: Check<'_>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        for (from, result) in self.intake.verify() {
            self.take(from, result, check, now, out)?;
        }
        Ok(())
    }

    /// Takes what came of a frame.
    fn take(
        &mut self,
        from: Principal,
        result: Result<Inbound<P::Message>, Dropped>,
        check: Check<'_>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        match result {
            // It has been counted.
            Err(_) => {
                if let Principal::Client(client) = from {
                    self.intake.note_useless(client);
                }
                Ok(())
            }
            Ok(Inbound::Protocol(message)) => self.tell(Event::Message(message), now, out),
            Ok(Inbound::Request(request)) => self.on_request(request, check, now, out),
            Ok(Inbound::Forward(forward)) => self.tell(Event::Forwarded(forward), now, out),
            Ok(Inbound::Query(query)) => {
                self.on_query(query, out);
                Ok(())
            }
            Ok(Inbound::FetchBlocks(message) | Inbound::Blocks(message)) => {
                self.on_sync(&message, now, out)
            }
            Ok(Inbound::FetchState(message) | Inbound::State(message)) => {
                self.on_sync(&message, now, out)
            }
        }
    }

    /// What another stage has to say.
    ///
    /// # Errors
    /// When the replica must stop.
    pub fn handle(
        &mut self,
        message: ToOrder,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        match message {
            ToOrder::Persisted(id) => {
                self.probe.persisted(id);
                self.tell(Event::Persisted(id), now, out)
            }
            ToOrder::Executed { seq, block, checkpoint } => {
                self.probe.executed(seq);
                self.sync.on_executed(seq, block, now);
                let checkpoint = checkpoint.map(|reached| {
                    let Reached { checkpoint, top } = *reached;
                    self.sync.on_checkpoint(&checkpoint, top);
                    checkpoint
                });
                self.tell(Event::Executed { seq, block, checkpoint }, now, out)?;
                self.sync.begin(now);
                self.do_sync(now, out)
            }
            ToOrder::Proposal(keep) => self.tell(Event::Proposal(keep), now, out),
            ToOrder::Verdict { seq, digest, accept } => {
                self.tell(Event::Verdict { seq, digest, accept }, now, out)
            }
            ToOrder::Replayed { certificate, windows } => {
                self.sync.on_replayed(certificate, windows, self.protocol.ahead(), now);
                self.do_sync(now, out)
            }
            ToOrder::Pieces(pieces) => {
                self.sync.on_own(*pieces, now);
                self.do_sync(now, out)
            }
            ToOrder::Installed { certificate, windows } => {
                self.sync.on_installed(certificate, windows, self.protocol.ahead(), now);
                self.do_sync(now, out)
            }
            ToOrder::State { to, number, body } => {
                self.sync.on_state_read(to, number, body, now);
                self.do_sync(now, out)
            }
            ToOrder::Blocks { to, from, body } => {
                self.sync.on_blocks_read(to, from, body, now);
                self.do_sync(now, out)
            }
            ToOrder::Health(health) => {
                self.sync.on_health(health, now)?;
                self.do_sync(now, out)
            }
            ToOrder::Membership(membership) => {
                self.intake.set_membership(membership.clone());
                self.outgoing.set_membership(membership.clone());
                out.membership = Some(membership);
                Ok(())
            }
            ToOrder::Decline { client, first, reason } => {
                self.reject(client, first.0, reason, Duration::ZERO, out);
                Ok(())
            }
            ToOrder::Dropped(reason) => {
                self.tally.drop(reason);
                Ok(())
            }
        }
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.protocol.deadline().into_iter().chain(self.sync.deadline()).min()
    }

    /// Time has passed.
    ///
    /// # Errors
    /// When the replica must stop.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) -> Result<(), NodeError> {
        let result = self.sync.on_timeout(now);
        self.do_sync(now, out)?;
        result?;
        if self.protocol.deadline().is_some_and(|at| at <= now) {
            self.tell(Event::Timeout, now, out)?;
        }
        Ok(())
    }

    /// Where the replica stands.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        let mut dropped = self.intake.dropped().clone();
        for (reason, count) in self.tally.dropped().chain(self.sync.dropped()) {
            *dropped.entry(reason).or_default() += count;
        }
        let SyncStatus {
            head,
            executing,
            executing_since,
            catching_up,
            fetched_block_bytes,
            transfer,
            repair,
            divergences,
        } = self.sync.status();
        NodeStatus {
            id: self.outgoing.me(),
            at: Instant::default(),
            height: head.tip.height,
            block: head.tip.block,
            checkpoint: head.checkpoint,
            catching_up,
            fetched_block_bytes,
            transfer,
            busy: self.busy,
            executing,
            executing_since,
            stalled_since: None,
            repair,
            protocol: self.protocol.status(),
            dropped,
            evidence: self.tally.evidence().clone(),
            accused: self.tally.accused().clone(),
            divergences,
            checked: self.intake.checked(),
            links: BTreeMap::new(),
            peers: Vec::new(),
        }
    }
}
