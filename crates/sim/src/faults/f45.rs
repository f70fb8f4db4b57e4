//! f45, a record that replaces promises before what it stands on is durable (ours: a hostile review
//! found that a commit could fall between the two).

use super::{Puppeteer, R0, R1, R2, R3, batch_of, demand, four, millis, restart_unsuspected};
use crate::customer::Workload;
use crate::{Crash, Pace, Tear, Violation};
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Principal, SeqNum, View};

/// R3's disk is so slow that the log gets block, certificate and the record of the stable checkpoint
/// while a sync is under way, and commits whatever is there when that is over. The power fails at R3
/// at some point of that, with nothing left of what was not synced. When R3 is back, the primary lies:
/// it offers R3 other batches for the numbers that R3 has voted for.
///
/// R3 votes for none of them: it knows what it promised, or has the checkpoint that stands for it.
pub(super) fn run() -> Result<(), Violation> {
    let mut stable = 0;
    for tick in 0..40 {
        stable += u64::from(fail_after(tick * millis(1))?);
    }
    demand(stable > 0, "f45", || "the power never failed behind the checkpoint".into())
}

/// Whether R3 had the checkpoint when it was back.
fn fail_after(time: Duration) -> Result<bool, Violation> {
    let mut world = four(&[Workload::NONE])?;
    let sync = (millis(7), millis(7));
    world.host_mut(R3).set_pace(Pace { sync, stall: 0, split: 0 });
    for op in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        world.submit(1, &[op]);
        world.run_for(millis(8))?;
    }
    world.run_for(time)?;
    world.host_mut(R3).tear(Tear::Cut(0));
    world.crash(R3, Crash::Power);
    let primary = world.puppet(R0);
    world.network.isolate(R3, [R1, R2].map(Principal::Replica));
    restart_unsuspected(&mut world, R3)?;
    world.run_for(millis(20))?;
    let had = world.status(R3)?.protocol.stable >= SeqNum(1);
    let mut client = Puppeteer::new(&world.cast().clone(), 2);
    for seq in 1..=8 {
        let package = client.signed(&mut world, "another");
        let batch = batch_of(&world, &package, 1000 + seq);
        let offer = PbftMessage::PrePrepare { view: View(0), seq: SeqNum(seq), batch };
        world.inject(Principal::Replica(R0), Principal::Replica(R3), primary.message(&offer));
    }
    world.run_for(millis(50))?;
    Ok(had)
}
