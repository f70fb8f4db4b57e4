//! The stage on threads of its own.
//!
//! [`Threads`] is the half on the loop, which does nothing but hand frames on and put outcomes in
//! order; each [`Worker`] decodes and verifies on a thread.
//!
//! - What is submitted in one turn goes to the workers in chunks, each to the one that has the
//!   fewest bytes before it. So all of one link's frames may be verified at the same time; their
//!   outcomes are put back into their order before they are given out.
//! - Replicas' messages go at once. Of clients' frames and of FORWARDs the workers have two batches each
//!   at most; the rest waits on the loop and is handed on by turns (decision 0043).
//! - A worker gathers what its queue holds until that fills a batch, and never waits for company:
//!   while it verifies, the next batch gathers in the queue. What needs no signature is done before
//!   the batch is verified.
//! - The loop is woken once for what came while it did not look.
//! - What waits on the loop is bounded ([`Bounds`]): clients have half of that together, and one of them
//!   a quarter. When replicas' messages that have no outcome yet come to half of it, no more is read. A
//!   worker never waits for the loop.
//! - Good signatures are known to all workers (decision 0023).
//! - A new membership goes the way of frames, behind those that were submitted before.
//! - A worker ends when the stage is dropped. Whoever runs one sees to it that a panic in it ends
//!   the replica: frames that it had have no outcome any more.

mod link;
mod worker;

pub use worker::Worker;

use crate::decoder::Decoder;
use crate::lanes::{Bounds, Job, Lanes, Load, QUANTUM, refusal};
use crate::meter::Meters;
use crate::{Dropped, Filter, Filtered, Gather, Inbound, Lane, Outcome, VerifyStage, cost};
use bytes::Bytes;
use link::Link;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tercio_crypto::{Checked, Keyring};
use tercio_types::{Membership, Principal};
use tercio_wire::Message;

/// A chunk is handed on when it has this many bytes: a proposal keeps nobody waiting behind it.
const CHUNK_BYTES: usize = 64 << 10;

/// How much of clients' frames and FORWARDs each worker may have, in batches: one to check, and one that
/// gathers meanwhile. The rest waits on the loop, where it is shared out.
const AHEAD: u64 = 2;

/// Which frame it is: its lane, its place in the order of that, how many bytes it has and what it was
/// expected to cost.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    lane: Lane,
    place: u64,
    bytes: usize,
    cost: u64,
    /// Whether its link has used up its time, so that no signature in it is to be checked.
    spent: bool,
}

/// What a worker is told.
enum Command {
    Verify(Vec<(Ticket, Bytes)>),
    Membership(Arc<Membership>),
}

/// What came of some frames, and how long their signatures took.
type Outcomes<M> = Vec<(Ticket, Result<Inbound<M>, Dropped>, u64)>;

/// What a worker has done.
struct Done<M> {
    outcomes: Outcomes<M>,
    worker: usize,
    checked: Checked,
}

/// What the loop and the workers share beside the queues.
struct Shared {
    filter: Mutex<Filter>,
    /// Counts the filters, so that nobody takes the lock for nothing.
    filters: AtomicU64,
    /// Whether there are outcomes that the loop was told of and has not looked for.
    told: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The half of the stage on the loop.
pub struct Threads<M> {
    gather: Gather,
    bounds: Bounds,
    /// What is handed on with the next chunk.
    chunk: Vec<(Ticket, Bytes)>,
    chunk_bytes: usize,
    /// The workers' queues, and how many bytes are with each.
    queues: Vec<(Sender<Command>, usize)>,
    done: Receiver<Done<M>>,
    shared: Arc<Shared>,
    /// What waits here.
    lanes: Lanes<Bytes>,
    /// The order of what is with the workers.
    links: BTreeMap<Lane, Link<M>>,
    /// Of that: replicas' messages, and what all else is expected to cost.
    urgent: Load,
    ahead: u64,
    meters: Meters,
    ready: VecDeque<Outcome<M>>,
    filters: u64,
    checked: Vec<Checked>,
    dropped: BTreeMap<&'static str, u64>,
}

impl<M: Message + Send> Threads<M> {
    /// Verifies with the keys of `keyring` on `threads` threads, at least one: the workers, which
    /// are to be run. `wake` is called, on any thread, when there are outcomes.
    #[must_use]
    pub fn new(
        keyring: &Keyring,
        gather: Gather,
        bounds: Bounds,
        threads: usize,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Self, Vec<Worker<M>>) {
        let shared = Arc::new(Shared {
            filter: Mutex::default(),
            filters: AtomicU64::new(0),
            told: AtomicBool::new(false),
            wake: Box::new(wake),
        });
        let (outcomes, done) = channel();
        let (mut queues, mut workers) = (vec![], vec![]);
        for id in 0..threads.max(1) {
            let (sender, queue) = channel();
            queues.push((sender, 0));
            workers.push(Worker {
                id,
                decoder: Decoder::new(keyring.clone()),
                gather,
                queue,
                done: outcomes.clone(),
                shared: shared.clone(),
                filters: 0,
            });
        }
        let stage = Self {
            gather,
            bounds,
            chunk: vec![],
            chunk_bytes: 0,
            checked: vec![Checked::default(); queues.len()],
            queues,
            done,
            shared,
            lanes: Lanes::new(bounds),
            links: BTreeMap::new(),
            urgent: Load::default(),
            ahead: 0,
            meters: Meters::default(),
            ready: VecDeque::new(),
            filters: 0,
            dropped: BTreeMap::new(),
        };
        (stage, workers)
    }

    /// Takes over what a worker has done.
    fn take(&mut self, done: Done<M>) {
        self.checked[done.worker] = done.checked;
        for (ticket, result, signatures) in done.outcomes {
            let Ticket { lane, bytes, cost, .. } = ticket;
            self.queues[done.worker].1 -= bytes;
            match lane {
                Lane::Replica(_) => self.urgent.remove(bytes),
                _ => self.ahead -= cost,
            }
            self.meters.settle(lane, &result, bytes, signatures);
            let link = self.links.get_mut(&lane).expect("its frame came in this lane");
            link.set(ticket.place, result);
            while let Some(result) = link.pop() {
                if let Err(dropped) = &result {
                    dropped.count(&mut self.dropped);
                }
                self.ready.push_back((lane.from(), result));
            }
        }
    }

    fn refuse(&mut self, lane: Lane, why: Filtered) {
        self.ready.push_back((lane.from(), Err(Dropped::Filtered(why))));
    }

    /// What the workers may have ahead.
    fn may_go_ahead(&self) -> bool {
        let batch = self.gather.signatures as u64 * QUANTUM;
        self.ahead < AHEAD * batch * self.queues.len() as u64
    }

    /// Hands on replicas' messages, and of the others what the workers may have.
    fn hand_on(&mut self) {
        loop {
            let job = match self.lanes.next_urgent() {
                Some(job) => job,
                None if !self.may_go_ahead() => break,
                None => match self.lanes.next_fair() {
                    Some(job) => job,
                    None => break,
                },
            };
            let Job { lane, cost, bytes, what, .. } = job;
            let may = self.meters.may(lane);
            match (lane, may) {
                (Lane::Client(_), Err(floods)) => {
                    self.refuse(lane, floods);
                    continue;
                }
                (Lane::Replica(_), _) => self.urgent.add(bytes),
                _ => self.ahead += cost,
            }
            let place = self.links.entry(lane).or_insert(Link::EMPTY).push();
            self.chunk.push((Ticket { lane, place, bytes, cost, spent: may.is_err() }, what));
            self.chunk_bytes += bytes;
            if self.chunk.len() >= self.gather.signatures || self.chunk_bytes >= CHUNK_BYTES {
                self.send_chunk();
            }
        }
        self.send_chunk();
    }

    fn send_chunk(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let (chunk, bytes) =
            (std::mem::take(&mut self.chunk), std::mem::take(&mut self.chunk_bytes));
        let by_load = |at: &usize| self.queues[*at].1;
        let worker = (0..self.queues.len()).min_by_key(by_load).expect("there is one");
        let (queue, load) = &mut self.queues[worker];
        *load += bytes;
        // One that is gone ends the replica.
        let _ = queue.send(Command::Verify(chunk));
    }
}

impl<M: Message + Send> VerifyStage<M> for Threads<M> {
    fn set_membership(&mut self, membership: Arc<Membership>) {
        self.flush();
        for (queue, _) in &self.queues {
            // One that is gone ends the replica.
            let _ = queue.send(Command::Membership(membership.clone()));
        }
    }

    fn set_filter(&mut self, filter: &Filter) {
        let mut published = self.shared.filter.lock().unwrap_or_else(PoisonError::into_inner);
        published.clone_from(filter);
        drop(published);
        self.filters += 1;
        self.shared.filters.store(self.filters, Ordering::Release);
    }

    fn hears(&mut self, from: Principal, now: Duration) -> bool {
        match from {
            Principal::Client(client) => self.meters.hear(Lane::Client(client), now).is_ok(),
            Principal::Replica(_) => true,
        }
    }

    fn silence(&self, from: Principal) -> Duration {
        match from {
            Principal::Client(client) => self.meters.silence(Lane::Client(client)),
            Principal::Replica(_) => Duration::ZERO,
        }
    }

    fn charge(&mut self, lane: Lane, bytes: usize) {
        self.meters.charge(lane, cost::of_answer(bytes));
    }

    fn submit(&mut self, from: Principal, bytes: &Bytes, now: Duration) {
        let lane = Lane::of(from, bytes);
        let heard = self.meters.hear(lane, now);
        if let (Lane::Client(_) | Lane::Forwards(_), Err(floods)) = (lane, heard) {
            return self.refuse(lane, floods);
        }
        let refusal = refusal(from, bytes);
        if !self.lanes.has_room(lane) {
            return self.refuse(lane, refusal);
        }
        let cost = cost::expected(lane, bytes);
        let job = Job { lane, cost, bytes: bytes.len(), refusal, what: bytes.clone() };
        for out in self.lanes.push(job) {
            self.refuse(out.lane, out.refusal);
        }
        let urgent = self.lanes.urgent();
        if urgent.frames >= self.gather.signatures || urgent.bytes >= CHUNK_BYTES {
            self.hand_on();
        }
    }

    fn poll(&mut self) -> Option<Outcome<M>> {
        self.ready.pop_front()
    }

    fn is_due(&self, _drained: bool, _now: Duration) -> bool {
        self.shared.told.load(Ordering::Acquire) || !self.ready.is_empty()
    }

    /// Never: the workers do, and wake the loop.
    fn gathers(&self) -> bool {
        false
    }

    fn work(&mut self) {
        self.flush();
        // What is done after this is told again.
        self.shared.told.swap(false, Ordering::AcqRel);
        while let Ok(done) = self.done.try_recv() {
            self.take(done);
        }
        // There is room with the workers again.
        self.hand_on();
    }

    fn flush(&mut self) {
        self.hand_on();
    }

    fn has_room_for(&self, from: Principal) -> bool {
        match from {
            Principal::Client(client) => self.lanes.has_room(Lane::Client(client)),
            Principal::Replica(_) => true,
        }
    }

    fn is_full(&self) -> bool {
        self.urgent.reaches(&self.bounds, 2)
    }

    fn wait(&mut self, at_most: Duration) {
        self.flush();
        if let Ok(done) = self.done.recv_timeout(at_most) {
            self.take(done);
            self.hand_on();
        }
    }

    fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    fn checked(&self) -> Checked {
        self.checked.iter().copied().sum()
    }
}
