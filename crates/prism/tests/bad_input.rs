//! Hostile and broken requests: the answer names the fault, and nothing outside the request's own
//! buffers changes.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use crate::common;

use common::{Direct, OURS, PEER, THEIRS, connect, times, word};
use proptest::prelude::*;
use std::sync::Arc;
use tercio_prism::engine::{FREE, MAX_KEPT_ANSWER, Peer};
use tercio_prism::memory::{Memory, Rights};
use tercio_prism::op::{
    Action, Addr, Cas, Deref, MAX_DATA, MAX_OPS, Masks, Mode, Op, Operand, Payload, Reject, Source,
    Status,
};
use tercio_prism::rng::Rng;
use tercio_prism::wire::{Answer, Request};

struct World {
    memory: Arc<Memory>,
    direct: Direct,
    region: Addr,
    other: Addr,
    readable: Addr,
    pool: u8,
}

fn world() -> World {
    let memory = Arc::new(Memory::new());
    let region = memory.register(OURS, Rights::ALL, 4096).unwrap();
    let other = memory.register(THEIRS, Rights::ALL, 4096).unwrap();
    let readable = memory.register(OURS, Rights::READ, 4096).unwrap();
    let pool = memory.register_pool(OURS, Rights::ALL, 56, 2, 2).unwrap();
    let direct = Direct::new(&memory, 0);
    World { memory, direct, region, other, readable, pool }
}

fn read(addr: Addr, len: u32, deref: Deref) -> Op<'static> {
    Action::Read { addr, len, deref, redirect: None }.into()
}

fn write(addr: Addr, words: &[u64]) -> Op<'_> {
    let source = Source::Inline(Payload::of_words(words));
    Action::Write { addr, deref: Deref::Direct, source }.into()
}

fn cas(target: Addr, words: u8) -> Op<'static> {
    Action::Cas(Cas {
        mode: Mode::Equal,
        target,
        indirect: false,
        words,
        data: Operand::Inline(&[1; 4][..usize::from(words)]),
        comparand: None,
        masks: Masks::Words { compare: 0, swap: 1 },
    })
    .into()
}

fn allocate(pool: u8, words: &[u64]) -> Op<'_> {
    Action::Allocate { pool, data: Payload::of_words(words), redirect: None }.into()
}

impl World {
    /// Everything that a request could reach.
    fn contents(&mut self) -> Vec<Vec<u8>> {
        let all = |addr| read(addr, 4096, Deref::Direct);
        let mut contents = vec![
            self.direct.run(OURS, &[all(self.region)]).remove(0).1,
            self.direct.run(THEIRS, &[all(self.other)]).remove(0).1,
            self.direct.run(OURS, &[all(self.readable)]).remove(0).1,
        ];
        contents.push(format!("{:?}", self.memory.pool_count(self.pool)).into_bytes());
        contents
    }
}

#[test]
fn each_fault_has_its_name_and_no_effect() {
    let mut w = world();
    let (region, other, readable, pool) = (w.region, w.other, w.readable, w.pool);
    // A pointer out of the region's end, one into another's region, and a null one.
    w.direct.one(write(region, &[region.plus(4095).0, 64, other.0, 64]));
    let before = w.contents();
    let unknown = Addr::new(1, 200, 0);
    let stale = Addr(region.0 ^ 1 << 48);
    for (op, fault) in [
        (read(Addr::NULL, 8, Deref::Direct), Status::NullPointer),
        (read(region.plus(64), 8, Deref::Indirect), Status::NullPointer),
        (read(unknown, 8, Deref::Direct), Status::UnknownRegion),
        (write(unknown, &[1]), Status::UnknownRegion),
        (write(other, &[1]), Status::BadCapability),
        (read(region.plus(16), 8, Deref::Indirect), Status::BadCapability),
        (read(region, 64, Deref::Bounded), Status::OutOfRange),
        (write(region.plus(4089), &[1]), Status::OutOfRange),
        (read(Addr::scratch(60), 8, Deref::Direct), Status::OutOfRange),
        (read(region.plus(4), 8, Deref::Indirect), Status::Misaligned),
        (read(region.plus(8), 8, Deref::Bounded), Status::Misaligned),
        (cas(region.plus(4), 1), Status::Misaligned),
        (cas(region.plus(48), 4), Status::Misaligned),
        (write(stale, &[1]), Status::Stale),
        (write(readable, &[1]), Status::NoRight),
        (cas(readable, 1), Status::NoRight),
        (cas(Addr::scratch(0), 1), Status::NoRight),
        (allocate(region.region(), &[1]), Status::NoRight),
        (allocate(200, &[1]), Status::UnknownRegion),
        (allocate(other.region(), &[1]), Status::BadCapability),
        (allocate(pool, &[1; 8]), Status::TooLong),
        // The second access of an operation is checked before the first has an effect.
        (
            Action::Allocate { pool, data: Payload::of_words(&[1]), redirect: Some(readable) }
                .into(),
            Status::NoRight,
        ),
        (
            Action::Read { addr: region, len: 8, deref: Deref::Direct, redirect: Some(other) }
                .into(),
            Status::BadCapability,
        ),
        (
            Action::Write { addr: region, deref: Deref::Direct, source: Source::At(other, 8) }
                .into(),
            Status::BadCapability,
        ),
    ] {
        assert_eq!(w.direct.one(op), (fault, vec![]), "{op:?}");
        assert_eq!(w.contents(), before, "{op:?}");
    }
}

#[test]
fn an_exhausted_pool_says_so_and_stale_addresses_are_told() {
    let mut w = world();
    let taken: Vec<Addr> =
        (0..2).map(|i| Addr(word(&w.direct.one(allocate(w.pool, &[i; 7])).1))).collect();
    assert_eq!(w.direct.one(allocate(w.pool, &[1])), (Status::Empty, vec![]));
    // Only who has the capability gives buffers back, and each once.
    assert_eq!(w.direct.call(THEIRS, &[FREE, taken[0].0]), Ok(vec![0, 1]));
    assert_eq!(w.direct.call(OURS, &[FREE, taken[0].0, taken[0].0, 0, 77]), Ok(vec![1, 3]));
    assert_eq!(w.direct.one(read(taken[0], 8, Deref::Direct)).0, Status::Stale);
    assert_eq!(w.direct.one(write(taken[0], &[1])).0, Status::Stale);
    (0..3).for_each(|_| w.memory.collect());
    let again = Addr(word(&w.direct.one(allocate(w.pool, &[9])).1));
    assert_eq!((again.offset(), again == taken[0]), (taken[0].offset(), false), "a new life");
    assert_eq!(w.direct.one(read(taken[0], 8, Deref::Direct)).0, Status::Stale);
    // Not a buffer's beginning; its header; across its end.
    assert_eq!(w.direct.call(OURS, &[FREE, again.plus(8).0]), Ok(vec![0, 1]));
    let header = Addr(again.0 - 8);
    assert_eq!(w.direct.one(read(header, 8, Deref::Direct)).0, Status::OutOfRange);
    assert_eq!(w.direct.one(write(again.plus(56), &[1])).0, Status::OutOfRange);
    assert_eq!(w.direct.one(read(again, 57, Deref::Direct)).0, Status::OutOfRange);
}

#[test]
fn a_region_that_was_taken_away_is_stale_for_good() {
    let mut w = world();
    w.memory.unregister(w.region);
    assert_eq!(w.direct.one(read(w.region, 8, Deref::Direct)).0, Status::UnknownRegion);
    for _ in 0..600 {
        let next = w.memory.register(OURS, Rights::ALL, 64).unwrap();
        assert_ne!(next, w.region);
        w.memory.unregister(next);
    }
    assert_ne!(w.direct.one(read(w.region, 8, Deref::Direct)).0, Status::Ok);
}

#[test]
fn limits_are_checked_before_anything_runs() {
    let mut w = world();
    let before = w.contents();
    let long: Vec<Op<'_>> = (0..=MAX_OPS).map(|_| write(w.region, &[1])).collect();
    let mut frame = w.direct.request(OURS, &long[..MAX_OPS]);
    tercio_prism::wire::put_op(&mut frame, &long[0]);
    frame[4] = ((frame.len() as u64 - 5) * 8) | ((MAX_OPS as u64 + 1) << 32);
    let answer = w.direct.frame(&frame).unwrap();
    assert_eq!(Answer::decode(&answer).unwrap().rejected, Some(Reject::TooLong));
    // The answer of all operations together, too.
    let ops = [write(w.region, &[1]), read(w.region, MAX_DATA as u32, Deref::Direct), {
        read(w.region, 1, Deref::Direct)
    }];
    assert_eq!(w.direct.try_run(OURS, &ops), Err(Reject::TooLong));
    assert_eq!(w.contents(), before);
}

#[test]
fn connections_belong_to_their_peers_and_capabilities() {
    let mut w = world();
    let answer = w.direct.frame(&connect(common::OURS)).unwrap();
    assert_eq!(Answer::decode(&answer).unwrap().connection, w.direct.connection, "asked again");
    let answer = w.direct.frame(&connect(tercio_prism::op::Capability(3))).unwrap();
    assert_eq!(Answer::decode(&answer).unwrap().rejected, Some(Reject::BadCapability));
    let frame = w.direct.request(OURS, &[read(w.region, 8, Deref::Direct)]);
    let answers = w.direct.frame_of(Peer::Link(2), &frame);
    let why = Answer::decode(&answers[0]).unwrap().rejected;
    assert_eq!(why, Some(Reject::UnknownConnection), "another peer's connection");
    // The server takes only this many.
    let mut answers = Vec::new();
    for peer in 10..400 {
        answers.extend(w.direct.frame_of(Peer::Link(peer), &connect(OURS)));
    }
    let last = Answer::decode(answers.last().unwrap()).unwrap();
    assert_eq!(last.rejected, Some(Reject::Busy));
}

#[test]
fn what_arrives_twice_is_run_once() {
    let memory = Arc::new(Memory::new());
    let region = memory.register(OURS, Rights::ALL, 8192).unwrap();
    let mut direct = Direct::over(&memory, 0, false);
    let add = Action::FetchAdd { addr: region, indirect: false, addend: 1 }.into();
    let first = direct.request(OURS, &[add]);
    let answers: Vec<_> = (0..3).map(|_| direct.frame(&first).unwrap()).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "the same answer");
    assert_eq!(word(&direct.one(read(region, 8, Deref::Direct)).1), 1);
    // After the window has gone round, the first request is outdated, not new.
    for _ in 0..64 {
        direct.one(add);
    }
    assert_eq!(direct.frame(&first), None);
    assert_eq!(word(&direct.one(read(region, 8, Deref::Direct)).1), 65);
    assert_eq!(direct.engine.counters().repeated, 2);
    assert_eq!(direct.engine.counters().outdated, 1);
    // What has to be remembered must not be long.
    let len = MAX_KEPT_ANSWER as u32 + 8;
    let ops = [write(region, &[7]), read(region, len, Deref::Direct)];
    assert_eq!(direct.try_run(OURS, &ops), Err(Reject::TooLong));
    assert_eq!(word(&direct.one(read(region, 8, Deref::Direct)).1), 65);
}

/// Requests as they should be, to be broken.
fn good_frames(w: &mut World) -> Vec<Vec<u64>> {
    let bits = Action::Cas(Cas {
        mode: Mode::Equal,
        target: w.region,
        indirect: true,
        words: 2,
        data: Operand::At(Addr::scratch(0)),
        comparand: Some(Operand::Inline(&[3, 4])),
        masks: Masks::Bits { compare: &[1, 2], swap: &[3, 4] },
    });
    let chains: [Vec<Op<'_>>; 4] = [
        vec![read(w.region, 100, Deref::Bounded), write(w.region, &[1, 2, 3])],
        vec![allocate(w.pool, &[5; 7]), cas(w.region, 4).conditional()],
        vec![bits.into(), Action::FetchAdd { addr: w.region, indirect: true, addend: 3 }.into()],
        vec![read(w.readable, 4096, Deref::Direct)],
    ];
    chains.iter().map(|ops| w.direct.request(OURS, ops)).collect()
}

proptest! {
    #[test]
    fn any_words_are_decoded_or_refused(words in proptest::collection::vec(any::<u64>(), 0..64)) {
        let _ = Request::decode(&words);
        let _ = Answer::decode(&words);
    }

    #[test]
    fn a_decoded_request_is_written_as_it_was_read(seed in any::<u64>()) {
        let mut w = world();
        let mut rng = Rng::new(seed);
        for mut frame in good_frames(&mut w) {
            for _ in 0..rng.below(4) {
                let at = rng.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << rng.below(64);
            }
            let Ok(request) = Request::decode(&frame) else { continue };
            let mut again = Vec::new();
            tercio_prism::wire::begin_request(&mut again, &request.header);
            if request.count == 0 {
                continue;
            }
            request.ops().for_each(|op| tercio_prism::wire::put_op(&mut again, &op));
            tercio_prism::wire::finish_request(&mut again, 0, request.count).unwrap();
            prop_assert_eq!(&again, &frame);
        }
    }
}

#[test]
fn broken_requests_never_touch_what_is_not_theirs() {
    let rounds = times("PRISM_FUZZ", 20_000);
    let mut w = world();
    let (other, readable) = (w.other, w.readable);
    w.direct.run(THEIRS, &[write(other, &[0xaaaa; 64])]);
    let before = w.contents();
    let unchanged = |w: &mut World| {
        let after = w.contents();
        assert_eq!((&after[1], &after[2]), (&before[1], &before[2]));
    };
    let mut rng = Rng::new(11);
    let (mut run, mut refused) = (0u64, 0u64);
    for _ in 0..rounds {
        let mut frames = good_frames(&mut w);
        let mut frame = frames.swap_remove(rng.below(frames.len() as u64) as usize);
        match rng.below(5) {
            0 => frame.truncate(rng.below(frame.len() as u64 + 1) as usize),
            1 => frame.push(rng.next_u64()),
            _ => {
                for _ in 0..=rng.below(3) {
                    // Not the header: a connection of nobody is a fault that ends it early.
                    let at = 4 + rng.below(frame.len() as u64 - 4) as usize;
                    frame[at] = match rng.below(4) {
                        0 => rng.next_u64(),
                        1 => [0, u64::MAX, other.0, readable.0][rng.below(4) as usize],
                        _ => frame[at] ^ 1 << rng.below(64),
                    };
                }
            }
        }
        for answer in w.direct.frame_of(PEER, &frame) {
            match Answer::decode(&answer).expect("answers are well-formed").rejected {
                Some(_) => refused += 1,
                None => run += 1,
            }
        }
        // What is allocated is given back, so that there is something to allocate.
        if w.memory.pool_count(w.pool).unwrap().free == 0 {
            unchanged(&mut w);
            w = world();
            w.direct.run(THEIRS, &[write(w.other, &[0xaaaa; 64])]);
        }
    }
    unchanged(&mut w);
    assert!(run > rounds / 10 && refused > rounds / 10, "{run} run, {refused} refused");
    println!("prism-count fuzzed_requests {rounds}");
}
