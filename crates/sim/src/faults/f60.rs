//! f60, large requests (eight of 900 KB every two seconds deposed a correct primary again and again).

use super::{EVERYBODY, Puppeteer, R0, demand, millis};
use crate::actors::Censor;
use crate::customer::Workload;
use crate::{Cast, Fate, Violation, World, WorldSettings};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_consensus::{Instant, Settings};
use tercio_types::{ClientId, Principal};

/// How many bytes a replica's link to all others takes in a millisecond, and a client's.
const REPLICA: u64 = 20_000;
const CLIENT: u64 = 100_000;
/// What is asked for at a time, and how often.
const AT_ONCE: u64 = 8;
const LENGTH: usize = 900_000;
const EVERY: u64 = 2_000;
const TIMES: u64 = 6;
/// What eight may take when nobody orders them: T and its half for handing on, the bytes at the
/// least rate that is counted on, and the view change.
const REPLACED: Duration = Duration::from_secs(6);

/// Links take bytes at a rate, one frame after the other. A client sends eight requests of 900 KB to
/// all replicas every two seconds, which takes the primary more than a second to ship. Then one asks
/// a primary for as much that passes it over.
///
/// Nobody leaves the view for the first, and others' requests go on; the second is replaced within
/// the bound that rule T7 gives.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = narrow(Workload { packages: 10_000, ops: 1, under_way: 1, pause: millis(5) })?;
    let mut large = Puppeteer::new(&world.cast().clone(), 2);
    let before = world.acknowledged();
    for _ in 0..TIMES {
        ask(&mut world, &mut large);
        world.run_for(millis(EVERY))?;
    }
    let changes = world.view_changes();
    demand(changes == 0, "f60", || format!("the view changed {changes} times"))?;
    let all = AT_ONCE * TIMES;
    world.expect_within(millis(2 * EVERY), "the large requests", |world| {
        EVERYBODY.into_iter().all(|id| (1..=all).all(|seq| world.has_executed(id, 2, seq)))
    })?;
    demand(world.view_changes() == 0, "f60", || "the view changed in the end".into())?;
    let small = world.acknowledged() - before;
    demand(small > 200, "f60", || format!("{small} small requests beside them"))?;

    let mut world = narrow(Workload::NONE)?;
    world.corrupt(R0, Box::new(Censor::new(2)));
    let mut large = Puppeteer::new(&world.cast().clone(), 2);
    ask(&mut world, &mut large);
    world.expect_within(REPLACED, "replacing a primary that passes over them", |world| {
        world.view_changes() > 0
    })?;
    world.expect_within(REPLACED, "what was passed over", |world| {
        (1..=AT_ONCE).all(|seq| world.has_executed(EVERYBODY[1], 2, seq))
    })
}

/// All replicas are asked for eight large operations.
fn ask(world: &mut World, large: &mut Puppeteer) {
    for _ in 0..AT_ONCE {
        let mut op = large.next.to_le_bytes().to_vec();
        op.resize(LENGTH, 0x5a);
        let package = large.client.signed(large.next, &[Bytes::from(op)]);
        large.next += 1;
        world.asked_for(&package);
        large.send(world, &package, &EVERYBODY);
    }
}

/// A network with the settings as they are shipped, whose links take so many bytes at a time.
fn narrow(work: Workload) -> Result<World, Violation> {
    let clients = vec![(ClientAuth::Mac, work)];
    let consensus = Settings::default();
    let settings = WorldSettings { clients, consensus, ..WorldSettings::default() };
    let mut world = World::new(&Cast::new(4), settings)?;
    let mut free: BTreeMap<Principal, Instant> = BTreeMap::new();
    world.set_gate(move |passing| {
        let rate = match passing.from {
            Principal::Replica(_) => REPLICA,
            Principal::Client(ClientId(_)) => CLIENT,
        };
        let takes = Duration::from_micros(1000 * passing.bytes.len() as u64 / rate);
        let begins = free.get(&passing.from).map_or(passing.now, |at| passing.now.max(*at));
        let ends = begins + takes;
        free.insert(passing.from, ends);
        Fate::After(ends.since(passing.now) + millis(1))
    });
    Ok(world)
}
