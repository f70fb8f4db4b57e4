//! Attacks P, 'what prepared in the latest view', and the order in which candidates are tried: one
//! batch prepares at a replica in the first view; the second view begins without that one's word, and
//! another batch prepares there, at it and at a victim, where it may commit. In the third view the
//! liars remember the first batch only (TOCS section 4.5.1, the P component).

use super::scheme::{Hearing, Scheme, claim, set};
use crate::checks::Violation;
use crate::{Rng, World};
use tercio_types::ReplicaSet;

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    // Either the second batch commits, or the third view's primary chooses whom it hears.
    let mut rng = rng;
    let leads = if rng.chance(500) { &[2][..] } else { &[] };
    let mut plot = Scheme::new(world, rng, leads, f);
    if plot.lies(plot.leader(2)) { two_candidates(&mut plot) } else { committed_later(&mut plot) }
}

fn committed_later(plot: &mut Scheme<'_>) -> Result<(), Violation> {
    let (f, all) = (plot.f, plot.correct.clone());
    let leaders = [0, 1, 2].map(|view| plot.leader(view));
    // It prepares in both views, and is heard in the third only.
    let Some(&twice) = plot.choose(1, &[leaders[2]], &[leaders[1]]).first() else { return Ok(()) };
    let early = plot.choose(f + 1, &[leaders[0], twice], &[]);
    if !early.contains(&twice) {
        return Ok(());
    }
    let hearing = Hearing { propose: set(&early), prepare: set(&[twice]), ..Hearing::default() };
    let Some(first) = plot.order(0, 1, &hearing)? else { return Ok(()) };
    plot.hush(0);
    let Some(&victim) = plot.choose(1, &[leaders[1]], &[twice, leaders[2]]).first() else {
        return Ok(());
    };
    let mut late = plot.choose(f + 1, &[leaders[1], victim, twice], &[leaders[2]]);
    if late.len() == f + 1 && !late.contains(&twice) {
        late[f] = twice;
    }
    let view = Hearing {
        propose: set(&late),
        prepare: set(&late),
        commit: set(&[victim]),
        begin: set(&all),
        leave: set(&plot.choose(f + 1, &[leaders[1]], &[twice])),
        last: Some(1),
    };
    if !plot.change_view(1, &view, |_| Scheme::words(1, &[], &[]))? {
        return Ok(());
    }
    if plot.lies(leaders[1]) || !plot.delivered(victim, 1) {
        plot.order(1, 1, &view)?;
    }
    plot.hush(1);
    let others: Vec<_> = late.iter().copied().filter(|id| *id != twice).collect();
    let heard = [&plot.choose(f, &[leaders[2]], &[&others[..], &[twice]].concat())[..], &[twice]];
    let hearing = Hearing { leave: set(&heard.concat()), ..Hearing::of(&all) };
    let lie = claim(1, first.digest, 0);
    if plot.change_view(2, &hearing, |_| Scheme::words(2, &[lie], &[lie]))? {
        plot.vote((2, 1, first.digest), &all, &all);
        plot.give(1, &first)?;
        plot.go_on(2, 2)?;
    }
    Ok(())
}

/// Two batches prepared in two views, and both may be chosen: all must choose alike.
fn two_candidates(plot: &mut Scheme<'_>) -> Result<(), Violation> {
    let (f, all) = (plot.f, plot.correct.clone());
    let leaders = [0, 1].map(|view| plot.leader(view));
    let early = plot.choose(1, &[], &[leaders[1]]);
    let hearing = Hearing {
        propose: set(&plot.choose(2 * f + 1, &[], &[])),
        prepare: set(&early),
        ..Hearing::default()
    };
    let Some(first) = plot.order(0, 1, &hearing)? else { return Ok(()) };
    plot.hush(0);
    let later = plot.choose(1, &[], &early);
    let view = Hearing {
        propose: set(&all),
        prepare: set(&later),
        commit: ReplicaSet::EMPTY,
        begin: set(&all),
        leave: set(&plot.choose(f + 1, &[leaders[1]], &early)),
        last: Some(1),
    };
    if !plot.change_view(1, &view, |_| Scheme::words(1, &[], &[]))? {
        return Ok(());
    }
    let Some(second) = plot.order(1, 1, &view)? else { return Ok(()) };
    plot.hush(1);
    let hearing = Hearing { leave: set(&all), ..Hearing::of(&all) };
    let accepted = [claim(1, first.digest, 0), claim(1, second.digest, 1)];
    if plot.change_view(2, &hearing, |_| Scheme::words(2, &[], &accepted))? {
        plot.vote((2, 1, second.digest), &all, &all);
        plot.give(1, &second)?;
        plot.go_on(2, 2)?;
    }
    Ok(())
}
