//! f34, one decision delivered twice around a sync (SmartBFT #560, #570).

use super::{R0, R1, SOON, demand, f28, settle};
use crate::checks::kinds;
use crate::{Crash, Fate, Violation, World};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use tercio_types::{Batch, Principal, ReplicaId, RequestSeq};
use tercio_wire::{Decode, Frame};

/// What one replica missed comes to it twice: as blocks or in a state that it fetches, and, while
/// those are on their way, as proposals and votes. Then the primary goes down, and that replica
/// leads the next view, in which requests are ordered that it knew of all along.
///
/// It executes each once, and proposes none that it fetched.
pub(super) fn run() -> Result<(), Violation> {
    for forgetful in [false, true] {
        let mut world = f28::race(R1, forgetful)?;
        demand(world.customer(1).is_done(), "f34", || "work is left to the next view".into())?;
        let asked = world.customer(1).next_number();
        let proposed = proposals(&mut world, R1);
        world.crash(R0, Crash::Kill);
        world.submit(1, &["afterwards"]);
        world.expect_within(SOON, "the next view", |world| world.customer(1).is_done())?;
        let status = world.status(R1)?;
        demand(status.protocol.view.0 == 1, "f34", || {
            format!("R1 does not lead: {:?}", status.protocol)
        })?;
        world.restart(R0)?;
        settle(&mut world)?;
        let proposed = proposed.borrow();
        demand(*proposed == BTreeSet::from([asked]), "f34", || {
            format!("R1 was to propose request {asked} alone: {proposed:?}")
        })?;
    }
    Ok(())
}

/// The first numbers of the packages that a primary proposes from now on.
fn proposals(world: &mut World, primary: ReplicaId) -> Rc<RefCell<BTreeSet<RequestSeq>>> {
    let proposed = Rc::new(RefCell::new(BTreeSet::new()));
    let (seen, suite) = (proposed.clone(), world.cast().suite());
    world.set_gate(move |passing| {
        if passing.from == Principal::Replica(primary) && passing.key.kind == kinds::PRE_PREPARE {
            let frame = Frame::decode(passing.bytes, suite).expect("a replica's own frame");
            let batch = Batch::from_bytes(&frame.body, suite).expect("a replica's own batch");
            seen.borrow_mut().extend(batch.packages.iter().map(|package| package.first));
        }
        Fate::Pass
    });
    proposed
}
