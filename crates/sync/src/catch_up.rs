//! Catching up: blocks that were missed come from another replica.
//!
//! Nothing that a peer says is believed, and nothing uncertified is ever executed.
//! - Asked by consensus to reach a certified checkpoint ([`CatchUp::begin`]), the replica asks one
//!   peer for blocks from its head on (FETCH_BLOCKS), and goes on asking it as long as what comes
//!   is good.
//! - A block is taken into a bounded buffer when its header follows the one before it and names its
//!   body.
//! - The buffer is executed when its last block is the one that a certificate names: the one that
//!   consensus gave, or one that came along, whose signatures are checked here. Then the chained
//!   results must be the certified ones, and with those that consensus gave all of the state, or
//!   the replica stops. While it is executed, the next one is fetched; so at most two are here at a
//!   time, and what a certificate does not cover yet.
//! - A peer that does not answer in time, sends junk, gives block by block what one answer has room
//!   for, or sends more blocks than the buffer holds ([`buffer_bytes`]) without a certificate is passed
//!   over, counted, and what it sent is forgotten.
//!   A liar can fill the buffer once before it is.
//!
//! Only the state of another can help ([`CatchUpStep::NobodyHas`], [`crate::transfer`]) when nobody could
//! and one of them has let the blocks go (`retain.bytes`), and when the blocks of f+1 filled the
//! buffer since the last progress: one of those is correct, so more lies between two certificates
//! than there is room for. When there is no state to be had either, blocks are tried again after a
//! pause.

use crate::blocks::{ANSWER_BLOCKS, BLOCKS_ANSWER_BYTES, Blocks, FetchBlocks};
use crate::{SyncSettings, Tip};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tercio_consensus::{Instant, Settings};
use tercio_ledger::{Block, verify};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{
    CertifiedCheckpoint, Digest, Height, Membership, ReplicaId, ReplicaSet, SeqNum,
};
use tercio_wire::{Decode, block_hash};

/// How many answers of a source may begin with a block that its last one had room for: its log may
/// have ended there.
const MOST_DRIPS: u32 = 8;
/// How often the time of a source doubles, when none of them answered in time: they may be far away.
const MOST_ROUNDS: u32 = 3;

/// How much memory blocks may take that wait for their certificate, headers included: as much as
/// may lie between two certificates where the others have the settings that this replica has. What is
/// decided above a certificate is less than two rooms (rule W4, decision 0032) at less than a window
/// of numbers.
#[must_use]
pub fn buffer_bytes(consensus: &Settings) -> usize {
    let window = usize::try_from(consensus.window).unwrap_or(usize::MAX);
    let headers = window.saturating_mul(size_of::<Block>());
    consensus.held_bytes.saturating_mul(2).saturating_add(headers)
}

/// What a block takes up in the buffer: one without a body is not for nothing.
fn cost(block: &Block) -> usize {
    block.body.len() + size_of::<Block>()
}

/// Blocks that a quorum vouches for: the last is the one that the certificate names. There may be
/// none, when nothing but null requests lies between.
#[derive(Clone, Debug)]
pub struct CertifiedBlocks {
    /// The blocks, the first on top of what is executed.
    pub blocks: Vec<Block>,
    /// The proof.
    pub certificate: Arc<CertifiedCheckpoint>,
    /// Whether catching up ends with them: the state must be the certified one then.
    pub last: bool,
}

/// What catching up wants done ([`CatchUp::poll`]).
#[derive(Clone, Debug)]
pub enum CatchUpStep {
    /// Ask a peer.
    Ask {
        /// Whom.
        to: ReplicaId,
        /// For what.
        request: FetchBlocks,
    },
    /// Execute.
    Replay(CertifiedBlocks),
    /// Blocks are of no help now: look for a state. Catching up has ended.
    NobodyHas,
}

/// A question that is out.
#[derive(Clone, Copy, Debug)]
struct Asked {
    peer: ReplicaId,
    from: Height,
    at: Instant,
    deadline: Instant,
}

/// Catches up with one certified checkpoint at a time.
#[derive(Debug)]
pub struct CatchUp {
    me: ReplicaId,
    membership: Arc<Membership>,
    settings: SyncSettings,
    /// The most that the buffer may take up.
    room: usize,
    target: Option<Arc<CertifiedCheckpoint>>,
    /// What is executed, or handed to execution.
    executed: Tip,
    /// Blocks behind it that are not certified yet.
    buffer: Vec<Block>,
    /// How much it takes up.
    bytes: usize,
    /// The end of the buffer.
    tip: Tip,
    /// How many bytes of bodies, and blocks, the last answer of this source had that ended at no
    /// certificate.
    last: Option<(usize, usize)>,
    /// How many of its answers began with what the one before had room for.
    drips: u32,
    /// Whether execution has blocks of ours.
    executing: bool,
    /// What is for execution next: blocks, and what certifies them.
    ready: Option<(Vec<Block>, Arc<CertifiedCheckpoint>)>,
    steps: VecDeque<CatchUpStep>,
    asked: Option<Asked>,
    /// When to begin another round after nobody could help.
    pause: Option<Instant>,
    /// Who was no help since the last progress.
    tried: ReplicaSet,
    /// How many rounds in a row nobody answered in the time of the settings.
    rounds: u32,
    /// Whether one of them said that it does not hold the blocks.
    gone: bool,
    /// Whose blocks filled the buffer since the last progress, whatever the target was.
    uncertified: ReplicaSet,
    next_peer: ReplicaId,
    /// How many bytes of answers came.
    fetched: u64,
    dropped: BTreeMap<&'static str, u64>,
}

impl CatchUp {
    /// Nothing to catch up with. What waits for its certificate may take up `room` ([`buffer_bytes`]).
    #[must_use]
    pub fn new(
        me: ReplicaId,
        membership: Arc<Membership>,
        settings: SyncSettings,
        room: usize,
    ) -> Self {
        let start = Tip { height: Height(0), block: Digest::NULL, seq: SeqNum(0) };
        let next_peer = ReplicaId(me.0 + 1);
        Self {
            me,
            membership,
            settings,
            room,
            target: None,
            executed: start,
            buffer: Vec::new(),
            bytes: 0,
            tip: start,
            last: None,
            drips: 0,
            executing: false,
            ready: None,
            steps: VecDeque::new(),
            asked: None,
            pause: None,
            tried: ReplicaSet::EMPTY,
            rounds: 0,
            gone: false,
            uncertified: ReplicaSet::EMPTY,
            next_peer,
            fetched: 0,
            dropped: BTreeMap::new(),
        }
    }

    /// What was dropped, by reason.
    #[must_use]
    pub fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    /// How many bytes of answers came, all together.
    #[must_use]
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Whether it is in progress.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.target.is_some()
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<CatchUpStep> {
        self.steps.pop_front()
    }

    /// Goes for `target` from what is executed, `from`. Under way already, it goes on from where it
    /// is.
    ///
    /// # Panics
    /// When it is on the way to one above `target`: blocks may be executed that are beyond it.
    pub fn begin(&mut self, target: Arc<CertifiedCheckpoint>, from: Tip, now: Instant) {
        let before = self.target.replace(target.clone());
        let is_new = before.is_none();
        let rises = before.is_none_or(|before| before.checkpoint.seq <= target.checkpoint.seq);
        assert!(rises, "a target below the one before");
        if is_new {
            self.uncertified = ReplicaSet::EMPTY;
        }
        self.tried = ReplicaSet::EMPTY;
        self.gone = false;
        if !self.executing {
            self.executed = from;
            self.forget();
            (self.asked, self.pause, self.ready) = (None, None, None);
        }
        self.go_on(now);
    }

    /// Goes on to `target` without an end at the one before, if it is above that.
    pub fn raise(&mut self, target: Arc<CertifiedCheckpoint>) {
        if let Some(before) = &mut self.target
            && before.checkpoint.seq < target.checkpoint.seq
        {
            *before = target;
        }
    }

    /// Has the next blocks executed, and meanwhile asks for those after them.
    fn go_on(&mut self, now: Instant) {
        let Some(target) = self.target.clone() else { return };
        if !self.executing
            && let Some((blocks, certificate)) = self.ready.take()
        {
            self.executing = true;
            let last = certificate.checkpoint.seq >= target.checkpoint.seq;
            self.steps.push_back(CatchUpStep::Replay(CertifiedBlocks {
                blocks,
                certificate,
                last,
            }));
        }
        if self.executed.height < target.checkpoint.height {
            if self.ready.is_none() && self.asked.is_none() && self.pause.is_none() {
                self.ask(now);
            }
        } else if !self.executing {
            // At the same height there were null requests only; above it our chain is another
            // one, which the comparison of the states will say.
            self.executing = true;
            let run = CertifiedBlocks { blocks: vec![], certificate: target, last: true };
            self.steps.push_back(CatchUpStep::Replay(run));
        }
    }

    fn forget(&mut self) {
        (self.last, self.drips) = (None, 0);
        self.buffer = Vec::new();
        self.bytes = 0;
        self.tip = self.executed;
    }

    /// Asks the peer whose turn it is for what follows the buffer.
    fn ask(&mut self, now: Instant) {
        let Some(target) = &self.target else { return };
        let to = target.checkpoint.height;
        let mut peers = self.membership.ids().circle(self.next_peer);
        let peer = peers.find(|p| *p != self.me && !self.tried.contains(*p));
        let too_long = self.is_too_long();
        let Some(peer) = peer.filter(|_| !too_long) else {
            if !self.gone && !too_long {
                // Nobody could help; perhaps somebody can later, and perhaps all are far away.
                self.rounds = self.rounds.saturating_add(1);
                self.pause = Some(now + self.settings.timeout);
            } else if !self.executing {
                self.target = None;
                self.steps.push_back(CatchUpStep::NobodyHas);
            }
            return;
        };
        self.next_peer = peer;
        let from = self.tip.height.next();
        let patience = self.settings.timeout * (1 << self.rounds.min(MOST_ROUNDS));
        self.asked = Some(Asked { peer, from, at: now, deadline: now + patience });
        self.steps.push_back(CatchUpStep::Ask { to: peer, request: FetchBlocks { from, to } });
    }

    /// Whether there is more up to the next certificate than the buffer holds, as one correct replica
    /// says at least.
    fn is_too_long(&self) -> bool {
        self.uncertified.len() >= self.membership.weak_quorum()
            && stands(Defence::F47UncertifiedIsGone)
    }

    /// The peer is of no help: what it sent is forgotten, and the next is asked.
    fn pass_over(&mut self, peer: ReplicaId, reason: &'static str, now: Instant) {
        *self.dropped.entry(reason).or_default() += 1;
        self.tried.insert(peer);
        self.gone |= reason == "blocks_none";
        if reason == "blocks_uncertified" {
            self.uncertified.insert(peer);
        }
        self.asked = None;
        self.forget();
        self.ask(now);
    }

    /// Whether blocks of `peer` from `from` on are the answer to our question.
    #[must_use]
    pub fn expects(&self, peer: ReplicaId, from: Height) -> bool {
        self.asked.is_some_and(|asked| (asked.peer, asked.from) == (peer, from))
    }

    /// A peer's blocks.
    pub fn on_blocks(&mut self, peer: ReplicaId, from: Height, body: &Bytes, now: Instant) {
        if !self.expects(peer, from) {
            *self.dropped.entry("blocks_not_asked_for").or_default() += 1;
            return;
        }
        let asked = self.asked.take().expect("just seen");
        if now.since(asked.at) < self.settings.timeout {
            self.rounds = 0;
        }
        self.fetched += body.len() as u64;
        match self.take(body) {
            Err(reason) => self.pass_over(peer, reason, now),
            Ok(Some(certificate)) => {
                let blocks = std::mem::take(&mut self.buffer);
                self.executed = Tip::of(&certificate.checkpoint);
                self.forget();
                self.tried = ReplicaSet::EMPTY;
                self.gone = false;
                self.uncertified = ReplicaSet::EMPTY;
                self.ready = Some((blocks, certificate));
                self.go_on(now);
            }
            Ok(None) => self.ask(now),
        }
    }

    /// Whether the source could have sent this block with its last answer: an honest one fills each
    /// answer, and one that gives block by block would decide how long catching up takes.
    fn is_dripped(&self, block: &Block) -> bool {
        self.last.is_some_and(|(bytes, blocks)| {
            bytes + block.body.len() <= BLOCKS_ANSWER_BYTES && blocks < ANSWER_BLOCKS
        })
    }

    /// Checks blocks and adds them to the buffer; gives the certificate that covers it now.
    fn take(&mut self, body: &Bytes) -> Result<Option<Arc<CertifiedCheckpoint>>, &'static str> {
        let suite = self.membership.suite();
        let target = self.target.clone().expect("asked for blocks to reach it");
        let Blocks { blocks, certificate } =
            Blocks::from_bytes(body, suite).map_err(|_| "blocks_junk")?;
        let Some(first) = blocks.first() else { return Err("blocks_none") };
        self.drips += u32::from(self.is_dripped(first));
        if self.drips > MOST_DRIPS {
            return Err("blocks_dripped");
        }
        self.last = Some((blocks.iter().map(|block| block.body.len()).sum(), blocks.len()));
        for block in blocks {
            let header = &block.header;
            let follows = header.height == self.tip.height.next()
                && header.parent == self.tip.block
                && header.seq > self.tip.seq
                && header.suite == suite
                && header.epoch == self.membership.epoch()
                && header.height <= target.checkpoint.height;
            if !follows {
                return Err("blocks_wrong_chain");
            }
            if tercio_crypto::hash(suite, &[&block.body]) != header.body {
                return Err("blocks_wrong_body");
            }
            self.bytes += cost(&block);
            if self.bytes > self.room {
                return Err("blocks_uncertified");
            }
            self.tip = Tip { height: header.height, block: block_hash(header), seq: header.seq };
            self.buffer.push(block);
        }
        if self.tip.height == target.checkpoint.height {
            // The target is certified already; no other certificate is needed.
            return match self.covers(&target) {
                true => Ok(Some(target)),
                false => Err("blocks_wrong_chain"),
            };
        }
        let Some(certificate) = certificate else { return Ok(None) };
        if !self.covers(&certificate) {
            return Err("blocks_wrong_certificate");
        }
        if stands(Defence::F25FullCertificate) {
            verify(&self.membership, &certificate).map_err(|_| "blocks_wrong_certificate")?;
        }
        Ok(Some(Arc::new(certificate)))
    }

    /// Whether `certificate` names the end of the buffer.
    fn covers(&self, certificate: &CertifiedCheckpoint) -> bool {
        let checkpoint = &certificate.checkpoint;
        checkpoint.height == self.tip.height
            && checkpoint.block == self.tip.block
            && checkpoint.seq >= self.tip.seq
    }

    /// What was handed to execution is executed, up to `certificate`. Whether that is the target,
    /// and catching up over.
    pub fn on_replayed(&mut self, certificate: &CertifiedCheckpoint, now: Instant) -> bool {
        self.executing = false;
        let seq = certificate.checkpoint.seq;
        if self.target.as_ref().is_some_and(|target| seq < target.checkpoint.seq) {
            self.go_on(now);
            return false;
        }
        (self.target, self.asked, self.pause, self.ready) = (None, None, None, None);
        self.forget();
        true
    }

    /// When to call [`Self::on_timeout`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.asked.map(|asked| asked.deadline).or(self.pause)
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Instant) {
        if let Some(asked) = self.asked.filter(|asked| asked.deadline <= now) {
            return self.pass_over(asked.peer, "blocks_timed_out", now);
        }
        if self.pause.is_some_and(|at| at <= now) {
            self.pause = None;
            self.tried = ReplicaSet::EMPTY;
            let after = ReplicaId(self.next_peer.0 + 1);
            self.next_peer = self.membership.ids().circle(after).next().unwrap_or(after);
            self.ask(now);
        }
    }
}
