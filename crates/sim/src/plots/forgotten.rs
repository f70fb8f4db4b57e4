//! Attacks P2, promises over a power failure: a batch commits at a victim, or is about to; the power
//! fails at those whose word the next view will hang on, before they leave or after; some have
//! replaced their log's records at a stable checkpoint before. The next view begins without the
//! victim, and with liars that have seen nothing.

use super::scheme::{Hearing, MOMENT, Scheme, set};
use crate::checks::Violation;
use crate::{Rng, World};
use std::time::Duration;
use tercio_types::ReplicaId;

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[0], f);
    match plot.rng.below(4) {
        0 => left(&mut plot),
        1 => accepted(&mut plot),
        _ => prepared(&mut plot),
    }
}

/// A checkpoint is executed everywhere, and not yet stable; then becomes so.
fn checkpoint(plot: &mut Scheme<'_>) -> Result<(), Violation> {
    let all = plot.correct.clone();
    plot.hear(0, Hearing::of(&all));
    let batch = plot.batch(true);
    plot.offer(0, 1, &batch, &all);
    plot.vote((0, 1, batch.digest), &all, &all);
    plot.wait(MOMENT)
}

fn stabilise(plot: &mut Scheme<'_>) -> Result<(), Violation> {
    for (on, time) in [(true, 300), (false, 1)] {
        let mut rules = plot.rules.borrow_mut();
        (rules.checkpoints, rules.help) = (on, on);
        drop(rules);
        plot.wait(Duration::from_millis(time))?;
    }
    Ok(())
}

/// What prepared at f+1 and committed at one of them is told of after a restart.
fn prepared(plot: &mut Scheme<'_>) -> Result<(), Violation> {
    let (f, next, all) = (plot.f, plot.leader(1), plot.correct.clone());
    let replaced = plot.rng.chance(600);
    if replaced {
        checkpoint(plot)?;
    }
    let seq = 1 + u64::from(replaced);
    let known = plot.choose(f + 1, &[], &[next]);
    let victim = known[0];
    let hearing = Hearing {
        propose: set(&known),
        prepare: set(&known),
        commit: set(&[victim]),
        ..Hearing::default()
    };
    // With so little time, its own COMMIT may be all that the victim lacks, and on its disk only.
    let early = plot.rng.chance(300);
    plot.hear(0, hearing.clone());
    let batch = plot.batch(false);
    plot.offer(0, seq, &batch, &known);
    plot.vote((0, seq, batch.digest), &known, &[victim]);
    if early {
        let (at, until) = ((victim, seq), plot.world.now() + MOMENT);
        plot.world.run_while(until, |world| {
            !world.status(at.0).is_ok_and(|s| s.protocol.delivered.0 >= at.1)
        })?;
        plot.fail_power(&[victim])?;
    } else {
        plot.wait(MOMENT)?;
    }
    plot.hush(0);
    if replaced {
        stabilise(plot)?;
    }
    if !early {
        plot.fail_power(&known[1..])?;
    }
    // The one that knows is heard, unless it is the victim alone that may have forgotten.
    let ignorant = plot.choose(f, &[next], &known);
    let witness = if early { victim } else { known[1] };
    let heard = [&ignorant[..], &[witness]].concat();
    let hearing = Hearing { leave: set(&heard), ..Hearing::of(&all) };
    if plot.change_view(1, &hearing, |_| Scheme::words(1, &[], &[]))? {
        plot.go_on(1, seq)?;
    }
    Ok(())
}

/// All accept, one prepares, and the power fails at all of them.
fn accepted(plot: &mut Scheme<'_>) -> Result<(), Violation> {
    let (all, next) = (plot.correct.clone(), plot.leader(1));
    let one = plot.choose(1, &[], &[next]);
    let hearing = Hearing { propose: set(&all), prepare: set(&one), ..Hearing::default() };
    plot.order(0, 1, &hearing)?;
    plot.hush(0);
    plot.fail_power(&all)?;
    let heard = plot.choose(plot.f + 1, &[next, one[0]], &[]);
    // In the next view it is dropped, or carried; and the power fails again.
    let heard = if plot.rng.chance(500) { heard } else { plot.choose(plot.f + 1, &[next], &one) };
    let hearing = Hearing { begin: set(&all), leave: set(&heard), ..Hearing::default() };
    if plot.change_view(1, &hearing, |_| Scheme::words(1, &[], &[]))? {
        plot.fail_power(&all)?;
        plot.hear(1, Hearing::of(&all));
        plot.go_on(1, 1)?;
    }
    Ok(())
}

/// All have left before anything prepared; after a restart the votes for it are heard.
fn left(plot: &mut Scheme<'_>) -> Result<(), Violation> {
    let (f, all, next) = (plot.f, plot.correct.clone(), plot.leader(1));
    let accepted: Vec<ReplicaId> = plot.choose(f + 1, &[], &[next]);
    let victim = accepted[0];
    let hearing = Hearing { propose: set(&accepted), ..Hearing::default() };
    let Some(batch) = plot.order(0, 1, &hearing)? else { return Ok(()) };
    plot.hush(0);
    if !plot.drive_out(1, |_| Scheme::words(1, &[], &[]))? {
        return Ok(());
    }
    let late = Hearing { prepare: set(&accepted), commit: set(&[victim]), ..Hearing::default() };
    plot.hear(0, late);
    plot.fail_power(&accepted)?;
    plot.vote((0, 1, batch.digest), &accepted, &[victim]);
    plot.wait(MOMENT)?;
    let heard = plot.choose(f + 1, &[next], &[victim]);
    let hearing = Hearing { leave: set(&heard), ..Hearing::of(&all) };
    if plot.change_view(1, &hearing, |_| Scheme::words(1, &[], &[]))? {
        plot.go_on(1, 1)?;
    }
    Ok(())
}
