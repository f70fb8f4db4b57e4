//! How the network of a random run is set up: replicas, links, clients and what they ask for.

use crate::checks::Simulated;
use crate::customer::{Habits, Workload};
use crate::world::{World, WorldSettings, small_settings};
use crate::{Act, Pace, Quality, Rng};
use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_consensus::{MAX_BATCH, Settings};
use tercio_types::{ClientId, Principal};

/// Settings of every kind.
pub(super) fn world_settings(rng: &mut Rng, text: bool) -> WorldSettings {
    let clients = rng.between(2, 4);
    let clients = (0..clients).map(|_| {
        let auth = if rng.chance(700) { ClientAuth::Mac } else { ClientAuth::Signature };
        (auth, any_work(rng))
    });
    let clients = clients.collect();
    let (consensus, quality) = (any_settings(rng), bad_quality(rng));
    let lag = if rng.chance(200) { rng.between(1, 4) as u16 } else { 0 };
    let forgetful = rng.chance(400);
    let group =
        rng.chance(300).then(|| rng.duration(Duration::from_micros(100), Duration::from_millis(5)));
    let (seed, pace) = (rng.bits(), Some(Pace::any(rng)));
    WorldSettings { seed, consensus, lag, forgetful, group, pace, quality, clients, text }
}

fn any_work(rng: &mut Rng) -> Workload {
    Workload {
        packages: rng.between(10, 40),
        ops: rng.between(1, 3),
        under_way: rng.between(1, 6) as usize,
        pause: Duration::from_millis(rng.between(1, 150)),
    }
}

/// Windows, batches and options of every kind.
fn any_settings(rng: &mut Rng) -> Settings {
    let checkpoint_interval = *rng.pick(&[4, 8, 8, 16]);
    Settings {
        checkpoint_interval,
        window: checkpoint_interval * rng.between(2, 4),
        batch_ops: rng.between(1, 8) as usize,
        pipeline: rng.between(1, 8),
        execute_before_propose: rng.chance(150),
        proposal_hooks: rng.chance(150),
        attest: rng.chance(150),
        ..small_settings()
    }
}

/// Anything from a good network to a very bad one.
pub(super) fn bad_quality(rng: &mut Rng) -> Quality {
    let shortest = Duration::from_micros(rng.between(50, 500));
    let longest = Duration::from_micros(rng.between(500, 20_000));
    Quality {
        delay: (shortest, longest),
        loss: if rng.chance(700) { rng.below(150) } else { 0 },
        duplicate: if rng.chance(500) { rng.below(100) } else { 0 },
        straggle: if rng.chance(500) { rng.below(100) } else { 0 },
        damage: if rng.chance(200) { rng.below(20) } else { 0 },
    }
}

/// In a fifth of the runs each link is another: some are far, some lose much, and what one direction
/// does says nothing of the other. Once all is healed the far ones are still far.
pub(super) fn own_links<P: Simulated>(world: &mut World<P>, rng: &mut Rng) {
    if !rng.chance(200) {
        return;
    }
    let (some, alike) = (rng.between(200, 1000), rng.chance(400));
    let mut ends: Vec<_> = world.cast().replicas().map(Principal::Replica).collect();
    ends.extend(world.customers().map(Principal::Client));
    for (i, a) in ends.iter().enumerate() {
        for b in &ends[..i] {
            if !rng.chance(some) {
                continue;
            }
            let there = far_quality(rng);
            let back = if alike { there } else { far_quality(rng) };
            world.network.set_link(*a, *b, there);
            world.network.set_link(*b, *a, back);
        }
    }
}

fn far_quality(rng: &mut Rng) -> Quality {
    let nearest = Duration::from_micros(rng.between(50, 20_000));
    let delay = (nearest, nearest + Duration::from_micros(rng.between(100, 15_000)));
    Quality { delay, ..bad_quality(rng) }
}

/// Some clients read, some ask without order, and in a few runs one has operations of megabytes.
/// What a client does that lies is not for us to say.
pub(super) fn habits<P: Simulated>(world: &mut World<P>, rng: &mut Rng, long: bool) {
    let ids: Vec<ClientId> = world.customers().collect();
    for id in &ids {
        let mut habits = Habits::default();
        if rng.chance(300) {
            habits.reads = rng.between(50, 400);
        }
        if rng.chance(300) {
            habits.queries = rng.between(50, 400);
        }
        if long && id == ids.last().expect("there are clients") {
            habits.long = (300, rng.between(2 << 20, 6 << 20));
        }
        world.give_habits(*id, habits);
    }
    if rng.chance(150) {
        let by = *ids.last().expect("there are clients");
        for _ in 0..rng.between(1, 2) {
            let at = rng.duration(Duration::from_millis(20), Duration::from_millis(900));
            world.plan(world.now() + at, Act::AddClient(by));
        }
    }
}

/// So that operations of megabytes fill the room that there is for batches (rules C5 and W4).
pub(super) fn tight_room(rng: &mut Rng, settings: &mut WorldSettings) {
    let consensus = &mut settings.consensus;
    consensus.checkpoint_bytes = rng.between(1 << 20, 4 << 20) as usize;
    consensus.held_bytes = 2 * (consensus.checkpoint_bytes + MAX_BATCH);
    consensus.batch_bytes = rng.between(256 << 10, 4 << 20) as usize;
    for (_, work) in &mut settings.clients {
        work.packages = work.packages.min(15);
    }
}
