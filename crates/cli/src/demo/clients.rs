//! The clients of the demonstration: they send orders and keep what they are told.
//!
//! A client has one package in flight at a time. Several would mostly be executed in the order in
//! which they were sent, but not always: after a view change the new primary may propose them in
//! another order, and a client that needs an order must wait (as a replay of a file does).

use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tercio_bench::figures::Recorder;
use tercio_client::{Client, OpResult};
use tercio_exchange::{Command, Outcome};
use tercio_network::now;
use tercio_wire::Encode;

/// How often a client that waits looks whether it is to give up.
const LOOK: Duration = Duration::from_millis(100);

/// What the clients share with whoever watches them.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Orders with a result.
    done: AtomicU64,
    /// Orders that were given out to clients.
    taken: AtomicU64,
    /// How many are given out at most.
    limit: AtomicU64,
    /// Whether results are waited for no more.
    given_up: AtomicBool,
}

impl Progress {
    /// Nothing done yet, of this many; without a count, of as many as come before [`Self::stop`].
    pub(crate) fn new(count: Option<u64>) -> Self {
        let limit = AtomicU64::new(count.unwrap_or(u64::MAX));
        Self {
            done: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            limit,
            given_up: AtomicBool::new(false),
        }
    }

    /// Gives out no more orders.
    pub(crate) fn stop(&self) {
        self.limit.store(0, Ordering::Relaxed);
    }

    /// Gives out no more orders, and has no client wait for its results.
    pub(crate) fn give_up(&self) {
        self.stop();
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Orders with a result.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Takes up to `most` of what is left.
    fn take(&self, most: u64) -> u64 {
        let before = self.taken.fetch_add(most, Ordering::Relaxed);
        self.limit.load(Ordering::Relaxed).saturating_sub(before).min(most)
    }
}

/// What a client saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// From handing a package over to its result, once for each of its orders.
    pub(crate) latency: Recorder,
    /// The longest time without a result.
    pub(crate) longest_gap: Duration,
    /// The outcomes in the order of the commands, when they were asked for.
    pub(crate) outcomes: Vec<Outcome>,
    /// Orders that were accepted by the exchange.
    pub(crate) accepted: u64,
    /// Trades.
    pub(crate) trades: u64,
}

/// Sends commands in packages of `package`, one after the other, until the clients together
/// have done what there is to do, there are no more, or all is given up.
pub(crate) fn send_all(
    client: &mut Client,
    mut commands: impl Iterator<Item = Command>,
    package: usize,
    keep: bool,
    progress: &Progress,
) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let mut last_result = now();
    loop {
        let share = progress.take(package as u64) as usize;
        let ops: Vec<Bytes> =
            commands.by_ref().take(share).map(|command| command.to_bytes()).collect();
        if ops.is_empty() {
            return Ok(seen);
        }
        let count = ops.len() as u64;
        let sent = now();
        let Some(results) = call(client, ops, progress)? else { return Ok(seen) };
        let time = now();
        seen.latency.record(time - sent, count);
        seen.gap(last_result, time);
        last_result = time;
        for result in &results {
            let outcome = Outcome::parse(result).map_err(|error| {
                format!("the exchange answered with bytes that are no outcome: {error}")
            })?;
            match &outcome {
                Outcome::Rejected(_) => {}
                Outcome::Placed { fills, .. } => {
                    seen.accepted += 1;
                    seen.trades += fills.len() as u64;
                }
                _ => seen.accepted += 1,
            }
            if keep {
                seen.outcomes.push(outcome);
            }
        }
        progress.done.fetch_add(count, Ordering::Relaxed);
    }
}

impl Seen {
    fn gap(&mut self, last: Instant, time: Instant) {
        self.longest_gap = self.longest_gap.max(time - last);
    }

    /// Takes in what another client saw.
    pub(crate) fn merge(&mut self, other: Self) {
        self.latency.merge(&other.latency);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.outcomes.extend(other.outcomes);
        self.accepted += other.accepted;
        self.trades += other.trades;
    }
}

/// Submits one package and waits for its results; none when all is given up.
fn call(
    client: &mut Client,
    ops: Vec<Bytes>,
    progress: &Progress,
) -> Result<Option<Vec<Bytes>>, String> {
    let ticket = client.submit(ops).map_err(|error| error.to_string())?;
    loop {
        if progress.given_up.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let completions = client.poll(LOOK);
        let Some(completion) = completions.into_iter().find(|c| c.ticket == ticket) else {
            continue;
        };
        let results = completion.outcome.map_err(|failure| failure.to_string())?;
        let bytes = |result| match result {
            OpResult::Executed(bytes) => Ok(bytes),
            other => Err(format!("an order was not executed: {other:?}")),
        };
        return results.into_iter().map(bytes).collect::<Result<_, _>>().map(Some);
    }
}
