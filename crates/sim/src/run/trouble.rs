//! What goes wrong in a random run, and who is not as it should be.

use super::settings::bad_quality;
use crate::actors::{FalseSource, cast_one};
use crate::checks::Simulated;
use crate::world::{Act, Target, World};
use crate::{Crash, Rng};
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_ledger::MediaFault;
use tercio_types::{Principal, ReplicaId, ReplicaSet};

fn any_replica(rng: &mut Rng, ids: &[ReplicaId]) -> ReplicaId {
    *rng.pick(ids)
}

pub(super) fn any_crash(rng: &mut Rng) -> Crash {
    match rng.below(16) {
        0..=3 => Crash::Kill,
        4..=7 => Crash::Power,
        8..=13 => Crash::PowerAfter(rng.below(30)),
        14 => Crash::DiskFailsAfter(rng.below(30)),
        _ => Crash::DiskFullAfter(rng.below(4000)),
    }
}

/// Plans one thing that goes wrong at `at`, and when it is over.
pub(super) fn plan_trouble<P: Simulated>(world: &mut World<P>, rng: &mut Rng, at: Instant) {
    let ids: Vec<_> = world.cast().replicas().collect();
    let millis = |rng: &mut Rng, low, high| Duration::from_millis(rng.between(low, high));
    match rng.below(100) {
        0..=24 => {
            let (id, pause) = (any_replica(rng, &ids), millis(rng, 20, 1500));
            world.repair_after(id, pause);
            world.plan(at, Act::Crash(id, any_crash(rng)));
            world.plan(at + pause, Act::Restart(id));
        }
        25..=49 => {
            let pause = millis(rng, 20, 1500);
            world.plan(at, Act::CrashPrimary(any_crash(rng), pause));
        }
        50..=64 => {
            world.plan(at, Act::IsolatePrimary);
            world.plan(at + millis(rng, 100, 1500), Act::Mend);
        }
        65..=79 => {
            let parts: BTreeMap<_, _> = ids.iter().map(|id| (*id, rng.below(2))).collect();
            world.plan(at, Act::Partition(parts));
            world.plan(at + millis(rng, 50, 1200), Act::Mend);
        }
        80..=86 => {
            let within = millis(rng, 1, 1000);
            world.plan(at, Act::Blackout(within));
        }
        87..=95 => {
            for _ in 0..rng.between(1, 2 * ids.len() as u64) {
                let [a, b] = [0; 2].map(|_| Principal::Replica(any_replica(rng, &ids)));
                world.plan(at, Act::Cut(a, b));
            }
            world.plan(at + millis(rng, 50, 1200), Act::Mend);
        }
        _ => world.plan(at, Act::Quality(bad_quality(rng))),
    }
}

/// The medium of one disk fails a few times, in the write-ahead log or elsewhere, and as a rule its
/// machine has to read what it wrote soon after.
fn plan_media(world: &mut World, rng: &mut Rng, id: ReplicaId) {
    let target = if rng.chance(350) { Target::Log } else { Target::Others };
    for _ in 0..rng.between(1, 4) {
        let fault =
            *rng.pick(&[MediaFault::BitRot, MediaFault::LostWrite, MediaFault::MisdirectedWrite]);
        let millis = |rng: &mut Rng, low, high| Duration::from_millis(rng.between(low, high));
        let at = world.now() + millis(rng, 100, 3000);
        world.plan(at, Act::Media(id, target, fault));
        if rng.chance(800) {
            let (early, late) = (millis(rng, 0, 50), millis(rng, 50, 400));
            let down = if rng.chance(500) { Duration::ZERO } else { early };
            let how = if rng.chance(500) { Crash::Kill } else { Crash::Power };
            // Down before the fault or after it.
            let crash = if rng.chance(500) {
                Instant(at.0 - 1 - down.as_nanos() as u64)
            } else {
                at + down
            };
            world.plan(crash, Act::Crash(id, how));
            world.plan(at + late, Act::Restart(id));
        }
    }
}

/// Takes one of those that are left.
pub(super) fn take_one(ids: &mut Vec<ReplicaId>, rng: &mut Rng) -> ReplicaId {
    ids.remove(rng.below(ids.len() as u64) as usize)
}

/// Up to f replicas, less those that are `reserved` to be gone in the end, are not as they should be:
/// some lose all that they have, the medium of one fails, some are Byzantine. Logs that are lost or
/// damaged count among the f, too. Gives all of them.
pub(super) fn choose_faulty(world: &mut World, rng: &mut Rng, most: usize) -> ReplicaSet {
    let all: Vec<ReplicaId> = world.cast().replicas().collect();
    let mut ids = all.clone();
    let mut left = most as u64;
    if left > 0 && rng.chance(150) {
        let empty = rng.between(1, left);
        // Who fetches everything may ask a liar for it.
        if empty < left && rng.chance(600) {
            world.corrupt(take_one(&mut ids, rng), Box::new(FalseSource::new()));
            left -= 1;
        }
        for _ in 0..empty {
            let id = take_one(&mut ids, rng);
            left -= 1;
            for _ in 0..rng.between(1, 2) {
                let within = (Duration::from_millis(50), Duration::from_secs(3));
                let at = world.now() + rng.duration(within.0, within.1);
                let pause = rng.duration(Duration::from_millis(20), Duration::from_millis(500));
                world.plan(at, Act::LoseDisk(id, pause));
            }
        }
    }
    if left > 0 && rng.chance(250) {
        left -= 1;
        let id = take_one(&mut ids, rng);
        plan_media(world, rng, id);
    }
    if left > 0 && rng.chance(800) {
        for _ in 0..rng.between(1, left) {
            let id = take_one(&mut ids, rng);
            let actor = cast_one(rng);
            world.corrupt(id, actor);
        }
    }
    all.into_iter().filter(|id| !ids.contains(id)).collect()
}
