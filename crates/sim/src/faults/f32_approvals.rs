//! f32, an absurd request, its second half: a client that no honest operator approved.

use super::{Puppeteer, R0, R1, R2, R3, SOON, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{FalseClient, Forger, Violation};
use bytes::Bytes;
use tercio_crypto::SecretKey;
use tercio_types::{ClientInfo, ReplicaId, SignatureBytes, SystemOp};

const EVERYBODY: [ReplicaId; 4] = [R0, R1, R2, R3];

/// One operator is false, and f is one. It approves a newcomer alone, twice, in another operator's
/// name, and beside what another operator signed for somebody else. All of it is ordered.
///
/// The newcomer is nobody's client: what it asks for is not executed. On the word of two operators it
/// is, and then its requests are.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let cast = world.cast().clone();
    let secret = |seed: u8| SecretKey::derived_from(cast.suite(), &[seed; 32]);
    let info = ClientInfo::new(secret(1).public());
    let id = cast.membership().next_client().expect("there is room");
    let newcomer = FalseClient::stranger(&cast, id, secret(1));
    let (honest, false_one) = (Forger::new(&cast, R1), Forger::new(&cast, R3));
    let own = false_one.approval(&info);
    let elsewhere = honest.approval(&ClientInfo::new(secret(2).public()));
    let mut script = Puppeteer::new(&cast, 2);
    let ask = |script: &mut Puppeteer, approvals: &[(ReplicaId, SignatureBytes)]| {
        let op = SystemOp::AddClient { info: info.clone(), approvals: approvals.to_vec() };
        script.next += 1;
        script.client.system(script.next - 1, &op)
    };
    for approvals in [
        &[(R3, own)][..],
        &[(R3, own), (R3, own)],
        &[(R1, own), (R3, own)],
        &[(R1, elsewhere), (R3, own)],
    ] {
        let package = ask(&mut script, approvals);
        let height = world.status(R0)?.height;
        script.send(&mut world, &package, &EVERYBODY);
        world.expect_within(SOON, "the answer to forged approvals", |world| {
            EVERYBODY.iter().all(|id| world.status(*id).is_ok_and(|s| s.height > height))
        })?;
    }
    let mut newcomer = Puppeteer { client: newcomer, id, next: 1 };
    let never = newcomer.client.signed(1, &[Bytes::from_static(b"never")]);
    newcomer.send(&mut world, &never, &EVERYBODY);
    world.run_for(millis(300))?;
    for replica in EVERYBODY {
        demand(!world.has_executed(replica, id.0, 1), "f32", || {
            format!("{replica:?} serves a client that no honest operator approved")
        })?;
    }
    let package = ask(&mut script, &[(R1, honest.approval(&info)), (R3, own)]);
    let height = world.status(R0)?.height;
    script.send(&mut world, &package, &EVERYBODY);
    world.expect_within(SOON, "the addition", |world| {
        EVERYBODY.iter().all(|id| world.status(*id).is_ok_and(|s| s.height > height))
    })?;
    let good = newcomer.signed(&mut world, "at last");
    newcomer.send(&mut world, &good, &EVERYBODY);
    world.expect_within(SOON, "execution", |world| {
        EVERYBODY.iter().all(|replica| world.has_executed(*replica, id.0, 1))
    })?;
    settle(&mut world)
}
