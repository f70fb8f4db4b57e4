//! Catching up from peers, honest and not: nothing uncertified is ever executed.

use crate::common;

use bytes::Bytes;
use common::{Asker, CLIENT, Net, membership, pbft, quick, secret};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tercio_consensus::{Instant, Settings};
use tercio_crypto::{Instance, Keyring};
use tercio_execution::{AppError, Application, Context, Operation, Replies, Snapshot, chunks_root};
use tercio_ledger::{Block, Storage};
use tercio_replica::{NodeError, NodeSettings};
use tercio_sync::transfer::message::State;
use tercio_sync::transfer::{Transfer, TransferStep};
use tercio_sync::{Blocks, CatchUp, CatchUpStep, SyncSettings, Tip, buffer_bytes};
use tercio_types::{
    Authenticator, BlockHeader, CertifiedCheckpoint, Checkpoint, Digest, EMPTY_ROOT, Epoch, Height,
    Membership, Principal, ReplicaId, SeqNum, Suite, Timestamp,
};
use tercio_wire::{Decode, Encode, Frame, Kind, block_hash, checkpoint_key};

/// Replica 3 misses `count` requests while it is cut off.
fn lagging(net: &mut Net, asker: &Asker, count: u64) {
    net.cut.insert(ReplicaId(3));
    net.order(asker, 1, count);
    net.cut.clear();
    net.wire.clear();
}

fn caught_up(net: &mut Net, asker: &Asker, count: u64) {
    net.order(asker, count + 1, 1);
    net.until("all are at one head", |net| net.agree());
    assert!(net.all_at(count + 1));
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
}

#[test]
fn one_that_was_cut_off_comes_back_through_certified_blocks() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    lagging(&mut net, &asker, 60);
    let fetched = count_kind(&mut net, Kind::BLOCKS);
    caught_up(&mut net, &asker, 60);
    assert!(*fetched.lock().unwrap() > 0, "it came as blocks");
    // What came as blocks answers clients that ask again.
    net.answers.clear();
    net.ask(&asker, 30, &[b"op"]);
    net.settle();
    assert_eq!(net.replies(CLIENT, 30).len(), 4);
    // And it stays where it is over a restart.
    let before = net.status(3);
    net.stop(3);
    net.start(3);
    assert_eq!(net.status(3).block, before.block);
}

#[test]
fn a_fresh_disk_is_filled_again() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 50);
    net.until("all are there", |net| net.agree());
    net.stop(2);
    net.disks[2] = Default::default();
    net.start(2);
    caught_up(&mut net, &asker, 50);
}

/// More than one answer for an interval, and more intervals than one.
#[test]
fn megabytes_come_in_answers_of_about_one() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    let op: &'static [u8] = vec![7; 400 << 10].leak();
    net.cut.insert(ReplicaId(3));
    for number in 1..=30 {
        net.ask(&asker, number, &[op]);
        net.until("it is answered", |net| net.replies(CLIENT, number).len() > 1);
    }
    net.cut.clear();
    net.wire.clear();
    let sizes = Arc::new(Mutex::new(vec![]));
    let seen = sizes.clone();
    net.tamper = Some(Box::new(move |_, _, bytes| {
        if Frame::decode(bytes, Suite::default()).unwrap().key.kind == Kind::BLOCKS {
            seen.lock().unwrap().push(bytes.len());
        }
        Some(bytes.clone())
    }));
    caught_up(&mut net, &asker, 30);
    let sizes = sizes.lock().unwrap();
    assert!(sizes.len() >= 12 && sizes.iter().all(|size| *size < 3 << 19), "{sizes:?}");
}

/// Counts frames of a kind that pass.
fn count_kind(net: &mut Net, kind: Kind) -> Arc<Mutex<u64>> {
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    net.tamper = Some(Box::new(move |_, _, bytes| {
        if Frame::decode(bytes, Suite::default()).unwrap().key.kind == kind {
            *counted.lock().unwrap() += 1;
        }
        Some(bytes.clone())
    }));
    count
}

/// Changes what `liars` answer to requests for blocks, authenticated as theirs.
fn lie(net: &mut Net, liars: &'static [u16], lie: impl Fn(Blocks) -> Bytes + 'static) {
    let membership = net.membership.clone();
    net.tamper = Some(Box::new(move |from, to, bytes| {
        let mut frame = Frame::decode(bytes, Suite::default()).unwrap();
        let Principal::Replica(liar) = from else { return Some(bytes.clone()) };
        if frame.key.kind != Kind::BLOCKS || !liars.contains(&liar.0) {
            return Some(bytes.clone());
        }
        frame.body = lie(Blocks::from_bytes(&frame.body, Suite::default()).unwrap());
        frame.key.digest = tercio_crypto::hash(Suite::default(), &[&frame.body]);
        let key = secret(liar.index());
        let mut keyring = Keyring::new(from, key, membership.clone(), Instance::default());
        frame.auth = Authenticator::Mac(keyring.tag(to, &frame.key.to_array()).unwrap());
        Some(frame.to_bytes())
    }));
}

/// Two of the three that could help lie in this way; it is counted, and the third is found.
fn survives(reason: &'static str, how: impl Fn(Blocks) -> Bytes + 'static) {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    lagging(&mut net, &asker, 60);
    // The first that is asked is the next in order: replica 0.
    lie(&mut net, &[0, 1], how);
    caught_up(&mut net, &asker, 60);
    let dropped = net.status(3).dropped;
    assert!(dropped.get(reason).is_some_and(|n| *n > 0), "{reason}: {dropped:?}");
}

#[test]
fn junk_is_passed_over() {
    survives("blocks_junk", |_| Bytes::from_static(b"junk"));
}

#[test]
fn silence_of_all_blocks_is_passed_over() {
    survives("blocks_none", |_| Blocks { blocks: vec![], certificate: None }.to_bytes());
}

#[test]
fn another_chain_is_passed_over() {
    survives("blocks_wrong_chain", |mut blocks| {
        if let Some(first) = blocks.blocks.first_mut() {
            first.header.parent.0[0] ^= 1;
        }
        blocks.to_bytes()
    });
}

#[test]
fn another_body_is_passed_over() {
    survives("blocks_wrong_body", |mut blocks| {
        if let Some(last) = blocks.blocks.last_mut() {
            let mut body = last.body.to_vec();
            body[0] ^= 1;
            last.body = body.into();
        }
        blocks.to_bytes()
    });
}

/// A chain that is whole in itself, but that nobody signed.
fn forged(mut blocks: Blocks) -> Blocks {
    let mut parent = None;
    for block in &mut blocks.blocks {
        block.header.time.0 += 1;
        if let Some(parent) = parent {
            block.header.parent = parent;
        }
        parent = Some(block_hash(&block.header));
    }
    blocks
}

#[test]
fn a_chain_with_the_certificate_of_another_is_passed_over() {
    survives("blocks_wrong_certificate", |blocks| forged(blocks).to_bytes());
}

#[test]
fn a_chain_with_a_forged_certificate_is_passed_over() {
    survives("blocks_wrong_certificate", |blocks| {
        let mut blocks = forged(blocks);
        if let (Some(certificate), Some(last)) = (&mut blocks.certificate, blocks.blocks.last()) {
            certificate.checkpoint.block = block_hash(&last.header);
        }
        blocks.to_bytes()
    });
}

#[test]
fn a_chain_without_certificate_is_never_executed() {
    survives("blocks_wrong_chain", |blocks| {
        Blocks { certificate: None, ..forged(blocks) }.to_bytes()
    });
}

/// Fewer signatures than a quorum, or one twice.
#[test]
fn a_certificate_without_quorum_is_passed_over() {
    survives("blocks_wrong_certificate", |mut blocks| {
        if let Some(certificate) = &mut blocks.certificate {
            certificate.signatures.truncate(2);
        }
        blocks.to_bytes()
    });
}

#[test]
fn one_that_does_not_answer_is_passed_over() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    lagging(&mut net, &asker, 60);
    net.tamper = Some(Box::new(|from, _, bytes| {
        let kind = Frame::decode(bytes, Suite::default()).unwrap().key.kind;
        let silent = kind == Kind::BLOCKS && from != Principal::Replica(ReplicaId(2));
        (!silent).then(|| bytes.clone())
    }));
    caught_up(&mut net, &asker, 60);
    assert!(net.status(3).dropped["blocks_timed_out"] > 0);
}

/// What nobody asked for is not even looked at.
#[test]
fn blocks_that_were_not_asked_for_are_dropped() {
    let mut net = Net::new(4);
    let membership = net.membership.clone();
    let (from, to) = (Principal::Replica(ReplicaId(0)), Principal::Replica(ReplicaId(1)));
    let mut keyring = Keyring::new(from, secret(0), membership, Instance::default());
    let body = Blocks { blocks: vec![], certificate: None }.to_bytes();
    let digest = tercio_crypto::hash(Suite::default(), &[&body]);
    let key = tercio_wire::Key::of_replica(Kind::BLOCKS, ReplicaId(0), 0, 1, digest);
    let auth = Authenticator::Mac(keyring.tag(to, &key.to_array()).unwrap());
    net.send(from, 1, Frame { key, auth, body }.to_bytes());
    net.settle();
    assert_eq!(net.status(1).dropped, BTreeMap::from([("blocks_not_asked_for", 1)]));
}

/// Block `height` on `parent` without operations, and what three of four replicas sign of it.
fn certified(height: u64, parent: Digest) -> (Block, CertifiedCheckpoint) {
    let suite = Suite::default();
    let body = Bytes::from(vec![height as u8; 100]);
    let header = BlockHeader {
        suite,
        epoch: Epoch(0),
        height: Height(height),
        seq: SeqNum(height),
        parent,
        body: tercio_crypto::hash(suite, &[&body]),
        time: Timestamp(height),
        ops: 0,
        lag: 0,
        results: EMPTY_ROOT,
        state: EMPTY_ROOT,
    };
    let checkpoint = Checkpoint {
        seq: header.seq,
        height: header.height,
        block: block_hash(&header),
        results: EMPTY_ROOT,
        state: EMPTY_ROOT,
        clients: EMPTY_ROOT,
        membership: EMPTY_ROOT,
        epoch: Epoch(0),
        time: header.time,
    };
    let sign = |i: u16| {
        let (id, keys) = (ReplicaId(i), membership(4));
        let said = checkpoint_key(suite, id, &checkpoint).to_array();
        let principal = Principal::Replica(id);
        let keyring = Keyring::new(principal, secret(i.into()), keys, Instance::default());
        (id, keyring.sign(&said))
    };
    let signatures = (0..3).map(sign).collect();
    (Block { header, body }, CertifiedCheckpoint { checkpoint, signatures })
}

/// This many blocks in a row, each with its certificate.
fn chain(membership: &Membership, count: u64) -> Vec<(Block, CertifiedCheckpoint)> {
    let mut parent = Digest(membership.chain().0);
    let next = |height| {
        let made = certified(height, parent);
        parent = made.1.checkpoint.block;
        made
    };
    (1..=count).map(next).collect()
}

/// Replica 3, in whose buffer there is room for some blocks of [`certified`], on the way to the
/// end of a chain; with what it says that it stands on.
fn on_the_way(
    membership: &Arc<Membership>,
    chain: &[(Block, CertifiedCheckpoint)],
    blocks: usize,
) -> CatchUp {
    let room = blocks * (size_of::<Block>() + 100);
    let settings = SyncSettings::default();
    let mut catch_up = CatchUp::new(ReplicaId(3), membership.clone(), settings, room);
    begin(&mut catch_up, membership, chain);
    catch_up
}

fn begin(catch_up: &mut CatchUp, membership: &Membership, chain: &[(Block, CertifiedCheckpoint)]) {
    let target = Arc::new(chain.last().unwrap().1.clone());
    let from = Tip { height: Height(0), block: Digest(membership.chain().0), seq: SeqNum(0) };
    catch_up.begin(target, from, Instant(1));
}

/// Whom it asks for blocks from `height` on.
fn asked(catch_up: &mut CatchUp, height: u64) -> ReplicaId {
    match catch_up.poll() {
        Some(CatchUpStep::Ask { to, request }) if request.from == Height(height) => to,
        other => panic!("asks for {height}, not {other:?}"),
    }
}

/// Gives these blocks, and no certificate.
fn give(catch_up: &mut CatchUp, by: ReplicaId, chain: &[(Block, CertifiedCheckpoint)]) {
    let blocks: Vec<_> = chain.iter().map(|(block, _)| block.clone()).collect();
    let from = blocks[0].header.height;
    let answer = Blocks { blocks, certificate: None }.to_bytes();
    catch_up.on_blocks(by, from, &answer, Instant(1));
}

fn uncertified(catch_up: &CatchUp) -> u64 {
    catch_up.dropped().get("blocks_uncertified").copied().unwrap_or_default()
}

/// What may lie between two certificates by the settings of consensus has room, headers and all.
#[test]
fn the_buffer_follows_from_the_room_for_batches() {
    for (held_bytes, window) in [(128 << 20, 512), (32 << 20, 64), (usize::MAX, u64::MAX)] {
        let settings = Settings { held_bytes, window, ..Settings::default() };
        let headers = (window as usize).saturating_mul(size_of::<Block>());
        let least = held_bytes.saturating_mul(2).saturating_add(headers);
        assert!(buffer_bytes(&settings) >= least, "{held_bytes} {window}");
    }
}

/// One that sends blocks for ever and never a certificate fills a bounded buffer once, and is passed
/// over; what the next sends is executed.
#[test]
fn one_liar_without_certificates_fills_one_buffer() {
    let membership = membership(4);
    let chain = chain(&membership, 12);
    let mut catch_up = on_the_way(&membership, &chain, 4);
    let liar = asked(&mut catch_up, 1);
    give(&mut catch_up, liar, &chain[..2]);
    assert_eq!(asked(&mut catch_up, 3), liar);
    give(&mut catch_up, liar, &chain[2..4]);
    assert_eq!((asked(&mut catch_up, 5), uncertified(&catch_up)), (liar, 0));
    give(&mut catch_up, liar, &chain[4..5]);
    assert_eq!(uncertified(&catch_up), 1);
    for (height, (block, certificate)) in (1..).zip(&chain) {
        let honest = asked(&mut catch_up, height);
        assert_ne!(honest, liar);
        let certificate = certificate.clone();
        let answer = Blocks { blocks: vec![block.clone()], certificate: Some(certificate.clone()) };
        catch_up.on_blocks(honest, Height(height), &answer.to_bytes(), Instant(1));
        assert!(matches!(catch_up.poll(), Some(CatchUpStep::Replay(_))));
        catch_up.on_replayed(&certificate, Instant(1));
    }
    assert!(!catch_up.is_active() && uncertified(&catch_up) == 1);
}

/// Blocks without bodies take up memory, too.
#[test]
fn empty_blocks_fill_the_buffer() {
    let membership = membership(4);
    let mut chain = chain(&membership, 40);
    let mut parent = Digest(membership.chain().0);
    for (block, certificate) in &mut chain {
        block.body = Bytes::new();
        block.header.body = tercio_crypto::hash(Suite::default(), &[&[]]);
        block.header.parent = parent;
        parent = block_hash(&block.header);
        certificate.checkpoint.block = parent;
    }
    let mut catch_up = on_the_way(&membership, &chain, 4);
    let liar = asked(&mut catch_up, 1);
    give(&mut catch_up, liar, &chain[..30]);
    assert_eq!(uncertified(&catch_up), 1);
}

/// f47: when the blocks of f+1 fill the buffer, one of them is correct, and more lies between two
/// certificates than there is room for: a state is needed, whoever is left to ask.
#[test]
fn uncertified_blocks_of_two_of_four_lead_to_a_state() {
    let membership = membership(4);
    let chain = chain(&membership, 12);
    let mut catch_up = on_the_way(&membership, &chain, 4);
    for _ in 0..2 {
        let first = asked(&mut catch_up, 1);
        give(&mut catch_up, first, &chain[..5]);
        let second = asked(&mut catch_up, 1);
        // Asked again to reach it, or one further on, changes nothing about that.
        begin(&mut catch_up, &membership, &chain);
        assert_eq!(asked(&mut catch_up, 1), second);
        give(&mut catch_up, second, &chain[..5]);
        assert!(first != second && matches!(catch_up.poll(), Some(CatchUpStep::NobodyHas)));
        assert!(!catch_up.is_active() && catch_up.poll().is_none());
        // There was no state to be had: blocks are tried again.
        begin(&mut catch_up, &membership, &chain);
    }
    // What one sent before there was progress, or it says it again, does not count twice.
    let by = asked(&mut catch_up, 1);
    give(&mut catch_up, by, &chain[..5]);
    let by = asked(&mut catch_up, 1);
    let answer = Blocks { blocks: vec![chain[0].0.clone()], certificate: Some(chain[0].1.clone()) };
    catch_up.on_blocks(by, Height(1), &answer.to_bytes(), Instant(1));
    assert!(matches!(catch_up.poll(), Some(CatchUpStep::Replay(_))));
    let by = asked(&mut catch_up, 2);
    give(&mut catch_up, by, &chain[1..6]);
    asked(&mut catch_up, 2);
}

/// Nobody has a state to offer: after a pause, and not before, blocks are tried again.
#[test]
fn without_offers_blocks_are_tried_again_after_a_pause() {
    let membership = membership(4);
    let settings = SyncSettings::default();
    let mut transfer = Transfer::new(ReplicaId(3), membership, 0, settings);
    let mut now = Instant(1);
    for _ in 0..3 {
        transfer.begin(Tip { height: Height(1), block: Digest::NULL, seq: SeqNum(1) }, false, now);
        let mut asked = vec![];
        while let Some(TransferStep::Ask { to, number, .. }) = transfer.poll() {
            asked.push((to, number));
        }
        assert_eq!(asked.len(), 3);
        for (to, number) in asked {
            transfer.on_state(to, number, &State::Offer(None).to_bytes(), now);
        }
        assert!(transfer.poll().is_none());
        assert_eq!(transfer.deadline(), Some(now + settings.timeout));
        now = now + settings.timeout;
        transfer.on_timeout(now);
        assert!(matches!(transfer.poll(), Some(TransferStep::Blocks)));
        assert!(transfer.poll().is_none() && !transfer.is_active());
    }
}

/// The next blocks are fetched while others are executed, and no more than the next: and whether
/// nobody has them is said when nobody uses the state.
#[test]
fn blocks_are_fetched_while_others_are_executed() {
    let membership = membership(4);
    let chain = chain(&membership, 4);
    let certificate = |height: usize| Arc::new(chain[height - 1].1.clone());
    let now = Instant(1);
    let replays = |catch_up: &mut CatchUp, height: usize, last: bool| match catch_up.poll() {
        Some(CatchUpStep::Replay(run)) => {
            assert_eq!((run.certificate, run.last), (certificate(height), last));
        }
        other => panic!("replays {height}, not {other:?}"),
    };
    let answer = |catch_up: &mut CatchUp, by: ReplicaId, height: usize| {
        let (block, certificate) = chain[height - 1].clone();
        let blocks = Blocks { blocks: vec![block], certificate: Some(certificate) };
        catch_up.on_blocks(by, Height(height as u64), &blocks.to_bytes(), now);
    };
    let mut catch_up = on_the_way(&membership, &chain, 4);
    let by = asked(&mut catch_up, 1);
    answer(&mut catch_up, by, 1);
    replays(&mut catch_up, 1, false);
    let by = asked(&mut catch_up, 2);
    answer(&mut catch_up, by, 2);
    assert!(catch_up.poll().is_none(), "one is executed, and one waits");
    assert!(!catch_up.on_replayed(&certificate(1), now));
    replays(&mut catch_up, 2, false);
    for _ in 0..3 {
        let by = asked(&mut catch_up, 3);
        let none = Blocks { blocks: vec![], certificate: None };
        catch_up.on_blocks(by, Height(3), &none.to_bytes(), now);
    }
    assert!(catch_up.poll().is_none(), "the state is in use");
    assert!(!catch_up.on_replayed(&certificate(2), now), "that was not the target");
    assert!(matches!(catch_up.poll(), Some(CatchUpStep::NobodyHas)));
    // With the target it is over.
    let at = &chain[1].1.checkpoint;
    catch_up.begin(certificate(3), Tip { height: at.height, block: at.block, seq: at.seq }, now);
    let by = asked(&mut catch_up, 3);
    answer(&mut catch_up, by, 3);
    replays(&mut catch_up, 3, true);
    assert!(catch_up.poll().is_none());
    catch_up.raise(certificate(3));
    assert!(catch_up.on_replayed(&certificate(3), now));
    assert!(!catch_up.is_active() && catch_up.poll().is_none());
    // What was the last is not, when the target has moved on before it is executed.
    let at = &chain[0].1.checkpoint;
    catch_up.begin(certificate(3), Tip { height: at.height, block: at.block, seq: at.seq }, now);
    let by = asked(&mut catch_up, 2);
    answer(&mut catch_up, by, 2);
    replays(&mut catch_up, 2, false);
    let by = asked(&mut catch_up, 3);
    answer(&mut catch_up, by, 3);
    catch_up.raise(certificate(4));
    catch_up.raise(certificate(2));
    assert!(!catch_up.on_replayed(&certificate(2), now));
    replays(&mut catch_up, 3, false);
    let by = asked(&mut catch_up, 4);
    answer(&mut catch_up, by, 4);
    assert!(!catch_up.on_replayed(&certificate(3), now));
    replays(&mut catch_up, 4, true);
    assert!(catch_up.on_replayed(&certificate(4), now));
}

/// What goes wrong in a replica that catches up, once.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// A result.
    Result,
    /// Something that no result shows.
    State,
}

/// Counts operations, and another number that nobody is told; and how often a replica that catches
/// up asks for the digest.
struct Tally {
    wrong: Wrong,
    catching_up: bool,
    count: u64,
    hidden: u64,
    digests: Arc<AtomicU64>,
}

impl Application for Tally {
    fn execute(&mut self, _: &Context, operations: &[Operation], replies: &mut Replies) {
        for _ in operations {
            self.count += 1;
            self.hidden += self.count;
            let wrong = match self.catching_up {
                true => std::mem::replace(&mut self.wrong, Wrong::Nothing),
                false => Wrong::Nothing,
            };
            self.hidden += u64::from(wrong == Wrong::State);
            let told = self.count + u64::from(wrong == Wrong::Result);
            replies.push(&told.to_le_bytes());
        }
    }

    fn query(&self, _: &[u8]) -> Result<Bytes, AppError> {
        Ok(Bytes::new())
    }

    fn set_catching_up(&mut self, on: bool) {
        self.catching_up = on;
    }

    fn state_digest(&mut self) -> Digest {
        if self.catching_up {
            self.digests.fetch_add(1, Ordering::Relaxed);
        }
        chunks_root(Suite::default(), &self.snapshot().collect::<Vec<_>>())
    }

    fn snapshot(&mut self) -> Snapshot {
        let state = [self.count.to_le_bytes(), self.hidden.to_le_bytes()].concat();
        vec![(Bytes::new(), state.into())].into()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        let [(_, state)] = chunks else { return Err(AppError("one chunk".into())) };
        let word = |at: usize| u64::from_le_bytes(state[at..at + 8].try_into().unwrap());
        (self.count, self.hidden) = (word(0), word(8));
        Ok(())
    }
}

/// A network in which replica 3 has missed 60 blocks, with a checkpoint after each four, and how
/// often digests were asked for while one caught up.
fn tallying(wrong: Wrong, tune: fn(&mut NodeSettings)) -> (Net, Asker, Arc<AtomicU64>) {
    let digests = Arc::new(AtomicU64::new(0));
    let counted = digests.clone();
    let app = move || -> Box<dyn Application> {
        let (catching_up, digests) = (false, counted.clone());
        Box::new(Tally { wrong, catching_up, count: 0, hidden: 0, digests })
    };
    let mut net = Net::with(4, Box::new(app), Box::new(tune), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    lagging(&mut net, &asker, 60);
    (net, asker, digests)
}

fn without_snapshots(settings: &mut NodeSettings) {
    quick(settings);
    (settings.snapshot_every, settings.snapshot_bytes) = (0, 0);
}

/// Fifteen checkpoints are passed; the digest is computed where it is attested next, and where a
/// snapshot is taken.
#[test]
fn between_the_last_and_the_first_no_digest_is_computed() {
    for (tune, digests) in [(without_snapshots as fn(&mut NodeSettings), 1..=4), (quick, 7..=11)] {
        let (mut net, asker, counted) = tallying(Wrong::Nothing, tune);
        caught_up(&mut net, &asker, 60);
        let counted = counted.load(Ordering::Relaxed);
        assert!(digests.contains(&counted), "{counted}");
        // The snapshots are those that the others have.
        let names = |i: usize| {
            let names = net.disks[i].list().unwrap().into_iter();
            names.filter(|name| name.starts_with("snapshot-")).collect::<Vec<_>>()
        };
        assert_eq!(names(3), names(2));
    }
}

/// What stops replica 3 while it catches up with `wrong` going wrong at its first operation: where,
/// and what differs.
fn stops(wrong: Wrong, tune: fn(&mut NodeSettings)) -> (SeqNum, String) {
    let (mut net, asker, _) = tallying(wrong, tune);
    net.order(&asker, 61, 1);
    net.until("it stops", |net| !net.stopped.is_empty());
    match &net.stopped[..] {
        [(ReplicaId(3), NodeError::StateDiffers { seq, what, .. })] => (*seq, what.to_string()),
        other => panic!("{other:?}"),
    }
}

/// The first certificate that comes with the blocks finds another result.
#[test]
fn a_wrong_result_is_found_at_the_next_certificate() {
    for tune in [without_snapshots, quick] {
        let (seq, what) = stops(Wrong::Result, tune);
        assert!(seq <= SeqNum(4) && what == "the results root", "{seq:?}: {what}");
    }
}

/// A state that no result shows to be wrong is found when the replica would attest it, at the
/// latest, and before it becomes a snapshot.
#[test]
fn a_wrong_state_is_found_at_the_last_certificate() {
    let (seq, what) = stops(Wrong::State, without_snapshots);
    assert!(seq > SeqNum(40) && what == "the state digest", "{seq:?}: {what}");
    let (seq, what) = stops(Wrong::State, quick);
    assert!(seq <= SeqNum(8) && what == "the state digest", "{seq:?}: {what}");
}

/// A source that gives one block for each question, just in time and without certificates, is left
/// for another one: otherwise one liar decides how long catching up takes.
#[test]
fn one_that_gives_block_by_block_is_passed_over() {
    let membership = membership(4);
    let chain = chain(&membership, 400);
    let mut catch_up = on_the_way(&membership, &chain, 1000);
    let settings = SyncSettings::default();
    let (mut now, begun) = (Instant(1), Instant(1));
    let liar = asked(&mut catch_up, 1);
    for height in 1..400 {
        now = now + (settings.timeout - std::time::Duration::from_millis(1));
        catch_up.on_timeout(now);
        let block = chain[height as usize - 1].0.clone();
        let answer = Blocks { blocks: vec![block], certificate: None }.to_bytes();
        catch_up.on_blocks(liar, Height(height), &answer, now);
        match catch_up.poll() {
            Some(CatchUpStep::Ask { to, .. }) if to != liar => return,
            Some(CatchUpStep::Ask { .. }) => {}
            other => panic!("{other:?}"),
        }
        let waited = now.since(begun);
        assert!(waited.as_secs() < 60, "{height} blocks of one source in {waited:?}");
    }
}

/// Rules C1 and P2: a checkpoint that a batch asked for is signed again by a replica that was started
/// again, as one at a multiple of the interval is. Otherwise an idle network, one of which is gone,
/// blames primary after primary until the one that was started again leads.
#[test]
fn a_checkpoint_that_was_asked_for_is_signed_after_a_restart() {
    // Every batch asks for one, as the first of a view does, and one that brings many bytes.
    let tune = |settings: &mut NodeSettings| {
        quick(settings);
        settings.consensus.checkpoint_bytes = 1;
    };
    let mut net = Net::with(4, Box::new(common::counter), Box::new(tune), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.stop(3);
    // The last one is killed before anybody hears of its checkpoint, and it of theirs.
    net.tamper = Some(Box::new(|from, to, bytes| {
        let is_last = [from, to].contains(&Principal::Replica(ReplicaId(2)));
        let frame = Frame::decode(bytes, Suite::default()).unwrap();
        (!is_last || frame.key.kind != Kind::CHECKPOINT).then(|| bytes.clone())
    }));
    net.order(&asker, 1, 1);
    net.until("it is executed", |net| {
        (0..3).all(|i| net.status(i).checkpoint.is_some_and(|c| c.seq == SeqNum(1)))
    });
    net.stop(2);
    net.tamper = None;
    net.start(2);
    net.until("all is covered", |net| (0..3).all(|i| net.status(i).protocol.stable >= SeqNum(1)));
    let views: Vec<_> = (0..3).map(|i| net.status(i).protocol.view).collect();
    assert_eq!(views, [tercio_types::View(0); 3]);
}

/// A certificate is written when the blocks below it are durable: wherever the power fails while
/// blocks are fetched, what is missing is a torn tail, and nothing is damage that others would have to
/// mend, who may have let the blocks go.
#[test]
fn a_power_failure_while_catching_up_leaves_no_damage() {
    let tune = |settings: &mut NodeSettings| {
        quick(settings);
        settings.snapshot_every = 8;
        if settings.me == ReplicaId(3) {
            settings.ledger.blocks.blocks_per_segment = 256;
        }
    };
    let mut net = Net::with(4, Box::new(common::counter), Box::new(tune), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.cut.insert(ReplicaId(3));
    net.order(&asker, 1, 26);
    net.cut.clear();
    net.wire.clear();
    let mut seed = 0u64;
    for _ in 0..60 {
        // One frame at a time; what comes of it waits behind the others.
        match net.wire.pop_front() {
            Some(frame) => {
                let mut rest = std::mem::take(&mut net.wire);
                net.wire.push_back(frame);
                net.settle_one();
                rest.append(&mut net.wire);
                net.wire = rest;
            }
            None => net.tick(),
        }
        let now = net.status(3);
        if !now.catching_up || now.height < Height(8) {
            continue;
        }
        for _ in 0..60 {
            seed += 1;
            let mut state = seed;
            let fork = net.disks[3].after_crash(&mut |n| {
                state =
                    state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (state >> 33) % n
            });
            let (node, disk) = (net.nodes[3].take(), net.disks[3].clone());
            let wire = net.wire.clone();
            net.disks[3] = fork;
            net.start(3);
            assert_eq!(net.status(3).repair.damaged, 0, "try {seed}");
            net.wire = wire;
            (net.nodes[3], net.disks[3]) = (node, disk);
        }
    }
    assert!(seed > 100, "{seed} tries");
}
