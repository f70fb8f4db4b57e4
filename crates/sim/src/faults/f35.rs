//! f35, torn or corrupt log tail (malachite#1434); its corrupt middle is in [`super::f35_middle`].

use super::{R3, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Tear, Violation};
use tercio_types::Height;

/// Changes to the disk after which the power fails: between an append to the write-ahead log and
/// its sync, for the vote PREPARE and for the vote COMMIT, and when the block is appended. Blocks
/// are synced at checkpoints only, since the write-ahead log has their bodies, so that there is a
/// long tail each time.
const CHANGES: [u64; 3] = [1, 3, 5];

/// The power fails at a backup in the midst of a request; of the bytes that were not synced, every
/// prefix is left once, with nothing behind it (or, for every eighth, with zeros).
///
/// The backup cuts the torn tail, starts, takes part as before, and starts once more from what it
/// appended behind the cut.
pub(super) fn run() -> Result<(), Violation> {
    let mut torn = 0;
    for changes in CHANGES {
        let (mut kept, mut most) = (0, 0);
        while kept <= most {
            most = torn_tail(changes, Tear::Cut(kept))?;
            if kept % 8 == 0 {
                torn_tail(changes, Tear::Zeros(kept))?;
            }
            kept += 1;
        }
        torn += most;
    }
    demand(torn > 100, "f35", || format!("only {torn} torn tails"))
}

/// One torn tail; gives how many unsynced bytes the power failure met.
fn torn_tail(changes: u64, tear: Tear) -> Result<u64, Violation> {
    let mut world = four(&[Workload::NONE])?;
    world.submit(1, &["whole"]);
    settle(&mut world)?;
    world.host_mut(R3).tear(tear);
    world.crash(R3, Crash::PowerAfter(changes));
    world.submit(1, &["torn"]);
    world.run_for(millis(10))?;
    if world.host(R3).is_up() {
        world.crash(R3, Crash::Power);
    }
    let most = world.host(R3).torn();
    world.restart(R3)?;
    world.submit(1, &["afterwards"]);
    settle(&mut world)?;
    // What was appended behind the cut must be found again.
    world.crash(R3, Crash::Power);
    world.restart(R3)?;
    settle(&mut world)?;
    let height = world.status(R3)?.height;
    demand(height == Height(3), "f35", || format!("R3 stands at height {height}, not 3"))?;
    Ok(most)
}
