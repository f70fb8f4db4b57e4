//! f18, censoring primary (hyperledger/fabric#796).

use super::{R0, demand, four, millis, settle};
use crate::Violation;
use crate::actors::Censor;
use crate::customer::Workload;

/// The primary orders everybody's requests at full speed but one client's, which it does not hear,
/// neither from the client nor from backups.
///
/// The backups measure the primary by the oldest request that waits, replace it, and the request is
/// executed.
pub(super) fn run() -> Result<(), Violation> {
    let busy = Workload { packages: 100, ops: 1, under_way: 2, pause: millis(20) };
    let mut world = four(&[Workload::NONE, busy])?;
    world.corrupt(R0, Box::new(Censor::new(1)));
    world.submit(1, &["unheard of"]);
    world.expect_within(super::SOON, "execution of the censored request", |world| {
        world.customer(1).is_done()
    })?;
    demand(world.view_changes() > 0, "f18", || "the censor was not replaced".into())?;
    settle(&mut world)
}
