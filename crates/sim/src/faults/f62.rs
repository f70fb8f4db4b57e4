//! f62, a lone view changer (one that was paused left its view alone, and stayed out of it).

use super::{EVERYBODY, Puppeteer, R0, R1, R2, R3, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Fate, Violation, World};
use std::cell::Cell;
use std::rc::Rc;
use tercio_consensus::{ProtocolKind, pbft::Pbft};
use tercio_types::Principal;

/// R3 hears a client, and of the others nothing but PREPAREs for a while, so it leaves its view alone.
/// (One that hears nobody stays: rule T9.) Then it hears all again. A while later another replica is
/// gone.
///
/// It follows the view at once, from its proposals; it is let into the next within seconds, and that
/// is the only view change: it makes up the quorum when the other is gone.
pub(super) fn run() -> Result<(), Violation> {
    let work = Workload { packages: 4_000, ops: 1, under_way: 2, pause: millis(10) };
    let mut world = four(&[work])?;
    world.run_for(millis(100))?;
    world.set_gate(|passing| match (passing.from, passing.to) {
        (Principal::Replica(_), Principal::Replica(R3))
            if Pbft::message_name(passing.key.kind) != Some("PREPARE") =>
        {
            Fate::Lose
        }
        _ => Fate::Pass,
    });
    let mut other = Puppeteer::new(&world.cast().clone(), 2);
    let package = other.signed(&mut world, "heard of by all");
    other.send(&mut world, &package, &EVERYBODY);
    world.expect_within(millis(2000), "R3 leaving its view", is_out)?;
    world.lift_gate();
    world.expect_within(millis(1000), "R3 being level again", |world| {
        let at = |id| world.status(id).map_or(0, |status| status.height.0);
        at(R3) + 4 >= at(R0)
    })?;
    demand(is_out(&world), "f62", || "R3 came back by itself".into())?;
    let fetches = count_fetches(&mut world);
    world.run_for(millis(1000))?;
    let asked = fetches.get();
    demand(asked == 0, "f62", || format!("R3 asked for {asked} batches that were proposed to it"))?;
    world.lift_gate();
    world.expect_within(millis(10_000), "R3 taking part again", |world| !is_out(world))?;
    world.run_for(millis(500))?;
    let changes = world.view_changes();
    demand(changes == 1, "f62", || format!("the view changed {changes} times for R3"))?;
    world.crash(R2, Crash::Kill);
    let before = world.acknowledged();
    world.run_for(millis(2000))?;
    let done = world.acknowledged() - before;
    demand(done > 50, "f62", || format!("R0, R1 and R3 did {done} requests"))?;
    let [a, b] = [R0, R1].map(|id| world.status(id).map(|status| status.protocol.view.0));
    demand(a? == 1 && b? == 1, "f62", || "the view changed without R2".into())?;
    world.restart(R2)?;
    world.run_for(millis(1000))?;
    settle(&mut world)
}

/// Whether R3 waits for a view that the others are not in.
fn is_out(world: &World) -> bool {
    let view = |id| world.status(id).map(|status| status.protocol);
    let (Ok(ours), Ok(theirs)) = (view(R3), view(R0)) else { return false };
    ours.changing && ours.view > theirs.view
}

/// Counts what R3 asks for from now on, digest by digest.
fn count_fetches(world: &mut World) -> Rc<Cell<u64>> {
    let count = Rc::new(Cell::new(0));
    let seen = count.clone();
    world.set_gate(move |passing| {
        let fetch = Pbft::message_name(passing.key.kind) == Some("FETCH-BODY");
        if fetch && passing.from == Principal::Replica(R3) {
            seen.set(seen.get() + 1);
        }
        Fate::Pass
    });
    count
}
