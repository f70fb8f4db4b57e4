//! Another protocol in the simulator: real replicas of the fixed sequencer, under every checker that
//! is not PBFT's own.

use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_sequencer::Sequencer;
use tercio_sim::run::run_correct;
use tercio_sim::{Cast, Crash, Workload, World, WorldSettings};
use tercio_types::{ReplicaId, View};

const SOON: Duration = Duration::from_secs(30);
const SEEDS: u64 = 300;

fn four(packages: u64) -> World<Sequencer> {
    let work = Workload { packages, ops: 2, under_way: 2, pause: Duration::from_millis(5) };
    let clients = vec![(ClientAuth::Mac, work), (ClientAuth::Signature, work)];
    let settings = WorldSettings { clients, text: true, ..WorldSettings::default() };
    World::of(&Cast::of::<Sequencer>(4), settings).unwrap()
}

/// Loss, partitions, blackouts, torn writes and disks that fail: replicas start again with what they
/// had written, and everything is ordered once, alike, and certified.
#[test]
fn seeds_of_another_protocol_break_nothing() {
    let cast = Cast::of::<Sequencer>(4);
    let (mut restarts, mut acknowledged) = (0, 0);
    for seed in 1..=SEEDS {
        let report = run_correct::<Sequencer>(&cast, seed, false).outcome;
        let report = report.unwrap_or_else(|failure| panic!("{failure}"));
        restarts += report.tally.restarts;
        acknowledged += report.tally.acknowledged;
        assert_eq!(report.tally.view_changes, 0);
    }
    assert!(restarts > SEEDS && acknowledged > 20 * SEEDS, "{restarts} {acknowledged}");
    let twice = || run_correct::<Sequencer>(&cast, 7, true);
    let (one, other) = (twice(), twice());
    assert_eq!(one.text, other.text, "the same seed gives the same trace");
    assert!(one.text.contains(" ORDER view 0 seq 1 "), "its own names are in the trace");
}

/// Its fault model: none may fail, so that nothing is ordered without the sequencer; and with it
/// again all goes on where it stood.
#[test]
fn without_the_sequencer_nothing_is_ordered() {
    let mut world = four(30);
    let (membership, first) = (world.cast().membership().clone(), ReplicaId(0));
    assert_eq!((membership.f(), membership.quorum(), membership.primary(View(0))), (0, 3, first));
    world.run_for(Duration::from_millis(100)).unwrap();
    world.crash(first, Crash::Power);
    world.run_for(Duration::from_millis(50)).unwrap();
    let stood = world.status(ReplicaId(1)).unwrap().protocol.delivered;
    world.run_for(Duration::from_secs(5)).unwrap();
    assert_eq!(world.status(ReplicaId(1)).unwrap().protocol.delivered, stood);
    world.restart(first).unwrap();
    world.expect_within(SOON, "all of it", World::is_settled).unwrap();
    world.expect_within(SOON, "a checkpoint", World::is_covered).unwrap();
    world.idle().unwrap();
    world.finish().unwrap();
}

/// A replica whose disk is lost fetches what the others have; a sequencer whose log is lost gives no
/// number any more, since it does not know which it gave.
#[test]
fn a_lost_disk_is_survived_but_not_by_the_sequencer() {
    let mut world = four(30);
    for id in [ReplicaId(2), ReplicaId(0)] {
        world.run_for(Duration::from_millis(100)).unwrap();
        world.crash(id, Crash::Power);
        world.lose_disk(id);
        world.restart(id).unwrap();
        if id == ReplicaId(2) {
            world.expect_within(SOON, "all of it", World::is_settled).unwrap();
            world.expect_within(SOON, "a checkpoint", World::is_covered).unwrap();
            world.want_more(10, Duration::from_millis(5));
        }
    }
    let stood = world.status(ReplicaId(1)).unwrap().protocol.delivered;
    world.run_for(Duration::from_secs(5)).unwrap();
    assert_eq!(world.status(ReplicaId(1)).unwrap().protocol.delivered, stood);
    assert!(!world.is_settled());
}
