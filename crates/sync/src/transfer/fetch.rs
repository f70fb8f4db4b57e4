//! The side that fetches: a pure state machine, driven like [`crate::CatchUp`].

mod chunks;
mod fill;
mod give_up;
mod offers;
mod walk;

use super::message::{FetchState, Offer, Path, State};
use super::pieces::{Piece, Pieces};
use super::status::{SourceStatus, TransferStatus};
use crate::{SyncSettings, Tip};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tercio_consensus::Instant;
use tercio_execution::{APP, CLIENT, ENGINE};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{
    CertifiedCheckpoint, Digest, EMPTY_ROOT, Height, Membership, ReplicaId, SeqNum, Suite,
};
use tercio_wire::Decode;

/// How many times the state's own length what is kept of it on disk may have.
const STAGED: u64 = 2;

/// What the fetching side wants done next.
#[derive(Clone, Debug)]
pub enum TransferStep {
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
    height: Height,
    seq: SeqNum,
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
    steps: VecDeque<TransferStep>,
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
            height: Height(0),
            seq: SeqNum(0),
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
    pub fn poll(&mut self) -> Option<TransferStep> {
        self.steps.pop_front()
    }

    /// Begins: everybody is asked for an offer above `from`, what is executed. When `undecided`,
    /// [`TransferStep::Blocks`] says that the blocks are the shorter way.
    pub fn begin(&mut self, from: Tip, undecided: bool, now: Instant) {
        (self.height, self.seq) = (from.height, from.seq);
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

    fn ask(&mut self, to: ReplicaId, question: Question, request: FetchState) {
        self.number += 1;
        let number = self.number;
        let peer = self.peers.get_mut(&to).expect("a peer");
        peer.out.insert(number, question);
        self.steps.push_back(TransferStep::Ask { to, number, request });
    }

    fn drop_reason(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
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
            self.steps.push_back(TransferStep::Stage(std::mem::take(&mut self.staged), limit));
        }
        match outcome {
            Err(reason) if stands(Defence::F24SwitchSource) => self.drop_peer(from, reason, now),
            _ => self.go_on(now),
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

    fn install(&mut self) {
        let target = self.target.as_ref().expect("a target");
        let (certificate, chain_bytes) = (Arc::new(target.certificate.clone()), target.chain_bytes);
        let engine = self.engine.take().expect("it was fetched, or is empty");
        let pieces = std::mem::take(&mut self.pieces);
        let install = Install { certificate, chain_bytes, pieces, engine };
        self.set_phase(Phase::Installing);
        self.steps.push_back(TransferStep::Install(install));
    }

    /// The state is installed, durably.
    pub fn on_installed(&mut self) {
        self.end("done", None);
    }

    fn end(&mut self, how: &'static str, step: Option<TransferStep>) {
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
}
