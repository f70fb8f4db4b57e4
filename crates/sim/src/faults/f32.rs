//! f32, an unsigned, malformed or absurd request (bft-smart).

use super::{Puppeteer, R0, R1, R2, R3, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{FalseClient, Violation, World};
use bytes::Bytes;
use tercio_types::{ClientId, Principal, ReplicaId};
use tercio_wire::Frame;

const EVERYBODY: [ReplicaId; 4] = [R0, R1, R2, R3];

/// A client sends what is no request: every prefix of a good one, a good one with each byte changed,
/// noise, absurd lengths, a request in another client's name, one that nobody signed, one of a number
/// that is out of reach, and the same through a link of another client.
///
/// All of it is dropped or declined and counted by reason; nobody stops, nothing is executed, and the
/// client's good requests are.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let cast = world.cast().clone();
    let (client, other) = (Principal::Client(ClientId(2)), Principal::Client(ClientId(3)));
    let mut script = Puppeteer::new(&cast, 2);
    let mut senseless = senseless(&cast);
    let package = script.client.signed(1, &[Bytes::from_static(b"never")]);
    let good = script.client.request(&package);
    // Somebody else's link.
    send(&mut world, other, &good);
    for len in 0..good.len() {
        senseless.push(good.slice(..len));
    }
    for at in 0..good.len() {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        senseless.push(bytes.into());
    }
    for frame in &senseless {
        send(&mut world, client, frame);
    }
    world.run_for(millis(50))?;
    for id in EVERYBODY {
        let status = world.status(id)?;
        let dropped: u64 = status.dropped.values().sum();
        demand(status.height.0 == 0, "f32", || {
            format!("{id:?} executed something: {:?}", status.dropped)
        })?;
        demand(dropped >= senseless.len() as u64, "f32", || {
            format!("{id:?} counted {dropped} of {}", senseless.len())
        })?;
        for reason in ["not_the_peer", "bad_signature", "bad_mac"] {
            demand(status.dropped.contains_key(reason), "f32", || {
                format!("{id:?} counted no {reason}: {:?}", status.dropped)
            })?;
        }
    }
    let good = script.signed(&mut world, "at last");
    script.send(&mut world, &good, &EVERYBODY);
    world.submit(1, &["another's"]);
    world.expect_within(super::SOON, "execution", |world| {
        EVERYBODY.iter().all(|id| world.has_executed(*id, 2, 1))
    })?;
    settle(&mut world)
}

fn send(world: &mut World, from: Principal, frame: &Bytes) {
    for id in EVERYBODY {
        world.inject(from, Principal::Replica(id), frame.clone());
    }
}

/// Requests that nobody may believe.
fn senseless(cast: &std::sync::Arc<crate::Cast>) -> Vec<Bytes> {
    let op = [Bytes::from_static(b"never")];
    let me = FalseClient::new(cast, ClientId(2));
    let forged = FalseClient::new(cast, ClientId(3));
    let mut all: Vec<Bytes> = [0u8, 1, 0x7f, 0xff]
        .iter()
        .flat_map(|byte| [1usize, 4, 60, 4096].map(|len| Bytes::from(vec![*byte; len])))
        .collect();
    // Under a signature and under MACs that another client made.
    for of_another in [forged.signed(1, &op), forged.maced(1, &op, &EVERYBODY)] {
        let mut mine = me.signed(1, &op);
        mine.auth = of_another.auth;
        all.push(me.request(&mine));
    }
    // Under no good MAC, and with a body that is not the one that was authenticated.
    all.push(me.request(&me.maced(1, &op, &[])));
    let frame = Frame::decode(&me.request(&me.signed(1, &op)), cast.suite());
    let mut frame = frame.expect("our own frame");
    frame.body = [&frame.body[..], b"more"].concat().into();
    all.push(frame.to_bytes());
    all
}
