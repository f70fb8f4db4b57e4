//! f63, clocks that are wrong (ours: a machine that booted ten years ahead).

use super::{EVERYBODY, R0, R3, demand, four_with, millis, settle};
use crate::customer::Workload;
use crate::{Violation, World, WorldSettings};
use std::time::Duration;
use tercio_consensus::Settings;
use tercio_types::ReplicaId;

/// How far a proposal may be ahead of a backup's clock.
const BOUND: Duration = Duration::from_secs(2);
const YEARS: i64 = 10 * 365 * 86_400_000_000;
const MINUTE: i64 = 60_000_000;
/// What the right clocks show when the world begins.
const BEGIN: i64 = 60 * MINUTE;

/// The primary's clock is ten years ahead for three seconds. Then a backup's clock is a minute behind
/// all others, and a minute ahead of them; and last those of two are ahead, one of which leads.
///
/// No primary takes agreed time further than the bound from the others' clocks; whose proposals are
/// refused is replaced; who has a wrong clock delivers what others agree on, and says that its clock
/// differs; and all that is asked for is done.
pub(super) fn run() -> Result<(), Violation> {
    years_ahead()?;
    a_minute_off(-MINUTE)?;
    a_minute_off(MINUTE)?;
    more_than_may_fail()
}

fn world() -> Result<World, Violation> {
    let work = Workload { packages: 60, ops: 1, under_way: 2, pause: millis(20) };
    let consensus = Settings { max_time_ahead: Some(BOUND), ..WorldSettings::default().consensus };
    let mut world = four_with(&[work], consensus)?;
    EVERYBODY.into_iter().for_each(|id| world.set_clock(id, BEGIN));
    Ok(world)
}

/// Agreed time is no further than the bound ahead of the world's, wherever it is known.
fn demand_time(world: &mut World) -> Result<(), Violation> {
    let latest = world.now().0 / 1000 + BEGIN as u64 + BOUND.as_micros() as u64;
    for id in EVERYBODY {
        let time = world.status(id)?.checkpoint.map_or(0, |checkpoint| checkpoint.time.0);
        demand(time <= latest, "f63", || {
            format!("agreed time is {} s ahead at {id:?}", (time - latest) / 1_000_000)
        })?;
    }
    Ok(())
}

fn years_ahead() -> Result<(), Violation> {
    let mut world = world()?;
    world.run_for(millis(100))?;
    world.set_clock(R0, BEGIN + YEARS);
    world.submit(1, &["while it is ahead"]);
    world.run_for(millis(3000))?;
    let status = world.status(R3)?.protocol;
    demand(status.view.0 > 0, "f63", || "its proposals are taken".into())?;
    world.set_clock(R0, BEGIN);
    settle(&mut world)?;
    demand_time(&mut world)
}

/// A backup alone has another time. It costs nobody anything.
fn a_minute_off(micros: i64) -> Result<(), Violation> {
    let mut world = world()?;
    world.set_clock(R3, BEGIN + micros);
    settle(&mut world)?;
    demand_time(&mut world)?;
    let clock = world.status(R3)?.protocol.clock;
    let differs = clock.is_some_and(|clock| {
        clock.decided && clock.refused == (micros < 0) && (clock.micros + micros).abs() < MINUTE / 2
    });
    demand(differs, "f63", || format!("R3 does not know that its clock differs: {clock:?}"))?;
    for id in EVERYBODY {
        let view = world.status(id)?.protocol.view;
        demand(view.0 == 0, "f63", || format!("{id:?} left its view"))?;
    }
    Ok(())
}

/// With two clocks ahead no quorum takes what either proposes, and a primary comes whose time a quorum
/// takes: a time that is behind does no harm.
fn more_than_may_fail() -> Result<(), Violation> {
    let mut world = world()?;
    for id in [R0, ReplicaId(1)] {
        world.set_clock(id, BEGIN + MINUTE);
    }
    settle(&mut world)?;
    demand_time(&mut world)?;
    let view = world.status(R3)?.protocol.view;
    demand(view.0 >= 2, "f63", || format!("view {view} has a wrong time"))
}
