//! Load from clients, each on a thread of its own.
//!
//! By default the load is open-loop: each package has an intended time on a schedule that nothing
//! holds up, and its latency counts from that time, whether or not it could be sent then (no
//! coordinated omission). Closed-loop load sends the next package when one ends; it finds out what
//! a network can take, and its latencies say little.

mod outcome;

pub use outcome::{Outcome, PIECE, Piece};

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tercio_client::{Client, OpResult, SubmitError, Ticket};
use tercio_network::{now, pause, thread_cpu};
use thiserror::Error;

/// Against a hang only: how long the last packages may take when the load is over.
const DRAIN: Duration = Duration::from_secs(60);
/// How often somebody is asked meanwhile whether they are waited for.
const LOOK: Duration = Duration::from_millis(5);
/// The event loop waits in whole milliseconds; what is due sooner is waited for in steps of this,
/// longer ones when there are many clients: they share the processors with the replicas.
const STEP: Duration = Duration::from_micros(50);
/// How many clients look so often.
const FEW: u32 = 2;

/// When packages are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// This many operations per second, all clients together, on a schedule.
    Open(f64),
    /// The next when one ends.
    Closed,
}

/// A stretch of time with one pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// When packages are sent. From one phase to the next of the same pace the schedule goes on;
    /// with another one it begins anew, and what was due and not sent never is.
    pub pace: Pace,
    /// How long it lasts, unless it is ended before.
    pub length: Duration,
}

/// What load to put on.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// One after the other; each is counted by itself.
    pub phases: Vec<Phase>,
    /// Operations of a package.
    pub package: usize,
    /// The most packages of a client in flight. In an open loop a package that finds no room waits,
    /// and its waiting counts.
    pub outstanding: usize,
    /// The operations that clients send, round-robin.
    pub ops: Ops,
    /// Whether packages may have no result; otherwise that is an error.
    pub may_fail: bool,
}

/// The operations of a client, by their number from 0.
#[derive(Clone)]
pub struct Ops(Arc<dyn Fn(usize, u64) -> Bytes + Send + Sync>);

impl Ops {
    /// Each client's operations are this function of the client and of their number.
    pub fn new(op: impl Fn(usize, u64) -> Bytes + Send + Sync + 'static) -> Self {
        Self(Arc::new(op))
    }

    /// The operation of a client with this number.
    #[must_use]
    pub fn of(&self, client: usize, number: u64) -> Bytes {
        (self.0)(client, number)
    }

    /// Always this operation.
    #[must_use]
    pub fn always(op: Bytes) -> Self {
        Self::new(move |_, _| op.clone())
    }

    /// Always the same bytes, this many.
    #[must_use]
    pub fn of_size(size: usize) -> Self {
        Self::always((0..size).map(|i| i as u8).collect::<Vec<_>>().into())
    }
}

impl PartialEq for Ops {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Ops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ops")
    }
}

/// What the load tells whoever put it on, from the thread that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A phase begins.
    Begin(usize),
    /// A tenth of a second or so has passed.
    Tick {
        /// The phase.
        phase: usize,
        /// The time since its beginning.
        since: Duration,
    },
    /// The last phase has ended; what is in flight is still waited for.
    End,
    /// It is waited for; comes again and again until there is nothing more.
    Drain,
}

/// What is to become of a phase, as whoever watches it says at a [`Moment::Tick`], or of what is under
/// way at the end, at a [`Moment::Drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It goes on.
    GoOn,
    /// It ends now, and the next one begins.
    EndPhase,
    /// It and all after it end now, and nothing that is in flight is waited for.
    GiveUp,
}

/// Whoever says nothing lets it go on.
impl From<()> for Then {
    fn from((): ()) -> Self {
        Self::GoOn
    }
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
    /// Whoever watched it gave it up.
    #[error("the load was given up")]
    GivenUp,
    /// What the clients were told to send is not taken.
    #[error("the clients cannot send this: {0}")]
    Refused(SubmitError),
}

/// When the phases begin, and the last one ends; and when a result came last.
struct Edges {
    start: Instant,
    /// Nanoseconds since the start. They ascend, at every moment.
    offsets: Vec<AtomicU64>,
    /// The same of the last result.
    heard: AtomicU64,
    given_up: AtomicBool,
}

impl Edges {
    fn new(start: Instant, phases: &[Phase]) -> Self {
        let mut offset = 0;
        let mut offsets = vec![AtomicU64::new(0)];
        for phase in phases {
            offset += phase.length.as_nanos() as u64;
            offsets.push(AtomicU64::new(offset));
        }
        Self { start, offsets, heard: AtomicU64::new(0), given_up: AtomicBool::new(false) }
    }

    fn at(&self, edge: usize) -> Instant {
        self.start + Duration::from_nanos(self.offsets[edge].load(Ordering::SeqCst))
    }

    /// The phase in which `time` lies, if it lies in one.
    fn phase_of(&self, time: Instant) -> Option<usize> {
        let time = self.since(time);
        let ends = &self.offsets[1..];
        ends.iter().position(|end| time < end.load(Ordering::SeqCst))
    }

    fn since(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Ends a phase at `time`; those after it are as long as before.
    fn end(&self, phase: usize, time: Instant) {
        let (end, time) = (self.offsets[phase + 1].load(Ordering::SeqCst), self.since(time));
        let early = end.saturating_sub(time);
        for offset in &self.offsets[phase + 1..] {
            offset.fetch_sub(early, Ordering::SeqCst);
        }
    }

    /// Refuses once the load was given up.
    fn check(&self) -> Result<(), LoadError> {
        if self.given_up.load(Ordering::SeqCst) { Err(LoadError::GivenUp) } else { Ok(()) }
    }

    /// A result came at `time`; how long there had been none.
    fn hear(&self, time: Instant) -> Duration {
        let time = self.since(time);
        let before = self.heard.fetch_max(time, Ordering::SeqCst);
        Duration::from_nanos(time.saturating_sub(before))
    }
}

/// Puts the load on, from all `clients` at once; gives what came of each phase. `watch` is told
/// where it stands, to read the replicas' counters and to do things to them, and may end a phase or
/// give all up.
///
/// # Errors
/// When an operation has no result and the plan does not allow that, the plan makes no sense to the
/// clients, or the load was given up.
pub fn run<T: Into<Then>>(
    clients: &mut [Client],
    plan: &Plan,
    mut watch: impl FnMut(Moment) -> T,
) -> Result<Vec<Outcome>, LoadError> {
    let edges = Edges::new(now(), &plan.phases);
    let count = clients.len();
    let results: Vec<_> = thread::scope(|scope| {
        let edges = &edges;
        let threads: Vec<_> = (clients.iter_mut().enumerate())
            .map(|(i, client)| {
                scope.spawn(move || Generator::new(plan, (i, count), edges).run(client))
            })
            .collect();
        'load: for phase in 0..plan.phases.len() {
            watch(Moment::Begin(phase));
            loop {
                let time = now();
                let left = edges.at(phase + 1).saturating_duration_since(time);
                if left.is_zero() {
                    break;
                }
                let since = time.saturating_duration_since(edges.at(phase));
                match watch(Moment::Tick { phase, since }).into() {
                    Then::GoOn => pause(left.min(PIECE)),
                    Then::EndPhase => edges.end(phase, now()),
                    Then::GiveUp => {
                        edges.given_up.store(true, Ordering::SeqCst);
                        break 'load;
                    }
                }
            }
        }
        watch(Moment::End);
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            if watch(Moment::Drain).into() == Then::GiveUp {
                edges.given_up.store(true, Ordering::SeqCst);
                break;
            }
            pause(LOOK);
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().expect("a generator does not panic")
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = vec![Outcome::default(); plan.phases.len()];
    for result in results {
        let outcomes: Vec<Outcome> = result?;
        all.iter_mut().zip(&outcomes).for_each(|(all, one)| all.merge(one));
    }
    Ok(all)
}

/// When packages are due that go out every `step` from `first` on, before `end`: the first of each
/// group of neighbours, and how many those are. There may be millions, and the next phase waits
/// for this; so there are a few thousand groups at most, each as short beside the whole as what a
/// recorder tells apart.
fn due(first: Instant, step: Duration, end: Instant) -> impl Iterator<Item = (Instant, u64)> {
    const GROUPS: u64 = 4096;
    let time = end.saturating_duration_since(first).as_nanos();
    let count = time.div_ceil(step.as_nanos().max(1)) as u64;
    let count = if step.is_zero() { 0 } else { count };
    let group = count.div_ceil(GROUPS).max(1);
    let at = move |i: u64| first + Duration::from_nanos(step.as_nanos() as u64 * i);
    (0..count).step_by(group as usize).map(move |i| (at(i), group.min(count - i)))
}

struct Generator<'a> {
    plan: &'a Plan,
    client: usize,
    clients: usize,
    /// The number of the next operation.
    number: u64,
    /// The time between two packages of this client; zero in a closed loop.
    step: Duration,
    /// The intended time of the next package.
    next: Instant,
    edges: &'a Edges,
    phase: usize,
    /// How many of the phase's pieces have ended.
    ended: usize,
    under_way: BTreeMap<Ticket, Instant>,
    outcomes: Vec<Outcome>,
    failed: u64,
    first_failure: Option<String>,
}

impl<'a> Generator<'a> {
    fn new(plan: &'a Plan, (client, clients): (usize, usize), edges: &'a Edges) -> Self {
        Self {
            plan,
            client,
            clients,
            number: 0,
            step: Duration::ZERO,
            next: edges.at(0),
            edges,
            phase: 0,
            ended: 0,
            under_way: BTreeMap::new(),
            outcomes: vec![Outcome::default(); plan.phases.len()],
            failed: 0,
            first_failure: None,
        }
    }

    fn run(mut self, client: &mut Client) -> Result<Vec<Outcome>, LoadError> {
        let mut pace = None;
        for phase in 0..self.plan.phases.len() {
            (self.phase, self.ended) = (phase, 0);
            let wanted = self.plan.phases[phase].pace;
            if pace != Some(wanted) {
                pace = Some(wanted);
                self.set_pace(wanted);
            }
            let cpu_at_start = thread_cpu();
            let end = loop {
                self.edges.check()?;
                // It may be ended before its time.
                let (time, end) = (now(), self.edges.at(phase + 1));
                self.note_backlog(time.min(end), time >= end);
                if time >= end {
                    break end;
                }
                let room = self.send(client, time)?;
                // Whatever there is no room for waits for a completion instead of the schedule.
                let until = if room && self.step > Duration::ZERO { self.next } else { end };
                self.wait(client, until.min(end).min(time + PIECE));
            };
            let length = end - self.edges.at(phase);
            let used = (thread_cpu() - cpu_at_start).as_secs_f64();
            let outcome = &mut self.outcomes[phase];
            outcome.elapsed = length;
            outcome.busiest_client = used / length.as_secs_f64().max(1e-9);
            if self.plan.phases.get(phase + 1).is_none_or(|next| next.pace != wanted) {
                self.count_unsent(end);
            }
        }
        self.drain(client)?;
        match self.first_failure {
            Some(first) if !self.plan.may_fail => {
                Err(LoadError::Failed { failed: self.failed, first })
            }
            _ => Ok(self.outcomes),
        }
    }

    /// Notes how much waits for the pieces that have ended by `time`, the last one if `all` have.
    fn note_backlog(&mut self, time: Instant, all: bool) {
        let since = time.saturating_duration_since(self.edges.at(self.phase)).as_nanos();
        let whole = if all { since.div_ceil(PIECE.as_nanos()) } else { since / PIECE.as_nanos() };
        let ended = self.ended..whole as usize;
        if all {
            self.outcomes[self.phase].pieces.resize(ended.end, Piece::default());
        }
        if ended.is_empty() {
            return;
        }
        let unsent: u64 = due(self.next, self.step, time).map(|(_, packages)| packages).sum();
        let packages = self.under_way.len() as u64 + unsent;
        for piece in ended {
            self.outcomes[self.phase].piece(piece).backlog = packages * self.plan.package as u64;
            self.ended = piece + 1;
        }
    }

    /// Begins a schedule with the phase.
    fn set_pace(&mut self, pace: Pace) {
        self.step = match pace {
            Pace::Open(rate) => {
                Duration::from_secs_f64((self.plan.package * self.clients) as f64 / rate.max(1e-6))
            }
            Pace::Closed => Duration::ZERO,
        };
        // Clients take turns rather than send all at once.
        let begin = self.edges.at(self.phase);
        self.next = begin + self.step * self.client as u32 / self.clients as u32;
    }

    /// The outcome of the phase in which `time` lies, if it lies in one.
    fn outcome_at(&mut self, time: Instant) -> Option<(&mut Outcome, Instant)> {
        let phase = self.edges.phase_of(time)?;
        Some((&mut self.outcomes[phase], self.edges.at(phase)))
    }

    /// What was due and never sent counts with how late it was at the end, which is less than it
    /// would have come to.
    fn count_unsent(&mut self, end: Instant) {
        for (intended, packages) in due(self.next, self.step, end) {
            let ops = packages * self.plan.package as u64;
            if let Some((outcome, _)) = self.outcome_at(intended) {
                outcome.latency.record(end - intended, ops);
            }
        }
        self.next = self.next.max(end);
    }

    /// Sends what is due; false when there is no room for it.
    fn send(&mut self, client: &mut Client, time: Instant) -> Result<bool, LoadError> {
        while self.step.is_zero() || self.next <= time {
            if self.under_way.len() >= self.plan.outstanding {
                return Ok(false);
            }
            let numbers = self.number..self.number + self.plan.package as u64;
            let ops = numbers.map(|number| self.plan.ops.of(self.client, number)).collect();
            match client.submit(ops) {
                Ok(ticket) => {
                    let intended = if self.step.is_zero() { time } else { self.next };
                    self.under_way.insert(ticket, intended);
                    self.next += self.step;
                    self.number += self.plan.package as u64;
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
            pause(left.min(STEP * (self.clients as u32).div_ceil(FEW)));
            left = Duration::ZERO;
        }
        self.receive(client, left);
    }

    fn receive(&mut self, client: &mut Client, patience: Duration) {
        let completions = client.poll(patience);
        let time = now();
        let ops = self.plan.package as u64;
        if !completions.is_empty() {
            let gap = self.edges.hear(time);
            if let Some((outcome, _)) = self.outcome_at(time) {
                outcome.longest_gap = outcome.longest_gap.max(gap);
            }
        }
        for completion in completions {
            let Some(intended) = self.under_way.remove(&completion.ticket) else { continue };
            let failure = match &completion.outcome {
                Ok(results) => results.iter().find_map(|result| match result {
                    OpResult::Executed(_) => None,
                    other => Some(format!("{other:?}")),
                }),
                Err(failure) => Some(failure.to_string()),
            };
            // Rate and latency are of different sets: what ended during the phase, and what
            // should have begun during it, however late it ended.
            if let Some((outcome, _)) = self.outcome_at(intended) {
                let again = completion.resent;
                outcome.resent_packages += u64::from(again > 0);
                outcome.most_resent = outcome.most_resent.max(again);
                match failure {
                    None => outcome.latency.record(time - intended, ops),
                    Some(_) => outcome.failed += ops,
                }
            }
            if let Some(failure) = failure {
                self.failed += ops;
                self.first_failure.get_or_insert(failure);
            } else if let Some((outcome, begin)) = self.outcome_at(time) {
                outcome.completed += ops;
                let piece = ((time - begin).as_nanos() / PIECE.as_nanos()) as usize;
                let piece = outcome.piece(piece);
                piece.completed += ops;
                piece.taken += (time - intended) * ops as u32;
            }
        }
    }

    fn drain(&mut self, client: &mut Client) -> Result<(), LoadError> {
        let deadline = now() + DRAIN;
        while !self.under_way.is_empty() {
            self.edges.check()?;
            let time = now();
            if time >= deadline {
                return Err(LoadError::Unanswered { packages: self.under_way.len() });
            }
            self.wait(client, deadline.min(time + PIECE));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_client::CoreSettings;
    use tercio_network::LocalNetwork;
    use tercio_network::Spec;

    /// Nobody is there any more who would answer.
    #[test]
    fn what_is_under_way_at_the_end_can_be_given_up() {
        let network = LocalNetwork::start(Spec::new(tercio_registry::apps().first())).unwrap();
        let core = CoreSettings { deadline: 4 * DRAIN, ..CoreSettings::unused_id() };
        let mut clients = [network.network().client(0, core).unwrap()];
        network.stop().unwrap();
        let asked = Arc::new(AtomicBool::new(false));
        let sent = asked.clone();
        let ops = Ops::new(move |_, _| {
            sent.store(true, Ordering::SeqCst);
            Bytes::from_static(b"op")
        });
        let phases = vec![Phase { pace: Pace::Closed, length: DRAIN }];
        let plan = Plan { phases, package: 1, outstanding: 1, ops, may_fail: false };
        let ended = run(&mut clients, &plan, |moment| match moment {
            Moment::Tick { .. } if asked.load(Ordering::SeqCst) => Then::EndPhase,
            Moment::Drain => Then::GiveUp,
            _ => Then::GoOn,
        });
        assert_eq!(ended.unwrap_err(), LoadError::GivenUp);
    }

    #[test]
    fn a_phase_that_ends_early_moves_the_others_up() {
        let second = Duration::from_secs(1);
        let phases = [1, 60, 2].map(|s| Phase { pace: Pace::Closed, length: s * second });
        let start = now();
        let edges = Edges::new(start, &phases);
        assert_eq!(edges.phase_of(start + 5 * second), Some(1));
        edges.end(1, start + 4 * second);
        assert_eq!(
            (1..4).map(|i| edges.at(i) - start).collect::<Vec<_>>(),
            [1, 4, 6].map(|s| s * second)
        );
        assert_eq!(edges.phase_of(start + 5 * second), Some(2));
        assert_eq!(edges.phase_of(start + 6 * second), None);
        // Too late, it changes nothing.
        edges.end(1, start + 5 * second);
        assert_eq!(edges.at(2) - start, 4 * second);
    }

    #[test]
    fn the_time_without_a_result_is_that_of_all_clients() {
        let start = now();
        let edges = Edges::new(start, &[]);
        let ms = Duration::from_millis;
        let gaps = [5, 9, 7, 12].map(|time| edges.hear(start + ms(time)));
        assert_eq!(gaps, [5, 4, 0, 3].map(ms));
    }

    #[test]
    fn whatever_is_due_is_counted_in_few_groups() {
        let start = now();
        let us = Duration::from_micros;
        let all = |step, length| due(start, step, start + length).collect::<Vec<_>>();
        assert_eq!(all(us(10), us(25)), [0, 10, 20].map(|at| (start + us(at), 1)));
        assert_eq!(all(us(10), us(20)), [0, 10].map(|at| (start + us(at), 1)));
        assert_eq!((all(us(10), us(0)), all(us(0), us(10))), (vec![], vec![]));
        for length in [40_959, 40_961, 1_234_567, 60_000_000] {
            let groups = all(us(10), us(length));
            assert!(groups.len() <= 4096);
            assert_eq!(groups.iter().map(|(_, count)| count).sum::<u64>(), length.div_ceil(10));
            for pair in groups.windows(2) {
                assert_eq!(pair[1].0 - pair[0].0, us(10) * pair[0].1 as u32);
            }
        }
    }

    #[test]
    fn what_is_due_waits_whether_or_not_it_was_sent() {
        let ms = Duration::from_millis;
        let phases = vec![Phase { pace: Pace::Open(2000.0), length: ms(250) }];
        let (package, outstanding, ops) = (2, 8, Ops::of_size(0));
        let plan = Plan { phases, package, outstanding, ops, may_fail: false };
        let start = now();
        let edges = Edges::new(start, &plan.phases);
        // The second of two clients: a package every 2 ms, the first after one.
        let mut generator = Generator::new(&plan, (1, 2), &edges);
        generator.set_pace(Pace::Open(2000.0));
        let backlog = |generator: &Generator<'_>| {
            generator.outcomes[0].pieces.iter().map(|piece| piece.backlog).collect::<Vec<_>>()
        };
        generator.note_backlog(start + ms(99), false);
        assert_eq!(backlog(&generator), [0u64; 0]);
        generator.note_backlog(start + ms(100), false);
        assert_eq!(backlog(&generator), [100]);
        // All of that is sent, and not answered.
        generator.next = start + ms(101);
        generator.under_way = (0..50).map(|i| (Ticket(i), start)).collect();
        generator.note_backlog(start + ms(150), false);
        generator.note_backlog(start + ms(250), true);
        assert_eq!(backlog(&generator), [100, 250, 250]);
    }
}
