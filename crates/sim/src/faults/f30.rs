//! f30, sequence numbers beyond the watermarks (Castro and Liskov, TOCS'02 section 4.3).

use super::{Puppeteer, R0, R1, R2, R3, batch_of, demand, four, millis, settle};
use crate::Violation;
use crate::customer::Workload;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Digest, Principal, SeqNum, View};

/// The primary proposes batches for numbers far beyond the high watermark, and votes for them.
///
/// One window above the high watermark is kept at most; the rest is refused and counted, and memory
/// stays within its bounds. The requests of others are executed under the next primary.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let primary = world.puppet(R0);
    let package = Puppeteer::new(&world.cast().clone(), 2).signed(&mut world, "far away");
    let view = View(0);
    for i in 0..200 {
        let seq = SeqNum(10 + 7 * i);
        let batch = batch_of(&world, &package, 1000 + i);
        let digest = Digest([i as u8; 32]);
        for message in [
            PbftMessage::PrePrepare { view, seq, batch },
            PbftMessage::Prepare { view, seq, digest },
            PbftMessage::Commit { view, seq, digest },
        ] {
            let frame = primary.message(&message);
            for to in [R1, R2, R3] {
                world.inject(Principal::Replica(R0), Principal::Replica(to), frame.clone());
            }
        }
    }
    world.run_for(millis(50))?;
    for id in [R1, R2, R3] {
        let dropped = world.status(id)?.protocol.dropped;
        let refused = dropped.get("above_watermark").copied().unwrap_or(0);
        demand(refused >= 500, "f30", || format!("{id:?} refused {refused} of 600: {dropped:?}"))?;
    }
    world.submit(1, &["near"]);
    settle(&mut world)
}
