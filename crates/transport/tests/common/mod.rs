//! Networks of real sockets on the loopback device, driven by one thread.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod relay;

use bytes::Bytes;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tercio_crypto::{SecretKey, hash};
use tercio_transport::{Limits, Listen, Settings, Transport, TransportEvent};
use tercio_types::{
    Authenticator, ChainId, ClientId, ClientInfo, Epoch, FaultModel, Member, Membership, Principal,
    ReplicaId, Suite, Tag,
};
use tercio_wire::{Frame, Key, Kind};

/// Only against a hang; nothing is judged by it.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "the end of a test's patience")]
pub fn now() -> Instant {
    Instant::now()
}

pub fn replica(i: u16) -> Principal {
    Principal::Replica(ReplicaId(i))
}

pub fn client(i: u64) -> Principal {
    Principal::Client(ClientId(i))
}

pub fn secret(who: Principal) -> SecretKey {
    let mut seed = [7; 32];
    match who {
        Principal::Replica(id) => seed[..2].copy_from_slice(&id.0.to_le_bytes()),
        Principal::Client(id) => seed[8..16].copy_from_slice(&id.0.to_le_bytes()),
    }
    SecretKey::from_seed(seed)
}

/// What a network is made of; tests bend a field before they build it.
#[derive(Clone)]
pub struct Plan {
    pub chain: u8,
    pub epoch: u64,
    pub protocol: &'static str,
    pub addresses: Vec<SocketAddr>,
    pub clients: Vec<(u64, SecretKey)>,
}

impl Plan {
    pub fn membership(&self) -> Arc<Membership> {
        let members = self.addresses.iter().enumerate().map(|(i, address)| Member {
            key: secret(replica(i as u16)).public(),
            address: address.to_string(),
        });
        let clients = (self.clients.iter())
            .map(|(id, secret)| (ClientId(*id), ClientInfo::new(secret.public())));
        let made = Membership::new(
            ChainId([self.chain; 32]),
            Epoch(self.epoch),
            Suite::default(),
            FaultModel::Byzantine,
            members.collect(),
            clients.collect(),
        );
        Arc::new(made.unwrap().with_protocol(self.protocol))
    }
}

/// `n` bound sockets and the plan that names them, with clients 1, 2 and 3.
pub fn plan(n: usize) -> (Plan, Vec<TcpListener>) {
    let sockets: Vec<_> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
    let clients = (1..=3).map(|i| (i, secret(client(i)))).collect();
    (Plan { chain: 1, epoch: 0, protocol: "pbft", addresses, clients }, sockets)
}

/// A transport and everything that it reported.
pub struct Node {
    pub transport: Transport,
    pub events: Vec<TransportEvent>,
}

impl Node {
    pub fn new(me: Principal, plan: &Plan, listen: Option<Listen>, limits: Limits) -> Self {
        let settings =
            Settings { me, secret: secret(me), membership: plan.membership(), listen, limits };
        Self { transport: Transport::bind(settings).unwrap(), events: vec![] }
    }

    pub fn replica(i: u16, plan: &Plan, socket: TcpListener) -> Self {
        Self::new(replica(i), plan, Some(socket.into()), Limits::default())
    }

    pub fn client(i: u64, plan: &Plan) -> Self {
        Self::new(client(i), plan, None, Limits::default())
    }

    pub fn turn(&mut self) {
        self.transport.poll(Some(Duration::from_millis(1)), &mut self.events);
    }

    pub fn connects(&self) -> usize {
        self.events.iter().filter(|e| matches!(e, TransportEvent::Connected(_))).count()
    }

    pub fn frames_from(&self, peer: Principal) -> Vec<Bytes> {
        let of = |e: &TransportEvent| match e {
            TransportEvent::Frame { from, bytes } if *from == peer => Some(bytes.clone()),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    pub fn counter(&self, reason: &str) -> u64 {
        self.transport.counters().get(reason).copied().unwrap_or(0)
    }
}

/// Turns all nodes until `done`.
pub fn drive(nodes: &mut [&mut Node], what: &str, mut done: impl FnMut(&mut [&mut Node]) -> bool) {
    let end = now() + PATIENCE;
    while !done(nodes) {
        assert!(now() < end, "gave up waiting: {what}");
        nodes.iter_mut().for_each(|node| node.turn());
    }
}

/// A frame whose body has `len` bytes that depend on `seed`.
pub fn frame(seed: u64, len: usize) -> Bytes {
    let body: Bytes = (0..len).map(|i| (seed as usize + i * 31 / 7) as u8).collect();
    let digest = hash(Suite::default(), &[&body]);
    let key = Key { kind: Kind(16), flags: 0, sender: 0, view: 0, seq: seed, digest };
    Frame { key, auth: Authenticator::Mac(Tag::default()), body }.to_bytes()
}
