//! How a random run ends: the network is good from now on, and everything that was asked for must be
//! done. In half of the runs up to f replicas are gone for good before that, the Byzantine ones and
//! those that lost their disks counted among them: then nothing may hang on what they alone knew.
//!
//! The worst moment is this: the others lack some of what those know that are doomed (certificates,
//! decisions or bodies); the power fails at all the others at once; when they are back, the doomed
//! still say what they know, and are gone before anybody can ask them what it stands for.

use super::LIVENESS_BUDGET;
use super::trouble::take_one;
use crate::checks::{Simulated, Violation, kinds};
use crate::world::{Act, World};
use crate::{Crash, Hush, Quality, Rng};
use std::time::Duration;
use tercio_types::ReplicaSet;
use tercio_wire::Kind;

/// How it comes that some are gone in the end.
pub(super) struct Doom {
    /// How many.
    pub(super) count: usize,
    /// Whether it comes while much is still to be done, not after all has settled.
    early: bool,
    /// What the others do not hear of before.
    secret: Option<Secret>,
}

/// What only the doomed know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secret {
    /// That a checkpoint is stable.
    Certificates,
    /// That a batch is decided.
    Decisions,
    /// Whatever was said last.
    Everything,
}

impl Secret {
    /// What is lost on the way to the others.
    fn kinds(self) -> Vec<Kind> {
        match self {
            Self::Certificates => vec![Kind::CHECKPOINT, kinds::STABLE],
            Self::Decisions => vec![kinds::COMMIT, kinds::STABLE, Kind::BLOCKS],
            Self::Everything => {
                let votes = [kinds::PREPARE, kinds::COMMIT, kinds::BODY, Kind::BLOCKS];
                [&votes[..], &[Kind::CHECKPOINT, kinds::STABLE]].concat()
            }
        }
    }
}

/// Draws how it ends.
pub(super) fn doom(rng: &mut Rng, f: usize) -> Option<Doom> {
    if !rng.chance(500) {
        return None;
    }
    let count = rng.between(1, f as u64) as usize;
    let secret = match rng.below(10) {
        0..=5 => Some(Secret::Certificates),
        6 => Some(Secret::Decisions),
        7 => Some(Secret::Everything),
        _ => None,
    };
    Some(Doom { count, early: rng.chance(500), secret })
}

/// Who is gone in the end. Those that are `counted` among the f already may be among them and add
/// nobody; who leads is spared as a rule, since it is when that one starts again that all leave its
/// view and say what they know.
fn choose(world: &World, rng: &mut Rng, doom: &Doom, counted: ReplicaSet) -> ReplicaSet {
    let primary = if rng.chance(800) { Some(world.primary()) } else { None };
    let mut sound: Vec<_> = world.cast().replicas().filter(|id| !counted.contains(*id)).collect();
    sound.retain(|id| Some(*id) != primary);
    let mut who = ReplicaSet::EMPTY;
    let mut others: Vec<_> = counted.iter().collect();
    for _ in 0..doom.count {
        let from = if !others.is_empty() && rng.chance(200) { &mut others } else { &mut sound };
        who.insert(take_one(from, rng));
    }
    who
}

/// Plays the end of a run in which these are `counted` among the f already.
pub(super) fn end(
    world: &mut World,
    rng: &mut Rng,
    doom: Option<Doom>,
    counted: ReplicaSet,
) -> Result<(), Violation> {
    let (early, late) = match doom {
        Some(doom) if doom.early => (Some(doom), None),
        doom => (None, doom),
    };
    if let Some(doom) = early {
        come_true(world, rng, &doom, counted)?;
    }
    heal(world)?;
    settle(world)?;
    if let Some(doom) = late {
        come_true(world, rng, &doom, counted)?;
        heal(world)?;
        settle(world)?;
    }
    conclude(world)
}

/// Everything is done, and soon covered.
fn conclude<P: Simulated>(world: &mut World<P>) -> Result<(), Violation> {
    world.expect_within(LIVENESS_BUDGET, "a checkpoint of it all", World::is_covered)?;
    world.run_for(Duration::from_millis(500))?;
    world.expect_within(LIVENESS_BUDGET, "settling", World::is_settled)?;
    world.expect_within(LIVENESS_BUDGET, "a checkpoint of it all", World::is_covered)?;
    world.idle()?;
    world.finish()
}

/// Plays the end of a run in which nobody is gone.
pub(super) fn end_with_all<P: Simulated>(world: &mut World<P>) -> Result<(), Violation> {
    heal(world)?;
    settle(world)?;
    conclude(world)
}

/// The network is good from now on, and every machine runs that is not gone.
fn heal<P: Simulated>(world: &mut World<P>) -> Result<(), Violation> {
    world.stop_trouble();
    world.network.heal(Quality::GOOD);
    let ids: Vec<_> = world.cast().replicas().collect();
    ids.into_iter().try_for_each(|id| world.restart(id))
}

fn settle<P: Simulated>(world: &mut World<P>) -> Result<(), Violation> {
    world.expect_within(LIVENESS_BUDGET, "healing", World::is_settled)?;
    // What is still in flight (a lying client's requests, say) must break nothing either.
    world.run_for(Duration::from_secs(1))?;
    world.expect_within(LIVENESS_BUDGET, "healing", World::is_settled)
}

/// Lets those be gone that are doomed.
fn come_true(
    world: &mut World,
    rng: &mut Rng,
    doom: &Doom,
    counted: ReplicaSet,
) -> Result<(), Violation> {
    let millis = |rng: &mut Rng, low, high| Duration::from_millis(rng.between(low, high));
    heal(world)?;
    world.tally_mut().gone_for_good += 1;
    let doomed = choose(world, rng, doom, counted);
    let rest: ReplicaSet = world.cast().replicas().filter(|id| !doomed.contains(*id)).collect();
    let (more, pause) = (rng.between(4, 14), millis(rng, 1, 20));
    world.want_more(more, pause);
    let lead = millis(rng, 0, 150);
    world.run_for(lead)?;
    if let Some(secret) = doom.secret {
        keep(world, rng, secret, (doomed, rest))?;
    }
    let soon = Duration::from_millis(*rng.pick(&[2, 20]));
    let lead = rng.duration(Duration::ZERO, soon);
    world.run_for(lead)?;
    let back = millis(rng, 1, 150);
    // Sometimes they are gone before the power fails, mostly when the others are coming back.
    let alive = match rng.below(10) {
        0 | 1 => Duration::ZERO,
        2..=4 => millis(rng, 0, 120),
        _ => back + millis(rng, 2, 120),
    };
    for id in doomed.iter() {
        let at = world.now() + alive + rng.duration(Duration::ZERO, Duration::from_millis(10));
        world.plan(at, Act::Gone(id));
    }
    let until = world.now() + alive + Duration::from_millis(10);
    if doom.secret.is_some() {
        // Nobody gets what it would ask them for.
        let (kinds, loss) =
            (vec![Kind::BLOCKS, Kind::STATE, kinds::BODY], *rng.pick(&[1000, 1000, 500]));
        world.network.hush(Hush { kinds, from: doomed, to: rest, loss });
    }
    black_out(world, rng, rest, back)?;
    world.run_until(until.max(world.now()))?;
    doomed.iter().for_each(|id| world.lose_for_good(id, Crash::Power));
    // The others go on, with what they have, as well as they can.
    let rest = millis(rng, 0, 300);
    world.run_for(rest)
}

/// For a while the others do not hear what the doomed hear; as a rule until one of those knows of a
/// checkpoint that none of the others knows to be stable.
fn keep(
    world: &mut World,
    rng: &mut Rng,
    secret: Secret,
    (doomed, rest): (ReplicaSet, ReplicaSet),
) -> Result<(), Violation> {
    let all: ReplicaSet = world.cast().replicas().collect();
    let loss = *rng.pick(&[1000, 1000, 900]);
    world.network.hush(Hush { kinds: secret.kinds(), from: all, to: rest, loss });
    let time = match secret {
        Secret::Certificates => Duration::from_millis(rng.between(100, 1500)),
        _ => Duration::from_millis(rng.between(1, 60)),
    };
    let stable = |world: &World, of: ReplicaSet| {
        let status = of.iter().filter_map(|id| world.status(id).ok());
        status.map(|status| status.protocol.stable).max().unwrap_or_default()
    };
    let until = world.now() + time;
    world.run_while(until, |world| stable(world, doomed) <= stable(world, rest)).map(|_| ())
}

/// The power fails at all of these at once, at some in the midst of what they write next; they start
/// again one by one within this time.
fn black_out(
    world: &mut World,
    rng: &mut Rng,
    rest: ReplicaSet,
    within: Duration,
) -> Result<(), Violation> {
    let precise = rng.chance(600);
    for id in rest.iter() {
        let how = if precise { Crash::Power } else { Crash::PowerAfter(rng.below(12)) };
        world.crash(id, how);
    }
    if !precise {
        let moment = Duration::from_millis(rng.between(1, 10));
        world.run_for(moment)?;
    }
    for id in rest.iter() {
        if world.host(id).is_up() {
            world.crash(id, Crash::Power);
        }
        let pause = rng.duration(Duration::ZERO, within);
        world.plan(world.now() + pause, Act::Restart(id));
    }
    Ok(())
}
