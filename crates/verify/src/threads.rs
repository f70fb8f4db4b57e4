//! The stage on threads of its own.
//!
//! [`Threads`] is the half on the loop, which does nothing but hand frames on and put outcomes in
//! order; each [`Worker`] decodes and verifies on a thread.
//!
//! - What is submitted in one turn goes to the workers in chunks, each to the one that has the
//!   fewest bytes before it. So all of one link's frames may be verified at the same time; their
//!   outcomes are put back into their order before they are given out.
//! - A worker gathers what its queue holds until that fills a batch, and never waits for company:
//!   while it verifies, the next batch gathers in the queue. What needs no signature is done before
//!   the batch is verified.
//! - The loop is woken once for what came while it did not look.
//! - Frames that were submitted, and whose outcomes were not given out yet, are bounded
//!   ([`Bounds`]): clients have half of that together, and one of them a quarter. A worker never
//!   waits for the loop.
//! - Good signatures are known to all workers (decision 0023).
//! - A new membership goes the way of frames, behind those that were submitted before.
//! - A worker ends when the stage is dropped. Whoever runs one sees to it that a panic in it ends
//!   the replica: frames that it had have no outcome any more.

mod link;
mod worker;

pub use worker::Worker;

use crate::decoder::Decoder;
use crate::{Dropped, Filter, Gather, Inbound, Outcome, VerifyStage};
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

/// How much may be with the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Frames.
    pub frames: usize,
    /// Their bytes. A last frame may exceed it.
    pub bytes: usize,
}

impl Default for Bounds {
    /// 8,192 frames, 64 MiB.
    fn default() -> Self {
        Self { frames: 8192, bytes: 64 << 20 }
    }
}

/// Frames and their bytes that are with the workers.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    frames: usize,
    bytes: usize,
}

impl Load {
    fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.frames -= 1;
        self.bytes -= bytes;
    }

    /// Whether it comes to one `part`-th of the bounds.
    fn reaches(&self, bounds: &Bounds, part: usize) -> bool {
        self.frames >= bounds.frames / part || self.bytes >= bounds.bytes / part
    }
}

/// Which frame it is: its link, its place in the order of that, and how many bytes it has.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    from: Principal,
    place: u64,
    bytes: usize,
}

/// What a worker is told.
enum Command {
    Verify(Vec<(Ticket, Bytes)>),
    Membership(Arc<Membership>),
}

/// What came of some frames.
type Outcomes<M> = Vec<(Ticket, Result<Inbound<M>, Dropped>)>;

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
    links: BTreeMap<Principal, Link<M>>,
    all: Load,
    clients: Load,
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
            links: BTreeMap::new(),
            all: Load::default(),
            clients: Load::default(),
            ready: VecDeque::new(),
            filters: 0,
            dropped: BTreeMap::new(),
        };
        (stage, workers)
    }

    /// Takes over what a worker has done.
    fn take(&mut self, done: Done<M>) {
        self.checked[done.worker] = done.checked;
        for (ticket, result) in done.outcomes {
            let from = ticket.from;
            self.queues[done.worker].1 -= ticket.bytes;
            let link = self.links.get_mut(&from).expect("its frame came on this link");
            link.set(ticket, result);
            while let Some((bytes, result)) = link.pop() {
                self.all.remove(bytes);
                if matches!(from, Principal::Client(_)) {
                    self.clients.remove(bytes);
                }
                if let Err(dropped) = &result {
                    dropped.count(&mut self.dropped);
                }
                self.ready.push_back((from, result));
            }
        }
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

    fn submit(&mut self, from: Principal, bytes: &Bytes, _now: Duration) {
        let length = bytes.len();
        let place = self.links.entry(from).or_insert(Link::EMPTY).push(length);
        self.all.add(length);
        if matches!(from, Principal::Client(_)) {
            self.clients.add(length);
        }
        self.chunk.push((Ticket { from, place, bytes: length }, bytes.clone()));
        self.chunk_bytes += length;
        if self.chunk.len() >= self.gather.signatures || self.chunk_bytes >= CHUNK_BYTES {
            self.flush();
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
    }

    fn flush(&mut self) {
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

    fn has_room_for(&self, from: Principal) -> bool {
        let Principal::Client(_) = from else { return true };
        let own = self.links.get(&from).map(|link| link.load).unwrap_or_default();
        !self.clients.reaches(&self.bounds, 2) && !own.reaches(&self.bounds, 4)
    }

    fn is_full(&self) -> bool {
        self.all.reaches(&self.bounds, 1)
    }

    fn wait(&mut self, at_most: Duration) {
        self.flush();
        if let Ok(done) = self.done.recv_timeout(at_most) {
            self.take(done);
        }
    }

    fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    fn checked(&self) -> Checked {
        self.checked.iter().copied().sum()
    }
}
