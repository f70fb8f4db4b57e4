//! Results are kept beside the blocks: the same at all replicas, whatever became of them, and proven
//! by certificates.

use crate::common;

use common::{Asker, CLIENT, Net, counter, pbft, quick};
use std::collections::BTreeMap;
use tercio_ledger::{AuditReport, BlockLog, BlockLogSettings, BlockResults, Storage, audit};
use tercio_replica::NodeSettings;
use tercio_types::Height;

/// Peers let blocks go as soon as snapshots cover them.
fn forgetful(settings: &mut NodeSettings) {
    quick(settings);
    settings.ledger.blocks.retain_bytes = 1;
}

/// Headers carry results and state.
fn lagging(settings: &mut NodeSettings) {
    quick(settings);
    settings.lag = 2;
}

fn four(tune: fn(&mut NodeSettings)) -> (Net, Asker) {
    let mut net = Net::with(4, Box::new(counter), Box::new(tune), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 30);
    net.until("one head", Net::agree);
    (net, asker)
}

fn audited(net: &Net, i: usize) -> AuditReport {
    audit(&net.disks[i], &net.membership, &mut |_| {}).unwrap()
}

fn kept(net: &Net, i: usize) -> BTreeMap<u64, BlockResults> {
    let settings = BlockLogSettings { blocks_per_segment: 8, ..Default::default() };
    let (storage, chain) = (Box::new(net.disks[i].fork()), net.membership.chain());
    let (mut log, _) = BlockLog::open(storage, chain, settings).unwrap();
    let (first, last) = log.results_extent().unwrap();
    let of = |height| (height, log.results(Height(height)).unwrap().unwrap());
    (first.0..=last.0).map(of).collect()
}

/// Stops all, and holds what they keep against each other, their blocks and their certificates.
/// Gives the lowest and the highest block of whose results each has.
fn compare(net: &mut Net) -> Vec<(u64, u64)> {
    net.until("one head", Net::agree);
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
    let head = net.status(0).height.0;
    (0..4).for_each(|i| net.stop(i));
    let all: Vec<_> = (0..4).map(|i| kept(net, i)).collect();
    for (i, own) in all.iter().enumerate() {
        for (height, results) in own {
            assert!(all.iter().all(|other| other.get(height).is_none_or(|r| r == results)));
        }
        let report = audited(net, i);
        assert_eq!(report.lost, [], "replica {i}");
        assert_eq!(report.results, own.len() as u64);
        let first = own.first_key_value().unwrap().0;
        let last = report.last_certified.unwrap();
        assert!(report.results_proven.iter().eq([&(Height(*first)..=last)]), "replica {i}");
        assert_eq!(own.last_key_value().unwrap().0, &head);
    }
    all.iter().map(|own| (*own.keys().next().unwrap(), *own.keys().last().unwrap())).collect()
}

#[test]
fn all_replicas_keep_the_same_results() {
    for tune in [quick, lagging] {
        let (mut net, asker) = four(tune);
        // One starts again; the power fails at another, and leaves nothing that was not synced; one
        // loses its disk, and fetches the blocks.
        net.stop(1);
        net.start(1);
        net.stop(2);
        net.disks[2].crash(&mut |_| 0);
        net.start(2);
        net.order(&asker, 31, 6);
        net.stop(3);
        net.disks[3] = Default::default();
        net.start(3);
        net.order(&asker, 37, 9);
        assert_eq!(compare(&mut net), [(1, 45); 4]);
    }
}

/// Whoever fetches a state keeps results from there on, and pruning takes them with the blocks.
#[test]
fn results_begin_behind_a_fetched_state_and_go_with_their_blocks() {
    let (mut net, asker) = four(forgetful);
    net.stop(3);
    net.disks[3] = Default::default();
    net.order(&asker, 31, 30);
    net.start(3);
    net.order(&asker, 61, 3);
    net.until("it has a state", |net| net.status(3).transfer.is_some() && net.agree());
    net.order(&asker, 64, 12);
    let kept = compare(&mut net);
    assert!(kept.iter().all(|(first, last)| *first > 8 && *last == 75), "{kept:?}");
    for disk in &net.disks {
        let names = disk.list().unwrap();
        let of = |what: &str| -> Vec<String> {
            let names = names.iter().filter_map(|name| name.strip_prefix(what));
            names.map(str::to_owned).collect()
        };
        assert_eq!(of("blocks"), of("results"));
    }
}

/// Results that a disk lost and that come again as blocks are executed again are mended; a replica
/// that computes others than it kept says so, and does not start.
#[test]
fn a_restart_mends_results_and_refuses_others() {
    let (mut net, asker) = four(quick);
    net.stop(1);
    let names = net.disks[1].list().unwrap();
    for name in names.iter().filter(|n| n.starts_with("snapshot-") || n.starts_with("results-")) {
        match name.starts_with("results-") && name.ends_with('1') {
            // The first file stays whole, so that what is behind it is missed.
            true => {}
            false => net.disks[1].remove(name).unwrap(),
        }
    }
    net.start(1);
    net.order(&asker, 31, 3);
    assert_eq!(compare(&mut net), [(1, 33); 4]);

    let (mut net, _) = four(quick);
    net.stop(1);
    let settings = BlockLogSettings { blocks_per_segment: 8, ..Default::default() };
    let chain = net.membership.chain();
    let storage = Box::new(net.disks[1].clone());
    let (mut log, _) = BlockLog::open(storage, chain, settings).unwrap();
    let mut others = log.results(Height(30)).unwrap().unwrap();
    drop(log);
    let last = names.iter().rfind(|name| name.starts_with("results-")).unwrap();
    net.disks[1].remove(last).unwrap();
    let (mut log, _) = BlockLog::open(Box::new(net.disks[1].clone()), chain, settings).unwrap();
    others.root.0[0] ^= 1;
    log.put_results(&others).unwrap();
    log.sync().unwrap();
    drop(log);
    let error = net.try_start(1).unwrap_err().to_string();
    assert!(error.starts_with(last) && error.contains("the results of block 30"), "{error}");
}
