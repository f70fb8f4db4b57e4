//! f26, a corrupt checkpoint message (concord-bft).

use super::{R0, R1, R2, R3, demand, four, settle};
use crate::Violation;
use crate::actors::Corrupter;
use crate::customer::Workload;
use tercio_types::CheckpointField;

/// The primary signs states that nobody has.
///
/// Every other replica reports that they differ from its own and in what, and that it cannot show a
/// state of that digest; states become stable without that signature, and nobody stops.
pub(super) fn run() -> Result<(), Violation> {
    let work = Workload { packages: 80, ops: 1, under_way: 2, pause: super::millis(5) };
    let mut world = four(&[work])?;
    world.corrupt(R0, Box::new(Corrupter));
    settle(&mut world)?;
    for id in [R1, R2, R3] {
        let status = world.status(id)?;
        let differs = status.evidence.get("divergence_state").copied().unwrap_or(0);
        demand(differs > 2, "f26", || {
            format!("{id:?} reports no difference: {:?}", status.evidence)
        })?;
        let found = status.divergences.get(&R0);
        let what = CheckpointField::State;
        demand(found.is_some_and(|d| d.what == what && d.keys.is_empty()), "f26", || {
            format!("{id:?} does not name R0, or says more than it can know: {found:?}")
        })?;
        let shown = status.dropped.get("divergence_not_shown").copied().unwrap_or(0);
        demand(shown > 0, "f26", || format!("{id:?} did not look at it: {:?}", status.dropped))?;
        demand(status.protocol.stable.0 >= 16, "f26", || {
            format!("{id:?} has no stable checkpoint but {}", status.protocol.stable)
        })?;
    }
    Ok(())
}
