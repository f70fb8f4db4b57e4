//! f05, a restarted replica refuses to repeat its own vote (diem#4390).

use super::{R0, R2, R3, demand, four, millis, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::{Crash, Fate, Violation};
use tercio_types::{Height, Principal};

/// One replica is down, so that the others' votes are all needed. A backup's votes for a batch are
/// lost, and it is killed. When it is back it has nothing but its log.
///
/// It says the very same votes again, and the batch is executed in the view in which it was proposed.
pub(super) fn run() -> Result<(), Violation> {
    for lost in [kinds::PREPARE, kinds::COMMIT] {
        for crash in [Crash::Kill, Crash::Power] {
            let mut world = four(&[Workload::NONE])?;
            world.crash(R2, Crash::Kill);
            world.set_gate(move |passing| {
                let its = passing.from == Principal::Replica(R3) && passing.key.kind == lost;
                if its { Fate::Lose } else { Fate::Pass }
            });
            world.submit(1, &["once"]);
            world.run_for(millis(10))?;
            let height = world.status(R0)?.height;
            demand(height == Height(0), "f05", || "the vote was not needed".into())?;
            world.crash(R3, crash);
            world.lift_gate();
            world.restart(R3)?;
            world.run_for(millis(200))?;
            demand(world.customer(1).is_done() && world.view_changes() == 0, "f05", || {
                "R3 did not repeat its vote, and the batch was not executed in its view".into()
            })?;
            world.restart(R2)?;
            settle(&mut world)?;
        }
    }
    Ok(())
}
