//! A network of replicas under the test's hand: real keys and real frames, a queue instead of
//! sockets, time that the test moves, and an application that hashes what it is given.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::{
    Pbft, PbftMessage, Recovery, SignedNewView, SignedViewChange, ViewChange,
};
use tercio_consensus::*;
use tercio_crypto::{Instance, Keyring, SecretKey, Signer, Verified};
use tercio_types::*;
use tercio_wire::*;

pub const SUITE: Suite = Suite::Sha256Ed25519;

fn replica_key(i: usize) -> SecretKey {
    SecretKey::from_seed([1 + i as u8; 32])
}

fn client_key(i: u64) -> SecretKey {
    SecretKey::from_seed([100 + i as u8; 32])
}

pub fn membership(n: usize) -> Arc<Membership> {
    let members =
        (0..n).map(|i| Member { key: replica_key(i).public(), address: String::new() }).collect();
    let clients = (0..4).map(|i| (ClientId(i), ClientInfo::new(client_key(i).public())));
    let (chain, epoch, model) = (ChainId([9; 32]), Epoch(0), FaultModel::Byzantine);
    Arc::new(Membership::new(chain, epoch, SUITE, model, members, clients.collect()).unwrap())
}

pub fn ring(membership: &Arc<Membership>, who: Principal) -> Keyring {
    let key = match who {
        Principal::Replica(id) => replica_key(id.index()),
        Principal::Client(id) => client_key(id.0),
    };
    Keyring::new(who, key, membership.clone(), Instance(0))
}

pub fn signer(membership: &Arc<Membership>, replica: usize) -> Signer {
    ring(membership, Principal::Replica(ReplicaId(replica as u16))).signer()
}

/// What a replica's disk would hold.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub records: Vec<Bytes>,
    pub stable: Option<CertifiedCheckpoint>,
    pub delivered: Vec<(SeqNum, Option<Arc<EncodedBatch>>)>,
    /// Whether there are no records because the log was lost.
    pub lost: bool,
    /// Whether the replica asks, before it promises anything, what it signed last.
    pub asks: bool,
}

impl Disk {
    fn height(&self) -> Height {
        Height(self.delivered.iter().filter(|(_, batch)| batch.is_some()).count() as u64)
    }
}

/// Which requests are done in what a disk holds.
fn windows(disk: &Disk) -> BTreeMap<ClientId, RequestWindow> {
    let mut windows: BTreeMap<ClientId, RequestWindow> = BTreeMap::new();
    let batches = disk.delivered.iter().filter_map(|(_, b)| b.as_ref());
    for package in batches.flat_map(|b| &b.batch.packages) {
        for (seq, _) in package.numbered() {
            windows.entry(package.client).or_default().insert(seq);
        }
    }
    windows
}

pub struct Peer {
    pub pbft: Pbft,
    pub disk: Disk,
    /// Records acknowledged by the medium; the rest is written and not durable.
    pub acknowledge: bool,
    /// Whether deliveries are executed at once.
    pub execute: bool,
    /// Those that are not.
    pub unexecuted: VecDeque<Delivery>,
    pub pending_acks: VecDeque<PersistId>,
    pub evidence: Vec<Evidence>,
    pub view_steps: Vec<ViewStep>,
    pub declined: Vec<(ClientId, RequestSeq, tercio_wire::reject::Reason)>,
    pub repeated: Vec<RequestSeq>,
    pub attested: Vec<Height>,
    pub catch_up: Vec<Arc<CertifiedCheckpoint>>,
    pub veto: bool,
    pub sent: Vec<PbftMessage>,
}

/// Decides whether a message from one replica to another goes through.
pub type Filter = Box<dyn FnMut(usize, usize, &PbftMessage) -> bool>;

pub struct Net {
    pub membership: Arc<Membership>,
    pub settings: Settings,
    pub rings: Vec<Keyring>,
    pub peers: Vec<Option<Peer>>,
    pub queue: VecDeque<(usize, usize, Bytes)>,
    pub filter: Filter,
    pub now: Instant,
    /// Whether a replica that asks for blocks gets them at once.
    pub serve_blocks: bool,
    /// Whether what replicas forward is lost.
    pub lose_forwards: bool,
    forwards: VecDeque<(usize, usize, Package)>,
    censored: Option<ClientId>,
}

impl Net {
    pub fn new(n: usize, settings: Settings) -> Self {
        let membership = membership(n);
        let rings =
            (0..n as u16).map(|i| ring(&membership, Principal::Replica(ReplicaId(i)))).collect();
        let mut net = Self {
            membership,
            settings,
            rings,
            peers: (0..n).map(|_| None).collect(),
            queue: VecDeque::new(),
            filter: Box::new(|_, _, _| true),
            now: Instant(1_000_000_000_000),
            serve_blocks: true,
            lose_forwards: false,
            forwards: VecDeque::new(),
            censored: None,
        };
        (0..n).for_each(|i| net.start(i, Disk::default()));
        net
    }

    pub fn with(n: usize, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings { checkpoint_interval: 8, window: 32, ..Settings::default() };
        change(&mut settings);
        settings.view_timeout_max = settings.view_timeout_max.max(settings.view_timeout);
        Self::new(n, settings)
    }

    pub fn start(&mut self, i: usize, disk: Disk) {
        let recovery = Recovery {
            records: disk.records.clone(),
            lost_log: disk.lost && disk.records.is_empty(),
            stable: disk.stable.clone(),
            delivered: disk.delivered.last().map_or(SeqNum(0), |(seq, _)| *seq),
            windows: windows(&disk),
            height: disk.height(),
            ask_first: disk.asks,
        };
        let (me, m) = (ReplicaId(i as u16), self.membership.clone());
        let signer = self.rings[i].signer();
        let pbft = Pbft::new(me, m, signer, self.settings.clone(), recovery, self.now).unwrap();
        self.peers[i] = Some(Peer {
            pbft,
            disk,
            acknowledge: true,
            execute: true,
            unexecuted: VecDeque::new(),
            pending_acks: VecDeque::new(),
            evidence: vec![],
            view_steps: vec![],
            declined: vec![],
            repeated: vec![],
            attested: vec![],
            catch_up: vec![],
            veto: false,
            sent: vec![],
        });
        self.drain(i);
        self.replay(i);
    }

    /// What a replica executes again when it starts gives it the states that it may have signed, and
    /// perhaps had not yet.
    fn replay(&mut self, i: usize) {
        let interval = self.settings.checkpoint_interval;
        let disk = &self.peer(i).disk;
        let stable = disk.stable.as_ref().map_or(SeqNum(0), |stable| stable.checkpoint.seq);
        let asks = |batch: &Arc<EncodedBatch>| batch.batch.checkpoint;
        let due = disk.delivered.iter().filter(|(seq, batch)| {
            let asked = batch.as_ref().is_some_and(asks) || seq.0.is_multiple_of(interval);
            asked && *seq > stable
        });
        let due: Vec<_> = due.cloned().collect();
        for (seq, batch) in due {
            let event = self.executed(i, &Delivery { seq, batch, checkpoint: true });
            let Event::Executed { seq, checkpoint, .. } = event else { unreachable!() };
            self.handle(i, Event::Executed { seq, block: None, checkpoint });
        }
    }

    pub fn stop(&mut self, i: usize) -> Disk {
        self.peers[i].take().unwrap().disk
    }

    pub fn peer(&mut self, i: usize) -> &mut Peer {
        self.peers[i].as_mut().unwrap()
    }

    /// A package of one client, good for the replicas of `good_for` (all when `None`).
    pub fn package(
        &self,
        client: u64,
        first: u64,
        ops: usize,
        good_for: Option<&[usize]>,
    ) -> Package {
        let ops: Vec<Op> =
            (0..ops).map(|i| Bytes::from(format!("op {client} {}", first + i as u64))).collect();
        let (id, first) = (ClientId(client), RequestSeq(first));
        let mut content = Vec::new();
        encode_package_content(id, first, OpKind::User, ReplicaId(0), &ops, &mut content);
        let none = Authenticator::Mac(Tag::default());
        let mut package = package_from_content(&content.into(), none, SUITE).unwrap();
        let ring = ring(&self.membership, Principal::Client(id));
        let said = request_key(&package).to_array();
        package.auth = ring.mac_vector(&said);
        if let (Some(good), Authenticator::MacVector(tags)) = (good_for, &mut package.auth) {
            let mut spoilt: Vec<Tag> = tags.iter().collect();
            for (i, tag) in spoilt.iter_mut().enumerate().filter(|(i, _)| !good.contains(i)) {
                tag.0[0] ^= 1 + i as u8;
            }
            *tags = spoilt.into();
        }
        package
    }

    pub fn signed(&self, client: u64, first: u64, ops: usize) -> Package {
        let mut package = self.package(client, first, ops, None);
        let ring = ring(&self.membership, Principal::Client(ClientId(client)));
        package.auth = ring.sign(&request_key(&package).to_array()).into();
        package
    }

    /// Hands a package to replica `i` as its client would; false when its tag is refused.
    pub fn request(&mut self, i: usize, package: &Package) -> bool {
        let (key, body) = (request_key(package), package_content(package));
        let frame = Frame { key, auth: package.auth.clone(), body };
        let received = Received::<Request>::from_frame(frame, SUITE).unwrap();
        let Ok(verified) = self.rings[i].verify(received) else { return false };
        self.handle(i, Event::Request(verified));
        true
    }

    pub fn handle(&mut self, i: usize, event: Event<PbftMessage>) {
        let now = self.now;
        self.peer(i).pbft.handle(event, now);
        self.drain(i);
    }

    /// Makes a message of replica `from` as the wire would carry it.
    pub fn frame(&self, from: usize, message: &PbftMessage) -> Bytes {
        let ring = &self.rings[from];
        message.to_frame(ReplicaId(from as u16), SUITE, |key| ring.mac_vector(key)).to_bytes()
    }

    pub fn inject(&mut self, from: usize, to: usize, message: &PbftMessage) {
        let bytes = self.frame(from, message);
        self.queue.push_back((from, to, bytes));
    }

    /// As [`Net::inject`], to all that run.
    pub fn inject_all(&mut self, from: usize, message: &PbftMessage) {
        for to in (0..self.peers.len()).filter(|to| *to != from) {
            if self.peers[to].is_some() {
                self.inject(from, to, message);
            }
        }
    }

    pub fn verify(&mut self, to: usize, bytes: &Bytes) -> Verified<Received<PbftMessage>> {
        let frame = Frame::decode(bytes, SUITE).expect("well-formed");
        let received = Received::from_frame(frame, SUITE).expect("a message");
        self.rings[to].verify(received).expect("honest authenticators")
    }

    fn post(&mut self, from: usize, to: usize, message: &PbftMessage) {
        if (self.filter)(from, to, message) {
            let bytes = self.frame(from, message);
            self.queue.push_back((from, to, bytes));
        }
    }

    /// Carries out what replica `i` wants done.
    pub fn drain(&mut self, i: usize) {
        while let Some(effect) = self.peer(i).pbft.poll_effect() {
            let now = self.now;
            match effect {
                Effect::Send { to, message } => {
                    self.peer(i).sent.push(message.clone());
                    self.post(i, to.index(), &message);
                }
                Effect::Broadcast(message) => {
                    self.peer(i).sent.push(message.clone());
                    for to in (0..self.peers.len()).filter(|to| *to != i) {
                        self.post(i, to, &message);
                    }
                }
                Effect::Persist { id, record, .. } => self.written(i, id, Some(record)),
                Effect::Deliver(delivery) => {
                    self.peer(i).disk.delivered.push((delivery.seq, delivery.batch.clone()));
                    if self.peer(i).execute {
                        let event = self.executed(i, &delivery);
                        self.peer(i).pbft.handle(event, now);
                    } else {
                        self.peer(i).unexecuted.push_back(delivery);
                    }
                }
                Effect::PersistBlocks { id, .. } => self.written(i, id, None),
                Effect::Stable { certificate, id, record } => {
                    self.peer(i).disk.stable = Some((*certificate).clone());
                    self.written(i, id, Some(record));
                }
                Effect::CatchUp(certificate) => {
                    self.peer(i).catch_up.push(certificate.clone());
                    if self.serve_blocks {
                        self.catch_up(i, certificate);
                    }
                }
                Effect::Forward { to, package } => {
                    self.forwards.push_back((i, to.index(), package));
                }
                Effect::Repeat { first, .. } => self.peer(i).repeated.push(first),
                Effect::Decline { client, first, reason } => {
                    self.peer(i).declined.push((client, first, reason));
                }
                Effect::BuildProposal(packages) => {
                    let keep = (0..packages.len()).rev().collect();
                    self.peer(i).pbft.handle(Event::Proposal(keep), now);
                }
                Effect::ValidateProposal { seq, batch } => {
                    let accept = !self.peer(i).veto;
                    let digest = batch.digest;
                    self.peer(i).pbft.handle(Event::Verdict { seq, digest, accept }, now);
                }
                Effect::Attested { height, .. } => self.peer(i).attested.push(height),
                Effect::Evidence(evidence) => self.peer(i).evidence.push(evidence),
                Effect::View(step) => self.peer(i).view_steps.push(step),
            }
        }
    }

    /// The log of replica `i` got something.
    fn written(&mut self, i: usize, id: PersistId, record: Option<Bytes>) {
        let now = self.now;
        let peer = self.peer(i);
        if peer.acknowledge {
            peer.disk.records.extend(record);
            peer.pbft.handle(Event::Persisted(id), now);
        } else {
            peer.pending_acks.push_back(id);
        }
    }

    /// Brings replica `i` up to a certificate with what another one delivered.
    pub fn catch_up(&mut self, i: usize, certificate: Arc<CertifiedCheckpoint>) {
        let upto = certificate.checkpoint.seq;
        let source = self
            .peers
            .iter()
            .enumerate()
            .filter(|(j, _)| *j != i)
            .filter_map(|(_, p)| p.as_ref())
            .map(|p| &p.disk.delivered)
            .find(|log| log.last().is_some_and(|(seq, _)| *seq >= upto))
            .expect("who certified it has it");
        let blocks = source.iter().filter(|(seq, _)| *seq <= upto).cloned().collect();
        let now = self.now;
        let peer = self.peer(i);
        peer.disk.delivered = blocks;
        let windows = windows(&peer.disk);
        peer.pbft.handle(Event::CaughtUp { certificate, windows }, now);
    }

    /// Executes what replica `i` has put off.
    pub fn execute(&mut self, i: usize) {
        while let Some(delivery) = self.peer(i).unexecuted.pop_front() {
            let event = self.executed(i, &delivery);
            self.handle(i, event);
        }
    }

    /// What the hashing application says of a delivery.
    pub fn executed(&mut self, i: usize, delivery: &Delivery) -> Event<PbftMessage> {
        let log = &self.peer(i).disk.delivered;
        let (mut state, mut height) = (Digest::NULL, 0);
        for (seq, batch) in log.iter().filter(|(seq, _)| *seq <= delivery.seq) {
            let Some(batch) = batch.as_ref().filter(|b| !b.batch.packages.is_empty()) else {
                continue;
            };
            state = tercio_crypto::hash(SUITE, &[&state.0, &seq.0.to_le_bytes(), &batch.digest.0]);
            height += 1;
        }
        let block = (delivery.batch.as_ref())
            .filter(|b| !b.batch.packages.is_empty())
            .map(|_| (Height(height), state));
        let checkpoint = delivery.checkpoint.then_some(Checkpoint {
            seq: delivery.seq,
            height: Height(height),
            block: state,
            results: state,
            state,
            clients: state,
            membership: state,
            epoch: Epoch(0),
            time: Timestamp(0),
        });
        Event::Executed { seq: delivery.seq, block, checkpoint }
    }

    /// Delivers messages until none is in flight.
    pub fn settle(&mut self) {
        loop {
            if let Some((from, to, bytes)) = self.queue.pop_front() {
                if self.peers[to].is_some() {
                    let verified = self.verify(to, &bytes);
                    let _ = from;
                    self.handle(to, Event::Message(verified));
                }
            } else if let Some((from, to, package)) = self.forwards.pop_front() {
                let censored = to == 0 && Some(package.client) == self.censored;
                if self.peers[to].is_some() && to != from && !censored && !self.lose_forwards {
                    let forward = Forward(package);
                    let ring = &self.rings[from];
                    let me = ReplicaId(from as u16);
                    let frame = forward.to_frame(me, SUITE, |key| ring.mac_vector(key));
                    let received = Received::from_frame(frame, SUITE).unwrap();
                    let verified = self.rings[to].verify(received).unwrap();
                    self.handle(to, Event::Forwarded(verified));
                }
            } else {
                return;
            }
        }
    }

    /// Moves the time on, handing in time-outs where they fall.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            self.settle();
            let next = (0..self.peers.len())
                .filter_map(|i| Some((self.peers[i].as_ref()?.pbft.deadline()?, i)))
                .min();
            let Some((at, i)) = next.filter(|(at, _)| *at <= end) else { break };
            self.now = self.now.max(at);
            self.handle(i, Event::Timeout);
        }
        self.now = end;
    }

    /// As [`Net::pass`], with replica 0 deaf to what is forwarded of one client.
    pub fn pass_censored(&mut self, duration: Duration, client: ClientId) {
        self.censored = Some(client);
        self.pass(duration);
        self.censored = None;
    }

    /// The digests that replica `i` delivered, by number.
    pub fn log(&self, i: usize) -> Vec<Option<Digest>> {
        let peer = self.peers[i].as_ref().unwrap();
        peer.disk.delivered.iter().map(|(_, b)| b.as_ref().map(|b| b.digest)).collect()
    }

    pub fn operations(&self, i: usize) -> Vec<Bytes> {
        let peer = self.peers[i].as_ref().unwrap();
        let batches = peer.disk.delivered.iter().filter_map(|(_, b)| b.as_ref());
        batches
            .flat_map(|b| &b.batch.packages)
            .flat_map(|p| p.numbered())
            .map(|(_, op)| op)
            .collect()
    }

    /// Asserts that all running replicas agree as far as each got, and gives the longest log.
    pub fn agree(&self) -> Vec<Option<Digest>> {
        let logs: Vec<_> = (0..self.peers.len())
            .filter(|i| self.peers[*i].is_some())
            .map(|i| self.log(i))
            .collect();
        let longest = logs.iter().max_by_key(|log| log.len()).unwrap().clone();
        for log in &logs {
            assert_eq!(log[..], longest[..log.len()]);
        }
        longest
    }

    pub fn status(&self, i: usize) -> Status {
        self.peers[i].as_ref().unwrap().pbft.status()
    }
}

/// Hands a package to every replica that runs, as a client does that was not answered.
pub fn to_all(net: &mut Net, package: &Package) {
    for i in 0..net.peers.len() {
        if net.peers[i].is_some() {
            net.request(i, package);
        }
    }
}

/// A VIEW-CHANGE that knows no certificate and binds nobody.
pub fn view_change(net: &Net, from: usize, view: u64) -> Arc<SignedViewChange> {
    let content = ViewChange {
        view: View(view),
        stable: None,
        prepared: vec![],
        preprepared: vec![],
        blamed: vec![],
    };
    let signer = signer(&net.membership, from);
    Arc::new(SignedViewChange::new(ReplicaId(from as u16), content, &signer, SUITE))
}

/// A NEW-VIEW, signed by `from`, of these VIEW-CHANGEs.
pub fn new_view(net: &Net, from: usize, view: u64, vcs: Vec<Arc<SignedViewChange>>) -> PbftMessage {
    let signer = signer(&net.membership, from);
    let sender = ReplicaId(from as u16);
    PbftMessage::NewView(Arc::new(SignedNewView::new(sender, View(view), vcs, &signer, SUITE)))
}
