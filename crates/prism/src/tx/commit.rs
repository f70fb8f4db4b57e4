//! Prepare, commit, abort.

use super::chain::{draft_abort, draft_decide, draft_install, draft_prepare, settle};
use super::session::{Sets, Tx, TxSession, slot_words};
use super::{MAX_WRITES, Shard, Timestamp, TxError, status};
use crate::client::Draft;
use crate::cluster::{Reply, Round};
use crate::kv::put_bytes;
use crate::op::{Addr, MAX_BODY, MAX_OPS, Status};
use crate::wire::Outcome;
use crate::zoo::{Defence, stands};
use std::collections::BTreeMap;

/// A transaction's part on one shard.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) reads: Vec<Read>,
    pub(super) writes: Vec<Write>,
    /// The new buffers with the values, until they are sent.
    pub(super) items: Vec<Vec<u64>>,
    /// Whether the shard said how its prepare went.
    answered: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) key: u64,
    pub(super) rc: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) key: u64,
    /// The PW that the check found and replaced.
    prev: Option<u64>,
    /// The new buffer.
    pub(super) addr: u64,
}

/// Installs that are under way, of a transaction that has committed.
#[derive(Debug)]
pub(super) struct Unfinished {
    ts: u64,
    round: Round,
    shares: BTreeMap<usize, Vec<Write>>,
}

/// How a prepare went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Go,
    Conflict,
    NoRoom,
}

impl Tx<'_> {
    /// Commits: validates what was read and installs what was written. Gives the transaction's place in
    /// the order.
    ///
    /// # Errors
    /// [`TxError::Aborted`] when it met another; or when it cannot be committed.
    pub async fn commit(self) -> Result<Timestamp, TxError> {
        let Self { session, sets } = self;
        session.finish_last().await?;
        let ts = session.stamp()?;
        let mut shares = session.shares(sets, ts).await?;
        let home = shares.iter().find(|(_, share)| !share.writes.is_empty()).map(|(at, _)| *at);
        let verdict = session.prepare(ts, home, &mut shares).await?;
        shares.retain(|_, share| !share.writes.is_empty());
        let outcome = match (verdict, home) {
            (Verdict::Go, None) => Ok(()),
            (Verdict::Go, Some(home)) => session.decide(ts, home, &mut shares).await,
            (Verdict::Conflict, _) => Err(TxError::Aborted),
            (Verdict::NoRoom, _) => Err(TxError::NoRoom),
        };
        match outcome {
            Ok(()) => {
                session.count(|counts| counts.committed += 1);
                Ok(Timestamp(ts))
            }
            Err(error @ (TxError::Aborted | TxError::NoRoom)) => {
                session.count(|counts| counts.aborted += 1);
                if let Some(home) = home {
                    session.abort(ts, home, shares).await?;
                }
                if error == TxError::NoRoom {
                    session.frees.finish().await;
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
}

impl TxSession {
    async fn shares(&self, sets: Sets, ts: u64) -> Result<BTreeMap<usize, Share>, TxError> {
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        for (key, (rc, _)) in sets.reads {
            shares.entry(self.home_of(key)).or_default().reads.push(Read { key, rc });
        }
        for (key, value) in sets.writes {
            let share = shares.entry(self.home_of(key)).or_default();
            share.writes.push(Write { key, prev: None, addr: Addr::NULL.0 });
            let mut item = vec![ts, key];
            put_bytes(&mut item, &value);
            share.items.push(item);
        }
        for (at, share) in &shares {
            let shard = self.shard(*at).await?;
            let (reads, writes) = (share.reads.len(), share.writes.len());
            let ops = if writes > 0 { reads + 2 * writes + 3 } else { reads };
            let bytes = ops * 96 + writes * (shard.value_bytes + 64);
            if ops > MAX_OPS || writes > MAX_WRITES || bytes > MAX_BODY {
                return Err(TxError::TooLarge);
            }
        }
        Ok(shares)
    }

    async fn prepare(
        &self,
        ts: u64,
        home: Option<usize>,
        shares: &mut BTreeMap<usize, Share>,
    ) -> Result<Verdict, TxError> {
        if shares.is_empty() {
            return Ok(Verdict::Go);
        }
        self.count(|counts| counts.rounds += 1);
        let mut round = self.net.round([], |_, _| ());
        for (at, share) in &*shares {
            let shard = self.shard(*at).await?;
            round.also(self.servers[*at], |draft| {
                draft_prepare(&shard, self.client, ts, home.unwrap_or(0), share, draft);
            });
        }
        let mut verdict = Verdict::Go;
        while let Some((server, result)) = round.next().await {
            let at = self.servers.iter().position(|s| *s == server).expect("it was asked");
            let share = shares.get_mut(&at).expect("it was asked");
            let found = match result {
                Ok(reply) => self.prepared(ts, share, &reply)?,
                Err(_) => Verdict::Conflict,
            };
            if verdict == Verdict::Go || found == Verdict::NoRoom {
                verdict = found;
            }
        }
        Ok(verdict)
    }

    /// Takes in what a shard says of the prepare.
    fn prepared(&self, ts: u64, share: &mut Share, reply: &Reply) -> Result<Verdict, TxError> {
        let answer = reply.answer();
        if let Some(why) = answer.rejected {
            return Err(TxError::Rejected(why));
        }
        let mut outcomes = answer.outcomes();
        let mut next = || outcomes.next().ok_or(TxError::Confused);
        let mut verdict = Verdict::Go;
        for read in &share.reads {
            let check = next()?;
            let [pw, pr] = pair(&check)?;
            self.witness(pw);
            self.witness(pr);
            if check.status == Status::Miss && !(pw == read.rc && pr >= ts) {
                verdict = Verdict::Conflict;
            }
        }
        share.answered = true;
        if share.writes.is_empty() {
            return Ok(verdict);
        }
        let [intent, _] = [next()?, next()?];
        if intent.status != Status::Ok {
            verdict = Verdict::Conflict;
        }
        for _ in &share.writes {
            match next()?.status {
                Status::Ok | Status::Skipped => {}
                Status::Empty => verdict = Verdict::NoRoom,
                fault => return Err(TxError::Fault(fault)),
            }
        }
        for write in &mut share.writes {
            let check = next()?;
            if check.status == Status::Skipped {
                verdict = verdict.worse();
                continue;
            }
            let [pw, pr, ..] = slot_words(&check)?;
            self.witness(pw);
            self.witness(pr);
            if check.status == Status::Ok {
                write.prev = Some(pw);
            }
            let own = stands(Defence::OwnTimestamp);
            let unread = if own { ts >= pr } else { ts > pr };
            if check.status != Status::Ok || !unread {
                verdict = verdict.worse();
            }
        }
        let buffers = next()?;
        let words = buffers.data.words();
        if intent.status == Status::Ok && words.first() == Some(&ts) {
            for (write, addr) in share.writes.iter_mut().zip(&words[1..]) {
                write.addr = *addr;
            }
        }
        Ok(verdict)
    }

    /// Commits at the home shard, unless somebody has aborted the transaction, and installs there. What
    /// other shards have to do is sent, too.
    async fn decide(
        &self,
        ts: u64,
        home: usize,
        shares: &mut BTreeMap<usize, Share>,
    ) -> Result<(), TxError> {
        self.count(|counts| counts.rounds += 1);
        let shard = self.shard(home).await?;
        let writes = &shares[&home].writes;
        let fill = |draft: &mut Draft| draft_decide(&shard, self.client, ts, writes, draft);
        let reply = self.ask_again(home, fill).await?;
        let answer = reply.answer();
        let mut outcomes = answer.outcomes();
        let decision = outcomes.next().ok_or(TxError::Confused)?;
        let [old_ts, old] = pair(&decision)?;
        if decision.status != Status::Ok && !(old_ts == ts && old & status::COMMITTED != 0) {
            return Err(TxError::Aborted);
        }
        // An answer to a question asked twice: the first time did it, and nobody knows what was there.
        if decision.status == Status::Ok {
            for (i, write) in writes.iter().enumerate() {
                if i > 0 {
                    outcomes.next().ok_or(TxError::Confused)?;
                }
                self.installed(self.servers[home], write, outcomes.next())?;
            }
        }
        let mut round = self.net.round([], |_, _| ());
        let mut others = BTreeMap::new();
        for (at, share) in shares.iter().filter(|(at, _)| **at != home) {
            let shard = self.shard(*at).await?;
            round.also(self.servers[*at], |draft| {
                draft_install(&shard, self.client, ts, &share.writes, draft);
            });
            others.insert(*at, share.writes.clone());
        }
        if !others.is_empty() {
            *self.unfinished.borrow_mut() = Some(Unfinished { ts, round, shares: others });
        }
        Ok(())
    }

    /// Waits until the last transaction's installs are done.
    pub(super) async fn finish_last(&self) -> Result<(), TxError> {
        let unfinished = self.unfinished.borrow_mut().take();
        let Some(Unfinished { ts, mut round, shares }) = unfinished else { return Ok(()) };
        while let Some((server, result)) = round.next().await {
            let at = self.servers.iter().position(|s| *s == server).expect("it was asked");
            let writes = &shares[&at];
            let reply = match result {
                Ok(reply) => reply,
                Err(_) => {
                    let shard = self.shard(at).await?;
                    let fill =
                        |draft: &mut Draft| draft_install(&shard, self.client, ts, writes, draft);
                    self.ask_again(at, fill).await?
                }
            };
            let answer = reply.answer();
            let mut outcomes = answer.outcomes();
            for write in writes {
                self.installed(server, write, outcomes.next())?;
            }
        }
        Ok(())
    }

    /// Takes in how an install went.
    fn installed(
        &self,
        server: usize,
        write: &Write,
        outcome: Option<Outcome<'_>>,
    ) -> Result<(), TxError> {
        let outcome = outcome.ok_or(TxError::Confused)?;
        let [_, addr] = pair(&outcome)?;
        match outcome.status {
            Status::Ok => self.frees.push(server, addr),
            // A later one is there already. (If it is this one, somebody has installed it for us, and a
            // later abort may have raised C since.)
            _ if addr != write.addr => self.frees.push(server, write.addr),
            _ => {}
        }
        Ok(())
    }

    /// Makes the transaction's abort known and settles what it had prepared. When it ends, nothing of
    /// it can come later.
    async fn abort(
        &self,
        ts: u64,
        home: usize,
        shares: BTreeMap<usize, Share>,
    ) -> Result<(), TxError> {
        // The home first: from then on nobody takes it for pending.
        let mut order: Vec<_> = shares.into_iter().collect();
        order.sort_by_key(|(at, _)| *at != home);
        for (at, share) in order {
            let shard = self.shard(at).await?;
            let fill = |draft: &mut Draft| {
                draft_abort(&shard, self.client, ts, home, draft);
                for write in &share.writes {
                    if let Some(prev) = write.prev {
                        draft.op(settle(&shard, write.key, &[prev], &[ts]));
                    }
                }
            };
            let reply = self.ask_again(at, fill).await?;
            let answer = reply.answer();
            let mut outcomes = answer.outcomes();
            let (_, _, buffers) = (outcomes.next(), outcomes.next(), outcomes.next());
            let words = buffers.map(|outcome| outcome.data.words()).unwrap_or_default();
            let mut waiting = Vec::new();
            for write in &share.writes {
                match write.prev {
                    Some(prev) => {
                        let outcome = outcomes.next().ok_or(TxError::Confused)?;
                        let [c] = one(&outcome)?;
                        if outcome.status == Status::Miss && c < ts {
                            waiting.push((write.key, prev));
                        }
                    }
                    // It may have been prepared.
                    None if !share.answered => self.settle(write.key).await?,
                    None => {}
                }
            }
            for (key, prev) in waiting {
                self.abort_behind(at, &shard, key, (prev, ts)).await?;
            }
            if words.first() == Some(&ts) {
                words[1..].iter().for_each(|addr| self.frees.push(self.servers[at], *addr));
            }
        }
        Ok(())
    }

    /// An earlier writer of the key is not settled: waits for it, and settles it when that takes long.
    async fn abort_behind(
        &self,
        at: usize,
        shard: &Shard,
        key: u64,
        (prev, ts): (u64, u64),
    ) -> Result<(), TxError> {
        let until_ns = self.net.now_ns() + self.options.janitor_ns;
        let (mut wait_ns, mut from) = (1000, prev);
        loop {
            let fill = |draft: &mut Draft| draft.op(settle(shard, key, &[from], &[ts]));
            let reply = self.ask_again(at, fill).await?;
            let Some([outcome]) = reply.answer().take() else { return Err(TxError::Confused) };
            let [c] = one(&outcome)?;
            if outcome.status == Status::Ok || c >= ts {
                return Ok(());
            }
            if c > prev {
                // The earlier one is settled, and C went on to the time stamp of an intent that was
                // aborted before it changed PW.
                from = c;
                continue;
            }
            let left_ns = until_ns.saturating_sub(self.net.now_ns());
            if left_ns == 0 && stands(Defence::Janitor) {
                return self.settle(key).await;
            }
            self.net.sleep(wait_ns.min(left_ns.max(1000))).await;
            wait_ns = (wait_ns * 2).min(self.options.janitor_ns / 4 + 1);
        }
    }
}

impl Verdict {
    fn worse(self) -> Self {
        if self == Self::Go { Self::Conflict } else { self }
    }
}

fn pair(outcome: &Outcome<'_>) -> Result<[u64; 2], TxError> {
    words(outcome)
}

fn one(outcome: &Outcome<'_>) -> Result<[u64; 1], TxError> {
    words(outcome)
}

/// What a swap found.
pub(super) fn words<const N: usize>(outcome: &Outcome<'_>) -> Result<[u64; N], TxError> {
    match outcome.status {
        Status::Ok | Status::Miss => outcome.data.words().try_into().map_err(|_| TxError::Confused),
        fault => Err(TxError::Fault(fault)),
    }
}
