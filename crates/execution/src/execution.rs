//! The executing half of the engine: what ordered blocks give.
//!
//! - What was appended to the chain is handed to the executor in order ([`Execution::begin`]), and what
//!   came of it is taken in the same order ([`Execution::finish`]), at once or any time later.
//! - A duplicate is answered with the result that it had the first time; when it came in another
//!   package, that is said ([`PackageReply::reuses`]), though it is no part of the block's results.
//! - Results are chained: `R(0)` is [`EMPTY_ROOT`], and `R(h) = H(R(h-1) | results root of h)`;
//!   a results root is the Merkle root over the digests of the packages' results in order, each the
//!   root over a leaf `client | number | status | result` for each operation. With a lag above zero the
//!   state digest after the block enters too, `R(h) = H(R(h-1) | results root of h | state of h)`, so that
//!   a checkpoint vouches for the digests that the next headers will carry.
//! - A checkpoint names everything by digest, and a snapshot restores exactly that or fails (`restore`).

use crate::answers::{Answers, OpAnswer, package_digests};
use crate::chain::{Admission, ChainAt};
use crate::client_table::ClientTable;
use crate::engine::{Divergence, ReplayError};
use crate::system::{Decision, membership_digest};
use crate::{
    Aborted, AppError, Chain, Context, Executor, ExecutorFault, Operation, Ordered, OrderedBlock,
    PackageReplies, PackageReply, PreCheck, Proposal, Replies, Run, TreeTop, Wake, Work,
};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tercio_crypto::{hash, merkle_root};
use tercio_types::{
    Batch, BlockHeader, Checkpoint, ClientId, Digest, EMPTY_ROOT, Height, Membership, OpKind,
    RequestSeq, RequestWindow, SeqNum, Suite, Timestamp,
};
use tercio_wire::{EncodedBatch, ResultStatus, list, results_digest};

/// How many executors' buffers are kept to be used again.
const SPARE: usize = 4;

/// What executing a batch gave.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Its number.
    pub seq: SeqNum,
    /// The block; `None` when the batch had no packages.
    pub block: Option<ExecutedBlock>,
    /// One reply a package, in order.
    pub replies: PackageReplies,
    /// Why operations of it were aborted, one for each that was.
    pub aborted: Vec<Aborted>,
    /// How its results are chained; `None` without a block.
    pub chained: Option<Chained>,
    /// What headers will say of it, with a lag.
    pub late: Option<Late>,
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

/// A block that was executed.
#[derive(Clone, Debug)]
pub struct ExecutedBlock {
    /// Its header.
    pub header: BlockHeader,
    /// The header's hash.
    pub hash: Digest,
}

/// What a block leaves for the header `lag` heights above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The chained results after it.
    pub results: Digest,
    /// The state after it.
    pub state: Digest,
}

/// What a block left behind for the headers `lag` heights above, and for a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lagged {
    /// The block's own results root.
    pub(crate) root: Digest,
    /// What headers say.
    pub(crate) late: Late,
}

/// A batch between [`Execution::begin`] and [`Execution::finish`].
struct UnderWay {
    ordered: Ordered,
    /// Nothing when it makes no block.
    batch: Option<Arc<EncodedBatch>>,
    /// How many results the executor owes; none when it was given nothing.
    owed: Option<usize>,
}

/// Executes what the chain has, and keeps what came of it.
pub struct Execution {
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) suite: Suite,
    /// As the genesis has it.
    pub(crate) genesis: Arc<Membership>,
    /// With the clients that were added.
    membership: Arc<Membership>,
    pub(crate) membership_digest: Digest,
    pub(crate) lag: u16,
    pub(crate) clients: ClientTable,
    under_way: VecDeque<UnderWay>,
    pub(crate) seq: SeqNum,
    pub(crate) height: Height,
    /// The hash of the last header; the chain id before the first.
    pub(crate) block: Digest,
    pub(crate) results: Digest,
    pub(crate) time: Timestamp,
    /// The last `lag` blocks, and the chained results before them.
    pub(crate) lagged: VecDeque<Lagged>,
    pub(crate) before_lagged: Digest,
    scratch: Scratch,
    /// Work that came back, whose buffers are used again.
    spare: Vec<Work>,
}

/// Memory that is used again for every batch.
#[derive(Default)]
struct Scratch {
    ops: Vec<OpAnswer>,
    /// The digests of the packages' results.
    packages: Vec<Digest>,
    /// Where each package's results stand in `bodies`.
    ranges: Vec<Range<usize>>,
    /// Whether it used numbers of another, of each package.
    reuses: Vec<bool>,
    bodies: Vec<u8>,
    /// How long `bodies` was for the last block: about what the next one takes.
    room: usize,
}

impl Execution {
    /// At genesis.
    pub(crate) fn new(executor: Box<dyn Executor>, genesis: Arc<Membership>, lag: u16) -> Self {
        let suite = genesis.suite();
        Self {
            executor,
            suite,
            membership_digest: membership_digest(&genesis),
            membership: genesis.clone(),
            lag,
            clients: ClientTable::new(suite),
            under_way: VecDeque::new(),
            seq: SeqNum(0),
            height: Height(0),
            block: Digest(genesis.chain().0),
            genesis,
            results: EMPTY_ROOT,
            time: Timestamp(0),
            lagged: VecDeque::new(),
            before_lagged: EMPTY_ROOT,
            scratch: Scratch::default(),
            spare: Vec::new(),
        }
    }

    /// The chain as it is after the last executed batch.
    ///
    /// # Panics
    /// When anything is under way.
    #[must_use]
    pub fn chain(&self) -> Chain {
        assert!(self.under_way.is_empty(), "the chain is ahead of what is executed");
        Chain::new(ChainAt {
            suite: self.suite,
            lag: self.lag,
            membership: self.membership.clone(),
            windows: self.windows(),
            seq: self.seq,
            height: self.height,
            block: self.block,
            time: self.time,
            late: self.lagged.iter().map(|lagged| lagged.late).collect(),
        })
    }

    /// What errors call the application.
    #[must_use]
    pub fn app_name(&self) -> &'static str {
        self.executor.name()
    }

    /// Whom to call when there is something to [finish](Self::finish).
    pub fn set_wake(&mut self, wake: Wake) {
        self.executor.set_wake(wake);
    }

    /// What looks at operations before they are ordered.
    #[must_use]
    pub fn pre_check(&self) -> Arc<dyn PreCheck> {
        self.executor.pre_check()
    }

    /// The digest of the application's state as it is. At genesis this makes that state, which takes
    /// an application that begins with much of it a while.
    pub fn state_digest(&mut self) -> Digest {
        self.executor.state_digest()
    }

    /// Replicas and clients after the last executed block. Another value, by [`Arc::ptr_eq`] as well,
    /// once a client was added.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    pub(crate) fn set_membership(&mut self, membership: Arc<Membership>) {
        self.membership_digest = membership_digest(&membership);
        self.membership = membership;
    }

    /// The last executed sequence number.
    #[must_use]
    pub fn seq(&self) -> SeqNum {
        self.seq
    }

    /// The last executed block's height.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// The hash of the last executed block's header; the chain id at height 0.
    #[must_use]
    pub fn block(&self) -> Digest {
        self.block
    }

    /// Agreed time after the last executed block.
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

    /// What one of a client's numbers gave, with its status byte; nothing when it is not executed.
    #[must_use]
    pub fn result_of(&self, client: ClientId, number: RequestSeq) -> Option<Bytes> {
        let kept = self.clients.kept(client, number).cloned();
        let gone = || Bytes::from_static(&[ResultStatus::NoLongerKept as u8]);
        self.clients.executed(client, number).then(|| kept.unwrap_or_else(gone))
    }

    /// Whether anything was begun and is not finished.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether the executor takes a further block now. With a lag each block needs the state after it,
    /// so they go one by one.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        (self.lag == 0 || self.under_way.is_empty()) && self.executor.credit() > 0
    }

    /// Hands what the chain appended, and the batch that it is of, to the executor.
    ///
    /// # Panics
    /// When there is a block and no batch.
    pub fn begin(&mut self, ordered: Ordered, batch: Option<Arc<EncodedBatch>>) {
        let owed = ordered.block.as_ref().map(|block| {
            let batch = batch.as_ref().expect("a block has a batch");
            let work = self.work(block, &batch.batch);
            let owed = work.owed();
            self.executor.submit(work);
            owed
        });
        self.under_way.push_back(UnderWay { ordered, batch, owed });
    }

    fn work(&mut self, block: &OrderedBlock, batch: &Batch) -> Work {
        let header = &block.header;
        let seed = hash(self.suite, &[&header.parent.0, &header.body.0]);
        let context = Context { height: header.height, time: header.time, seed };
        let spare = self.spare.pop();
        let (mut operations, mut runs, results) =
            spare.map_or_else(Default::default, |work| (work.operations, work.runs, work.results));
        let mut admissions = block.admissions.as_slice();
        let mut from = 0;
        for package in &batch.packages {
            let (here, rest) = admissions.split_at(package.ops.len());
            admissions = rest;
            let fresh = package.numbered().zip(here);
            let fresh = fresh.filter(|(_, a)| **a == Admission::Fresh).map(|(op, _)| op);
            let client = package.client;
            match package.kind {
                OpKind::User => {
                    operations.extend(fresh.map(|(seq, op)| Operation { client, seq, op }));
                }
                OpKind::Read => {
                    // It reads what the operations before it left.
                    if from < operations.len() {
                        runs.push(Run::Operations(from..operations.len()));
                        from = operations.len();
                    }
                    runs.extend(fresh.map(|(_, question)| Run::Read(question)));
                }
                // Decided as it was ordered.
                OpKind::System => {}
            }
        }
        runs.push(Run::Operations(from..operations.len()));
        Work { context, operations, runs, results }
    }

    /// The next batch that was begun and is executed.
    ///
    /// # Errors
    /// When the executor breaks its contract.
    pub fn finish(&mut self) -> Result<Option<Executed>, ExecutorFault> {
        let work = match self.under_way.front() {
            Some(UnderWay { owed: None, .. }) => None,
            _ => match self.executor.poll() {
                None => return Ok(None),
                Some(work) => Some(work),
            },
        };
        self.finish_with(work)
    }

    /// Begins a batch, and waits until it is executed.
    ///
    /// # Errors
    /// When the executor breaks its contract.
    ///
    /// # Panics
    /// When anything is under way.
    pub fn execute(
        &mut self,
        ordered: Ordered,
        batch: Option<Arc<EncodedBatch>>,
    ) -> Result<Executed, ExecutorFault> {
        assert!(self.under_way.is_empty(), "one by one");
        let height = ordered.block.as_ref().map(|block| block.header.height);
        self.begin(ordered, batch);
        let work = height.and_then(|_| self.executor.wait());
        let height = height.unwrap_or(self.height);
        self.finish_with(work)?.ok_or(ExecutorFault::Nothing(height))
    }

    /// `work` is what came of the first that is under way; nothing for one without a block.
    fn finish_with(&mut self, work: Option<Work>) -> Result<Option<Executed>, ExecutorFault> {
        let Some(first) = self.under_way.front() else {
            return work.map_or(Ok(None), |work| Err(ExecutorFault::NotOwed(work.context.height)));
        };
        if let Some(owed) = first.owed {
            let Some(work) = &work else { return Ok(None) };
            let (height, given) = (work.context.height, work.results.len());
            let due = self.height.next();
            if height < due {
                return Err(ExecutorFault::NotOwed(height));
            }
            if height != due {
                return Err(ExecutorFault::OutOfOrder { owed: due, given: height });
            }
            if owed != given {
                return Err(ExecutorFault::Count { height, owed, given });
            }
        }
        let UnderWay { ordered, batch, .. } = self.under_way.pop_front().expect("it is there");
        let seq = ordered.seq;
        self.seq = seq;
        let (Some(block), Some(batch), Some(work)) = (ordered.block, batch, work) else {
            let (replies, aborted) = (PackageReplies::default(), Vec::new());
            let nothing =
                Executed { seq, block: None, replies, aborted, chained: None, late: None };
            return Ok(Some(nothing));
        };
        let root = self.answer(&block, &batch.batch, &work.results);
        let (chained, late) = self.chain_results(root);
        let replies = self.replies(&batch.batch);
        let aborted = work.results.all_aborted().collect();
        self.keep_buffers(work);
        let block = Some(ExecutedBlock { header: block.header, hash: block.hash });
        Ok(Some(Executed { seq, block, replies, aborted, chained: Some(chained), late }))
    }

    /// Operations are slices of received frames, which must not live until the next batch.
    fn keep_buffers(&mut self, mut work: Work) {
        if self.spare.len() < SPARE {
            work.operations.clear();
            work.runs.clear();
            work.results.clear();
            self.spare.push(work);
        }
    }

    /// Goes to the block with its results; what its packages are answered is left in the scratch
    /// memory. Gives the results root.
    fn answer(&mut self, block: &OrderedBlock, batch: &Batch, results: &Replies) -> Digest {
        let Scratch { ops, packages, ranges, reuses, bodies, room } = &mut self.scratch;
        ops.clear();
        packages.clear();
        ranges.clear();
        reuses.clear();
        bodies.reserve(*room);
        let mut admissions = block.admissions.as_slice();
        for package in &batch.packages {
            let (here, rest) = admissions.split_at(package.ops.len());
            admissions = rest;
            reuses.push(self.clients.take(package, here));
        }
        for decision in &block.decisions {
            if let Decision::Add(client, info) = decision {
                self.clients.add(*client, (**info).clone());
            }
        }
        let mut answers = Answers {
            clients: &mut self.clients,
            results,
            next: 0,
            decisions: block.decisions.iter(),
            ops,
            bodies,
        };
        let mut admissions = block.admissions.as_slice();
        for package in &batch.packages {
            let (here, rest) = admissions.split_at(package.ops.len());
            admissions = rest;
            ranges.push(answers.answer(package, here));
        }
        package_digests(self.suite, batch, ops, bodies, packages);
        *room = bodies.len();
        if !Arc::ptr_eq(&block.membership, &self.membership) {
            self.set_membership(block.membership.clone());
        }
        self.height = block.header.height;
        self.block = block.hash;
        self.time = block.header.time;
        merkle_root(self.suite, &self.scratch.packages)
    }

    /// The replies to the batch that was executed last.
    fn replies(&mut self, batch: &Batch) -> PackageReplies {
        let Scratch { bodies, ranges, packages, reuses, .. } = &mut self.scratch;
        let packages = (batch.packages.iter().zip(ranges.drain(..)).zip(packages).zip(reuses))
            .map(|(((package, body), digest), reuses)| PackageReply {
                client: package.client,
                first: package.first,
                replier: Some(package.replier),
                body,
                digest: *digest,
                reuses: *reuses,
            })
            .collect();
        PackageReplies { packages, bodies: std::mem::take(bodies).into() }
    }

    fn chain_results(&mut self, root: Digest) -> (Chained, Option<Late>) {
        let before = self.results;
        if self.lag == 0 {
            self.results = hash(self.suite, &[&before.0, &root.0]);
            return (Chained { before, root, state: None }, None);
        }
        let state = self.executor.state_digest();
        self.results = hash(self.suite, &[&before.0, &root.0, &state.0]);
        if self.lagged.len() == usize::from(self.lag) {
            let oldest = self.lagged.pop_front().expect("a lag above zero");
            self.before_lagged = oldest.late.results;
        }
        let late = Late { results: self.results, state };
        self.lagged.push_back(Lagged { root, late });
        (Chained { before, root, state: Some(state) }, Some(late))
    }

    /// Executes a logged block again, and appends it to `chain`, which is in step.
    ///
    /// # Errors
    /// As [`Engine::replay`](crate::Engine::replay).
    ///
    /// # Panics
    /// When anything is under way.
    pub fn replay(
        &mut self,
        chain: &mut Chain,
        header: &BlockHeader,
        body: EncodedBatch,
    ) -> Result<Executed, ReplayError> {
        let batch = &body.batch;
        assert_eq!(chain.height(), self.height, "the chain is in step");
        let computed = chain.next_header(header.seq, batch, header.body);
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
            return Err(Divergence { height, field: "seq", logged, computed }.into());
        }
        if batch.packages.is_empty() {
            let (logged, computed) = ("no packages".into(), "no block".into());
            return Err(Divergence { height, field: "body", logged, computed }.into());
        }
        let block = Some(Box::new(chain.append(computed, batch)));
        let executed = self.execute(Ordered { seq: header.seq, block }, Some(Arc::new(body)))?;
        chain.executed(height, executed.late);
        Ok(executed)
    }

    /// The reply to the package `digest` of `count` operations from `first` on that was sent again,
    /// when all of them have been executed; otherwise they are under way, or have to be ordered.
    #[must_use]
    pub fn reply(
        &self,
        client: ClientId,
        first: RequestSeq,
        count: usize,
        digest: &Digest,
    ) -> Option<PackageReplies> {
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
        let bodies = Bytes::from(body);
        let digest = results_digest(self.suite, client, first, &bodies);
        let digest = digest.expect("a list that was just written");
        let body = 0..bodies.len();
        let reply = PackageReply { client, first, replier: None, body, digest, reuses };
        Some(PackageReplies { packages: vec![reply], bodies })
    }

    /// The checkpoint after everything up to `seq`. Its cost follows what changed since the last
    /// one.
    ///
    /// # Panics
    /// When something above `seq` was executed already, or anything is under way.
    pub fn checkpoint(&mut self, seq: SeqNum) -> Checkpoint {
        assert!(self.under_way.is_empty(), "the state is that of no checkpoint");
        let (state, clients) = (self.executor.state_digest(), self.clients.digest());
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

    /// Does a slice of what [`Self::checkpoint`] would take
    /// ([`Application::prepare_digest`](crate::Application::prepare_digest)); whether more is to do.
    pub fn prepare_checkpoint(&mut self) -> bool {
        self.executor.prepare_digest()
    }

    /// Whether the replica catches up: checkpoints are few then, and may take long
    /// ([`Application::set_catching_up`](crate::Application::set_catching_up)).
    pub fn set_catching_up(&mut self, on: bool) {
        self.executor.set_catching_up(on);
    }

    /// The upper part of the tree of the application's state, if it keeps one.
    pub fn state_top(&mut self) -> Option<TreeTop> {
        self.executor.state_top()
    }

    /// Primary, with proposal hooks: which packages of a batch to propose, by index, and in which
    /// order. System packages are not the application's to judge; they come last.
    pub fn build_proposal(&mut self, batch: &Batch) -> Vec<usize> {
        let mut keep = self.executor.build_proposal(&proposal(batch));
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
        self.executor.validate_proposal(&proposal(batch))
    }

    /// Asks the application about the current state.
    ///
    /// # Errors
    /// When the question makes no sense.
    pub fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        self.executor.query(question)
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
