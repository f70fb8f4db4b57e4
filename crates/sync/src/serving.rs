//! Serving others: blocks and pieces of state, round-robin and under a rate limit.
//!
//! - Of each replica one question about blocks and [`STATE_AT_ONCE`] about state are open at most;
//!   what comes beyond that is dropped, and counted.
//! - All pieces of state together are at most
//!   [`SyncSettings::serve_bytes`](crate::SyncSettings) a second, but for what is being read
//!   when that is reached. What is asked beyond that waits, so that ordering keeps most of the
//!   processor, the disk and the links of those who serve and of who asks. Blocks are no part of
//!   that: a replica that catches up by blocks must be faster than the chain.
//! - Waiting replicas are served round-robin: one who asks without end takes no more than its share.

use crate::blocks::FetchBlocks;
use crate::transfer::message::FetchState;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_types::ReplicaId;

/// How many questions about state are open at most, of each replica.
const STATE_AT_ONCE: usize = 16;

/// How many answers are being read at a time: while one is sent, the next is read.
const READING: usize = 2;

/// What nobody took for so long may be given at once.
const BURST: Duration = Duration::from_millis(20);

/// A replica that asks.
#[derive(Debug, Default)]
struct Asker {
    /// What waits.
    blocks: Option<FetchBlocks>,
    state: VecDeque<(u64, FetchState)>,
    /// Open questions: those that wait, and those whose answers are being read.
    blocks_open: bool,
    state_open: usize,
}

/// What to read for somebody.
#[derive(Clone, Debug)]
pub(crate) enum Read {
    /// Blocks.
    Blocks { by: ReplicaId, request: FetchBlocks },
    /// Pieces of state, under the asker's number.
    State { by: ReplicaId, number: u64, request: FetchState },
}

/// Who is given what next, and when.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Bytes per second.
    rate: u64,
    askers: BTreeMap<ReplicaId, Asker>,
    /// Who was served last.
    last: ReplicaId,
    /// How many answers are being read.
    reading: usize,
    /// What was given is within the rate from then on.
    paid: Instant,
}

impl Serving {
    /// Nobody has asked. `rate` is in bytes per second.
    pub(crate) fn new(rate: u64) -> Self {
        let (askers, last) = (BTreeMap::new(), ReplicaId(0));
        Self { rate: rate.max(1), askers, last, reading: 0, paid: Instant(0) }
    }

    /// Takes a question about blocks.
    ///
    /// # Errors
    /// Why it is dropped.
    pub(crate) fn ask_blocks(
        &mut self,
        by: ReplicaId,
        request: FetchBlocks,
    ) -> Result<(), &'static str> {
        let asker = self.askers.entry(by).or_default();
        if std::mem::replace(&mut asker.blocks_open, true) {
            return Err("fetch_while_serving");
        }
        asker.blocks = Some(request);
        Ok(())
    }

    /// Takes a question about state, with the asker's number for it.
    ///
    /// # Errors
    /// Why it is dropped.
    pub(crate) fn ask_state(
        &mut self,
        by: ReplicaId,
        number: u64,
        request: FetchState,
    ) -> Result<(), &'static str> {
        let asker = self.askers.entry(by).or_default();
        if asker.state_open >= STATE_AT_ONCE {
            return Err("fetch_state_too_many");
        }
        asker.state_open += 1;
        asker.state.push_back((number, request));
        Ok(())
    }

    /// What to read now, if it is time to.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Read> {
        if self.reading >= READING {
            return None;
        }
        let has_budget = self.paid <= now;
        let waits = |(_, asker): &(&ReplicaId, &Asker)| {
            asker.blocks.is_some() || has_budget && !asker.state.is_empty()
        };
        let next = self.askers.range(ReplicaId(self.last.0.wrapping_add(1))..).find(waits);
        let (&by, _) = next.or_else(|| self.askers.iter().find(waits))?;
        self.last = by;
        self.reading += 1;
        let asker = self.askers.get_mut(&by).expect("just seen");
        if let Some(request) = asker.blocks.take() {
            return Some(Read::Blocks { by, request });
        }
        let (number, request) = asker.state.pop_front().expect("just seen");
        Some(Read::State { by, number, request })
    }

    /// Blocks were read for a replica.
    pub(crate) fn gave_blocks(&mut self, to: ReplicaId) {
        self.reading = self.reading.saturating_sub(1);
        if let Some(asker) = self.askers.get_mut(&to) {
            asker.blocks_open = false;
        }
    }

    /// Pieces of state were read for a replica, this many bytes.
    pub(crate) fn gave_state(&mut self, to: ReplicaId, bytes: usize, now: Instant) {
        self.reading = self.reading.saturating_sub(1);
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let begin = Instant(now.0.saturating_sub(BURST.as_nanos() as u64));
        self.paid = self.paid.max(begin) + cost;
        if let Some(asker) = self.askers.get_mut(&to) {
            asker.state_open = asker.state_open.saturating_sub(1);
        }
    }

    /// When to call [`Self::poll`] again, if somebody waits for time to pass.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waits = self.askers.values().any(|asker| !asker.state.is_empty());
        (waits && self.reading < READING).then_some(self.paid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Height, SeqNum};

    const MB: usize = 1 << 20;

    fn state() -> FetchState {
        FetchState::Nodes { seq: SeqNum(1), paths: vec![] }
    }

    /// Answers everything as fast as it may be for so long; gives how many bytes each replica got.
    fn give(serving: &mut Serving, from: Instant, length: Duration) -> BTreeMap<ReplicaId, usize> {
        let mut given: BTreeMap<ReplicaId, usize> = BTreeMap::new();
        let mut now = from;
        while now < from + length {
            while let Some(Read::State { by, number, .. }) = serving.poll(now) {
                serving.gave_state(by, MB, now);
                *given.entry(by).or_default() += MB;
                assert!(given.values().sum::<usize>() < 1000 * MB, "as fast as it goes");
                serving.ask_state(by, number, state()).unwrap();
            }
            now = serving.deadline().unwrap().max(now + Duration::from_nanos(1));
        }
        given
    }

    #[test]
    fn state_keeps_to_the_rate_and_to_turns() {
        let mut serving = Serving::new(10 * MB as u64);
        let start = Instant(5_000_000_000);
        // One asks for much more than the other.
        let many = 0..STATE_AT_ONCE as u64;
        many.for_each(|number| serving.ask_state(ReplicaId(1), number, state()).unwrap());
        serving.ask_state(ReplicaId(3), 0, state()).unwrap();
        let given = give(&mut serving, start, Duration::from_secs(4));
        let all = given.values().sum::<usize>() / MB;
        assert!((39..=42).contains(&all), "{all} MB in 4 s");
        let difference = given[&ReplicaId(1)].abs_diff(given[&ReplicaId(3)]);
        assert!(difference <= MB, "{given:?}");
    }

    #[test]
    fn what_one_asks_for_is_bounded() {
        let mut serving = Serving::new(1);
        let (by, now) = (ReplicaId(2), Instant(1_000_000_000));
        let blocks = FetchBlocks { from: Height(1), to: Height(2) };
        assert_eq!(serving.ask_blocks(by, blocks), Ok(()));
        assert_eq!(serving.ask_blocks(by, blocks), Err("fetch_while_serving"));
        for number in 0..STATE_AT_ONCE as u64 {
            assert_eq!(serving.ask_state(by, number, state()), Ok(()));
        }
        assert_eq!(serving.ask_state(by, 99, state()), Err("fetch_state_too_many"));
        // Once it is answered there is room for the next.
        assert!(matches!(serving.poll(now), Some(Read::Blocks { .. })));
        serving.gave_blocks(by);
        assert_eq!(serving.ask_blocks(by, blocks), Ok(()));
    }

    /// However much waits, this many answers are read at once, and are in memory.
    #[test]
    fn few_answers_are_read_at_a_time() {
        let mut serving = Serving::new(MB as u64);
        let now = Instant(1_000_000_000);
        for by in 0..4 {
            serving.ask_state(ReplicaId(by), 1, state()).unwrap();
        }
        assert!((0..READING).all(|_| serving.poll(now).is_some()));
        assert!(serving.poll(now).is_none() && serving.deadline().is_none());
        serving.gave_state(ReplicaId(0), 1, now);
        assert!(serving.poll(now).is_some() && serving.poll(now).is_none());
    }

    /// When no more state may be given, blocks are.
    #[test]
    fn blocks_do_not_wait_for_state() {
        let mut serving = Serving::new(MB as u64);
        let (by, now) = (ReplicaId(2), Instant(1_000_000_000));
        serving.ask_state(by, 1, state()).unwrap();
        serving.ask_state(by, 2, state()).unwrap();
        assert!(serving.poll(now).is_some());
        serving.gave_state(by, 5 * MB, now);
        assert!(serving.poll(now).is_none());
        assert!(serving.deadline().is_some_and(|at| at > now + Duration::from_secs(4)));
        serving.ask_blocks(by, FetchBlocks { from: Height(1), to: Height(2) }).unwrap();
        assert!(matches!(serving.poll(now), Some(Read::Blocks { .. })));
    }
}
