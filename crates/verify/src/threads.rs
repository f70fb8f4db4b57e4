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

use crate::decoder::{Decoder, Held, Step};
use crate::{Dropped, Filter, Gather, Inbound, Outcome, VerifyStage};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
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

/// A frame's bytes, and what came of it.
type Settled<M> = (usize, Result<Inbound<M>, Dropped>);

/// One link's frames that are with the workers, in order: an outcome waits for those before it.
struct Link<M> {
    /// The place of the first.
    first: u64,
    slots: VecDeque<Option<Settled<M>>>,
    load: Load,
}

/// Slots that a link keeps when it has no frames here.
const KEPT: usize = 64;

impl<M> Link<M> {
    const EMPTY: Self =
        Self { first: 0, slots: VecDeque::new(), load: Load { frames: 0, bytes: 0 } };

    /// The place of a new frame.
    fn push(&mut self, bytes: usize) -> u64 {
        self.slots.push_back(None);
        self.load.add(bytes);
        self.first + self.slots.len() as u64 - 1
    }

    fn set(&mut self, ticket: Ticket, result: Result<Inbound<M>, Dropped>) {
        let at = usize::try_from(ticket.place - self.first).expect("as many as are bounded");
        self.slots[at] = Some((ticket.bytes, result));
    }

    /// The next outcome, and its frame's bytes.
    fn pop(&mut self) -> Option<Settled<M>> {
        let (bytes, result) = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.first += 1;
        self.load.remove(bytes);
        if self.slots.is_empty() {
            self.slots.shrink_to(KEPT);
        }
        Some((bytes, result))
    }
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

/// A worker of [`Threads`], to be run on a thread of its own.
pub struct Worker<M> {
    id: usize,
    decoder: Decoder,
    gather: Gather,
    queue: Receiver<Command>,
    done: Sender<Done<M>>,
    shared: Arc<Shared>,
    /// Which filter it has.
    filters: u64,
}

/// What a worker gathers.
struct Batch<M> {
    waiting: Vec<(Ticket, Held<M>)>,
    outcomes: Outcomes<M>,
    signatures: usize,
    frames: usize,
    bytes: usize,
}

impl<M> Default for Batch<M> {
    fn default() -> Self {
        Self { waiting: vec![], outcomes: vec![], signatures: 0, frames: 0, bytes: 0 }
    }
}

impl<M: Message + Send> Worker<M> {
    /// Verifies until the stage is dropped.
    pub fn run(mut self) {
        while let Ok(first) = self.queue.recv() {
            let mut batch = Batch::default();
            self.admit(first, &mut batch);
            while !self.gather.is_full(batch.signatures, batch.frames, batch.bytes) {
                match self.queue.try_recv() {
                    Ok(command) => self.admit(command, &mut batch),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.hand_back(&mut batch.outcomes);
            self.decoder.decide(batch.waiting.iter_mut().map(|(_, held)| held));
            let finish = |(ticket, held): (Ticket, Held<M>)| (ticket, held.finish());
            batch.outcomes.extend(batch.waiting.into_iter().map(finish));
            self.hand_back(&mut batch.outcomes);
        }
    }

    fn admit(&mut self, command: Command, batch: &mut Batch<M>) {
        let frames = match command {
            Command::Verify(frames) => frames,
            Command::Membership(membership) => return self.decoder.set_membership(membership),
        };
        for (ticket, bytes) in frames {
            self.take_filter();
            batch.frames += 1;
            batch.bytes += ticket.bytes;
            match self.decoder.admit(ticket.from, &bytes) {
                Err(dropped) => batch.outcomes.push((ticket, Err(dropped))),
                Ok(Step::Done(inbound)) => batch.outcomes.push((ticket, Ok(inbound))),
                Ok(Step::Held(mut held)) => {
                    batch.signatures += held.signatures().map_or(0, |signatures| signatures.len());
                    batch.waiting.push((ticket, held));
                }
            }
        }
    }

    /// Takes the filter that is published, when it is another one.
    fn take_filter(&mut self) {
        let filters = self.shared.filters.load(Ordering::Acquire);
        if filters != self.filters {
            self.filters = filters;
            let published = self.shared.filter.lock().unwrap_or_else(PoisonError::into_inner);
            self.decoder.set_filter(&published);
        }
    }

    /// Gives outcomes to the loop, and wakes it unless it was told already.
    fn hand_back(&mut self, outcomes: &mut Outcomes<M>) {
        if outcomes.is_empty() {
            return;
        }
        let outcomes = std::mem::take(outcomes);
        let (worker, checked) = (self.id, self.decoder.checked());
        // When the stage is gone, so will be the queue.
        if self.done.send(Done { outcomes, worker, checked }).is_ok()
            && !self.shared.told.swap(true, Ordering::AcqRel)
        {
            (self.shared.wake)();
        }
    }
}
