//! Execution: runs what was ordered, and answers clients.
//!
//! - A delivery is executed once and in order, any time after its block went to the log: nothing of
//!   ordering waits for that. The executor is handed as much as it takes; behind a delivery that asks
//!   for a checkpoint nothing, until it is executed and the state is taken.
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
use std::collections::VecDeque;
use std::sync::Arc;
use tercio_crypto::Keyring;
use tercio_execution::{
    Chained, Executed, ExecutedBlock, Execution, ExecutorFault, Ordered, PackageReplies,
    PackageReply, Snapshot, Wake,
};
use tercio_ledger::{BlockResults, Kept, PackageResults};
use tercio_sync::CertifiedBlocks;
use tercio_sync::transfer::{Install, Pieces};
use tercio_types::{
    Authenticator, Batch, Checkpoint, ClientId, Digest, Principal, ReplicaId, SeqNum, Suite,
    Timestamp, View,
};
use tercio_wire::reject::Reason;
use tercio_wire::{
    Encode, EncodedBatch, Frame, FrameWriter, Key, Kind, MAX_FRAME, Reply, ResultStatus,
    encode_replies,
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

/// A delivery that waits for its turn.
struct Delivered {
    ordered: Ordered,
    batch: Option<Arc<EncodedBatch>>,
    expected: Expected,
}

/// What is to follow when a delivery is executed.
struct Expected {
    /// Whether a checkpoint is asked for.
    checkpoint: bool,
    /// The view to name in replies.
    view: View,
    /// How long the block's body is.
    bytes: usize,
}

/// The executing half of the engine with what it needs to talk to clients.
pub struct ExecuteStage {
    me: ReplicaId,
    suite: Suite,
    keyring: Keyring,
    execution: Execution,
    rhythm: Rhythm,
    /// The number up to which all is executed.
    executed: SeqNum,
    /// Deliveries that are not handed to the executor yet, and those that are.
    waiting: VecDeque<Delivered>,
    under_way: VecDeque<Expected>,
    /// Room for the entries of a REPLY, and for their digests.
    entries: Vec<Reply>,
    digests: Vec<Digest>,
}

impl ExecuteStage {
    /// Takes over an engine as recovery left it.
    pub(crate) fn new(
        me: ReplicaId,
        keyring: Keyring,
        execution: Execution,
        executed: SeqNum,
        rhythm: Rhythm,
    ) -> Self {
        let suite = keyring.membership().suite();
        Self {
            me,
            suite,
            keyring,
            execution,
            rhythm,
            executed,
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            entries: Vec::new(),
            digests: Vec::new(),
        }
    }

    /// The executing half of the engine.
    #[must_use]
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// Whom the executor calls when [`Self::progress`] has something to do.
    pub(crate) fn set_wake(&mut self, wake: Wake) {
        self.execution.set_wake(wake);
    }

    /// Whether deliveries are not executed yet.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !self.under_way.is_empty() || !self.waiting.is_empty()
    }

    /// Does what it is told.
    ///
    /// # Errors
    /// When certified blocks do not give the certified state.
    pub fn handle(&mut self, command: ToExecute, out: &mut Outbox) -> Result<(), NodeError> {
        match command {
            ToExecute::Deliver { ordered, batch, checkpoint, view } => {
                let bytes = batch.as_ref().map_or(0, |batch| batch.bytes.len());
                let expected = Expected { checkpoint, view, bytes };
                self.waiting.push_back(Delivered { ordered, batch, expected });
                self.progress(out)?;
            }
            ToExecute::Progress => self.progress(out)?,
            ToExecute::Repeat { client, first, count, digest, view } => {
                let reply = self.execution.reply(client, first, count, &digest);
                self.reply_all(&reply.unwrap_or_default(), view, out);
            }
            ToExecute::Query { client, number, question } => {
                self.answer(client, number, &question, out);
            }
            ToExecute::Build { packages, time } => {
                let batch = Batch { time, checkpoint: false, packages };
                out.order.push_back(ToOrder::Proposal(self.execution.build_proposal(&batch)));
            }
            ToExecute::Validate { seq, batch } => {
                let accept = self.execution.validate_proposal(&batch.batch).is_ok();
                out.order.push_back(ToOrder::Verdict { seq, digest: batch.digest, accept });
            }
            ToExecute::Replay(blocks) => self.replay(blocks, out)?,
            ToExecute::Pieces => {
                let pieces = Box::new(Pieces::of(self.suite, self.execution.snapshot()));
                out.order.push_back(ToOrder::Pieces(pieces));
            }
            ToExecute::Install(install) => self.install(install, out)?,
        }
        Ok(())
    }

    /// Goes over to another membership when a client was added; whether one was.
    fn note_clients(&mut self) -> bool {
        let membership = self.execution.membership();
        let is_new = !Arc::ptr_eq(membership, self.keyring.membership());
        if is_new {
            self.keyring.set_membership(membership.clone());
        }
        is_new
    }

    /// The same, when the chain that ordering has does not know it yet.
    fn tell_clients(&mut self, out: &mut Outbox) {
        if self.note_clients() {
            out.order.push_back(ToOrder::Membership(self.keyring.membership().clone()));
        }
    }

    /// Hands the executor what it takes, and takes what it has.
    ///
    /// # Errors
    /// When the executor breaks its contract.
    pub fn progress(&mut self, out: &mut Outbox) -> Result<(), NodeError> {
        loop {
            while self.may_begin()
                && let Some(Delivered { ordered, batch, expected }) = self.waiting.pop_front()
            {
                self.execution.begin(ordered, batch);
                self.under_way.push_back(expected);
            }
            match self.execution.finish().map_err(|fault| self.broken(fault))? {
                Some(executed) => self.executed(executed, out),
                None => return Ok(()),
            }
        }
    }

    fn broken(&self, fault: ExecutorFault) -> NodeError {
        NodeError::Executor { name: self.execution.app_name(), fault }
    }

    /// A checkpoint is of the state behind its delivery and before the next.
    fn may_begin(&self) -> bool {
        self.under_way.back().is_none_or(|last| !last.checkpoint) && self.execution.may_begin()
    }

    fn executed(&mut self, executed: Executed, out: &mut Outbox) {
        let (seq, late) = (executed.seq, executed.late);
        assert_eq!(seq, self.executed.next(), "deliveries come in order, each once");
        self.executed = seq;
        let expected = self.under_way.pop_front().expect("it was under way");
        self.note_clients();
        if executed.block.is_some() {
            out.order.extend(executed.aborted.iter().map(|why| ToOrder::Dropped(why.reason())));
            self.rhythm.block(expected.bytes);
            out.log.extend(block_results(&executed).map(ToLog::Results));
            self.reply_all(&executed.replies, expected.view, out);
        }
        let checkpoint = expected.checkpoint.then(|| {
            let checkpoint = self.checkpoint(seq, out);
            Box::new(Reached { checkpoint, top: self.execution.state_top() })
        });
        let block = executed.block.map(|block| (block.header.height, block.hash));
        out.order.push_back(ToOrder::Executed { seq, block, late, checkpoint });
    }

    /// The checkpoint at `seq`, with a snapshot when one is due.
    fn checkpoint(&mut self, seq: SeqNum, out: &mut Outbox) -> Checkpoint {
        let checkpoint = self.execution.checkpoint(seq);
        if self.rhythm.checkpoint() {
            self.take_snapshot(&checkpoint, out);
        }
        checkpoint
    }

    /// Hands the state, which is at `checkpoint`, to the log.
    fn take_snapshot(&mut self, checkpoint: &Checkpoint, out: &mut Outbox) {
        let snapshot = self.execution.snapshot();
        let chain_bytes = self.rhythm.taken(snapshot.bytes());
        let (checkpoint, app) = (checkpoint.clone(), self.execution.app_name());
        out.log.push_back(ToLog::Snapshot(StateAt { checkpoint, chain_bytes, snapshot, app }));
    }

    /// Goes to a state that was fetched: every piece of it was checked as it came.
    fn install(&mut self, install: Install, out: &mut Outbox) -> Result<(), NodeError> {
        let Install { certificate, chain_bytes, pieces, engine } = install;
        let checkpoint = certificate.checkpoint.clone();
        assert!(checkpoint.seq > self.executed, "state goes forward");
        let chunks = pieces.snapshot(&checkpoint, engine);
        let height = checkpoint.height;
        let restored = self.execution.restore(&checkpoint, &chunks);
        restored.map_err(|why| NodeError::Snapshot { height, why })?;
        self.executed = checkpoint.seq;
        let snapshot = Snapshot::from(chunks);
        self.rhythm.restored(chain_bytes, snapshot.bytes());
        self.tell_clients(out);
        let chain = Box::new(self.execution.chain());
        let app = self.execution.app_name();
        let state = StateAt { checkpoint, chain_bytes, snapshot, app };
        out.log.push_back(ToLog::Installed { certificate, state, chain });
        Ok(())
    }

    /// Answers the packages of a batch: one frame for each client, unless it grows too long.
    fn reply_all(&mut self, replies: &PackageReplies, view: View, out: &mut Outbox) {
        let mut order = Vec::with_capacity(replies.packages.len());
        order.extend(replies.packages.iter().filter(
            |PackageReply { client, first, reuses, body, .. }| {
                let reason = match reuses {
                    true => Reason::NumberUsed,
                    false if body.len() > MAX_BODY => Reason::ResultTooLong,
                    false => return true,
                };
                let (client, first) = (*client, *first);
                out.order.push_back(ToOrder::Decline { client, first, reason });
                false
            },
        ));
        // Stable: the packages of a client stay in order.
        order.sort_by_key(|reply| reply.client);
        for of_client in order.chunk_by(|a, b| a.client == b.client) {
            let client = of_client[0].client;
            let (mut entries, mut len) = (std::mem::take(&mut self.entries), 0);
            let in_all = of_client.iter().map(|reply| reply.body.len()).sum::<usize>();
            for reply in of_client {
                let entry = self.entry(replies, reply, in_all <= SHORT);
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
    fn entry(&self, replies: &PackageReplies, reply: &PackageReply, short: bool) -> Reply {
        let full = short || reply.replier.is_none_or(|replier| replier == self.me);
        let results = if full { replies.body(reply) } else { Bytes::new() };
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
            Question::App(question) => self.execution.query(question),
            Question::Numbers => Ok(self.execution.window(client).to_bytes()),
            Question::Number(number) => Ok(match self.execution.result_of(client, *number) {
                Some(result) if result.len() > MAX_BODY => {
                    Bytes::from_static(&[ResultStatus::NoLongerKept as u8])
                }
                result => result.unwrap_or_default(),
            }),
        };
        // A question that makes no sense has no answer; a REJECT would name a package.
        let Ok(body) = answer else {
            return out.order.push_back(ToOrder::Dropped("query_without_sense"));
        };
        if body.len() > MAX_BODY {
            return out.order.push_back(ToOrder::Dropped("result_too_long"));
        }
        let digest = tercio_crypto::hash(self.suite, &[&body]);
        let height = self.execution.height().0;
        let key = Key::of_replica(Kind::ANSWER, self.me, height, number, digest);
        let to = Principal::Client(client);
        let Ok(tag) = self.keyring.tag(to, &key.to_array()) else { return };
        out.send.push_back((to, Frame { key, auth: Authenticator::Mac(tag), body }.to_bytes()));
    }

    /// Does a slice of what a command will take that need not be done at once; whether more is to
    /// do. Blocks whose state is to be compared are executed when that is as good as computed.
    pub fn prepare(&mut self, command: &ToExecute) -> bool {
        matches!(command, ToExecute::Replay(run) if run.last) && self.execution.prepare_checkpoint()
    }

    fn replay(&mut self, run: CertifiedBlocks, out: &mut Outbox) -> Result<(), NodeError> {
        let CertifiedBlocks { blocks, certificate, last } = run;
        let mut chain = self.execution.chain();
        self.execution.set_catching_up(true);
        for block in blocks {
            let height = block.header.height;
            let body = EncodedBatch::from_bytes(block.body.clone(), block.header.body, self.suite)
                .map_err(|why| NodeError::Body { height, why })?;
            let replayed = self.execution.replay(&mut chain, &block.header, body);
            let executed =
                replayed.map_err(|why| NodeError::of_replay(self.execution.app_name(), why))?;
            self.rhythm.block(block.body.len());
            let results = block_results(&executed);
            out.log.push_back(ToLog::Block { header: block.header, body: block.body });
            out.log.extend(results.map(ToLog::Results));
        }
        let certified = &certificate.checkpoint;
        let seq = certified.seq;
        let snapshot = self.rhythm.checkpoint();
        let ours = match last || snapshot {
            true => self.execution.checkpoint(seq),
            false => self.execution.checkpoint_with(seq, certified.state, certified.clients),
        };
        must_equal(&ours, certified)?;
        if snapshot {
            self.take_snapshot(&ours, out);
        }
        self.executed = seq;
        self.tell_clients(out);
        let chain = last.then(|| {
            self.execution.set_catching_up(false);
            Box::new(chain)
        });
        out.log.push_back(ToLog::Certificate(certificate.clone()));
        out.order.push_back(ToOrder::Replayed { certificate, chain });
        Ok(())
    }
}

/// What is kept of an executed block's results.
pub(crate) fn block_results(executed: &Executed) -> Option<BlockResults> {
    let Executed { block: Some(ExecutedBlock { header, .. }), chained: Some(chained), .. } =
        executed
    else {
        return None;
    };
    let Chained { before, root, state } = *chained;
    let package = |reply: &PackageReply| PackageResults {
        client: reply.client,
        first: reply.first,
        kept: Kept::Results(reply.body.clone()),
    };
    let packages = executed.replies.packages.iter().map(package).collect();
    let (height, suite, bodies) = (header.height, header.suite, executed.replies.bodies.clone());
    Some(BlockResults { height, suite, before, root, state, packages, bodies })
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

/// The time that a batch proposed at `nanos` would carry, when the wall clock is so far ahead of that.
pub(crate) fn proposal_time(nanos: u64, wall_ahead_micros: i64) -> Timestamp {
    Timestamp((nanos / 1000).saturating_add_signed(wall_ahead_micros))
}
