//! Floods of frames that are dear to check: what they cost their sender, and nobody else.

use crate::{common, running};

use bytes::Bytes;
use common::{Asker, CLIENT, Net, secret};
use running::{Network, client_secret, number, wait};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tercio_crypto::{Instance, Keyring};
use tercio_replica::{Durability, Layout, ReplicaHandle};
use tercio_transport::{Limits, Settings, Transport};
use tercio_types::{
    Authenticator, ClientId, Membership, Package, Principal, ReplicaId, SignatureBytes, View,
};
use tercio_wire::{Forward, Message};

/// The client that floods.
const NOISY: ClientId = ClientId(8);
/// How many operations an honest client finishes meanwhile.
const OPERATIONS: u64 = 300;
/// How many false frames come to each replica meanwhile at least.
const FLOOD: u64 = 20_000;
/// How many false signatures cost what a client's account holds, with what is under way when it is
/// empty; and how many the time of a second pays for (decision 0043).
const AT_ONCE: u64 = 170 + 2 * 3 * 64;
const A_SECOND: u64 = 170;

fn spoilt(package: Package) -> Package {
    let Authenticator::Signature(signature) = &package.auth else { unreachable!("it is signed") };
    let mut altered = signature.as_slice().to_vec();
    altered[40] ^= 1;
    Package { auth: SignatureBytes::new(&altered).unwrap().into(), ..package }
}

/// Sends false requests to all replicas, as many as they read, until it is told to end.
fn flood(membership: &Arc<Membership>, ends: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (membership, ends) = (membership.clone(), ends.clone());
    let (me, secret) = (Principal::Client(NOISY), client_secret(NOISY));
    let keyring = Keyring::new(me, secret.clone(), membership.clone(), Instance::default());
    let asker = Asker { id: NOISY, keyring };
    let frames: Vec<Bytes> = (1..=512)
        .map(|first| common::request_frame(spoilt(asker.package(first, 0, &[b"false"]))))
        .collect();
    let limits = Limits { max_queue: 64 << 10, ..Limits::default() };
    std::thread::spawn(move || {
        let settings =
            Settings { me, secret, membership: membership.clone(), listen: None, limits };
        let (mut transport, mut events) = (Transport::bind(settings).unwrap(), vec![]);
        while !ends.load(Ordering::Relaxed) {
            transport.poll(Some(Duration::from_millis(1)), &mut events);
            events.clear();
            for to in membership.replicas().map(Principal::Replica) {
                // Until its queue is full, or while there is no link yet.
                let _ = frames.iter().try_for_each(|frame| transport.send(to, frame.clone()));
            }
        }
    })
}

fn dropped(replica: &ReplicaHandle) -> (u64, u64) {
    let dropped: BTreeMap<_, _> = replica.status().dropped;
    let of = |reason| dropped.get(reason).copied().unwrap_or(0);
    (of("bad_signature"), of("client_floods"))
}

/// One client sends false signatures to all replicas, as fast as they read them, and another goes on
/// with its operations: replicas check what the first has paid for, and no view changes. Verification
/// on the loop, and on threads.
#[test]
#[expect(clippy::disallowed_methods, reason = "what time pays for depends on time")]
fn false_signatures_of_one_client_hold_nobody_up() {
    for threads in [0, 1] {
        // A machine with much else to do is no reason to leave a view.
        let tune: fn(&mut tercio_replica::NodeSettings) = match threads {
            0 => |node| node.consensus.view_timeout = Duration::from_secs(20),
            _ => |node| {
                node.consensus.view_timeout = Duration::from_secs(20);
                node.verify.threads = 1;
            },
        };
        let net = Network::with(4, Layout::AllInOne, Durability::Memory, tune, running::counter);
        let mut client = net.client(running::CLIENT);
        client.call(Bytes::from_static(b"op")).unwrap();
        let (begin, ends) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let flooder = flood(&net.membership, &ends);
        wait("the flood comes", || net.running().all(|replica| dropped(replica).0 > 0));
        let mut done = 1;
        let came = |replica: &ReplicaHandle| {
            let (checked, dropped) = dropped(replica);
            checked + dropped
        };
        let floods = |net: &Network| net.running().all(|replica| came(replica) >= FLOOD);
        while done <= OPERATIONS || !floods(&net) {
            done += 1;
            assert_eq!(number(&client.call(Bytes::from_static(b"op")).unwrap()), done);
        }
        for replica in net.running() {
            let status = replica.status();
            let (checked, dropped) = dropped(replica);
            let paid = AT_ONCE + A_SECOND * (1 + begin.elapsed().as_secs());
            assert!(checked <= paid, "{checked} checked, {paid} paid for, {dropped} dropped");
            assert_eq!((status.protocol.view, status.protocol.changing), (View(0), false));
        }
        ends.store(true, Ordering::Relaxed);
        flooder.join().unwrap();
        for replica in net.replicas.into_iter().flatten() {
            replica.stop().unwrap();
        }
    }
}

/// A faulty replica forwards what a client was answered long ago, thousands of times: the replica pays,
/// the client is heard, and gets no answers that it did not ask for.
#[test]
fn what_a_replica_forwards_is_not_held_against_its_client() {
    const OLD: u64 = 30_000;
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 1);
    net.until("all are there", |net| net.all_at(1));
    let faulty = Principal::Replica(ReplicaId(3));
    let keyring = Keyring::new(faulty, secret(3), net.membership.clone(), Instance::default());
    let old = Forward(asker.package(1, 0, &[b"op"]));
    let tags = |said: &[u8; 52]| keyring.mac_vector(said);
    let frame = old.to_frame(ReplicaId(3), net.membership.suite(), tags).to_bytes();
    net.answers.clear();
    let now = net.now;
    for _ in 0..OLD {
        net.nodes[0].as_mut().unwrap().handle_frame(faulty, &frame, now);
        net.work(0);
    }
    net.settle();
    let found = net.status(0).dropped;
    assert_eq!(found.get("forwarded_done"), Some(&OLD), "{found:?}");
    assert!(net.answers.is_empty());
    // In the same moment.
    net.ask(&asker, 2, &[b"op"]);
    net.until("it is answered", |net| net.replies(CLIENT, 2).len() > net.membership.f());
    let found = net.status(0).dropped;
    assert!(!found.contains_key("client_floods"), "{found:?}");
}

/// Long requests beyond a client's share of the room: the first are refused as busy, which costs their
/// link what reading them took, and the rest is not heard until that is paid.
#[test]
fn long_requests_that_find_no_room_are_charged_by_their_bytes() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    let long: &[u8] = vec![0; 1 << 20].leak();
    let now = net.now;
    let send = |net: &mut Net, first| {
        let frame = common::request_frame(asker.package(first, 0, &[long]));
        net.nodes[0].as_mut().unwrap().handle_frame(Principal::Client(CLIENT), &frame, now);
    };
    (1..=20).for_each(|first| send(&mut net, first));
    let of = |net: &Net, reason| net.status(0).dropped.get(reason).copied().unwrap_or(0);
    let (busy, unheard) = (of(&net, "declined_busy"), of(&net, "client_floods"));
    assert!((4..=7).contains(&busy), "{busy} refused, {unheard} not heard");
    assert!((5..20).contains(&unheard), "{busy} refused, {unheard} not heard");
    // What was taken is ordered all the same.
    net.work(0);
    net.settle();
    let taken = 20 - busy - unheard;
    net.until("what found room is ordered", |net| net.all_at(taken));
}
