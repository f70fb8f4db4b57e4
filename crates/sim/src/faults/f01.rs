//! f01, equivocating primary (Twins).

use super::{R0, R2, R3, demand, four, millis, settle};
use crate::Violation;
use crate::actors::Equivocator;
use crate::customer::Workload;

/// The primary proposes two batches for every number: first each side its own, then to each side
/// the other one too, and it votes for both.
///
/// At most one of them commits; the backups keep evidence; the requests are executed, under this
/// primary or the next.
pub(super) fn run() -> Result<(), Violation> {
    let work = Workload { packages: 12, ops: 2, under_way: 3, pause: millis(20) };
    let mut world = four(&[work, work])?;
    let side = [R2, R3].into_iter().collect();
    world.corrupt(R0, Box::new(Equivocator::between(side, true)));
    settle(&mut world)?;
    let doubles = world.tally().equivocations;
    demand(doubles > 0, "f01", || "the primary never equivocated".into())?;
    let kept = world.correct().filter_map(|id| world.status(id).ok());
    let kept = kept.filter(|status| status.evidence.contains_key("equivocation")).count();
    demand(kept > 0, "f01", || format!("{doubles} equivocations, and nobody kept evidence"))
}
