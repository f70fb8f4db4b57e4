//! Many servers, many operations, one thread: what replicated and sharded stores are driven with.
//!
//! An operation is a *coroutine* (an `async` function) that asks servers and waits for what it needs
//! of their answers. The parts:
//!
//! - [`Net`] is what a coroutine holds: it sends a request to one server ([`Net::ask`]) or one to each
//!   of several ([`Net::round`]), sleeps, and spawns others.
//! - [`Round`] gives the answers in the order of their arrival, so that whoever asked takes a quorum of
//!   them and leaves the rest, the *stragglers*, to a coroutine that nobody waits for. More servers
//!   can be asked while some are slow ([`Round::also`]): the hedged second request.
//! - [`Tasks`] runs the coroutines. It has neither I/O nor clock: requests are taken out of it, and
//!   answers, losses and the time put in. The same run with the same answers goes the same way.
//! - [`Cluster`] connects it to servers over links, and reconnects.
//!
//! A request has one answer, or is *lost* ([`Lost`]): the connection failed, and whether the server ran
//! it stays open.

mod frees;
mod link;
mod round;

pub(crate) use frees::Frees;
pub use link::{Cluster, Connect, RETRY_NS};
pub use round::{Call, Late, Round, Sleep, all};

use crate::client::Draft;
use crate::op::Reject;
use crate::wire::{Answer, Kind};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

/// A request that has no answer: its server cannot be reached, or has gone. It may have been run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server cannot be reached, or went away before it answered")]
pub struct Lost;

/// An answer that outlives the frame it came in.
#[derive(Clone, Debug)]
pub struct Reply {
    kind: Kind,
    rejected: Option<Reject>,
    count: usize,
    body: Vec<u64>,
}

impl Reply {
    fn of(answer: &Answer<'_>) -> Self {
        let (kind, rejected, count) = (answer.kind, answer.rejected, answer.count);
        Self { kind, rejected, count, body: answer.body.to_vec() }
    }

    /// The answer. Its connection and number are not kept.
    #[must_use]
    pub fn answer(&self) -> Answer<'_> {
        let (kind, rejected, count) = (self.kind, self.rejected, self.count);
        Answer { kind, connection: 0, number: 0, rejected, count, body: &self.body }
    }
}

/// What went over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests.
    pub requests: u64,
    /// Bytes of requests, and of answers, with their headers.
    pub sent_bytes: u64,
    /// Bytes of answers, with their headers.
    pub received_bytes: u64,
}

/// A request that is to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// The server's number.
    pub to: usize,
    /// What answers are told apart by.
    pub call: usize,
    /// The request.
    pub draft: Draft,
}

enum CallState {
    Free,
    Waiting(usize),
    Answered(Result<Reply, Lost>),
    /// Nobody waits for its answer any more.
    Abandoned,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Inner {
    now_ns: u64,
    /// Of each server, how often it was connected to; 0 when it is out of reach.
    lives: Vec<u64>,
    calls: Vec<CallState>,
    free_calls: Vec<usize>,
    outgoing: VecDeque<Outgoing>,
    timers: BTreeSet<(u64, usize)>,
    ready: VecDeque<usize>,
    is_ready: Vec<bool>,
    spawned: Vec<Task>,
    current: usize,
    drafts: Vec<Draft>,
    traffic: Traffic,
}

impl Inner {
    fn wake(&mut self, task: usize) {
        if let Some(ready) = self.is_ready.get_mut(task)
            && !std::mem::replace(ready, true)
        {
            self.ready.push_back(task);
        }
    }

    fn settle(&mut self, call: usize, result: Result<Reply, Lost>) {
        match std::mem::replace(&mut self.calls[call], CallState::Free) {
            CallState::Waiting(task) => {
                self.calls[call] = CallState::Answered(result);
                self.wake(task);
            }
            CallState::Abandoned => self.free_calls.push(call),
            CallState::Free | CallState::Answered(_) => unreachable!("a call is answered once"),
        }
    }
}

/// A coroutine's way to the servers. Clones are the same.
#[derive(Clone)]
pub struct Net(Rc<RefCell<Inner>>);

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("traffic", &self.traffic()).finish_non_exhaustive()
    }
}

impl Net {
    /// The time, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    /// How many servers there are.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.0.borrow().lives.len()
    }

    /// How often this server was connected to. What was learnt of it in an earlier life is void. 0: it
    /// has not been reached, or not again since it was lost.
    #[must_use]
    pub fn life(&self, server: usize) -> u64 {
        self.0.borrow().lives[server]
    }

    /// What has gone over the network.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.0.borrow().traffic
    }

    /// Sends a request that `fill` drafts.
    pub fn ask(&self, server: usize, fill: impl FnOnce(&mut Draft)) -> Call {
        let mut draft = self.0.borrow_mut().drafts.pop().unwrap_or_default();
        draft.clear();
        fill(&mut draft);
        let inner = &mut *self.0.borrow_mut();
        let waiting = CallState::Waiting(inner.current);
        let call = match inner.free_calls.pop() {
            Some(call) => {
                inner.calls[call] = waiting;
                call
            }
            None => {
                inner.calls.push(waiting);
                inner.calls.len() - 1
            }
        };
        inner.outgoing.push_back(Outgoing { to: server, call, draft });
        Call::new(self.clone(), call)
    }

    /// Sends a request to each of these servers.
    pub fn round(
        &self,
        servers: impl IntoIterator<Item = usize>,
        mut fill: impl FnMut(usize, &mut Draft),
    ) -> Round {
        let mut round = Round::new(self.clone());
        for server in servers {
            round.also(server, |draft| fill(server, draft));
        }
        round
    }

    /// Waits for a while.
    #[must_use]
    pub fn sleep(&self, ns: u64) -> Sleep {
        Sleep::new(self.clone(), self.now_ns() + ns)
    }

    /// Starts a coroutine that nobody waits for.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().spawned.push(Box::pin(task));
    }
}

/// The coroutines of a thread.
pub struct Tasks {
    net: Net,
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &self.running()).finish_non_exhaustive()
    }
}

impl Tasks {
    /// No coroutines yet, before this many servers.
    #[must_use]
    pub fn new(servers: usize) -> Self {
        let inner = Inner {
            now_ns: 0,
            lives: vec![0; servers],
            calls: Vec::new(),
            free_calls: Vec::new(),
            outgoing: VecDeque::new(),
            timers: BTreeSet::new(),
            ready: VecDeque::new(),
            is_ready: Vec::new(),
            spawned: Vec::new(),
            current: 0,
            drafts: Vec::new(),
            traffic: Traffic::default(),
        };
        Self { net: Net(Rc::new(RefCell::new(inner))), tasks: Vec::new(), free: Vec::new() }
    }

    /// What coroutines speak through.
    #[must_use]
    pub const fn net(&self) -> &Net {
        &self.net
    }

    /// How many coroutines there are that have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.len() - self.free.len() + self.net.0.borrow().spawned.len()
    }

    /// Runs every coroutine that can go on, until none can.
    pub fn run(&mut self) {
        loop {
            let spawned = std::mem::take(&mut self.net.0.borrow_mut().spawned);
            for task in spawned {
                let at = self.free.pop().unwrap_or_else(|| {
                    self.tasks.push(None);
                    self.net.0.borrow_mut().is_ready.push(false);
                    self.tasks.len() - 1
                });
                self.tasks[at] = Some(task);
                self.net.0.borrow_mut().wake(at);
            }
            let Some(at) = self.next_ready() else { return };
            // A place that is free again can be woken by what its last task waited for.
            let Some(task) = &mut self.tasks[at] else { continue };
            if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                self.tasks[at] = None;
                self.free.push(at);
            }
        }
    }

    fn next_ready(&self) -> Option<usize> {
        let inner = &mut *self.net.0.borrow_mut();
        let at = inner.ready.pop_front()?;
        inner.is_ready[at] = false;
        inner.current = at;
        Some(at)
    }

    /// Tells the time, which wakes those that slept until now. It never goes back.
    pub fn advance(&mut self, now_ns: u64) {
        let inner = &mut *self.net.0.borrow_mut();
        inner.now_ns = inner.now_ns.max(now_ns);
        while let Some((due_ns, task)) = inner.timers.first().copied()
            && due_ns <= inner.now_ns
        {
            inner.timers.pop_first();
            inner.wake(task);
        }
    }

    /// When the next sleeper is due.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.net.0.borrow().timers.first().map(|(due_ns, _)| *due_ns)
    }

    /// The next request to be sent. It must be answered, or lost, at some time.
    #[must_use]
    pub fn take_outgoing(&mut self) -> Option<Outgoing> {
        self.net.0.borrow_mut().outgoing.pop_front()
    }

    /// A request that was taken has this answer.
    pub fn answered(&mut self, call: usize, answer: &Answer<'_>) {
        self.net.0.borrow_mut().settle(call, Ok(Reply::of(answer)));
    }

    /// A request that was taken has no answer and will have none.
    pub fn lost(&mut self, call: usize) {
        self.net.0.borrow_mut().settle(call, Err(Lost));
    }

    fn sent(&mut self, draft: Draft, bytes: usize) {
        let inner = &mut *self.net.0.borrow_mut();
        inner.traffic.requests += 1;
        inner.traffic.sent_bytes += bytes as u64;
        inner.drafts.push(draft);
    }

    fn received(&mut self, bytes: usize) {
        self.net.0.borrow_mut().traffic.received_bytes += bytes as u64;
    }

    fn set_life(&mut self, server: usize, life: u64) {
        self.net.0.borrow_mut().lives[server] = life;
    }
}
