//! Seams 1, 3, 4, 6 and 10: what the engine makes of ordered batches, held against a naive model.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tercio_crypto::{SecretKey, hash, merkle_root};
use tercio_execution::{
    AppError, Application, Context, Engine, Executed, ExecutedBlock, KEPT_BYTES, KEPT_REPLIES,
    LATEST, Operation, PackageReplies, PreCheck, Proposal, ReplayError, Replies, RestoreError,
    Snapshot, membership_digest,
};
use tercio_types::{
    Authenticator, Batch, ChainId, ClientId, Digest, EMPTY_ROOT, Epoch, FaultModel, Height, Member,
    Membership, OpKind, Ops, Package, ReplicaId, RequestSeq, SeqNum, Suite, Tag, Timestamp, WINDOW,
};
use tercio_wire::{Encode, EncodedBatch, OpResult, block_hash, decode_results, results_digest};

pub(crate) const SUITE: Suite = Suite::Sha256Ed25519;
const CHAIN: ChainId = ChainId([3; 32]);
/// A membership of four replicas, without a client.
pub(crate) fn membership() -> Arc<Membership> {
    let secret = |i: u8| SecretKey::from_seed([i; 32]);
    let member = |i| Member { key: secret(i).public(), address: String::new() };
    let (model, members) = (FaultModel::Byzantine, (0..4).map(member).collect());
    let made = Membership::new(CHAIN, Epoch(1), SUITE, model, members, BTreeMap::new());
    Arc::new(made.unwrap())
}

/// Writes down all that it executes: a second execution would show. A result is the operation's
/// place in the history and its bytes.
#[derive(Default)]
pub(crate) struct Journal {
    history: Vec<(ClientId, RequestSeq)>,
    contexts: Vec<Context>,
    state: Vec<u8>,
}

struct NotBad;

impl PreCheck for NotBad {
    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        if operation == b"bad" { Err(AppError("bad".into())) } else { Ok(()) }
    }
}

impl Application for Journal {
    fn execute(&mut self, context: &Context, operations: &[Operation], replies: &mut Replies) {
        self.contexts.push(context.clone());
        for operation in operations {
            self.state.extend_from_slice(&operation.client.0.to_le_bytes());
            self.state.extend_from_slice(&operation.seq.0.to_le_bytes());
            self.history.push((operation.client, operation.seq));
            replies.push_with(|out| {
                out.extend_from_slice(&(self.history.len() as u64).to_le_bytes());
                out.extend_from_slice(&operation.op);
            });
        }
    }

    /// The whole history.
    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        if question == b"why?" {
            return Err(AppError("no reason".into()));
        }
        Ok(Bytes::copy_from_slice(&self.state))
    }

    fn pre_check(&self) -> Arc<dyn PreCheck> {
        Arc::new(NotBad)
    }

    /// Keeps packages of even index only, the last first; names one twice and one that is not
    /// there.
    fn build_proposal(&mut self, proposal: &Proposal) -> Vec<usize> {
        let mut keep: Vec<_> = proposal.operations.iter().map(|(i, _)| *i).collect();
        keep.retain(|i| i % 2 == 0);
        keep.dedup();
        keep.reverse();
        keep.extend([keep[0], 1_000_000]);
        keep
    }

    fn validate_proposal(&mut self, proposal: &Proposal) -> Result<(), AppError> {
        match proposal.operations.iter().find(|(_, operation)| operation.op.as_ref() == b"bad") {
            Some((package, _)) => Err(AppError(format!("package {package} is bad"))),
            None => Ok(()),
        }
    }

    fn state_digest(&mut self) -> Digest {
        tercio_execution::chunks_root(SUITE, &self.snapshot().collect::<Vec<_>>())
    }

    fn snapshot(&mut self) -> Snapshot {
        vec![(Bytes::new(), Bytes::copy_from_slice(&self.state))].into()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        let [(_, state)] = chunks else { return Err(AppError("one chunk".into())) };
        let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
        self.state = state.to_vec();
        self.history = state
            .chunks_exact(16)
            .map(|b| (ClientId(word(&b[..8])), RequestSeq(word(&b[8..]))))
            .collect();
        Ok(())
    }
}

fn engine(lag: u16) -> Engine {
    Engine::new(Box::new(Journal::default()), membership(), lag)
}

fn package_of(client: u64, first: u64, kind: OpKind, ops: Vec<Bytes>) -> Package {
    Package {
        client: ClientId(client),
        first: RequestSeq(first),
        kind,
        replier: ReplicaId(2),
        ops: Ops::new(&ops),
        digest: Digest::NULL,
        auth: Authenticator::Mac(Tag::default()),
    }
}

pub(crate) fn package(client: u64, first: u64, count: usize) -> Package {
    let op = |i| Bytes::from(format!("{client}/{}", first + i as u64));
    package_of(client, first, OpKind::User, (0..count).map(op).collect())
}

pub(crate) fn batch(time: u64, packages: Vec<Package>) -> Batch {
    Batch { time: Timestamp(time), checkpoint: false, packages }
}

pub(crate) fn digest_of(batch: &Batch) -> Digest {
    hash(SUITE, &[&batch.to_bytes()])
}

pub(crate) fn body(batch: &Batch) -> EncodedBatch {
    EncodedBatch::new(batch.clone(), SUITE)
}

/// In which field a header is not what execution gives.
fn diverges(replayed: Result<Executed, ReplayError>) -> &'static str {
    match replayed.unwrap_err() {
        ReplayError::Divergence(divergence) => divergence.field,
        ReplayError::Executor(fault) => panic!("{fault}"),
    }
}

/// What a package is answered, with its results.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reply {
    client: ClientId,
    first: RequestSeq,
    replier: Option<ReplicaId>,
    body: Bytes,
    digest: Digest,
    reuses: bool,
}

fn each(replies: &PackageReplies) -> Vec<Reply> {
    let reply = |reply: &tercio_execution::PackageReply| Reply {
        client: reply.client,
        first: reply.first,
        replier: reply.replier,
        body: replies.body(reply),
        digest: reply.digest,
        reuses: reply.reuses,
    };
    replies.packages.iter().map(reply).collect()
}

/// Executes `batches` under the numbers 1, 2 ..
fn run(engine: &mut Engine, batches: &[Batch]) -> Vec<Reply> {
    let from = engine.seq().0 + 1;
    (from..)
        .zip(batches)
        .flat_map(|(seq, batch)| {
            each(&engine.execute(SeqNum(seq), batch, digest_of(batch)).replies)
        })
        .collect()
}

/// What a client hears that sends its package again.
fn again(engine: &Engine, package: &Package) -> Option<Reply> {
    let reply = engine.reply(package.client, package.first, package.ops.len(), &package.digest)?;
    each(&reply).pop()
}

fn results(reply: &Reply) -> Vec<OpResult> {
    let digest = results_digest(SUITE, reply.client, reply.first, &reply.body);
    assert_eq!(Ok(reply.digest), digest);
    decode_results(&reply.body, SUITE).unwrap()
}

fn history(engine: &Engine) -> Vec<(u64, u64)> {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
    let state = engine.query(b"").unwrap();
    state.chunks_exact(16).map(|b| (word(&b[..8]), word(&b[8..]))).collect()
}

/// The client table as plainly as it can be said.
#[derive(Default)]
struct Model {
    executed: BTreeMap<(u64, u64), Bytes>,
    places: u64,
}

impl Model {
    fn low(&self, client: u64) -> u64 {
        (1..).find(|n| !self.executed.contains_key(&(client, *n))).unwrap() - 1
    }

    fn execute(&mut self, package: &Package) -> Vec<OpResult> {
        let client = package.client.0;
        let one = |(seq, op): (RequestSeq, Bytes)| {
            if seq.0 == 0 {
                return OpResult::NoLongerKept;
            }
            if let Some(result) = self.executed.get(&(client, seq.0)) {
                let high = self.executed.keys().filter(|k| k.0 == client).map(|k| k.1).max();
                return if high.unwrap() - seq.0 < KEPT_REPLIES {
                    OpResult::Executed(result.clone())
                } else {
                    OpResult::NoLongerKept
                };
            }
            if seq.0 > self.low(client) + WINDOW {
                return OpResult::BeyondWindow;
            }
            self.places += 1;
            let result = Bytes::from([&self.places.to_le_bytes(), op.as_ref()].concat());
            self.executed.insert((client, seq.0), result.clone());
            OpResult::Executed(result)
        };
        package.numbered().map(one).collect()
    }
}

/// Packages of three clients that overlap, repeat, run ahead and fall back.
fn packages() -> impl Strategy<Value = Vec<Package>> {
    let first = prop_oneof![8 => 0u64..60, 2 => 900u64..1100, 1 => 1000u64..2200];
    let count = prop_oneof![6 => 1usize..12, 1 => 200usize..600];
    let package = (0u64..3, first, count).prop_map(|(c, first, n)| package(c, first, n));
    prop::collection::vec(package, 1..24)
}

pub(crate) fn batches() -> impl Strategy<Value = Vec<Batch>> {
    (packages(), prop::collection::vec((0usize..5, 0u64..50), 1..24)).prop_map(|(all, cuts)| {
        let mut packages = all.into_iter();
        let mut out: Vec<_> = cuts
            .into_iter()
            .map(|(n, time)| batch(time, packages.by_ref().take(n).collect()))
            .collect();
        out.push(batch(7, packages.collect()));
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_is_executed_twice_and_replies_are_those_of_the_model(batches in batches()) {
        let (mut engine, mut model) = (engine(0), Model::default());
        let mut seq = 0;
        for batch in &batches {
            seq += 1;
            let executed = engine.execute(SeqNum(seq), batch, digest_of(batch));
            prop_assert_eq!(executed.block.is_some(), !batch.packages.is_empty());
            let replies = each(&executed.replies);
            prop_assert_eq!(replies.len(), batch.packages.len());
            // The model answers in the order of the batch; a duplicate in the same batch is
            // answered with what its first occurrence gave.
            for (package, reply) in batch.packages.iter().zip(&replies) {
                prop_assert_eq!(results(reply), model.execute(package));
                prop_assert_eq!((reply.client, reply.first), (package.client, package.first));
            }
        }
        let done = history(&engine);
        let once: BTreeSet<_> = done.iter().copied().collect();
        prop_assert_eq!(done.len(), once.len());
        prop_assert!(once.iter().eq(model.executed.keys()));

        // A retransmission is answered from the table exactly when all of it was executed.
        for package in batches.iter().flat_map(|b| &b.packages) {
            let known = |(seq, _): (RequestSeq, _)| {
                seq.0 == 0 || model.executed.contains_key(&(package.client.0, seq.0))
            };
            let all = package.numbered().all(known);
            let reply = again(&engine, package);
            prop_assert_eq!(reply.is_some(), all);
            if let Some(reply) = reply {
                prop_assert_eq!(results(&reply), model.execute(package));
                prop_assert_eq!(reply.replier, None);
            }
        }
    }

    /// Two replicas: one executes everything and makes checkpoints on the way, the other takes
    /// over a snapshot in the middle.
    #[test]
    fn replicas_agree_on_checkpoints(
        batches in batches(),
        cut in any::<prop::sample::Index>(),
        lag in 0u16..4,
    ) {
        let cut = cut.index(batches.len());
        let (mut a, mut b) = (engine(lag), engine(lag));
        let early = run(&mut a, &batches[..cut]);
        prop_assert_eq!(early, run(&mut b, &batches[..cut]));
        let at = SeqNum(cut as u64);
        let checkpoint = a.checkpoint(at);
        prop_assert_eq!(&checkpoint, &b.checkpoint(at));
        let snapshot: Vec<_> = a.snapshot().collect();
        prop_assert!(snapshot.is_sorted_by(|x, y| x.0 < y.0));

        let mut c = engine(lag);
        c.restore(&checkpoint, &snapshot).unwrap();
        prop_assert!(c.snapshot().eq(snapshot));
        let late = run(&mut a, &batches[cut..]);
        prop_assert_eq!(&late, &run(&mut b, &batches[cut..]));
        // It does not know which packages came before the snapshot.
        let said = |replies: &[Reply]| {
            let said = |r: &Reply| (r.client, r.first, r.body.clone(), r.digest);
            replies.iter().map(said).collect::<Vec<_>>()
        };
        prop_assert_eq!(said(&late), said(&run(&mut c, &batches[cut..])));
        let end = SeqNum(batches.len() as u64);
        let last = a.checkpoint(end);
        prop_assert_eq!(&last, &b.checkpoint(end));
        prop_assert_eq!(&last, &c.checkpoint(end));
        prop_assert!(a.snapshot().eq(c.snapshot()));
    }
}

#[test]
fn headers_chain_and_carry_nothing_local() {
    let batches = [
        batch(100, vec![package(1, 1, 2)]),
        batch(500, vec![]),
        batch(90, vec![package(2, 1, 1), package(1, 2, 2)]),
        batch(300, vec![package(2, 2, 1)]),
    ];
    let mut engine = engine(0);
    let mut parent = Digest(CHAIN.0);
    let (mut height, mut chained) = (0, EMPTY_ROOT);
    let expected = [(1, 100, 2), (3, 101, 3), (4, 300, 1)];
    let mut blocks = expected.iter();
    for (seq, batch) in (1..).zip(&batches) {
        let executed = engine.execute(SeqNum(seq), batch, digest_of(batch));
        let Some(ExecutedBlock { header, .. }) = executed.block else { continue };
        let &(at, time, ops) = blocks.next().unwrap();
        height += 1;
        assert_eq!((header.seq, header.height), (SeqNum(at), Height(height)));
        assert_eq!((header.time, header.ops), (Timestamp(time), ops));
        assert_eq!((header.parent, header.body), (parent, digest_of(batch)));
        assert_eq!((header.results, header.state, header.lag), (EMPTY_ROOT, EMPTY_ROOT, 0));
        assert_eq!((header.suite, header.epoch), (SUITE, Epoch(1)));
        parent = block_hash(&header);

        let package = |reply: &Reply| {
            let leaf = |(i, result)| {
                let OpResult::Executed(result) = result else { panic!("all are executed") };
                let seq = reply.first.0 + i as u64;
                let (client, seq) = (reply.client.0.to_le_bytes(), seq.to_le_bytes());
                hash(SUITE, &[&[0], &client, &seq, &[0], &result])
            };
            let leaves: Vec<_> = results(reply).into_iter().enumerate().map(leaf).collect();
            merkle_root(SUITE, &leaves)
        };
        let packages: Vec<_> = each(&executed.replies).iter().map(package).collect();
        chained = hash(SUITE, &[&chained.0, &merkle_root(SUITE, &packages).0]);
    }
    assert!(blocks.next().is_none());
    let checkpoint = engine.checkpoint(SeqNum(6));
    assert_eq!((checkpoint.seq, checkpoint.height), (SeqNum(6), Height(3)));
    assert_eq!((checkpoint.block, checkpoint.results), (parent, chained));
    assert_eq!(
        (checkpoint.membership, checkpoint.epoch),
        (membership_digest(&membership()), Epoch(1))
    );
    assert_eq!(checkpoint.time, Timestamp(300));
}

#[test]
fn with_a_lag_headers_carry_the_results_and_state_of_that_height() {
    for lag in 1..4u16 {
        let mut engine = engine(lag);
        let mut after = vec![(EMPTY_ROOT, EMPTY_ROOT)];
        for n in 1..10u64 {
            let batch = batch(n, vec![package(1, n, 1)]);
            let header = engine.execute(SeqNum(n), &batch, digest_of(&batch)).block.unwrap().header;
            let due = after[(n as usize).saturating_sub(usize::from(lag))];
            assert_eq!((header.results, header.state), due, "height {n}, lag {lag}");
            let checkpoint = engine.checkpoint(SeqNum(n));
            after.push((checkpoint.results, checkpoint.state));
        }
    }
}

#[test]
fn system_requests_are_answered_unsupported_once_and_never_executed() {
    let mut engine = engine(0);
    let system = package_of(1, 1, OpKind::System, vec![Bytes::from_static(b"grow"); 2]);
    let replies = run(&mut engine, &[batch(1, vec![system.clone(), package(1, 3, 1), system])]);
    assert_eq!(results(&replies[0]), [OpResult::Unsupported, OpResult::Unsupported]);
    assert!(matches!(results(&replies[1])[..], [OpResult::Executed(_)]));
    assert_eq!(results(&replies[2]), results(&replies[0]));
    assert_eq!(history(&engine), [(1, 3)]);
}

#[test]
fn the_window_moves_with_the_lowest_number() {
    let mut engine = engine(0);
    let ask = |engine: &mut Engine, first, count| {
        results(&run(engine, &[batch(1, vec![package(1, first, count)])])[0])
    };
    assert!(matches!(
        ask(&mut engine, WINDOW, 2)[..],
        [OpResult::Executed(_), OpResult::BeyondWindow]
    ));
    assert_eq!(ask(&mut engine, u64::MAX - 1, 1), [OpResult::BeyondWindow]);
    assert_eq!(ask(&mut engine, WINDOW + 1, 1), [OpResult::BeyondWindow]);
    assert!(matches!(ask(&mut engine, 1, 1)[..], [OpResult::Executed(_)]));
    assert!(matches!(ask(&mut engine, WINDOW + 1, 1)[..], [OpResult::Executed(_)]));
    // Every number of the window finds its result, and those below do not.
    assert_eq!(ask(&mut engine, 1, 1), [OpResult::NoLongerKept]);
    assert!(ask(&mut engine, 2, 1000).iter().all(|r| matches!(r, OpResult::Executed(_))));
    assert_eq!(history(&engine).len(), 3 + 1000);
    let again = again(&engine, &package(1, 2, 1000)).unwrap();
    assert!(results(&again).iter().all(|r| matches!(r, OpResult::Executed(_))));
}

#[test]
fn kept_results_are_bounded_in_bytes() {
    let mut engine = engine(0);
    let large = |n: u64| {
        let op = Bytes::from(vec![n as u8; KEPT_BYTES / 4]);
        package_of(1, n, OpKind::User, vec![op])
    };
    for n in 1..=12 {
        run(&mut engine, &[batch(n, vec![large(n)])]);
        let bytes: usize =
            engine.snapshot().map(|(l, c)| c.len() * usize::from(l[0] == b'c')).sum();
        assert!(bytes < KEPT_BYTES + 8192, "{bytes} bytes after {n}");
    }
    assert_eq!(results(&again(&engine, &large(9)).unwrap()), [OpResult::NoLongerKept]);
    assert!(matches!(results(&again(&engine, &large(12)).unwrap())[..], [OpResult::Executed(_)]));
    let mut copy = self::engine(0);
    let chunks: Vec<_> = engine.snapshot().collect();
    copy.restore(&engine.checkpoint(SeqNum(12)), &chunks).unwrap();
    assert!(copy.snapshot().eq(chunks));
}

#[test]
fn a_kept_result_is_a_copy_with_the_same_digest() {
    let mut engine = engine(0);
    for (n, first, count) in [(1, 1, 50), (2, 1, 51), (3, 52, 1)] {
        let replies = run(&mut engine, &[batch(n, vec![package(1, first, count)])]);
        assert!(replies[0].body.is_unique(), "what is kept is a copy");
        let kept = again(&engine, &package(1, first, count)).unwrap();
        assert_eq!((&kept.body, kept.digest), (&replies[0].body, replies[0].digest));
    }
}

#[test]
fn time_rises_whatever_a_primary_proposes() {
    let mut engine = engine(0);
    let proposed = [5, 3, u64::MAX, 0, u64::MAX];
    let agreed = [5, 6, LATEST.0, LATEST.0 + 1, LATEST.0 + 2];
    for (seq, (proposed, agreed)) in (1..).zip(proposed.into_iter().zip(agreed)) {
        run(&mut engine, &[batch(proposed, vec![package(1, seq, 1)])]);
        assert_eq!(engine.time(), Timestamp(agreed));
    }
}

#[test]
fn replay_repeats_the_chain_or_names_the_difference() {
    for lag in [0, 2] {
        let batches: Vec<_> = (1..8).map(|n| batch(10 * n, vec![package(1, n, 1)])).collect();
        let mut first = engine(lag);
        let mut headers = Vec::new();
        for (seq, batch) in (1..).zip(&batches) {
            let executed = first.execute(SeqNum(seq), batch, digest_of(batch));
            headers.extend(executed.block.map(|block| block.header));
        }
        let mut again = engine(lag);
        for (header, batch) in headers.iter().zip(&batches) {
            again.replay(header, body(batch)).unwrap();
        }
        let end = SeqNum(7);
        assert_eq!(first.checkpoint(end), again.checkpoint(end));

        type Change = fn(&mut tercio_types::BlockHeader);
        let changes: [(&str, Change); 8] = [
            ("height", |h| h.height.0 += 1),
            ("parent", |h| h.parent.0[0] ^= 1),
            ("time", |h| h.time.0 += 1),
            ("ops", |h| h.ops += 1),
            ("epoch", |h| h.epoch.0 += 1),
            ("lag", |h| h.lag += 1),
            ("results", |h| h.results.0[0] ^= 1),
            ("state", |h| h.state.0[0] ^= 1),
        ];
        for (field, change) in changes {
            let mut fresh = engine(lag);
            let mut header = headers[0].clone();
            change(&mut header);
            assert_eq!(diverges(fresh.replay(&header, body(&batches[0]))), field);
            assert_eq!(fresh.height(), Height(0), "nothing was executed");
            fresh.replay(&headers[0], body(&batches[0])).unwrap();
            let mut late = headers[1].clone();
            late.seq = SeqNum(1);
            assert_eq!(diverges(fresh.replay(&late, body(&batches[1]))), "seq");
        }
        // What the header cannot show yet shows `lag` above, or in the checkpoint.
        let mut other = engine(lag);
        other.replay(&headers[0], body(&batch(10, vec![package(2, 1, 1)]))).unwrap();
        other.replay(&headers[1], body(&batches[1])).unwrap();
        let third = other.replay(&headers[2], body(&batches[2]));
        assert_eq!(third.is_err(), lag == 2);
        if lag == 2 {
            assert_eq!(diverges(third), "results");
        }
        if lag == 0 {
            (3..7).for_each(|i| drop(other.replay(&headers[i], body(&batches[i])).unwrap()));
            let (ours, theirs) = (other.checkpoint(end), first.checkpoint(end));
            assert_eq!(ours.block, theirs.block);
            assert_ne!((ours.results, ours.state), (theirs.results, theirs.state));
        }
    }
}

#[test]
fn a_snapshot_that_is_not_the_checkpoints_is_refused() {
    for lag in [0, 2] {
        let mut source = engine(lag);
        let all: Vec<_> =
            (1..5).map(|n| batch(n, vec![package(1, n, 1), package(2, n, 1)])).collect();
        run(&mut source, &all);
        // A client of whom nothing is kept.
        run(&mut source, &[batch(5, vec![package(3, 5 * WINDOW, 1)])]);
        let (checkpoint, chunks) =
            (source.checkpoint(SeqNum(5)), source.snapshot().collect::<Vec<_>>());
        engine(lag).restore(&checkpoint, &chunks).unwrap();

        // Any chunk missing, cut, or with any byte changed.
        for i in 0..chunks.len() {
            let mut without = chunks.clone();
            without.remove(i);
            engine(lag).restore(&checkpoint, &without).unwrap_err();
            for at in 0..chunks[i].1.len() {
                let mut cut = chunks.clone();
                cut[i].1.truncate(at);
                engine(lag).restore(&checkpoint, &cut).unwrap_err();
                for flip in [1, 0x80] {
                    let mut changed = chunks.clone();
                    let mut bytes = changed[i].1.to_vec();
                    bytes[at] ^= flip;
                    changed[i].1 = bytes.into();
                    engine(lag).restore(&checkpoint, &changed).unwrap_err();
                }
            }
        }
        let mut swapped = chunks.clone();
        swapped.swap(0, 1);
        let refused = engine(lag).restore(&checkpoint, &swapped).unwrap_err();
        assert!(matches!(refused, RestoreError::Label(_)));
        for label in [&b""[..], b"x", b"ex"] {
            let mut more = chunks.clone();
            more.push((Bytes::copy_from_slice(label), Bytes::new()));
            let refused = engine(lag).restore(&checkpoint, &more).unwrap_err();
            assert!(matches!(refused, RestoreError::Label(_)), "{label:?}");
        }

        let mut other = checkpoint.clone();
        other.membership = Digest::NULL;
        let refused = engine(lag).restore(&other, &chunks).unwrap_err();
        assert!(matches!(refused, RestoreError::Mismatch { what: "membership", .. }));
        let mut other = checkpoint.clone();
        other.results = Digest::NULL;
        let refused = engine(lag).restore(&other, &chunks);
        assert_eq!(refused.is_err(), lag > 0, "without a lag the checkpoint alone has the results");
    }
}

/// The toy of seam 6: an application with proposal hooks that vetoes a batch.
#[test]
fn an_application_builds_and_vetoes_proposals() {
    let mut engine = engine(0);
    let system = package_of(9, 1, OpKind::System, vec![Bytes::new()]);
    let bad = package_of(1, 9, OpKind::User, vec![Bytes::from_static(b"bad")]);
    let mut all = batch(1, vec![package(1, 1, 2), system, package(2, 1, 2), package(3, 1, 1), bad]);
    assert_eq!(engine.build_proposal(&all), [4, 2, 0, 1]);
    assert_eq!(engine.validate_proposal(&all), Err(AppError("package 4 is bad".into())));
    all.packages.pop();
    assert_eq!(engine.validate_proposal(&all), Ok(()));
    let check = engine.pre_check();
    assert!(check.check(b"bad").is_err() && check.check(b"good").is_ok());
    assert_eq!(engine.height(), Height(0), "the hooks order and execute nothing");
}

#[test]
fn a_duplicate_changes_the_chain_and_nothing_else() {
    let mut engine = engine(0);
    run(&mut engine, &[batch(1, vec![package(1, 1, 1)])]);
    let first = engine.checkpoint(SeqNum(1));
    run(&mut engine, &[batch(2, vec![package(1, 1, 1)])]);
    let again = engine.checkpoint(SeqNum(2));
    assert_eq!((first.clients, first.state), (again.clients, again.state));
    assert_ne!((first.block, first.results), (again.block, again.results));
    run(&mut engine, &[batch(3, vec![package(2, 1, 1)])]);
    assert_ne!(engine.checkpoint(SeqNum(3)).clients, again.clients);
}

/// A read is answered at its place in the order: after the operations before it in the batch, and
/// before those behind it. It is executed once and kept like any result, and changes nothing.
/// What a replica knows of the packages behind the numbers changes what it says, and nothing else:
/// one that restored a snapshot knows nothing.
#[test]
fn a_number_in_another_package_is_named_and_not_executed() {
    let named = |mut package: Package| {
        package.digest = hash(SUITE, &[&tercio_wire::package_content(&package)]);
        package
    };
    let (one, two) = (named(package(1, 1, 2)), named(package(1, 3, 1)));
    let other = |first, ops: &[&'static str]| {
        let ops = ops.iter().map(|op| Bytes::from(*op)).collect();
        named(package_of(1, first, OpKind::User, ops))
    };
    let (mut knows, mut forgot) = (engine(0), engine(0));
    run(&mut knows, &[batch(1, vec![one.clone(), two.clone()])]);
    let checkpoint = knows.checkpoint(SeqNum(1));
    let chunks: Vec<_> = knows.snapshot().collect();
    forgot.restore(&checkpoint, &chunks).unwrap();

    // All of its numbers used, some of them, and none.
    let packages = vec![other(1, &["a", "b"]), other(3, &["c", "d"]), other(5, &["e"])];
    let reuses = |replies: &[Reply]| replies.iter().map(|r| r.reuses).collect::<Vec<_>>();
    let [replies, old] = [&mut knows, &mut forgot].map(|engine| {
        let replies = run(engine, &[batch(2, packages.clone())]);
        assert_eq!(history(engine)[3..], [(1, 4), (1, 5)]);
        replies
    });
    assert_eq!(reuses(&replies), [true, true, false]);
    assert_eq!(reuses(&old), [false, false, false]);
    let bytes = |replies: &[Reply]| {
        replies.iter().map(|reply| (reply.digest, reply.body.clone())).collect::<Vec<_>>()
    };
    assert_eq!(bytes(&replies), bytes(&old));
    assert_eq!(knows.block(), forgot.block());
    assert_eq!(knows.checkpoint(SeqNum(2)), forgot.checkpoint(SeqNum(2)));
    // The same when they are sent again.
    let all = [&one, &two, &packages[0], &packages[1], &packages[2]];
    let again = |engine: &Engine| all.map(|package| again(engine, package).unwrap().reuses);
    assert_eq!(again(&knows), [false, false, true, true, false]);
    assert_eq!(again(&forgot), [false, false, false, false, false]);
}

#[test]
fn reads_are_answered_at_their_place() {
    let mut engine = engine(0);
    let read = |first, questions: &[&'static str]| {
        package_of(9, first, OpKind::Read, questions.iter().map(|q| Bytes::from(*q)).collect())
    };
    let packages = vec![package(1, 1, 1), read(1, &["all", "why?"]), package(2, 1, 1)];
    let batch = batch(5, packages);
    let replies = each(&engine.execute(SeqNum(1), &batch, digest_of(&batch)).replies);
    let results = |i: usize| decode_results(&replies[i].body, SUITE).unwrap();
    let OpResult::Executed(answer) = &results(1)[0] else { panic!("{:?}", results(1)) };
    assert_eq!(answer[..8], 1u64.to_le_bytes(), "the height");
    assert_eq!(answer.len(), 8 + 16, "one operation came before");
    assert_eq!(results(1)[1], OpResult::Declined(Bytes::from_static(b"no reason")));
    assert!(
        matches!(&results(2)[0], OpResult::Executed(place) if place[..8] == 2u64.to_le_bytes())
    );
    assert_eq!(engine.query(b"").unwrap().len(), 2 * 16, "two operations, no trace of the read");
    // Asked for again it is what it was.
    let again = engine.reply(ClientId(9), RequestSeq(1), 2, &Digest::NULL).unwrap();
    assert_eq!(each(&again)[0].body, replies[1].body);
}
