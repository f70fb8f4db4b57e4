//! f16, client MAC attack (Aardvark, NSDI'09).

use super::{Puppeteer, R0, R1, R2, R3, demand, four, millis};
use crate::customer::Workload;
use crate::{Violation, World};
use std::time::Duration;
use tercio_types::Height;

/// A client's MACs are good for some replicas only.
///
/// As long as f+1 backups can vouch for the request, the others take their word for it, and nothing
/// else happens. When only the primary can, its batch stalls, and one view change follows; from
/// then on this client has to sign, and whatever else it sends under MACs does no harm. Another
/// client's requests are executed all along, and so is what the first one signs.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let mut liar = Puppeteer::new(&world.cast().clone(), 2);
    let everybody = [R0, R1, R2, R3];

    let vouched = liar.maced(&mut world, "vouched", &[R0, R1, R2]);
    liar.send(&mut world, &vouched, &[R0]);
    world.expect_within(millis(100), "execution of a request that f+1 vouch for", |world| {
        everybody.iter().all(|id| height(world, *id) == Height(1))
    })?;

    for round in 0..6 {
        let primary = world.primary();
        let poison = liar.maced(&mut world, "poison", &[primary]);
        liar.send(&mut world, &poison, &everybody);
        world.run_for(millis(5))?;
        world.submit(1, &["honest"]);
        world.expect_within(Duration::from_secs(5), "an honest request", |world| {
            world.customer(1).is_done()
        })?;
        let changes = world.view_changes();
        demand(changes <= 1, "f16", || {
            format!("{changes} view changes after {} bad packages of one client", round + 1)
        })?;
    }
    let done = world.acknowledged();
    demand(done == 6, "f16", || format!("{done} honest requests of 6"))?;

    // Its numbers 2 to 7 went into packages that were refused; it may sign them now.
    let before = height(&world, R3);
    liar.next = 2;
    for op in ["poison"; 6] {
        let signed = liar.signed(&mut world, op);
        liar.send(&mut world, &signed, &everybody);
    }
    world.expect_within(Duration::from_secs(5), "execution of what the client signs", |world| {
        everybody.iter().all(|id| height(world, *id) > before)
    })?;
    let changes = world.view_changes();
    demand(changes <= 1, "f16", || format!("{changes} view changes"))?;
    world.finish()
}

fn height(world: &World, id: tercio_types::ReplicaId) -> Height {
    world.status(id).map_or(Height(0), |status| status.height)
}
