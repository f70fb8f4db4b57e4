//! The client for programs that do not block: futures, with a thread behind them that does the I/O.
//!
//! ```no_run
//! # async fn example(settings: tercio_client::Settings) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tercio_client::Client;
//!
//! let client = Client::connect(settings)?.into_async()?;
//! // Both are in flight from here on, whether or not anybody waits.
//! let (one, two) = (client.call("one".into()), client.call("two".into()));
//! println!("{:?} {:?}", one.await?, two.await?);
//! let hurried = client.within(Duration::from_millis(500));
//! println!("{:?}", hurried.query("what".into()).await?);
//! // A thread without an executor waits like this.
//! println!("{:?}", client.call_all(vec!["three".into(), "four".into()]).wait()?);
//! # Ok(())
//! # }
//! ```
//!
//! No async runtime is needed, and none is in the way: a [`Call`] is a plain [`Future`] that any
//! executor can poll.
//!
//! **Cancel safety.** A call is in flight from the moment it is made. Dropping its future gives up
//! the result and nothing else: the operation is executed all the same, once. Who has to know must
//! wait, or ask the application later.

use crate::blocking::now;
use crate::{CallError, Client, Completion, OpResult, QueryTicket, SubmitError, Ticket, results};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The most calls of a client that have not ended.
const MAX_CALLS: usize = 8192;
/// How often it is looked for calls whose time is over before they could be sent.
const LOOK: Duration = Duration::from_millis(10);
/// How long the thread waits when nothing is in flight.
const IDLE: Duration = Duration::from_secs(3600);

/// A client that does not block: [`Client::into_async`] makes one. Clones share its links, its
/// numbers and its thread, which ends when all of them are gone and every call has ended.
#[derive(Clone, Debug)]
pub struct AsyncClient {
    shared: Arc<Shared>,
    deadline: Duration,
}

#[derive(Debug)]
struct Shared {
    /// Taken away when the last clone goes.
    jobs: Option<Sender<Job>>,
    waker: tercio_transport::Waker,
    calls: Arc<AtomicUsize>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.jobs = None;
        self.waker.wake();
    }
}

/// What is asked of the thread.
#[derive(Debug)]
struct Job {
    what: What,
    /// When it was asked, and how long it may take.
    asked: Instant,
    deadline: Duration,
}

#[derive(Debug)]
enum What {
    Package(Vec<Bytes>, Open),
    Query(Bytes, Promise<Bytes>),
}

/// A package's caller.
#[derive(Debug)]
enum Open {
    One(Promise<Bytes>),
    All(Promise<Vec<Bytes>>),
}

impl Open {
    fn keep(self, results: Result<Vec<OpResult>, CallError>) {
        match self {
            Self::One(promise) => promise.keep(results.and_then(results::one)),
            Self::All(promise) => promise.keep(results.and_then(results::all)),
        }
    }
}

impl Client {
    /// Hands the client to a thread of its own and gives back what is asked of that thread. What is
    /// in flight already goes on, but nobody gets its results any more.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn into_async(self) -> io::Result<AsyncClient> {
        let (jobs, inbox) = channel();
        let (waker, deadline) = (self.waker(), self.deadline());
        std::thread::Builder::new()
            .name("tercio-client".into())
            .spawn(move || Worker::new(self, inbox).run())?;
        let shared = Shared { jobs: Some(jobs), waker, calls: Arc::default() };
        Ok(AsyncClient { shared: Arc::new(shared), deadline })
    }
}

impl AsyncClient {
    /// The same client, whose calls end after `deadline` at the latest. It begins with that of the
    /// settings.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Self {
        Self { shared: self.shared.clone(), deadline }
    }

    /// Submits one operation.
    ///
    /// # Errors
    /// The future ends as [`Client::call`] does.
    pub fn call(&self, op: Bytes) -> Call<Bytes> {
        self.ask(|promise| What::Package(vec![op], Open::One(promise)))
    }

    /// Submits operations as one package: one authenticator for all of them.
    ///
    /// # Errors
    /// The future ends as [`Client::call_all`] does.
    pub fn call_all(&self, ops: Vec<Bytes>) -> Call<Vec<Bytes>> {
        self.ask(|promise| What::Package(ops, Open::All(promise)))
    }

    /// Asks all replicas without ordering.
    ///
    /// # Errors
    /// The future ends as [`Client::query`] does.
    pub fn query(&self, question: Bytes) -> Call<Bytes> {
        self.ask(|promise| What::Query(question, promise))
    }

    fn ask<T>(&self, what: impl FnOnce(Promise<T>) -> What) -> Call<T> {
        let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
        let calls = self.shared.calls.clone();
        let outstanding = calls.fetch_add(1, Ordering::Relaxed);
        let promise = Promise { slot: slot.clone(), calls };
        if outstanding >= MAX_CALLS {
            promise.keep(Err(SubmitError::TooMany { outstanding }.into()));
            return Call(slot);
        }
        let job = Job { what: what(promise), asked: now(), deadline: self.deadline };
        let jobs = self.shared.jobs.as_ref().expect("it is there until the last clone goes");
        // Without the thread the promise is dropped here, which says so.
        if jobs.send(job).is_ok() {
            self.shared.waker.wake();
        }
        Call(slot)
    }
}

#[derive(Debug)]
struct Slot<T> {
    result: Option<Result<T, CallError>>,
    waker: Option<std::task::Waker>,
}

/// Nobody panics with the lock in hand, so what is under it is whole whatever happens.
fn lock<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's half of a call. Dropped unkept, it tells the other half.
#[derive(Debug)]
struct Promise<T> {
    slot: Arc<Mutex<Slot<T>>>,
    calls: Arc<AtomicUsize>,
}

impl<T> Promise<T> {
    fn keep(self, result: Result<T, CallError>) {
        lock(&self.slot).result = Some(result);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
        let mut slot = lock(&self.slot);
        slot.result.get_or_insert(Err(CallError::Closed));
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A call in flight: a future of its result. Dropping it does not take the call back.
#[derive(Debug)]
#[must_use = "the result is lost; the operation is executed all the same"]
pub struct Call<T>(Arc<Mutex<Slot<T>>>);

impl<T> Future for Call<T> {
    type Output = Result<T, CallError>;

    /// # Panics
    /// When it is polled again after it was ready and the result was taken.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                // The promise holds the slot until it has a result.
                assert!(Arc::strong_count(&self.0) > 1, "polled after it was ready");
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Call<T> {
    /// Blocks this thread until the call ends. Not for use inside an executor.
    ///
    /// # Errors
    /// As the future.
    pub fn wait(self) -> Result<T, CallError> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = Context::from_waker(&waker);
        let mut this = pin!(self);
        loop {
            match this.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

/// The thread: one client, and what is asked of it.
struct Worker {
    client: Client,
    inbox: Receiver<Job>,
    /// Not taken by the client yet, since as much as allowed is in flight.
    waiting: VecDeque<Job>,
    packages: BTreeMap<Ticket, Open>,
    queries: BTreeMap<QueryTicket, Promise<Bytes>>,
    /// When to look for those whose time is over.
    look_at: Instant,
    /// Whether nobody can ask any more.
    closed: bool,
}

impl Worker {
    fn new(client: Client, inbox: Receiver<Job>) -> Self {
        let (packages, queries) = (BTreeMap::new(), BTreeMap::new());
        let (waiting, look_at) = (VecDeque::new(), now());
        Self { client, inbox, waiting, packages, queries, look_at, closed: false }
    }

    fn run(mut self) {
        loop {
            self.receive();
            self.start();
            self.expire();
            let idle = self.packages.is_empty() && self.queries.is_empty();
            if self.closed && idle && self.waiting.is_empty() {
                return;
            }
            let wait = if idle { IDLE } else { self.client.until_core() };
            self.client.turn(if self.waiting.is_empty() { wait } else { wait.min(LOOK) });
            self.finish();
        }
    }

    fn receive(&mut self) {
        while !self.closed {
            match self.inbox.try_recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.closed = true,
            }
        }
    }

    /// Hands on what waits, as far as the client takes it.
    fn start(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            let spent = now().saturating_duration_since(job.asked);
            self.client.set_deadline(job.deadline.saturating_sub(spent));
            // Where as much as allowed is in flight, its end makes room.
            let again = match job.what {
                What::Package(ops, open) => match self.client.submit(ops.clone()) {
                    Ok(ticket) => {
                        self.packages.insert(ticket, open);
                        continue;
                    }
                    Err(SubmitError::TooMany { .. }) if !self.packages.is_empty() => {
                        What::Package(ops, open)
                    }
                    Err(error) => {
                        open.keep(Err(error.into()));
                        continue;
                    }
                },
                What::Query(question, promise) => match self.client.ask(question.clone()) {
                    Ok(ticket) => {
                        self.queries.insert(ticket, promise);
                        continue;
                    }
                    Err(SubmitError::TooMany { .. }) if !self.queries.is_empty() => {
                        What::Query(question, promise)
                    }
                    Err(error) => {
                        promise.keep(Err(error.into()));
                        continue;
                    }
                },
            };
            return self.waiting.push_front(Job { what: again, ..job });
        }
    }

    /// Tells those whose time is over before they could be sent.
    fn expire(&mut self) {
        let time = now();
        if self.waiting.is_empty() || time < self.look_at {
            return;
        }
        self.look_at = time + LOOK;
        let outstanding = self.client.core().outstanding();
        for job in std::mem::take(&mut self.waiting) {
            if time.saturating_duration_since(job.asked) < job.deadline {
                self.waiting.push_back(job);
                continue;
            }
            let error = SubmitError::TooMany { outstanding }.into();
            match job.what {
                What::Package(_, open) => open.keep(Err(error)),
                What::Query(_, promise) => promise.keep(Err(error)),
            }
        }
    }

    /// Tells the callers of what has ended.
    fn finish(&mut self) {
        for Completion { ticket, outcome, .. } in self.client.take_completions() {
            // Nobody waits for what was in flight before the client came here.
            let Some(open) = self.packages.remove(&ticket) else { continue };
            open.keep(outcome.map_err(|failure| self.client.failed(failure)));
        }
        for answer in self.client.take_answers() {
            let Some(promise) = self.queries.remove(&answer.ticket) else { continue };
            promise.keep(answer.outcome.map_err(|failure| self.client.failed(failure)));
        }
    }
}
