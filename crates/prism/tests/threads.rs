//! Several data plane threads on one memory: operations on one line are atomic, and no reader ever
//! sees a buffer that was used again.

use crate::common;

use common::{Direct, OURS, times, word};
use std::sync::Arc;
use std::thread;
use tercio_prism::engine::FREE;
use tercio_prism::memory::{Memory, POISON, Rights};
use tercio_prism::op::{
    Action, Addr, Cas, Deref, Masks, Mode, Op, Operand, Payload, Source, Status,
};

const PLANES: usize = 3;

fn on_all_planes(memory: &Arc<Memory>, work: impl Fn(usize, &mut Direct) + Send + Sync) {
    thread::scope(|scope| {
        for plane in 0..PLANES {
            let (memory, work) = (Arc::clone(memory), &work);
            scope.spawn(move || work(plane, &mut Direct::new(&memory, plane)));
        }
    });
}

#[test]
fn operations_on_one_line_are_atomic() {
    let rounds = times("PRISM_ROUNDS", 10_000);
    let memory = Arc::new(Memory::for_planes(PLANES));
    let region = memory.register(OURS, Rights::ALL, 128).unwrap();
    on_all_planes(&memory, |plane, direct| {
        for i in 0..rounds {
            direct.one(Action::FetchAdd { addr: region, indirect: false, addend: 1 });
            // Four words that are always equal, raised by whoever has the largest number.
            let new = [i * PLANES as u64 + plane as u64; 4];
            let cas = Cas {
                mode: Mode::Greater,
                target: region.plus(32),
                indirect: false,
                words: 4,
                data: Operand::Inline(&new),
                comparand: None,
                masks: Masks::Words { compare: 0b1111, swap: 0b1111 },
            };
            let (_, old) = direct.one(Action::Cas(cas));
            assert!(old.chunks(8).all(|chunk| *chunk == old[..8]), "{old:?}");
            let read = Action::Read {
                addr: region.plus(32),
                len: 32,
                deref: Deref::Direct,
                redirect: None,
            };
            let (_, now) = direct.one(read);
            assert!(now.chunks(8).all(|chunk| *chunk == now[..8]), "{now:?}");
            assert!(word(&now[..8]) >= word(&old[..8]), "it only rises");
            // Bytes of one word, each written by one thread.
            let byte = [i & 0xff];
            let source = Source::Inline(Payload::new(&byte, 1).unwrap());
            let addr = region.plus(64 + plane as u64);
            direct.one(Action::Write { addr, deref: Deref::Direct, source });
        }
    });
    let mut direct = Direct::new(&memory, 0);
    let read = |addr, len| Action::Read { addr, len, deref: Deref::Direct, redirect: None };
    assert_eq!(word(&direct.one(read(region, 8)).1), rounds * PLANES as u64);
    let bytes = direct.one(read(region.plus(64), PLANES as u32)).1;
    assert_eq!(bytes, vec![((rounds - 1) & 0xff) as u8; PLANES], "no thread undid another's byte");
}

#[test]
fn readers_never_see_a_buffer_that_was_used_again() {
    let rounds = times("PRISM_ROUNDS", 10_000);
    let memory = Arc::new(Memory::for_planes(PLANES));
    memory.poison_freed();
    let region = memory.register(OURS, Rights::ALL, 64).unwrap();
    let pool = memory.register_pool(OURS, Rights::ALL, 504, 8, 8).unwrap();
    // Thread 0 replaces what the slot points to; the others read through it.
    on_all_planes(&memory, |plane, direct| {
        let (mut old, mut seen) = (Addr::NULL, 0u64);
        for i in 1..=rounds {
            if plane == 0 {
                let item = [i; 63];
                let data = Payload::of_words(&item);
                let chain: [Op<'_>; 3] = [
                    Action::Allocate { pool, data, redirect: Some(Addr::scratch(0)) }.into(),
                    Op::from(Action::Write {
                        addr: region,
                        deref: Deref::Direct,
                        source: Source::At(Addr::scratch(0), 8),
                    })
                    .conditional(),
                    Action::Read {
                        addr: Addr::scratch(0),
                        len: 8,
                        deref: Deref::Direct,
                        redirect: None,
                    }
                    .into(),
                ];
                let outcomes = direct.run(OURS, &chain);
                if outcomes[0].0 == Status::Ok {
                    direct.call(OURS, &[FREE, old.0]).unwrap();
                    old = Addr(word(&outcomes[2].1));
                }
                memory.collect();
            } else {
                let read =
                    Action::Read { addr: region, len: 504, deref: Deref::Indirect, redirect: None };
                let (status, bytes) = direct.one(read);
                if status == Status::Ok {
                    let first = word(&bytes[..8]);
                    assert_ne!(first, POISON);
                    assert!(bytes.chunks(8).all(|chunk| *chunk == bytes[..8]), "torn or reused");
                    assert!(first >= seen, "an older value than before");
                    seen = first;
                } else {
                    let replaced = [Status::NullPointer, Status::Stale];
                    assert!(replaced.contains(&status), "{status:?}");
                }
            }
        }
    });
}
