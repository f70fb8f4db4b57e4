//! f28, state transfer races with consensus (concord-bft PR#2863).

use super::{R3, SOON, demand, millis, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::{Cast, Fate, Violation, World, WorldSettings};
use std::cell::Cell;
use std::rc::Rc;
use tercio_client::ClientAuth;
use tercio_types::{Principal, ReplicaId};
use tercio_wire::Kind;

/// What was ordered reaches one replica late: it learns of checkpoints beyond its window first, and
/// begins to catch up. In the midst of that, what it missed arrives after all, votes included. Once
/// it is blocks that are fetched, and once a state, while ordering goes on.
///
/// It executes none of it while blocks, or a state, are on their way: either has one owner.
pub(super) fn run() -> Result<(), Violation> {
    for forgetful in [false, true] {
        settle(&mut race(R3, forgetful)?)?;
    }
    Ok(())
}

/// Lets `late` catch up by blocks, or by state if all are forgetful, while what it missed arrives,
/// and the others go on until all work is done.
pub(super) fn race(late: ReplicaId, forgetful: bool) -> Result<World, Violation> {
    let packages = if forgetful { 2000 } else { 80 };
    let work = Workload { packages, ops: 1, under_way: 2, pause: millis(5) };
    let clients = vec![(ClientAuth::Mac, work)];
    let mut world = World::new(
        &Cast::new(4),
        WorldSettings { clients, forgetful, ..WorldSettings::default() },
    )?;
    let fetched = Rc::new(Cell::new(false));
    let may = fetched.clone();
    let ordered = millis(1500);
    world.set_gate(move |passing| match passing.key.kind {
        _ if passing.to != Principal::Replica(late) => Fate::Pass,
        kinds::PRE_PREPARE | kinds::PREPARE | kinds::COMMIT
            if passing.now < tercio_consensus::Instant(0) + ordered =>
        {
            Fate::After(ordered)
        }
        Kind::BLOCKS | Kind::STATE if !may.get() => Fate::Lose,
        _ => Fate::Pass,
    });
    world.run_for(ordered)?;
    let status = world.status(late)?;
    demand(status.catching_up && status.protocol.delivered.0 == 0, "f28", || {
        format!("{late:?} does not catch up from the beginning: {:?}", status.protocol)
    })?;
    world.run_for(ordered + ordered)?;
    fetched.set(true);
    world.expect_within(SOON, "the end of catching up", |world| {
        world.status(late).is_ok_and(|status| !status.catching_up)
    })?;
    if forgetful {
        demand(!world.customer(1).is_done(), "f28", || "there is no load any more".into())?;
        let status = world.status(late)?.transfer;
        demand(status.as_ref().is_some_and(|status| status.phase == "done"), "f28", || {
            format!("{late:?} installed no state: {status:?}")
        })?;
    }
    world.expect_within(SOON, "the work", |world| world.customer(1).is_done())?;
    Ok(world)
}
