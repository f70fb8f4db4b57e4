//! f59, floods of what is dear to check (ours; Aardvark, NSDI'09, schedules clients fairly for the like).

use super::{EVERYBODY, Puppeteer, R0, R1, R2, R3, demand, four, millis};
use crate::customer::Workload;
use crate::{Violation, World};
use tercio_types::{Authenticator, Package, Principal, ReplicaId, SignatureBytes};
use tercio_wire::Forward;

/// How many false signatures the client sends to each replica in a millisecond: more than a replica
/// could check.
const BURST: u64 = 20;
/// For how many milliseconds.
const FLOOD_MS: u64 = 100;
/// How many of those a replica checks at most: what costs 10 ms, a hundredth of the time, and a batch
/// that is under way.
const CHECKED: u64 = 300;
/// How often the faulty replica forwards a package that was executed before.
const OLD: usize = 3000;

/// A client sends every replica well-formed requests under false signatures, more than could be
/// checked; then a replica forwards an honest client's package that was executed before, thousands of
/// times.
///
/// Of the false ones a few are checked and the others dropped before that; the honest client is heard
/// all along, whatever is forwarded in its name; no view changes.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let liar = Puppeteer::new(&world.cast().clone(), 2);
    let package = spoilt(liar.client.signed(1, &[bytes::Bytes::from_static(b"false")]));
    for _ in 0..FLOOD_MS / 10 {
        world.submit(1, &["honest"]);
        for _ in 0..10 {
            (0..BURST).for_each(|_| liar.send(&mut world, &package, &EVERYBODY));
            world.run_for(millis(1))?;
        }
        demand(world.customer(1).is_done(), "f59", || "an honest request waits for 10 ms".into())?;
    }
    for id in EVERYBODY {
        let dropped = world.status(id)?.dropped;
        let of = |reason| dropped.get(reason).copied().unwrap_or(0);
        let (checked, sent) = (of("bad_signature"), BURST * FLOOD_MS);
        demand(checked <= CHECKED && checked + of("client_floods") == sent, "f59", || {
            format!("{id:?} checked {checked} false signatures of {sent}: {dropped:?}")
        })?;
    }
    old_forwards(&mut world)?;
    demand(world.view_changes() == 0, "f59", || "a view change".into())
}

/// R3 forwards what was executed long ago.
fn old_forwards(world: &mut World) -> Result<(), Violation> {
    let others: [ReplicaId; 3] = [R0, R1, R2];
    let mut honest = Puppeteer::new(&world.cast().clone(), 3);
    let first = honest.maced(world, "once", &EVERYBODY);
    honest.send(world, &first, &EVERYBODY);
    world.expect_within(millis(100), "execution", |world| {
        EVERYBODY.iter().all(|id| world.has_executed(*id, 3, 1))
    })?;
    let faulty = world.puppet(R3);
    let frame = faulty.message(&Forward(first));
    for _ in 0..OLD {
        for to in others {
            world.inject(Principal::Replica(R3), Principal::Replica(to), frame.clone());
        }
    }
    world.run_for(millis(5))?;
    let second = honest.maced(world, "again", &EVERYBODY);
    honest.send(world, &second, &others);
    world.expect_within(millis(100), "a request of a client whose old one is forwarded", |world| {
        others.iter().all(|id| world.has_executed(*id, 3, 2))
    })
}

/// The package, its signature altered.
fn spoilt(package: Package) -> Package {
    let Authenticator::Signature(signature) = &package.auth else { unreachable!("it is signed") };
    let mut altered = signature.as_slice().to_vec();
    altered[40] ^= 1;
    let auth = SignatureBytes::new(&altered).expect("as long as before").into();
    Package { auth, ..package }
}
