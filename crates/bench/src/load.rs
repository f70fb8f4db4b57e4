//! Load from clients, each on a thread of its own.
//!
//! By default the load is open-loop: each package has an intended time on a schedule that nothing
//! holds up, and its latency counts from that time, whether or not it could be sent then (no
//! coordinated omission). Closed-loop load sends the next package when one ends; it finds out what
//! a network can take, and its latencies say little.

use crate::figures::Recorder;
use crate::{now, pause, thread_cpu};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};
use tercio_client::{Client, OpResult, SubmitError, Ticket};
use thiserror::Error;

/// Against a hang only: how long the last packages may take when the load is over.
const DRAIN: Duration = Duration::from_secs(15);
/// The event loop waits in whole milliseconds; what is due sooner is waited for in steps of this.
const STEP: Duration = Duration::from_micros(50);

/// When packages are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many operations per second, all clients together, on a schedule.
    Open(f64),
    /// The next when one ends.
    Closed,
}

/// What load to put on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// When packages are sent.
    pub pace: Pace,
    /// Operations of a package.
    pub package: usize,
    /// The most packages of a client under way. In an open loop a package that finds no room waits,
    /// and its waiting counts.
    pub outstanding: usize,
    /// Bytes of an operation.
    pub size: usize,
    /// How long the load runs before anything is counted.
    pub warm_up: Duration,
    /// How long it is counted.
    pub measure: Duration,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Operations that the network did not execute.
    #[error("{failed} operations were not executed; the first: {first}")]
    Failed {
        /// How many.
        failed: u64,
        /// Why the first was not.
        first: String,
    },
    /// Packages have no end.
    #[error("{packages} packages had no result {} s after the load had ended", DRAIN.as_secs())]
    Unanswered {
        /// How many.
        packages: usize,
    },
    /// What the clients were told to send is not taken.
    #[error("the clients cannot send this: {0}")]
    Refused(SubmitError),
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Operations whose results came during the measurement.
    pub completed: u64,
    /// The latencies of those that were to be sent during it, from the intended time. Those that
    /// were not sent count with how late they were at the end.
    pub latency: Recorder,
    /// How long the measurement was.
    pub elapsed: Duration,
    /// Operations that should have been sent during the measurement and were not, for want of room
    /// or of the generator's own time.
    pub unsent: u64,
    /// The processor time of the busiest client's thread, as a fraction of the measurement.
    pub busiest_client: f64,
}

impl Outcome {
    /// Operations per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn merge(&mut self, other: &Self) {
        self.completed += other.completed;
        self.latency.merge(&other.latency);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.unsent += other.unsent;
        self.busiest_client = self.busiest_client.max(other.busiest_client);
    }
}

/// Puts the load on, from all `clients` at once. `at_edge` is called when the measurement begins and
/// when it ends, to read the replicas' counters.
///
/// # Errors
/// When an operation has no result, or the plan makes no sense to the clients.
pub fn run(
    clients: &mut [Client],
    plan: &Plan,
    mut at_edge: impl FnMut(),
) -> Result<Outcome, LoadError> {
    let begin = now();
    let (from, to) = (begin + plan.warm_up, begin + plan.warm_up + plan.measure);
    let count = clients.len();
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (clients.iter_mut().enumerate())
            .map(|(i, client)| {
                scope.spawn(move || Generator::new(plan, (i, count), begin, from, to).run(client))
            })
            .collect();
        for edge in [from, to] {
            pause(edge.saturating_duration_since(now()));
            at_edge();
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().expect("a generator does not panic")
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = Outcome::default();
    for result in results {
        all.merge(&result?);
    }
    Ok(all)
}

struct Generator<'a> {
    plan: &'a Plan,
    ops: Vec<Bytes>,
    /// The time between two packages of this client; zero in a closed loop.
    step: Duration,
    /// The intended time of the next package.
    next: Instant,
    from: Instant,
    to: Instant,
    under_way: BTreeMap<Ticket, Instant>,
    outcome: Outcome,
    failed: u64,
    first_failure: Option<String>,
}

impl<'a> Generator<'a> {
    fn new(
        plan: &'a Plan,
        (client, clients): (usize, usize),
        begin: Instant,
        from: Instant,
        to: Instant,
    ) -> Self {
        let step = match plan.pace {
            Pace::Open(rate) => {
                Duration::from_secs_f64((plan.package * clients) as f64 / rate.max(1e-6))
            }
            Pace::Closed => Duration::ZERO,
        };
        let op = Bytes::from((0..plan.size).map(|i| (i + client) as u8).collect::<Vec<_>>());
        // Clients take turns rather than send all at once.
        let next = begin + step * client as u32 / clients as u32;
        Self {
            plan,
            ops: vec![op; plan.package],
            step,
            next,
            from,
            to,
            under_way: BTreeMap::new(),
            outcome: Outcome::default(),
            failed: 0,
            first_failure: None,
        }
    }

    fn run(mut self, client: &mut Client) -> Result<Outcome, LoadError> {
        let mut cpu_at_start = None;
        loop {
            let time = now();
            if time >= self.to {
                break;
            }
            if time >= self.from && cpu_at_start.is_none() {
                cpu_at_start = Some(thread_cpu());
            }
            let room = self.send(client, time)?;
            // Whatever there is no room for waits for a completion instead of the schedule.
            let until = if room && self.step > Duration::ZERO { self.next } else { self.to };
            self.wait(client, until.min(self.to));
        }
        let measured = self.to - self.from;
        if let Some(start) = cpu_at_start {
            let used = (thread_cpu() - start).as_secs_f64();
            self.outcome.busiest_client = used / measured.as_secs_f64();
        }
        self.outcome.elapsed = measured;
        self.count_unsent();
        self.drain(client)?;
        match self.first_failure {
            Some(first) => Err(LoadError::Failed { failed: self.failed, first }),
            None => Ok(self.outcome),
        }
    }

    /// What was due and never sent counts with how late it was at the end, which is less than it
    /// would have come to.
    fn count_unsent(&mut self) {
        while self.step > Duration::ZERO && self.next < self.to {
            if self.next >= self.from {
                let ops = self.plan.package as u64;
                self.outcome.unsent += ops;
                self.outcome.latency.record(self.to - self.next, ops);
            }
            self.next += self.step;
        }
    }

    /// Sends what is due; false when there is no room for it.
    fn send(&mut self, client: &mut Client, time: Instant) -> Result<bool, LoadError> {
        while self.step.is_zero() || self.next <= time {
            if self.under_way.len() >= self.plan.outstanding {
                return Ok(false);
            }
            match client.submit(self.ops.clone()) {
                Ok(ticket) => {
                    let intended = if self.step.is_zero() { time } else { self.next };
                    self.under_way.insert(ticket, intended);
                    self.next += self.step;
                }
                Err(SubmitError::TooMany { .. }) => return Ok(false),
                Err(error) => return Err(LoadError::Refused(error)),
            }
        }
        Ok(true)
    }

    /// Takes in results until `until`, or until some have come.
    fn wait(&mut self, client: &mut Client, until: Instant) {
        let mut left = until.saturating_duration_since(now());
        if left < Duration::from_millis(1) && !left.is_zero() {
            self.receive(client, Duration::ZERO);
            pause(left.min(STEP));
            left = Duration::ZERO;
        }
        self.receive(client, left);
    }

    fn receive(&mut self, client: &mut Client, patience: Duration) {
        let completions = client.poll(patience);
        let time = now();
        for completion in completions {
            let Some(intended) = self.under_way.remove(&completion.ticket) else { continue };
            let ops = self.plan.package as u64;
            let failure = match &completion.outcome {
                Ok(results) => results.iter().find_map(|result| match result {
                    OpResult::Executed(_) => None,
                    other => Some(format!("{other:?}")),
                }),
                Err(failure) => Some(failure.to_string()),
            };
            if let Some(failure) = failure {
                self.failed += ops;
                self.first_failure.get_or_insert(failure);
                continue;
            }
            // Rate and latency are of different sets: what ended during the measurement, and what
            // should have begun during it, however late it ended.
            if (self.from..self.to).contains(&time) {
                self.outcome.completed += ops;
            }
            if (self.from..self.to).contains(&intended) {
                self.outcome.latency.record(time - intended, ops);
            }
        }
    }

    fn drain(&mut self, client: &mut Client) -> Result<(), LoadError> {
        let deadline = now() + DRAIN;
        while !self.under_way.is_empty() {
            if now() >= deadline {
                return Err(LoadError::Unanswered { packages: self.under_way.len() });
            }
            self.wait(client, deadline);
        }
        Ok(())
    }
}
