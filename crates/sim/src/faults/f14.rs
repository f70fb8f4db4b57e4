//! f14, gaps after a view change (Castro and Liskov, TOCS'02 section 4.5.2).

use super::{R0, demand, four, millis, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::{Crash, Fate, Violation};
use tercio_types::{Height, SeqNum};

/// The primary's first proposal is lost to everybody, its second one arrives and prepares; then the
/// primary is gone. The number of the first one is a gap.
///
/// The new view fills the gap with a null request, which makes no block, executes what prepared
/// behind it, and orders the first request again.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE, Workload::NONE])?;
    world.set_gate(|passing| {
        let key = passing.key;
        let first = key.kind == kinds::PRE_PREPARE && key.view == 0 && key.seq == 1;
        if first { Fate::Lose } else { Fate::Pass }
    });
    world.submit(1, &["lost"]);
    world.run_for(millis(1))?;
    world.submit(2, &["prepared"]);
    world.run_for(millis(20))?;
    world.crash(R0, Crash::Kill);
    world.expect_within(super::SOON, "execution behind the gap", |world| {
        world
            .correct()
            .filter(|id| *id != R0)
            .all(|id| world.status(id).is_ok_and(|status| status.height == Height(2)))
    })?;
    world.restart(R0)?;
    settle(&mut world)?;
    let delivered = world.status(R0)?.protocol.delivered;
    demand(delivered >= SeqNum(3), "f14", || {
        format!("two blocks under {delivered} numbers: there was no gap")
    })
}
