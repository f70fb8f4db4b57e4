//! f46, a certificate of what nobody has (ours: a hostile review found that checkpoints were signed
//! before the blocks were on a disk).

use super::{EVERYBODY, R0, R1, R2, R3, demand, four, millis, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::{Crash, Fate, Tear, Violation};
use tercio_types::{Principal, ReplicaId, SeqNum};
use tercio_wire::Kind;

/// The CHECKPOINTs of R0, R1 and R2 reach R3 alone, which has the certificate. The power fails at
/// those three, with nothing left of what was not synced, and R3's VIEW-CHANGE shows them the
/// certificate when they are back; then R3 is gone for good.
///
/// Who signed has the blocks, so what was acknowledged is there, and the three go on.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let is = |id: ReplicaId, p: Principal| p == Principal::Replica(id);
    world.set_gate(move |passing| {
        let about_states = [Kind::CHECKPOINT, kinds::STABLE].contains(&passing.key.kind);
        if about_states && !is(R3, passing.to) { Fate::Lose } else { Fate::Pass }
    });
    for op in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"] {
        world.submit(1, &[op]);
        world.run_for(millis(10))?;
    }
    let status = |world: &crate::World, id| world.status(id).map(|status| status.protocol);
    let (alone, other) = (status(&world, R3)?, status(&world, R1)?);
    demand(
        alone.stable == SeqNum(8) && other.stable == SeqNum(0) && world.customer(1).is_done(),
        "f46",
        || format!("stable: {} at R3, {} at R1", alone.stable, other.stable),
    )?;
    // Of R3 they hear nothing any more but that it leaves the view, as R0 does when it is back. The
    // next begins with its word, and not with R2's; the votes that they say again are lost.
    world.set_gate(move |passing| {
        let lost = match passing.key.kind {
            kinds::VIEW_CHANGE => is(R2, passing.from),
            kinds::PREPARE | kinds::COMMIT => true,
            _ => is(R3, passing.from),
        };
        if lost { Fate::Lose } else { Fate::Pass }
    });
    for id in [R0, R1, R2] {
        world.host_mut(id).tear(Tear::Cut(0));
        world.crash(id, Crash::Power);
    }
    for id in [R0, R1, R2] {
        world.restart(id)?;
    }
    world.run_for(millis(20))?;
    world.puppet(R3);
    world.lift_gate();
    let views = EVERYBODY.iter().filter_map(|id| world.status(*id).ok());
    let left = views.filter(|status| status.protocol.view.0 > 0).count();
    demand(left == 3, "f46", || format!("{left} replicas left the view"))?;
    world.submit(1, &["afterwards"]);
    settle(&mut world)
}
