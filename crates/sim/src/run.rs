//! A random run: everything goes wrong for a while, then the network heals, and everything that
//! was asked for must be done.

use crate::actors::cast_one;
use crate::customer::Workload;
use crate::plots::{self, Plot};
use crate::world::{Act, World, WorldSettings, small_settings};
use crate::{Cast, Crash, Quality, Rng, Violation};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_consensus::{Instant, Settings};
use tercio_types::{Digest, Principal, ReplicaId};

/// How long the network may take for everything after it has healed, in virtual time. Timers have
/// doubled meanwhile, and Byzantine primaries take their turns.
pub const LIVENESS_BUDGET: Duration = Duration::from_secs(120);

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How many replicas.
    pub n: usize,
    /// The hash over all events.
    pub trace: Digest,
    /// How many events there were.
    pub events: u64,
    /// Views entered above the first.
    pub view_changes: u64,
    /// Replicas started again.
    pub restarts: u64,
    /// Numbers for which a primary sent two proposals to different backups.
    pub equivocations: u64,
    /// Disks of correct replicas that were lost.
    pub lost_disks: u64,
    /// Replicas that stopped since their disk failed or was full.
    pub disk_failures: u64,
    /// Operations acknowledged to clients.
    pub acknowledged: u64,
    /// The virtual time that it took, in milliseconds.
    pub virtual_ms: u64,
    /// What the Byzantine replicas were.
    pub actors: Vec<&'static str>,
}

/// A run that broke a property.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// How many replicas.
    pub n: usize,
    /// What was broken.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, n, violation } = self;
        write!(f, "seed {seed} (n = {n}): {violation}; tercio-sim seed {seed} --n {n} --trace")
    }
}

/// A run and its text, if one was asked for.
#[derive(Debug)]
pub struct Run {
    /// What came of it.
    pub outcome: Result<Report, Box<Failure>>,
    /// The text of all events.
    pub text: String,
}

/// Runs the network of `cast` under `seed`.
#[must_use]
pub fn run(cast: &Arc<Cast>, seed: u64, text: bool) -> Run {
    run_plot(cast, seed, text, None)
}

/// As [`run`], with this plot instead of whatever the seed chooses.
#[must_use]
pub fn run_plot(cast: &Arc<Cast>, seed: u64, text: bool, plot: Option<&Plot>) -> Run {
    let n = cast.membership().n();
    let fail = |violation| Box::new(Failure { seed, n, violation });
    let mut rng = Rng::new(seed ^ (n as u64) << 56);
    let mut world = match World::new(cast, world_settings(&mut rng, text)) {
        Ok(world) => world,
        Err(violation) => return Run { outcome: Err(fail(violation)), text: String::new() },
    };
    // A broken assertion of a replica is a finding like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| play(&mut world, &mut rng, plot)));
    let outcome = outcome.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Violation::new("panic", said))
    });
    let text = world.trace().text().to_owned();
    let actors = cast.replicas().filter_map(|id| world.host(id).role()).collect();
    let outcome = outcome.map_err(fail).map(|()| Report {
        seed,
        n,
        trace: world.trace().digest(),
        events: world.trace().events(),
        view_changes: world.view_changes() as u64,
        restarts: world.tally().restarts,
        equivocations: world.tally().equivocations,
        lost_disks: world.tally().lost_disks,
        disk_failures: world.tally().disk_failures,
        acknowledged: world.acknowledged() as u64,
        virtual_ms: world.now().0 / 1_000_000,
        actors,
    });
    Run { outcome, text }
}

fn world_settings(rng: &mut Rng, text: bool) -> WorldSettings {
    let millis = Duration::from_millis;
    let clients = rng.between(2, 4);
    let clients = (0..clients).map(|_| {
        let auth = if rng.chance(700) { ClientAuth::Mac } else { ClientAuth::Signature };
        let work = Workload {
            packages: rng.between(10, 40),
            ops: rng.between(1, 3),
            under_way: rng.between(1, 6) as usize,
            pause: millis(rng.between(1, 150)),
        };
        (auth, work)
    });
    let clients = clients.collect();
    let (consensus, quality) = (any_settings(rng), bad_quality(rng));
    let lag = if rng.chance(200) { rng.between(1, 4) as u16 } else { 0 };
    let forgetful = rng.chance(400);
    let group =
        rng.chance(300).then(|| rng.duration(Duration::from_micros(100), Duration::from_millis(5)));
    WorldSettings { seed: rng.bits(), consensus, lag, forgetful, group, quality, clients, text }
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
fn bad_quality(rng: &mut Rng) -> Quality {
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

fn any_replica(rng: &mut Rng, n: usize) -> ReplicaId {
    ReplicaId(rng.below(n as u64) as u16)
}

fn any_crash(rng: &mut Rng) -> Crash {
    match rng.below(16) {
        0..=3 => Crash::Kill,
        4..=7 => Crash::Power,
        8..=13 => Crash::PowerAfter(rng.below(30)),
        14 => Crash::DiskFailsAfter(rng.below(30)),
        _ => Crash::DiskFullAfter(rng.below(4000)),
    }
}

/// Plans one thing that goes wrong at `at`, and when it is over.
fn plan_trouble(world: &mut World, rng: &mut Rng, at: Instant, n: usize) {
    let millis = |rng: &mut Rng, low, high| Duration::from_millis(rng.between(low, high));
    match rng.below(100) {
        0..=24 => {
            let (id, pause) = (any_replica(rng, n), millis(rng, 20, 1500));
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
            let parts: BTreeMap<_, _> =
                (0..n as u16).map(|i| (ReplicaId(i), rng.below(2))).collect();
            world.plan(at, Act::Partition(parts));
            world.plan(at + millis(rng, 50, 1200), Act::Mend);
        }
        80..=86 => {
            let within = millis(rng, 1, 1000);
            world.plan(at, Act::Blackout(within));
        }
        87..=95 => {
            for _ in 0..rng.between(1, 2 * n as u64) {
                let [a, b] = [0; 2].map(|_| Principal::Replica(any_replica(rng, n)));
                world.plan(at, Act::Cut(a, b));
            }
            world.plan(at + millis(rng, 50, 1200), Act::Mend);
        }
        _ => world.plan(at, Act::Quality(bad_quality(rng))),
    }
}

/// Takes one of those that are left.
fn take_one(ids: &mut Vec<ReplicaId>, rng: &mut Rng) -> ReplicaId {
    ids.remove(rng.below(ids.len() as u64) as usize)
}

/// Up to f replicas are not as they should be: some lose all that they have, some are Byzantine.
/// Lost logs count among the f, too.
fn choose_faulty(world: &mut World, rng: &mut Rng, f: usize) {
    let mut ids: Vec<ReplicaId> = world.cast().replicas().collect();
    let mut left = f as u64;
    if rng.chance(150) {
        for _ in 0..rng.between(1, left) {
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
    if left > 0 && rng.chance(700) {
        for _ in 0..rng.between(1, left) {
            let id = take_one(&mut ids, rng);
            let actor = cast_one(rng);
            world.corrupt(id, actor);
        }
    }
}

fn play(world: &mut World, rng: &mut Rng, plot: Option<&Plot>) -> Result<(), Violation> {
    match plot.or_else(|| plots::any(rng)) {
        Some(plot) => plot.play(world, rng)?,
        None => chaos(world, rng)?,
    }
    heal(world)?;
    world.expect_within(LIVENESS_BUDGET, "healing", World::is_settled)?;
    // What is still under way (a lying client's requests, say) must break nothing either.
    world.run_for(Duration::from_secs(1))?;
    world.expect_within(LIVENESS_BUDGET, "healing", World::is_settled)?;
    world.finish()
}

fn chaos(world: &mut World, rng: &mut Rng) -> Result<(), Violation> {
    let (n, f) = (world.cast().membership().n(), world.cast().membership().f());
    choose_faulty(world, rng, f);
    if rng.chance(200) {
        world.corrupt_client(1);
    }
    let chaos = Duration::from_millis(rng.between(1000, 4000));
    for _ in 0..rng.between(1, 6) {
        let at = world.now() + rng.duration(Duration::from_millis(5), chaos);
        plan_trouble(world, rng, at, n);
    }
    world.run_for(chaos)
}

/// The network is good from now on, and every machine runs.
fn heal(world: &mut World) -> Result<(), Violation> {
    world.stop_trouble();
    world.network.heal(Quality::GOOD);
    let ids: Vec<_> = world.cast().replicas().collect();
    ids.into_iter().try_for_each(|id| world.restart(id))
}
