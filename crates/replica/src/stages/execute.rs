//! Execution: runs what was ordered, and answers clients.
//!
//! - A delivery is executed once and in order. The block that it makes goes to the log before the
//!   acknowledgement goes to ordering.
//! - The packages of a batch are answered in one frame to each client: results in full from the
//!   replica that the package names, their digest from the others (OSDI'99 section 4.1, 'digest
//!   replies'). Everybody answers in full when that is short, and a package that was sent again. One
//!   that uses numbers of another package is declined, and so is one whose results fit no frame.
//! - A query is answered from the state as it stands here and now. One answer means nothing: only
//!   f+1 equal ones hold a correct replica's, and only of some moment (`--stale`): the answer names
//!   the height.
//! - Certified blocks are executed as the log's own are. At each certificate that they come with
//!   the chained results must be the certified ones, and with them block, membership and time; at
//!   the last, and wherever a snapshot is taken, the digests of state and client table as well.
//!   Those in between would cost as much as executing, and nobody asks for them: ordering is told
//!   only when the last is reached, so the replica attests nothing before.
//! - The state has one owner, this stage. A fetched one replaces it here, between two executions.

use super::{Outbox, Question, Reached, Rhythm, StateAt, ToExecute, ToLog, ToOrder};
use crate::NodeError;
use bytes::Bytes;
use std::sync::Arc;
use tercio_consensus::Delivery;
use tercio_crypto::Keyring;
use tercio_execution::{AppError, Engine, PackageReply, Snapshot};
use tercio_sync::CertifiedBlocks;
use tercio_sync::transfer::{Install, Pieces};
use tercio_types::{
    Authenticator, Batch, Checkpoint, ClientId, Digest, Principal, ReplicaId, SeqNum, Suite,
    Timestamp, View,
};
use tercio_wire::reject::Reason;
use tercio_wire::{
    Decode, Encode, Frame, FrameWriter, Key, Kind, MAX_FRAME, Reply, encode_replies,
};

/// The longest body that fits a frame with room for everything else in it.
const MAX_BODY: usize = MAX_FRAME - 1024;

/// A REPLY takes no further entries when it is longer than this.
const REPLY_BYTES: usize = 64 << 10;
/// When the results of a batch for a client are at most this long, all replicas send them: the
/// client need not wait for the one that its package names, which may be the last of them.
const SHORT: usize = 1 << 10;
/// The bytes of a tag.
const TAG: usize = 16;

/// The engine with what it needs to talk to clients.
pub struct ExecuteStage {
    me: ReplicaId,
    suite: Suite,
    keyring: Keyring,
    engine: Engine,
    rhythm: Rhythm,
    /// The number up to which all is executed; ahead of the engine's after null requests.
    executed: SeqNum,
    /// Room for the entries of a REPLY, and for their digests.
    entries: Vec<Reply>,
    digests: Vec<Digest>,
}

impl ExecuteStage {
    /// Takes over an engine as recovery left it.
    pub(crate) fn new(
        me: ReplicaId,
        keyring: Keyring,
        engine: Engine,
        executed: SeqNum,
        rhythm: Rhythm,
    ) -> Self {
        let suite = keyring.membership().suite();
        let (entries, digests) = (Vec::new(), Vec::new());
        Self { me, suite, keyring, engine, rhythm, executed, entries, digests }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The application's cheap look at an operation before it is ordered.
    ///
    /// # Errors
    /// Why it can never make sense.
    pub fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        self.engine.check(operation)
    }

    /// Does what it is told.
    ///
    /// # Errors
    /// When certified blocks do not give the certified state.
    pub fn handle(&mut self, command: ToExecute, out: &mut Outbox) -> Result<(), NodeError> {
        match command {
            ToExecute::Deliver { delivery, view } => self.deliver(&delivery, view, out),
            ToExecute::Repeat { client, first, count, digest, view } => {
                let reply = self.engine.reply(client, first, count, &digest);
                self.reply_all(reply.into_iter().collect(), view, out);
            }
            ToExecute::Query { client, number, question } => {
                self.answer(client, number, &question, out);
            }
            ToExecute::Build { packages, time } => {
                let batch = Batch { time, checkpoint: false, packages };
                out.order.push_back(ToOrder::Proposal(self.engine.build_proposal(&batch)));
            }
            ToExecute::Validate { seq, batch } => {
                let accept = self.engine.validate_proposal(&batch.batch).is_ok();
                out.order.push_back(ToOrder::Verdict { seq, digest: batch.digest, accept });
            }
            ToExecute::Replay(blocks) => self.replay(blocks, out)?,
            ToExecute::Pieces => {
                let pieces = Box::new(Pieces::of(self.suite, self.engine.snapshot()));
                out.order.push_back(ToOrder::Pieces(pieces));
            }
            ToExecute::Install(install) => self.install(install, out)?,
        }
        self.note_clients(out);
        Ok(())
    }

    /// Tells everybody who holds clients' keys when a client was added.
    fn note_clients(&mut self, out: &mut Outbox) {
        let membership = self.engine.membership();
        if !Arc::ptr_eq(membership, self.keyring.membership()) {
            self.keyring.set_membership(membership.clone());
            out.order.push_back(ToOrder::Membership(membership.clone()));
        }
    }

    fn deliver(&mut self, delivery: &Delivery, view: View, out: &mut Outbox) {
        let seq = delivery.seq;
        assert_eq!(seq, self.executed.next(), "deliveries come in order, each once");
        self.executed = seq;
        let mut block = None;
        if let Some(batch) = &delivery.batch {
            let executed = self.engine.execute(seq, &batch.batch, batch.digest);
            if let Some(header) = executed.block {
                block = Some((header.height, self.engine.block()));
                self.rhythm.block(batch.bytes.len());
                out.log.push_back(ToLog::Block { header, body: batch.bytes.clone() });
            }
            self.reply_all(executed.replies, view, out);
        }
        let checkpoint = delivery.checkpoint.then(|| {
            let checkpoint = self.checkpoint(seq, out);
            Box::new(Reached { checkpoint, top: self.engine.state_top() })
        });
        out.order.push_back(ToOrder::Executed { seq, block, checkpoint });
    }

    /// The checkpoint at `seq`, with a snapshot when one is due.
    fn checkpoint(&mut self, seq: SeqNum, out: &mut Outbox) -> Checkpoint {
        let checkpoint = self.engine.checkpoint(seq);
        if self.rhythm.checkpoint() {
            self.take_snapshot(&checkpoint, out);
        }
        checkpoint
    }

    /// Hands the state, which is at `checkpoint`, to the log.
    fn take_snapshot(&mut self, checkpoint: &Checkpoint, out: &mut Outbox) {
        let snapshot = self.engine.snapshot();
        let chain_bytes = self.rhythm.taken(snapshot.bytes());
        let (checkpoint, app) = (checkpoint.clone(), self.engine.app_name());
        out.log.push_back(ToLog::Snapshot(StateAt { checkpoint, chain_bytes, snapshot, app }));
    }

    /// Goes to a state that was fetched: every piece of it was checked as it came.
    fn install(&mut self, install: Install, out: &mut Outbox) -> Result<(), NodeError> {
        let Install { certificate, chain_bytes, pieces, engine } = install;
        let checkpoint = certificate.checkpoint.clone();
        assert!(checkpoint.seq > self.executed, "state goes forward");
        let chunks = pieces.snapshot(&checkpoint, engine);
        let height = checkpoint.height;
        let restored = self.engine.restore(&checkpoint, &chunks);
        restored.map_err(|why| NodeError::Snapshot { height, why })?;
        self.executed = checkpoint.seq;
        let snapshot = Snapshot::from(chunks);
        self.rhythm.restored(chain_bytes, snapshot.bytes());
        let windows = self.engine.windows();
        let app = self.engine.app_name();
        let state = StateAt { checkpoint, chain_bytes, snapshot, app };
        out.log.push_back(ToLog::Installed { certificate, state, windows });
        Ok(())
    }

    /// Answers the packages of a batch: one frame for each client, unless it grows too long.
    fn reply_all(&mut self, mut replies: Vec<PackageReply>, view: View, out: &mut Outbox) {
        replies.retain(|PackageReply { client, first, reuses, body, .. }| {
            let reason = match reuses {
                true => Reason::NumberUsed,
                false if body.len() > MAX_BODY => Reason::ResultTooLong,
                false => return true,
            };
            let (client, first) = (*client, *first);
            out.order.push_back(ToOrder::Decline { client, first, reason });
            false
        });
        // Stable: the packages of a client stay in order.
        replies.sort_by_key(|reply| reply.client);
        for of_client in replies.chunk_by(|a, b| a.client == b.client) {
            let client = of_client[0].client;
            let (mut entries, mut len) = (std::mem::take(&mut self.entries), 0);
            let in_all = of_client.iter().map(|reply| reply.body.len()).sum::<usize>();
            for reply in of_client {
                let entry = self.entry(reply, in_all <= SHORT);
                len += entry.encoded_len();
                if len > REPLY_BYTES && !entries.is_empty() {
                    self.send_replies(client, &entries, view, out);
                    len = entry.encoded_len();
                    entries.clear();
                }
                entries.push(entry);
            }
            self.send_replies(client, &entries, view, out);
            entries.clear();
            self.entries = entries;
        }
    }

    /// What we say of a package: results in full from the replier, or when they are `short`; their
    /// digest from others.
    fn entry(&self, reply: &PackageReply, short: bool) -> Reply {
        let full = short || reply.replier.is_none_or(|replier| replier == self.me);
        let results = if full { reply.body.clone() } else { Bytes::new() };
        Reply { first: reply.first, digest: reply.digest, results }
    }

    fn send_replies(&mut self, client: ClientId, entries: &[Reply], view: View, out: &mut Outbox) {
        let body = 4 + entries.iter().map(Reply::encoded_len).sum::<usize>();
        let mut frame = FrameWriter::new(TAG, body);
        let digest = encode_replies(entries, self.suite, &mut self.digests, frame.body());
        let key = Key::of_replica(Kind::REPLY, self.me, view.0, entries[0].first.0, digest);
        let to = Principal::Client(client);
        // A batch holds packages of known clients only; each was checked.
        let Ok(tag) = self.keyring.tag(to, &key.to_array()) else { return };
        out.send.push_back((to, frame.finish(&key, &Authenticator::Mac(tag))));
    }

    fn answer(&mut self, client: ClientId, number: u64, question: &Question, out: &mut Outbox) {
        let answer = match question {
            Question::App(question) => self.engine.query(question),
            Question::Numbers => Ok(self.engine.window(client).to_bytes()),
        };
        // A question that makes no sense has no answer; a REJECT would name a package.
        let Ok(body) = answer else {
            return out.order.push_back(ToOrder::Dropped("query_without_sense"));
        };
        if body.len() > MAX_BODY {
            return out.order.push_back(ToOrder::Dropped("result_too_long"));
        }
        let digest = tercio_crypto::hash(self.suite, &[&body]);
        let height = self.engine.height().0;
        let key = Key::of_replica(Kind::ANSWER, self.me, height, number, digest);
        let to = Principal::Client(client);
        let Ok(tag) = self.keyring.tag(to, &key.to_array()) else { return };
        out.send.push_back((to, Frame { key, auth: Authenticator::Mac(tag), body }.to_bytes()));
    }

    /// Does a slice of what a command will take that need not be done at once; whether more is to
    /// do. Blocks whose state is to be compared are executed when that is as good as computed.
    pub fn prepare(&mut self, command: &ToExecute) -> bool {
        matches!(command, ToExecute::Replay(run) if run.last) && self.engine.prepare_checkpoint()
    }

    fn replay(&mut self, run: CertifiedBlocks, out: &mut Outbox) -> Result<(), NodeError> {
        let CertifiedBlocks { blocks, certificate, last } = run;
        self.engine.set_catching_up(true);
        for block in blocks {
            let height = block.header.height;
            let batch = Batch::from_bytes(&block.body, self.suite)
                .map_err(|why| NodeError::Body { height, why })?;
            self.engine.replay(&block.header, &batch)?;
            self.rhythm.block(block.body.len());
            out.log.push_back(ToLog::Block { header: block.header, body: block.body });
        }
        let certified = &certificate.checkpoint;
        let seq = certified.seq;
        let snapshot = self.rhythm.checkpoint();
        let ours = match last || snapshot {
            true => self.engine.checkpoint(seq),
            false => self.engine.checkpoint_with(seq, certified.state, certified.clients),
        };
        must_equal(&ours, certified)?;
        if snapshot {
            self.take_snapshot(&ours, out);
        }
        self.executed = seq;
        let windows = last.then(|| {
            self.engine.set_catching_up(false);
            self.engine.windows()
        });
        out.log.push_back(ToLog::Certificate(certificate.clone()));
        out.order.push_back(ToOrder::Replayed { certificate, windows });
        Ok(())
    }
}

/// Whether our state is what a quorum certified.
///
/// # Errors
/// Names the first field that differs.
pub(crate) fn must_equal(ours: &Checkpoint, certified: &Checkpoint) -> Result<(), NodeError> {
    match ours.first_difference(certified) {
        None => Ok(()),
        Some(what) => {
            let (seq, height) = (certified.seq, certified.height);
            Err(NodeError::StateDiffers { seq, height, what })
        }
    }
}

/// The time that a batch proposed at `nanos` would carry.
pub(crate) fn proposal_time(nanos: u64) -> Timestamp {
    Timestamp(nanos / 1000)
}
