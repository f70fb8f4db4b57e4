//! f51, a log that went back in time (ours: a restored copy of a disk).

use super::{EVERYBODY, Puppeteer, R0, R1, R2, R3, batch_of, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Violation, World};
use std::sync::Arc;
use tercio_consensus::pbft::{PbftMessage, Report};
use tercio_types::{Batch, Height, Principal, ReplicaId, SeqNum, Timestamp, View};
use tercio_wire::EncodedBatch;

/// A backup's disk is put back to an earlier copy, and a faulty primary offers it another batch for
/// a number that it voted at since. Then, in a network without a liar, the same happens under load,
/// and the backup is needed: the primary goes down for good. Last, everybody starts again at once,
/// and then one after the other while one is down.
///
/// The backup contradicts nothing that it said, and makes up the quorum again once it has learnt
/// enough. Nobody whose disk is as it was is kept from anything.
pub(super) fn run() -> Result<(), Violation> {
    colluders()?;
    takes_part_again()?;
    nobody_is_suspected()
}

/// Says a proposal, and the primary's votes for it.
fn offer(world: &mut World, seq: u64, batch: &Arc<EncodedBatch>, to: &[ReplicaId]) {
    let primary = crate::Forger::new(world.cast(), R0);
    let (view, seq, digest) = (View(0), SeqNum(seq), batch.digest);
    let words = [
        PbftMessage::PrePrepare { view, seq, batch: batch.clone() },
        PbftMessage::Prepare { view, seq, digest },
        PbftMessage::Commit { view, seq, digest },
    ];
    for (word, to) in words.iter().flat_map(|word| to.iter().map(move |to| (word, to))) {
        let frame = primary.message(word);
        world.inject(Principal::Replica(R0), Principal::Replica(*to), frame);
    }
}

/// One batch commits at R1 with R3's votes, of which nothing is left. The primary then wants the
/// other one committed at R2, and tells R3 that it knows of nothing.
fn colluders() -> Result<(), Violation> {
    let mut world = four(&[])?;
    let primary = world.puppet(R0);
    let copy = world.host(R3).disk().copy();
    let mut client = Puppeteer::new(&world.cast().clone(), 1);
    let package = client.signed(&mut world, "before");
    let packages = vec![package];
    let before = Batch { time: Timestamp(1000), checkpoint: true, packages };
    let before = Arc::new(EncodedBatch::new(before, world.cast().suite()));
    offer(&mut world, 1, &before, &[R1, R2, R3]);
    world.run_for(millis(20))?;
    demand(world.status(R3)?.protocol.stable == SeqNum(1), "f51", || {
        "nobody has R3's word on a state".into()
    })?;
    // R1 and R2 hear nothing of each other.
    world.network.isolate(R2, [R1, R3].map(Principal::Replica));
    let package = client.signed(&mut world, "once");
    let [first, second] = [2000, 3000].map(|time| batch_of(&world, &package, time));
    offer(&mut world, 2, &first, &[R1, R3]);
    world.run_for(millis(20))?;
    demand(world.status(R1)?.height == Height(2), "f51", || "R1 did not execute it".into())?;
    world.crash(R3, Crash::Power);
    world.put_back(R3, copy);
    world.network.mend();
    world.network.isolate(R1, [R2, R3].map(Principal::Replica));
    world.restart(R3)?;
    let nonce = world.now().0;
    let lie = Report { nonce, view: View(0), reach: SeqNum(0), said: None };
    let lie = primary.message(&PbftMessage::Report(lie));
    world.inject(Principal::Replica(R0), Principal::Replica(R3), lie);
    world.run_for(millis(20))?;
    offer(&mut world, 2, &second, &[R2, R3]);
    world.run_for(millis(2000))?;
    let status = world.status(R3)?.protocol;
    demand(status.learning.is_some(), "f51", || "R3 does not know that its log went back".into())
}

fn takes_part_again() -> Result<(), Violation> {
    let work = Workload { packages: 120, ops: 1, under_way: 2, pause: millis(5) };
    let mut world = four(&[work])?;
    world.run_for(millis(50))?;
    let copy = world.host(R3).disk().copy();
    world.run_for(millis(100))?;
    world.crash(R3, Crash::Power);
    world.put_back(R3, copy);
    world.restart(R3)?;
    settle(&mut world)?;
    let status = world.status(R3)?.protocol;
    let known = status.learning.and_then(|learning| learning.floor);
    demand(known.is_some_and(|floor| status.stable >= floor.seq), "f51", || {
        format!("R3 did not learn enough: {:?}, stable {}", status.learning, status.stable)
    })?;
    world.crash(R0, Crash::Power);
    world.submit(1, &["without the primary"]);
    world.expect_within(super::SOON, "a quorum with R3", |world| world.customer(1).is_done())?;
    demand(world.status(R3)?.protocol.learning.is_none(), "f51", || {
        "R3 is still a learner in a later view".into()
    })?;
    world.restart(R0)?;
    settle(&mut world)
}

fn nobody_is_suspected() -> Result<(), Violation> {
    let work = Workload { packages: 40, ops: 1, under_way: 2, pause: millis(5) };
    let mut world = four(&[work])?;
    world.run_for(millis(100))?;
    EVERYBODY.into_iter().for_each(|id| world.crash(id, Crash::Power));
    world.run_for(millis(100))?;
    EVERYBODY.into_iter().try_for_each(|id| world.restart(id))?;
    settle(&mut world)?;
    world.crash(R3, Crash::Power);
    for id in [R0, R1, R2] {
        world.crash(id, Crash::Kill);
        world.run_for(millis(10))?;
        world.restart(id)?;
        world.submit(1, &["while one is down"]);
        world.expect_within(super::SOON, "a quorum", |world| world.customer(1).is_done())?;
    }
    world.restart(R3)?;
    settle(&mut world)?;
    EVERYBODY.into_iter().try_for_each(|id| {
        let learning = world.status(id)?.protocol.learning;
        demand(learning.is_none(), "f51", || format!("{id:?} takes its log for lost"))
    })
}
