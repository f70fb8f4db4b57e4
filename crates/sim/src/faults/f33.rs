//! f33, COMMIT before PRE-PREPARE (bft-smart).

use super::{R3, demand, four, millis, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::{Fate, Violation};
use tercio_types::{Height, Principal};

/// A backup's proposals take thirty times longer than everything else, so that all votes for them
/// are there before them. Nothing is sent to it again: its own STATUS does not get through.
///
/// It executes at the moment when the proposal arrives.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let late = Principal::Replica(R3);
    world.set_gate(move |passing| match passing.key.kind {
        kinds::PRE_PREPARE if passing.to == late => Fate::After(millis(30)),
        kinds::PREPARE | kinds::COMMIT => Fate::Pass,
        _ if passing.to == late || passing.from == late => Fate::Lose,
        _ => Fate::Pass,
    });
    world.submit(1, &["late"]);
    world.run_for(millis(25))?;
    demand(world.customer(1).is_done(), "f33", || "the other three did not go on".into())?;
    let height = world.status(R3)?.height;
    demand(height == Height(0), "f33", || "the proposal was not late".into())?;
    world.run_for(millis(8))?;
    let height = world.status(R3)?.height;
    demand(height == Height(1), "f33", || {
        "R3 has the proposal and was sent all votes, and does not execute".into()
    })?;
    world.lift_gate();
    settle(&mut world)
}
