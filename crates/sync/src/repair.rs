//! Repair of the block log: it is scrubbed for damage at a rate, and what is found is fetched from
//! other replicas while this one serves.
//!
//! Which blocks are lacking, and what hash the last of them has, the log knows
//! ([`tercio_ledger::BlockLog::wanted`]); so a copy from anybody will do, and the log takes no other.
//! One peer is asked at a time. One that does not answer is passed over. When every other replica
//! has answered `ROUNDS` times that it has no whole copy, nothing can mend the log, and the replica
//! stops and names the place.

use crate::blocks::{Blocks, FetchBlocks};
use crate::results::ResultsHealth;
use bytes::Bytes;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_ledger::{Block, Wanted};
use tercio_types::{Height, Membership, ReplicaId, ReplicaSet, Suite};
use tercio_wire::Decode;
use thiserror::Error;

/// How often some bytes of the log are looked at.
const SCRUB_INTERVAL: Duration = Duration::from_secs(1);
/// How often every peer must have answered in vain.
const ROUNDS: u32 = 3;

/// How the block log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStatus {
    /// How many bytes were looked at since the start.
    pub scrubbed_bytes: u64,
    /// How many blocks are damaged.
    pub damaged: u64,
    /// How many copies others sent since the start.
    pub fetched: u64,
    /// How many were mended since the start.
    pub repaired: u64,
    /// Of how many blocks results were kept and are lost.
    pub lost_results: u64,
    /// Of how many they were mended since the start.
    pub mended_results: u64,
}

/// What the log says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// How many bytes were just looked at; `None` when nobody asked for that.
    pub scrubbed: Option<u64>,
    /// How many blocks are damaged.
    pub damaged: u64,
    /// How many were mended.
    pub repaired: u64,
    /// What is to be fetched next.
    pub wanted: Option<Wanted>,
    /// Whether the copies that it was given are what it lacks.
    pub took: Option<bool>,
    /// How the results of blocks are.
    pub results: ResultsHealth,
}

/// Blocks are damaged, and nobody else has them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{file}: blocks {from} to {to} are damaged, and no other replica has whole copies; restore \
     the file from a copy, or empty the data directory and let the replica catch up"
)]
pub struct BeyondRepair {
    /// The file.
    pub file: String,
    /// The first of them.
    pub from: Height,
    /// The last.
    pub to: Height,
}

/// What mending wants done next.
#[derive(Clone, Debug)]
pub(crate) enum RepairStep {
    /// Look at this many bytes.
    Scrub(u64),
    /// Ask a peer.
    Ask { to: ReplicaId, request: FetchBlocks },
    /// Put these copies in place.
    Place(Vec<Block>),
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    peer: ReplicaId,
    from: Height,
    deadline: Instant,
}

/// Mends the log, one run of blocks at a time.
#[derive(Debug)]
pub(crate) struct Repair {
    me: ReplicaId,
    ids: ReplicaSet,
    suite: Suite,
    timeout: Duration,
    scrub_bytes: u64,
    wanted: Option<Wanted>,
    asked: Option<Asked>,
    /// Whose copies the log is looking at.
    placing: Option<ReplicaId>,
    next_peer: ReplicaId,
    /// Who has no whole copy, and how often all have said so.
    refused: ReplicaSet,
    rounds: u32,
    /// When to ask again.
    pause: Option<Instant>,
    next_scrub: Option<Instant>,
    /// When the running scrub was asked for.
    scrub_begun: Option<Instant>,
    status: RepairStatus,
}

impl Repair {
    pub(crate) fn new(
        me: ReplicaId,
        membership: &Membership,
        timeout: Duration,
        scrub_bytes: u64,
    ) -> Self {
        Self {
            me,
            ids: membership.ids(),
            suite: membership.suite(),
            timeout,
            scrub_bytes,
            wanted: None,
            asked: None,
            placing: None,
            next_peer: ReplicaId(me.0 + 1),
            refused: ReplicaSet::EMPTY,
            rounds: 0,
            pause: None,
            next_scrub: None,
            scrub_begun: None,
            status: RepairStatus::default(),
        }
    }

    pub(crate) fn status(&self) -> RepairStatus {
        self.status
    }

    /// The log's word.
    pub(crate) fn on_health(
        &mut self,
        health: Health,
        now: Instant,
    ) -> Result<Option<RepairStep>, BeyondRepair> {
        let Health { scrubbed, damaged, repaired, wanted, took, results } = health;
        self.status.lost_results = results.lost;
        self.status.mended_results = results.mended;
        if let Some(bytes) = scrubbed {
            self.status.scrubbed_bytes += bytes;
            let begun = self.scrub_begun.take().unwrap_or(now);
            self.next_scrub = (self.scrub_bytes > 0).then(|| begun + SCRUB_INTERVAL);
        }
        (self.status.damaged, self.status.repaired) = (damaged, repaired);
        let placed = took.and(self.placing.take());
        if self.wanted != wanted {
            self.wanted = wanted;
            self.asked = None;
            (self.refused, self.rounds, self.pause) = (ReplicaSet::EMPTY, 0, None);
        } else if let Some(peer) = placed.filter(|_| took == Some(false)) {
            return self.refuse(peer, now);
        }
        self.ask(now)
    }

    /// Asks the peer whose turn it is, if nothing else is in flight.
    fn ask(&mut self, now: Instant) -> Result<Option<RepairStep>, BeyondRepair> {
        let busy = self.asked.is_some() || self.placing.is_some() || self.pause.is_some();
        let Some(wanted) = self.wanted.clone().filter(|_| !busy) else { return Ok(None) };
        if self.refused.len() + 1 >= self.ids.len() {
            self.rounds += 1;
            if self.rounds == ROUNDS || self.ids.len() == 1 {
                let Wanted { from, to, file, .. } = wanted;
                return Err(BeyondRepair { file, from, to });
            }
            self.refused = ReplicaSet::EMPTY;
            self.pause = Some(now + self.timeout);
            return Ok(None);
        }
        let turns = self.ids.circle(self.next_peer);
        let mut open = turns.filter(|peer| *peer != self.me && !self.refused.contains(*peer));
        let to = open.next().expect("not all have refused");
        self.next_peer = ReplicaId(to.0 + 1);
        // All may be far away.
        let patience = self.timeout * (1 << self.rounds.min(3));
        let (from, deadline) = (wanted.from, now + patience);
        self.asked = Some(Asked { peer: to, from, deadline });
        Ok(Some(RepairStep::Ask { to, request: FetchBlocks { from, to: wanted.to } }))
    }

    fn refuse(
        &mut self,
        peer: ReplicaId,
        now: Instant,
    ) -> Result<Option<RepairStep>, BeyondRepair> {
        self.refused.insert(peer);
        self.ask(now)
    }

    /// Whether blocks of `peer` from `from` on are the answer to our question.
    pub(crate) fn expects(&self, peer: ReplicaId, from: Height) -> bool {
        self.asked.is_some_and(|asked| (asked.peer, asked.from) == (peer, from))
    }

    /// Whether an answer has no more blocks than were asked for: one with more is to another question.
    pub(crate) fn fits(&self, body: &Bytes) -> bool {
        let last = |blocks: &Blocks| blocks.blocks.last().map(|block| block.header.height);
        let last = Blocks::from_bytes(body, self.suite).ok().and_then(|blocks| last(&blocks));
        self.wanted.as_ref().is_some_and(|wanted| last.is_none_or(|last| last <= wanted.to))
    }

    /// A peer's blocks, which were asked for.
    pub(crate) fn on_blocks(
        &mut self,
        peer: ReplicaId,
        body: &Bytes,
        now: Instant,
    ) -> Result<Option<RepairStep>, BeyondRepair> {
        self.asked = None;
        let Some(wanted) = &mut self.wanted else { return Ok(None) };
        let blocks = Blocks::from_bytes(body, self.suite).map_or(Vec::new(), |b| b.blocks);
        self.status.fetched += blocks.len() as u64;
        match blocks.last().map(|block| block.header.height) {
            Some(last) if last == wanted.to => {
                self.placing = Some(peer);
                Ok(Some(RepairStep::Place(blocks)))
            }
            // Only a run that ends where we know the hash can be checked: the end comes first.
            Some(last) if last >= wanted.from && last < wanted.to => {
                wanted.from = last.next();
                self.ask(now)
            }
            _ => self.refuse(peer, now),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let asked = self.asked.map(|asked| asked.deadline);
        [asked, self.pause, self.next_scrub].into_iter().flatten().min()
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) -> Result<Vec<RepairStep>, BeyondRepair> {
        let mut steps = Vec::new();
        if self.next_scrub.is_some_and(|at| at <= now) {
            (self.next_scrub, self.scrub_begun) = (None, Some(now));
            steps.push(RepairStep::Scrub(self.scrub_bytes));
        }
        if self.asked.is_some_and(|asked| asked.deadline <= now) {
            self.asked = None;
            steps.extend(self.ask(now)?);
        }
        if self.pause.is_some_and(|at| at <= now) {
            self.pause = None;
            steps.extend(self.ask(now)?);
        }
        Ok(steps)
    }
}
