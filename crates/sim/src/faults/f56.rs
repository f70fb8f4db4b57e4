//! f56, a primary dies under full load (metastable failure: Bronson and others, HotOS 2021).

use super::{R0, R1, R2, R3, demand, four_with, millis};
use crate::customer::Workload;
use crate::{Crash, Violation, World};
use tercio_consensus::Settings;

/// Clients, and what each has under way: more than a queue is to hold.
const CLIENTS: usize = 8;
const UNDER_WAY: usize = 120;
/// How long it is watched before and after.
const WATCHED_MS: u64 = 600;
/// How long the view change may take, and what comes back until clients are where they were.
const SETTLING_MS: u64 = 300 + 1000;

/// Clients keep more under way than may wait to be ordered when the primary dies.
///
/// A second after the view has changed as much is ordered as before, and it stays so.
pub(super) fn run() -> Result<(), Violation> {
    let settings = Settings {
        batch_ops: 16,
        pipeline: 1,
        checkpoint_interval: 32,
        window: 128,
        ..crate::small_settings()
    };
    let load = Workload { packages: u64::MAX, ops: 3, under_way: UNDER_WAY, pause: millis(0) };
    let mut world = four_with(&[load; CLIENTS], settings)?;
    world.run_for(millis(WATCHED_MS))?;
    let before = ordered(&mut world)?;
    world.crash(R0, Crash::Power);
    world.run_for(millis(SETTLING_MS))?;
    let views = [R1, R2, R3].map(|id| world.status(id).map(|status| status.protocol.view.0));
    let after = [ordered(&mut world)?, ordered(&mut world)?];
    for after in after {
        demand(20 * after >= 19 * before, "f56", || {
            format!("{after} operations in {WATCHED_MS} ms, and {before} before; views {views:?}")
        })?;
    }
    Ok(())
}

/// How many operations were executed and answered meanwhile.
fn ordered(world: &mut World) -> Result<usize, Violation> {
    let before = world.acknowledged();
    world.run_for(millis(WATCHED_MS))?;
    Ok(world.acknowledged() - before)
}
