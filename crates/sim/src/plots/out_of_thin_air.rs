//! Attacks A2, f+1 that accepted a batch: one batch commits at a victim; the network moves on over
//! some views in which nothing happens; then all liars say that another batch prepared in one of
//! these, of which nobody can know better. A correct replica may have accepted it, but in an older
//! view (TOCS section 4.5.2, condition A2: one correct replica vouches that it was proposed).

use super::scheme::{Hearing, Scheme, claim, set};
use crate::checks::Violation;
use crate::{Rng, World};

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[0], f);
    let to = plot.rng.between(2, 4);
    let next = plot.leader(to);
    let prepared = plot.choose(f + 1, &[], &[next]);
    let victim = prepared[0];
    let hearing = Hearing {
        propose: set(&prepared),
        prepare: set(&prepared),
        commit: set(&[victim]),
        ..Hearing::default()
    };
    let other = plot.batch(false);
    if plot.rng.chance(850) {
        let some = plot.choose(plot.rng.clone().between(1, f as u64) as usize, &[], &prepared);
        plot.offer(0, 1, &other, &some);
    }
    plot.order(0, 1, &hearing)?;
    plot.hush(0);
    let (all, claimed) = (plot.correct.clone(), plot.rng.between(1, to - 1));
    let heard = plot.choose(f + 1, &[next], &[victim]);
    let hearing = Hearing { leave: set(&heard), ..Hearing::of(&all) };
    let lie = claim(1, other.digest, claimed);
    if plot.change_view(to, &hearing, |_| Scheme::words(to, &[lie], &[lie]))? {
        plot.vote((to, 1, other.digest), &all, &all);
        plot.give(1, &other)?;
        plot.go_on(to, 2)?;
    }
    Ok(())
}
