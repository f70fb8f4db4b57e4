//! Attacks A1, a quorum that says nothing against a batch: the lying primary proposes one batch to
//! f+1 correct replicas, at which it prepares, and it commits at a victim; the f others accept another
//! one. In the next view all liars say that the other one prepared, the f that accepted it say so,
//! and only one correct replica knows better (TOCS section 4.5.2, condition A1).

use super::scheme::{Hearing, Scheme, claim, set};
use crate::checks::Violation;
use crate::{Rng, World};

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[0], f);
    let next = plot.leader(1);
    let prepared = plot.choose(f + 1, &[], &[next]);
    let (victim, knows) = (prepared[0], prepared[1]);
    let deceived = plot.choose(f, &[], &prepared);
    let other = plot.batch(false);
    plot.offer(0, 1, &other, &deceived);
    let hearing = Hearing {
        propose: set(&prepared),
        prepare: set(&prepared),
        commit: set(&[victim]),
        ..Hearing::default()
    };
    plot.order(0, 1, &hearing)?;
    plot.hush(0);
    let all = plot.correct.clone();
    let heard = [&deceived[..], &[knows]].concat();
    let hearing = Hearing { leave: set(&heard), ..Hearing::of(&all) };
    let (lie, boldest) = (claim(1, other.digest, 0), plot.liars[0]);
    let everyone = plot.rng.chance(500);
    let words = |id| {
        let prepared = if everyone || id == boldest { &[lie][..] } else { &[] };
        Scheme::words(1, prepared, &[lie])
    };
    if plot.change_view(1, &hearing, words)? {
        plot.vote((1, 1, other.digest), &all, &all);
        plot.give(1, &other)?;
        plot.go_on(1, 2)?;
    }
    Ok(())
}
