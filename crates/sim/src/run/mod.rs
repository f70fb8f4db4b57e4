//! A random run: everything goes wrong for a while, then the network heals, and everything that
//! was asked for must be done.

mod endings;
mod settings;
mod trouble;

use crate::checks::Simulated;
use crate::plots::{self, Plot};
use crate::world::{Tally, World, WorldSettings};
use crate::{Cast, Rng, Violation};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tercio_types::{Digest, ReplicaSet};

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
    /// What it met.
    pub tally: Tally,
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
    let mut rng = Rng::new(seed ^ (n as u64) << 56);
    let plot = plot.or_else(|| plots::any(&mut rng));
    let mut settings = settings::world_settings(&mut rng, text);
    // Megabytes cost real time, so that few runs have them.
    let long = plot.is_none() && rng.chance(25);
    if plot.is_some() {
        settings.pace = None;
    }
    if long {
        settings::tight_room(&mut rng, &mut settings);
    }
    observe(cast, seed, settings, |world| match plot {
        Some(plot) => {
            plot.play(world, &mut rng)?;
            let faulty = cast.replicas().filter(|id| !world.host(*id).is_correct());
            world.tally_mut().colluders += faulty.count() as u64;
            endings::end(world, &mut rng, None, ReplicaSet::EMPTY)
        }
        None => play(world, &mut rng, long),
    })
}

/// Runs a network of any protocol under `seed`: all that [`run`] lets go wrong but for what the fault
/// model of PBFT allows besides, Byzantine replicas and logs that are lost.
#[must_use]
pub fn run_correct<P: Simulated>(cast: &Arc<Cast>, seed: u64, text: bool) -> Run {
    let mut rng = Rng::new(seed ^ (cast.membership().n() as u64) << 56);
    let mut settings = settings::world_settings(&mut rng, text);
    // A protocol need not have these.
    settings.consensus.proposal_hooks = false;
    settings.consensus.execute_before_propose = false;
    observe::<P>(cast, seed, settings, |world| {
        go_wrong(world, &mut rng, false)?;
        endings::end_with_all(world)
    })
}

/// Plays a run, and says what came of it.
fn observe<P: Simulated>(
    cast: &Arc<Cast>,
    seed: u64,
    settings: WorldSettings,
    play: impl FnOnce(&mut World<P>) -> Result<(), Violation>,
) -> Run {
    let n = cast.membership().n();
    let fail = |violation| Box::new(Failure { seed, n, violation });
    let mut world = match World::of(cast, settings) {
        Ok(world) => world,
        Err(violation) => return Run { outcome: Err(fail(violation)), text: String::new() },
    };
    // A broken assertion of a replica is a finding like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| play(&mut world)));
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
        tally: world.tally(),
        virtual_ms: world.now().0 / 1_000_000,
        actors,
    });
    Run { outcome, text }
}

fn play(world: &mut World, rng: &mut Rng, long: bool) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let doom = endings::doom(rng, f);
    let reserved = doom.as_ref().map_or(0, |doom| doom.count);
    let counted = trouble::choose_faulty(world, rng, f - reserved);
    if rng.chance(200) {
        world.corrupt_client(1);
    }
    go_wrong(world, rng, long)?;
    endings::end(world, rng, doom, counted)
}

/// The time in which things go wrong.
fn go_wrong<P: Simulated>(
    world: &mut World<P>,
    rng: &mut Rng,
    long: bool,
) -> Result<(), Violation> {
    settings::own_links(world, rng);
    settings::habits(world, rng, long);
    let chaos = Duration::from_millis(rng.between(1000, 4000));
    for _ in 0..rng.between(1, 6) {
        let at = world.now() + rng.duration(Duration::from_millis(5), chaos);
        trouble::plan_trouble(world, rng, at);
    }
    world.run_for(chaos)
}
