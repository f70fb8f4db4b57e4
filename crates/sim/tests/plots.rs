//! Plots: with the rules as they are each is survived; with the rule wrong that it is for, it breaks
//! what the rule protects.

use tercio_sim::{Cast, plots, run::run_plot};

#[test]
fn every_plot_is_survived() {
    for (seed, n) in [(1, 4), (2, 7), (3, 10)] {
        let cast = Cast::new(n);
        for plot in plots::ALL {
            if let Err(failure) = run_plot(&cast, seed, false, Some(plot)).outcome {
                panic!("{}: {failure}", plot.name);
            }
        }
    }
}

/// With the feature `zoo`: agreement itself breaks, not only a rule of the model of conduct.
#[cfg(feature = "zoo")]
#[test]
fn plots_break_agreement_when_their_rule_is_wrong() {
    use tercio_types::zoo::{Mutant, with_mutant};
    let cast = Cast::new(4);
    for (name, mutant) in [
        ("two sides", Mutant::PrepareQuorumLess),
        ("hidden commit", Mutant::CommitQuorumLess),
        ("hidden commit", Mutant::NothingLess),
        ("one against", Mutant::AgainstLess),
        ("one against", Mutant::AgainstSameView),
        ("out of thin air", Mutant::AcceptedLess),
        ("out of thin air", Mutant::AcceptedBefore),
        ("null at the end", Mutant::NullDropped),
    ] {
        let plot = plots::ALL.iter().find(|plot| plot.name == name).expect("it is listed");
        let found = with_mutant(mutant, || {
            (1..=20).any(|seed| {
                let outcome = run_plot(&cast, seed, false, Some(plot)).outcome;
                outcome.is_err_and(|failure| failure.violation.property == "agreement")
            })
        });
        assert!(found, "{name} did not show {mutant:?}");
    }
}
