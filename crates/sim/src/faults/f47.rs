//! f47, blocks beyond the buffer (ours: what a laggard keeps of uncertified blocks had a bound of its
//! own, below what the others may order between two certificates).

use super::{R0, R1, R2, R3, SOON, demand, four_with, millis, settle};
use crate::customer::Workload;
use crate::world::small_settings;
use crate::{Crash, FalseClient, Violation, World};
use bytes::Bytes;
use tercio_consensus::Settings;
use tercio_types::{ClientId, Principal};

/// How long the operations are.
const LONG: usize = 7 << 20;

/// How many: there is a checkpoint with the first of them, and one after the last.
const COUNT: u64 = 13;

/// Three replicas have more room for batches than the fourth, and order more between two
/// certificates than its buffer holds while it is cut off. Then nobody certifies what comes first.
///
/// All that it asks are honest. It fetches a state instead, and goes on with the others.
pub(super) fn run() -> Result<(), Violation> {
    let settings = Settings {
        checkpoint_interval: 64,
        window: 128,
        checkpoint_bytes: 80 << 20,
        held_bytes: 200 << 20,
        ..small_settings()
    };
    let narrow = Settings { checkpoint_bytes: 1 << 20, held_bytes: 32 << 20, ..settings.clone() };
    let mut world = four_with(&[Workload::NONE], settings)?;
    world.crash(R3, Crash::Kill);
    world.host_mut(R3).set_consensus(narrow);
    order_long(&mut world)?;
    world.restart(R3)?;
    // A few rounds of questions, each of which moves a buffer of bytes from every source.
    world.expect_within(millis(2000), "a state at the laggard", |world| {
        world.status(R3).is_ok_and(|status| status.height == world.status(R1).expect("runs").height)
    })?;
    let status = world.status(R3)?;
    let fetched = status.transfer.as_ref().is_some_and(|transfer| transfer.phase == "done");
    demand(fetched && status.dropped.get("blocks_uncertified") == Some(&2), "f47", || {
        format!("R3 fetched no state: {:?} {:?}", status.transfer, status.dropped)
    })?;
    world.submit(1, &["short"]);
    settle(&mut world)
}

/// R0 to R2 order the long operations of a client.
fn order_long(world: &mut World) -> Result<(), Violation> {
    let client = FalseClient::new(&world.cast().clone(), ClientId(2));
    for i in 1..=COUNT {
        let package = client.signed(i, &[Bytes::from(vec![i as u8; LONG])]);
        world.asked_for(&package);
        let (from, to) = (Principal::Client(ClientId(2)), Principal::Replica(R0));
        world.inject(from, to, client.request(&package));
        world.run_for(millis(10))?;
    }
    let stable = |world: &World, id| world.status(id).is_ok_and(|s| s.protocol.stable.0 >= COUNT);
    world.expect_within(SOON, "a checkpoint after the last", |world| {
        [R0, R1, R2].iter().all(|id| stable(world, *id))
    })
}
