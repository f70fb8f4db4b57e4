//! Attacks N4 (a quorum of COMMITs), B (a quorum says that nothing prepared) and the number of
//! VIEW-CHANGEs of V3 and V4: a batch commits at one victim only, with as few others as possible
//! that prepared it; then the next view begins without the victim, with those that know least, and
//! with liars that have seen nothing (TOCS section 4.5.2: what committed, a quorum prepared, and each
//! quorum of VIEW-CHANGEs holds one correct replica of it).

use super::scheme::{Hearing, MOMENT, Scheme, claim, set};
use crate::checks::Violation;
use crate::{Rng, World};

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[], f);
    let (first, next) = (plot.leader(0), plot.leader(1));
    // Whether so many prepare that the batch is committed, or one less.
    let short = plot.rng.below(2) as usize;
    let prepared = plot.choose(f + 1 - short, &[first], &[next]);
    let victim = *prepared.last().expect("at least one");
    let accepted = [&prepared[..], &plot.choose(short, &[first], &prepared)].concat();
    let hearing = Hearing {
        propose: set(&accepted),
        prepare: set(&prepared),
        commit: set(&[victim]),
        ..Hearing::default()
    };
    let Some(hidden) = plot.order(0, 1, &hearing)? else { return Ok(()) };
    plot.hush(0);
    // Those that prepared nothing, and as many others as it takes.
    let informed: Vec<_> = prepared.iter().copied().filter(|id| *id != victim).collect();
    let ignorant = plot.choose(f + short, &[next], &prepared);
    let heard = [&ignorant[..], &informed[..1 - short]].concat();
    let all = plot.correct.clone();
    let early = Hearing { leave: set(&ignorant), ..Hearing::of(&all) };
    let late = Hearing { leave: set(&heard), ..early.clone() };
    // The liars have seen nothing, or another batch, or just that it was accepted.
    let (manner, other) = (plot.rng.below(4), plot.batch(false).digest);
    let words = |_| match manner {
        0 => Scheme::words(1, &[claim(1, other, 0)], &[claim(1, other, 0)]),
        1 => Scheme::words(1, &[], &[claim(1, hidden.digest, 0)]),
        _ => Scheme::words(1, &[], &[]),
    };
    if plot.change_view(1, &early, words)? {
        return plot.go_on(1, 1);
    }
    if plot.lies(next) {
        // One and the same as often as it takes.
        let mut lies: Vec<_> = plot.liars.iter().map(|id| plot.signed(*id, words(*id))).collect();
        while lies.len() + ignorant.len() < plot.quorum {
            lies.push(lies[0].clone());
        }
        plot.begin(1, &lies, early.leave, early.begin)?;
        if plot.entered(1, early.begin)? {
            return plot.go_on(1, 1);
        }
        lies.truncate(f);
        plot.begin(1, &lies, late.leave, late.begin)?;
    } else {
        plot.hear(1, late.clone());
    }
    if plot.entered(1, late.begin)? {
        plot.go_on(1, 1)?;
    }
    plot.wait(MOMENT)
}
