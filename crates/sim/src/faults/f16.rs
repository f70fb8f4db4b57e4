//! f16, client MAC attack (Aardvark, NSDI'09).

use super::{EVERYBODY, Puppeteer, R0, R1, R2, R3, demand, four, millis};
use crate::customer::Workload;
use crate::{Crash, Violation};
use std::time::Duration;
use tercio_types::ReplicaId;

/// How often the client tries.
const ROUNDS: u64 = 6;
/// How long an honest request may take while it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client's MACs are good for some replicas only, in several ways.
///
/// As long as f+1 backups can vouch for the request, the others take their word for it, and nothing
/// else happens. Otherwise one view change follows at most; from then on this client has to sign,
/// and whatever else it sends under MACs does no harm. Another client's requests are executed all
/// along, with one replica down as well, and so is what the first one signs.
pub(super) fn run() -> Result<(), Violation> {
    vouched()?;
    poisoned(|primary| vec![primary], false)?;
    poisoned(|primary| backups(primary, 1), false)?;
    poisoned(|primary| backups(primary, 2), false)?;
    poisoned(|primary| backups(primary, 1), true)
}

fn backups(primary: ReplicaId, count: usize) -> Vec<ReplicaId> {
    EVERYBODY.into_iter().filter(|id| *id != primary).take(count).collect()
}

/// The primary and f+1 backups can check the request.
fn vouched() -> Result<(), Violation> {
    let mut world = four(&[])?;
    let mut liar = Puppeteer::new(&world.cast().clone(), 2);
    let package = liar.maced(&mut world, "vouched", &[R0, R1, R2]);
    liar.send(&mut world, &package, &[R0]);
    world.expect_within(millis(100), "execution of a request that f+1 vouch for", |world| {
        EVERYBODY.iter().all(|id| world.has_executed(*id, 2, 1))
    })
}

/// Fewer can, those that `good` gives for a primary; with `down`, a replica is down as well.
fn poisoned(good: fn(ReplicaId) -> Vec<ReplicaId>, down: bool) -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let mut liar = Puppeteer::new(&world.cast().clone(), 2);
    if down {
        world.crash(R3, Crash::Kill);
    }
    let running: Vec<_> = EVERYBODY.into_iter().filter(|id| world.host(*id).is_up()).collect();
    for round in 1..=ROUNDS {
        let good = good(world.primary());
        let poison = liar.maced(&mut world, "poison", &good);
        liar.send(&mut world, &poison, &EVERYBODY);
        world.run_for(millis(5))?;
        world.submit(1, &["honest"]);
        world.expect_within(PATIENCE, "an honest request", |world| world.customer(1).is_done())?;
        // Long enough for a timer that the poison started.
        world.run_for(Duration::from_secs(1))?;
        let changes = world.view_changes();
        demand(changes <= 1, "f16", || {
            format!("{changes} view changes after {round} requests with MACs good for {good:?}")
        })?;
        for id in &running {
            let changing = world.status(*id)?.protocol.changing;
            demand(!changing, "f16", || {
                format!("{id:?} left its view over a request with MACs good for {good:?}")
            })?;
        }
    }

    // It may sign what was refused.
    liar.next = 1;
    for op in ["poison"; ROUNDS as usize] {
        let signed = liar.signed(&mut world, op);
        liar.send(&mut world, &signed, &EVERYBODY);
    }
    world.expect_within(PATIENCE, "execution of what the client signs", |world| {
        running.iter().all(|id| (1..=ROUNDS).all(|seq| world.has_executed(*id, 2, seq)))
    })?;
    let changes = world.view_changes();
    demand(changes <= 1, "f16", || format!("{changes} view changes"))
}
