//! Settles what others have prepared and not finished.

use super::chain::{install, settle};
use super::commit::words;
use super::session::{TxSession, slot_words, swap};
use super::{BUFFERS, ENTRY, MAX_CLIENTS, SLOT, Shard, Timestamp, TxError, status};
use crate::client::Draft;
use crate::op::{Action, Addr, Deref, Mode, Status};
use crate::zoo::{Defence, stands};

/// Entries that one request reads.
const ENTRIES_AT_ONCE: u64 = 128;
/// How often a slot is looked at before its state is taken for impossible.
const MAX_LOOKS: u32 = 1000;
/// How often in a row a prepared write may have no intent: its writer may have finished meanwhile.
const MAX_UNKNOWN: u32 = 20;

/// A transaction that has an intent with a buffer for the key.
#[derive(Clone, Copy, Debug)]
struct Found {
    ts: u64,
    home: usize,
    addr: u64,
}

/// A client's entry on a shard.
#[derive(Debug)]
struct Intent {
    ts: u64,
    status: u64,
    home: usize,
    addrs: Vec<u64>,
}

impl TxSession {
    /// Settles every transaction that is prepared to write the key: when it ends, PW was C at some time
    /// after it began.
    pub(super) async fn settle(&self, key: u64) -> Result<(), TxError> {
        let (at, shard) = self.of_key(key).await?;
        let (mut unknown, mut gone) = (0, Vec::new());
        for _ in 0..MAX_LOOKS {
            let read = |draft: &mut Draft| {
                let (addr, len) = (shard.slot(key), SLOT as u32);
                draft.op(Action::Read { addr, len, deref: Deref::Direct, redirect: None });
            };
            let reply = self.ask_again(at, read).await?;
            let Some([slot]) = reply.answer().take() else { return Err(TxError::Confused) };
            let [pw, _, c, _] = slot_words(&slot)?;
            if pw <= c {
                return Ok(());
            }
            let Some(found) = self.earliest(at, &shard, key, (c, pw), &gone).await? else {
                unknown += 1;
                if unknown > MAX_UNKNOWN {
                    return Err(TxError::Stuck(key));
                }
                self.net.sleep(1000 << unknown.min(10)).await;
                continue;
            };
            let Some(committed) = self.outcome(&found).await? else {
                // Its client has settled it, perhaps without a change here, and has not given back its
                // buffer yet.
                gone.push(found.ts);
                continue;
            };
            self.count(|counts| counts.settled += 1);
            let (new, from, to) = ([found.ts, found.addr], [c], [found.ts]);
            let act = |draft: &mut Draft| {
                draft.op(if committed {
                    install(&shard, key, &new)
                } else {
                    settle(&shard, key, &from, &to)
                });
            };
            let reply = self.ask_again(at, act).await?;
            let Some([outcome]) = reply.answer().take() else { return Err(TxError::Confused) };
            if outcome.status == Status::Ok {
                // What was replaced; or what will not be installed.
                let freed = if committed { words::<2>(&outcome)?[1] } else { found.addr };
                self.frees.push(self.servers[at], freed);
            }
        }
        Err(TxError::Stuck(key))
    }

    /// Of the intents on the shard with a time stamp above `c` and not above `pw` that have a buffer for
    /// the key, and are not known to be `gone`, the one with the lowest.
    async fn earliest(
        &self,
        at: usize,
        shard: &Shard,
        key: u64,
        (c, pw): (u64, u64),
        gone: &[u64],
    ) -> Result<Option<Found>, TxError> {
        let mut candidates = self.intents(at, shard).await?;
        candidates.retain(|i| i.ts > c && i.ts <= pw && !gone.contains(&i.ts));
        for Intent { ts, home, addrs, .. } in candidates {
            let fill = |draft: &mut Draft| {
                addrs.iter().for_each(|addr| draft.op(read(Addr(*addr), 16)));
            };
            if addrs.is_empty() {
                continue;
            }
            let reply = self.ask_again(at, fill).await?;
            let answer = reply.answer();
            for (addr, item) in addrs.iter().zip(answer.outcomes()) {
                if item.status == Status::Ok && item.data.words() == [ts, key] {
                    return Ok(Some(Found { ts, home, addr: *addr }));
                }
            }
        }
        Ok(None)
    }

    /// The intents of a shard, by their time stamps.
    async fn intents(&self, at: usize, shard: &Shard) -> Result<Vec<Intent>, TxError> {
        let count = |draft: &mut Draft| draft.op(read(shard.entry(0), 16));
        let reply = self.ask_again(at, count).await?;
        let Some([counts]) = reply.answer().take() else { return Err(TxError::Confused) };
        let clients = words::<2>(&counts)?[1].min(MAX_CLIENTS - 1);
        let mut intents = Vec::new();
        let mut next = 1;
        while next <= clients {
            let count = ENTRIES_AT_ONCE.min(clients + 1 - next);
            let fill = |draft: &mut Draft| {
                draft.op(read(shard.entry(next), (count * ENTRY) as u32));
            };
            let reply = self.ask_again(at, fill).await?;
            let Some([entries]) = reply.answer().take() else { return Err(TxError::Confused) };
            for entry in entries.data.words().chunks_exact(ENTRY as usize / 8) {
                let (ts, home, buffers) =
                    (entry[0], entry[2] as usize, &entry[BUFFERS as usize / 8..]);
                if home >= self.shards() {
                    return Err(TxError::Confused);
                }
                let own = buffers[0] == ts;
                let addrs = buffers[1..].iter().copied().filter(|addr| own && *addr != 0);
                intents.push(Intent { ts, status: entry[1], home, addrs: addrs.collect() });
            }
            next += count;
        }
        intents.sort_unstable_by_key(|intent| intent.ts);
        Ok(intents)
    }

    /// Settles all that clients have left, on every shard: what has not changed in a janitor's period.
    /// What nobody needs is free afterwards. For an operator, now and then; nothing waits for it.
    ///
    /// # Errors
    /// When a shard cannot be reached.
    pub async fn tidy(&mut self) -> Result<(), TxError> {
        let open = |intent: &Intent| intent.ts != 0 && intent.status & status::DONE == 0;
        for at in 0..self.shards() {
            let shard = self.shard(at).await?;
            let before = self.intents(at, &shard).await?;
            if !before.iter().any(open) {
                continue;
            }
            self.net.sleep(self.options.janitor_ns).await;
            let now = self.intents(at, &shard).await?;
            for intent in now.into_iter().filter(open) {
                if !before.iter().any(|before| before.ts == intent.ts && open(before)) {
                    continue;
                }
                let found = Found { ts: intent.ts, home: intent.home, addr: 0 };
                self.outcome(&found).await?;
                for addr in &intent.addrs {
                    let fill = |draft: &mut Draft| draft.op(read(Addr(*addr), 16));
                    let reply = self.ask_again(at, fill).await?;
                    if let Some([item]) = reply.answer().take()
                        && let [ts, key] = *item.data.words()
                        && ts == intent.ts
                        && self.home_of(key) == at
                    {
                        self.settle(key).await?;
                    }
                }
                self.close_entry(at, &shard, intent.ts).await?;
            }
        }
        Ok(())
    }

    /// Nothing is left to do for a transaction on a shard.
    async fn close_entry(&self, at: usize, shard: &Shard, ts: u64) -> Result<(), TxError> {
        let client = client_of(ts);
        let states = [status::PENDING, status::COMMITTED, status::ABORTED];
        let fill = |draft: &mut Draft| {
            for state in states {
                let (from, to) = ([ts, state], [ts, state | status::DONE]);
                let entry = shard.entry(client);
                draft.op(swap(Mode::Equal, entry, &to, Some(&from), (0b11, 0b11)));
            }
        };
        self.ask_again(at, fill).await.map(|_| ())
    }

    /// Whether the transaction has committed; aborts it when that is open. `None`: its client has gone on,
    /// so that it is settled.
    async fn outcome(&self, found: &Found) -> Result<Option<bool>, TxError> {
        let home = self.shard(found.home).await?;
        let client = client_of(found.ts);
        let (pending, aborted) = ([found.ts, status::PENDING], [found.ts, status::ABORTED]);
        let poison = [found.ts, status::ABORTED, found.home as u64, 0];
        let fill = |draft: &mut Draft| {
            let entry = home.entry(client);
            let poisons = if stands(Defence::Poison) { 0b1111 } else { 0 };
            draft.op(swap(Mode::Greater, entry, &poison, None, (0b0001, poisons)));
            draft.op(swap(Mode::Equal, entry, &aborted, Some(&pending), (0b11, 0b11)));
        };
        let reply = self.ask_again(found.home, fill).await?;
        let Some([poisoned, swapped]) = reply.answer().take() else {
            return Err(TxError::Confused);
        };
        if poisoned.status == Status::Ok || swapped.status == Status::Ok {
            return Ok(Some(false));
        }
        let [ts, status] = words::<2>(&swapped)?;
        Ok((ts == found.ts).then_some(status & status::COMMITTED != 0))
    }
}

/// The client that a time stamp is of.
const fn client_of(ts: u64) -> u64 {
    ts & ((1 << (64 - Timestamp::CLOCK_BITS)) - 1)
}

const fn read(addr: Addr, len: u32) -> Action<'static> {
    Action::Read { addr, len, deref: Deref::Direct, redirect: None }
}
