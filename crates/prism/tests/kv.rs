//! PRISM-KV and Pilaf: linearizable per key while frames are lost, come twice, late and out of order
//! and clients die; no buffer is lost for good.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use crate::store;

use std::sync::Arc;
use store::{OURS, Outcome, Settings, World, conserved, prism_world};
use tercio_prism::kv::Hash;
use tercio_prism::kv::pilaf::{PilafClient, PilafServer};
use tercio_prism::memory::Memory;

fn times(variable: &str, normal: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(normal)
}

fn run_prism(seeds: u64, settings: Settings, two_rounds: bool) -> Outcome {
    let mut total = Outcome::default();
    let (mut growths, mut swept) = (0, 0);
    for seed in 0..seeds {
        let (mut world, server) = prism_world(seed, settings, two_rounds);
        world.run();
        let outcome = world.check().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        world.settle();
        let count = conserved(&world.memory, &server);
        let count = count.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        total += outcome;
        growths += count.growths;
        swept += count.swept;
    }
    println!("{total:?}, {swept} buffers were swept");
    println!("prism-count table_growths {growths}");
    println!("prism-count histories {}", total.histories);
    println!("prism-count history_events {}", total.events);
    println!("prism-count checker_states {}", total.states);
    println!("prism-count client_crashes {}", total.crashes);
    total
}

#[test]
fn prism_kv_is_linearizable_under_loss_duplicates_and_crashes() {
    let total = run_prism(times("PRISM_SEEDS", 150), Settings::ROUGH, false);
    assert!(total.crashes > 0 && total.repeated > 0, "the run must be rough: {total:?}");
}

#[test]
fn so_it_is_with_puts_of_two_round_trips() {
    run_prism(times("PRISM_SEEDS", 150), Settings::ROUGH, true);
}

#[test]
fn many_keys_make_the_table_grow_under_load() {
    let settings = Settings { keys: 24, commands: 80, ..Settings::ROUGH };
    run_prism(times("PRISM_SEEDS", 150) / 2, settings, false);
}

#[test]
fn one_key_and_many_clients_contend() {
    let settings =
        Settings { keys: 1, clients: 6, commands: 12, deletes: false, ..Settings::ROUGH };
    run_prism(times("PRISM_SEEDS", 150), settings, false);
}

#[test]
fn pilaf_is_linearizable_too() {
    let mut total = Outcome::default();
    for seed in 0..times("PRISM_SEEDS", 150) {
        let memory = Arc::new(Memory::new());
        let hash = (Hash::Mixed, seed);
        let server = PilafServer::new(&memory, OURS, hash, 64, 64, (8, 200)).unwrap();
        let mut world =
            World::new(seed, Settings::ROUGH, memory, Box::new(server), PilafClient::new);
        world.run();
        total += world.check().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("prism-count histories {}", total.histories);
    println!("prism-count history_events {}", total.events);
    println!("prism-count checker_states {}", total.states);
}
