//! f64, a write-ahead log that was cut, or is older than the blocks beside it (ours: an operator who
//! puts one directory back from a copy).

use super::{Puppeteer, R0, R1, R2, R3, batch_of, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Disk, Forger, Violation, World};
use std::sync::Arc;
use tercio_consensus::pbft::{PbftMessage, Report};
use tercio_ledger::Storage;
use tercio_types::{Batch, Principal, ReplicaId, SeqNum, Timestamp, View};
use tercio_wire::EncodedBatch;

/// A backup's write-ahead log alone is put back to an earlier copy, and a faulty primary, which says
/// that it knows of nothing, offers it another batch for a number that it voted at since. Its blocks
/// are as they were, so no signature of its own says that anything is missing. Then, under load, half
/// of the log is cut off, and the backup takes part again as after a loss.
pub(super) fn run() -> Result<(), Violation> {
    older()?;
    cut_to_half()
}

/// Says a proposal, and the primary's votes for it.
fn offer(world: &mut World, seq: u64, batch: &Arc<EncodedBatch>, to: &[ReplicaId]) {
    let primary = Forger::new(world.cast(), R0);
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

/// The disk as it is, with the write-ahead log as it was; the machine is down.
fn old_log(world: &World, id: ReplicaId, old: &Disk) -> Disk {
    let now = world.host(id).disk().copy();
    let mut files = now.files().clone();
    for name in files.list().unwrap_or_default().iter().filter(|name| name.starts_with("wal-")) {
        let before = old.files().contents(name).unwrap_or_default();
        files.edit(name, |bytes| *bytes = before);
    }
    now
}

/// The stable checkpoint at 2 says that the log had come as far as the votes for 2.
fn older() -> Result<(), Violation> {
    let mut world = four(&[])?;
    let primary = world.puppet(R0);
    let copy = world.host(R3).disk().copy();
    let mut client = Puppeteer::new(&world.cast().clone(), 1);
    for seq in 1..=2 {
        let packages = vec![client.signed(&mut world, if seq == 1 { "one" } else { "two" })];
        let batch = Batch { time: Timestamp(1000 * seq), checkpoint: true, packages };
        let batch = Arc::new(EncodedBatch::new(batch, world.cast().suite()));
        offer(&mut world, seq, &batch, &[R1, R2, R3]);
        world.run_for(millis(50))?;
    }
    demand(world.status(R3)?.protocol.stable == SeqNum(2), "f64", || {
        "R3 has no stable checkpoint".into()
    })?;
    let package = client.signed(&mut world, "once");
    let [first, second] = [3000, 4000].map(|time| batch_of(&world, &package, time));
    // R1 and R2 hear nothing of each other.
    world.network.isolate(R2, [R1, R3].map(Principal::Replica));
    offer(&mut world, 3, &first, &[R1, R3]);
    world.run_for(millis(20))?;
    world.crash(R3, Crash::Kill);
    let disk = old_log(&world, R3, &copy);
    world.put_back(R3, disk);
    world.network.mend();
    world.network.isolate(R1, [R2, R3].map(Principal::Replica));
    world.restart(R3)?;
    let nonce = world.now().0;
    let lie = Report { nonce, view: View(0), reach: SeqNum(0), said: None };
    let lie = primary.message(&PbftMessage::Report(lie));
    world.inject(Principal::Replica(R0), Principal::Replica(R3), lie);
    world.run_for(millis(20))?;
    offer(&mut world, 3, &second, &[R2, R3]);
    world.run_for(millis(2000))?;
    learns(&mut world)
}

fn learns(world: &mut World) -> Result<(), Violation> {
    let status = world.status(R3)?.protocol;
    demand(status.learning.is_some(), "f64", || "R3 takes its log for whole".into())
}

fn cut_to_half() -> Result<(), Violation> {
    let work = Workload { packages: 200, ops: 1, under_way: 2, pause: millis(5) };
    let mut world = four(&[work])?;
    world.expect_within(super::SOON, "a checkpoint", |world| {
        world.status(R3).is_ok_and(|status| status.protocol.stable > SeqNum(0))
    })?;
    world.run_for(millis(50))?;
    world.crash(R3, Crash::Kill);
    let disk = world.host(R3).disk().copy();
    let mut files = disk.files().clone();
    let names = files.list().unwrap_or_default();
    let last = names.iter().rfind(|name| name.starts_with("wal-")).expect("it has a log").clone();
    files.edit(&last, |bytes| bytes.truncate(bytes.len() / 2));
    world.put_back(R3, disk);
    world.restart(R3)?;
    learns(&mut world)?;
    settle(&mut world)?;
    world.crash(R0, Crash::Power);
    world.submit(1, &["without the primary"]);
    world.expect_within(super::SOON, "a quorum with R3", |world| world.customer(1).is_done())?;
    world.restart(R0)?;
    settle(&mut world)
}
