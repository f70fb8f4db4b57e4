//! The simulator itself: the same seed gives the same trace, other seeds others, and random runs
//! meet the trouble that they are for.

use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_consensus::Instant;
use tercio_ledger::MediaFault;
use tercio_sim::run::run;
use tercio_sim::{Act, Cast, Habits, Target, Workload, World, WorldSettings};
use tercio_types::{ClientId, ReplicaId, Suite};

const SOON: Duration = Duration::from_secs(30);

/// A network of four, with two clients that have so much to ask for.
fn four(packages: u64) -> World {
    let work = Workload { packages, ops: 2, under_way: 2, pause: Duration::from_millis(5) };
    let clients = vec![(ClientAuth::Mac, work), (ClientAuth::Mac, work)];
    World::new(&Cast::new(4), WorldSettings { clients, ..WorldSettings::default() }).unwrap()
}

/// Megabytes, ordered reads, queries and a client that is added while all of it goes on.
#[test]
fn clients_ask_for_more_than_short_operations() {
    let mut world = four(30);
    let habits = Habits { reads: 200, queries: 300, long: (200, 3 << 20) };
    world.give_habits(ClientId(1), habits);
    world.plan(Instant(20_000_000), Act::AddClient(ClientId(2)));
    world.expect_within(SOON, "all of it", World::is_settled).unwrap();
    world.run_for(Duration::from_secs(1)).unwrap();
    world.expect_within(SOON, "what the newcomer wants", World::is_settled).unwrap();
    world.finish().unwrap();
    let met = world.tally();
    assert!(met.reads > 0 && met.queries > 0 && met.long_operations > 0, "{met:?}");
    assert_eq!(met.clients_added, 1);
    assert!(world.customer(7).is_done() && world.has_executed(ReplicaId(3), 7, 1));
}

/// When all is quiet, stable checkpoints come to cover everything, and until then they do not.
#[test]
fn an_idle_network_is_covered() {
    let mut world = four(5);
    world.expect_within(SOON, "all of it", World::is_settled).unwrap();
    assert!(!world.is_covered() && world.idle().is_err());
    world.expect_within(SOON, "a checkpoint", World::is_covered).unwrap();
    world.idle().unwrap();
}

/// Nobody waits for one that is gone for good, and it is not started again.
#[test]
fn one_that_is_gone_stays_gone() {
    let mut world = four(10);
    world.plan(Instant(10_000_000), Act::Gone(ReplicaId(2)));
    world.expect_within(SOON, "what is wanted", World::is_settled).unwrap();
    world.restart(ReplicaId(2)).unwrap();
    assert!(!world.host(ReplicaId(2)).is_up() && world.correct().count() == 3);
    world.finish().unwrap();
}

/// A medium fails in a write-ahead log: the replica counts as faulty, and gets another disk if it
/// notices when it starts. In other files it mends what is damaged.
#[test]
fn media_that_fail_are_survived() {
    for (target, correct) in [(Target::Log, 3), (Target::Others, 4)] {
        let mut replaced = 0;
        for seed in 0..6 {
            let work =
                Workload { packages: 40, ops: 2, under_way: 2, pause: Duration::from_millis(5) };
            let clients = vec![(ClientAuth::Mac, work)];
            let settings = WorldSettings { seed, clients, ..WorldSettings::default() };
            let mut world = World::new(&Cast::new(4), settings).unwrap();
            world.run_for(Duration::from_millis(100)).unwrap();
            world.crash(ReplicaId(3), tercio_sim::Crash::Power);
            world.media_fault(ReplicaId(3), target, MediaFault::BitRot);
            world.restart(ReplicaId(3)).unwrap();
            world.expect_within(SOON, "all of it", World::is_settled).unwrap();
            world.finish().unwrap();
            assert_eq!(world.tally().media_faults, 1);
            assert_eq!(world.correct().count(), correct);
            replaced += world.tally().replaced_disks;
        }
        assert!(target == Target::Others || replaced > 0, "no log says that it is damaged");
    }
}

/// With the feature `zoo`: of a hundred seeds some find that a checkpoint was signed before its
/// blocks were durable, or that a log forgot before what replaces it was there.
#[cfg(feature = "zoo")]
#[test]
fn a_hundred_seeds_find_what_is_not_durable() {
    use tercio_types::zoo::{Defence, without};
    let casts = [4, 7].map(Cast::new);
    for defence in [Defence::F46DurableCheckpoint, Defence::F45StateFollows] {
        let found = (1..=100).find(|&seed: &u64| {
            let cast = &casts[(seed % 2) as usize];
            without(defence, || run(cast, seed, false).outcome).is_err()
        });
        assert!(found.is_some(), "{defence:?} was not missed");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let cast = Cast::new(4);
    let mut traces = std::collections::BTreeSet::new();
    for seed in [1, 2, 3] {
        let (one, other) = (run(&cast, seed, true), run(&cast, seed, true));
        let report = one.outcome.expect("the run passes");
        assert_eq!(report, other.outcome.expect("the run passes"), "seed {seed}");
        assert_eq!(one.text, other.text, "seed {seed}");
        assert!(report.tally.acknowledged > 0 && report.events > 100, "{report:?}");
        traces.insert(report.trace);
    }
    assert_eq!(traces.len(), 3);
}

/// View changes and checkpoints with SM2 signatures and SM3 digests.
#[test]
fn a_network_of_sm3_and_sm2_survives_and_meets_trouble() {
    let cast = Cast::of_suite(4, Suite::Sm3Sm2);
    let (mut view_changes, mut restarts) = (0, 0);
    for seed in 200..206 {
        let report = run(&cast, seed, false).outcome.unwrap_or_else(|failure| panic!("{failure}"));
        view_changes += report.tally.view_changes;
        restarts += report.tally.restarts;
    }
    assert!(view_changes > 0 && restarts > 0);
}

#[test]
fn networks_of_each_size_survive_and_meet_trouble() {
    let (mut view_changes, mut restarts, mut equivocations) = (0, 0, 0);
    for n in [4, 7, 10] {
        let cast = Cast::new(n);
        for seed in 100..108 {
            let report =
                run(&cast, seed, false).outcome.unwrap_or_else(|failure| panic!("{failure}"));
            view_changes += report.tally.view_changes;
            restarts += report.tally.restarts;
            equivocations += report.tally.equivocations;
        }
    }
    assert!(view_changes > 0 && restarts > 0 && equivocations > 0);
}
