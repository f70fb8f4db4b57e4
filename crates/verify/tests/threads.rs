//! The stage on threads gives what the stage on the loop gives, in the order of each link, whatever
//! comes; and what happens when queues are full, when keys change, and when a thread dies.

use crate::common::{
    CLIENT, CLIENTS, DEADLY, SUITE, Signers, Word, by_replica, membership_of, of_replica, package,
    replica, ring, secret, spoilt,
};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tercio_crypto::Keyring;
use tercio_types::{ClientId, Principal, Tag};
use tercio_verify::{
    Bounds, Dropped, Filter, Filtered, Gather, HostVerify, Inbound, Outcome, Threads, VerifyStage,
    Worker,
};
use tercio_wire::{CLIENT_SENDER, Forward, Frame, Key, Kind, package_from_content, request_key};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

type Sent = (Principal, Bytes);

/// A stage on threads that do not run yet.
struct Bench {
    stage: Threads<Word>,
    idle: Vec<Worker<Word>>,
    running: Vec<JoinHandle<()>>,
    woken: Receiver<()>,
}

impl Bench {
    fn new(threads: usize, gather: Gather, bounds: Bounds) -> Self {
        let (wake, woken) = channel();
        let keyring = ring(replica(1), secret(1));
        let wake = move || {
            let _ = wake.send(());
        };
        let (stage, idle) = Threads::new(&keyring, gather, bounds, threads, wake);
        Self { stage, idle, running: vec![], woken }
    }

    fn submit(&mut self, sent: &[Sent]) {
        for (from, bytes) in sent {
            self.stage.submit(*from, bytes, Duration::ZERO);
        }
        self.stage.flush();
    }

    /// Runs the first worker that does not run yet.
    fn run_one(&mut self) {
        let worker = self.idle.remove(0);
        self.running.push(std::thread::spawn(move || worker.run()));
    }

    /// Waits for this many outcomes, as the loop does: until it is woken.
    fn outcomes(&mut self, count: usize) -> Vec<Outcome<Word>> {
        let mut outcomes = vec![];
        while outcomes.len() < count {
            self.woken.recv_timeout(LONG).expect("the loop is woken for outcomes");
            assert!(self.stage.is_due(false, Duration::ZERO));
            self.stage.work();
            outcomes.extend(std::iter::from_fn(|| self.stage.poll()));
        }
        assert_eq!(outcomes.len(), count);
        outcomes
    }

    /// Ends the threads.
    fn end(self) {
        drop(self.stage);
        self.running.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn fresh(threads: usize) -> Bench {
    Bench::new(threads, Gather::default(), Bounds::default())
}

/// What came in each lane, in order, in words; and apart, in any order, what was dropped on each link.
fn by_lane<'a>(
    outcomes: impl IntoIterator<Item = &'a Outcome<Word>>,
) -> BTreeMap<(Principal, &'static str), Vec<String>> {
    let mut lanes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (from, result) in outcomes {
        let sort = match result {
            Err(_) => "dropped",
            Ok(Inbound::Forward(_)) => "forwards",
            Ok(_) => "others",
        };
        lanes.entry((*from, sort)).or_default().push(format!("{result:?}"));
    }
    lanes.iter_mut().filter(|((_, sort), _)| *sort == "dropped").for_each(|(_, all)| all.sort());
    lanes
}

/// What comes of each frame when it comes alone, on the loop.
fn one_by_one(sent: &[Sent]) -> (Vec<Outcome<Word>>, HostVerify<Word>) {
    let keyring = ring(replica(1), secret(1));
    let mut host = HostVerify::new(keyring, Gather::default(), Duration::ZERO);
    let outcomes = sent.iter().map(|(from, bytes)| {
        host.submit(*from, bytes, Duration::ZERO);
        host.work();
        host.poll().expect("one outcome a frame")
    });
    (outcomes.collect(), host)
}

/// A frame of any sort, of any sender; `number` tells it from others.
fn frame(signers: &Signers, sort: u8, who: u8, number: u64, size: usize) -> Sent {
    let i = usize::from(who % CLIENTS);
    let peer = [0, 2, 3][usize::from(who) % 3];
    let peer = (replica(peer), ring(replica(peer), secret(peer as u8)));
    let of_peer = |frame: Frame| {
        let auth = peer.1.mac_vector(&frame.key.to_array());
        (peer.0, Frame { auth, ..frame }.to_bytes())
    };
    let forward = |bytes: &Bytes| {
        let frame = Frame::decode(bytes, SUITE).unwrap();
        let package = package_from_content(&frame.body, frame.auth, SUITE);
        by_replica(&peer.1, &Forward(package.unwrap()))
    };
    match sort {
        0 => signers.request(i, number, size),
        1 => {
            let (from, bytes) = signers.request(i, number, size);
            (from, spoilt(&bytes))
        }
        2 => signers.question(i, number),
        3 => {
            // A tag of somebody else.
            let (from, bytes) = signers.question(i, number);
            let frame = Frame::decode(&bytes, SUITE).unwrap();
            (from, Frame { auth: vec![Tag::default(); 4].into(), ..frame }.to_bytes())
        }
        4 => (peer.0, by_replica(&peer.1, &Word(20 + (number % 5) as u8))),
        5 => (peer.0, forward(&signers.request(i, number, size).1)),
        6 => (peer.0, forward(&spoilt(&signers.request(i, number, size).1))),
        7 => {
            // On another's link.
            let (_, bytes) = signers.question(i, number);
            (peer.0, bytes)
        }
        8 => {
            // Cut short.
            let (from, bytes) = signers.request(i, number, size);
            (from, bytes.slice(..bytes.len() / 2))
        }
        _ => {
            // Of a kind that replicas do not take.
            let word = by_replica(&peer.1, &Word(20));
            let frame = Frame::decode(&word, SUITE).unwrap();
            let key = Key { kind: Kind::REPLY, ..frame.key };
            of_peer(Frame { key, ..frame })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever comes, in whatever chunks, on however many threads: each lane's outcomes are those
    /// of the stage on the loop, in the order of its frames, and so are the counters.
    #[test]
    fn threads_give_what_the_loop_gives_in_the_order_of_each_link(
        threads in 1..5_usize,
        batch in 1..20_usize,
        sorts in prop::collection::vec((0..10_u8, any::<u8>(), 1..9000_usize, 0..8_u8), 1..80),
        early in any::<bool>(),
    ) {
        let signers = Signers::new();
        // A number comes twice now and then: a copy.
        let sent: Vec<Sent> = (sorts.iter().enumerate())
            .map(|(i, (sort, who, size, _))| frame(&signers, *sort, *who, i as u64 * 3 / 4 + 1, *size))
            .collect();
        let (expected, host) = one_by_one(&sent);
        let gather = Gather { signatures: batch, ..Gather::default() };
        let mut bench = Bench::new(threads, gather, Bounds::default());
        if early {
            (0..threads).for_each(|_| bench.run_one());
        }
        let mut outcomes = vec![];
        for ((from, bytes), (.., turn)) in sent.iter().zip(&sorts) {
            bench.stage.submit(*from, bytes, Duration::ZERO);
            // The end of a turn.
            if *turn == 0 {
                bench.stage.work();
                outcomes.extend(std::iter::from_fn(|| bench.stage.poll()));
            }
        }
        bench.stage.flush();
        (0..bench.idle.len()).for_each(|_| bench.run_one());
        while outcomes.len() < sent.len() {
            bench.stage.wait(LONG);
            bench.stage.work();
            outcomes.extend(std::iter::from_fn(|| bench.stage.poll()));
        }
        prop_assert_eq!(by_lane(&outcomes), by_lane(&expected));
        prop_assert_eq!(bench.stage.dropped(), host.dropped());
        let (checked, alone) = (bench.stage.checked(), host.checked());
        prop_assert_eq!(checked.signatures + checked.spared, alone.signatures + alone.spared);
        bench.end();
    }
}

/// A client's package comes on its own link, and inside of a replica's message: whichever worker
/// has which, its signature is checked once.
#[test]
fn what_one_thread_found_good_no_other_checks_again() {
    let signers = Signers::new();
    let (from, request) = signers.request(0, 1, 100);
    let content = Frame::decode(&request, SUITE).unwrap();
    let package = package_from_content(&content.body, content.auth, SUITE);
    let forward = of_replica(&Forward(package.unwrap()));
    let mut bench = fresh(2);
    bench.submit(&[(from, request)]);
    // The other worker has less to do.
    bench.submit(&[(replica(0), forward)]);
    let second = bench.idle.remove(1);
    bench.run_one();
    assert!(bench.outcomes(1)[0].1.is_ok());
    bench.idle.push(second);
    bench.run_one();
    assert!(bench.outcomes(1)[0].1.is_ok());
    let checked = bench.stage.checked();
    assert_eq!((checked.signatures, checked.spared), (1, 1));
    bench.end();
}

/// Clients have half of the room, one of them a quarter, and one with less than its part makes place for
/// itself; a replica's messages are taken, and when they come to half no more is to be read. What was
/// taken has its outcome.
#[test]
fn clients_find_no_room_before_replicas_do() {
    let signers = Signers::new();
    let bounds = Bounds { frames: 16, bytes: 1 << 20 };
    // What the workers may have ahead is used up first.
    let gather = Gather { signatures: 1, ..Gather::default() };
    let mut bench = Bench::new(1, gather, bounds);
    let ahead = signers.request(9, 1, 10);
    bench.submit(&[ahead.clone(), signers.request(9, 2, 10)]);
    let fill = |bench: &mut Bench, i: usize| {
        let from = signers.0[i].me();
        let mut taken = 0;
        while taken < 100 && bench.stage.has_room_for(from) {
            taken += 1;
            bench.submit(&[signers.request(i, taken, 10)]);
        }
        taken
    };
    for (i, room) in [(0, 4), (1, 4), (2, 2)] {
        assert_eq!(fill(&mut bench, i), room, "client {i}");
    }
    let mut replicas = 0;
    while !bench.stage.is_full() {
        assert!(bench.stage.has_room_for(replica(0)));
        bench.submit(&[(replica(0), of_replica(&Word(20)))]);
        replicas += 1;
    }
    assert_eq!(replicas, 8);
    bench.run_one();
    let mut outcomes = vec![];
    while outcomes.len() < 20 {
        bench.stage.wait(LONG);
        bench.stage.work();
        outcomes.extend(std::iter::from_fn(|| bench.stage.poll()));
    }
    let turned_away =
        outcomes.iter().filter_map(|(from, result)| Some((*from, result.as_ref().err()?)));
    let turned_away: Vec<_> = turned_away.map(|(from, why)| (from, why.reason())).collect();
    assert_eq!(turned_away.len(), 2, "{turned_away:?}");
    assert!(turned_away.iter().all(|(from, why)| *from != signers.0[2].me() && *why == "busy"));
    assert!(!bench.stage.is_full() && bench.stage.has_room_for(signers.0[0].me()));
    bench.end();
}

/// A client that sends false signatures has used up its time, and another that sends as many good ones
/// has not; what waits of the first is dropped unread. On the loop and on threads alike.
#[test]
fn who_costs_too_much_in_vain_is_not_listened_to() {
    const SENT: u64 = 400;
    let signers = Signers::new();
    for threads in [0, 2] {
        let mut bench = fresh(threads.max(1));
        let mut host = HostVerify::new(ring(replica(1), secret(1)), Gather::default(), LONG);
        (0..threads).for_each(|_| bench.run_one());
        let stage: &mut dyn VerifyStage<Word> =
            if threads == 0 { &mut host } else { &mut bench.stage };
        let (noisy, good) = (signers.0[0].me(), signers.0[1].me());
        let mut told: BTreeMap<_, u64> = BTreeMap::new();
        let mut waiting = 0;
        for number in 1..=SENT {
            for i in [0, 1] {
                let (from, bytes) = signers.request(i, number, 10);
                let bytes = if i == 0 { spoilt(&bytes) } else { bytes };
                stage.submit(from, &bytes, Duration::ZERO);
                waiting += 1;
            }
            if number % 50 == 0 {
                stage.flush();
                while waiting > 0 {
                    stage.wait(LONG);
                    stage.work();
                    while let Some((from, result)) = stage.poll() {
                        let word = result.err().map_or("good", |dropped| dropped.reason());
                        *told.entry((from, word)).or_default() += 1;
                        waiting -= 1;
                    }
                }
            }
        }
        assert_eq!(told[&(good, "good")], SENT);
        // 10 ms, and a batch that was under way when they were used up.
        let (checked, dropped) = (told[&(noisy, "bad_signature")], told[&(noisy, "client_floods")]);
        assert!((150..=300).contains(&checked), "{threads}: {told:?}");
        assert_eq!(checked + dropped, SENT);
        assert!(!stage.hears(noisy, Duration::ZERO) && stage.hears(good, Duration::ZERO));
        assert!(stage.hears(noisy, Duration::from_secs(60)));
        bench.end();
    }
}

/// A replica's FORWARDs have a share of the time, good or bad, and an account apart: its messages come
/// through. One that sends false signatures in messages is listened to where nothing is to be checked.
#[test]
fn a_replicas_forwards_have_a_share_and_its_messages_come_through() {
    let signers = Signers::new();
    let forward = |number, false_one| {
        let (_, bytes) = signers.request(0, number, 10);
        let frame = Frame::decode(&if false_one { spoilt(&bytes) } else { bytes }, SUITE).unwrap();
        let package = package_from_content(&frame.body, frame.auth, SUITE);
        of_replica(&Forward(package.unwrap()))
    };
    // What is known costs the frame alone; a false one its signature as well.
    let (known, wrong) = (forward(1, false), forward(2, true));
    for (bytes, least, most) in [(&wrong, 3_000, 6_000), (&known, 60_000, 200_000)] {
        let mut host =
            HostVerify::<Word>::new(ring(replica(1), secret(1)), Gather::default(), LONG);
        let mut took = 0;
        let floods = loop {
            host.submit(replica(0), bytes, Duration::ZERO);
            host.flush();
            host.work();
            let (from, result) = host.poll().unwrap();
            assert_eq!(from, replica(0));
            match result {
                Err(Dropped::Filtered(floods)) => break floods,
                _ => took += 1,
            }
        };
        assert_eq!(floods.reason(), "forward_floods");
        assert!((least..most).contains(&took), "{took}");
        host.submit(replica(0), &of_replica(&Word(20)), Duration::ZERO);
        assert!(host.poll().unwrap().1.is_ok());
        host.submit(signers.0[0].me(), &signers.request(0, 3, 10).1, Duration::ZERO);
        host.work();
        assert!(host.poll().unwrap().1.is_ok(), "the client has not paid");
    }
}

/// Frames that came before a membership are judged by the one before, on every thread.
#[test]
fn keys_change_for_what_comes_after() {
    let signers = Signers::new();
    let new = ClientId(3 + u64::from(CLIENTS));
    let stranger = ring_of_new(new);
    let question = |number| {
        let (body, sender) = (Bytes::from_static(b"?"), CLIENT_SENDER);
        let digest = tercio_crypto::hash(SUITE, &[&body]);
        let (kind, flags, view) = (Kind::QUERY, 0, new.0);
        let key = Key { kind, flags, sender, view, seq: number, digest };
        let auth = stranger.mac_vector(&key.to_array());
        (Principal::Client(new), Frame { key, auth, body }.to_bytes())
    };
    for threads in [1, 3] {
        let mut bench = fresh(threads);
        for number in 1..=6 {
            for (from, bytes) in [signers.question(0, number), question(number)] {
                bench.stage.submit(from, &bytes, Duration::ZERO);
            }
            match number {
                // In the middle of a turn.
                3 => bench.stage.set_membership(membership_of(CLIENTS + 1)),
                _ => bench.stage.flush(),
            }
        }
        (0..threads).for_each(|_| bench.run_one());
        let outcomes = bench.outcomes(12);
        let good = |who: Principal| -> Vec<bool> {
            let of = outcomes.iter().filter(|(from, _)| *from == who);
            of.map(|(_, result)| result.is_ok()).collect()
        };
        assert_eq!(good(signers.0[0].me()), [true; 6]);
        assert_eq!(good(Principal::Client(new)), [false, false, false, true, true, true]);
        assert_eq!(*bench.stage.dropped(), BTreeMap::from([("unknown_client", 3)]));
        bench.end();
    }
}

fn ring_of_new(client: ClientId) -> Keyring {
    let key = secret(50 + CLIENTS);
    let all = membership_of(CLIENTS + 1);
    Keyring::new(Principal::Client(client), key, all, Default::default())
}

/// What is published while frames wait spares them their signatures.
#[test]
fn the_filter_of_the_moment_decides() {
    let signers = Signers::new();
    let mut bench = fresh(2);
    let requests: Vec<Sent> = (0..3).map(|i| signers.request(i, 5, 100)).collect();
    bench.submit(&requests);
    bench.stage.set_filter(&Filter { busy: true, ..Filter::default() });
    (0..2).for_each(|_| bench.run_one());
    let outcomes = bench.outcomes(3);
    for (_, result) in &outcomes {
        let expected = Filtered::Busy { first: 5 };
        assert_eq!(result.as_ref().unwrap_err(), &Dropped::Filtered(expected));
    }
    assert_eq!((bench.stage.checked().signatures, bench.stage.dropped().len()), (0, 0));
    bench.stage.set_filter(&Filter::default());
    bench.submit(&requests);
    assert!(bench.outcomes(3).iter().all(|(_, result)| result.is_ok()));
    bench.end();
}

/// A thread that dies takes its frames along and nothing else: the others go on, and whoever runs
/// it learns of it.
#[test]
fn a_thread_that_dies_is_noticed_by_who_runs_it() {
    let signers = Signers::new();
    let mut bench = fresh(2);
    bench.submit(&[(replica(0), of_replica(&Word(DEADLY.0)))]);
    bench.submit(&[signers.question(0, 1)]);
    (0..2).for_each(|_| bench.run_one());
    assert!(bench.outcomes(1)[0].1.is_ok());
    let dead = bench.running.remove(0).join().unwrap_err();
    let text = dead.downcast_ref::<String>().unwrap();
    assert!(text.contains("a message that breaks us"), "{text}");
    // What is submitted to it is lost, without harm.
    (0..8).for_each(|number| bench.submit(&[signers.question(1, number)]));
    bench.stage.work();
    bench.end();
}

/// The package under MACs, too, comes through.
#[test]
fn what_needs_no_signature_does_not_wait_for_those_that_do() {
    let (package, content) = package();
    let key = request_key(&package);
    let maced = Frame { key, auth: package.auth, body: content }.to_bytes();
    let signers = Signers::new();
    let mut bench = fresh(1);
    bench.submit(&[signers.request(1, 1, 10), (Principal::Client(CLIENT), maced)]);
    bench.run_one();
    // One piece of work each: what is done before the batch, and the batch.
    for from in [Principal::Client(CLIENT), signers.0[1].me()] {
        bench.stage.wait(LONG);
        let (of, result) = bench.stage.poll().unwrap();
        assert!(of == from && result.is_ok() && bench.stage.poll().is_none());
    }
    bench.end();
}
