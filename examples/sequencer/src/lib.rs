//! A fixed sequencer: one replica gives the numbers, for ever. The smallest ordering protocol that
//! runs under everything else that Tercio has: threads and sockets, the simulator, catch-up, audit.
//! It is there to be read by whoever writes another, and to hold the seams between protocol and
//! product; nobody should keep anything in a network of it.
//!
//! - The *sequencer* is the member with the lowest number. It puts what clients ask for into
//!   batches, gives each the next number, writes it into its log, and sends it to all once it is
//!   durable (ORDER). So it gives no number twice, whatever restarts lie between.
//! - Everybody delivers in the order of numbers. There are no votes and no views but the first.
//! - After every K numbers, when much was ordered, and when the network falls idle, all sign their
//!   state once its blocks are durable (CHECKPOINT). A quorum of equal ones is a certificate, as in
//!   any other protocol: what lies below is forgotten, audited and transferred by it.
//! - Frames may be lost. Each replica says now and then how far it came (STANDING), and whoever has
//!   more sends it: the sequencer orders, all their signatures, or a certificate (STABLE), up to
//!   which the replica fetches blocks or state.
//!
//! **What it promises.** No replica may fail ([`FaultModel::Faultless`]: f = 0, one answer is
//! enough for a client). Replicas may crash and start again with what they had written; without the
//! sequencer nothing is ordered, and without a majority no checkpoint is certified, so that ordering
//! stops a window above the last one. A sequencer whose log was lost cannot know which numbers it
//! gave, and gives none any more.

mod checkpoints;
mod message;

pub use message::SequencerMessage;

use bytes::Bytes;
use checkpoints::Checkpoints;
use message::{ORDER, STABLE, STANDING};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::{
    Admitted, Awaited, Delivery, Effect, Event, Evidence, Instant, MAX_PACKAGE, PersistId,
    Protocol, ProtocolKind, Reading, RecoverError, Recovery, RequestPool, Settings, SettingsError,
    Setup, Share, Status,
};
use tercio_crypto::Signer;
use tercio_types::{
    Batch, CertifiedCheckpoint, Checkpoint, ClientId, FaultModel, Membership, Package, Principal,
    ReplicaId, RequestSeq, SeqNum, SignatureBytes, Timestamp, View,
};
use tercio_wire::reject::Reason;
use tercio_wire::{DecodeError, EncodedBatch, Kind, checkpoint_key, package_len};

/// How many orders one STANDING brings.
const HELPED_AT_ONCE: usize = 32;

/// The first byte of a record: an order, with its number and batch.
const RECORD_ORDER: u8 = 1;
/// The record of a stable checkpoint: nothing else binds.
const RECORD_STABLE: &[u8] = &[2];

/// What is done once a record is durable.
#[derive(Debug)]
enum Promise {
    Order(SeqNum),
    Sign(Checkpoint),
}

/// A replica's part.
pub struct Sequencer {
    me: ReplicaId,
    membership: Arc<Membership>,
    signer: Signer,
    settings: Settings,
    now: Instant,
    pool: RequestPool,
    /// The sequencer's above the stable checkpoint; of others those that are not delivered.
    orders: BTreeMap<SeqNum, Arc<EncodedBatch>>,
    order_bytes: usize,
    /// The next number to give; none of one that may give none.
    next: Option<SeqNum>,
    /// Up to which number the sequencer's orders are durable.
    durable: SeqNum,
    /// Bytes ordered since a checkpoint fell due.
    uncovered: usize,
    delivered: SeqNum,
    executed: SeqNum,
    /// The last number after which a checkpoint was due.
    last_due: SeqNum,
    checkpoints: Checkpoints,
    catching_up: bool,
    written: PersistId,
    promises: VecDeque<(PersistId, Promise)>,
    standing_at: Instant,
    progress_at: Instant,
    helped: BTreeMap<ReplicaId, Instant>,
    effects: VecDeque<Effect<SequencerMessage>>,
    dropped: BTreeMap<&'static str, u64>,
}

impl ProtocolKind for Sequencer {
    const NAME: &'static str = "sequencer";
    const MODEL: FaultModel = FaultModel::Faultless;

    fn check(settings: &Settings, membership: &Membership) -> Result<(), SettingsError> {
        settings.check(membership)?;
        let without = "the protocol 'sequencer' does without it: leave it out";
        for (set, key) in [
            (settings.proposal_hooks, "proposal_hooks"),
            (settings.execute_before_propose, "execute_before_propose"),
            (settings.max_time_ahead.is_some(), "max_time_ahead_ms"),
        ] {
            if set {
                return Err(SettingsError { key, why: without });
            }
        }
        Ok(())
    }

    fn open(setup: Setup) -> Result<Self, RecoverError> {
        let Setup { me, membership, signer, settings, recovery, now } = setup;
        Self::check(&settings, &membership)?;
        let Recovery { records, lost_log, stable, delivered, windows, .. } = recovery;
        let in_window = settings.window / settings.checkpoint_interval;
        let certified = stable.map(Arc::new);
        // What is certified above what is here is fetched.
        let reached = certified.clone().filter(|c| c.checkpoint.seq <= delivered);
        let mut sequencer = Self {
            pool: RequestPool::new(settings.pool, windows, 0),
            orders: BTreeMap::new(),
            order_bytes: 0,
            next: None,
            durable: SeqNum(0),
            uncovered: 0,
            delivered,
            executed: delivered,
            last_due: SeqNum(0),
            checkpoints: Checkpoints::new(reached, in_window),
            catching_up: false,
            written: PersistId(0),
            promises: VecDeque::new(),
            standing_at: now + settings.status_interval,
            progress_at: now,
            helped: BTreeMap::new(),
            effects: VecDeque::new(),
            dropped: BTreeMap::new(),
            me,
            membership,
            signer,
            settings,
            now,
        };
        sequencer.last_due = sequencer.checkpoints.low();
        sequencer.recall(&records)?;
        if sequencer.leads() && !lost_log {
            let last = sequencer.orders.keys().last().copied().unwrap_or_default();
            let certified = certified.as_ref().map_or(SeqNum(0), |c| c.checkpoint.seq);
            let last = last.max(delivered).max(certified);
            (sequencer.next, sequencer.durable) = (Some(last.next()), last);
        }
        if let Some(certificate) = certified {
            sequencer.on_certificate(certificate);
            sequencer.catch_up();
        }
        sequencer.deliver();
        Ok(sequencer)
    }

    fn message_name(kind: Kind) -> Option<&'static str> {
        Some(match kind {
            ORDER => "ORDER",
            STANDING => "STANDING",
            STABLE => "STABLE",
            _ => return None,
        })
    }

    /// An order is final: whoever says it says the same.
    fn reading(kind: Kind) -> Reading {
        if kind == ORDER { Reading::Decision } else { Reading::Other }
    }
}

impl Sequencer {
    fn leader(&self) -> ReplicaId {
        self.membership.primary(View(0))
    }

    fn leads(&self) -> bool {
        self.me == self.leader()
    }

    fn drop_message(&mut self, why: &'static str) {
        *self.dropped.entry(why).or_default() += 1;
    }

    fn promise(&mut self, promise: Promise) -> PersistId {
        self.written.0 += 1;
        self.promises.push_back((self.written, promise));
        self.written
    }

    /// Takes up the orders of the log.
    fn recall(&mut self, records: &[Bytes]) -> Result<(), RecoverError> {
        let suite = self.membership.suite();
        for (index, record) in records.iter().enumerate() {
            let broken = |error| RecoverError::Record { index, error };
            let (kind, rest) =
                record.split_first().ok_or_else(|| broken(DecodeError::Truncated("record")))?;
            if record == RECORD_STABLE {
                continue;
            }
            let (seq, _) = rest
                .split_first_chunk()
                .filter(|_| *kind == RECORD_ORDER)
                .ok_or(broken(DecodeError::Unknown { what: "record", found: u64::from(*kind) }))?;
            let (seq, body) = (SeqNum(u64::from_le_bytes(*seq)), record.slice(9..));
            let digest = tercio_crypto::hash(suite, &[&body]);
            let batch = EncodedBatch::from_bytes(body, digest, suite).map_err(broken)?;
            if seq > self.checkpoints.low() {
                self.keep(seq, Arc::new(batch));
            }
        }
        Ok(())
    }

    fn keep(&mut self, seq: SeqNum, batch: Arc<EncodedBatch>) {
        self.order_bytes += batch.bytes.len();
        if let Some(before) = self.orders.insert(seq, batch) {
            self.order_bytes -= before.bytes.len();
        }
    }

    fn forget_up_to(&mut self, seq: SeqNum) {
        let above = self.orders.split_off(&seq.next());
        let gone = std::mem::replace(&mut self.orders, above);
        self.order_bytes -= gone.values().map(|batch| batch.bytes.len()).sum::<usize>();
    }

    /// The highest number that is given or taken in.
    fn high(&self) -> SeqNum {
        SeqNum(self.checkpoints.low().0.saturating_add(self.settings.window))
    }

    fn on_request(&mut self, package: Package, from_client: bool) {
        let (client, first, count) = (package.client, package.first, package.ops.len());
        let digest = package.digest;
        if package_len(&package) > MAX_PACKAGE {
            return self.drop_message("package_too_long");
        }
        let copy = (from_client && !self.leads()).then(|| package.clone());
        let share = if from_client { Share::Asked } else { Share::HandedOn };
        match self.pool.admit(package, share, self.now) {
            Admitted::Done => {
                self.effects.push_back(Effect::Repeat { client, first, count, digest });
            }
            Admitted::Full => {
                let reason = Reason::Busy;
                self.effects.push_back(Effect::Decline { client, first, reason });
            }
            Admitted::New | Admitted::Known => {
                if let Some(package) = copy {
                    let to = self.leader();
                    self.effects.push_back(Effect::Forward { to, package });
                }
            }
        }
    }

    /// The next batch goes out when nothing is under way or it is full, so that batches grow with
    /// the load.
    fn propose(&mut self) {
        while let Some(next) = self.next.filter(|next| *next <= self.high() && !self.catching_up) {
            let under_way = (next.0 - 1).saturating_sub(self.delivered.0);
            let Settings { batch_ops, batch_bytes, pipeline, held_bytes, .. } = self.settings;
            let ops = self.pool.queued_ops();
            let full = ops >= batch_ops || self.pool.queued_bytes() >= batch_bytes;
            let room = under_way < pipeline && self.order_bytes < held_bytes / 2;
            if ops == 0 || !room || under_way > 0 && !full {
                return;
            }
            let packages = self.pool.take_batch(batch_ops, batch_bytes, self.now);
            self.uncovered += packages.iter().map(package_len).sum::<usize>();
            let checkpoint = self.uncovered >= self.settings.checkpoint_bytes;
            self.order(next, packages, checkpoint);
        }
    }

    /// Gives a number to a batch. It is said, and delivered here, once the log has it.
    fn order(&mut self, seq: SeqNum, packages: Vec<Package>, checkpoint: bool) {
        let batch = Batch { time: Timestamp(self.now.0 / 1000), checkpoint, packages };
        let batch = Arc::new(EncodedBatch::new(batch, self.membership.suite()));
        self.next = Some(seq.next());
        if self.is_due(seq, &batch) {
            self.uncovered = 0;
        }
        let record = [&[RECORD_ORDER][..], &seq.0.to_le_bytes(), &batch.bytes].concat();
        self.keep(seq, batch);
        let id = self.promise(Promise::Order(seq));
        self.effects.push_back(Effect::Persist { id, tag: seq, record: record.into() });
    }

    /// Whether a checkpoint follows a batch.
    fn is_due(&self, seq: SeqNum, batch: &EncodedBatch) -> bool {
        batch.batch.checkpoint || seq.0.is_multiple_of(self.settings.checkpoint_interval)
    }

    fn on_persisted(&mut self, id: PersistId) {
        while let Some((_, promise)) = self.promises.pop_front_if(|(of, _)| *of <= id) {
            match promise {
                Promise::Order(seq) => {
                    self.durable = self.durable.max(seq);
                    if let Some(batch) = self.orders.get(&seq).cloned() {
                        let order = SequencerMessage::Order { seq, batch };
                        self.effects.push_back(Effect::Broadcast(order));
                    }
                }
                Promise::Sign(checkpoint) => self.sign(checkpoint),
            }
        }
    }

    fn deliver(&mut self) {
        while !self.catching_up && (!self.leads() || self.delivered < self.durable) {
            let seq = self.delivered.next();
            let Some(batch) = self.orders.get(&seq).cloned() else { return };
            self.delivered = seq;
            self.progress_at = self.now;
            if !self.leads() {
                // Only the sequencer sends orders again.
                self.forget_up_to(seq);
            }
            for package in &batch.batch.packages {
                self.pool.delivered(package);
            }
            self.pool.trim(self.now);
            let checkpoint = self.is_due(seq, &batch);
            if checkpoint {
                self.last_due = seq;
            }
            let delivery = Delivery { seq, batch: Some(batch), checkpoint };
            self.effects.push_back(Effect::Deliver(delivery));
        }
    }

    fn on_message(&mut self, from: ReplicaId, message: SequencerMessage) {
        match message {
            SequencerMessage::Order { .. } if from != self.leader() => {
                let why = "order_of_another_than_the_sequencer";
                let evidence = Evidence::Malformed { replica: from, why };
                self.effects.push_back(Effect::Evidence(evidence));
            }
            SequencerMessage::Order { seq, batch } => {
                let room = self.order_bytes + batch.bytes.len() <= self.settings.held_bytes;
                // Numbers run a window ahead of the sequencer's checkpoint, and ours may be older.
                let most = self.high().0.saturating_add(self.settings.window);
                if seq > self.delivered && seq.0 <= most && room {
                    self.keep(seq, batch);
                } else if seq > self.delivered {
                    self.drop_message("order_above_window");
                }
            }
            SequencerMessage::Checkpoint { checkpoint, signature } => {
                self.on_checkpoint(from, checkpoint, signature);
            }
            SequencerMessage::Standing { delivered, stable } => {
                self.help(from, delivered, stable);
            }
            SequencerMessage::Stable(certificate) => self.on_certificate(certificate),
        }
    }

    /// A state was reached: it is signed once its blocks are durable.
    fn on_executed(&mut self, seq: SeqNum, checkpoint: Option<Checkpoint>) {
        self.executed = self.executed.max(seq);
        self.progress_at = self.now;
        if let Some(checkpoint) = checkpoint.filter(|c| c.seq > self.checkpoints.low()) {
            let height = checkpoint.height;
            let id = self.promise(Promise::Sign(checkpoint));
            self.effects.push_back(Effect::PersistBlocks { id, height });
        }
        let executed = self.executed;
        let reached = self.checkpoints.ahead.take_if(|ahead| ahead.checkpoint.seq <= executed);
        reached.into_iter().for_each(|certificate| self.on_certificate(certificate));
    }

    fn sign(&mut self, checkpoint: Checkpoint) {
        let said = checkpoint_key(self.membership.suite(), self.me, &checkpoint);
        let signature = self.signer.sign(&said.to_array());
        let message = SequencerMessage::Checkpoint { checkpoint: checkpoint.clone(), signature };
        self.effects.push_back(Effect::Broadcast(message));
        self.on_checkpoint(self.me, checkpoint, signature);
    }

    fn on_checkpoint(&mut self, by: ReplicaId, theirs: Checkpoint, signature: SignatureBytes) {
        let seq = theirs.seq;
        self.checkpoints.note(by, theirs, signature);
        if let Some(own) = self.checkpoints.of(self.me, seq) {
            for replica in self.membership.replicas() {
                let other = self.checkpoints.of(replica, seq);
                if let Some((what, other)) = other.and_then(|o| Some((own.first_difference(o)?, o)))
                {
                    let evidence = Evidence::Divergence { replica, seq, what, state: other.state };
                    self.effects.push_back(Effect::Evidence(evidence));
                }
            }
        }
        if let Some(certificate) = self.checkpoints.certify(seq, self.membership.quorum()) {
            self.on_certificate(Arc::new(certificate));
        }
    }

    /// A certificate whose signatures are good.
    fn on_certificate(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        let seq = certificate.checkpoint.seq;
        if certificate.signatures.len() < self.membership.quorum() {
            return self.drop_message("certificate_without_quorum");
        }
        if seq <= self.checkpoints.low() {
            return;
        }
        let own = self.checkpoints.of(self.me, seq);
        if let Some(what) = own.and_then(|own| own.first_difference(&certificate.checkpoint)) {
            let evidence = Evidence::OwnStateDiffers { seq, what };
            return self.effects.push_back(Effect::Evidence(evidence));
        }
        if seq > self.executed {
            let known = self.checkpoints.ahead.as_ref().map(|ahead| ahead.checkpoint.seq);
            if known.is_none_or(|known| known < seq) {
                self.checkpoints.ahead = Some(certificate);
            }
            return;
        }
        self.checkpoints.move_to(certificate.clone());
        self.forget_up_to(seq);
        self.progress_at = self.now;
        self.written.0 += 1;
        let (id, record) = (self.written, Bytes::from_static(RECORD_STABLE));
        self.effects.push_back(Effect::Stable { certificate, id, record });
    }

    /// Has blocks fetched up to a certificate that is ahead of what was delivered.
    fn catch_up(&mut self) {
        let delivered = self.delivered;
        let ahead = self.checkpoints.ahead.as_ref();
        let ahead = ahead.filter(|ahead| ahead.checkpoint.seq > delivered && !self.catching_up);
        if let Some(certificate) = ahead.cloned() {
            self.catching_up = true;
            self.effects.push_back(Effect::CatchUp(certificate));
        }
    }

    /// Sends one that is behind what it lacks.
    fn help(&mut self, to: ReplicaId, delivered: SeqNum, stable: SeqNum) {
        let again = |at: &Instant| *at + self.settings.status_interval / 2;
        if self.helped.get(&to).map(again).is_some_and(|again| again > self.now) {
            return;
        }
        self.helped.insert(to, self.now);
        if let Some(known) = self.checkpoints.stable.clone().filter(|c| c.checkpoint.seq > stable) {
            self.effects.push_back(Effect::Send { to, message: SequencerMessage::Stable(known) });
        }
        for (checkpoint, signature) in self.checkpoints.above(self.me, stable).cloned() {
            let message = SequencerMessage::Checkpoint { checkpoint, signature };
            self.effects.push_back(Effect::Send { to, message });
        }
        if self.leads() && delivered < self.durable {
            let missing = self.orders.range(delivered.next()..=self.durable).take(HELPED_AT_ONCE);
            for (seq, batch) in missing {
                let message = SequencerMessage::Order { seq: *seq, batch: batch.clone() };
                self.effects.push_back(Effect::Send { to, message });
            }
        }
    }

    /// When an idle sequencer orders an empty batch that asks for a checkpoint.
    fn checkpoint_deadline(&self) -> Option<Instant> {
        let next = self.next.filter(|next| *next <= self.high())?;
        let idle = next == self.delivered.next() && self.pool.is_empty() && !self.catching_up;
        let uncovered = self.delivered > self.last_due;
        (idle && uncovered).then(|| self.progress_at + self.settings.checkpoint_idle)
    }

    fn on_timeout(&mut self) {
        if self.checkpoint_deadline().is_some_and(|at| at <= self.now)
            && let Some(next) = self.next
        {
            self.order(next, vec![], true);
        }
        if self.standing_at <= self.now {
            let stable = self.checkpoints.low();
            let waits = !self.pool.is_empty() || !self.orders.is_empty() || self.delivered > stable;
            let Settings { status_interval, idle_interval, .. } = self.settings;
            self.standing_at = self.now + if waits { status_interval } else { idle_interval };
            let standing = SequencerMessage::Standing { delivered: self.delivered, stable };
            self.effects.push_back(Effect::Broadcast(standing));
            self.catch_up();
        }
    }
}

impl Protocol for Sequencer {
    type Message = SequencerMessage;

    fn handle(&mut self, event: Event<SequencerMessage>, now: Instant) {
        self.now = self.now.max(now);
        match event {
            Event::Message(message) => {
                let received = message.into_inner();
                match received.sender() {
                    Principal::Replica(from) => self.on_message(from, received.message),
                    Principal::Client(_) => self.drop_message("not_from_a_replica"),
                }
            }
            Event::Request(request) => self.on_request(request.into_inner().message.0, true),
            Event::Forwarded(forward) if forward.doubts().is_empty() => {
                self.on_request(forward.into_inner().message.0, false);
            }
            Event::Forwarded(_) => self.drop_message("forwarded_bad_mac"),
            Event::Timeout => self.on_timeout(),
            Event::Persisted(id) => self.on_persisted(id),
            Event::Executed { seq, checkpoint, .. } => self.on_executed(seq, checkpoint),
            Event::CaughtUp { certificate, windows } => {
                let seq = certificate.checkpoint.seq;
                self.catching_up = false;
                if seq > self.delivered {
                    (self.delivered, self.executed, self.last_due) = (seq, seq, seq);
                    self.next = self.next.map(|next| next.max(seq.next()));
                    self.durable = self.durable.max(seq);
                    self.forget_up_to(seq);
                    self.pool.replace_windows(windows, self.now);
                }
                self.on_certificate(certificate);
            }
            // There are no votes, and no hooks.
            Event::Counted { .. } | Event::Proposal(_) | Event::Verdict { .. } => {}
        }
        self.deliver();
        self.propose();
    }

    fn poll_effect(&mut self) -> Option<Effect<SequencerMessage>> {
        self.effects.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.checkpoint_deadline().into_iter().chain([self.standing_at]).min()
    }

    fn view(&self) -> View {
        View(0)
    }

    fn turns_away(&mut self, client: ClientId, first: RequestSeq) -> Option<Duration> {
        self.pool.turns_away(client, first)
    }

    fn ahead(&self) -> Option<Arc<CertifiedCheckpoint>> {
        self.checkpoints.ahead.clone()
    }

    fn retry_after(&self) -> Duration {
        self.pool.retry_after()
    }

    fn status(&self) -> Status {
        let waits = !self.pool.is_empty() && !self.leads();
        Status {
            primary: self.leader(),
            delivered: self.delivered,
            stable: self.checkpoints.low(),
            pending: self.pool.len(),
            slots: self.orders.len(),
            batch_bytes: self.order_bytes,
            checkpoints: self.checkpoints.len(),
            oldest_pending: self.pool.oldest_arrival(),
            progress_at: self.progress_at,
            waiting: waits
                .then(|| (Awaited::Named("ORDER"), [self.leader()].into_iter().collect())),
            dropped: self.dropped.clone(),
            ..Status::default()
        }
    }
}
