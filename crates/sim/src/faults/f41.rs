//! f41, a lost log (ours: the 'amnesia' that TOCS section 4 rules out by a disk that never fails).

use super::{Puppeteer, R0, R1, R2, R3, batch_of, demand, four, millis, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::{Crash, Fate, Violation, World};
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Height, Principal, SeqNum, View};

/// A backup votes, its disk is lost, and a faulty primary offers it another batch for the same
/// number. Then, in a network without a liar, a backup loses its disk under load, catches up, and
/// is needed: the primary goes down for good.
///
/// The backup without a log contradicts nothing that it said; once it has learnt enough it makes
/// up the quorum again.
pub(super) fn run() -> Result<(), Violation> {
    amnesia()?;
    takes_part_again()
}

/// One batch commits at R1 with R3's votes. The primary then wants the other one committed at R2.
fn amnesia() -> Result<(), Violation> {
    let mut world = four(&[])?;
    let primary = world.puppet(R0);
    let mut client = Puppeteer::new(&world.cast().clone(), 1);
    let package = client.signed(&mut world, "once");
    let (view, seq) = (View(0), SeqNum(1));
    let [first, second] = [1000, 2000].map(|time| batch_of(&world, &package, time));
    // R1 and R2 hear nothing of each other.
    world.network.isolate(R2, [R1, R3].map(Principal::Replica));
    let offer = |world: &mut World, batch: &std::sync::Arc<tercio_wire::EncodedBatch>, to| {
        let digest = batch.digest;
        let words = [
            PbftMessage::PrePrepare { view, seq, batch: batch.clone() },
            PbftMessage::Prepare { view, seq, digest },
            PbftMessage::Commit { view, seq, digest },
        ];
        for (word, to) in words.iter().flat_map(|word| [(word, R3), (word, to)]) {
            let frame = primary.message(word);
            world.inject(Principal::Replica(R0), Principal::Replica(to), frame);
        }
        world.run_for(millis(20))
    };
    offer(&mut world, &first, R1)?;
    demand(world.status(R1)?.height == Height(1), "f41", || "R1 did not execute it".into())?;
    world.crash(R3, Crash::Power);
    world.lose_disk(R3);
    world.network.mend();
    world.network.isolate(R1, [R2, R3].map(Principal::Replica));
    world.restart(R3)?;
    offer(&mut world, &second, R2)?;
    world.run_for(millis(2000))?;
    let learning = world.status(R3)?.protocol.learning;
    demand(learning.is_some(), "f41", || "R3 does not know that its log was lost".into())
}

fn takes_part_again() -> Result<(), Violation> {
    let work = Workload { packages: 120, ops: 1, under_way: 2, pause: millis(5) };
    let mut world = four(&[work])?;
    world.run_for(millis(100))?;
    world.crash(R3, Crash::Power);
    world.lose_disk(R3);
    let floor = std::rc::Rc::new(std::cell::Cell::new(false));
    let silent = floor.clone();
    world.set_gate(move |passing| {
        let binds = [kinds::PRE_PREPARE, kinds::PREPARE, kinds::COMMIT, kinds::VIEW_CHANGE];
        if passing.from == Principal::Replica(R3) && binds.contains(&passing.key.kind) {
            silent.set(true);
        }
        Fate::Pass
    });
    world.restart(R3)?;
    settle(&mut world)?;
    demand(!floor.get(), "f41", || "R3 voted in the view in which it lost its log".into())?;
    let status = world.status(R3)?.protocol;
    let known = status.learning.and_then(|learning| learning.floor);
    demand(known.is_some_and(|floor| status.stable >= floor.seq), "f41", || {
        format!("R3 did not learn enough: {:?}, stable {}", status.learning, status.stable)
    })?;
    world.crash(R0, Crash::Power);
    world.submit(1, &["without the primary"]);
    world.expect_within(super::SOON, "a quorum with R3", |world| world.customer(1).is_done())?;
    demand(world.status(R3)?.protocol.learning.is_none(), "f41", || {
        "R3 is still a learner in a later view".into()
    })?;
    world.restart(R0)?;
    settle(&mut world)
}
