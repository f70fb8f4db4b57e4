//! Attacks null requests (V3): a number is proposed above a gap, and prepares at a victim; the second
//! view begins with a null request in the gap, which commits at the victim only. The third view
//! begins without the victim, so that the null request is the last that anybody tells of.

use super::scheme::{Hearing, Scheme, claim, set};
use crate::checks::Violation;
use crate::{Rng, World};
use tercio_types::Digest;

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[0], f);
    let all = plot.correct.clone();
    let [second, third] = [1, 2].map(|view| plot.leader(view));
    let victim = plot.choose(1, &[], &[third])[0];
    let accepted = plot.choose(f + 1, &[victim], &[]);
    let hearing =
        Hearing { propose: set(&accepted), prepare: set(&[victim]), ..Hearing::default() };
    let above = plot.rng.between(2, 3);
    let Some(batch) = plot.order(0, above, &hearing)? else { return Ok(()) };
    plot.hush(0);
    let prepared = plot.choose(f + 1, &[victim, third], &[]);
    let heard = plot.choose(f + 1, &[victim, second], &[]);
    let hearing = Hearing {
        prepare: set(&prepared),
        commit: set(&[victim]),
        begin: set(&all),
        leave: set(&heard),
        last: Some(1),
        ..Hearing::default()
    };
    let told = claim(above, batch.digest, 0);
    // What is voted before the view begins counts when it does.
    plot.vote((1, 1, Digest::NULL), &prepared, &[victim]);
    if !plot.change_view(1, &hearing, |_| Scheme::words(1, &[told], &[told]))? {
        return Ok(());
    }
    plot.wait(super::scheme::MOMENT)?;
    plot.hush(1);
    let heard = plot.choose(f + 1, &[third], &[victim]);
    let hearing = Hearing { leave: set(&heard), ..Hearing::of(&all) };
    let null = claim(1, Digest::NULL, 1);
    if plot.change_view(2, &hearing, |_| Scheme::words(2, &[], &[null]))? {
        plot.vote((2, 1, Digest::NULL), &all, &all);
        plot.go_on(2, 1)?;
        plot.go_on(2, 2)?;
    }
    Ok(())
}
