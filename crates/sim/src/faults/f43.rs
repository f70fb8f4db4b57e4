//! f43, long batches without checkpoints (ours: a window bounds numbers, and not how long the batches
//! are).

use super::{R0, R1, R2, R3, batch_of, demand, four_with, millis, settle};
use crate::customer::Workload;
use crate::world::small_settings;
use crate::{FalseClient, Violation};
use bytes::Bytes;
use tercio_consensus::Settings;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{ClientId, Principal, SeqNum, View};

/// How long the packages of the primary's client are.
const LONG: usize = 7 << 20;

/// The primary orders long packages of a client of its own and asks for no checkpoint; the next
/// that is due by number is far away.
///
/// The others take no more of them than fit the room that they have. The next primary, which has no
/// more than they, asks for a checkpoint first, and then orders what others want.
pub(super) fn run() -> Result<(), Violation> {
    let settings = Settings {
        checkpoint_interval: 64,
        window: 128,
        checkpoint_bytes: 1 << 20,
        held_bytes: 32 << 20,
        ..small_settings()
    };
    let room = settings.held_bytes;
    let mut world = four_with(&[Workload::NONE], settings)?;
    let primary = world.puppet(R0);
    let client = FalseClient::new(&world.cast().clone(), ClientId(2));
    for i in 1..=12 {
        let package = client.signed(i, &[Bytes::from(vec![i as u8; LONG])]);
        world.asked_for(&package);
        let batch = batch_of(&world, &package, 1000 + i);
        let frame =
            primary.message(&PbftMessage::PrePrepare { view: View(0), seq: SeqNum(i), batch });
        for to in [R1, R2, R3] {
            world.inject(Principal::Replica(R0), Principal::Replica(to), frame.clone());
        }
        world.run_for(millis(10))?;
    }
    for id in [R1, R2, R3] {
        let status = world.status(id)?.protocol;
        demand(status.delivered == SeqNum(4) && status.stable == SeqNum(0), "f43", || {
            format!("{id:?} delivered {}, stable {}", status.delivered, status.stable)
        })?;
        demand(status.batch_bytes <= room, "f43", || {
            format!("{id:?} keeps {} bytes of batches in {room}", status.batch_bytes)
        })?;
    }
    world.submit(1, &["short"]);
    settle(&mut world)?;
    let status = world.status(R1)?.protocol;
    demand(status.view == View(1) && status.stable >= SeqNum(5), "f43", || {
        format!("in view {} number {} is stable", status.view, status.stable)
    })
}
