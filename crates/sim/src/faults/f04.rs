//! f04, crash between signing and persisting (aptos-core#18298).

use super::{Puppeteer, R0, R3, batch_of, demand, millis};
use crate::{Cast, Crash, Tear, Violation, World, WorldSettings};
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Principal, SeqNum, View};

/// A proposal reaches a backup, and the power fails when its vote is on its way to the disk: after
/// every number of operations, and with nothing or everything left of what was not synced, whether
/// promises are made durable one by one or in groups. When the backup is back, the primary offers
/// it another batch for the same number.
///
/// Whatever the backup voted for before the failure, it votes for nothing else after it.
pub(super) fn run() -> Result<(), Violation> {
    [None, Some(millis(4))].into_iter().try_for_each(crash_between)
}

fn crash_between(group: Option<Duration>) -> Result<(), Violation> {
    let mut failures = 0;
    for operations in 0..8 {
        for left in [0, u64::MAX] {
            let settings = WorldSettings { clients: vec![], group, ..WorldSettings::default() };
            let mut world = World::new(&Cast::new(4), settings)?;
            let primary = world.puppet(R0);
            let package = Puppeteer::new(&world.cast().clone(), 1).signed(&mut world, "once");
            let (view, seq) = (View(0), SeqNum(1));
            world.host_mut(R3).tear(Tear::Cut(left));
            world.crash(R3, Crash::PowerAfter(operations));
            for time in [1000, 2000] {
                let batch = batch_of(&world, &package, time);
                let frame = primary.message(&PbftMessage::PrePrepare { view, seq, batch });
                world.inject(Principal::Replica(R0), Principal::Replica(R3), frame);
                world.run_for(millis(10))?;
                if world.host(R3).is_up() {
                    world.crash(R3, Crash::Power);
                } else {
                    failures += 1;
                }
                world.restart(R3)?;
                world.run_for(millis(10))?;
            }
        }
    }
    demand(failures > 0, "f04", || "the power never failed on the way to the disk".into())
}
