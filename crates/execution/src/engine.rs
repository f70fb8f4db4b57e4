//! The engine: turns ordered batches into blocks, replies and checkpoints.
//!
//! - A batch with packages makes the next block; one without makes none.
//! - An operation is executed when its number is fresh (see [`tercio_types::WINDOW`]). A duplicate is
//!   answered with the result that it had the first time; when it came in another package, that is
//!   said ([`PackageReply::reuses`]), though it is no part of the block's results.
//! - Agreed time is max(previous + 1, proposed), where a proposal beyond [`LATEST`] counts as that.
//! - Results are chained: `R(0)` is [`EMPTY_ROOT`], and `R(h) = H(R(h-1) | results root of h)`;
//!   a results root is the Merkle root over the digests of the packages' results in order, each the
//!   root over a leaf `client | number | status | result` for each operation. With a lag above zero the state digest after the block enters
//!   too, `R(h) = H(R(h-1) | results root of h | state of h)`, so that a checkpoint vouches for
//!   the digests that the next headers will carry.
//! - A system operation stands alone in its package. It can add a client: the membership is then
//!   another one, from the next block on ([`Engine::membership`]).
//! - A checkpoint names everything by digest, and a snapshot restores exactly that or fails (`restore`).

mod answers;
mod restore;

pub use answers::PackageReply;
pub use restore::{APP, CLIENT, ENGINE, RestoreError, engine_chunk_holds};

use crate::client_table::{Admission, ClientTable};
use crate::system::{Decision, decide, membership_digest};
use crate::{Aborted, AppError, Application, Context, Operation, Proposal, Replies, TreeTop};
use answers::Answers;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tercio_crypto::{hash, merkle_root};
use tercio_types::{
    Batch, BlockHeader, Checkpoint, ClientId, Digest, EMPTY_ROOT, Height, Membership, OpKind,
    RequestSeq, RequestWindow, SeqNum, Suite, Timestamp,
};
use tercio_wire::{ResultStatus, block_hash, list, results_digest};
use thiserror::Error;

/// The latest time that a primary can propose, in microseconds since the Unix epoch: however it
/// lies, there is room for time to go on rising with every block.
pub const LATEST: Timestamp = Timestamp(1 << 63);

/// What executing a batch gave.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The head of the block; `None` when the batch had no packages.
    pub block: Option<BlockHeader>,
    /// One reply a package, in order.
    pub replies: Vec<PackageReply>,
    /// How its results are chained; `None` without a block.
    pub chained: Option<Chained>,
}

/// What the chained results after a block are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chained {
    /// The chained results before it.
    pub before: Digest,
    /// Its results root.
    pub root: Digest,
    /// The state after it, with a lag above zero.
    pub state: Option<Digest>,
}

/// Why a logged block cannot be executed again. Either the log is not of this chain and state, or
/// the application is not deterministic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("block {height} diverges in {field}: the log has {logged}, execution gives {computed}")]
pub struct Divergence {
    /// The height that was to be executed.
    pub height: Height,
    /// The first field of the header that differs.
    pub field: &'static str,
    /// Its value in the log.
    pub logged: String,
    /// Its value here.
    pub computed: String,
}

/// What a block left behind for the headers `lag` heights above.
#[derive(Clone, Copy, Debug)]
struct Lagged {
    /// The block's own results root.
    root: Digest,
    /// The state after it.
    state: Digest,
    /// The chained results after it.
    results: Digest,
}

/// Executes batches in order, exactly once an operation, and keeps the chain's head.
pub struct Engine {
    app: Box<dyn Application>,
    suite: Suite,
    /// As the genesis has it.
    genesis: Arc<Membership>,
    /// With the clients that were added.
    membership: Arc<Membership>,
    membership_digest: Digest,
    lag: u16,
    clients: ClientTable,
    seq: SeqNum,
    height: Height,
    /// The hash of the last header; the chain id before the first.
    block: Digest,
    results: Digest,
    time: Timestamp,
    /// The last `lag` blocks, and the chained results before them.
    lagged: VecDeque<Lagged>,
    before_lagged: Digest,
    scratch: Scratch,
}

/// Memory that is used again for every batch.
#[derive(Default)]
struct Scratch {
    operations: Vec<Operation>,
    results: Replies,
    admissions: Vec<Admission>,
    leaves: Vec<Digest>,
    /// The digests of the packages' results.
    packages: Vec<Digest>,
    /// Where each package's results stand in `bodies`.
    ranges: Vec<Range<usize>>,
    /// Whether it used numbers of another, of each package.
    reuses: Vec<bool>,
    bodies: Vec<u8>,
}

impl Engine {
    /// An engine at genesis: height 0, no client has executed anything, `app` in its first state,
    /// the membership `genesis`.
    /// Headers carry results and state digest `lag` heights late; 0 means not at all (each block
    /// then costs no state digest).
    #[must_use]
    pub fn new(app: Box<dyn Application>, genesis: Arc<Membership>, lag: u16) -> Self {
        let suite = genesis.suite();
        Self {
            app,
            suite,
            membership_digest: membership_digest(&genesis),
            membership: genesis.clone(),
            lag,
            clients: ClientTable::new(suite),
            seq: SeqNum(0),
            height: Height(0),
            block: Digest(genesis.chain().0),
            genesis,
            results: EMPTY_ROOT,
            time: Timestamp(0),
            lagged: VecDeque::new(),
            before_lagged: EMPTY_ROOT,
            scratch: Scratch::default(),
        }
    }

    /// What errors call the application.
    #[must_use]
    pub fn app_name(&self) -> &'static str {
        self.app.name()
    }

    /// The digest of the application's state as it is. At genesis this makes that state, which takes
    /// an application that begins with much of it a while.
    pub fn state_digest(&mut self) -> Digest {
        self.app.state_digest()
    }

    /// Replicas and clients after the last block. Another value, by [`Arc::ptr_eq`] as well, once
    /// a client was added.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    fn set_membership(&mut self, membership: Arc<Membership>) {
        self.membership_digest = membership_digest(&membership);
        self.membership = membership;
    }

    /// The last executed sequence number.
    #[must_use]
    pub fn seq(&self) -> SeqNum {
        self.seq
    }

    /// The last block's height.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// The hash of the last block's header; the chain id at height 0.
    #[must_use]
    pub fn block(&self) -> Digest {
        self.block
    }

    /// Agreed time after the last block.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Which of each client's requests were executed.
    #[must_use]
    pub fn windows(&self) -> BTreeMap<ClientId, RequestWindow> {
        self.clients.windows()
    }

    /// Which of one client's requests were executed.
    #[must_use]
    pub fn window(&self, client: ClientId) -> RequestWindow {
        self.clients.window(client)
    }

    /// Executes the batch that was ordered under `seq`. `batch_digest` is the batch's own.
    ///
    /// # Panics
    /// When `seq` is not above the last one, or the application does not push exactly one result
    /// an operation.
    pub fn execute(&mut self, seq: SeqNum, batch: &Batch, batch_digest: Digest) -> Executed {
        assert!(seq > self.seq, "{seq:?} was executed before");
        if batch.packages.is_empty() {
            self.seq = seq;
            return Executed { block: None, replies: Vec::new(), chained: None };
        }
        let header = self.next_header(seq, batch, batch_digest);
        let chained = Some(self.apply(&header, batch));
        Executed { block: Some(header), replies: self.replies(batch), chained }
    }

    /// Why operations of the last block were aborted, one for each that was.
    pub fn aborted(&self) -> impl Iterator<Item = Aborted> + '_ {
        self.scratch.results.all_aborted()
    }

    /// Executes a logged block again, on recovery. That `batch` is the body which the header
    /// names is the caller's to know: the log checks its records.
    ///
    /// # Errors
    /// When the header would be another; nothing was executed then. Results and state of this
    /// block show in the checkpoint after it, and in the headers `lag` above.
    pub fn replay(&mut self, header: &BlockHeader, batch: &Batch) -> Result<Executed, Divergence> {
        let computed = self.next_header(header.seq, batch, header.body);
        let height = computed.height;
        let differs = |field, logged: &dyn ToString, computed: &dyn ToString| {
            let (logged, computed) = (logged.to_string(), computed.to_string());
            if logged == computed {
                Ok(())
            } else {
                Err(Divergence { height, field, logged, computed })
            }
        };
        if *header != computed {
            differs("suite", &header.suite.number(), &computed.suite.number())?;
            differs("epoch", &header.epoch, &computed.epoch)?;
            differs("height", &header.height, &computed.height)?;
            differs("parent", &header.parent, &computed.parent)?;
            differs("time", &header.time, &computed.time)?;
            differs("ops", &header.ops, &computed.ops)?;
            differs("lag", &header.lag, &computed.lag)?;
            differs("results", &header.results, &computed.results)?;
            differs("state", &header.state, &computed.state)?;
        }
        if header.seq <= self.seq {
            let (logged, computed) = (header.seq.to_string(), format!("above {}", self.seq));
            return Err(Divergence { height, field: "seq", logged, computed });
        }
        if batch.packages.is_empty() {
            let (logged, computed) = ("no packages".into(), "no block".into());
            return Err(Divergence { height, field: "body", logged, computed });
        }
        let chained = Some(self.apply(&computed, batch));
        Ok(Executed { block: Some(computed), replies: self.replies(batch), chained })
    }

    fn next_header(&self, seq: SeqNum, batch: &Batch, body: Digest) -> BlockHeader {
        let due = self.lagged.front().filter(|_| self.lagged.len() == usize::from(self.lag));
        BlockHeader {
            suite: self.suite,
            epoch: self.membership.epoch(),
            height: self.height.next(),
            seq,
            parent: self.block,
            body,
            time: batch.time.min(LATEST).max(self.time.next()),
            ops: u32::try_from(batch.ops()).expect("a batch fits into a frame"),
            lag: self.lag,
            results: due.map_or(EMPTY_ROOT, |due| due.results),
            state: due.map_or(EMPTY_ROOT, |due| due.state),
        }
    }

    /// Executes a batch; what its packages are answered is left in the scratch memory.
    fn apply(&mut self, header: &BlockHeader, batch: &Batch) -> Chained {
        let seed = hash(self.suite, &[&header.parent.0, &header.body.0]);
        let context = Context { height: header.height, time: header.time, seed };
        let Scratch { operations, results, admissions, leaves, packages, ranges, reuses, bodies } =
            &mut self.scratch;
        let mut membership = self.membership.clone();
        admissions.clear();
        packages.clear();
        ranges.clear();
        reuses.clear();
        bodies.clear();
        results.clear();
        for package in &batch.packages {
            let from = admissions.len();
            reuses.push(self.clients.admit(package, admissions));
            let fresh = package.numbered().zip(&admissions[from..]);
            let fresh = fresh.filter(|(_, a)| **a == Admission::Fresh).map(|(op, _)| op);
            match package.kind {
                OpKind::User => operations.extend(fresh.map(|(seq, op)| Operation {
                    client: package.client,
                    seq,
                    op,
                })),
                OpKind::Read => {
                    // It reads what the operations before it left.
                    if !operations.is_empty() {
                        run(&mut *self.app, &context, operations, results);
                    }
                    for (_, question) in fresh {
                        results.push_with(|out| {
                            read(&*self.app, header.height, &question, out);
                        });
                    }
                }
                OpKind::System => {
                    if !operations.is_empty() {
                        run(&mut *self.app, &context, operations, results);
                    }
                    let alone = package.ops.len() == 1;
                    for (_, op) in fresh {
                        let decision = match alone {
                            true => decide(&membership, &op),
                            false => Decision::Unsupported,
                        };
                        results.push_with(|out| decision.write_result(out));
                        if let Decision::Add(client, info) = decision {
                            membership = Arc::new(membership.with_client(*info.clone()));
                            self.clients.add(client, *info);
                        }
                    }
                }
            }
        }
        run(&mut *self.app, &context, operations, results);

        let clients = &mut self.clients;
        let mut answers = Answers { suite: self.suite, clients, results, next: 0, leaves, bodies };
        let mut admissions = admissions.as_slice();
        for package in &batch.packages {
            let (here, rest) = admissions.split_at(package.ops.len());
            admissions = rest;
            let (range, digest) = answers.answer(package, here);
            ranges.push(range);
            packages.push(digest);
        }
        if !Arc::ptr_eq(&membership, &self.membership) {
            self.set_membership(membership);
        }
        self.seq = header.seq;
        self.height = header.height;
        self.block = block_hash(header);
        self.time = header.time;
        let root = merkle_root(self.suite, &self.scratch.packages);
        self.chain_results(root)
    }

    /// The replies to the batch that was executed last.
    fn replies(&self, batch: &Batch) -> Vec<PackageReply> {
        let Scratch { bodies, ranges, packages, reuses, .. } = &self.scratch;
        // One copy for all; replies are slices of it, and gone when they are sent.
        let bodies = Bytes::copy_from_slice(bodies);
        (batch.packages.iter().zip(ranges).zip(packages).zip(reuses))
            .map(|(((package, range), digest), reuses)| PackageReply {
                client: package.client,
                first: package.first,
                replier: Some(package.replier),
                body: bodies.slice(range.clone()),
                digest: *digest,
                reuses: *reuses,
            })
            .collect()
    }

    fn chain_results(&mut self, root: Digest) -> Chained {
        let before = self.results;
        if self.lag == 0 {
            self.results = hash(self.suite, &[&self.results.0, &root.0]);
            return Chained { before, root, state: None };
        }
        let state = self.app.state_digest();
        self.results = hash(self.suite, &[&self.results.0, &root.0, &state.0]);
        if self.lagged.len() == usize::from(self.lag) {
            let oldest = self.lagged.pop_front().expect("a lag above zero");
            self.before_lagged = oldest.results;
        }
        self.lagged.push_back(Lagged { root, state, results: self.results });
        Chained { before, root, state: Some(state) }
    }

    /// The reply to the package `digest` of `count` operations from `first` on that was sent again,
    /// when all of them have been executed; otherwise they have to be ordered.
    #[must_use]
    pub fn reply(
        &self,
        client: ClientId,
        first: RequestSeq,
        count: usize,
        digest: &Digest,
    ) -> Option<PackageReply> {
        let numbers = first.0..first.0 + count as u64;
        let reuses = self.clients.reuses(client, numbers, digest);
        let seq = |i: usize| RequestSeq(first.0 + i as u64);
        if !(0..count).all(|i| self.clients.executed(client, seq(i))) {
            return None;
        }
        let mut body = Vec::new();
        list::encode(&mut body, count, |i, out| match self.clients.kept(client, seq(i)) {
            Some(result) => out.extend_from_slice(result),
            None => out.push(ResultStatus::NoLongerKept as u8),
        });
        let body = Bytes::from(body);
        let digest = results_digest(self.suite, client, first, &body);
        let digest = digest.expect("a list that was just written");
        Some(PackageReply { client, first, replier: None, body, digest, reuses })
    }

    /// The checkpoint after everything up to `seq`. Its cost follows what changed since the last
    /// one.
    ///
    /// # Panics
    /// When something above `seq` was executed already.
    pub fn checkpoint(&mut self, seq: SeqNum) -> Checkpoint {
        let (state, clients) = (self.app.state_digest(), self.clients.digest());
        self.checkpoint_with(seq, state, clients)
    }

    /// The same for one who knows the digests of state and client table, or has them for given: it
    /// costs nothing. All else in it is this engine's own, the chained results of all blocks not
    /// least.
    ///
    /// # Panics
    /// When something above `seq` was executed already.
    #[must_use]
    pub fn checkpoint_with(&self, seq: SeqNum, state: Digest, clients: Digest) -> Checkpoint {
        assert!(seq >= self.seq, "executed {:?} already", self.seq);
        Checkpoint {
            seq,
            height: self.height,
            block: self.block,
            results: self.results,
            state,
            clients,
            membership: self.membership_digest,
            epoch: self.membership.epoch(),
            time: self.time,
        }
    }

    /// Does a slice of what [`Self::checkpoint`] would take ([`Application::prepare_digest`]);
    /// whether more is to do.
    pub fn prepare_checkpoint(&mut self) -> bool {
        self.app.prepare_digest()
    }

    /// Whether the replica catches up: checkpoints are few then, and may take long
    /// ([`Application::set_catching_up`]).
    pub fn set_catching_up(&mut self, on: bool) {
        self.app.set_catching_up(on);
    }

    /// The upper part of the tree of the application's state, if it keeps one.
    pub fn state_top(&mut self) -> Option<TreeTop> {
        self.app.state_top()
    }

    /// Primary, with proposal hooks: which packages of a batch to propose, by index, and in which
    /// order. System packages are not the application's to judge; they come last.
    pub fn build_proposal(&mut self, batch: &Batch) -> Vec<usize> {
        let mut keep = self.app.build_proposal(&proposal(batch));
        let mut seen = vec![false; batch.packages.len()];
        let is_user = |i: usize| batch.packages.get(i).is_some_and(|p| p.kind == OpKind::User);
        keep.retain(|&i| is_user(i) && !std::mem::replace(&mut seen[i], true));
        keep.extend((0..batch.packages.len()).filter(|&i| !is_user(i)));
        keep
    }

    /// Backups, with proposal hooks, before they vote.
    ///
    /// # Errors
    /// The application's veto.
    pub fn validate_proposal(&mut self, batch: &Batch) -> Result<(), AppError> {
        self.app.validate_proposal(&proposal(batch))
    }

    /// The application's cheap look at an operation before it is ordered.
    ///
    /// # Errors
    /// Why it can never make sense.
    pub fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        self.app.check(operation)
    }

    /// Asks the application about the current state.
    ///
    /// # Errors
    /// When the question makes no sense.
    pub fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        self.app.query(question)
    }
}

/// Has the application execute `operations`, and forgets them: they are slices of received frames,
/// which must not live until the next batch.
fn run(
    app: &mut dyn Application,
    context: &Context,
    operations: &mut Vec<Operation>,
    results: &mut Replies,
) {
    let before = results.len();
    app.execute(context, operations, results);
    let given = results.len() - before;
    assert_eq!(given, operations.len(), "the application owes one result an operation");
    operations.clear();
}

/// Writes the result of an ordered read: its status, the height at which it was answered, and the
/// answer; or why there is none.
fn read(app: &dyn Application, height: Height, question: &[u8], out: &mut Vec<u8>) {
    match app.query(question) {
        Ok(answer) => {
            out.push(ResultStatus::Executed as u8);
            out.extend_from_slice(&height.0.to_le_bytes());
            out.extend_from_slice(&answer);
        }
        Err(AppError(why)) => {
            out.push(ResultStatus::Declined as u8);
            out.extend_from_slice(why.as_bytes());
        }
    }
}

fn proposal(batch: &Batch) -> Proposal {
    let user = batch.packages.iter().enumerate().filter(|(_, p)| p.kind == OpKind::User);
    let operations = user.flat_map(|(index, package)| {
        let client = package.client;
        package.numbered().map(move |(seq, op)| (index, Operation { client, seq, op }))
    });
    Proposal { time: batch.time, operations: operations.collect() }
}
