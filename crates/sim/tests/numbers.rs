//! Networks whose replicas have other numbers than those from 0 on.

use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_sim::run::run;
use tercio_sim::{Cast, Crash, Workload, World, WorldSettings};
use tercio_types::{Digest, ReplicaId, View};

const SOON: Duration = Duration::from_secs(30);

/// Members take turns by their places, and all that goes by numbers finds them: a view change, a
/// restart and a state transfer.
#[test]
fn a_network_with_holes_goes_on() {
    let cast = Cast::numbered(&[0, 2, 5, 7]);
    let [first, second, third, last] = [0, 2, 5, 7].map(ReplicaId);
    let work = Workload { packages: 60, ops: 2, under_way: 2, pause: Duration::from_millis(5) };
    let clients = vec![(ClientAuth::Mac, work), (ClientAuth::Signature, work)];
    let settings = WorldSettings { clients, forgetful: true, ..WorldSettings::default() };
    let mut world = World::new(&cast, settings).unwrap();
    world.run_for(Duration::from_millis(100)).unwrap();
    world.crash(first, Crash::Power);
    world.expect_within(SOON, "another view", |world| world.primary() == second).unwrap();
    world.restart(first).unwrap();
    world.crash(last, Crash::Power);
    world.lose_disk(last);
    world.expect_within(SOON, "what is wanted", |world| world.acknowledged() > 100).unwrap();
    world.want_more(40, Duration::from_millis(5));
    world.run_for(Duration::from_secs(1)).unwrap();
    world.restart(last).unwrap();
    world.expect_within(SOON, "all of it", World::is_settled).unwrap();
    let transfer = world.status(last).unwrap().transfer.expect("the blocks are gone");
    assert_eq!(transfer.phase, "done", "{transfer:?}");
    assert!(world.status(third).unwrap().protocol.view > View(0));
    world.expect_within(SOON, "a checkpoint", World::is_covered).unwrap();
    world.finish().unwrap();
}

/// Random runs with everything that goes wrong in them, and the same traces from the same seeds.
#[test]
fn seeds_of_networks_with_holes_break_nothing() {
    let cast = Cast::numbered(&[0, 2, 5, 7]);
    let (mut views, mut equivocations, mut first) = (0, 0, Digest::default());
    for seed in 1..=60 {
        let report = run(&cast, seed, false).outcome.unwrap_or_else(|failure| panic!("{failure}"));
        views += report.tally.view_changes;
        equivocations += report.tally.equivocations;
        first = if seed == 1 { report.trace } else { first };
    }
    assert!(views > 50 && equivocations > 0, "{views} {equivocations}");
    assert_eq!(run(&cast, 1, false).outcome.unwrap().trace, first);
    let seven = Cast::numbered(&[1, 2, 3, 60, 64, 126, 127]);
    for seed in 1..=6 {
        run(&seven, seed, false).outcome.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
