//! The simulator itself: the same seed gives the same trace, other seeds others, and random runs
//! meet the trouble that they are for.

use tercio_sim::Cast;
use tercio_sim::run::run;
use tercio_types::Suite;

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

/// Seeds in which a replica once kept more than the bounds, since views that it entered and could
/// not follow added up (rules W2 and W3 of `docs/protocol/pbft.md`).
#[test]
fn laggards_that_enter_views_keep_within_the_bounds() {
    for (seed, n) in [(2_000_255, 7), (2_000_364, 4), (2_002_092, 4)] {
        let report = run(&Cast::new(n), seed, false).outcome;
        let report = report.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.tally.view_changes > 0 && report.tally.restarts > 0, "{report:?}");
    }
}
