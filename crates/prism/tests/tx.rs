//! PRISM-TX: committed transactions are as if run in the order of their time stamps, while frames are
//! lost, come twice, late and out of order, clients die, and shards are away for a while.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use crate::common::times;
use crate::transactions::{ACCIDENTS, PROMPT_NS, Ran, Transactions, farm, kill, rounds, run};
use tercio_prism::tx::Options;

/// Seeds that found something once. 350: an installed buffer was given back, since a later abort had
/// raised C above it. 1311: a janitor asked again and again for a transaction whose client had gone on.
const FOUND: [u64; 2] = [350, 1311];

fn many(seeds: u64, shards: usize, clients: usize, clocks_jump: u64) -> Ran {
    let mut total = Ran::default();
    for seed in (times("PRISM_FROM", 0)..seeds).chain(FOUND) {
        let mut transactions = Transactions::new(seed, shards, 12);
        transactions.clocks_jump = clocks_jump;
        let ran = run(seed, transactions, clients, ACCIDENTS);
        let ran = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        total.committed += ran.committed;
        total.aborted += ran.aborted;
        total.found += ran.found;
        total.settled += ran.settled;
        total.client_crashes += ran.client_crashes;
        total.server_crashes += ran.server_crashes;
    }
    println!("prism-count tx_committed {}", total.committed);
    println!("prism-count tx_aborted {}", total.aborted);
    println!("prism-count tx_committed_by_the_dead {}", total.found);
    println!("prism-count tx_settled_by_janitors {}", total.settled);
    println!("prism-count tx_client_crashes {}", total.client_crashes);
    println!("prism-count tx_shards_away {}", total.server_crashes);
    total
}

/// FaRM beside it: transfers between accounts, of which the sum stays what it is, in every transaction
/// that reads them all.
#[test]
fn farms_transactions_keep_the_sum() {
    let mut total = [0; 2];
    for seed in 0..times("PRISM_SEEDS", 30) {
        let [committed, aborted] =
            farm::run(seed, 2, 4).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        total = [total[0] + committed, total[1] + aborted];
    }
    println!("prism-count farm_committed {}", total[0]);
    println!("prism-count farm_aborted {}", total[1]);
    assert!(total[1] > 0, "transactions must meet");
}

/// Round trips that a caller waits for, of one read-modify-write of one key, on one shard.
#[test]
fn a_transaction_takes_the_round_trips_of_the_paper() {
    let (tx, farm) = rounds();
    println!("prism-tx round trips of a read-modify-write: {tx}, FaRM's: {farm}");
    // Execute, prepare, commit; FaRM: index, object, lock, update.
    assert_eq!((tx, farm), (3, 4));
}

#[test]
fn transactions_are_serializable_on_one_shard() {
    let total = many(times("PRISM_SEEDS", 100), 1, 4, 0);
    assert!(total.client_crashes > 0 && total.settled > 0 && total.found > 0, "{total:?}");
}

#[test]
fn so_they_are_on_three() {
    let total = many(times("PRISM_SEEDS", 100), 3, 4, 0);
    assert!(total.client_crashes > 0 && total.settled > 0 && total.found > 0, "{total:?}");
}

#[test]
fn so_they_are_when_clocks_jump() {
    many(times("PRISM_SEEDS", 20), 2, 4, 3);
}

/// Two clients are killed anywhere. Who needs a key then has it when the janitor's period is over, and a
/// few round trips; and all that committed is serializable.
#[test]
fn no_key_is_stuck_longer_than_the_janitors_period() {
    let (mut longest_ns, mut stuck, kills) = (0, 0, times("PRISM_SEEDS", 200));
    for seed in 0..kills {
        let (ns, prepared, _) =
            kill(seed, 1 + seed as usize % 3).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        longest_ns = longest_ns.max(ns);
        stuck += prepared;
    }
    println!("prism-count tx_kill_points {}", kills * 2);
    println!("prism-count tx_keys_prepared_by_the_dead {stuck}");
    println!("prism-tx after kills: a key was waited for at most {} us", longest_ns / 1000);
    assert!(stuck > kills / 4, "{stuck} keys: clients must die with some in their hands");
    let period_ns = Options::default().janitor_ns;
    assert!(longest_ns > period_ns, "nobody waited for a dead client");
    assert!(longest_ns < period_ns + 32 * PROMPT_NS, "{longest_ns} ns");
}
