//! f31, request flooding by one client (hyperledger/fabric#796).

use super::{EVERYBODY, Puppeteer, R0, demand, four_with, millis};
use crate::Violation;
use crate::customer::Workload;
use crate::world::small_settings;
use tercio_consensus::{PoolLimits, Settings};

/// How many packages the flooder sends in a millisecond: several times what is ordered in it.
const BURST: u64 = 40;
/// How long one of them may take. The batch in flight, the flooder's 64 requests in 16 batches and
/// its own come one after the other here, at three hops of a millisecond each; two
/// more hops bring the request and the reply. This is the scenario's patience and nothing that a
/// replica waits for: how much may wait in a real one follows `QUEUE_TARGET` in
/// `crates/consensus/src/standing.rs`.
const MOMENT_MS: u64 = 3 * (1 + 16 + 1) + 2;
/// How many honest requests there are, one after the other.
const HONEST: usize = 20;

/// A client sends the primary far more than the network orders, and listens to nothing.
///
/// The replicas keep a bounded number of its requests and turn it away; what an honest client asks
/// for meanwhile is executed within moments, it is never told that there is no room, and no view
/// changes.
pub(super) fn run() -> Result<(), Violation> {
    let pool = PoolLimits { client_ops: 64, total_ops: 96, ..PoolLimits::default() };
    let settings = Settings { pool, pipeline: 1, ..small_settings() };
    let mut world = four_with(&[Workload::NONE], settings)?;
    let mut flooder = Puppeteer::new(&world.cast().clone(), 2);
    for round in 0..HONEST {
        world.submit(1, &["honest"]);
        for _ in 0..MOMENT_MS {
            for _ in 0..BURST {
                let package = flooder.maced(&mut world, "flood", &EVERYBODY);
                flooder.send(&mut world, &package, &[R0]);
            }
            world.run_for(millis(1))?;
        }
        demand(world.customer(1).is_done(), "f31", || {
            format!("honest request {round} is not executed after {MOMENT_MS} ms of a flood")
        })?;
    }
    let dropped = world.status(R0)?.dropped;
    // Numbers that found no room are not used, so that later ones are soon beyond the window.
    let reasons = ["declined_busy", "declined_beyond_window", "client_floods"];
    let turned_away: u64 = reasons.iter().filter_map(|reason| dropped.get(reason)).sum();
    let sent = HONEST as u64 * MOMENT_MS * BURST;
    demand(turned_away > sent / 2, "f31", || format!("{turned_away} of {sent}: {dropped:?}"))?;
    let pending = world.status(R0)?.protocol.pending;
    demand(pending <= 96, "f31", || format!("{pending} packages wait"))?;
    demand(world.view_changes() == 0, "f31", || "a view change".into())?;
    Ok(())
}
