//! f03, state forgotten after a restart (Twins).

use super::{Puppeteer, R0, R3, batch_of, demand, four, millis, record};
use crate::checks::kinds;
use crate::{Crash, Violation};
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Principal, SeqNum, View};

/// A backup votes for a batch and is killed. When it is back, the primary offers it another batch
/// for the same number.
///
/// The backup says again what it said, and nothing else.
pub(super) fn run() -> Result<(), Violation> {
    for crash in [Crash::Kill, Crash::Power] {
        let mut world = four(&[])?;
        let primary = world.puppet(R0);
        let said = record(&mut world, R3);
        let package = Puppeteer::new(&world.cast().clone(), 1).signed(&mut world, "once");
        let (view, seq) = (View(0), SeqNum(1));
        let proposals = [1000, 2000].map(|time| batch_of(&world, &package, time));
        let first = proposals[0].digest;
        let mut repeated = Vec::new();
        for batch in proposals {
            let frame = primary.message(&PbftMessage::PrePrepare { view, seq, batch });
            world.inject(Principal::Replica(R0), Principal::Replica(R3), frame);
            world.run_for(millis(10))?;
            world.crash(R3, crash);
            world.run_for(millis(10))?;
            let before = said.borrow().len();
            world.restart(R3)?;
            world.run_for(millis(10))?;
            let again = said.borrow()[before..]
                .iter()
                .any(|key| key.kind == kinds::PREPARE && key.seq == 1 && key.digest == first);
            repeated.push(again);
        }
        demand(repeated == [true, true], "f03", || {
            format!("R3 repeated its vote after these restarts: {repeated:?}")
        })?;
    }
    Ok(())
}
