//! f06, a view change drops a prepared request (raijin#8).

use super::{R0, R1, R2, R3, demand, four, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::{Fate, Violation};
use std::time::Duration;
use tercio_types::{Height, Principal};

/// A batch prepares everywhere, but the COMMITs reach one backup only, which executes it and is
/// then cut off. The others change the view without it.
///
/// The new view carries the batch at its number, so that the others execute the same block; the
/// one that was cut off finds nothing to take back.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    world.set_gate(|passing| {
        let committed = passing.key.kind == kinds::COMMIT && passing.key.view == 0;
        if committed && passing.to != Principal::Replica(R1) { Fate::Lose } else { Fate::Pass }
    });
    world.submit(1, &["carried"]);
    world.expect_within(Duration::from_millis(100), "execution at R1", |world| {
        world.status(R1).is_ok_and(|status| status.height == Height(1))
    })?;
    world.network.isolate(R1, [R0, R2, R3].map(Principal::Replica));
    world.expect_within(Duration::from_secs(10), "execution at the others", |world| {
        [R0, R2, R3].iter().all(|id| world.status(*id).is_ok_and(|s| s.height >= Height(1)))
    })?;
    demand(world.view_changes() > 0, "f06", || "the view never changed".into())?;
    world.lift_gate();
    world.network.mend();
    world.submit(1, &["afterwards"]);
    settle(&mut world)
}
