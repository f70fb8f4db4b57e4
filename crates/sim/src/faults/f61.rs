//! f61, links across the world (one-way delays of 150 ms and more changed the view again and again).

use super::{EVERYBODY, R0, demand, millis};
use crate::customer::Workload;
use crate::{Cast, Crash, Fate, Quality, Violation, World, WorldSettings};
use std::cell::Cell;
use std::rc::Rc;
use tercio_client::ClientAuth;
use tercio_consensus::{ProtocolKind, Settings, pbft::Pbft};
use tercio_types::Principal;

/// How long replicas have to find out how far they are from each other.
const SETTLING_IN: u64 = 10_000;
/// For how long nothing may go wrong then.
const WATCHED: u64 = 30_000;

/// Replicas with the settings as they are shipped, each of them far from the others, and clients
/// near to all of them that want one thing after the other.
///
/// After ten seconds nobody leaves the view any more; a request takes four one-way delays; and what
/// is merely on its way is not sent again. When the primary is gone it is replaced all the same.
pub(super) fn run() -> Result<(), Violation> {
    far(150, 0)?;
    far(250, 0)?;
    far(300, 200)
}

fn far(delay: u64, jitter: u64) -> Result<(), Violation> {
    let work = Workload { packages: 10_000, ops: 1, under_way: 1, pause: millis(0) };
    let clients = vec![(ClientAuth::Mac, work), (ClientAuth::Signature, work)];
    let consensus = Settings::default();
    let settings = WorldSettings { clients, consensus, ..WorldSettings::default() };
    let mut world = World::new(&Cast::new(4), settings)?;
    let far = (millis(delay - jitter), millis(delay + jitter));
    for from in EVERYBODY.map(Principal::Replica) {
        for to in EVERYBODY.map(Principal::Replica) {
            world.network.set_link(from, to, Quality { delay: far, ..Quality::STEADY });
        }
    }
    world.run_for(millis(SETTLING_IN))?;
    let (views, done) = (world.view_changes(), world.acknowledged());
    let ordered = world.status(R0)?.protocol.delivered.0;
    let proposals = count_proposals(&mut world);
    world.run_for(millis(WATCHED))?;
    let what = format!("at {delay} ms and {jitter} more or less");
    let after = world.view_changes() - views;
    demand(after == 0, "f61", || format!("the view changed {after} times {what}"))?;
    for id in EVERYBODY {
        demand(!world.status(id)?.protocol.changing, "f61", || {
            format!("{id} has left its view {what}")
        })?;
    }
    let done = (world.acknowledged() - done) as u64;
    let each = 2 * WATCHED / done.max(1);
    demand(each <= 4 * delay, "f61", || format!("a request took {each} ms {what}"))?;
    let ordered = world.status(R0)?.protocol.delivered.0 - ordered;
    let sent = proposals.get();
    demand(sent <= 3 * ordered + ordered / 4, "f61", || {
        format!("{sent} PRE-PREPAREs to three backups for {ordered} numbers {what}")
    })?;
    world.lift_gate();
    // A dead primary has its time and its round trips, and no more than that. Where links do not keep
    // frames in order, a first proposal may overtake its NEW-VIEW, and is lost.
    let primary = world.status(R0)?.protocol.primary;
    world.crash(primary, Crash::Kill);
    let before = world.acknowledged();
    world.expect_within(
        millis(500 + 12 * 2 * (delay + jitter)),
        "going on without the primary",
        |world| world.acknowledged() > before + 4,
    )
}

/// Counts the PRE-PREPAREs from now on.
fn count_proposals(world: &mut World) -> Rc<Cell<u64>> {
    let count = Rc::new(Cell::new(0));
    let seen = count.clone();
    world.set_gate(move |passing| {
        if Pbft::message_name(passing.key.kind) == Some("PRE-PREPARE") {
            seen.set(seen.get() + 1);
        }
        Fate::Pass
    });
    count
}
