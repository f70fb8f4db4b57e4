//! Results of blocks that a replica kept and lost: fetched from the others while it serves.
//!
//! ```text
//! FETCH_STATE  key: sequence = a number from 2^62 on; body 3 | from: u64 | to: u64
//! STATE        key: sequence = that number
//!              body: list of height: u64 | record, of the blocks from `to` downwards, as many as fit
//! ```
//! What the highest must be chained to the log knows
//! ([`tercio_ledger::BlockLog::results_wanted`]), and each record names what the one below must give:
//! so a copy from anybody will do, and the log takes no other. One peer is asked at a time, and the
//! next when it does not answer, or has no whole copy. Copies from which results were left out, as from
//! those that are too long to be kept, are taken when nobody had others. When nobody has any, all are
//! asked again, later and later: no promise stands on results, so that a replica goes on without.

use crate::transfer::message::{FetchState, STATE_ANSWER_BYTES};
use bytes::Bytes;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_ledger::{BlockLog, BlockResults, LedgerError, WantedResults};
use tercio_types::{Height, Membership, ReplicaId, ReplicaSet, Suite};
use tercio_wire::{DecodeError, Reader, list};

/// Numbers of questions about results have this bit, and not the one above.
const MARK: u64 = 1 << 62;
/// The most results in an answer.
const ANSWER: usize = 64;
/// A longer record is given without results: it would fit no frame.
const LONG: usize = 8 << 20;

/// What the log says of its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultsHealth {
    /// Of how many blocks they were kept and are lost.
    pub lost: u64,
    /// Of how many they were mended.
    pub mended: u64,
    /// What is to be fetched next.
    pub wanted: Option<WantedResults>,
    /// Whether the copies that it was given are what it lacks.
    pub took: Option<bool>,
}

/// Reads results for another replica: from `to` downwards, as many as fit and are there.
pub(crate) fn read_results(
    log: &mut BlockLog,
    from: Height,
    to: Height,
) -> Result<Bytes, LedgerError> {
    let (mut records, mut bytes, mut height) = (Vec::new(), 0, to);
    while height >= from && height.0 > 0 && bytes < STATE_ANSWER_BYTES && records.len() < ANSWER {
        let found = match log.results(height) {
            // What is lost here others have.
            Err(LedgerError::Damage { .. }) => None,
            other => other?,
        };
        let Some(found) = found else { break };
        let mut record = found.encode(false);
        if record.len() > LONG {
            record = found.encode(true);
        }
        bytes += record.len();
        if bytes > LONG && !records.is_empty() {
            break;
        }
        records.push((height, record));
        height = Height(height.0 - 1);
    }
    let mut out = Vec::new();
    list::encode(&mut out, records.len(), |i, out| {
        out.extend_from_slice(&records[i].0.0.to_le_bytes());
        out.extend_from_slice(&records[i].1);
    });
    Ok(out.into())
}

fn decode(body: &Bytes, suite: Suite) -> Result<Vec<BlockResults>, DecodeError> {
    let mut input = Reader::new(body.clone(), suite);
    let items = list::List::decode(&mut input, ANSWER, "results")?;
    input.finish()?;
    let each = |item: Bytes| {
        let mut input = Reader::new(item, suite);
        let height = Height(input.u64("results")?);
        BlockResults::decode(height, &input.take_rest())
    };
    items.iter().map(each).collect()
}

/// What mending wants done next.
#[derive(Clone, Debug)]
pub(crate) enum ResultsStep {
    /// Ask a peer.
    Ask { to: ReplicaId, number: u64, request: FetchState },
    /// Put these copies in place.
    Place { copies: Vec<BlockResults>, stripped: bool },
}

/// Mends results, one run at a time.
#[derive(Debug)]
pub(crate) struct ResultsRepair {
    me: ReplicaId,
    ids: ReplicaSet,
    suite: Suite,
    timeout: Duration,
    wanted: Option<WantedResults>,
    /// Who was asked last, under which number, and until when we wait.
    asked: Option<(ReplicaId, u64, Instant)>,
    /// Whose copies the log is looking at.
    placing: Option<ReplicaId>,
    next_peer: ReplicaId,
    /// Who has no whole copy, and how often all have said so.
    refused: ReplicaSet,
    rounds: u32,
    /// When to ask again.
    pause: Option<Instant>,
    numbers: u64,
}

impl ResultsRepair {
    pub(crate) fn new(me: ReplicaId, membership: &Membership, timeout: Duration) -> Self {
        Self {
            me,
            ids: membership.ids(),
            suite: membership.suite(),
            timeout,
            wanted: None,
            asked: None,
            placing: None,
            next_peer: ReplicaId(me.0 + 1),
            refused: ReplicaSet::EMPTY,
            rounds: 0,
            pause: None,
            numbers: 0,
        }
    }

    /// Whether a question or an answer of this number is one of these.
    pub(crate) fn is_about(number: u64) -> bool {
        number >> 62 == 1
    }

    /// The log's word.
    pub(crate) fn on_health(&mut self, health: ResultsHealth, now: Instant) -> Option<ResultsStep> {
        let ResultsHealth { wanted, took, .. } = health;
        let placed = took.and_then(|_| self.placing.take());
        if self.wanted != wanted {
            self.wanted = wanted;
            self.asked = None;
            (self.refused, self.rounds, self.pause) = (ReplicaSet::EMPTY, 0, None);
        } else if let Some(peer) = placed {
            self.refused.insert(peer);
        }
        self.ask(now)
    }

    /// Asks the peer whose turn it is, if nothing else is in flight.
    fn ask(&mut self, now: Instant) -> Option<ResultsStep> {
        let busy = self.asked.is_some() || self.placing.is_some() || self.pause.is_some();
        let WantedResults { from, to, .. } = *self.wanted.as_ref().filter(|_| !busy)?;
        if self.refused.len() + 1 >= self.ids.len() {
            self.refused = ReplicaSet::EMPTY;
            self.pause = Some(now + self.timeout * (1 << self.rounds.min(8)));
            self.rounds += 1;
            return None;
        }
        let turns = self.ids.circle(self.next_peer);
        let mut open = turns.filter(|peer| *peer != self.me && !self.refused.contains(*peer));
        let peer = open.next().expect("not all have refused");
        self.next_peer = ReplicaId(peer.0 + 1);
        self.numbers = (self.numbers + 1) % MARK;
        let number = MARK | self.numbers;
        self.asked = Some((peer, number, now + self.timeout));
        Some(ResultsStep::Ask { to: peer, number, request: FetchState::Results { from, to } })
    }

    /// A peer's answer.
    ///
    /// # Errors
    /// Why it is dropped.
    pub(crate) fn on_state(
        &mut self,
        peer: ReplicaId,
        number: u64,
        body: &Bytes,
        now: Instant,
    ) -> Result<Option<ResultsStep>, &'static str> {
        let asked = self.asked.take_if(|(of, under, _)| (*of, *under) == (peer, number));
        asked.ok_or("results_not_asked_for")?;
        match decode(body, self.suite) {
            Ok(copies) if !copies.is_empty() => {
                self.placing = Some(peer);
                Ok(Some(ResultsStep::Place { copies, stripped: self.rounds > 0 }))
            }
            _ => {
                self.refused.insert(peer);
                Ok(self.ask(now))
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.asked.map(|(.., until)| until).into_iter().chain(self.pause).min()
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) -> Option<ResultsStep> {
        if let Some((peer, ..)) = self.asked.take_if(|(.., until)| *until <= now) {
            self.refused.insert(peer);
        }
        self.pause.take_if(|at| *at <= now);
        self.ask(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tercio_crypto::SecretKey;
    use tercio_types::{ChainId, Digest, Epoch, FaultModel, Member};

    /// Numbers may have holes: all others are asked, and nobody else.
    #[test]
    fn all_members_are_asked_whatever_their_numbers() {
        let key = |id: u16| SecretKey::from_seed([id as u8; 32]).public();
        let member = |id| (ReplicaId(id), Member { key: key(id), address: String::new() });
        let members = BTreeMap::from([0, 2, 5, 7].map(member));
        let (model, suite) = (FaultModel::Byzantine, Suite::default());
        let membership = Membership::numbered(
            ChainId([1; 32]),
            Epoch(0),
            suite,
            model,
            members,
            BTreeMap::new(),
        );
        let membership = membership.unwrap();
        for me in [0, 2, 5, 7] {
            let timeout = Duration::from_secs(1);
            let mut repair = ResultsRepair::new(ReplicaId(me), &membership, timeout);
            let (from, to) = (Height(1), Height(2));
            let wanted = WantedResults { from, to, chained: Digest::NULL, file: String::new() };
            let health = ResultsHealth { wanted: Some(wanted), ..ResultsHealth::default() };
            let mut step = repair.on_health(health, Instant(0));
            let mut asked = ReplicaSet::EMPTY;
            for second in 1..4 {
                if let Some(ResultsStep::Ask { to, .. }) = step {
                    asked.insert(to);
                }
                step = repair.on_timeout(Instant(second * 1_000_000_000));
            }
            let others = [0, 2, 5, 7].into_iter().filter(|id| *id != me).map(ReplicaId);
            assert_eq!(asked, others.collect(), "by {me}");
        }
    }
}
