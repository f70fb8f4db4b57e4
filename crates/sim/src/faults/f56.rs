//! f56, a primary dies under full load (metastable failures: Bronson and others, HotOS 2021).

use super::{R0, R1, R2, R3, demand, millis};
use crate::customer::Workload;
use crate::network::Quality;
use crate::world::{World, WorldSettings, small_settings};
use crate::{Cast, Crash, Violation};
use tercio_client::ClientAuth;
use tercio_consensus::Settings;

/// Clients, and what each has under way: 16 operations a package at most, so that one that is late holds
/// up no client for its numbers.
const CLIENTS: usize = 6;
const UNDER_WAY: usize = 14;
/// How long a message takes: what is ordered in a round trip is far more than the least that may wait.
const HOP_MS: u64 = 8;
/// How long it is watched, before and after.
const WATCHED_MS: u64 = 600;
/// How long the view change may take, and a second until clients are where they were.
const SETTLING_MS: u64 = 400 + 1000;

/// Clients keep as much under way as they may when the primary dies.
///
/// A second after the view has changed as much is ordered as before, and it stays so.
pub(super) fn run() -> Result<(), Violation> {
    let consensus = Settings {
        batch_ops: 512,
        pipeline: 1,
        checkpoint_interval: 32,
        window: 128,
        ..small_settings()
    };
    let load = Workload { packages: u64::MAX, ops: 16, under_way: UNDER_WAY, pause: millis(0) };
    let clients = vec![(ClientAuth::Mac, load); CLIENTS];
    let quality = Quality { delay: (millis(HOP_MS), millis(HOP_MS)), ..Quality::STEADY };
    let settings = WorldSettings { clients, consensus, quality, ..WorldSettings::default() };
    let mut world = World::new(&Cast::new(4), settings)?;
    world.run_for(millis(WATCHED_MS))?;
    let before = ordered(&mut world)?;
    world.crash(R0, Crash::Power);
    world.run_for(millis(SETTLING_MS))?;
    for id in [R1, R2, R3] {
        let protocol = world.status(id)?.protocol;
        demand(protocol.view.0 > 0 && !protocol.changing, "f56", || format!("{id}: {protocol:?}"))?;
    }
    for _ in 0..2 {
        let after = ordered(&mut world)?;
        demand(20 * after >= 19 * before, "f56", || {
            format!("{after} operations in {WATCHED_MS} ms, and {before} before the primary died")
        })?;
    }
    Ok(())
}

/// How many operations are executed and answered meanwhile.
fn ordered(world: &mut World) -> Result<usize, Violation> {
    let before = world.acknowledged();
    world.run_for(millis(WATCHED_MS))?;
    Ok(world.acknowledged() - before)
}
