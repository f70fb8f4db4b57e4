//! The epochs under a thread model checker: all interleavings, and all that the memory model permits,
//! of threads that read a buffer while another replaces it and uses it again.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed as Counted};
use tercio_prism::epoch::Epochs;

const POISON: u64 = 0xdb;

struct World {
    epochs: Epochs,
    /// Which buffer holds the value.
    slot: AtomicU64,
    buffers: [AtomicU64; 2],
}

/// A thread reads what the slot points to while another replaces it, gives the old buffer back and
/// uses it again as soon as it may. Gives how many executions there were, and how often the buffer
/// was used again within one.
fn explore(grace: u64, readers: usize) -> (usize, usize) {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    static REUSES: AtomicUsize = AtomicUsize::new(0);
    EXECUTIONS.store(0, Counted);
    REUSES.store(0, Counted);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (readers > 1).then_some(2);
    model.check(move || {
        EXECUTIONS.fetch_add(1, Counted);
        let world = Arc::new(World {
            epochs: Epochs::with_grace(readers + 1, grace),
            slot: AtomicU64::new(0),
            buffers: [AtomicU64::new(1), AtomicU64::new(2)],
        });
        let threads: Vec<_> = (0..readers)
            .map(|plane| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.epochs.enter(plane);
                    let buffer = world.slot.load(Ordering::Acquire) as usize;
                    let value = world.buffers[buffer].load(Ordering::Relaxed);
                    assert_ne!(value, POISON, "a buffer was used again under a reader's hands");
                    world.epochs.leave(plane);
                })
            })
            .collect();
        world.epochs.enter(readers);
        world.slot.store(1, Ordering::Release);
        let epoch = world.epochs.retired();
        world.epochs.leave(readers);
        for _ in 0..3 {
            world.epochs.advance();
            if world.epochs.is_over(epoch) {
                world.buffers[0].store(POISON, Ordering::Relaxed);
                REUSES.fetch_add(1, Counted);
                break;
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    (EXECUTIONS.load(Counted), REUSES.load(Counted))
}

#[test]
fn no_buffer_is_used_again_under_a_readers_hands() {
    let (mut executions, mut reuses) = (0, 0);
    for readers in [1, 2] {
        let (more, again) = explore(2, readers);
        executions += more;
        reuses += again;
        assert!(again > 0, "the buffer was never used again: nothing was tested");
    }
    println!("prism-count model_executions {executions}");
    println!("in {reuses} of them the buffer was used again");

    // And it is the grace period that does it.
    let short = std::panic::catch_unwind(|| explore(0, 1));
    assert!(short.is_err(), "without a grace period the checker must find the mistake");
    let short = std::panic::catch_unwind(|| explore(1, 1));
    println!(
        "a grace period of one epoch is {}",
        if short.is_err() { "too short" } else { "enough here" }
    );
}
