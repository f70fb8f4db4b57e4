//! f42, a proposal that its primary forgets (ours: proposals do not wait for the log, rule P3).

use super::{R0, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Tear, Violation};
use tercio_types::View;

/// A primary proposes, and the power fails at every operation of its disk on the way of that, with
/// nothing or everything left of what was not synced; or its process is killed before anything was
/// written. When it is back, somebody else asks for something else.
///
/// It proposes nothing else at that number in its view; and the network goes on in the next view
/// before the time of the primary is over.
pub(super) fn run() -> Result<(), Violation> {
    let mut forgotten = 0;
    for operations in 0..4 {
        for left in [0, u64::MAX] {
            let mut world = four(&[Workload::NONE, Workload::NONE])?;
            world.submit(1, &["before"]);
            world.expect_within(super::SOON, "a beginning", |world| world.customer(1).is_done())?;
            world.host_mut(R0).tear(Tear::Cut(left));
            world.crash(R0, Crash::PowerAfter(operations));
            world.submit(1, &["forgotten"]);
            world.run_for(millis(5))?;
            if world.host(R0).is_up() {
                world.crash(R0, Crash::Power);
            } else {
                forgotten += 1;
            }
            world.restart(R0)?;
            world.submit(2, &["something else"]);
            world.run_for(millis(250))?;
            demand(world.customer(2).is_done() && world.primary() != R0, "f42", || {
                "everybody waits for a primary that proposes nothing".into()
            })?;
            settle(&mut world)?;
            let view = world.status(R0)?.protocol.view;
            demand(view == View(1), "f42", || format!("the network is in view {view}"))?;
        }
    }
    demand(forgotten > 0, "f42", || "the power never failed on the way to the disk".into())
}
