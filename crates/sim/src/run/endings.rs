//! How a random run ends: the network is good from now on, and everything that was asked for must be
//! done. In half of the runs up to f replicas are gone for good before that, the Byzantine ones and
//! those that lost their disks counted among them: then nothing may hang on what they alone knew.
//!
//! The worst moment is this: the others lack some of what those know that are doomed (certificates,
//! decisions or bodies); the power fails at all the others at once; when they are back, the doomed
//! still say what they know, and are gone before anybody can ask them what it stands for.

use super::LIVENESS_BUDGET;
use super::trouble::take_one;
use crate::checks::{Violation, kinds};
use crate::world::{Act, World};
use crate::{Crash, Hush, Quality, Rng};
use std::time::Duration;
use tercio_types::{ReplicaId, ReplicaSet};
use tercio_wire::Kind;

/// Who is gone in the end, and how that comes.
pub(super) struct Doom {
    /// They.
    pub(super) who: Vec<ReplicaId>,
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

/// Draws who is gone in the end, if anybody is.
pub(super) fn doom(world: &World, rng: &mut Rng, f: usize) -> Option<Doom> {
    if !rng.chance(500) {
        return None;
    }
    let mut ids: Vec<ReplicaId> = world.cast().replicas().collect();
    let who = (0..rng.between(1, f as u64)).map(|_| take_one(&mut ids, rng)).collect();
    let secret = match rng.below(10) {
        0..=4 => Some(Secret::Certificates),
        5 => Some(Secret::Decisions),
        6 => Some(Secret::Everything),
        _ => None,
    };
    Some(Doom { who, early: rng.chance(500), secret })
}

/// Plays the end of a run.
pub(super) fn end(world: &mut World, rng: &mut Rng, doom: Option<Doom>) -> Result<(), Violation> {
    let (early, late) = match doom {
        Some(doom) if doom.early => (Some(doom), None),
        doom => (None, doom),
    };
    if let Some(doom) = early {
        come_true(world, rng, &doom)?;
    }
    heal(world)?;
    settle(world)?;
    if let Some(doom) = late {
        come_true(world, rng, &doom)?;
        heal(world)?;
        settle(world)?;
    }
    world.expect_within(LIVENESS_BUDGET, "a checkpoint of it all", World::is_covered)?;
    world.run_for(Duration::from_millis(500))?;
    world.expect_within(LIVENESS_BUDGET, "settling", World::is_settled)?;
    world.expect_within(LIVENESS_BUDGET, "a checkpoint of it all", World::is_covered)?;
    world.idle()?;
    world.finish()
}

/// The network is good from now on, and every machine runs that is not gone.
fn heal(world: &mut World) -> Result<(), Violation> {
    world.stop_trouble();
    world.network.heal(Quality::GOOD);
    let ids: Vec<_> = world.cast().replicas().collect();
    ids.into_iter().try_for_each(|id| world.restart(id))
}

fn settle(world: &mut World) -> Result<(), Violation> {
    world.expect_within(LIVENESS_BUDGET, "healing", World::is_settled)?;
    // What is still under way (a lying client's requests, say) must break nothing either.
    world.run_for(Duration::from_secs(1))?;
    world.expect_within(LIVENESS_BUDGET, "healing", World::is_settled)
}

/// Lets those be gone that are doomed.
fn come_true(world: &mut World, rng: &mut Rng, doom: &Doom) -> Result<(), Violation> {
    let millis = |rng: &mut Rng, low, high| Duration::from_millis(rng.between(low, high));
    heal(world)?;
    world.tally_mut().gone_for_good += 1;
    let doomed: ReplicaSet = doom.who.iter().copied().collect();
    let rest: ReplicaSet = world.cast().replicas().filter(|id| !doomed.contains(*id)).collect();
    let (more, pause) = (rng.between(2, 12), millis(rng, 1, 20));
    world.want_more(more, pause);
    let lead = millis(rng, 0, 150);
    world.run_for(lead)?;
    if let Some(secret) = doom.secret {
        keep(world, rng, secret, (doomed, rest))?;
    }
    let lead = rng.duration(Duration::ZERO, Duration::from_millis(20));
    world.run_for(lead)?;
    // Sometimes they are gone before the power fails, mostly after it, when the others are back.
    let (first, linger) = (rng.chance(250), rng.between(0, 120));
    let mut gone = world.now();
    if !first {
        gone = gone + Duration::from_millis(linger);
    }
    for id in &doom.who {
        let at = gone + rng.duration(Duration::ZERO, Duration::from_millis(10));
        world.plan(at, Act::Gone(*id));
    }
    black_out(world, rng, rest)?;
    if doom.secret.is_some() {
        // Nobody gets what it would ask them for.
        let kinds = vec![Kind::BLOCKS, Kind::STATE, kinds::BODY];
        world.network.hush(Hush { kinds, from: doomed, to: rest, loss: rng.between(500, 1000) });
    }
    let until = gone + Duration::from_millis(10 + linger);
    world.run_until(until.max(world.now()))?;
    doom.who.iter().for_each(|id| world.lose_for_good(*id, Crash::Power));
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
/// again one by one.
fn black_out(world: &mut World, rng: &mut Rng, rest: ReplicaSet) -> Result<(), Violation> {
    let precise = rng.chance(600);
    for id in rest.iter() {
        let how = if precise { Crash::Power } else { Crash::PowerAfter(rng.below(12)) };
        world.crash(id, how);
    }
    let moment = Duration::from_millis(rng.between(0, 10));
    world.run_for(moment)?;
    let within = Duration::from_millis(rng.between(1, 150));
    for id in rest.iter() {
        if world.host(id).is_up() {
            world.crash(id, Crash::Power);
        }
        let pause = rng.duration(Duration::ZERO, within);
        world.plan(world.now() + pause, Act::Restart(id));
    }
    Ok(())
}
