//! A client's session: its number, its clock, and the execution of transactions.

use super::{ADDR, ITEM_HEADER, MAX_CLIENTS, SLOT, Shard, Timestamp, TxError, call, commit};
use crate::client::Draft;
use crate::cluster::{Frees, Net, Reply};
use crate::op::{Action, Addr, Cas, Deref, Masks, Mode, Operand, Status};
use crate::rng::Rng;
use crate::zoo::{Defence, stands};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Attempts of [`TxSession::run`].
const MAX_ATTEMPTS: u32 = 10_000;
/// How often it waits for free buffers.
const MAX_WAITS: u32 = 2_000;
/// How often what a slot points to may have been replaced in between.
const MAX_STALE: u32 = 1_000;
/// The first wait after an abort, and the longest, in nanoseconds.
const FIRST_WAIT_NS: u64 = 2_000;
const MAX_WAIT_NS: u64 = 1_000_000;
/// A server that cannot be reached is asked again after this many nanoseconds.
const ASK_AGAIN_NS: u64 = 20_000_000;

/// How a client does it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a prepared write may be in the way before it is settled for its writer, in nanoseconds.
    pub janitor_ns: u64,
    /// How long a server may be out of reach, in nanoseconds.
    pub patience_ns: u64,
    /// What is added to this client's clock, in microseconds.
    pub clock_ahead_us: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { janitor_ns: 5_000_000, patience_ns: 10_000_000_000, clock_ahead_us: 0 }
    }
}

/// What a session has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounts {
    /// Transactions that committed.
    pub committed: u64,
    /// Attempts that were aborted.
    pub aborted: u64,
    /// Round trips that a caller waited for.
    pub rounds: u64,
    /// Transactions of others that were settled for them.
    pub settled: u64,
}

/// A client of a store, with a number of its own. It has one transaction under way at a time.
#[derive(Debug)]
pub struct TxSession {
    pub(super) net: Net,
    /// The servers' numbers, in the order of the shards'.
    pub(super) servers: Vec<usize>,
    pub(super) options: Options,
    pub(super) client: u64,
    clock: Cell<u64>,
    shards: RefCell<Vec<Option<(u64, Shard)>>>,
    pub(super) frees: Frees,
    pub(super) counts: Cell<TxCounts>,
    pub(super) rng: RefCell<Rng>,
    /// What the last transaction left to be finished.
    pub(super) unfinished: RefCell<Option<commit::Unfinished>>,
}

/// What a transaction has read and will write.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// RC of each key that was read, and its value.
    pub(super) reads: BTreeMap<u64, (u64, Option<Vec<u8>>)>,
    pub(super) writes: BTreeMap<u64, Vec<u8>>,
}

/// A transaction under way.
#[derive(Debug)]
pub struct Tx<'s> {
    pub(super) session: &'s TxSession,
    pub(super) sets: Sets,
}

impl TxSession {
    /// A client of the shards that are these servers of the net, in the order of the shards' numbers.
    ///
    /// # Errors
    /// When one of them cannot be reached, or takes no more clients.
    pub async fn open(net: Net, servers: Vec<usize>, options: Options) -> Result<Self, TxError> {
        let mut session = Self {
            shards: RefCell::new(vec![None; servers.len()]),
            frees: Frees::new(&net),
            net,
            servers,
            options,
            client: 0,
            clock: Cell::new(0),
            counts: Cell::default(),
            rng: RefCell::new(Rng::new(0)),
            unfinished: RefCell::new(None),
        };
        let first = session.shard(0).await?;
        let count = |draft: &mut Draft| {
            let addr = first.entry(0);
            draft.op(Action::FetchAdd { addr, indirect: false, addend: 1 });
        };
        // Asked again, it costs a number and nothing else.
        let reply = session.ask_again(0, count).await?;
        session.client = word(&reply)?.saturating_add(1);
        if session.client >= MAX_CLIENTS {
            return Err(TxError::NoMoreClients);
        }
        session.rng = RefCell::new(Rng::new(session.client));
        for at in 0..session.servers.len() {
            let shard = session.shard(at).await?;
            let announce = |draft: &mut Draft| {
                let target = shard.entry(0).plus(8);
                draft.op(swap(Mode::Greater, target, &[session.client], None, (1, 1)));
            };
            session.ask_again(at, announce).await?;
        }
        Ok(session)
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> TxCounts {
        self.counts.get()
    }

    /// How many bytes a value has.
    ///
    /// # Errors
    /// When the first shard cannot be reached.
    pub async fn value_bytes(&self) -> Result<usize, TxError> {
        Ok(self.shard(0).await?.value_bytes)
    }

    /// The client's number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.client
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut TxCounts)) {
        let mut counts = self.counts.get();
        add(&mut counts);
        self.counts.set(counts);
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(&mut self) -> Tx<'_> {
        Tx { session: self, sets: Sets::default() }
    }

    /// Runs a transaction again until it commits; gives what it gave, and its place in the order. Waits
    /// where there are no free buffers.
    ///
    /// # Errors
    /// What `body` says, but for [`TxError::Aborted`]; or when it cannot be committed.
    pub async fn run<T>(
        &mut self,
        mut body: impl AsyncFnMut(&mut Tx<'_>) -> Result<T, TxError>,
    ) -> Result<(T, Timestamp), TxError> {
        let (mut wait_ns, mut waits) = (FIRST_WAIT_NS, 0);
        for _ in 0..MAX_ATTEMPTS {
            let mut tx = self.begin();
            let result = match body(&mut tx).await {
                Ok(value) => tx.commit().await.map(|ts| (value, ts)),
                Err(error) => Err(error),
            };
            match result {
                Err(TxError::Aborted) => {}
                // The server posts more of them now and then.
                Err(TxError::NoRoom) if waits < MAX_WAITS => {
                    (wait_ns, waits) = (MAX_WAIT_NS, waits + 1);
                }
                result => return result,
            }
            let wait = self.rng.borrow_mut().below(wait_ns);
            self.net.sleep(wait).await;
            wait_ns = (wait_ns * 2).min(MAX_WAIT_NS);
        }
        Err(TxError::Contended(MAX_ATTEMPTS))
    }

    /// Finishes what the last transaction left, and reports all buffers that are at hand.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub async fn finish(&mut self) -> Result<(), TxError> {
        self.finish_last().await?;
        self.frees.finish().await;
        Ok(())
    }

    pub(super) fn shards(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn home_of(&self, key: u64) -> usize {
        (key % self.servers.len() as u64) as usize
    }

    /// The shard of a key, if there is such a key.
    pub(super) async fn of_key(&self, key: u64) -> Result<(usize, Shard), TxError> {
        let at = self.home_of(key);
        let shard = self.shard(at).await?;
        if key / self.shards() as u64 >= shard.keys {
            return Err(TxError::NoKey(key));
        }
        Ok((at, shard))
    }

    /// Where a shard's memory is. Asks again after each new connection.
    pub(super) async fn shard(&self, at: usize) -> Result<Shard, TxError> {
        let server = self.servers[at];
        let known = self.shards.borrow()[at];
        if let Some((life, shard)) = known
            && life == self.net.life(server)
        {
            return Ok(shard);
        }
        let until_ns = self.net.now_ns() + self.options.patience_ns;
        loop {
            if let Ok(reply) = self.net.ask(server, |draft| draft.call(call::DESCRIBE, &[])).await {
                let answer = reply.answer();
                if let Some(why) = answer.rejected {
                    return Err(TxError::Rejected(why));
                }
                let shard = Shard::of_words(answer.body()).ok_or(TxError::Confused)?;
                if shard.shard != at || shard.shards != self.shards() {
                    return Err(TxError::Confused);
                }
                if known.is_some_and(|(_, known)| known.instance != shard.instance) {
                    return Err(TxError::MemoryLost(at));
                }
                self.shards.borrow_mut()[at] = Some((self.net.life(server), shard));
                return Ok(shard);
            }
            if self.net.now_ns() >= until_ns {
                return Err(TxError::Unreachable(at));
            }
            self.net.sleep(ASK_AGAIN_NS).await;
        }
    }

    /// Asks a shard what may be asked twice, until it answers.
    pub(super) async fn ask_again(
        &self,
        at: usize,
        fill: impl Fn(&mut Draft),
    ) -> Result<Reply, TxError> {
        let until_ns = self.net.now_ns() + self.options.patience_ns;
        loop {
            // A new connection may be to a new memory.
            self.shard(at).await?;
            if let Ok(reply) = self.net.ask(self.servers[at], &fill).await {
                return match reply.answer().rejected {
                    Some(why) => Err(TxError::Rejected(why)),
                    None => Ok(reply),
                };
            }
            if self.net.now_ns() >= until_ns {
                return Err(TxError::Unreachable(at));
            }
            self.net.sleep(ASK_AGAIN_NS).await;
        }
    }

    /// The clock is not behind what was seen.
    pub(super) fn witness(&self, ts: u64) {
        self.clock.set(self.clock.get().max(Timestamp(ts).clock()));
    }

    /// A time stamp that this client has not had, above all that it has seen.
    pub(super) fn stamp(&self) -> Result<u64, TxError> {
        let now_us = self.net.now_ns() / 1000 + self.options.clock_ahead_us;
        let clock = now_us.max(self.clock.get() + 1);
        if clock >> Timestamp::CLOCK_BITS != 0 {
            return Err(TxError::ClockExhausted);
        }
        self.clock.set(clock);
        Ok(Timestamp::new(clock, self.client).0)
    }

    /// A key's RC and value. Waits while somebody's prepared write is in the way, which would make the
    /// validation fail, and settles it when that takes too long.
    async fn fetch(&self, key: u64) -> Result<(u64, Option<Vec<u8>>), TxError> {
        let (at, shard) = self.of_key(key).await?;
        let (mut since, mut wait_ns, mut stale) = (None, 0, 0);
        loop {
            self.count(|counts| counts.rounds += 1);
            let reply = self.ask_again(at, |draft| draft_read(&shard, key, draft)).await?;
            let Some([slot, item]) = reply.answer().take() else { return Err(TxError::Confused) };
            let [pw, pr, c, _] = slot_words(&slot)?;
            [pw, pr, c].into_iter().for_each(|ts| self.witness(ts));
            let (tag, value) = match item.status {
                Status::Ok if item.data.words().get(1) == Some(&key) => {
                    (item.data.words()[0], Some(item.data.as_bytes()[ITEM_HEADER..].to_vec()))
                }
                Status::NullPointer => (0, None),
                // It was replaced between the two.
                Status::Stale if stale < MAX_STALE => {
                    stale += 1;
                    continue;
                }
                Status::Ok => return Err(TxError::Confused),
                fault => return Err(TxError::Fault(fault)),
            };
            if pw <= c || !stands(Defence::Janitor) {
                let rc = if stands(Defence::SlotsTimestamp) { c.max(tag) } else { tag };
                return Ok((rc, value));
            }
            let now_ns = self.net.now_ns();
            match since {
                Some((blocker, since_ns)) if blocker == pw => {
                    if now_ns >= since_ns + self.options.janitor_ns {
                        self.settle(key).await?;
                        since = None;
                    } else {
                        // At first at once: most are settled by the next round trip.
                        let left_ns = since_ns + self.options.janitor_ns - now_ns;
                        self.net.sleep(wait_ns.min(left_ns)).await;
                        wait_ns = (wait_ns * 2).max(4000).min(self.options.janitor_ns / 4 + 1);
                    }
                }
                _ => (since, wait_ns) = (Some((pw, now_ns)), 0),
            }
        }
    }
}

impl Tx<'_> {
    /// The value of a key as this transaction sees it; `None` when nobody has written it.
    ///
    /// # Errors
    /// When it could not be read.
    pub async fn read(&mut self, key: u64) -> Result<Option<Vec<u8>>, TxError> {
        if let Some(value) = self.sets.writes.get(&key) {
            return Ok(Some(value.clone()));
        }
        if let Some((_, value)) = self.sets.reads.get(&key) {
            return Ok(value.clone());
        }
        let read = self.session.fetch(key).await?;
        let value = read.1.clone();
        self.sets.reads.insert(key, read);
        Ok(value)
    }

    /// Sets the value of a key, if the transaction commits.
    ///
    /// # Errors
    /// When there is no such key, or the value is not as long as values are.
    pub async fn write(&mut self, key: u64, value: &[u8]) -> Result<(), TxError> {
        let (_, shard) = self.session.of_key(key).await?;
        if value.len() != shard.value_bytes {
            return Err(TxError::BadValue(shard.value_bytes));
        }
        self.sets.writes.insert(key, value.to_vec());
        Ok(())
    }
}

/// The slot, then what it points to: in this order, for an install in between then shows.
fn draft_read(shard: &Shard, key: u64, draft: &mut Draft) {
    let slot = shard.slot(key);
    draft.op(Action::Read { addr: slot, len: SLOT as u32, deref: Deref::Direct, redirect: None });
    let len = (ITEM_HEADER + shard.value_bytes) as u32;
    draft.op(Action::Read { addr: slot.plus(ADDR), len, deref: Deref::Indirect, redirect: None });
}

/// PW, PR, C and the address.
pub(super) fn slot_words(outcome: &crate::wire::Outcome<'_>) -> Result<[u64; 4], TxError> {
    match (outcome.status, outcome.data.words().try_into()) {
        (Status::Ok | Status::Miss, Ok(words)) => Ok(words),
        (Status::Ok | Status::Miss, Err(_)) => Err(TxError::Confused),
        (fault, _) => Err(TxError::Fault(fault)),
    }
}

fn word(reply: &Reply) -> Result<u64, TxError> {
    match reply.answer().take() {
        Some([outcome]) if outcome.status == Status::Ok => {
            outcome.data.words().first().copied().ok_or(TxError::Confused)
        }
        Some([outcome]) => Err(TxError::Fault(outcome.status)),
        None => Err(TxError::Confused),
    }
}

/// A swap of whole words.
pub(super) const fn swap<'a>(
    mode: Mode,
    target: Addr,
    data: &'a [u64],
    comparand: Option<&'a [u64]>,
    (compare, swap): (u8, u8),
) -> Action<'a> {
    Action::Cas(Cas {
        mode,
        target,
        indirect: false,
        words: data.len() as u8,
        data: Operand::Inline(data),
        comparand: match comparand {
            Some(comparand) => Some(Operand::Inline(comparand)),
            None => None,
        },
        masks: Masks::Words { compare, swap },
    })
}
