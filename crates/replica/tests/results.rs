//! Results are kept beside the blocks: the same at all replicas, whatever became of them, and proven
//! by certificates.

use crate::common;

use bytes::Bytes;
use common::{Asker, CLIENT, Net, counter, pbft, quick};
use std::collections::BTreeMap;
use tercio_crypto::{Instance, Keyring};
use tercio_ledger::{
    AuditReport, BlockLog, BlockLogSettings, BlockResults, SnapshotStore, Storage, audit,
    audit::results_at,
};
use tercio_replica::{Durability, NodeSettings};
use tercio_types::{Authenticator, Height, Principal, Suite};
use tercio_wire::{Frame, Kind, OpResult, Reader, encode_results, list};

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
    net.until("all is certified", all_certified);
    (net, asker)
}

/// Whether the head of all is, so that their results are written.
fn all_certified(net: &Net) -> bool {
    let stable = |i| net.status(i).protocol.stable;
    let certified = |i| audited(net, i).last_certified == Some(net.status(i).height);
    net.agree() && (0..4).all(|i| stable(i) == stable(0)) && (0..4).all(certified)
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
    net.until("all is certified", all_certified);
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

/// The power fails at any operation of the disk: whoever starts from a snapshot that is kept executes
/// nothing below it again, so the results up to it are there.
#[test]
fn a_snapshot_that_is_kept_has_its_results() {
    let unsynced = |settings: &mut NodeSettings| {
        quick(settings);
        settings.durability = Durability::Memory;
    };
    let mut kept = 0;
    for k in 0.. {
        let mut net = Net::with(4, Box::new(counter), Box::new(unsynced), pbft());
        let asker = Asker::new(CLIENT, &net.membership);
        net.disks[2].fail_in(k);
        net.order(&asker, 1, 10);
        let disk = net.disks[2].after_crash(&mut |_| 0);
        let chain = net.membership.chain();
        let store = SnapshotStore::open(Box::new(disk.fork()), chain).unwrap();
        if let Some(&seq) = store.kept().last() {
            kept += 1;
            let height = store.head(seq).unwrap().0.certificate.checkpoint.height;
            let found = results_at(&disk, chain, height).unwrap();
            assert!(found.is_some(), "results below the snapshot at {height} are gone");
        }
        if net.stopped.is_empty() {
            break;
        }
    }
    assert!(kept > 0);
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
    // It executes all of its log again.
    for name in net.disks[1].list().unwrap().iter().filter(|n| n.starts_with("snapshot-")) {
        net.disks[1].remove(name).unwrap();
    }
    net.disks[1].remove(last).unwrap();
    let (mut log, _) = BlockLog::open(Box::new(net.disks[1].clone()), chain, settings).unwrap();
    others.root.0[0] ^= 1;
    log.put_results(&others).unwrap();
    log.sync().unwrap();
    drop(log);
    let error = net.try_start(1).unwrap_err().to_string();
    assert!(error.starts_with(last) && error.contains("the results of block 30"), "{error}");
}

fn decode(body: &Bytes) -> Vec<BlockResults> {
    let mut input = Reader::new(body.clone(), Suite::default());
    let items = list::List::decode(&mut input, 64, "results").unwrap();
    let each = |item: Bytes| {
        let height = Height(u64::from_le_bytes(item[..8].try_into().unwrap()));
        BlockResults::decode(height, &item.slice(8..)).unwrap()
    };
    items.iter().map(each).collect()
}

fn encode(all: &[BlockResults]) -> Bytes {
    let mut out = Vec::new();
    list::encode(&mut out, all.len(), |i, out| {
        out.extend_from_slice(&all[i].height.0.to_le_bytes());
        out.extend_from_slice(&all[i].encode(false));
    });
    out.into()
}

/// Changes what `liars` answer about results, authenticated as theirs.
fn lie(net: &mut Net, liars: &'static [u16], lie: impl Fn(Vec<BlockResults>) -> Bytes + 'static) {
    let membership = net.membership.clone();
    net.tamper = Some(Box::new(move |from, to, bytes| {
        let mut frame = Frame::decode(bytes, Suite::default()).unwrap();
        let Principal::Replica(liar) = from else { return Some(bytes.clone()) };
        let about = frame.key.kind == Kind::STATE && frame.key.seq >> 62 == 1;
        if !about || !liars.contains(&liar.0) {
            return Some(bytes.clone());
        }
        frame.body = lie(decode(&frame.body));
        frame.key.digest = tercio_crypto::hash(Suite::default(), &[&frame.body]);
        let key = common::secret(liar.index());
        let mut keyring = Keyring::new(from, key, membership.clone(), Instance::default());
        frame.auth = Authenticator::Mac(keyring.tag(to, &frame.key.to_array()).unwrap());
        Some(frame.to_bytes())
    }));
}

/// Takes results of a running replica: one file is gone, a byte is flipped in another.
fn lose(net: &mut Net, i: usize) {
    let file = |first: u64| format!("results-{first:020}");
    net.disks[i].remove(&file(9)).unwrap();
    net.disks[i].edit(&file(1), |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    });
}

fn found_and_mended(net: &mut Net, i: usize) {
    net.until("they are found and mended", |net| {
        let repair = net.status(i).repair;
        repair.mended_results >= 9 && repair.lost_results == 0
    });
}

/// A replica that runs finds what it lost, and takes from the others what it must have been, and
/// nothing else: two of three lie in each of these ways.
#[test]
fn lost_results_come_from_others_and_from_no_liar() {
    let changed = |change: fn(&mut BlockResults)| {
        move |mut all: Vec<BlockResults>| {
            all.iter_mut().for_each(change);
            encode(&all)
        }
    };
    let other = encode_results(&[OpResult::Executed(Bytes::from_static(b"other"))]);
    let whole_lie = move |mut all: Vec<BlockResults>| {
        for i in (0..all.len()).rev() {
            all[i].replace(0, Ok(&other));
            all[i].root = all[i].digest(&all[i].packages[0]).unwrap();
            if i > 0 {
                all[i - 1].before = all[i].chained();
            }
        }
        encode(&all)
    };
    type How = Box<dyn Fn(Vec<BlockResults>) -> Bytes>;
    let lies: Vec<How> = vec![
        Box::new(|_| Bytes::from_static(b"junk")),
        Box::new(|_| encode(&[])),
        Box::new(|mut all| {
            all.reverse();
            encode(&all)
        }),
        Box::new(|all| encode(&all[1..])),
        Box::new(changed(|one| {
            let digest = one.digest(&one.packages[0]).unwrap();
            one.replace(0, Err(digest));
        })),
        Box::new(changed(|one| one.packages[0].first.0 += 1)),
        Box::new(changed(|one| one.packages.clear())),
        Box::new(changed(|one| one.root.0[3] ^= 1)),
        Box::new(changed(|one| one.before.0[3] ^= 1)),
        Box::new(changed(|one| one.height.0 += 8)),
        Box::new(whole_lie),
    ];
    for how in lies {
        let (mut net, asker) = four(quick);
        lie(&mut net, &[3, 0], how);
        lose(&mut net, 2);
        found_and_mended(&mut net, 2);
        net.order(&asker, 31, 3);
        assert_eq!(compare(&mut net), [(1, 33); 4]);
    }
}

/// Nobody else has them: the replica goes on, and says of them that they are lost.
#[test]
fn results_that_nobody_has_stop_nobody() {
    fn alone(settings: &mut NodeSettings) {
        quick(settings);
        settings.ledger.blocks.keep_results = settings.me.0 == 2;
    }
    let (mut net, asker) = four(alone);
    lose(&mut net, 2);
    net.until("they are found", |net| net.status(2).repair.lost_results == 9);
    net.order(&asker, 31, 30);
    net.until("all is certified", all_certified);
    assert!(net.stopped.is_empty() && net.status(2).repair.lost_results == 9);
    (0..4).for_each(|i| net.stop(i));
    let report = audited(&net, 2);
    assert_eq!((report.results, report.lost.len()), (51, 3), "{:?}", report.lost);
    assert_eq!((audited(&net, 0).results, audited(&net, 0).lost.len()), (0, 0));
}
