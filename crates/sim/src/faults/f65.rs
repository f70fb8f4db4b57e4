//! f65, numbers far ahead: a client's home with a wrong file of numbers, or a client that means it.

use super::{Puppeteer, R0, R1, R2, R3, demand, four, millis};
use crate::customer::Workload;
use crate::{Violation, World};
use bytes::Bytes;
use tercio_types::{Package, ReplicaId, WINDOW};

const EVERYBODY: [ReplicaId; 4] = [R0, R1, R2, R3];
/// What the client believes to have used.
const FAR: u64 = 9_000_000_000;
/// How many packages it sends.
const PACKAGES: u64 = 20;

/// A client sends packages whose numbers are far above all that it used, as a flood and one by one.
///
/// They are refused by that name and never ordered, at whichever replica they come in; the client's
/// window is where it was, and its next good number is executed, as is another's.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let mut script = Puppeteer::new(&world.cast().clone(), 2);
    let far = |i| FAR + i * WINDOW;
    let lowest = 2 * WINDOW + 1;
    let sent: Vec<Package> = ([lowest, u64::MAX - 1].into_iter().chain((0..PACKAGES).map(far)))
        .map(|number| script.client.signed(number, &[Bytes::from_static(b"far")]))
        .collect();
    for package in &sent {
        script.send(&mut world, package, &EVERYBODY);
        world.run_for(millis(5))?;
    }
    world.run_for(millis(500))?;
    for id in EVERYBODY {
        let status = world.status(id)?;
        demand(status.height.0 == 0, "f65", || {
            format!("{id:?} has blocks of them: {:?}", status.height)
        })?;
        let declined = status.dropped.get("declined_beyond_window").copied().unwrap_or(0);
        demand(declined >= sent.len() as u64, "f65", || {
            format!("{id:?} declined {declined} of {}: {:?}", sent.len(), status.dropped)
        })?;
    }
    let good = script.signed(&mut world, "at last");
    script.send(&mut world, &good, &EVERYBODY);
    world.submit(1, &["another's"]);
    world.expect_within(super::SOON, "execution", |world: &World| {
        EVERYBODY.iter().all(|id| world.has_executed(*id, 2, 1) && world.has_executed(*id, 1, 1))
    })?;
    demand(world.view_changes() == 0, "f65", || "a view change".into())
}
