//! Floods of frames from those who have a key.

use super::Means;
use super::links::{Links, Rate};
use crate::Trouble;
use crate::net::VICTIM;
use bytes::Bytes;
use std::time::Duration;
use tercio_crypto::{Instance, Keyring, hash};
use tercio_network::{now, pause};
use tercio_types::{ClientId, OpKind, Principal, ReplicaId, RequestSeq, SignatureBytes, WINDOW};
use tercio_wire::{
    AUTHENTICATED, CLIENT_SENDER, FRAME_HEADER, Forward, Frame, Key, Kind, Message, Request,
    encode_package_content,
};

/// Frames a second to each replica: above what a replica takes of a client.
const FLOOD: u32 = 25_000;
/// How many are handed to the links at a time.
const GROUP: u32 = 256;
/// How much of a flood of short frames waits for a replica, and of one of long ones.
const ROOM: usize = 256 << 10;
const LONG_ROOM: usize = 4 << 20;
/// The longest operation that a package of a frame of 1 MiB has, nearly.
const LARGE: usize = 900_000;
/// Requests at a time.
const AT_ONCE: u64 = 8;

/// A client's package of one operation, without its authenticator.
fn package(means: &Means, client: ClientId, number: u64, op: Bytes) -> (Key, Bytes) {
    let mut content = vec![];
    let replier = ReplicaId((number % 4) as u16);
    encode_package_content(client, RequestSeq(number), OpKind::User, replier, &[op], &mut content);
    let digest = hash(means.membership.suite(), &[&content]);
    let key = Key {
        kind: Kind::REQUEST,
        flags: 0,
        sender: CLIENT_SENDER,
        view: client.0,
        seq: number,
        digest,
    };
    (key, content.into())
}

fn client(means: &Means, room: usize) -> Result<(Keyring, Links), Trouble> {
    let (id, membership) = (Principal::Client(means.id()), means.membership.clone());
    let secret = means.secret_of(means.id())?;
    let keys = Keyring::new(id, secret.clone(), membership, Instance::default());
    Ok((keys, Links::open(means, id, secret, room)?))
}

/// A false signature that costs a whole check: a point that is one, and a number in range.
fn forge(good: &SignatureBytes, turn: u64) -> SignatureBytes {
    let mut bytes = [0; 64];
    bytes.copy_from_slice(good.as_slice());
    bytes[32..40].copy_from_slice(&turn.to_le_bytes());
    SignatureBytes::new(&bytes).expect("as long as it was")
}

/// Well-formed requests with false signatures, to all.
pub(super) fn signatures(means: &Means) -> Result<u64, Trouble> {
    let (keys, mut links) = client(means, ROOM)?;
    let frame = |number| {
        let (key, body) = package(means, means.id(), number, Bytes::new());
        Frame { auth: keys.sign(&key.to_array()).into(), key, body }.to_bytes().to_vec()
    };
    let mut frames: Vec<Vec<u8>> = (1..=WINDOW).map(frame).collect();
    let (mut rate, mut turn) = (Rate::a_second(FLOOD), 0_u64);
    // Behind the point that begins it.
    let signature = FRAME_HEADER + AUTHENTICATED + 32;
    while !means.stopped() {
        for _ in 0..GROUP {
            turn += 1;
            let frame = &mut frames[(turn % WINDOW) as usize];
            frame[signature..signature + 8].copy_from_slice(&turn.to_le_bytes());
            links.send(&Bytes::copy_from_slice(frame));
        }
        links.turn(Duration::ZERO);
        rate.spend(GROUP);
    }
    Ok(links.sent())
}

/// Requests with false signatures that a replica forwards, to all that it dials.
pub(super) fn forwards(means: &Means) -> Result<u64, Trouble> {
    let (me, suite) = (ReplicaId(VICTIM), means.membership.suite());
    let secret = means.replica_secret(me)?;
    let membership = means.membership.clone();
    let keys =
        Keyring::new(Principal::Replica(me), secret.clone(), membership, Instance::default());
    let mut links = Links::open(means, Principal::Replica(me), secret, ROOM)?;
    let bad = |error| Trouble::Means(format!("a frame of our own cannot be read: {error}"));
    let mut rate = Rate::a_second(FLOOD);
    let client_keys = Keyring::new(
        Principal::Client(means.id()),
        means.secret_of(means.id())?,
        means.membership.clone(),
        Instance::default(),
    );
    // One good signature has a point for all.
    let (good, mut turn) = (client_keys.sign(&[0; AUTHENTICATED]), 0);
    while !means.stopped() {
        for _ in 0..GROUP {
            turn += 1;
            let (key, body) = package(means, means.id(), 1 + turn % WINDOW, Bytes::new());
            let auth = forge(&good, turn).into();
            let frame = Frame { key, auth, body };
            let package = Request::from_frame(&frame, suite).map_err(bad)?.0;
            let (key, body, _) = Forward(package).parts(me, suite);
            let auth = keys.mac_vector(&key.to_array());
            links.send(&Frame { key, auth, body }.to_bytes());
        }
        links.turn(Duration::ZERO);
        rate.spend(GROUP);
    }
    Ok(links.sent())
}

/// Good requests of 900 KB to all: some at a time with pauses, or as fast as they are taken, as far as
/// the window goes.
pub(super) fn large(means: &Means, every: Option<Duration>) -> Result<u64, Trouble> {
    let (keys, mut links) = client(means, LONG_ROOM)?;
    let mut number = 0;
    while !means.stopped() {
        let start = now();
        for _ in 0..AT_ONCE {
            number += 1;
            let op = vec![number as u8; LARGE].into();
            let (key, body) = package(means, means.id(), number, op);
            let auth = keys.sign(&key.to_array()).into();
            let frame = Frame { key, auth, body }.to_bytes();
            while !links.has_room() && !means.stopped() {
                links.turn(Duration::from_millis(1));
            }
            links.send(&frame);
            links.turn(Duration::ZERO);
        }
        while every.is_some_and(|every| start.elapsed() < every) && !means.stopped() {
            links.turn(Duration::from_millis(5));
        }
    }
    Ok(links.sent())
}

/// Good requests whose numbers no replica can have come to, to all.
pub(super) fn far(means: &Means) -> Result<u64, Trouble> {
    let (keys, mut links) = client(means, ROOM)?;
    let mut number = 9_000_000_000;
    while !means.stopped() {
        number += 1;
        let (key, body) = package(means, means.id(), number, Bytes::new());
        let auth = keys.sign(&key.to_array()).into();
        links.send(&Frame { key, auth, body }.to_bytes());
        links.turn(Duration::ZERO);
        pause(Duration::from_millis(1));
    }
    Ok(links.sent())
}
