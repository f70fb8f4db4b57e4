//! Each defence, taken away, is missed: the check that it is for fails. Run with `--features zoo`.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

mod blocks;
mod cluster;
mod common;
mod served;
mod store;
mod transactions;

use blocks::{ACCIDENTS, Blocks};
use cluster::Rough;
use common::{Direct, Ended, word};
use std::sync::Arc;
use store::{OURS, Settings, conserved, prism_world};
use tercio_prism::client::Draft;
use tercio_prism::clock::now_ns;
use tercio_prism::engine::FREE;
use tercio_prism::kv::prism::{PrismClient, PrismTask};
use tercio_prism::kv::server::{Class, Config, KvServer};
use tercio_prism::kv::{Command, Hash, Progress, StoreClient};
use tercio_prism::memory::Memory;
use tercio_prism::op::Addr;
use tercio_prism::rs::Options;
use tercio_prism::transport::sim::Faults;
use tercio_prism::wire::{self, Answer, Header, Kind};
use tercio_prism::zoo::{Defence, without};
use transactions::Transactions;

/// Runs seeds until one is bad; gives how many were good. Every other one has PUTs of two round trips.
fn good_seeds(seeds: u64, settings: Settings) -> Result<u64, String> {
    for seed in 0..seeds {
        let (mut world, server) = prism_world(seed, settings, seed % 2 == 1);
        world.run();
        world.check().map_err(|why| format!("seed {seed}: {}", why.lines().next().unwrap()))?;
        world.settle();
        conserved(&world.memory, &server).map_err(|why| format!("seed {seed}: {why}"))?;
    }
    Ok(seeds)
}

fn caught(defence: Defence, settings: Settings) {
    good_seeds(10, settings).expect("with its defence the store is well");
    let why = without(defence, || good_seeds(400, settings));
    let why = why.expect_err("without its defence something must go wrong");
    println!("prism-zoo {defence:?}: caught: {why}");
}

#[test]
fn at_most_once() {
    caught(Defence::AtMostOnce, Settings::ROUGH);
}

#[test]
fn free_after_miss() {
    // Nobody crashes, so nothing is swept.
    let settings = Settings { keys: 1, clients: 8, commands: 12, crashes: 0, ..Settings::ROUGH };
    let faults = Faults { loss: 0, duplicates: 0, ..settings.faults };
    caught(Defence::FreeAfterMiss, Settings { faults, ..settings });
}

#[test]
fn sweep() {
    caught(Defence::Sweep, Settings { crashes: 3, ..Settings::ROUGH });
}

/// Keys enough that the table grows, again and again, under their commands.
const GROWING: Settings = Settings { keys: 24, commands: 80, crashes: 0, ..Settings::ROUGH };

#[test]
fn mark_moved() {
    caught(Defence::MarkMoved, GROWING);
}

#[test]
fn mark_empty() {
    caught(Defence::MarkEmpty, GROWING);
}

#[test]
fn forget_miss() {
    caught(Defence::ForgetMiss, GROWING);
}

/// One client's command, step by step, so that others can come in between.
struct Stepper {
    store: PrismClient,
    task: PrismTask,
    draft: Draft,
    ended: Option<Ended>,
}

impl Stepper {
    fn new() -> Self {
        Self {
            // Steps in between are what this is for.
            store: PrismClient::new().two_rounds(),
            task: PrismTask::default(),
            draft: Draft::default(),
            ended: None,
        }
    }

    fn begin(&mut self, command: Command<'_>) {
        self.draft.clear();
        let progress = self.store.begin(&mut self.task, command, &mut self.draft);
        self.goes_on(progress);
    }

    /// One round trip. The operations can be run in two halves, with others' in between.
    fn step(&mut self, direct: &mut Direct, between: impl FnOnce(&mut Direct)) {
        let mut session = tercio_prism::client::Session::new(direct.connection, OURS, true);
        let mut frame = Vec::new();
        session.send(&self.draft, 0, |words| frame.extend_from_slice(words)).unwrap();
        let request = wire::Request::decode(&frame).unwrap();
        let ops: Vec<_> = request.ops().collect();
        let answer = if request.header.kind == Kind::Ops && ops.len() == 2 {
            // Operations of different connections interleave, so this may happen.
            let first = direct.request(OURS, &ops[..1]);
            let first = direct.frame(&first).unwrap();
            between(direct);
            let second = direct.request(OURS, &ops[1..]);
            let second = direct.frame(&second).unwrap();
            let mut joined = Vec::new();
            let mut writer =
                wire::AnswerWriter::begin(&mut joined, Kind::Ops, direct.connection, 0);
            for half in [&first, &second] {
                let outcome = Answer::decode(half).unwrap().outcomes().next().unwrap();
                writer.result(|out| {
                    out.extend_from_slice(outcome.data.words());
                    (outcome.status, outcome.data.len())
                });
            }
            writer.finish();
            joined
        } else {
            between(direct);
            let Header { kind, .. } = request.header;
            if kind == Kind::Call {
                let body = direct.call(OURS, request.body()).unwrap();
                let mut joined = Vec::new();
                let mut writer =
                    wire::AnswerWriter::begin(&mut joined, Kind::Call, direct.connection, 0);
                writer.body().extend(body);
                writer.finish();
                joined
            } else {
                let request = direct.request(OURS, &ops);
                let mut answer = direct.frame(&request).unwrap();
                answer[1] = 0;
                answer
            }
        };
        let answer = session.receive(&answer).expect("it answers the request");
        let progress = self.store.proceed(&mut self.task, &answer, &mut self.draft);
        self.goes_on(progress);
    }

    fn goes_on(&mut self, progress: Progress<'_>) {
        self.ended = match progress {
            Progress::Ended(result) => Some(result.unwrap().into()),
            Progress::Send | Progress::SendAfter(_) => None,
        };
    }

    fn finish(&mut self, direct: &mut Direct) -> Ended {
        loop {
            match self.ended.take() {
                Some(ended) => return ended,
                None => self.step(direct, |_| ()),
            }
        }
    }

    fn get(&mut self, direct: &mut Direct, key: &[u8]) -> Option<Vec<u8>> {
        self.begin(Command::Get(key));
        match self.finish(direct) {
            Ended::Found(value) => Some(value),
            _ => None,
        }
    }

    fn put(&mut self, direct: &mut Direct, key: &[u8], value: &[u8]) {
        self.begin(Command::Put(key, value));
        assert_eq!(self.finish(direct), Ended::Stored);
    }
}

fn small_store(buffers: u32) -> (Arc<Memory>, Direct) {
    let memory = Arc::new(Memory::new());
    let classes = vec![Class { payload: 56, posted: buffers, limit: buffers }];
    let config =
        Config { slots: 64, hash: Hash::Collisionless, classes, poison: false, growth_step: 1 };
    let server = KvServer::new(&memory, OURS, 0, &config).unwrap();
    let mut direct = Direct::with(&memory, OURS);
    direct.engine.serve(OURS, Box::new(server));
    (memory, direct)
}

/// Keys that begin their search at the same slot.
const ONE: [u8; 8] = 1u64.to_le_bytes();
const OTHER: [u8; 8] = (1u64 + 64).to_le_bytes();

/// A buffer is freed, taken again and installed in the same slot, between a PUT's two round trips.
fn aba() -> Result<(), String> {
    let (memory, mut direct) = small_store(2);
    let (mut slow, mut fast) = (Stepper::new(), Stepper::new());
    fast.put(&mut direct, &ONE, b"first");
    slow.begin(Command::Put(&ONE, b"slow"));
    // Asks for the table, then looks at the slot.
    slow.step(&mut direct, |_| ());
    slow.step(&mut direct, |_| ());
    // The slot goes from the first buffer to the second and back to the first.
    for value in [&b"second"[..], b"third"] {
        fast.put(&mut direct, &ONE, value);
        let mut report = Draft::default();
        assert!(fast.store.background(&mut report, true));
        let mut step = Stepper { draft: report, ..Stepper::new() };
        step.step_call(&mut direct);
        (0..3).for_each(|_| memory.collect());
    }
    // The swap's comparand is the first buffer's address.
    slow.step(&mut direct, |_| ());
    match slow.store.misses {
        1 => Ok(()),
        _ => Err("the slot changed twice and the swap did not notice".into()),
    }
}

impl Stepper {
    /// Sends the draft, a call that nobody waits for.
    fn step_call(&mut self, direct: &mut Direct) {
        let mut session = tercio_prism::client::Session::new(direct.connection, OURS, true);
        let mut frame = Vec::new();
        session.send(&self.draft, 0, |words| frame.extend_from_slice(words)).unwrap();
        let body = wire::Request::decode(&frame).unwrap().body().to_vec();
        assert_eq!(body[0], FREE);
        assert_eq!(direct.call(OURS, &body).unwrap(), [body.len() as u64 - 1, 0]);
    }
}

/// Between the two reads of a PUT's first round trip, another key takes the empty slot.
fn slot_changes_between_reads() -> Result<(), String> {
    let (_memory, mut direct) = small_store(8);
    let (mut slow, mut fast) = (Stepper::new(), Stepper::new());
    slow.begin(Command::Put(&ONE, b"slow"));
    slow.step(&mut direct, |_| ());
    slow.step(&mut direct, |direct| fast.put(direct, &OTHER, b"other"));
    slow.finish(&mut direct);
    match fast.get(&mut direct, &OTHER) {
        Some(value) if value == b"other" => Ok(()),
        found => Err(format!("another key's item was overwritten: {found:?}")),
    }
}

#[test]
fn generations() {
    aba().unwrap();
    let why = without(Defence::Generations, aba).unwrap_err();
    println!("prism-zoo {:?}: caught: {why}", Defence::Generations);
}

#[test]
fn slot_before_data() {
    slot_changes_between_reads().unwrap();
    let why = without(Defence::SlotBeforeData, slot_changes_between_reads).unwrap_err();
    println!("prism-zoo {:?}: caught: {why}", Defence::SlotBeforeData);
}

#[test]
fn a_stale_address_is_not_followed() {
    let (memory, mut direct) = small_store(1);
    let data = tercio_prism::op::Payload::of_words(&[1]);
    let taken = tercio_prism::op::Action::Allocate { pool: 2, data, redirect: None };
    let addr = Addr(word(&direct.run(OURS, &[taken.into()])[0].1));
    direct.call(OURS, &[FREE, addr.0]).unwrap();
    (0..3).for_each(|_| memory.collect());
    let again = Addr(word(&direct.run(OURS, &[taken.into()])[0].1));
    assert_ne!(addr, again);
}

/// Runs replicated blocks until a seed is bad.
fn good_blocks(seeds: u64, rough: Rough) -> Result<u64, String> {
    for seed in 0..seeds {
        let options = Options { patience_ns: 1_000_000_000, ..Options::default() };
        blocks::run(seed, Blocks::new(seed, 3, 15, options), 4, rough)
            .map_err(|why| format!("seed {seed}: {why}"))?;
    }
    Ok(seeds)
}

fn blocks_miss(defence: Defence, seeds: u64, rough: Rough) {
    good_blocks(5, rough).expect("with its defence the store is well");
    let why = without(defence, || good_blocks(seeds, rough));
    let mut why = why.expect_err("without its defence something must go wrong");
    why.truncate(160);
    println!("prism-zoo {defence:?}: caught: {why}");
}

#[test]
fn miss_acknowledges() {
    blocks_miss(Defence::MissAcknowledges, 100, ACCIDENTS);
}

#[test]
fn write_back() {
    blocks_miss(Defence::WriteBack, 300, ACCIDENTS);
}

#[test]
fn join_by_copying() {
    blocks_miss(
        Defence::JoinByCopying,
        300,
        Rough { amnesia: 100, server_crashes: 10, ..ACCIDENTS },
    );
}

#[test]
fn lives_count() {
    blocks::an_earlier_life_has_acknowledged().unwrap();
    let why = without(Defence::LivesCount, blocks::an_earlier_life_has_acknowledged).unwrap_err();
    println!("prism-zoo {:?}: caught: {why}", Defence::LivesCount);
}

#[test]
fn incarnations() {
    blocks::a_client_starts_again().unwrap();
    let why = without(Defence::Incarnations, blocks::a_client_starts_again).unwrap_err();
    println!("prism-zoo {:?}: caught: {why}", Defence::Incarnations);
}

#[test]
fn lease() {
    let good =
        |seeds| (0..seeds).try_for_each(|seed| blocks::run_locked(seed, 4, ACCIDENTS).map(|_| ()));
    good(5).expect("with its defence the store is well");
    let why = without(Defence::Lease, || good(100)).expect_err("a dead client's lock must block");
    println!("prism-zoo {:?}: caught: {why}", Defence::Lease);
}

/// Runs transactions until a seed is bad.
fn good_transactions(seeds: u64, shards: usize, clients: usize) -> Result<u64, String> {
    for seed in 0..seeds {
        let transactions = Transactions::new(seed, shards, 12);
        transactions::run(seed, transactions, clients, transactions::ACCIDENTS)
            .map_err(|why| format!("seed {seed}: {why}"))?;
    }
    Ok(seeds)
}

fn transactions_miss(defence: Defence, seeds: u64, shards: usize) {
    good_transactions(5, shards, 4).expect("with its defence the store is well");
    let why = without(defence, || good_transactions(seeds, shards, 4));
    let mut why = why.expect_err("without its defence something must go wrong");
    why.truncate(160);
    println!("prism-zoo {defence:?}: caught: {why}");
}

#[test]
fn own_timestamp() {
    transactions_miss(Defence::OwnTimestamp, 5, 1);
}

#[test]
fn abort_in_order() {
    transactions_miss(Defence::AbortInOrder, 400, 2);
}

#[test]
fn slots_timestamp() {
    transactions_miss(Defence::SlotsTimestamp, 100, 1);
}

#[test]
fn janitor() {
    transactions_miss(Defence::Janitor, 100, 1);
}

#[test]
fn poison() {
    transactions_miss(Defence::Poison, 400, 3);
}

#[test]
fn unchanged() {
    let some = |direct, changes| direct > 20_000 && changes > 500;
    let whole = served::read_while_it_is_written(some);
    whole.expect("with its defence each read is of one moment");
    // Two must meet, and how soon they do is the system's choice.
    let end = now_ns() + 120_000_000_000;
    let never = |_, _| now_ns() > end;
    let why = without(Defence::Unchanged, || served::read_while_it_is_written(never));
    let why = why.expect_err("without its defence something must go wrong");
    println!("prism-zoo {:?}: caught: {why}", Defence::Unchanged);
}
