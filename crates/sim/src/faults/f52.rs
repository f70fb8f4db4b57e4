//! f52, execution halts (seed 002: whoever orders must not wait for whoever executes).

use super::{EVERYBODY, R0, R1, R2, R3, demand, four_with, millis, settle};
use crate::Violation;
use crate::customer::Workload;
use tercio_consensus::Settings;
use tercio_types::ReplicaId;

/// How many batches are to be ordered while execution halts.
const BATCHES: u64 = 2000;

/// Under load execution halts at one replica, at f+1 and at all of them, for four seconds. Then so
/// much is ordered that the window is full, and stays so for longer than any timer.
///
/// All go on ordering, to the end of the window at least; nobody changes the view; what was ordered
/// is executed once everywhere when execution goes on.
pub(super) fn run() -> Result<(), Violation> {
    halted(&[R2], BATCHES)?;
    // The primary and a backup.
    halted(&[R0, R3], BATCHES)?;
    halted(&EVERYBODY, BATCHES)?;
    full()
}

fn settings(window: u64) -> Settings {
    Settings {
        checkpoint_interval: 64,
        window,
        batch_ops: 1,
        pipeline: 16,
        // The last of the requests waits for the others, which takes less.
        view_timeout: millis(1000),
        ..crate::small_settings()
    }
}

/// Clients that together have more under way than is to be ordered: those of replicas that all halt
/// hear of nothing.
fn load(packages: u64) -> Vec<Workload> {
    let under_way = packages as usize;
    vec![Workload { packages, ops: 1, under_way, pause: millis(0) }; 3]
}

fn halted(which: &[ReplicaId], batches: u64) -> Result<(), Violation> {
    let mut world = four_with(&load(batches / 3 + 80), settings(batches + 320))?;
    world.run_for(millis(20))?;
    let halt = |world: &mut crate::World, on: bool| {
        which.iter().for_each(|id| world.host_mut(*id).halt().set(on));
    };
    let stood: Vec<_> = which.iter().map(|id| world.status(*id)).collect::<Result<_, _>>()?;
    halt(&mut world, true);
    world.run_for(millis(4000))?;
    for (id, before) in which.iter().zip(&stood) {
        let status = world.status(*id)?;
        let ahead = status.protocol.delivered.0 - before.protocol.delivered.0;
        demand(ahead >= batches, "f52", || format!("{id} ordered {ahead} batches"))?;
        demand(status.height <= before.height.next(), "f52", || format!("{id} executed"))?;
        let since = status.executing_since.map(|since| world.now().since(since));
        demand(since.is_some_and(|since| since > millis(3000)), "f52", || {
            format!("{id} does not say that its execution stands: {since:?}")
        })?;
    }
    keeps_view(&world, &format!("while execution halted at {which:?}"))?;
    halt(&mut world, false);
    settle(&mut world)?;
    keeps_view(&world, "when execution went on")
}

fn keeps_view(world: &crate::World, when: &str) -> Result<(), Violation> {
    let changes = world.view_changes();
    demand(changes == 0, "f52", || {
        let stands = EVERYBODY.map(|id| world.status(id).map(|status| status.protocol));
        format!("the view was changed {changes} times {when}: {stands:?}")
    })
}

/// More than a window is wanted while all halt, and for longer than a view may take.
fn full() -> Result<(), Violation> {
    let mut world = four_with(&load(100), settings(128))?;
    world.run_for(millis(5))?;
    EVERYBODY.iter().for_each(|id| world.host_mut(*id).halt().set(true));
    world.run_for(millis(4000))?;
    for id in [R0, R1, R2, R3] {
        let status = world.status(id)?.protocol;
        let full = status.delivered.0 >= status.stable.0 + 128;
        demand(full && status.pending > 0, "f52", || {
            format!("{id} delivered up to {} over {}", status.delivered, status.stable)
        })?;
    }
    keeps_view(&world, "while the window was full")?;
    EVERYBODY.iter().for_each(|id| world.host_mut(*id).halt().set(false));
    settle(&mut world)?;
    keeps_view(&world, "after the window was full")
}
