//! The executor does what the reference interpreter does, for random chains over memory that holds
//! pointers good and bad; and each rule of the reference has a case of its own.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use crate::common;

use common::{Direct, OURS, THEIRS, times, word};
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_prism::engine::FREE;
use tercio_prism::memory::{BUFFER_HEADER, Memory, Rights};
use tercio_prism::op::{
    Action, Addr, Capability, Cas, Deref, Masks, Mode, Op, Operand, Payload, Source, Status,
};
use tercio_prism::reference::{Reference, ReferencePool, ReferenceRegion};
use tercio_prism::rng::Rng;

const PLAIN: usize = 256;

struct World {
    memory: Arc<Memory>,
    direct: Direct,
    reference: Reference,
    /// Plain regions: all rights, another's, read only.
    plain: [(Addr, Capability); 3],
    /// Pools and their buffers' distance.
    pools: [(u8, usize, u32); 2],
    seen: Vec<Addr>,
}

impl World {
    fn new() -> Self {
        let memory = Arc::new(Memory::new());
        let mut reference = Reference::default();
        let mut plain = |by, rights| {
            let addr = memory.register(by, rights, PLAIN).unwrap();
            let bytes = vec![0; PLAIN];
            let generation = addr.generation();
            let region = ReferenceRegion { capability: by, rights, bytes, generation, pool: None };
            reference.regions.insert(addr.region(), region);
            (addr, by)
        };
        let plain =
            [plain(OURS, Rights::ALL), plain(THEIRS, Rights::ALL), plain(OURS, Rights::READ)];
        let pools = [(56usize, 4u32), (120, 3)].map(|(payload, buffers)| {
            let pool = memory.register_pool(OURS, Rights::ALL, payload, buffers, buffers).unwrap();
            let stride = payload + BUFFER_HEADER;
            let pool_of = ReferencePool {
                stride,
                buffers: vec![(1, false); buffers as usize],
                free: (0..buffers as usize).collect(),
            };
            let region = ReferenceRegion {
                capability: OURS,
                rights: Rights::ALL,
                bytes: vec![0; stride * buffers as usize],
                generation: 0,
                pool: Some(pool_of),
            };
            reference.regions.insert(pool, region);
            (pool, stride, buffers)
        });
        let direct = Direct::new(&memory, 0);
        Self { memory, direct, reference, plain, pools, seen: Vec::new() }
    }

    fn addr(&self, rng: &mut Rng) -> Addr {
        let offset = match rng.below(4) {
            0 => rng.below(PLAIN as u64 + 8),
            1 => rng.below(PLAIN as u64 / 8) * 8,
            _ => rng.below(PLAIN as u64 / 16) * 16,
        };
        match rng.below(20) {
            0 => Addr::NULL,
            1..4 => Addr::scratch(rng.below(9) * 8),
            4 => Addr::scratch(rng.below(70)),
            5 => self.plain[1].0.plus(offset),
            6 => self.plain[2].0.plus(offset),
            7..12 => self.plain[0].0.plus(offset),
            12 => Addr(self.plain[0].0.plus(offset).0 ^ 1 << 48),
            13 => Addr(rng.next_u64()),
            14 => {
                let (pool, stride, buffers) = self.pools[rng.below(2) as usize];
                Addr::new(rng.below(4) as u16, pool, rng.below(stride as u64 * u64::from(buffers)))
            }
            _ if self.seen.is_empty() => self.plain[0].0,
            _ => {
                let addr = self.seen[rng.below(self.seen.len() as u64) as usize];
                if rng.percent(80) { addr } else { addr.plus(rng.below(64)) }
            }
        }
    }

    /// What is written is often a pointer, so that there is something to follow.
    fn words(&self, rng: &mut Rng, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| match rng.below(3) {
                0 => self.addr(rng).0,
                1 => rng.below(40),
                _ => rng.next_u64(),
            })
            .collect()
    }

    fn op<'a>(&self, rng: &mut Rng, words: &'a mut Vec<u64>) -> Op<'a> {
        let deref = [Deref::Direct, Deref::Indirect, Deref::Bounded][rng.below(3) as usize];
        let redirect = rng.percent(30).then(|| self.addr(rng));
        let len = 1 + rng.below(70) as usize;
        let count = 1 + rng.below(4) as usize;
        *words = self.words(rng, 24);
        if let Some(last) = words[..len.div_ceil(8)].last_mut()
            && !len.is_multiple_of(8)
        {
            *last &= (1 << (len % 8 * 8)) - 1;
        }
        // Masks of an order leave words whole.
        let whole: Vec<u64> = (0..8).map(|_| if rng.percent(50) { u64::MAX } else { 0 }).collect();
        let mode = [Mode::Equal, Mode::Greater, Mode::Less][rng.below(3) as usize];
        if mode != Mode::Equal {
            words[16..24].copy_from_slice(&whole);
        }
        let words: &'a [u64] = words;
        let data = Payload::new(&words[..len.div_ceil(8)], len).unwrap();
        let action = match rng.below(8) {
            0..2 => Action::Read { addr: self.addr(rng), len: len as u32, deref, redirect },
            2 => Action::Write { addr: self.addr(rng), deref, source: Source::Inline(data) },
            3 => Action::Write {
                addr: self.addr(rng),
                deref,
                source: Source::At(self.addr(rng), len as u32),
            },
            4 => Action::Allocate {
                pool: match rng.below(6) {
                    0 => rng.below(256) as u8,
                    _ => self.pools[rng.below(2) as usize].0,
                },
                data,
                redirect,
            },
            5 => Action::FetchAdd {
                addr: self.addr(rng),
                indirect: rng.percent(30),
                addend: rng.next_u64(),
            },
            _ => Action::Cas(Cas {
                mode,
                target: self.addr(rng),
                indirect: rng.percent(30),
                words: count as u8,
                data: match rng.below(2) {
                    0 => Operand::At(self.addr(rng)),
                    _ => Operand::Inline(&words[..count]),
                },
                comparand: match rng.below(4) {
                    0 => Some(Operand::At(self.addr(rng))),
                    1 => Some(Operand::Inline(&words[4..4 + count])),
                    _ => None,
                },
                masks: match rng.below(2) {
                    0 => {
                        let mask = (1 << count) - 1;
                        let pick = |rng: &mut Rng| rng.below(16) as u8 & mask;
                        Masks::Words { compare: pick(rng), swap: pick(rng) }
                    }
                    _ => Masks::Bits {
                        compare: &words[16..16 + count],
                        swap: &words[20..20 + count],
                    },
                },
            }),
        };
        Op { conditional: rng.percent(30), action }
    }

    fn compare_memory(&mut self, context: &str) {
        for (addr, by) in self.plain {
            let read = read(addr, PLAIN as u32);
            let (status, bytes) = self.direct.run(by, &[read]).pop().unwrap();
            assert_eq!(status, Status::Ok, "{context}");
            assert_eq!(bytes, self.reference.regions[&addr.region()].bytes, "{context}");
        }
        for (pool, stride, _) in self.pools {
            let region = self.reference.regions[&pool].clone();
            let buffers = &region.pool.as_ref().unwrap().buffers;
            for (i, (generation, taken)) in buffers.iter().enumerate() {
                let at = i * stride + BUFFER_HEADER;
                let addr = Addr::new(*generation, pool, at as u64);
                let len = stride - BUFFER_HEADER;
                let (status, bytes) = self.direct.one(read(addr, len as u32));
                if *taken {
                    assert_eq!(bytes, region.bytes[at..at + len], "{context}");
                } else {
                    assert_eq!(status, Status::Stale, "{context}");
                }
            }
        }
    }
}

fn read(addr: Addr, len: u32) -> Op<'static> {
    Action::Read { addr, len, deref: Deref::Direct, redirect: None }.into()
}

fn write(addr: Addr, words: &[u64]) -> Op<'_> {
    let source = Source::Inline(Payload::of_words(words));
    Action::Write { addr, deref: Deref::Direct, source }.into()
}

#[test]
fn random_chains_end_as_the_reference_says() {
    let worlds = times("PRISM_WORLDS", 60);
    let (mut chains, mut ops, mut statuses) = (0u64, 0u64, BTreeMap::new());
    for seed in 0..worlds {
        let mut rng = Rng::new(seed);
        let mut world = World::new();
        for chain in 0..300 {
            let context = format!("seed {seed}, chain {chain}");
            let mut words = vec![Vec::new(); 1 + rng.below(8) as usize];
            let request: Vec<Op<'_>> =
                words.iter_mut().map(|words| world.op(&mut rng, words)).collect();
            let by = if rng.percent(95) { OURS } else { THEIRS };
            let expected = world.reference.run(by, &request);
            let got = world.direct.run(by, &request);
            assert_eq!(got, expected, "{context}: {request:#?}");
            chains += 1;
            ops += request.len() as u64;
            for ((status, bytes), op) in got.iter().zip(&request) {
                *statuses.entry(format!("{status:?}")).or_insert(0u64) += 1;
                if let (Action::Allocate { .. }, [_, ..]) = (&op.action, &bytes[..]) {
                    world.seen.push(Addr(word(bytes)));
                }
            }
            // Pointers that went to memory are known, too, as clients would come to know them.
            if chain % 5 == 0 {
                let scan = world.reference.regions[&world.plain[0].0.region()].bytes.clone();
                world.seen.extend(
                    scan.as_chunks::<8>()
                        .0
                        .iter()
                        .map(|w| Addr(word(w)))
                        .filter(|addr| world.pools.iter().any(|(pool, ..)| *pool == addr.region())),
                );
                world.seen.truncate(32);
            }
            if rng.percent(20) && !world.seen.is_empty() {
                let addr = world.seen.swap_remove(rng.below(world.seen.len() as u64) as usize);
                let expected = world.reference.retire(addr, by);
                let got = world.direct.call(by, &[FREE, addr.0]).unwrap();
                assert_eq!(got == [1, 0], expected.is_ok(), "{context}: {addr:?} {expected:?}");
                // The grace period of one thread is over when it has gone round.
                (0..3).for_each(|_| world.memory.collect());
                if rng.percent(50) {
                    world.seen.push(addr);
                }
            }
            if chain % 25 == 0 {
                world.compare_memory(&context);
            }
        }
        world.compare_memory(&format!("seed {seed}"));
    }
    println!("prism-count random_chains {chains}");
    println!("prism-count random_ops {ops}");
    println!("outcomes: {statuses:?}");
    for status in Status::ALL {
        let count = statuses.get(&format!("{status:?}")).copied().unwrap_or(0);
        assert!(count > chains / 1000, "too few outcomes {status:?}: {count} of {ops}");
    }
}

#[test]
fn a_bounded_read_gives_no_more_than_the_bound() {
    let mut world = World::new();
    let base = world.plain[0].0;
    let target = base.plus(64);
    world.direct.one(write(base, &[target.0, 5]));
    world.direct.one(write(target, &[0x0807_0605_0403_0201]));
    let bounded = |len| Action::Read { addr: base, len, deref: Deref::Bounded, redirect: None };
    assert_eq!(world.direct.one(bounded(64)), (Status::Ok, vec![1, 2, 3, 4, 5]));
    assert_eq!(world.direct.one(bounded(2)), (Status::Ok, vec![1, 2]));
}

#[test]
fn a_failure_skips_the_conditional_tail_and_nothing_else() {
    let mut world = World::new();
    let base = world.plain[0].0;
    let miss = Action::Cas(Cas {
        mode: Mode::Equal,
        target: base,
        indirect: false,
        words: 1,
        data: Operand::Inline(&[9]),
        comparand: None,
        masks: Masks::Words { compare: 1, swap: 1 },
    });
    let outcomes = world.direct.run(
        OURS,
        &[
            write(base.plus(8), &[1]),
            Op::from(miss).conditional(),
            write(base.plus(8), &[2]).conditional(),
            write(base.plus(8), &[3]).conditional(),
            read(base.plus(8), 8),
            write(base.plus(8), &[4]).conditional(),
        ],
    );
    let statuses: Vec<_> = outcomes.iter().map(|(status, _)| *status).collect();
    use Status::{Miss, Ok, Skipped};
    assert_eq!(statuses, [Ok, Miss, Skipped, Skipped, Ok, Ok]);
    assert_eq!(word(&outcomes[4].1), 1);
}

#[test]
fn operands_are_compared_as_one_number_first_word_first() {
    let mut world = World::new();
    let base = world.plain[0].0;
    let mut greater = |old: [u64; 2], new: [u64; 2], compare: u8| {
        world.direct.one(write(base, &old));
        let cas = Cas {
            mode: Mode::Greater,
            target: base,
            indirect: false,
            words: 2,
            data: Operand::Inline(&new),
            comparand: None,
            masks: Masks::Words { compare, swap: 0b11 },
        };
        world.direct.one(Action::Cas(cas)).0
    };
    assert_eq!(greater([1, 9], [2, 0], 0b11), Status::Ok, "the first word dominates");
    assert_eq!(greater([2, 0], [1, 9], 0b11), Status::Miss);
    assert_eq!(greater([1, 1], [1, 2], 0b11), Status::Ok);
    assert_eq!(greater([1, 1], [1, 1], 0b11), Status::Miss, "equal is not greater");
    assert_eq!(greater([9, 1], [0, 2], 0b10), Status::Ok, "the first word is masked out");
    assert_eq!(greater([0, 0], [1, 1], 0b00), Status::Miss, "nothing is not greater than nothing");
}

#[test]
fn scratch_memory_is_zero_at_first_and_each_requests_own() {
    let mut world = World::new();
    let outcomes =
        world.direct.run(OURS, &[write(Addr::scratch(0), &[7; 8]), read(Addr::scratch(0), 64)]);
    assert_eq!(outcomes[1].1, [[7, 0, 0, 0, 0, 0, 0, 0]; 8].concat());
    assert_eq!(world.direct.one(read(Addr::scratch(0), 64)), (Status::Ok, vec![0; 64]));
}
