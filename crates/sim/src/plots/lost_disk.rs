//! Attacks L3 to L5, what a replica without its log may do: one replica lags in the first view and
//! will say so; another votes in the second view, leaves it alone, and loses its disk. The others'
//! answers, the laggard's among them, must keep it from voting where it has voted, and from leaving
//! without a word of what it voted. It counts among the f, so the liars are one less.

use super::scheme::{Hearing, MOMENT, Scheme, set};
use crate::checks::Violation;
use crate::{Crash, Rng, World};
use std::time::Duration;

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let liars = f - 1;
    let mut plot = Scheme::new(world, rng, &[0], liars);
    let next = plot.leader(1);
    let laggard = plot.choose(1, &[], &[next])[0];
    let loses = plot.choose(1, &[], &[next, laggard])[0];
    plot.rules.borrow_mut().deaf = set(&[laggard]);
    let all = plot.correct.clone();
    let others: Vec<_> = all.iter().copied().filter(|id| *id != laggard).collect();
    // The laggard is not asked for anything, and stays.
    plot.correct = others.clone();
    let hearing = Hearing { leave: set(&others), ..Hearing::of(&others) };
    if !plot.change_view(1, &hearing, |_| Scheme::words(1, &[], &[]))? {
        return Ok(());
    }
    for seq in 1..=plot.rng.between(1, 4) {
        plot.order(1, seq, &hearing)?;
    }
    // It alone waits for something, and leaves.
    plot.hush(1);
    plot.ask(&[loses]);
    let until = plot.world.now() + Duration::from_secs(2);
    plot.world.run_while(until, |world| {
        world.status(loses).is_ok_and(|status| !status.protocol.changing)
    })?;
    plot.wait(MOMENT)?;
    plot.world.crash(loses, Crash::Power);
    plot.world.lose_disk(loses);
    let pause = Duration::from_millis(plot.rng.between(1, 50));
    plot.wait(pause)?;
    plot.world.restart(loses)?;
    let mut rules = plot.rules.borrow_mut();
    (rules.help, rules.checkpoints) = (true, plot.rng.chance(300));
    drop(rules);
    plot.hear(1, hearing.clone());
    plot.wait(Duration::from_millis(300))?;
    for _ in 0..plot.rng.between(1, 3) {
        plot.ask(&others);
        plot.wait(MOMENT * 2)?;
    }
    // The primary stops, and everybody wants the next view.
    plot.hush(1);
    plot.ask(&others);
    plot.wait(Duration::from_millis(700))?;
    plot.rules.borrow_mut().deaf = set(&[]);
    Ok(())
}
