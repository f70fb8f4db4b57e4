//! Replicas on threads and sockets of this machine.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod watched;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tercio_client::{Client, Settings};
use tercio_consensus::ProtocolFacts;
use tercio_consensus::pbft::Pbft;
use tercio_counter::Counter;
use tercio_crypto::SecretKey;
use tercio_execution::Application;
use tercio_genesis::{Genesis, SharedSettings};
use tercio_replica::{
    Data, Durability, Layout, NodeSettings, ReplicaConfig, ReplicaHandle, StartError, start,
};
use tercio_transport::BindError;
use tercio_types::{ClientId, ClientInfo, Member, Membership, ReplicaId, RequestSeq, Suite};

pub(crate) const CLIENT: ClientId = ClientId(7);

pub(crate) fn secret(replica: usize) -> SecretKey {
    SecretKey::from_seed([replica as u8 + 1; 32])
}

pub(crate) fn client_secret(client: ClientId) -> SecretKey {
    SecretKey::from_seed([100 + client.0 as u8; 32])
}

pub(crate) fn counter() -> Box<dyn Application> {
    Box::new(Counter::new(tercio_counter::Settings::default(), Suite::default()))
}

/// A listener on a free port.
pub(crate) fn listener() -> TcpListener {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

pub(crate) fn genesis(name: &str, addresses: &[SocketAddr]) -> Genesis {
    let member = |(i, a): (usize, &SocketAddr)| {
        (ReplicaId(i as u16), Member { key: secret(i).public(), address: a.to_string() })
    };
    let client = |id| (id, ClientInfo::new(client_secret(id).public()));
    Genesis {
        name: name.into(),
        suite: Suite::default(),
        lag: 0,
        protocol: ProtocolFacts::of::<Pbft>(),
        replicas: addresses.iter().enumerate().map(member).collect(),
        clients: [CLIENT, ClientId(8)].map(client).into(),
        app: tercio_registry::CounterKind::app(tercio_counter::Settings::default()),
        consensus: SharedSettings { checkpoint_interval: 8, window: 32, ..Default::default() },
    }
}

pub(crate) struct Network {
    pub(crate) genesis: Genesis,
    pub(crate) membership: Arc<Membership>,
    pub(crate) layout: Layout,
    pub(crate) durability: Durability,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) replicas: Vec<Option<ReplicaHandle>>,
    pub(crate) tune: fn(&mut NodeSettings),
    pub(crate) app: fn() -> Box<dyn Application>,
}

impl Network {
    pub(crate) fn start(n: usize, layout: Layout, durability: Durability) -> Self {
        Self::with(n, layout, durability, |_| {}, counter)
    }

    pub(crate) fn with(
        n: usize,
        layout: Layout,
        durability: Durability,
        tune: fn(&mut NodeSettings),
        app: fn() -> Box<dyn Application>,
    ) -> Self {
        let listeners: Vec<_> = (0..n).map(|_| listener()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let genesis = genesis("test", &addresses);
        let membership = genesis.membership().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let replicas = (0..n).map(|_| None).collect();
        let mut net = Self { genesis, membership, layout, durability, dir, replicas, tune, app };
        for (i, listener) in listeners.into_iter().enumerate() {
            let mut config = net.config(i);
            config.listen = listener.into();
            net.replicas[i] = Some(start(config, (net.app)()).unwrap());
        }
        net
    }

    pub(crate) fn path(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("replica-{i}"))
    }

    pub(crate) fn address(&self, i: usize) -> SocketAddr {
        self.genesis.replicas[&ReplicaId(i as u16)].address.parse().unwrap()
    }

    pub(crate) fn config(&self, i: usize) -> ReplicaConfig {
        let me = ReplicaId(i as u16);
        let mut node = NodeSettings::new(me, secret(i), self.membership.clone());
        self.genesis.consensus.apply(&mut node.consensus);
        node.consensus.checkpoint_idle = Duration::from_millis(50);
        node.durability = self.durability;
        node.snapshot_every = 2;
        node.ledger.blocks.blocks_per_segment = 16;
        (self.tune)(&mut node);
        let config = ReplicaConfig::new(node, self.address(i));
        ReplicaConfig { data: Data::Directory(self.path(i)), layout: self.layout, ..config }
    }

    /// Starts a replica again on its address, once the system gives that again: while the replica
    /// was down, a connection of another test may have taken the port.
    pub(crate) fn restart(&mut self, i: usize) {
        self.restart_with(i, |net| net.config(i));
    }

    /// The same, with another configuration.
    pub(crate) fn restart_with(&mut self, i: usize, config: impl Fn(&Self) -> ReplicaConfig) {
        let started = std::cell::RefCell::new(None);
        wait("the port is free", || match start(config(self), (self.app)()) {
            Ok(handle) => {
                *started.borrow_mut() = Some(handle);
                true
            }
            Err(StartError::Bind(BindError::InUse { .. })) => false,
            Err(other) => panic!("{other}"),
        });
        self.replicas[i] = started.into_inner();
    }

    /// A client that goes on where an earlier one of this id ended.
    pub(crate) fn client(&self, id: ClientId) -> Client {
        let settings = Settings::new(id, client_secret(id), self.membership.clone());
        let mut client = Client::connect(settings).unwrap();
        client.resume(RequestSeq(1)).unwrap();
        client
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &ReplicaHandle> {
        self.replicas.iter().flatten()
    }

    /// Waits until all that run have one head at this height or above.
    pub(crate) fn wait_for_height(&self, height: u64) {
        wait("all replicas at one head", || {
            let heads: Vec<_> =
                self.running().map(ReplicaHandle::status).map(|s| (s.height.0, s.block)).collect();
            heads.iter().all(|head| *head == heads[0] && head.0 >= height)
        });
    }
}

/// Waits for a condition, far longer than it could take.
#[expect(clippy::disallowed_methods, reason = "real replicas need real time")]
pub(crate) fn wait(what: &str, done: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

pub(crate) fn number(result: &[u8]) -> u64 {
    u64::from_le_bytes(result[..8].try_into().unwrap())
}
