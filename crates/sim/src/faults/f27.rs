//! f27, f laggards stranded when checkpoints stop (concord-bft PR#927).

use super::{R0, R1, R2, R3, SOON, demand, millis, settle};
use crate::customer::Workload;
use crate::{Cast, Violation, World, WorldSettings};
use tercio_client::ClientAuth;
use tercio_types::{ClientId, Principal};

/// A replica is cut off until the others have done all that there was to do, made the end of it
/// stable and let the messages of it go; they may have let the blocks go, too. Nothing is ordered
/// any more when it is back.
///
/// It is told of the last stable checkpoint and served what is behind it.
pub(super) fn run() -> Result<(), Violation> {
    stranded(false)?;
    let world = stranded(true)?;
    let fetched = world.status(R3)?.transfer;
    demand(fetched.as_ref().is_some_and(|status| status.phase == "done"), "f27", || {
        format!("R3 fetched no state: {fetched:?}")
    })
}

fn stranded(forgetful: bool) -> Result<World, Violation> {
    let work = Workload { packages: 80, ops: 1, under_way: 2, pause: millis(5) };
    let clients = vec![(ClientAuth::Mac, work)];
    let mut world = World::new(
        &Cast::new(4),
        WorldSettings { clients, forgetful, ..WorldSettings::default() },
    )?;
    let others = [R0, R1, R2].map(Principal::Replica);
    world.network.isolate(R3, others.into_iter().chain([Principal::Client(ClientId(1))]));
    world.expect_within(SOON, "the work of the others", |world| world.customer(1).is_done())?;
    world.run_for(millis(3000))?;
    let end = world.status(R1)?.protocol;
    demand(end.stable == end.delivered, "f27", || {
        format!("the end is not stable: {} of {}", end.stable, end.delivered)
    })?;
    world.network.mend();
    settle(&mut world)?;
    let now = world.status(R1)?.protocol;
    demand(now.delivered == end.delivered && now.view == end.view, "f27", || {
        format!("something was ordered meanwhile: {} in view {}", now.delivered, now.view)
    })?;
    Ok(world)
}
