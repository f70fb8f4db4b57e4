//! A replica whose block log is damaged mends it with the others' help, while it serves; what nobody
//! can mend stops it, and names the place.

use crate::common;

use common::{Asker, CLIENT, Net};
use tercio_ledger::{MemStorage, Storage, audit};
use tercio_replica::Stages;
use tercio_replica::stages::{Outbox, ToLog, ToOrder};
use tercio_types::ReplicaId;

/// The files of the block log with what is in them.
fn segments(disk: &MemStorage) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().unwrap().into_iter().filter(|name| name.starts_with("blocks-"));
    names.map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

/// Four replicas with 30 blocks each.
fn four() -> (Net, Asker) {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 30);
    net.until("all are there", |net| net.agree());
    (net, asker)
}

fn flip_in_the_middle(disk: &mut MemStorage, name: &str) {
    disk.edit(name, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    });
}

#[test]
fn a_running_replica_finds_and_mends_damage() {
    let (mut net, asker) = four();
    let whole = segments(&net.disks[2]);
    assert!(whole.len() > 3);
    // All but the open one, a few of whose bytes may still be on their way.
    for (name, _) in &whole[..3] {
        flip_in_the_middle(&mut net.disks[2], name);
    }
    net.disks[2].remove(&whole[1].0).unwrap();
    net.until("it is found and mended", |net| {
        let repair = net.status(2).repair;
        repair.repaired >= 10 && repair.damaged == 0
    });
    assert_eq!(segments(&net.disks[2])[..3], whole[..3]);
    assert!(net.status(2).repair.scrubbed_bytes > 0);
    // It never stopped taking part.
    net.order(&asker, 31, 3);
    net.until("all are at one head", |net| net.agree() && net.all_at(33));
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
    net.stop(2);
    audit(&net.disks[2], &net.membership, &mut |_| {}).unwrap();
}

/// Damage above the last snapshot keeps blocks from being executed again; they come from others.
#[test]
fn a_replica_starts_with_a_damaged_log_and_mends_it() {
    let (whole, _) = four();
    for segment in 0..segments(&whole.disks[1]).len() {
        for snapshots in [true, false] {
            let (mut net, asker) = four();
            net.stop(1);
            let before = segments(&net.disks[1]);
            if !snapshots {
                let names = net.disks[1].list().unwrap();
                for name in names.iter().filter(|name| name.starts_with("snapshot-")) {
                    net.disks[1].remove(name).unwrap();
                }
            }
            let name = &before[segment].0;
            flip_in_the_middle(&mut net.disks[1], name);
            net.start(1);
            net.order(&asker, 31, 2);
            net.until("it is mended and all are at one head", |net| {
                let repair = net.status(1).repair;
                net.agree() && net.all_at(32) && repair.damaged == 0
            });
            assert!(net.stopped.is_empty(), "{:?}", net.stopped);
            net.until("the damage was found", |net| {
                let cut = net.status(1).repair.repaired == 0;
                !cut || segment + 1 == before.len()
            });
            let after = segments(&net.disks[1]);
            assert_eq!(after[..segment], before[..segment]);
            net.stop(1);
            audit(&net.disks[1], &net.membership, &mut |_| {}).unwrap();
        }
    }
}

/// When a peer asks for a block that cannot be read, the peer is told that it is not there, and the
/// block is mended.
#[test]
fn a_damaged_block_is_not_served() {
    let (mut net, asker) = four();
    net.cut.insert(ReplicaId(3));
    net.order(&asker, 31, 20);
    let name = segments(&net.disks[0])[4].0.clone();
    flip_in_the_middle(&mut net.disks[0], &name);
    net.cut.clear();
    net.order(&asker, 51, 1);
    net.until("all are at one head", |net| net.agree() && net.all_at(51));
    net.until("it is mended", |net| {
        let repair = net.status(0).repair;
        repair.repaired > 0 && repair.damaged == 0
    });
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
}

#[test]
fn what_nobody_has_stops_the_replica() {
    let (mut net, _) = four();
    let name = segments(&net.disks[0])[0].0.clone();
    for i in 0..4 {
        flip_in_the_middle(&mut net.disks[i], &name);
    }
    net.until("somebody gives up", |net| !net.stopped.is_empty());
    let text = net.stopped[0].1.to_string();
    assert!(text.contains(&name) && text.contains("no other replica has whole copies"), "{text}");
}

/// Nobody helps a network of one: it does not start, and names the place.
#[test]
fn a_single_replica_names_the_place() {
    let mut net = Net::new(1);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 5);
    net.stop(0);
    let name = segments(&net.disks[0])[0].0.clone();
    net.disks[0].edit(&name, |bytes| bytes[300] ^= 1);
    for snapshot in net.disks[0].list().unwrap().iter().filter(|n| n.starts_with("snapshot-")) {
        net.disks[0].remove(snapshot).unwrap();
    }
    let text = net.try_start(0).unwrap_err().to_string();
    assert!(text.contains(&name) && text.contains("damaged at byte"), "{text}");
}

/// The log is scrubbed a slice at a time, however small the blocks are; the log
/// says how it is when all that was asked for was looked at.
#[test]
fn scrubbing_comes_in_bites() {
    let (mut net, asker) = four();
    net.order(&asker, 31, 70);
    net.until("all are there", |net| net.agree() && net.all_at(100));
    net.stop(2);
    let mut disk = net.disks[2].clone();
    let mut stages: Stages =
        Stages::open(&net.settings(2), &disk, common::counter(), net.now).unwrap();
    let (log, mut out) = (&mut stages.log, Outbox::default());
    let blocks = log.extent().1.0 - log.extent().0.0 + 1;
    for (name, _) in segments(&disk) {
        disk.edit(&name, |bytes| bytes[200..].iter_mut().for_each(|byte| *byte ^= 0x55));
    }
    log.handle(ToLog::Scrub { bytes: 1 << 20 }, &mut out).unwrap();
    let mut bites = 0;
    while out.order.is_empty() {
        let before = log.blocks().damage().0;
        assert!(log.has_work());
        log.work(&mut out).unwrap();
        assert!(log.blocks().damage().0 - before <= 16, "too many in one go");
        bites += 1;
    }
    assert!(!log.has_work() && bites >= blocks / 16, "{bites} for {blocks} blocks");
    let Some(ToOrder::Health(health)) = out.order.pop_front() else { panic!("{:?}", out.order) };
    assert!(health.damaged + 1 >= blocks && health.scrubbed.is_some(), "{health:?}");
}
