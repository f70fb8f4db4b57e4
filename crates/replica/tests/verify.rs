//! Signatures gather across frames and clients: when they are checked, and that nothing changes but
//! the number of batches.

use crate::{common, running};

use bytes::Bytes;
use common::{Asker, CLIENT, Net, counter, membership, results, secret};
use running::{Network, client_secret, number};
use std::collections::BTreeSet;
use std::time::Duration;
use tercio_client::{Client, CoreSettings, OpResult, Settings};
use tercio_consensus::Instant;
use tercio_consensus::pbft::Pbft;
use tercio_crypto::{Instance, Keyring};
use tercio_ledger::MemStorage;
use tercio_replica::stages::{OrderStage, Outbox, Stages};
use tercio_replica::{Durability, Layout, NodeSettings, VerifySettings};
use tercio_types::{ClientId, Principal, ReplicaId, Suite, View};
use tercio_verify::Plain;
use tercio_wire::{Frame, Key, Kind, Message};

/// Two clients' packages come before the replica gets to work: one batch for each 64 signatures,
/// and every package executed once, each client's in order.
#[test]
fn packages_of_several_clients_are_verified_as_one_batch() {
    let mut net = Net::new(1);
    let askers = [CLIENT, ClientId(8)].map(|id| Asker::new(id, &net.membership));
    for number in 1..=35 {
        for asker in &askers {
            let request = asker.request(number, 0, &[b"op"]);
            let node = net.nodes[0].as_mut().unwrap();
            node.handle_frame(Principal::Client(asker.id), &request, net.now);
        }
    }
    assert_eq!(net.status(0).checked.signatures, 64, "the first batch was full");
    net.work(0);
    let checked = net.status(0).checked;
    assert_eq!((checked.signatures, checked.batches), (70, 2));
    let answered = |net: &Net, client| (1..=35).all(|n| net.replies(client, n).len() == 1);
    net.until("all are answered", |net| askers.iter().all(|asker| answered(net, asker.id)));
    for asker in &askers {
        let counts: Vec<_> = (1..=35).map(|n| results(&net.replies(asker.id, n)[0])[0]).collect();
        assert!(counts.is_sorted(), "{counts:?}");
    }
}

/// Four replicas that verify on two threads each, under load of clients that sign: each operation is
/// executed once, and each replica has checked each signature.
#[test]
fn replicas_verify_on_threads_of_their_own() {
    const PACKAGES: usize = 1000;
    let tune = |node: &mut NodeSettings| node.verify.threads = 2;
    let net = Network::with(4, Layout::AllInOne, Durability::Memory, tune, running::counter);
    let ask = |id| {
        let settings = Settings {
            core: CoreSettings { max_outstanding: 256, ..CoreSettings::unused_id() },
            ..Settings::new(id, client_secret(id), net.membership.clone())
        };
        std::thread::spawn(move || {
            let (mut left, mut seen) = (PACKAGES, vec![]);
            let mut next = || {
                left = left.checked_sub(1)?;
                Some(vec![Bytes::from_static(b"op")])
            };
            let mut ended = |completion: tercio_client::Completion| {
                let results = completion.outcome.unwrap();
                let [OpResult::Executed(result)] = &results[..] else { panic!("{results:?}") };
                seen.push(number(result));
            };
            Client::connect(settings).unwrap().pipeline(&mut next, &mut ended).unwrap();
            seen
        })
    };
    let clients = [running::CLIENT, ClientId(8)].map(ask);
    let all: Vec<u64> = clients.into_iter().flat_map(|asked| asked.join().unwrap()).collect();
    let seen: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!((all.len(), seen.len()), (2 * PACKAGES, 2 * PACKAGES));
    net.wait_for_height(1);
    for replica in net.running() {
        let status = replica.status();
        assert!(status.checked.signatures >= 2 * PACKAGES as u64, "{:?}", status.checked);
        assert!(status.checked.batches < status.checked.signatures, "{:?}", status.checked);
        assert_eq!(status.dropped.get("verify_queue_full"), None);
    }
    for replica in net.replicas.into_iter().flatten() {
        replica.stop().unwrap();
    }
}

fn stages(gather: Duration) -> Stages<Pbft> {
    let membership = membership(4);
    let mut settings = NodeSettings::new(ReplicaId(0), secret(0), membership);
    settings.verify.gather = gather;
    Stages::open(&settings, &MemStorage::default(), counter(), Instant(0)).unwrap()
}

/// What ordering would drop costs no signature, wherever verification is, and is counted and answered
/// as if ordering had dropped it: numbers beyond the window, and packages while the replica is
/// busy, those included that wait for a thread when it comes to be busy.
#[test]
fn what_would_be_dropped_is_not_verified() {
    let membership = membership(4);
    let asker = Asker::new(CLIENT, &membership);
    let other = Principal::Replica(ReplicaId(1));
    let keyring = Keyring::new(other, secret(1), membership, Instance::default());
    let beyond = |kind| {
        let plain = Plain { kind: Kind(kind), seq: 10_000, body: Bytes::new() };
        let tags = |said: &[u8; 52]| keyring.mac_vector(said);
        plain.to_frame(ReplicaId(1), Suite::default(), tags).to_bytes()
    };
    for threads in [0, 2] {
        let mut stages = stages(Duration::from_secs(1));
        let Stages { order, outbox, .. } = &mut stages;
        let (woken, wakes) = std::sync::mpsc::channel();
        let mut workers = vec![];
        if threads > 0 {
            let settings = VerifySettings { threads, ..VerifySettings::default() };
            workers = order.verify_on_threads(&settings, move || {
                let _ = woken.send(());
            });
        }
        let (client, now) = (Principal::Client(CLIENT), Instant(1_000_000_000));
        order.handle_frame(other, &beyond(Kind::PROTOCOL), now, outbox).unwrap();
        if threads == 0 {
            order.set_busy(true);
        }
        for number in [1, 2] {
            let request = asker.request(number, 0, &[b"op"]);
            order.handle_frame(client, &request, now, outbox).unwrap();
        }
        order.set_busy(true);
        order.flush();
        let workers: Vec<_> =
            workers.into_iter().map(|w| std::thread::spawn(move || w.run())).collect();
        let dropped = |order: &OrderStage<Pbft>| {
            let status = order.status();
            let of_protocol = status.protocol.dropped.get("above_watermark").copied();
            (status.dropped.get("declined_busy").copied(), of_protocol)
        };
        while dropped(order) != (Some(2), Some(1)) {
            assert!(threads > 0, "{:?}", order.status());
            wakes.recv_timeout(Duration::from_secs(60)).expect("an outcome of each");
            order.verify(now, outbox).unwrap();
        }
        let status = order.status();
        assert_eq!((status.checked.signatures, status.dropped.len()), (0, 1), "{status:?}");
        let rejects = outbox.send.iter().filter(|(to, bytes)| {
            *to == client && Key::peek(bytes).is_some_and(|(kind, _)| kind == Kind::REJECT)
        });
        assert_eq!(rejects.count(), 2);
        drop(stages);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}

/// A signed request waits while others may come, and never longer than it is told to.
#[test]
fn what_waits_is_verified_when_nothing_comes_or_time_is_over() {
    let asker = Asker::new(CLIENT, &membership(4));
    let mut stages = stages(Duration::from_micros(200));
    let Stages { order, outbox, .. } = &mut stages;
    let at = |us: u64| Instant(1_000_000_000 + us * 1000);
    let client = Principal::Client(CLIENT);
    let take = |request: &Bytes, us: u64, order: &mut OrderStage<Pbft>, out: &mut Outbox| {
        order.handle_frame(client, request, at(us), out).unwrap();
    };
    assert!(!order.gathers() && !order.must_verify(true, at(0)), "nothing waits");

    // Alone: as soon as nothing more is at hand, without a wait.
    take(&asker.request(1, 0, &[b"op"]), 0, order, outbox);
    assert!(order.gathers() && !order.must_verify(false, at(0)));
    assert!(order.must_verify(true, at(0)));
    order.verify(at(0), outbox).unwrap();
    assert!(!order.gathers() && !order.must_verify(true, at(0)));
    assert_eq!(order.status().checked.signatures, 1);

    // While others keep coming: when the first of them has waited long enough, between two looks at
    // the links.
    for (number, us) in [(2, 10), (3, 150), (4, 205)] {
        take(&asker.request(number, 0, &[b"op"]), us, order, outbox);
    }
    assert!(!order.must_verify(false, at(210)));
    order.flush();
    assert!(!order.must_verify(false, at(209)));
    assert!(order.must_verify(false, at(210)));
    order.verify(at(210), outbox).unwrap();
    let checked = order.status().checked;
    assert_eq!((checked.signatures, checked.batches), (4, 2));

    // What needs no signature does not wait.
    take(&asker.maced(5, 0, &[b"op"]), 300, order, outbox);
    assert!(!order.gathers());
}

/// A client that waits asks everybody again and again, they hand its packages on to each other, and
/// another primary proposes them: each replica checks each signature once. Otherwise those who wait
/// for a replica that is slow at checking make it check all the more.
#[test]
fn what_comes_again_is_not_checked_again() {
    const PACKAGES: u64 = 200;
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    let first = Principal::Replica(ReplicaId(0));
    // The first primary proposes to nobody.
    net.tamper = Some(Box::new(move |from, _, bytes| {
        let frame = Frame::decode(bytes, Suite::default()).unwrap();
        let proposes = from == first && frame.key.kind == Kind(Kind::PROTOCOL);
        (!proposes).then(|| bytes.clone())
    }));
    for _ in 0..3 {
        (1..=PACKAGES).for_each(|number| net.ask(&asker, number, &[b"op"]));
        net.settle();
    }
    net.until("all are answered", |net| {
        (1..=PACKAGES).all(|number| net.replies(CLIENT, number).len() > net.membership.f())
    });
    net.until("all know of another view", |net| {
        (0..4).all(|i| net.status(i).protocol.view > View(0))
    });
    for i in 0..4 {
        let checked = net.status(i).checked;
        // Replicas sign as well: VIEW-CHANGEs, checkpoints and blocks.
        assert!((PACKAGES..PACKAGES + 100).contains(&checked.signatures), "{i}: {checked:?}");
        assert!(checked.spared > 2 * PACKAGES, "{i}: {checked:?}");
    }
}
