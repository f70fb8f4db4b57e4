//! Executors that are late give what one in step gives, and those that break their contract are named.

use crate::engine::{Journal, SUITE, batch, batches, body, digest_of, membership, package};
use crate::scripted::{Director, Script, Scripted, Trick, direct, director};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use tercio_execution::{Chain, Engine, Executed, Execution, ExecutorFault, Ordered};
use tercio_types::{Batch, Height, OpKind, SeqNum};
use tercio_wire::EncodedBatch;

fn scripted(lag: u16, script: &Director) -> (Chain, Execution) {
    late(lag, script, false)
}

fn late(lag: u16, script: &Director, eager: bool) -> (Chain, Execution) {
    let executor = Scripted::new(Box::new(Journal::default()), script).eager(eager);
    Engine::over(Box::new(executor), membership(), lag).split()
}

/// Orders batch after batch, and executes them as far as the executor does.
struct Behind {
    chain: Chain,
    execution: Execution,
    batches: VecDeque<(SeqNum, Batch)>,
    /// What is ordered and not begun, and whether a checkpoint is due behind it.
    ordered: VecDeque<(Ordered, Arc<EncodedBatch>)>,
    /// A checkpoint follows every so many numbers.
    interval: u64,
    under_way: VecDeque<SeqNum>,
    /// All that came of it.
    said: Vec<String>,
}

impl Behind {
    fn order(&mut self) {
        if self.chain.is_ready()
            && let Some((seq, batch)) = self.batches.pop_front()
        {
            let ordered = self.chain.order(seq, &batch, digest_of(&batch));
            self.ordered.push_back((ordered, Arc::new(body(&batch))));
        }
    }

    /// Nothing is begun behind a checkpoint that is not taken.
    fn may_begin(&self) -> bool {
        let waits = self.under_way.back().is_some_and(|seq| seq.0.is_multiple_of(self.interval));
        !waits && self.execution.may_begin()
    }

    fn execute(&mut self) {
        while self.may_begin()
            && let Some((ordered, batch)) = self.ordered.pop_front()
        {
            self.under_way.push_back(ordered.seq);
            self.execution.begin(ordered, Some(batch));
        }
        while let Some(executed) = self.execution.finish().unwrap() {
            let seq = self.under_way.pop_front().unwrap();
            assert_eq!(executed.seq, seq);
            if let Some(block) = &executed.block {
                self.chain.executed(block.header.height, executed.late);
            }
            note(&mut self.said, &mut self.execution, &executed, self.interval);
        }
    }
}

/// What is to be equal: a block, its replies, and the checkpoint behind it.
fn note(said: &mut Vec<String>, execution: &mut Execution, executed: &Executed, interval: u64) {
    said.push(format!("{executed:?}"));
    if executed.seq.0.is_multiple_of(interval) {
        said.push(format!("{:?}", execution.checkpoint(executed.seq)));
    }
}

/// How much is ordered, how many blocks the executor has at most, and how many it gives.
fn schedule() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((0usize..4, 0usize..4, 0usize..4), 0..60)
}

/// Some packages are questions.
fn with_reads(mut batches: Vec<Batch>) -> Vec<Batch> {
    let all = batches.iter_mut().flat_map(|batch| &mut batch.packages);
    for package in all.filter(|package| package.first.0.is_multiple_of(5)) {
        package.kind = OpKind::Read;
    }
    batches
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_late_gives_what_one_in_step_gives(
        batches in batches(),
        schedule in schedule(),
        lag in prop_oneof![Just(0u16), Just(2u16)],
        interval in 1u64..6,
        eager in any::<bool>(),
    ) {
        let batches: Vec<_> = (1..).map(SeqNum).zip(with_reads(batches)).collect();
        let mut engine = Engine::new(Box::new(Journal::default()), membership(), lag);
        let mut expected = vec![];
        for (seq, batch) in &batches {
            let executed = engine.execute(*seq, batch, digest_of(batch));
            note(&mut expected, &mut engine, &executed, interval);
        }
        let script = director(Script::HALTED);
        let (chain, execution) = late(lag, &script, eager);
        let mut behind = Behind {
            chain,
            execution,
            batches: batches.into(),
            ordered: VecDeque::new(),
            interval,
            under_way: VecDeque::new(),
            said: vec![],
        };
        for (orders, room, gives) in schedule {
            (0..orders).for_each(|_| behind.order());
            direct(&script, Script { room, gives, trick: None });
            behind.execute();
        }
        // Credit 1, until all is done.
        for _ in 0..100 {
            behind.order();
            direct(&script, Script { room: 1, gives: 1, trick: None });
            behind.execute();
        }
        prop_assert!(behind.batches.is_empty() && behind.ordered.is_empty());
        prop_assert!(behind.under_way.is_empty());
        prop_assert_eq!(behind.said, expected);
        prop_assert_eq!(behind.chain.block(), engine.block());
    }
}

/// Two blocks of three operations each, under way at an executor that plays a trick.
fn tricked(trick: Trick) -> (Execution, Vec<Result<Option<Executed>, ExecutorFault>>) {
    let script = director(Script::tricky(trick));
    let (mut chain, mut execution) = scripted(0, &script);
    for seq in 1..=2 {
        let batch = batch(seq, vec![package(1, 3 * seq - 2, 3)]);
        let ordered = chain.order(SeqNum(seq), &batch, digest_of(&batch));
        execution.begin(ordered, Some(Arc::new(EncodedBatch::new(batch, SUITE))));
    }
    let finished = (0..2).map(|_| execution.finish()).collect();
    (execution, finished)
}

fn fault(finished: &Result<Option<Executed>, ExecutorFault>) -> ExecutorFault {
    *finished.as_ref().unwrap_err()
}

#[test]
fn results_that_come_twice_are_owed_to_nobody() {
    let (execution, finished) = tricked(Trick::Twice);
    assert!(finished[0].as_ref().unwrap().is_some());
    assert_eq!(fault(&finished[1]), ExecutorFault::NotOwed(Height(1)));
    assert_eq!(execution.height(), Height(1), "the second block did not get the first one's");
    // When nothing is owed any more, too.
    let script = director(Script::tricky(Trick::Twice));
    let (mut chain, mut execution) = scripted(0, &script);
    let batch = batch(1, vec![package(1, 1, 3)]);
    let ordered = chain.order(SeqNum(1), &batch, digest_of(&batch));
    execution.execute(ordered, Some(Arc::new(body(&batch)))).unwrap();
    assert_eq!(execution.finish().unwrap_err(), ExecutorFault::NotOwed(Height(1)));
}

#[test]
fn results_out_of_order_are_refused() {
    let (execution, finished) = tricked(Trick::Swapped);
    let expected = ExecutorFault::OutOfOrder { owed: Height(1), given: Height(2) };
    assert_eq!((fault(&finished[0]), execution.height()), (expected, Height(0)));
}

#[test]
fn a_wrong_count_of_results_is_refused() {
    for (trick, given) in [(Trick::TooFew, 0), (Trick::TooMany, 4)] {
        let (execution, finished) = tricked(trick);
        let expected = ExecutorFault::Count { height: Height(1), owed: 3, given };
        assert_eq!((fault(&finished[0]), execution.height()), (expected, Height(0)));
    }
}

#[test]
fn one_that_never_answers_is_named_where_it_is_waited_for() {
    let (execution, finished) = tricked(Trick::Never);
    assert!(finished.iter().all(|finished| matches!(finished, Ok(None))));
    assert!(execution.is_under_way(), "it may come yet");
    let script = director(Script::tricky(Trick::Never));
    let (mut chain, mut execution) = scripted(0, &script);
    let batch = batch(1, vec![package(1, 1, 3)]);
    let ordered = chain.order(SeqNum(1), &batch, digest_of(&batch));
    let waited = execution.execute(ordered, Some(Arc::new(body(&batch))));
    assert_eq!(waited.unwrap_err(), ExecutorFault::Nothing(Height(1)));
}
