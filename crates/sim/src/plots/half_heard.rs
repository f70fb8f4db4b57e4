//! Attacks V4 and the record of a view's beginning (P2): a lying primary begins its view twice, on two
//! good quorums of VIEW-CHANGEs: for some with a batch that prepared, for the others without a word of
//! it. Then the power fails, and everybody is shown the beginning that he did not see.

use super::scheme::{Hearing, MOMENT, Scheme, claim, set};
use crate::checks::Violation;
use crate::{Rng, World};

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[1], f);
    let all = plot.correct.clone();
    let first = plot.leader(0);
    let knows = plot.choose(1, &[], &[])[0];
    let accepted = plot.choose(f + 1, &[first, knows], &[]);
    let hearing = Hearing { propose: set(&accepted), prepare: set(&[knows]), ..Hearing::default() };
    let Some(batch) = plot.order(0, 1, &hearing)? else { return Ok(()) };
    plot.hush(0);
    let some = plot.choose(f + plot.rng.clone().below(2) as usize, &[knows], &[]);
    let others: Vec<_> = all.iter().copied().filter(|id| !some.contains(id)).collect();
    let told = claim(1, batch.digest, 0);
    let with = plot.choose(f + 1, &[knows], &[]);
    let view = Hearing { begin: set(&some), leave: set(&with), ..Hearing::default() };
    plot.change_view(1, &view, |_| Scheme::words(1, &[], &[told]))?;
    plot.wait(MOMENT)?;
    let without = plot.choose(f + 1, &[], &[knows]);
    let lies: Vec<_> =
        plot.liars.iter().map(|id| plot.signed(*id, Scheme::words(1, &[], &[]))).collect();
    plot.begin(1, &lies, set(&without), set(&others))?;
    plot.wait(MOMENT)?;
    plot.fail_power(&some)?;
    plot.begin(1, &lies, set(&without), set(&some))?;
    plot.wait(MOMENT)?;
    plot.go_on(1, 1)
}
