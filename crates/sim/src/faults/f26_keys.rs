//! f26, a corrupt checkpoint message (concord-bft), its second half: in which keys it differs.

use super::{R0, R1, R2, R3, SOON, demand, four, millis, settle};
use crate::actors::Silent;
use crate::checks::kinds;
use crate::customer::Workload;
use crate::witness;
use crate::{Fate, Violation};
use tercio_types::{CheckpointField, ClientId, Principal, RequestSeq};
use tercio_wire::Kind;

/// A backup's memory is damaged in one place, and it goes on: what others sign does not reach it.
///
/// Every other replica names it, and the range of keys in which its state differs: what is damaged
/// lies in it, and little else.
pub(super) fn run() -> Result<(), Violation> {
    let work = Workload { packages: 160, ops: 1, under_way: 2, pause: millis(2) };
    let mut world = four(&[work])?;
    world.corrupt(R3, Box::new(Silent::towards([])));
    world.set_gate(|passing| {
        let signed = matches!(passing.key.kind, Kind::CHECKPOINT | kinds::STABLE);
        if signed && passing.to == Principal::Replica(R3) { Fate::Lose } else { Fate::Pass }
    });
    let (client, seq) = (ClientId(1), RequestSeq(5));
    world.expect_within(SOON, "some state", |world| {
        world.status(R3).is_ok_and(|status| status.height.0 > seq.0)
    })?;
    world.host(R3).damage_memory(client, seq);
    world.expect_within(SOON, "the work", |world| world.customer(1).is_done())?;
    for id in [R0, R1, R2] {
        let status = world.status(id)?;
        let found = status.divergences.get(&R3);
        demand(found.is_some_and(|d| d.what == CheckpointField::State), "f26_keys", || {
            format!("{id:?} does not name R3: {:?}", status.divergences)
        })?;
        let keys = found.map(|d| d.keys.clone()).unwrap_or_default();
        let inside = |seq: u64| {
            let label = witness::label(client, RequestSeq(seq));
            keys.iter().any(|range| range.contains(&label))
        };
        // Before the first number, and after the last that it executed, nobody has anything.
        let wide = (1..=16).filter(|seq| inside(*seq)).count();
        demand(inside(seq.0) && wide <= 4, "f26_keys", || {
            format!("{id:?} names keys with {wide} numbers of 16 in them: {keys:?}")
        })?;
    }
    settle(&mut world)
}
