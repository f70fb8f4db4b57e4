//! Attacks N3, a quorum of PREPAREs: the lying primary proposes one batch to half of the correct
//! replicas and another to the other half, and all liars vote for both. With f of them, each side
//! is one vote short, or one side is (Castro and Liskov, OSDI'99, section 4.2: two quorums share a
//! correct replica).

use super::scheme::{Hearing, MOMENT, Scheme};
use crate::checks::Violation;
use crate::{Rng, World};

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[0], f);
    let all = plot.correct.clone();
    plot.hear(0, Hearing::of(&all));
    for seq in 1..=plot.rng.between(1, 3) {
        let one_more = plot.rng.below(2) as usize;
        let (one, other) = all.split_at(f + one_more);
        for side in [one, other] {
            let batch = plot.batch(false);
            plot.offer(0, seq, &batch, side);
            plot.vote((0, seq, batch.digest), &all, &all);
        }
        plot.wait(MOMENT)?;
    }
    Ok(())
}
