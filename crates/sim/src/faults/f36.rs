//! f36, fsync error, full disk ('fsyncgate': a failed fsync marks the pages that it lost as clean).

use super::{Puppeteer, R0, R3, batch_of, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Tear, Violation};
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Principal, SeqNum, View};

/// Longer than what the log is lengthened by ahead, so that a vote needs room on the disk.
const OP: &str = match str::from_utf8(&[b'x'; 500]) {
    Ok(op) => op,
    Err(_) => unreachable!(),
};

/// An operation of a backup's disk fails on the way of its vote, each once; the disk fills up at
/// every byte of it. Then its power fails, and the primary offers it another batch for the same
/// number. And under load: a backup's disk fails or is full again and again.
///
/// The backup stops at the first failure, having promised nothing that is not on the disk; when it is
/// started again it contradicts nothing, and nothing that was acknowledged is lost.
pub(super) fn run() -> Result<(), Violation> {
    let mut stops = 0;
    for changes in 0..6 {
        stops += vote_over_a_fault(Crash::DiskFailsAfter(changes))?;
    }
    for bytes in (0..700).step_by(50) {
        stops += vote_over_a_fault(Crash::DiskFullAfter(bytes))?;
    }
    demand(stops > 8, "f36", || format!("the disk failed {stops} times only"))?;
    under_load()
}

fn vote_over_a_fault(fault: Crash) -> Result<u64, Violation> {
    let mut stopped = 0;
    for restarted_before_power_fails in [true, false] {
        let mut world = four(&[])?;
        let primary = world.puppet(R0);
        let package = Puppeteer::new(&world.cast().clone(), 1).signed(&mut world, OP);
        let (view, seq) = (View(0), SeqNum(1));
        for (i, time) in [1000, 2000].into_iter().enumerate() {
            if i == 0 {
                world.crash(R3, fault);
            }
            let batch = batch_of(&world, &package, time);
            let digest = batch.digest;
            let words = [
                PbftMessage::PrePrepare { view, seq, batch },
                PbftMessage::Prepare { view, seq, digest },
                PbftMessage::Commit { view, seq, digest },
            ];
            for word in &words {
                let frame = primary.message(word);
                world.inject(Principal::Replica(R0), Principal::Replica(R3), frame);
                world.run_for(millis(5))?;
            }
            stopped += u64::from(!world.host(R3).is_up());
            if restarted_before_power_fails {
                world.restart(R3)?;
                world.run_for(millis(5))?;
            }
            world.host_mut(R3).tear(Tear::Cut(0));
            world.crash(R3, Crash::Power);
            world.restart(R3)?;
            world.run_for(millis(5))?;
        }
    }
    Ok(stopped)
}

fn under_load() -> Result<(), Violation> {
    let work = Workload { packages: 150, ops: 2, under_way: 3, pause: millis(10) };
    let mut world = four(&[work, work])?;
    world.repair_after(R3, millis(30));
    for i in 0..12 {
        let fault = match i % 2 {
            0 => Crash::DiskFailsAfter(3 * i),
            _ => Crash::DiskFullAfter(150 * i),
        };
        world.crash(R3, fault);
        world.run_for(millis(90))?;
    }
    world.stop_trouble();
    world.restart(R3)?;
    let failures = world.tally().disk_failures;
    demand(failures > 5, "f36", || format!("the disk failed {failures} times only"))?;
    settle(&mut world)
}
