//! A network of nodes wired directly: no sockets, no threads, a clock that jumps.
#![allow(dead_code, reason = "each test file uses its part")]

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::{Pbft, Recovery};
use tercio_consensus::{Instant, Protocol, Settings};
use tercio_counter::Counter;
use tercio_crypto::{Instance, Keyring, SecretKey, Signer};
use tercio_execution::{Application, Executor};
use tercio_ledger::MemStorage;
use tercio_replica::{Durability, Node, NodeError, NodeSettings, NodeStatus, Output};
use tercio_types::{
    Authenticator, ChainId, ClientId, ClientInfo, Digest, Epoch, FaultModel, Member, Membership,
    OpKind, Package, Principal, ReplicaId, RequestSeq, Suite,
};
use tercio_wire::{
    Frame, Kind, OpResult, Reply, decode_replies, decode_results, encode_package_content,
    package_content, package_from_content, replies_digest, request_key,
};

pub(crate) const CLIENT: ClientId = ClientId(7);

pub(crate) fn secret(replica: usize) -> SecretKey {
    secret_of(Suite::default(), Principal::Replica(ReplicaId(replica as u16)))
}

pub(crate) fn client_secret(client: ClientId) -> SecretKey {
    secret_of(Suite::default(), Principal::Client(client))
}

fn secret_of(suite: Suite, who: Principal) -> SecretKey {
    let seed = match who {
        Principal::Replica(id) => id.0 as u8 + 1,
        Principal::Client(id) => 100 + id.0 as u8,
    };
    SecretKey::derived_from(suite, &[seed; 32])
}

pub(crate) fn membership(n: usize) -> Arc<Membership> {
    membership_of(n, ChainId([9; 32]))
}

pub(crate) fn membership_of(n: usize, chain: ChainId) -> Arc<Membership> {
    membership_with(n, chain, Suite::default())
}

fn membership_with(n: usize, chain: ChainId, suite: Suite) -> Arc<Membership> {
    let key = |who| secret_of(suite, who).public();
    let replica = |i| Principal::Replica(ReplicaId(i as u16));
    let members = (0..n).map(|i| Member { key: key(replica(i)), address: String::new() }).collect();
    let clients = [CLIENT, ClientId(8)]
        .map(|client| (client, ClientInfo::new(key(Principal::Client(client)))));
    let (model, epoch) = (FaultModel::Byzantine, Epoch(0));
    let made = Membership::new(chain, epoch, suite, model, members, clients.into());
    Arc::new(made.unwrap())
}

pub(crate) fn counter() -> Box<dyn Application> {
    Box::new(Counter::new(tercio_counter::Settings::default(), Suite::default()))
}

/// A client that does nothing by itself.
pub(crate) struct Asker {
    pub(crate) id: ClientId,
    pub(crate) keyring: Keyring,
}

impl Asker {
    pub(crate) fn new(id: ClientId, membership: &Arc<Membership>) -> Self {
        let me = Principal::Client(id);
        let secret = secret_of(membership.suite(), me);
        let keyring = Keyring::new(me, secret, membership.clone(), Instance::default());
        Self { id, keyring }
    }

    pub(crate) fn package(&self, first: u64, replier: u16, ops: &[&'static [u8]]) -> Package {
        let ops: Vec<Bytes> = ops.iter().map(|op| Bytes::from_static(op)).collect();
        self.package_of(OpKind::User, first, replier, &ops)
    }

    /// A signed package of any kind.
    pub(crate) fn package_of(
        &self,
        kind: OpKind,
        first: u64,
        replier: u16,
        ops: &[Bytes],
    ) -> Package {
        let (first, replier) = (RequestSeq(first), ReplicaId(replier));
        let mut content = Vec::new();
        encode_package_content(self.id, first, kind, replier, ops, &mut content);
        let auth = Authenticator::Mac(tercio_types::Tag::default());
        let suite = self.keyring.membership().suite();
        let mut package = package_from_content(&content.into(), auth, suite).unwrap();
        let said = request_key(&package).to_array();
        package.auth = self.keyring.sign(&said).into();
        package
    }

    pub(crate) fn request(&self, first: u64, replier: u16, ops: &[&'static [u8]]) -> Bytes {
        request_frame(self.package(first, replier, ops))
    }

    /// A request under MACs.
    pub(crate) fn maced(&self, first: u64, replier: u16, ops: &[&'static [u8]]) -> Bytes {
        let package = self.package(first, replier, ops);
        let (key, body) = (request_key(&package), package_content(&package));
        Frame { key, auth: self.keyring.mac_vector(&key.to_array()), body }.to_bytes()
    }

    /// A frame of ours of any kind, under MACs.
    pub(crate) fn frame(&self, kind: Kind, number: u64, body: Bytes) -> Frame {
        let digest = tercio_crypto::hash(self.keyring.membership().suite(), &[&body]);
        let key = tercio_wire::Key {
            kind,
            flags: 0,
            sender: tercio_wire::CLIENT_SENDER,
            view: self.id.0,
            seq: number,
            digest,
        };
        let auth = self.keyring.mac_vector(&key.to_array());
        Frame { key, auth, body }
    }
}

/// The frame that a client sends.
pub(crate) fn request_frame(package: Package) -> Bytes {
    let (key, body) = (request_key(&package), package_content(&package));
    Frame { key, auth: package.auth, body }.to_bytes()
}

/// What a replica answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) from: ReplicaId,
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    pub(crate) digest: Digest,
    pub(crate) body: Bytes,
}

pub(crate) type Make<P> = Box<dyn Fn(&NodeSettings, Signer, Recovery, Instant) -> P>;
/// What executes at each replica.
pub(crate) type Executors = Box<dyn Fn(usize) -> Box<dyn Executor>>;
pub(crate) type Tune = Box<dyn Fn(&mut NodeSettings)>;
pub(crate) type Tamper = Box<dyn FnMut(Principal, Principal, &Bytes) -> Option<Bytes>>;

pub(crate) struct Net<P: Protocol = Pbft> {
    pub(crate) membership: Arc<Membership>,
    pub(crate) nodes: Vec<Option<Node<MemStorage, P>>>,
    pub(crate) disks: Vec<MemStorage>,
    pub(crate) now: Instant,
    /// How far each node's clock is behind, from its next start on.
    pub(crate) behind: Vec<Duration>,
    pub(crate) wire: VecDeque<(Principal, Principal, Bytes)>,
    pub(crate) answers: BTreeMap<ClientId, Vec<Answer>>,
    /// Nothing reaches or leaves these.
    pub(crate) cut: BTreeSet<ReplicaId>,
    /// Changes frames on their way, or drops them.
    pub(crate) tamper: Option<Tamper>,
    pub(crate) stopped: Vec<(ReplicaId, NodeError)>,
    executors: Executors,
    tune: Tune,
    make: Make<P>,
}

pub(crate) fn quick(settings: &mut NodeSettings) {
    settings.consensus = Settings {
        checkpoint_interval: 4,
        window: 16,
        checkpoint_idle: Duration::from_millis(200),
        ..Settings::default()
    };
    settings.durability = Durability::Sync;
    settings.snapshot_every = 2;
    settings.ledger.blocks.blocks_per_segment = 8;
}

pub(crate) fn pbft() -> Make<Pbft> {
    Box::new(|settings, signer, recovery, now| {
        let NodeSettings { me, membership, consensus, .. } = settings.clone();
        Pbft::new(me, membership, signer, consensus, recovery, now).unwrap()
    })
}

impl Net<Pbft> {
    pub(crate) fn new(n: usize) -> Self {
        Self::with(n, Box::new(counter), Box::new(quick), pbft())
    }

    /// Four replicas of this suite and application.
    pub(crate) fn of_suite(
        suite: Suite,
        app: impl Fn() -> Box<dyn Application> + 'static,
        tune: fn(&mut NodeSettings),
    ) -> Self {
        let membership = membership_with(4, ChainId([9; 32]), suite);
        Self::of(membership, Box::new(move |_| app().into()), Box::new(tune), pbft())
    }
}

impl<P: Protocol> Net<P> {
    pub(crate) fn with(
        n: usize,
        app: Box<dyn Fn() -> Box<dyn Application>>,
        tune: Tune,
        make: Make<P>,
    ) -> Self {
        Self::of(membership(n), Box::new(move |_| app().into()), tune, make)
    }

    /// As [`Self::with`], with executors of the test's own.
    pub(crate) fn over(n: usize, executors: Executors, tune: Tune, make: Make<P>) -> Self {
        Self::of(membership(n), executors, tune, make)
    }

    /// A network of these members; what executes is of their suite.
    fn of(membership: Arc<Membership>, executors: Executors, tune: Tune, make: Make<P>) -> Self {
        let n = membership.n();
        let mut net = Self {
            membership,
            nodes: (0..n).map(|_| None).collect(),
            disks: (0..n).map(|_| MemStorage::default()).collect(),
            now: Instant(1_000_000_000),
            behind: vec![Duration::ZERO; n],
            wire: VecDeque::new(),
            answers: BTreeMap::new(),
            cut: BTreeSet::new(),
            tamper: None,
            stopped: vec![],
            executors,
            tune,
            make,
        };
        (0..n).for_each(|i| net.start(i));
        net
    }

    pub(crate) fn settings(&self, i: usize) -> NodeSettings {
        let me = ReplicaId(i as u16);
        let secret = secret_of(self.membership.suite(), Principal::Replica(me));
        let mut settings = NodeSettings::new(me, secret, self.membership.clone());
        (self.tune)(&mut settings);
        settings
    }

    /// What a node's clock shows.
    fn clock(&self, i: usize) -> Instant {
        Instant(self.now.0 - self.behind[i].as_nanos() as u64)
    }

    pub(crate) fn try_start(&mut self, i: usize) -> Result<(), NodeError> {
        let (settings, now) = (self.settings(i), self.clock(i));
        let made = settings.clone();
        let node = Node::with_protocol(
            settings,
            self.disks[i].clone(),
            (self.executors)(i),
            now,
            |signer, recovery| Ok((self.make)(&made, signer, recovery, now)),
        )?;
        self.nodes[i] = Some(node);
        self.work(i);
        Ok(())
    }

    pub(crate) fn start(&mut self, i: usize) {
        self.try_start(i).unwrap();
    }

    pub(crate) fn stop(&mut self, i: usize) {
        self.nodes[i] = None;
    }

    pub(crate) fn status(&self, i: usize) -> NodeStatus {
        self.nodes[i].as_ref().unwrap().status()
    }

    /// Lets a node do what it has to, and collects what it sends.
    pub(crate) fn work(&mut self, i: usize) {
        let me = ReplicaId(i as u16);
        let now = self.clock(i);
        let Some(node) = &mut self.nodes[i] else { return };
        if let Err(error) = node.step(now) {
            self.stopped.push((me, error));
            self.nodes[i] = None;
            return;
        }
        while let Some(Output::Send { to, bytes }) = node.poll_output() {
            self.wire.push_back((Principal::Replica(me), to, bytes));
        }
    }

    pub(crate) fn send(&mut self, from: Principal, to: usize, bytes: Bytes) {
        self.wire.push_back((from, Principal::Replica(ReplicaId(to as u16)), bytes));
    }

    /// Sends a request to every replica.
    pub(crate) fn ask(&mut self, asker: &Asker, first: u64, ops: &[&'static [u8]]) {
        let bytes = asker.request(first, 0, ops);
        for i in 0..self.nodes.len() {
            self.send(Principal::Client(asker.id), i, bytes.clone());
        }
    }

    fn deliver(&mut self, from: Principal, to: Principal, bytes: Bytes) {
        let is_cut = |p: Principal| matches!(p, Principal::Replica(id) if self.cut.contains(&id));
        if is_cut(from) || is_cut(to) {
            return;
        }
        let bytes = match &mut self.tamper {
            None => bytes,
            Some(tamper) => match tamper(from, to, &bytes) {
                Some(bytes) => bytes,
                None => return,
            },
        };
        match to {
            Principal::Client(client) => {
                let suite = self.membership.suite();
                let frame = Frame::decode(&bytes, suite).unwrap();
                let Principal::Replica(from) = from else { panic!("clients do not answer") };
                let (kind, number, digest) = (frame.key.kind, frame.key.seq, frame.key.digest);
                let answers = self.answers.entry(client).or_default();
                if kind == Kind::REPLY {
                    let replies = decode_replies(&frame.body, suite).unwrap();
                    assert_eq!(digest, replies_digest(&replies, suite));
                    assert_eq!(number, replies[0].first.0);
                    answers.extend(replies.into_iter().map(|reply| {
                        let Reply { first, digest, results } = reply;
                        Answer { from, kind, number: first.0, digest, body: results }
                    }));
                } else {
                    answers.push(Answer { from, kind, number, digest, body: frame.body });
                }
            }
            Principal::Replica(id) => {
                let now = self.clock(id.index());
                if let Some(node) = &mut self.nodes[id.index()] {
                    node.handle_frame(from, &bytes, now);
                    self.work(id.index());
                }
            }
        }
    }

    /// Delivers everything that is in flight.
    pub(crate) fn settle(&mut self) {
        while let Some((from, to, bytes)) = self.wire.pop_front() {
            self.deliver(from, to, bytes);
        }
    }

    /// Delivers the first frame that is in flight.
    pub(crate) fn settle_one(&mut self) {
        if let Some((from, to, bytes)) = self.wire.pop_front() {
            self.deliver(from, to, bytes);
        }
    }

    /// Jumps to the next deadline.
    pub(crate) fn tick(&mut self) {
        let due = |i: usize| Some(self.nodes[i].as_ref()?.deadline()? + self.behind[i]);
        let next = (0..self.nodes.len()).filter_map(due).min();
        let next = next.unwrap_or_else(|| panic!("nobody waits for anything: {:?}", self.stopped));
        self.now = next.max(self.now);
        for i in 0..self.nodes.len() {
            let now = self.clock(i);
            if let Some(node) = &mut self.nodes[i]
                && node.deadline().is_some_and(|at| at <= now)
            {
                node.handle_timeout(now);
            }
            self.work(i);
        }
    }

    /// Goes on until `done`, or fails after much more than it could take.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            self.settle();
            if done(self) {
                return;
            }
            self.tick();
        }
        let statuses: Vec<_> = self.nodes.iter().flatten().map(Node::status).collect();
        panic!("never: {what}; {statuses:#?}; {:?}", self.stopped);
    }

    /// Orders `count` requests of `asker`, one after the other, from number `first` on.
    pub(crate) fn order(&mut self, asker: &Asker, first: u64, count: u64) {
        for number in first..first + count {
            self.ask(asker, number, &[b"op"]);
            self.until("enough replies", |net| {
                net.replies(asker.id, number).len() > net.membership.f()
            });
        }
    }

    pub(crate) fn replies(&self, client: ClientId, number: u64) -> Vec<Answer> {
        let all = self.answers.get(&client).into_iter().flatten();
        all.filter(|a| a.kind == Kind::REPLY && a.number == number).cloned().collect()
    }

    pub(crate) fn all_at(&self, height: u64) -> bool {
        self.nodes.iter().flatten().all(|node| node.status().height.0 == height)
    }

    /// All that run are at one head.
    pub(crate) fn agree(&self) -> bool {
        let heads: BTreeSet<_> = self
            .nodes
            .iter()
            .flatten()
            .map(|node| {
                let status = node.status();
                (status.height, status.block)
            })
            .collect();
        heads.len() == 1
    }
}

/// The results of a full reply.
pub(crate) fn results(answer: &Answer) -> Vec<u64> {
    decode_results(&answer.body, Suite::default())
        .unwrap()
        .into_iter()
        .map(|result| match result {
            OpResult::Executed(bytes) => u64::from_le_bytes(bytes[..8].try_into().unwrap()),
            other => panic!("{other:?}"),
        })
        .collect()
}
