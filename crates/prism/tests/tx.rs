//! PRISM-TX: committed transactions are as if run in the order of their time stamps, while frames are
//! lost, come twice, late and out of order, clients die, and shards are away for a while.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use crate::common::times;
use crate::transactions::{ACCIDENTS, Ran, Transactions, run};

fn many(seeds: u64, shards: usize, clients: usize, clocks_jump: u64) -> Ran {
    let mut total = Ran::default();
    for seed in 0..seeds {
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

#[test]
fn transactions_are_serializable_on_one_shard() {
    let total = many(times("PRISM_SEEDS", 60), 1, 4, 0);
    assert!(total.client_crashes > 0 && total.settled > 0 && total.found > 0, "{total:?}");
}

#[test]
fn so_they_are_on_three() {
    let total = many(times("PRISM_SEEDS", 60), 3, 4, 0);
    assert!(total.client_crashes > 0 && total.settled > 0 && total.found > 0, "{total:?}");
}

#[test]
fn so_they_are_when_clocks_jump() {
    many(times("PRISM_SEEDS", 20), 2, 4, 3);
}
