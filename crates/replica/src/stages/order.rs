//! Ordering: verified messages into the protocol, and its effects to where they belong.
//!
//! - A frame is verified once, by the verify stage ([`VerifyStage`]), of which ordering reads
//!   verified messages; what does not hold is dropped and counted. What ordering would drop anyway
//!   it publishes to that stage ([`Filter`]).
//! - A request that the application's check refuses, or that comes while the replica is busy, is
//!   answered REJECT and never reaches the protocol.
//! - A message of the protocol is authenticated and encoded once, whoever and how many get it.
//! - What the protocol delivers is appended to the chain, and its block goes to the log at once; it is
//!   executed in order, any time later ([`Chain`]). What a replica lacks it fetches from others, which
//!   it serves, too ([`Sync`]).

mod backlog;
mod clients;
mod effects;
mod outgoing;
mod tally;

use super::{Outbox, Reached, ToOrder};
use crate::NodeError;
use crate::node::{NodeStatus, VerifySettings};
use crate::probe::{NoProbe, Probe};
use backlog::Backlog;
use bytes::Bytes;
use outgoing::Outgoing;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tally::Tally;
use tercio_consensus::{Delivery, Event, Horizon, Instant, Protocol};
use tercio_crypto::Keyring;
use tercio_execution::{Chain, PreCheck};
use tercio_sync::{Sync, SyncStatus};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{ClientId, Membership, Principal, ReplicaId, SeqNum};
use tercio_verify::{
    Bounds, Dropped, Filter, Filtered, HostVerify, Inbound, Lane, Threads, VerifyStage, Worker,
};

/// How many deliveries may wait for execution before what asks for its state, or for old results, is
/// turned away: such questions have no other bound.
const LAGS: usize = 64;

/// What the zoo's replica stops at: as many deliveries not executed, and nothing is read any more.
const IN_STEP: usize = 128;

/// Whose frame is dealt with, and how long it is; 0 where that is not charged.
#[derive(Clone, Copy, Debug)]
struct Payer {
    lane: Lane,
    bytes: usize,
}

/// The protocol between the network card's side and the other stages.
pub struct OrderStage<P: Protocol> {
    verify: Box<dyn VerifyStage<P::Message>>,
    /// What was published to it.
    filter: Filter,
    /// Whose frame it is that is being dealt with, when an answer to it may be charged.
    payer: Option<Payer>,
    /// Clients whose links are best not read for so long.
    silenced: BTreeMap<ClientId, Duration>,
    outgoing: Outgoing,
    protocol: P,
    sync: Sync,
    chain: Chain,
    /// Deliveries whose headers wait for results, with a lag.
    delivered: VecDeque<Delivery>,
    backlog: Backlog,
    pre_check: Arc<dyn PreCheck>,
    /// Whether the log is behind, or execution away.
    busy: bool,
    /// Whether there is a queue before execution, of whatever.
    lags: bool,
    tally: Tally,
    /// How far the wall clock is ahead of the time that this stage is called with, in microseconds.
    wall_ahead: i64,
    probe: Box<dyn Probe>,
}

impl<P: Protocol> OrderStage<P> {
    pub(crate) fn new(
        me: ReplicaId,
        keyring: Keyring,
        protocol: P,
        sync: Sync,
        verify: VerifySettings,
        chain: Chain,
        pre_check: Arc<dyn PreCheck>,
    ) -> Self {
        Self {
            verify: Box::new(HostVerify::new(keyring.clone(), verify.batch, verify.gather)),
            filter: Filter::default(),
            payer: None,
            silenced: BTreeMap::new(),
            outgoing: Outgoing::new(me, keyring),
            protocol,
            sync,
            chain,
            delivered: VecDeque::new(),
            backlog: Backlog::default(),
            pre_check,
            busy: false,
            lags: false,
            tally: Tally::default(),
            wall_ahead: 0,
            probe: Box::new(NoProbe),
        }
    }

    /// Who looks at what passes from now on.
    pub fn set_probe(&mut self, probe: Box<dyn Probe>) {
        self.probe = probe;
    }

    /// The wall clock is so many microseconds ahead of the time that this stage is called with: for the
    /// times of proposals, which no timer goes by.
    pub fn set_wall_clock(&mut self, ahead_micros: i64) {
        self.wall_ahead = ahead_micros;
        self.protocol.set_wall_clock(ahead_micros);
    }

    /// Takes over whose links are not to be read, and for how long.
    pub fn take_silenced(&mut self) -> impl Iterator<Item = (ClientId, Duration)> + use<P> {
        std::mem::take(&mut self.silenced).into_iter()
    }

    /// Whether clients are refused as busy, since later stages are behind.
    pub fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Whether there is a queue before execution.
    pub fn set_lags(&mut self, lags: bool) {
        self.lags = lags;
    }

    /// Back-pressure: whether clients' requests are refused.
    fn is_busy(&self) -> bool {
        self.busy || self.backlog.pushes_back()
    }

    /// Whether execution is to be asked for nothing that can be asked for again.
    fn lags(&self) -> bool {
        self.lags || self.backlog.len() > LAGS
    }

    /// Whether frames are to be read. Ordering does not wait for execution: how far that may lag is
    /// bounded by the window, since a checkpoint stands on it, and in bytes (rule W4).
    #[must_use]
    pub fn reads(&self) -> bool {
        self.backlog.len() < IN_STEP || stands(Defence::F52OrderAhead)
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
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        self.probe.frame(from, bytes, now);
        if let Principal::Client(client) = from
            && self.sheds(client, bytes, now, out)
        {
            return Ok(());
        }
        self.publish();
        self.verify.submit(from, bytes, Duration::from_nanos(now.0));
        self.take_verified(now, out)
    }

    /// Tells the verify stage what would be dropped anyway, when that has changed. A replica that is
    /// behind gets all that the others order, and can use none of it yet.
    fn publish(&mut self) {
        let Horizon { kinds, last } = self.protocol.horizon();
        let busy = self.is_busy() || self.protocol.is_full();
        let old = &self.filter;
        if (old.kinds, old.last, old.busy) != (kinds, last.0, busy) {
            self.filter = Filter { kinds, last: last.0, busy };
            self.verify.set_filter(&self.filter);
        }
    }

    /// Has frames verified on threads from now on: the workers, which are to be run. Nothing may
    /// have come yet. `wake` is called, on any thread, when there is something to
    /// [`Self::verify`].
    #[must_use]
    pub fn verify_on_threads(
        &mut self,
        settings: &VerifySettings,
        wake: impl Fn() + Send + std::marker::Sync + 'static,
    ) -> Vec<Worker<P::Message>> {
        let (keyring, bounds) = (self.outgoing.keyring(), Bounds::default());
        let (stage, workers) =
            Threads::new(keyring, settings.batch, bounds, settings.threads, wake);
        self.verify = Box::new(stage);
        workers
    }

    /// All frames that are at hand were handed in.
    pub fn flush(&mut self) {
        self.publish();
        self.verify.flush();
    }

    /// Back-pressure: whether no more frames are to be read before some were verified.
    pub(crate) fn is_full(&self) -> bool {
        self.verify.is_full()
    }

    /// Waits until something is verified, no longer than this.
    pub(crate) fn wait_for_verified(&mut self, at_most: Duration) {
        self.verify.wait(at_most);
    }

    /// Whether anything waits to be verified with what comes next.
    #[must_use]
    pub fn gathers(&self) -> bool {
        self.verify.gathers()
    }

    /// Whether to call [`Self::verify`] now: something is verified, or is to be (`drained` says that
    /// no more frames are at hand).
    #[must_use]
    pub fn must_verify(&self, drained: bool, now: Instant) -> bool {
        self.verify.is_due(drained, Duration::from_nanos(now.0))
    }

    /// Verifies all that waits for it, and takes what is verified.
    ///
    /// # Errors
    /// When the replica must stop.
    pub fn verify(&mut self, now: Instant, out: &mut Outbox) -> Result<(), NodeError> {
        self.verify.work();
        self.take_verified(now, out)
    }

    fn take_verified(&mut self, now: Instant, out: &mut Outbox) -> Result<(), NodeError> {
        while let Some((from, result)) = self.verify.poll() {
            self.take(from, result, now, out)?;
        }
        Ok(())
    }

    /// Takes what came of a frame.
    fn take(
        &mut self,
        from: Principal,
        result: Result<Inbound<P::Message>, Dropped>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        match result {
            Err(Dropped::Filtered(filtered)) => {
                self.on_filtered(from, filtered, out);
                Ok(())
            }
            // It has been counted, and charged.
            Err(_) => Ok(()),
            Ok(Inbound::Protocol(message)) => self.tell(Event::Message(message), now, out),
            Ok(Inbound::Request(request)) => {
                let result = self.on_request(request, now, out);
                self.payer = None;
                result
            }
            Ok(Inbound::Forward(forward)) => {
                if let Principal::Replica(replica) = from {
                    self.payer = Some(Payer { lane: Lane::Forwards(replica), bytes: 0 });
                }
                let result = self.tell(Event::Forwarded(forward), now, out);
                self.payer = None;
                result
            }
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

    /// Counts and answers what the filter passed over, as if it had been dropped here.
    fn on_filtered(&mut self, from: Principal, filtered: Filtered, out: &mut Outbox) {
        match (from, filtered) {
            (_, Filtered::Number { kind, number }) => {
                // It counts it, unless the number has come to be of use on the frame's way here.
                if !self.protocol.passes_over(kind, SeqNum(number)) {
                    self.tally.drop(filtered.reason());
                }
            }
            (Principal::Client(client), Filtered::Busy { first }) => {
                self.decline_busy(client, first, out);
            }
            _ => self.tally.drop(filtered.reason()),
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
            ToOrder::Executed { seq, block, late, checkpoint } => {
                self.probe.executed(seq);
                self.backlog.executed(now);
                self.sync.on_executed(seq, block, now);
                if let Some((height, _)) = block {
                    self.chain.executed(height, late);
                    self.append_delivered(out);
                }
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
            ToOrder::Replayed { certificate, chain } => {
                let windows = chain.as_ref().map(|chain| chain.windows().clone());
                if let Some(chain) = chain {
                    self.go_on_from(*chain);
                }
                self.sync.on_replayed(certificate, windows, self.protocol.ahead(), now);
                self.do_sync(now, out)
            }
            ToOrder::Pieces(pieces) => {
                self.sync.on_own(*pieces, now);
                self.do_sync(now, out)
            }
            ToOrder::Installed { certificate, chain } => {
                let windows = chain.windows().clone();
                self.go_on_from(*chain);
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
                self.set_membership(membership, out);
                Ok(())
            }
            ToOrder::Decline { client, first, reason } => {
                // Of what was ordered, perhaps again: it came by the primary.
                self.reject(client, first.0, reason, Duration::ZERO, out);
                Ok(())
            }
            ToOrder::Dropped(reason) => {
                self.tally.drop(reason);
                Ok(())
            }
        }
    }

    /// Everybody who holds keys gets to know of a client that was added.
    fn set_membership(&mut self, membership: Arc<Membership>, out: &mut Outbox) {
        self.verify.set_membership(membership.clone());
        self.outgoing.set_membership(membership.clone());
        out.membership = Some(membership);
    }

    /// Blocks or a state came from others.
    fn go_on_from(&mut self, chain: Chain) {
        assert!(self.delivered.is_empty(), "nothing is delivered while a replica catches up");
        self.chain = chain;
    }

    /// A link to this replica is open again.
    pub fn on_link(&mut self, peer: ReplicaId, now: Instant) {
        self.protocol.on_link(peer, now);
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
        let mut dropped = self.verify.dropped().clone();
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
            busy: self.is_busy(),
            executing,
            executing_since,
            stalled_since: None,
            repair,
            protocol: self.protocol.status(),
            dropped,
            evidence: self.tally.evidence().clone(),
            accused: self.tally.accused().clone(),
            divergences,
            checked: self.verify.checked(),
            links: BTreeMap::new(),
            peers: Vec::new(),
        }
    }
}
