//! Ordering: verified messages into the protocol, and its effects to where they belong.
//!
//! - A frame is verified once ([`tercio_verify::HostVerify`]); what does not hold is dropped and counted.
//!   Those with signatures gather until there are enough for a batch, until there are no more
//!   frames to read, or until the first of them has waited long enough, whichever comes first.
//! - A request that the application's check refuses, or that comes while the replica is busy, is
//!   answered REJECT and never reaches the protocol.
//! - A message of the protocol is authenticated and encoded once, whoever and how many get it.
//! - What the protocol delivers is executed in order. What a replica lacks it fetches from others,
//!   which it serves, too ([`Sync`]).

use super::manners::Manners;
use super::{Outbox, Question, Reached, ToExecute, ToLog, ToOrder, execute::proposal_time};
use crate::NodeError;
use crate::node::{NodeStatus, VerifySettings};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_consensus::{Effect, Event, Evidence, Instant, Protocol};
use tercio_crypto::{Keyring, Verified};
use tercio_execution::AppError;
use tercio_sync::{Step, Sync, SyncStatus};
use tercio_types::{
    Authenticator, ClientId, Height, OpKind, Principal, ReplicaId, RequestSeq, SeqNum, Suite,
};
use tercio_verify::{Dropped, HostVerify, Inbound, Plain};
use tercio_wire::reject::{Reason, Reject};
use tercio_wire::{Encode, Forward, Frame, Key, Kind, Message, Received, Request};

/// When a client may try again that came while later stages were behind.
const BEHIND: Duration = Duration::from_millis(20);

/// The application's cheap look at an operation, wherever the application is.
pub type Check<'a> = &'a dyn Fn(&[u8]) -> Result<(), AppError>;

/// The protocol between the network card's side and the other stages.
pub struct OrderStage<P: Protocol> {
    me: ReplicaId,
    suite: Suite,
    verifier: HostVerify<P::Message>,
    /// How long a frame waits for company, and until when the first that waits does.
    gather: Duration,
    verify_by: Option<Instant>,
    keyring: Keyring,
    protocol: P,
    sync: Sync,
    /// Back-pressure: whether clients are refused as busy.
    busy: bool,
    manners: Manners,
    dropped: BTreeMap<&'static str, u64>,
    evidence: BTreeMap<&'static str, u64>,
    accused: BTreeMap<ReplicaId, &'static str>,
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
            me,
            suite: keyring.membership().suite(),
            verifier: HostVerify::new(keyring.clone(), verify.batch),
            gather: verify.gather,
            verify_by: None,
            keyring,
            protocol,
            sync,
            busy: false,
            manners: Manners::default(),
            dropped: BTreeMap::new(),
            evidence: BTreeMap::new(),
            accused: BTreeMap::new(),
        }
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
        match self.verifier.receive(from, bytes) {
            Some(result) => self.take(from, result, check, now, out),
            None => {
                self.verify_by.get_or_insert(now + self.gather);
                Ok(())
            }
        }
    }

    /// Whether anything waits to be verified.
    #[must_use]
    pub fn gathers(&self) -> bool {
        self.verifier.waits()
    }

    /// Whether to call [`Self::verify`] now: something waits, and it is enough for a batch, no more
    /// frames are at hand, or the first has waited long enough.
    #[must_use]
    pub fn must_verify(&self, drained: bool, now: Instant) -> bool {
        self.verify_by.is_some_and(|by| drained || by <= now || self.verifier.is_full())
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
        self.verify_by = None;
        for (from, result) in self.verifier.decide() {
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
                    self.manners.note(client);
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

    /// Drops or declines a client's frame before anything is computed over it, when there is no room
    /// for it anyway. Whatever the frame says of itself, the answer goes to the link's peer.
    fn sheds(&mut self, client: ClientId, frame: &[u8], now: Instant, out: &mut Outbox) -> bool {
        if !self.manners.listens_to(client, now) {
            self.drop("client_floods");
            return true;
        }
        let Some((Kind::REQUEST, first)) = Key::peek(frame) else { return false };
        let hint = match self.busy {
            true => Some(BEHIND),
            false => self.protocol.turns_away(client, RequestSeq(first)),
        };
        let Some(hint) = hint else { return false };
        self.reject(client, first, Reason::Busy, hint, out);
        true
    }

    fn on_request(
        &mut self,
        request: Verified<Received<Request>>,
        check: Check<'_>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let package = &request.message.0;
        let (client, first) = (package.client, package.first.0);
        if self.busy {
            // It was not yet when the package came.
            self.reject(client, first, Reason::Busy, BEHIND, out);
            return Ok(());
        }
        if package.kind == OpKind::User && package.ops.iter().any(|op| check(op).is_err()) {
            self.reject(client, first, Reason::Malformed, Duration::ZERO, out);
            return Ok(());
        }
        self.tell(Event::Request(request), now, out)
    }

    fn on_query(&mut self, query: Verified<Received<Plain>>, out: &mut Outbox) {
        let Principal::Client(client) = query.sender() else { return };
        let Plain { kind, seq: number, body } = query.into_inner().message;
        let question = if kind == Kind::NUMBERS { Question::Numbers } else { Question::App(body) };
        if self.busy {
            // It will be asked again; a REJECT would name a package.
            self.drop("query_while_busy");
        } else {
            out.execute.push_back(ToExecute::Query { client, number, question });
        }
    }

    fn drop(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
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
            ToOrder::Persisted(id) => self.tell(Event::Persisted(id), now, out),
            ToOrder::Executed { seq, block, checkpoint } => {
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
                self.verifier.set_membership(membership.clone());
                self.keyring.set_membership(membership.clone());
                out.membership = Some(membership);
                Ok(())
            }
            ToOrder::Decline { client, first, reason } => {
                self.reject(client, first.0, reason, Duration::ZERO, out);
                Ok(())
            }
            ToOrder::Dropped(reason) => {
                self.drop(reason);
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
                Effect::Send { to, message } => self.send(to, &message, out),
                Effect::Broadcast(message) => self.broadcast(&message, out),
                Effect::Persist { id, tag, record } => {
                    out.log.push_back(ToLog::Persist { id, tag, record });
                }
                Effect::PersistBlocks { id, height } => {
                    out.log.push_back(ToLog::PersistBlocks { id, height });
                }
                Effect::Stable { certificate, id, record } => {
                    out.log.push_back(ToLog::Stable { certificate, id, record });
                }
                Effect::Deliver(delivery) => {
                    self.sync.on_delivered(now);
                    let view = self.protocol.view();
                    out.execute.push_back(ToExecute::Deliver { delivery, view });
                }
                Effect::CatchUp(certificate) => {
                    self.sync.catch_up_to(certificate, now);
                    self.do_sync(now, out)?;
                }
                Effect::Forward { to, package } => {
                    self.send(to, &Forward(package), out);
                }
                Effect::Repeat { client, first, count, digest } => {
                    self.manners.note(client);
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
                    let time = proposal_time(now.0);
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
                    *self.evidence.entry(evidence.reason()).or_default() += 1;
                    self.accused.extend(evidence.replica().map(|by| (by, evidence.reason())));
                    if let Evidence::Divergence { replica, seq, what, state } = evidence {
                        self.sync.on_divergence(replica, seq, what, state);
                        self.do_sync(now, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What another replica wants of ours, or has sent of what we want.
    fn on_sync(
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
    fn do_sync(&mut self, now: Instant, out: &mut Outbox) -> Result<(), NodeError> {
        while let Some(step) = self.sync.poll() {
            match step {
                Step::Send { to, kind, number, body } => {
                    self.send(to, &Plain { kind, seq: number, body }, out);
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

    fn send(&mut self, to: ReplicaId, message: &impl Message, out: &mut Outbox) {
        let keyring = &mut self.keyring;
        let to = Principal::Replica(to);
        // The protocol names members only; the tag of another would be nobody's to check.
        let tag = |said: &[u8; 52]| Authenticator::Mac(keyring.tag(to, said).unwrap_or_default());
        let frame = message.to_frame(self.me, self.suite, tag);
        out.send.push_back((to, frame.to_bytes()));
    }

    fn broadcast(&mut self, message: &P::Message, out: &mut Outbox) {
        if self.keyring.membership().n() == 1 {
            return;
        }
        let keyring = &self.keyring;
        let frame = message.to_frame(self.me, self.suite, |said| keyring.mac_vector(said));
        let bytes = frame.to_bytes();
        for replica in keyring.membership().replicas().filter(|replica| *replica != self.me) {
            out.send.push_back((Principal::Replica(replica), bytes.clone()));
        }
    }

    fn reject(
        &mut self,
        client: ClientId,
        number: u64,
        reason: Reason,
        again: Duration,
        out: &mut Outbox,
    ) {
        self.manners.note(client);
        self.drop(match reason {
            Reason::Busy => "declined_busy",
            Reason::MustSign => "declined_must_sign",
            Reason::Malformed => "declined_malformed",
            Reason::UnknownClient => "declined_unknown_client",
            Reason::TooLarge => "declined_too_large",
            Reason::NumberUsed => "declined_number_used",
        });
        let retry_after_ms = u32::try_from(again.as_millis()).unwrap_or(u32::MAX);
        let body = Reject { reason, retry_after_ms }.to_bytes();
        let digest = tercio_crypto::hash(self.suite, &[&body]);
        let key = Key::of_replica(Kind::REJECT, self.me, self.protocol.view().0, number, digest);
        let to = Principal::Client(client);
        // Only requests of known clients get this far.
        let Ok(tag) = self.keyring.tag(to, &key.to_array()) else { return };
        let frame = Frame { key, auth: Authenticator::Mac(tag), body };
        out.send.push_back((to, frame.to_bytes()));
    }

    /// Where the replica stands.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        let mut dropped = self.verifier.dropped().clone();
        let here = self.dropped.iter().map(|(reason, count)| (*reason, *count));
        for (reason, count) in here.chain(self.sync.dropped()) {
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
            id: self.me,
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
            evidence: self.evidence.clone(),
            accused: self.accused.clone(),
            divergences,
            checked: self.verifier.checked(),
            links: BTreeMap::new(),
            peers: Vec::new(),
        }
    }
}
