//! The side that fetches: a pure state machine, driven like [`crate::sync::CatchUp`].

use super::message::{
    ANSWER_BYTES, ASKED, FetchState, Node, Offer, Path, State, bounded_chain_bytes, read_subtree,
};
use super::pieces::{Piece, Pieces};
use super::status::{SourceStatus, TransferStatus};
use crate::sync::SyncSettings;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tercio_consensus::Instant;
use tercio_crypto::hash;
use tercio_execution::{APP, CLIENT, ENGINE, MAX_CHUNK, engine_chunk_holds};
use tercio_ledger::verify;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{
    CertifiedCheckpoint, Digest, EMPTY_ROOT, Height, Membership, ReplicaId, SeqNum, Suite,
};
use tercio_wire::{Decode, Reader};

/// How many questions are out at a source at once.
const WINDOW: usize = 4;

/// How many nodes one question asks for; each answer shows some levels below it.
const NODES_ASKED: usize = 8;

/// In how many places there may be pieces already: our own state, and on disk.
const OWN: u8 = 2;

/// How many times the state's own length what is kept of it on disk may have.
const STAGED: u64 = 2;

/// This many chunks to ask for, and nodes can wait.
const CHUNKS_READY: usize = 1024;

/// What the fetching side wants done next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Ask a replica.
    Ask {
        /// Whom.
        to: ReplicaId,
        /// The number that its answer must have.
        number: u64,
        /// For what.
        request: FetchState,
    },
    /// Hand in what is here ([`Transfer::on_own`]): the pieces of our own state, and those that an
    /// earlier fetch has left on disk.
    Own,
    /// Keep these on disk, as long as all that is kept is at most this many bytes.
    Stage(Vec<Piece>, u64),
    /// Go to this state: all of it is here.
    Install(Install),
    /// Nobody has a state to offer, or the blocks are fewer bytes: try blocks.
    Blocks,
}

/// A state that was fetched whole.
#[derive(Clone, Debug)]
pub struct Install {
    /// What certifies it.
    pub certificate: Arc<CertifiedCheckpoint>,
    /// How long the bodies of all blocks up to it are together, in bytes, as the sources say.
    pub chain_bytes: u64,
    /// What of it has a digest.
    pub pieces: Pieces,
    /// The engine's own chunk.
    pub engine: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Offers are coming in until then.
    Asking(Instant),
    /// What is here is; from this many places more.
    Own(u8),
    Fetching,
    Installing,
    /// Nobody could help; another round begins then.
    Pausing(Instant),
}

/// What a replica is to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It was asked what it has.
    Asked,
    /// It has something else than the target, or nothing.
    Elsewhere,
    /// It has the target.
    Source,
    /// It is not asked any more in this round.
    Dropped,
}

#[derive(Clone, Debug)]
struct Peer {
    standing: Standing,
    /// The best that it has offered.
    offer: Option<Box<Offer>>,
    /// The questions that are out, by number.
    out: BTreeMap<u64, Question>,
    /// When it was last heard, or asked while nothing was out.
    heard: Instant,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum Question {
    Offer,
    Nodes(Vec<(Path, Digest)>),
    Chunks(Vec<Wanted>),
}

/// A chunk that is missing.
#[derive(Clone, Debug)]
struct Wanted {
    path: Path,
    /// Its digest; none for the engine's own, which the chained results check.
    digest: Option<Digest>,
    /// What is here of a long one, all from one source.
    begun: Vec<u8>,
}

/// The lower median of what offers say, so that one liar of two raises nothing.
fn median(offers: &[&Offer], number: fn(&Offer) -> u64) -> u64 {
    let mut numbers: Vec<u64> = offers.iter().map(|offer| number(offer)).collect();
    numbers.sort_unstable();
    let last = numbers.len().saturating_sub(1);
    numbers.get(last / 2).copied().unwrap_or(u64::MAX)
}

/// Fetches the state of one certified checkpoint at a time from several replicas.
#[derive(Debug)]
pub struct Transfer {
    me: ReplicaId,
    membership: Arc<Membership>,
    suite: Suite,
    lag: u16,
    settings: SyncSettings,
    phase: Phase,
    /// Where the chain stands here.
    head: (Height, SeqNum),
    /// Whether blocks will do if they are fewer bytes.
    undecided: bool,
    peers: BTreeMap<ReplicaId, Peer>,
    number: u64,
    target: Option<Box<Offer>>,
    pieces: Pieces,
    /// What came and is to be kept on disk.
    staged: Vec<Piece>,
    nodes: VecDeque<(Path, Digest)>,
    chunks: VecDeque<Wanted>,
    /// Chunks that were asked for or are about to be: two leaves may share one.
    wanted: BTreeSet<Digest>,
    engine: Option<Bytes>,
    status: TransferStatus,
    /// How the last one went that fetched something.
    fetched: Option<TransferStatus>,
    dropped: BTreeMap<&'static str, u64>,
    steps: VecDeque<Step>,
}

impl Transfer {
    /// Nothing to fetch.
    #[must_use]
    pub fn new(
        me: ReplicaId,
        membership: Arc<Membership>,
        lag: u16,
        settings: SyncSettings,
    ) -> Self {
        Self {
            me,
            suite: membership.suite(),
            membership,
            lag,
            settings,
            phase: Phase::Idle,
            head: (Height(0), SeqNum(0)),
            undecided: false,
            peers: BTreeMap::new(),
            number: 0,
            target: None,
            pieces: Pieces::default(),
            staged: Vec::new(),
            nodes: VecDeque::new(),
            chunks: VecDeque::new(),
            wanted: BTreeSet::new(),
            engine: None,
            status: TransferStatus::default(),
            fetched: None,
            dropped: BTreeMap::new(),
            steps: VecDeque::new(),
        }
    }

    /// What was dropped, by reason.
    #[must_use]
    pub fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    /// Whether it is in progress.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// How it goes, or went the last time; none when there never was one.
    #[must_use]
    pub fn status(&self) -> Option<TransferStatus> {
        if self.status.phase.is_empty() {
            return None;
        }
        let mut status = self.status.clone();
        if self.phase != Phase::Idle {
            let source = |(replica, peer): (&ReplicaId, &Peer)| SourceStatus {
                replica: *replica,
                bytes: peer.bytes,
                state: match peer.standing {
                    Standing::Asked => "asked",
                    Standing::Elsewhere => "elsewhere",
                    Standing::Source => "source",
                    Standing::Dropped => "dropped",
                },
            };
            status.sources = self.peers.iter().map(source).collect();
        }
        Some(status)
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Begins: everybody is asked for an offer above what we stand at. When `undecided`,
    /// [`Step::Blocks`] says that the blocks are the shorter way.
    pub fn begin(&mut self, head: (Height, SeqNum), undecided: bool, now: Instant) {
        self.head = head;
        self.undecided = undecided;
        let dropped = std::mem::take(&mut self.status.dropped);
        self.status = TransferStatus { dropped, ..TransferStatus::default() };
        self.pieces = Pieces::default();
        self.target = None;
        self.engine = None;
        self.forget_wants();
        self.ask_all(now);
    }

    fn forget_wants(&mut self) {
        self.nodes.clear();
        self.chunks.clear();
        self.wanted.clear();
    }

    fn ask_all(&mut self, now: Instant) {
        self.set_phase(Phase::Asking(now + self.settings.timeout));
        let others = self.membership.replicas().filter(|replica| *replica != self.me);
        self.peers = others
            .map(|replica| {
                let peer = Peer {
                    standing: Standing::Asked,
                    offer: None,
                    out: BTreeMap::new(),
                    heard: now,
                    bytes: 0,
                };
                (replica, peer)
            })
            .collect();
        let replicas: Vec<_> = self.peers.keys().copied().collect();
        replicas.into_iter().for_each(|replica| self.ask_offer(replica));
    }

    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.status.phase = match phase {
            Phase::Idle => self.status.phase,
            Phase::Asking(_) => "asking",
            Phase::Own(_) => "comparing",
            Phase::Fetching => "fetching",
            Phase::Installing => "installing",
            Phase::Pausing(_) => "pausing",
        };
    }

    fn ask_offer(&mut self, to: ReplicaId) {
        let request = FetchState::Offer { height: self.head.0 };
        self.ask(to, Question::Offer, request);
    }

    fn ask(&mut self, to: ReplicaId, question: Question, request: FetchState) {
        self.number += 1;
        let number = self.number;
        let peer = self.peers.get_mut(&to).expect("a peer");
        peer.out.insert(number, question);
        self.steps.push_back(Step::Ask { to, number, request });
    }

    fn drop_reason(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    /// A source is of no help any more in this round. It is named.
    fn drop_peer(&mut self, replica: ReplicaId, reason: &'static str, now: Instant) {
        self.drop_reason(reason);
        self.status.drop_source(replica, reason);
        let peer = self.peers.get_mut(&replica).expect("a peer");
        peer.standing = Standing::Dropped;
        self.put_back(replica);
        self.go_on(now);
    }

    /// What a peer was asked for is to be asked of others.
    fn put_back(&mut self, replica: ReplicaId) {
        let peer = self.peers.get_mut(&replica).expect("a peer");
        for question in std::mem::take(&mut peer.out).into_values() {
            match question {
                Question::Offer => {}
                Question::Nodes(nodes) => self.nodes.extend(nodes),
                Question::Chunks(chunks) => {
                    let whole = |wanted| Wanted { begun: Vec::new(), ..wanted };
                    self.chunks.extend(chunks.into_iter().map(whole));
                }
            }
        }
    }

    /// A replica's answer.
    pub fn on_state(&mut self, from: ReplicaId, number: u64, body: &Bytes, now: Instant) {
        let Some(question) = self.peers.get_mut(&from).and_then(|peer| peer.out.remove(&number))
        else {
            return self.drop_reason("state_not_asked_for");
        };
        let peer = self.peers.get_mut(&from).expect("just seen");
        peer.heard = now;
        peer.bytes += body.len() as u64;
        self.status.bytes += body.len() as u64;
        let answer = State::from_bytes(body, self.suite);
        let outcome = match (question, answer) {
            (Question::Nodes(asked), Ok(State::Nodes(found))) => self.take_nodes(asked, &found),
            (Question::Chunks(asked), Ok(State::Chunks(found))) => {
                self.take_chunks(from, asked, found)
            }
            (question, Ok(State::Offer(offer))) => {
                let peer = self.peers.get_mut(&from).expect("just seen");
                peer.out.insert(number, question);
                self.put_back(from);
                self.take_offer(from, offer)
            }
            (question, _) => {
                let peer = self.peers.get_mut(&from).expect("just seen");
                peer.out.insert(number, question);
                Err("state_junk")
            }
        };
        if let (Some(target), false) = (&self.target, self.staged.is_empty()) {
            let limit = target.state_bytes.saturating_mul(STAGED);
            self.steps.push_back(Step::Stage(std::mem::take(&mut self.staged), limit));
        }
        match outcome {
            Err(reason) if stands(Defence::F24SwitchSource) => self.drop_peer(from, reason, now),
            _ => self.go_on(now),
        }
    }

    /// What a replica has: at most once it may be less than it was.
    fn take_offer(
        &mut self,
        from: ReplicaId,
        offer: Option<Box<Offer>>,
    ) -> Result<(), &'static str> {
        let seq = |offer: &Offer| offer.certificate.checkpoint.seq;
        if let Some(offer) = &offer
            && stands(Defence::F25FullCertificate)
        {
            verify(&self.membership, &offer.certificate).map_err(|_| "offer_wrong_certificate")?;
        }
        if let Some(offer) = &offer {
            let height = offer.certificate.checkpoint.height;
            if bounded_chain_bytes(height, offer.chain_bytes) != offer.chain_bytes {
                return Err("offer_absurd");
            }
        }
        let target = self.target.as_deref().map(seq);
        let peer = self.peers.get_mut(&from).expect("a peer");
        let (before, now) = (peer.offer.as_deref().map(seq), offer.as_deref().map(seq));
        if before > now && stands(Defence::F22NeverLower) {
            return Err("offer_lowered");
        }
        if before.is_some() && before == now && peer.standing == Standing::Source {
            // It was asked for pieces of what it says it has, and gave none.
            return Err("offer_instead_of_pieces");
        }
        peer.standing = match now {
            Some(_) if now == target => Standing::Source,
            _ => Standing::Elsewhere,
        };
        peer.offer = offer;
        Ok(())
    }

    fn take_nodes(
        &mut self,
        asked: Vec<(Path, Digest)>,
        found: &[Bytes],
    ) -> Result<(), &'static str> {
        let mut outcome = if found.is_empty() { Err("state_none") } else { Ok(()) };
        for (i, (path, digest)) in asked.into_iter().enumerate() {
            let Some(subtree) = found.get(i).filter(|_| outcome.is_ok()) else {
                self.nodes.push_front((path, digest));
                continue;
            };
            let mut input = Reader::new(subtree.clone(), self.suite);
            let read = read_subtree(&mut input).and_then(|read| input.finish().map(|()| read));
            match read {
                Ok((top, nodes)) if top == digest => {
                    self.status.nodes += nodes.len() as u64;
                    for (digest, node) in nodes {
                        self.pieces.put_node(digest, node);
                    }
                    self.staged.push(Piece::Subtree(subtree.clone()));
                    self.visit(path, digest);
                }
                other => {
                    outcome = Err(other.map_or("state_junk", |_| "state_wrong_node"));
                    self.nodes.push_front((path, digest));
                }
            }
        }
        outcome
    }

    fn take_chunks(
        &mut self,
        from: ReplicaId,
        asked: Vec<Wanted>,
        found: Vec<(bool, Bytes)>,
    ) -> Result<(), &'static str> {
        let mut outcome = if found.is_empty() { Err("state_none") } else { Ok(()) };
        let mut found = found.into_iter();
        let mut begun = Vec::new();
        let checkpoint = &self.target.as_ref().expect("chunks of it were asked for").certificate;
        for mut wanted in asked {
            let Some((more, part)) = found.next().filter(|_| outcome.is_ok()) else {
                self.chunks.push_front(wanted);
                continue;
            };
            let long = wanted.begun.len() + part.len() > MAX_CHUNK || more && part.is_empty();
            wanted.begun.extend_from_slice(&part);
            if more && !long {
                begun.push(wanted);
                continue;
            }
            let chunk = Bytes::from(std::mem::take(&mut wanted.begun));
            let digest = hash(self.suite, &[&chunk]);
            let holds = match wanted.digest {
                Some(wanted) => wanted == digest || !stands(Defence::F23PieceByDigest),
                None => engine_chunk_holds(self.suite, self.lag, &checkpoint.checkpoint, &chunk),
            };
            if long || !holds {
                outcome = Err("state_wrong_chunk");
                self.chunks.push_front(wanted);
                continue;
            }
            self.status.chunks += 1;
            match wanted.digest {
                Some(digest) => {
                    self.staged.push(Piece::Chunk(chunk.clone()));
                    self.pieces.put_chunk(digest, chunk);
                }
                None => self.engine = Some(chunk),
            }
        }
        if !begun.is_empty() {
            // The rest comes from the same source, so that one is to blame if it is wrong.
            self.ask_chunks(from, begun);
        }
        outcome
    }

    /// Goes down from a node through what is here, and notes what is missing.
    fn visit(&mut self, path: Path, digest: Digest) {
        let mut open = vec![(path, digest)];
        while let Some((path, digest)) = open.pop() {
            match self.pieces.node(&digest) {
                None => self.nodes.push_back((path, digest)),
                Some(Node::Inner([left, right])) => {
                    open.extend([(path.then(true), *right), (path.then(false), *left)]);
                }
                Some(Node::Leaf { value, .. }) if self.pieces.has_chunk(value) => {
                    self.status.reused += u64::from(!self.wanted.contains(value));
                }
                Some(Node::Leaf { value, .. }) => {
                    if self.wanted.insert(*value) {
                        let (digest, begun) = (Some(*value), Vec::new());
                        self.chunks.push_back(Wanted { path, digest, begun });
                    }
                }
            }
        }
    }

    /// What is here, from one of `OWN` places.
    pub fn on_own(&mut self, pieces: Pieces, now: Instant) {
        let Phase::Own(left) = self.phase else { return };
        self.pieces.merge(pieces);
        match left {
            0..=1 => self.start(now),
            _ => self.set_phase(Phase::Own(left - 1)),
        }
    }

    /// Begins to fetch the target.
    fn start(&mut self, now: Instant) {
        let checkpoint = &self.target.as_ref().expect("a target").certificate.checkpoint;
        let (seq, roots) =
            (checkpoint.seq, [(APP, checkpoint.state), (CLIENT, checkpoint.clients)]);
        (self.status.seq, self.status.height) = (seq, checkpoint.height);
        self.forget_wants();
        self.engine = (self.lag == 0).then(Bytes::new);
        if self.engine.is_none() {
            let path = Path::root(ENGINE);
            self.chunks.push_back(Wanted { path, digest: None, begun: Vec::new() });
        }
        for (tree, root) in roots {
            if root != EMPTY_ROOT {
                self.visit(Path::root(tree), root);
            }
        }
        for peer in self.peers.values_mut() {
            let offered = peer.offer.as_ref().map(|offer| offer.certificate.checkpoint.seq);
            peer.out.retain(|_, question| matches!(question, Question::Offer));
            if peer.standing != Standing::Dropped && peer.standing != Standing::Asked {
                let is_source = offered == Some(seq);
                peer.standing = if is_source { Standing::Source } else { Standing::Elsewhere };
            }
        }
        self.set_phase(Phase::Fetching);
        self.go_on(now);
    }

    /// What follows from what has happened.
    fn go_on(&mut self, now: Instant) {
        match self.phase {
            Phase::Asking(_) => {
                let asked = |peer: &Peer| peer.standing == Standing::Asked;
                if !self.peers.values().any(asked) {
                    self.choose(now);
                }
            }
            Phase::Fetching => {
                let fetches = |peer: &Peer| {
                    peer.out.values().any(|question| !matches!(question, Question::Offer))
                };
                let under_way = self.peers.values().any(fetches);
                if self.nodes.is_empty() && self.chunks.is_empty() && !under_way {
                    return self.install();
                }
                if !self.peers.values().any(|peer| peer.standing == Standing::Source) {
                    return self.choose(now);
                }
                self.fill(now);
            }
            Phase::Idle | Phase::Own(_) | Phase::Installing | Phase::Pausing(_) => {}
        }
    }

    /// Takes the checkpoint that most offer, the latest of those.
    fn choose(&mut self, now: Instant) {
        let offers = self.peers.values().filter(|peer| peer.standing != Standing::Dropped);
        let offers: Vec<&Offer> = offers.filter_map(|peer| peer.offer.as_deref()).collect();
        let mut by_seq: BTreeMap<SeqNum, Vec<&Offer>> = BTreeMap::new();
        for offer in &offers {
            let seq = offer.certificate.checkpoint.seq;
            if seq > self.head.1 {
                by_seq.entry(seq).or_default().push(offer);
            }
        }
        let blocks = median(&offers, |offer| offer.block_bytes);
        let best = by_seq.iter().max_by_key(|(seq, offers)| (offers.len(), **seq));
        let Some((_, offers)) = best else {
            return match self.undecided {
                true => self.end("blocks", Some(Step::Blocks)),
                false => self.pause(now),
            };
        };
        let state = median(offers, |offer| offer.state_bytes);
        if self.undecided && blocks / 2 <= state {
            return self.end("blocks", Some(Step::Blocks));
        }
        let mut target = offers[0].clone();
        target.chain_bytes = median(offers, |offer| offer.chain_bytes);
        target.state_bytes = state;
        self.status.state_bytes = state;
        let first = self.target.replace(Box::new(target)).is_none();
        self.undecided = false;
        if first {
            self.set_phase(Phase::Own(OWN));
            self.steps.push_back(Step::Own);
        } else {
            self.start(now);
        }
    }

    /// Nobody can help now; perhaps somebody can later.
    fn pause(&mut self, now: Instant) {
        let peers: Vec<_> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|replica| self.put_back(replica));
        self.set_phase(Phase::Pausing(now + self.settings.timeout));
    }

    /// Gives work to every source that has room for some.
    fn fill(&mut self, now: Instant) {
        let seq = self.target.as_ref().expect("a target").certificate.checkpoint.seq;
        loop {
            let has_room = |peer: &Peer| peer.standing == Standing::Source;
            let sources = self.peers.iter().filter(|(_, peer)| has_room(peer));
            let least = sources.min_by_key(|(_, peer)| peer.out.len());
            let Some((&to, peer)) = least.filter(|(_, peer)| peer.out.len() < WINDOW) else {
                return;
            };
            let idle = peer.out.is_empty();
            if self.nodes.is_empty() && self.chunks.is_empty() {
                return;
            }
            if idle {
                self.peers.get_mut(&to).expect("a peer").heard = now;
            }
            if self.chunks.len() >= CHUNKS_READY || self.nodes.is_empty() {
                let mut asked = Vec::new();
                let most = self.chunks_asked();
                while asked.len() < most
                    && let Some(wanted) = self.chunks.pop_front()
                {
                    asked.push(wanted);
                }
                self.ask_chunks(to, asked);
            } else {
                let count = self.nodes.len().min(NODES_ASKED);
                let asked: Vec<_> = self.nodes.drain(..count).collect();
                let paths = asked.iter().map(|(path, _)| path.clone()).collect();
                self.ask(to, Question::Nodes(asked), FetchState::Nodes { seq, paths });
            }
        }
    }

    fn ask_chunks(&mut self, to: ReplicaId, asked: Vec<Wanted>) {
        let seq = self.target.as_ref().expect("a target").certificate.checkpoint.seq;
        let part = |wanted: &Wanted| (wanted.path.clone(), wanted.begun.len() as u64);
        let parts = asked.iter().map(part).collect();
        self.ask(to, Question::Chunks(asked), FetchState::Chunks { seq, parts });
    }

    /// About as many chunks as an answer has room for.
    fn chunks_asked(&self) -> usize {
        let mean = self.status.bytes / (self.status.chunks + 1);
        let fit = ANSWER_BYTES as u64 / mean.max(1) + 1;
        (fit as usize).clamp(8, ASKED)
    }

    fn install(&mut self) {
        let target = self.target.as_ref().expect("a target");
        let (certificate, chain_bytes) = (Arc::new(target.certificate.clone()), target.chain_bytes);
        let engine = self.engine.take().expect("it was fetched, or is empty");
        let pieces = std::mem::take(&mut self.pieces);
        let install = Install { certificate, chain_bytes, pieces, engine };
        self.set_phase(Phase::Installing);
        self.steps.push_back(Step::Install(install));
    }

    /// The state is installed, durably.
    pub fn on_installed(&mut self) {
        self.end("done", None);
    }

    fn end(&mut self, how: &'static str, step: Option<Step>) {
        self.status = self.status().unwrap_or_default();
        self.status.phase = how;
        match &self.fetched {
            // Nothing was to be had: what is told is how the last state came.
            Some(fetched) if how != "done" => {
                let dropped = std::mem::take(&mut self.status.dropped);
                self.status = TransferStatus { dropped, ..fetched.clone() };
            }
            _ if how == "done" => self.fetched = Some(self.status.clone()),
            _ => {}
        }
        self.phase = Phase::Idle;
        self.pieces = Pieces::default();
        self.peers.clear();
        self.target = None;
        self.forget_wants();
        self.steps.extend(step);
    }

    /// When to call [`Self::on_timeout`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Asking(until) | Phase::Pausing(until) => Some(until),
            Phase::Fetching => {
                let waiting = self.peers.values().filter(|peer| !peer.out.is_empty());
                waiting.map(|peer| peer.heard + 4 * self.settings.timeout).min()
            }
            Phase::Idle | Phase::Own(_) | Phase::Installing => None,
        }
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        match self.phase {
            Phase::Asking(_) => self.choose(now),
            // What is fetched is kept; who was dropped has another chance.
            Phase::Pausing(_) if self.target.is_some() => self.ask_all(now),
            Phase::Pausing(_) => self.end("nobody", Some(Step::Blocks)),
            _ => {
                let late = 4 * self.settings.timeout;
                let stalled = |peer: &Peer| !peer.out.is_empty() && peer.heard + late <= now;
                let found = self.peers.iter().find(|(_, peer)| stalled(peer));
                if let Some((&replica, _)) = found {
                    if stands(Defence::F24SwitchSource) {
                        self.drop_peer(replica, "state_timed_out", now);
                    } else if let Some(peer) = self.peers.get_mut(&replica) {
                        peer.heard = now;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Checkpoint, Epoch, Timestamp};

    fn offer(state_bytes: u64) -> Offer {
        let checkpoint = Checkpoint {
            seq: SeqNum(1),
            height: Height(1),
            block: Digest::NULL,
            results: Digest::NULL,
            state: Digest::NULL,
            clients: Digest::NULL,
            membership: Digest::NULL,
            epoch: Epoch(0),
            time: Timestamp(0),
        };
        let certificate = CertifiedCheckpoint { checkpoint, signatures: vec![] };
        Offer { certificate, state_bytes, chain_bytes: 0, block_bytes: 0 }
    }

    /// Fewer than half of those who offer something raise none of its numbers.
    #[test]
    fn the_lower_of_two_counts() {
        for (said, counts) in [
            (&[][..], u64::MAX),
            (&[7], 7),
            (&[u64::MAX, 7], 7),
            (&[8, u64::MAX, 7], 8),
            (&[u64::MAX, 8, u64::MAX, 7], 8),
        ] {
            let offers: Vec<_> = said.iter().map(|number| offer(*number)).collect();
            let offers: Vec<_> = offers.iter().collect();
            assert_eq!(median(&offers, |offer| offer.state_bytes), counts, "{said:?}");
        }
    }
}
