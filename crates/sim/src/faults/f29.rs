//! f29, a paused replica returns, and queues overflow (bft-smart#27).

use super::{R3, SOON, demand, millis, settle};
use crate::customer::Workload;
use crate::{Cast, Fate, Violation, World, WorldSettings};
use std::cell::Cell;
use std::rc::Rc;
use tercio_client::ClientAuth;
use tercio_consensus::Instant;
use tercio_types::Principal;
use tercio_wire::Kind;

/// How many frames wait for it; what comes after them is lost.
const QUEUE: usize = 2_000;
/// A PRE-PREPARE (docs/format.md).
const PROPOSAL: Kind = Kind(Kind::PROTOCOL);

/// A replica stands still for a while under load. What was sent to it meanwhile comes all at once,
/// without proposals, which were too long for the queue, and the end of it is missing. The others have let the blocks go, and have work to do.
///
/// What it keeps of the flood is bounded, and it comes to the state of the others.
pub(super) fn run() -> Result<(), Violation> {
    let work = Workload { packages: 1500, ops: 1, under_way: 2, pause: millis(5) };
    let clients = vec![(ClientAuth::Mac, work)];
    let mut world = World::new(
        &Cast::new(4),
        WorldSettings { clients, forgetful: true, ..WorldSettings::default() },
    )?;
    let (paused, resumed) = (Instant(0) + millis(100), Instant(0) + millis(2100));
    let queued = Rc::new(Cell::new(0));
    let seen = queued.clone();
    world.set_gate(move |passing| {
        if passing.to != Principal::Replica(R3) || passing.now < paused || passing.now >= resumed {
            return Fate::Pass;
        }
        if passing.key.kind == PROPOSAL {
            return Fate::Lose;
        }
        seen.set(seen.get() + 1);
        if seen.get() > QUEUE { Fate::Lose } else { Fate::After(resumed.since(passing.now)) }
    });
    world.run_until(resumed)?;
    demand(queued.get() > QUEUE, "f29", || format!("{} frames, none lost", queued.get()))?;
    demand(!world.customer(1).is_done(), "f29", || "there is no load any more".into())?;
    world.expect_within(SOON, "the work", |world| world.customer(1).is_done())?;
    settle(&mut world)?;
    let status = world.status(R3)?.transfer;
    demand(status.as_ref().is_some_and(|status| status.phase == "done"), "f29", || {
        format!("R3 fetched no state: {status:?}")
    })
}
