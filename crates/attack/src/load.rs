//! The good clients: a known load, and what became of every operation of it.
//!
//! Each client begins an operation on a schedule; one that is due while as many as allowed are
//! under way is left out, so that a pause is no burst afterwards.

use crate::history::Op;
use crate::net::LOADERS;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tercio_client::{Client, Ticket};
use tercio_network::now;
use tercio_wire::OpResult;

/// Between two operations of a client: all together do 400 in a second.
const STEP: Duration = Duration::from_millis(10);
/// The most operations of a client under way.
const UNDER_WAY: usize = 32;
/// Against a hang only: how long what is under way may take at the end.
const DRAIN: Duration = Duration::from_secs(20);

/// The load while it runs.
#[derive(Debug)]
pub(crate) struct Load {
    start: Instant,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Op>>>,
}

impl Load {
    /// Puts the load on.
    pub(crate) fn start(clients: Vec<Client>) -> Self {
        assert_eq!(clients.len(), LOADERS, "as many as the genesis has for this");
        let (start, stop) = (now(), Arc::new(AtomicBool::new(false)));
        let threads = (clients.into_iter().enumerate())
            .map(|(i, client)| {
                let stop = stop.clone();
                std::thread::spawn(move || One::new(i, start).run(client, &stop))
            })
            .collect();
        Self { start, stop, threads }
    }

    /// When its history begins.
    pub(crate) fn since(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends the load, and gives what became of all of it.
    pub(crate) fn stop(mut self) -> Vec<Op> {
        self.stop.store(true, Ordering::SeqCst);
        let threads = std::mem::take(&mut self.threads);
        threads.into_iter().flat_map(|t| t.join().expect("a client does not panic")).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

struct One {
    client: usize,
    start: Instant,
    under_way: BTreeMap<Ticket, usize>,
    ops: Vec<Op>,
}

impl One {
    fn new(client: usize, start: Instant) -> Self {
        Self { client, start, under_way: BTreeMap::new(), ops: vec![] }
    }

    fn run(mut self, mut client: Client, stop: &AtomicBool) -> Vec<Op> {
        // They take turns.
        let mut next = self.start + STEP * self.client as u32 / LOADERS as u32;
        let mut end = None;
        loop {
            let time = now();
            if end.is_none() && stop.load(Ordering::SeqCst) {
                end = Some(time + DRAIN);
            }
            match end {
                Some(end) if self.under_way.is_empty() || time >= end => return self.ops,
                Some(_) => {}
                None => {
                    while next <= time {
                        next += STEP;
                        if next > time {
                            self.begin(&mut client);
                        }
                    }
                }
            }
            let wait = next.saturating_duration_since(time).clamp(Duration::from_millis(1), STEP);
            for completion in client.poll(wait) {
                let Some(at) = self.under_way.remove(&completion.ticket) else { continue };
                let total = match completion.outcome.as_deref() {
                    Ok([OpResult::Executed(bytes)]) => bytes.first_chunk().copied(),
                    // It is open whether it was executed.
                    _ => None,
                };
                if let Some(total) = total {
                    let returned = self.start.elapsed();
                    self.ops[at].returned = Some((returned, u64::from_le_bytes(total)));
                }
            }
        }
    }

    fn begin(&mut self, client: &mut Client) {
        if self.under_way.len() >= UNDER_WAY {
            return;
        }
        let invoked = self.start.elapsed();
        let number = client.core().next_number().map_or(0, |number| number.0);
        if let Ok(ticket) = client.submit(vec![Bytes::new()]) {
            self.under_way.insert(ticket, self.ops.len());
            self.ops.push(Op { client: self.client, number, invoked, returned: None });
        }
    }
}

/// How the clients fared between two moments of the history.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fared {
    /// Results a second.
    pub(crate) rate: f64,
    /// Of those results, from the beginning of the operation.
    pub(crate) p50: Duration,
    /// The longest time without a result.
    pub(crate) gap: Duration,
}

impl Fared {
    pub(crate) fn of(history: &[Op], from: Duration, to: Duration) -> Self {
        let mut results: Vec<(Duration, Duration)> = (history.iter())
            .filter_map(|op| op.returned.map(|(at, _)| (at, at - op.invoked)))
            .filter(|(at, _)| (from..to).contains(at))
            .collect();
        results.sort();
        let (mut last, mut gap) = (from, Duration::ZERO);
        for at in results.iter().map(|(at, _)| *at).chain([to]) {
            gap = gap.max(at - last);
            last = at;
        }
        let mut took: Vec<Duration> = results.iter().map(|(_, took)| *took).collect();
        took.sort();
        let rate = took.len() as f64 / (to - from).as_secs_f64().max(1e-9);
        Self { rate, p50: took.get(took.len() / 2).copied().unwrap_or_default(), gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_a_history_is_measured() {
        let ms = Duration::from_millis;
        let op = |invoked, returned: Option<u64>| Op {
            client: 0,
            number: 1,
            invoked: ms(invoked),
            returned: returned.map(|at| (ms(at), 1)),
        };
        let history = [
            op(0, Some(5)),
            op(90, Some(100)),
            op(100, Some(140)),
            op(200, Some(220)),
            op(210, None),
        ];
        let fared = Fared::of(&history, ms(100), ms(300));
        assert!((fared.rate - 15.0).abs() < 1e-9, "three in 0.2 s: {fared:?}");
        assert_eq!((fared.p50, fared.gap), (ms(20), ms(80)));
        let none = Fared::of(&[], ms(0), ms(50));
        assert_eq!((none.p50, none.gap), (ms(0), ms(50)));
    }
}
