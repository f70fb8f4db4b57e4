//! Fetching state from peers, honest and not: what hangs from a certificate is taken, piece by
//! piece, and nothing else.

use crate::common;

use bytes::Bytes;
use common::{Asker, CLIENT, Net, pbft, quick, secret};
use std::cell::Cell;
use std::rc::Rc;
use tercio_consensus::pbft::Pbft;
use tercio_crypto::{Instance, Keyring};
use tercio_execution::{
    APP, AppError, Application, Keyed, Operation, Outcome, StateView, Store, Transaction,
};
use tercio_ledger::{MemStorage, Storage};
use tercio_replica::NodeSettings;
use tercio_sync::transfer::TransferStatus;
use tercio_sync::transfer::message::{FetchState, Path, State};
use tercio_types::{Authenticator, Digest, Height, Principal, ReplicaId, SeqNum, Suite};
use tercio_wire::{Decode, Encode, Frame, Key, Kind};

/// Each operation writes under the key that its first two bytes are: 400 bytes, or as many times
/// 64 KiB as a third byte says; and it counts all operations under another key.
struct Notes;

impl Transaction for Notes {
    fn execute(
        &self,
        tx: &Operation,
        _: &tercio_execution::Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        let count =
            view.get(b"count").map_or(0, |b| u64::from_le_bytes(b[..8].try_into().unwrap()));
        view.put(b"count", &(count + 1).to_le_bytes());
        let len = tx.op.get(2).map_or(400, |n| usize::from(*n) << 16);
        let value: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + count) as u8).collect();
        view.put(&tx.op[..2], &value);
        result.extend_from_slice(&(count + 1).to_le_bytes());
        Outcome::Commit
    }

    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError> {
        Ok(store.get(question).map(|v| Bytes::copy_from_slice(v)).unwrap_or_default())
    }
}

fn notes() -> Box<dyn Application> {
    Box::new(Keyed::new(Notes, Suite::default()))
}

/// Peers let blocks go as soon as snapshots cover them.
fn forgetful(settings: &mut NodeSettings) {
    quick(settings);
    settings.ledger.blocks.retain_bytes = 1;
}

fn net(tune: fn(&mut NodeSettings)) -> Net<Pbft> {
    Net::with(4, Box::new(notes), Box::new(tune), pbft())
}

/// Operations that write under `keys` keys, one after the other, each asked of all.
fn write(net: &mut Net<Pbft>, asker: &Asker, first: u64, count: u64, keys: u64) {
    for number in first..first + count {
        let op: &'static [u8] = ((number % keys) as u16).to_be_bytes().to_vec().leak();
        net.ask(asker, number, &[op]);
        net.until("enough replies", |net| net.replies(asker.id, number).len() > 1);
    }
}

fn transfer(net: &Net<Pbft>, i: usize) -> TransferStatus {
    net.status(i).transfer.expect("state was fetched")
}

fn together(net: &mut Net<Pbft>, asker: &Asker, next: u64) {
    write(net, asker, next, 1, 1);
    net.until("all are at one head", |net| net.agree());
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
}

/// Replica 3 misses this many operations under `keys` keys, and loses its disk.
fn lose(net: &mut Net<Pbft>, asker: &Asker, count: u64, keys: u64) {
    net.stop(3);
    write(net, asker, 1, count, keys);
    net.disks[3] = Default::default();
}

/// The same, and it comes back.
fn come_back(net: &mut Net<Pbft>, asker: &Asker, count: u64, keys: u64) {
    lose(net, asker, count, keys);
    net.start(3);
    together(net, asker, count + 1);
}

fn restart(net: &mut Net<Pbft>) {
    net.stop(3);
    net.start(3);
}

#[test]
fn a_new_replica_joins_from_a_snapshot_alone() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    come_back(&mut net, &asker, 100, 60);
    let status = transfer(&net, 3);
    assert_eq!(status.phase, "done");
    assert!(status.height >= Height(60) && status.chunks > 5, "{status:?}");
    assert!(status.sources.iter().filter(|source| source.bytes > 0).count() >= 2, "{status:?}");
    // What was to come is about what came.
    assert!(status.state_bytes.abs_diff(status.bytes) < status.bytes / 2, "{status:?}");
    // It answers for what it never executed, and stays where it is over a restart.
    net.answers.clear();
    net.ask(&asker, 90, &[&[0, 30]]);
    net.settle();
    assert_eq!(net.replies(CLIENT, 90).len(), 4);
    let before = net.status(3);
    restart(&mut net);
    assert_eq!(net.status(3).block, before.block);
    together(&mut net, &asker, 102);
}

/// Only what differs travels: a replica that has an old state fetches the difference.
#[test]
fn what_is_here_already_is_not_fetched_again() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    write(&mut net, &asker, 1, 400, 400);
    net.until("all are at one head", |net| net.agree());
    net.cut.insert(ReplicaId(3));
    write(&mut net, &asker, 401, 60, 5);
    net.cut.clear();
    net.wire.clear();
    together(&mut net, &asker, 461);
    let status = transfer(&net, 3);
    assert_eq!(status.phase, "done");
    // 160 kB of state, of which five keys and one client's newest results are new.
    assert!(status.reused > 30 && status.chunks < 16 && status.bytes < 64 << 10, "{status:?}");
}

/// A chunk that is longer than an answer comes in parts.
#[test]
fn long_chunks_come_in_parts() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    net.stop(3);
    net.ask(&asker, 1, &[&[9, 9, 12]]);
    write(&mut net, &asker, 2, 59, 5);
    net.disks[3] = Default::default();
    net.start(3);
    together(&mut net, &asker, 61);
    let status = transfer(&net, 3);
    assert!(status.phase == "done" && status.bytes > 12 << 16, "{status:?}");
}

/// A lag puts results and states into the headers, late, and the engine has a chunk of its own.
#[test]
fn the_engines_own_chunk_comes_too() {
    let mut net = net(|settings| {
        forgetful(settings);
        settings.lag = 3;
    });
    let asker = Asker::new(CLIENT, &net.membership);
    come_back(&mut net, &asker, 60, 20);
    assert_eq!(transfer(&net, 3).phase, "done");
}

/// Far behind, a replica takes the shorter way: state, though peers have all blocks; and blocks,
/// when those are fewer bytes.
#[test]
fn the_shorter_way_is_taken() {
    for (keys, phase) in [(1, "done"), (100, "blocks")] {
        let mut net = net(|settings| {
            quick(settings);
            settings.sync.state_after = 20;
        });
        let asker = Asker::new(CLIENT, &net.membership);
        come_back(&mut net, &asker, 100, keys);
        assert_eq!(transfer(&net, 3).phase, phase);
    }
}

/// Nobody has a state above ours: blocks are fetched at once.
#[test]
fn far_behind_without_a_state_to_be_had() {
    let mut net = net(|settings| {
        quick(settings);
        settings.sync.state_after = 20;
        (settings.snapshot_every, settings.snapshot_bytes) = (0, 0);
    });
    let asker = Asker::new(CLIENT, &net.membership);
    come_back(&mut net, &asker, 100, 10);
    assert_eq!(transfer(&net, 3).phase, "blocks");
}

type Lie = Rc<dyn Fn(State) -> Option<Bytes>>;

/// Changes what `liars` answer about state, authenticated as theirs.
fn lie(net: &mut Net<Pbft>, liars: &'static [u16], lie: Lie) {
    let membership = net.membership.clone();
    net.tamper = Some(Box::new(move |from, to, bytes| {
        let mut frame = Frame::decode(bytes, Suite::default()).unwrap();
        let Principal::Replica(liar) = from else { return Some(bytes.clone()) };
        if frame.key.kind != Kind::STATE || !liars.contains(&liar.0) {
            return Some(bytes.clone());
        }
        frame.body = lie(State::from_bytes(&frame.body, Suite::default()).unwrap())?;
        frame.key.digest = tercio_crypto::hash(Suite::default(), &[&frame.body]);
        let key = secret(liar.index());
        let mut keyring = Keyring::new(from, key, membership.clone(), Instance::default());
        frame.auth = Authenticator::Mac(keyring.tag(to, &frame.key.to_array()).unwrap());
        Some(frame.to_bytes())
    }));
}

/// Two of three sources lie in this way; they are named, and the third gives it all.
fn survives(reason: &'static str, how: impl Fn(State) -> Option<Bytes> + 'static) {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    lose(&mut net, &asker, 100, 60);
    lie(&mut net, &[0, 1], Rc::new(how));
    net.start(3);
    together(&mut net, &asker, 101);
    let status = transfer(&net, 3);
    assert_eq!(status.phase, "done");
    let named = |id: u16| status.dropped.contains(&(ReplicaId(id), reason));
    assert!(named(0) || named(1), "{status:?}");
    assert!(status.dropped.iter().all(|(id, _)| *id != ReplicaId(2)), "{status:?}");
    assert!(net.status(3).dropped[reason] > 0);
}

fn honest(state: &State) -> Option<Bytes> {
    Some(state.to_bytes())
}

#[test]
fn a_source_that_sends_junk_is_dropped() {
    survives("state_junk", |state| match state {
        State::Offer(_) => honest(&state),
        _ => Some(Bytes::from_static(b"junk")),
    });
}

#[test]
fn a_source_that_sends_other_nodes_is_dropped() {
    survives("state_wrong_node", |mut state| {
        if let State::Nodes(subtrees) = &mut state {
            for subtree in subtrees {
                let mut bytes = subtree.to_vec();
                *bytes.last_mut().unwrap() ^= 1;
                *subtree = bytes.into();
            }
        }
        honest(&state)
    });
}

#[test]
fn a_source_that_sends_other_chunks_is_dropped() {
    survives("state_wrong_chunk", |mut state| {
        if let State::Chunks(parts) = &mut state {
            parts.iter_mut().for_each(|(_, part)| *part = Bytes::from_static(b"other"));
        }
        honest(&state)
    });
}

/// Chunks without an end fill no memory: an empty part that promises more ends it at once.
#[test]
fn a_source_whose_chunks_never_end_is_dropped() {
    survives("state_wrong_chunk", |mut state| {
        if let State::Chunks(parts) = &mut state {
            *parts = vec![(true, Bytes::new())];
        }
        honest(&state)
    });
}

/// Nor do parts that go on and on.
#[test]
fn a_source_whose_chunk_is_too_long_is_dropped() {
    let part = Bytes::from(vec![0; 2 << 20]);
    survives("state_wrong_chunk", move |mut state| {
        if let State::Chunks(parts) = &mut state {
            *parts = vec![(true, part.clone())];
        }
        honest(&state)
    });
}

#[test]
fn a_source_that_sends_nothing_is_dropped() {
    survives("state_none", |state| match state {
        State::Nodes(_) => honest(&State::Nodes(vec![])),
        State::Chunks(_) => honest(&State::Chunks(vec![])),
        State::Offer(_) => honest(&state),
    });
}

#[test]
fn a_source_that_falls_silent_is_dropped() {
    survives("state_timed_out", |state| match state {
        State::Offer(_) => honest(&state),
        _ => None,
    });
}

#[test]
fn an_offer_without_a_full_certificate_is_none() {
    survives("offer_wrong_certificate", |mut state| {
        if let State::Offer(Some(offer)) = &mut state {
            offer.certificate.signatures.truncate(2);
        }
        honest(&state)
    });
    survives("offer_wrong_certificate", |mut state| {
        if let State::Offer(Some(offer)) = &mut state {
            offer.certificate.checkpoint.state = Digest([7; 32]);
        }
        honest(&state)
    });
}

/// f48: more bytes of blocks than a certified height allows are a lie, and whoever says so is named.
#[test]
fn a_source_with_absurd_numbers_is_dropped() {
    for (number, all) in [(u64::MAX, true), (u64::MAX, false), (1 << 50, false)] {
        survives("offer_absurd", move |mut state| {
            if let State::Offer(Some(offer)) = &mut state {
                offer.chain_bytes = number;
                if all {
                    (offer.state_bytes, offer.block_bytes) = (number, number);
                }
            }
            honest(&state)
        });
    }
}

/// Numbers that nothing certified bounds mislead nobody into a panic, or away from the state.
#[test]
fn numbers_that_nobody_certifies_do_no_harm() {
    for (state_bytes, block_bytes, chain_bytes) in
        [(u64::MAX, 0, 0), (0, u64::MAX, 0), (u64::MAX, u64::MAX, 15 << 20), (0, 0, 1)]
    {
        let mut net = net(|settings| {
            forgetful(settings);
            settings.sync.state_after = 20;
        });
        let asker = Asker::new(CLIENT, &net.membership);
        lose(&mut net, &asker, 100, 60);
        lie(
            &mut net,
            &[0, 1, 2],
            Rc::new(move |mut state| {
                if let State::Offer(Some(offer)) = &mut state {
                    (offer.state_bytes, offer.block_bytes) = (state_bytes, block_bytes);
                    offer.chain_bytes = chain_bytes;
                }
                honest(&state)
            }),
        );
        net.start(3);
        together(&mut net, &asker, 101);
        let status = transfer(&net, 3);
        assert!(status.phase == "done" && status.dropped.is_empty(), "{status:?}");
        restart(&mut net);
        together(&mut net, &asker, 102);
    }
}

/// Says in the head of each snapshot on a disk that the chain has this many bytes.
fn set_chain_bytes(disk: &mut MemStorage, number: u64) {
    for name in snapshots(disk) {
        disk.edit(&name, |bytes| {
            let len = u32::from_le_bytes(bytes[44..48].try_into().unwrap()) as usize;
            bytes[52 + len - 8..52 + len].copy_from_slice(&number.to_le_bytes());
            let head = [&bytes[..48], &bytes[52..52 + len]].concat();
            bytes[48..52].copy_from_slice(&crc32fast::hash(&head).to_le_bytes());
        });
    }
}

/// f48: an earlier version wrote down whatever others said. A replica with such a snapshot starts,
/// goes on taking snapshots by the bytes of blocks, and what it offers is accepted.
#[test]
fn a_snapshot_with_an_absurd_number_does_no_harm() {
    let mut net = net(|settings| {
        forgetful(settings);
        (settings.snapshot_every, settings.snapshot_bytes) = (0, 1 << 11);
    });
    let asker = Asker::new(CLIENT, &net.membership);
    write(&mut net, &asker, 1, 100, 60);
    net.until("all are at one head", |net| net.agree());
    for i in [0, 3] {
        net.stop(i);
    }
    assert!(!snapshots(&net.disks[0]).is_empty());
    set_chain_bytes(&mut net.disks[0], u64::MAX);
    net.disks[3] = Default::default();
    net.start(0);
    let before = snapshots(&net.disks[0]);
    lie(&mut net, &[1, 2], Rc::new(|_| None));
    net.start(3);
    together(&mut net, &asker, 101);
    let status = transfer(&net, 3);
    let named = |(id, why): &(ReplicaId, &str)| *id == ReplicaId(0) || *why == "offer_absurd";
    assert!(status.phase == "done" && !status.dropped.iter().any(named), "{status:?}");
    write(&mut net, &asker, 102, 200, 60);
    net.until("all are at one head", |net| net.agree());
    for i in [0, 3] {
        let now = snapshots(&net.disks[i]);
        assert!(now.last() > before.last(), "replica {i}: {before:?} {now:?}");
    }
    restart(&mut net);
    together(&mut net, &asker, 302);
}

#[test]
fn a_source_that_takes_back_what_it_offered_is_dropped() {
    survives("offer_lowered", |state| match state {
        State::Offer(_) => honest(&state),
        _ => honest(&State::Offer(None)),
    });
}

#[test]
fn a_source_that_repeats_its_offer_instead_of_pieces_is_dropped() {
    let said = Cell::new(None);
    survives("offer_instead_of_pieces", move |state| {
        if let State::Offer(_) = &state {
            said.set(Some(state.to_bytes()));
        }
        let again = said.take();
        said.set(again.clone());
        again
    });
}

/// When all were dropped there is a pause, and then everybody has another chance.
#[test]
fn when_nobody_helps_another_round_begins() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    lose(&mut net, &asker, 100, 60);
    let lies = Rc::new(Cell::new(0));
    let told = lies.clone();
    lie(
        &mut net,
        &[0, 1, 2],
        Rc::new(move |state| match state {
            State::Chunks(_) if told.get() < 20 => {
                told.set(told.get() + 1);
                Some(Bytes::from_static(b"junk"))
            }
            _ => honest(&state),
        }),
    );
    net.start(3);
    together(&mut net, &asker, 101);
    let status = transfer(&net, 3);
    assert!(status.phase == "done" && status.dropped.len() == 3, "{status:?}");
    assert_eq!(lies.get(), 20);
}

/// Cut off in the midst, while the others go on and let go of what it was fetching.
#[test]
fn what_was_fetched_is_kept_when_the_sources_move_on() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    lose(&mut net, &asker, 400, 400);
    let seen = Cell::new(0);
    lie(
        &mut net,
        &[0, 1, 2],
        Rc::new(move |state| {
            if let State::Chunks(_) = &state {
                seen.set(seen.get() + 1);
                // The first answer arrives, and then none.
                return (seen.get() == 1).then(|| state.to_bytes());
            }
            honest(&state)
        }),
    );
    net.start(3);
    net.ask(&asker, 401, &[&[0, 1]]);
    net.until("some chunks came", |net| net.status(3).transfer.is_some_and(|t| t.chunks > 0));
    let first = transfer(&net, 3);
    net.cut.insert(ReplicaId(3));
    net.tamper = None;
    write(&mut net, &asker, 402, 60, 5);
    net.cut.clear();
    net.wire.clear();
    together(&mut net, &asker, 462);
    let status = transfer(&net, 3);
    assert!(status.phase == "done" && status.seq > first.seq, "{first:?} {status:?}");
    assert!(first.chunks > 0 && status.reused >= first.chunks / 2, "{first:?} {status:?}");
}

/// Stopped in the midst and started again, and the same when power fails, or what was kept is
/// damaged: what is whole of it is not fetched again, and what is not does no harm.
#[test]
fn a_fetch_that_was_cut_off_goes_on_after_a_restart() {
    for (harm, reused) in [("none", true), ("power", false), ("damage", true), ("header", false)] {
        let mut net = net(forgetful);
        let asker = Asker::new(CLIENT, &net.membership);
        lose(&mut net, &asker, 400, 400);
        let seen = Cell::new(0);
        lie(
            &mut net,
            &[0, 1, 2],
            // Half of what was asked for first, and then nothing more.
            Rc::new(move |mut state| {
                if let State::Chunks(parts) = &mut state {
                    parts.truncate(20);
                    return (seen.replace(seen.get() + 1) == 0).then(|| state.to_bytes());
                }
                honest(&state)
            }),
        );
        net.start(3);
        net.ask(&asker, 401, &[&[0, 1]]);
        net.until("some chunks came", |net| net.status(3).transfer.is_some_and(|t| t.chunks > 0));
        let first = transfer(&net, 3);
        net.stop(3);
        let kept = "pieces-0000000001";
        let len = net.disks[3].contents(kept).unwrap().len();
        match harm {
            "power" => net.disks[3].crash(&mut |_| 0),
            // Behind the nodes and a few chunks.
            "damage" => net.disks[3].edit(kept, |bytes| bytes[len * 3 / 4] ^= 1),
            "header" => net.disks[3].edit(kept, |bytes| bytes[9] ^= 1),
            _ => {}
        }
        net.tamper = None;
        net.wire.clear();
        net.start(3);
        together(&mut net, &asker, 402);
        let status = transfer(&net, 3);
        assert_eq!(status.phase, "done", "{harm}");
        let all = status.reused >= first.chunks / 2;
        assert!(first.chunks > 10 && all == reused, "{harm}: {first:?} {status:?}");
        // Whole, it is a snapshot and nothing else.
        let left = net.disks[3].list().unwrap();
        assert!(!left.iter().any(|name| name.starts_with("pieces-")), "{left:?}");
    }
}

/// Power fails at each change to the disk from the first question on: the replica starts again from
/// what is there, and comes to the same state.
/// What is kept of a state on disk has twice the state's length at most, as the sources give it.
#[test]
fn what_is_kept_on_disk_is_bounded() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    lose(&mut net, &asker, 400, 400);
    lie(
        &mut net,
        &[0, 1, 2],
        Rc::new(|mut state| match &mut state {
            State::Offer(Some(offer)) => {
                offer.state_bytes = 10_000;
                honest(&state)
            }
            State::Chunks(parts) => {
                // A little of what was asked for, so that it does not end.
                parts.truncate(2);
                honest(&state)
            }
            _ => honest(&state),
        }),
    );
    net.start(3);
    net.ask(&asker, 401, &[&[0, 1]]);
    net.until("more came than is kept", |net| {
        net.status(3).transfer.is_some_and(|t| t.chunks > 10 && t.bytes > 30_000)
    });
    let kept = net.disks[3].contents("pieces-0000000001").map_or(0, |bytes| bytes.len());
    assert!((1..=20_000).contains(&kept), "{kept}");
}

#[test]
fn a_crash_at_any_write_of_an_install_is_survived() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    net.stop(3);
    write(&mut net, &asker, 1, 60, 30);
    let (mut next, mut crashes) = (61, 0);
    for changes in 0..24 {
        net.disks[3] = Default::default();
        net.start(3);
        net.disks[3].fail_in(changes);
        write(&mut net, &asker, next, 1, 1);
        next += 1;
        net.until("it is there, or down", |net| net.nodes[3].is_none() || net.agree());
        if net.nodes[3].is_none() {
            crashes += 1;
            net.stopped.clear();
            let mut x = changes;
            net.disks[3].crash(&mut |n| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (x >> 33) % n
            });
            net.start(3);
        }
        net.disks[3].fail_in(u64::MAX);
        together(&mut net, &asker, next);
        next += 1;
        net.stop(3);
    }
    assert!(crashes > 12, "{crashes}");
}

/// The names of the snapshots on a disk.
fn snapshots(disk: &MemStorage) -> Vec<String> {
    let names = disk.list().unwrap().into_iter();
    names.filter(|name| name.starts_with("snapshot-")).collect()
}

/// A flipped bit anywhere in the latest snapshot: the one before it will do.
#[test]
fn a_damaged_snapshot_is_passed_over() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    write(&mut net, &asker, 1, 100, 60);
    net.until("all are at one head", |net| net.agree());
    let before = net.status(3);
    net.stop(3);
    let whole = net.disks[3].fork();
    let names = snapshots(&whole);
    assert!(names.len() >= 2, "{names:?}");
    let last = names.last().unwrap();
    let len = whole.contents(last).unwrap().len();
    for at in [0, 60, len / 3, len / 2, len - 60, len - 1] {
        net.disks[3] = whole.fork();
        net.disks[3].edit(last, |bytes| bytes[at] ^= 0x10);
        net.start(3);
        let status = net.status(3);
        assert_eq!((status.height, status.block), (before.height, before.block), "byte {at}");
        assert_eq!(status.dropped["snapshot_damaged"], 1);
        assert!(!snapshots(&net.disks[3]).contains(last));
        net.stop(3);
    }
    net.start(3);
    together(&mut net, &asker, 101);
}

/// No snapshot is whole any more, and the blocks below them are gone everywhere: the state comes
/// from the others. The replica goes on under the promises that its log has, and it is as well when
/// it starts again before that state is there.
#[test]
fn with_all_snapshots_damaged_the_state_is_fetched() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    write(&mut net, &asker, 1, 100, 60);
    net.until("all are at one head", |net| net.agree());
    net.stop(3);
    let damaged = snapshots(&net.disks[3]);
    for name in &damaged {
        net.disks[3].edit(name, |bytes| bytes[70] ^= 0x10);
    }
    for start in 0..2 {
        net.start(3);
        let status = net.status(3);
        assert_eq!(status.height, Height(0));
        assert_eq!(status.protocol.learning, None);
        let noticed = status.dropped.get("snapshot_damaged").copied();
        assert_eq!(noticed, (start == 0).then_some(damaged.len() as u64));
        assert!(snapshots(&net.disks[3]).is_empty());
        if start == 0 {
            net.stop(3);
            net.wire.clear();
        }
    }
    together(&mut net, &asker, 101);
    assert_eq!(transfer(&net, 3).phase, "done");
    let before = net.status(3);
    restart(&mut net);
    assert_eq!(net.status(3).block, before.block);
    together(&mut net, &asker, 102);
}

/// As long as the first block is here, the chain itself gives the state.
#[test]
fn with_all_blocks_no_snapshot_is_needed() {
    let mut net = net(quick);
    let asker = Asker::new(CLIENT, &net.membership);
    write(&mut net, &asker, 1, 60, 30);
    net.until("all are at one head", |net| net.agree());
    let before = net.status(3);
    net.stop(3);
    for name in snapshots(&net.disks[3]) {
        net.disks[3].edit(&name, |bytes| bytes[70] ^= 0x10);
    }
    net.start(3);
    assert_eq!((net.status(3).height, net.status(3).block), (before.height, before.block));
    together(&mut net, &asker, 61);
    assert!(net.status(3).transfer.is_none());
}

/// A replica that has nobody to ask names the file, and removes nothing.
#[test]
fn alone_with_damaged_snapshots_is_an_error() {
    let mut net = Net::with(1, Box::new(notes), Box::new(forgetful), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    for number in 1..=100 {
        net.ask(&asker, number, &[&[0, 7]]);
        net.until("a reply", |net| !net.replies(asker.id, number).is_empty());
    }
    net.stop(0);
    let names = snapshots(&net.disks[0]);
    assert!(!names.is_empty());
    for name in &names {
        net.disks[0].edit(name, |bytes| bytes[70] ^= 0x10);
    }
    for _ in 0..2 {
        let error = net.try_start(0).unwrap_err().to_string();
        assert!(error.contains("snapshot-") && error.contains("damaged"), "{error}");
        assert_eq!(snapshots(&net.disks[0]), names);
    }
}

/// A replica that is given a snapshot asks for trees and ways that there are not, and then for those
/// that there are: nobody stops, and what there is comes.
#[test]
fn questions_about_trees_that_are_not_there_do_no_harm() {
    let mut net = net(forgetful);
    let asker = Asker::new(CLIENT, &net.membership);
    write(&mut net, &asker, 1, 100, 60);
    net.until("all are at one head", |net| net.agree());
    net.settle();
    let (from, to) = (Principal::Replica(ReplicaId(0)), Principal::Replica(ReplicaId(1)));
    let mut keyring = Keyring::new(from, secret(0), net.membership.clone(), Instance::default());
    let last = snapshots(&net.disks[1]).pop().expect("there is a snapshot");
    let seq = SeqNum(last.trim_start_matches("snapshot-").parse().unwrap());
    let (root, other) = (Path::root(APP), Path::root(7));
    let deep = (0..200).fold(Path::root(APP), |path, i| path.then(i % 3 == 0));
    let nodes = |paths: &[&Path]| FetchState::Nodes {
        seq,
        paths: paths.iter().map(|path| (*path).clone()).collect(),
    };
    let chunks =
        |path: &Path, offset| FetchState::Chunks { seq, parts: vec![(path.clone(), offset)] };
    let questions = [
        nodes(&[&root, &other]),
        nodes(&[&root]),
        nodes(&[&deep, &root]),
        nodes(&[&other, &deep]),
        nodes(&[&deep]),
        chunks(&deep, u64::MAX),
        chunks(&root, 0),
        nodes(&[]),
        nodes(&[&root]),
    ];
    let mut answers = vec![];
    for (question, number) in questions.iter().zip(1..) {
        let body = question.to_bytes();
        let digest = tercio_crypto::hash(Suite::default(), &[&body]);
        let key = Key::of_replica(Kind::FETCH_STATE, ReplicaId(0), 0, number, digest);
        let auth = Authenticator::Mac(keyring.tag(to, &key.to_array()).unwrap());
        let (now, frame) = (net.now, Frame { key, auth, body }.to_bytes());
        net.nodes[1].as_mut().unwrap().handle_frame(from, &frame, now);
        net.work(1);
        for (_, _, bytes) in net.wire.drain(..).filter(|(_, to, _)| *to == from) {
            let frame = Frame::decode(&bytes, Suite::default()).unwrap();
            if frame.key.kind == Kind::STATE {
                answers.push(State::from_bytes(&frame.body, Suite::default()).unwrap());
            }
        }
    }
    let found: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            State::Nodes(nodes) => nodes.len(),
            State::Chunks(chunks) => chunks.len(),
            State::Offer(_) => usize::MAX,
        })
        .collect();
    assert_eq!(found, [1, 1, 0, 0, 0, 0, 0, 0, 1]);
    together(&mut net, &asker, 101);
}

/// However much a replica asks, this many of its questions wait and no more.
#[test]
fn questions_about_state_are_bounded() {
    let mut net = net(forgetful);
    let (from, to) = (Principal::Replica(ReplicaId(0)), Principal::Replica(ReplicaId(1)));
    let membership = net.membership.clone();
    let mut keyring = Keyring::new(from, secret(0), membership, Instance::default());
    let now = net.now;
    for number in 0..40 {
        let body = FetchState::Offer { height: Height(0) }.to_bytes();
        let digest = tercio_crypto::hash(Suite::default(), &[&body]);
        let kind = Kind::FETCH_STATE;
        let key = tercio_wire::Key::of_replica(kind, ReplicaId(0), 0, number, digest);
        let auth = Authenticator::Mac(keyring.tag(to, &key.to_array()).unwrap());
        let frame = Frame { key, auth, body }.to_bytes();
        net.nodes[1].as_mut().unwrap().handle_frame(from, &frame, now);
    }
    assert_eq!(net.status(1).dropped["fetch_state_too_many"], 24);
    net.work(1);
    let answers = net.wire.iter().filter(|(_, to, bytes)| {
        *to == from && Frame::decode(bytes, Suite::default()).unwrap().key.kind == Kind::STATE
    });
    assert_eq!(answers.count(), 16);
}
