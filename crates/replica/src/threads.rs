//! The stages on threads and sockets. The one module that reads clocks.
//!
//! The loop thread has the links and ordering; execution and the log are on it too, or on threads
//! of their own ([`Layout`]).
//! - Queues between threads are bounded. The loop never waits for room: what does not fit stays
//!   with it, and until it is gone nothing more is read from the links. Long before that, clients
//!   are told that the replica is busy. The other threads may wait for the loop, which always goes
//!   on; so nobody waits in a circle.
//! - A thread that has done a batch of work wakes the loop once.
//! - Group commit: the log thread takes all that waits, writes it with one append, and syncs as the
//!   durability says; meanwhile the next group gathers.
//! - An error of any stage, or a panic, ends all threads; [`ReplicaHandle::wait`] gives it.

use crate::config::{Data, ReplicaConfig};
use crate::stages::{ExecuteStage, LogStage, OrderStage, Outbox, Stages, ToExecute, ToLog};
use crate::{Durability, Home, Layout, NodeError, NodeStatus, StartError};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Monotonic};
use tercio_consensus::Instant;
use tercio_consensus::pbft::Pbft;
use tercio_execution::Application;
use tercio_ledger::{DataDir, Identity};
use tercio_transport::{Transport, TransportEvent, Waker};
use tercio_types::Principal;

/// How many commands may wait before execution: as many batches may be in memory because of it.
const EXECUTE_QUEUE: usize = 128;
/// How many commands may wait before the log.
const LOG_QUEUE: usize = 4096;
/// How many batches of work may wait before the loop.
const LOOP_QUEUE: usize = 64;
/// The most commands that execution does before it hands on what came of them.
const EXECUTE_BATCH: usize = 16;
/// How long the loop waits at a time while a queue is full.
const STALL: Duration = Duration::from_millis(10);

/// Time as the stages see it: nanoseconds of the Unix epoch at the start, and steady since.
#[derive(Clone, Copy, Debug)]
struct Clock {
    base: u64,
    start: Monotonic,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a replica's time begins with the real one")]
    fn new() -> Self {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let base = unix.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(0));
        Self { base, start: Monotonic::now() }
    }

    #[expect(clippy::disallowed_methods, reason = "the clock of a replica")]
    fn monotonic() -> Monotonic {
        Monotonic::now()
    }

    fn now(&self) -> Instant {
        Instant(self.base) + (Self::monotonic() - self.start)
    }
}

/// How the threads are to end.
#[derive(Debug, Default)]
struct Ending(AtomicU8);

const RUNNING: u8 = 0;
const ORDERLY: u8 = 1;
const AT_ONCE: u8 = 2;

impl Ending {
    fn set(&self, how: u8) {
        self.0.fetch_max(how, Ordering::SeqCst);
    }

    fn is_running(&self) -> bool {
        self.0.load(Ordering::SeqCst) == RUNNING
    }

    fn is_at_once(&self) -> bool {
        self.0.load(Ordering::SeqCst) == AT_ONCE
    }
}

/// Ends everything when its thread ends, however that comes about.
struct EndsAll {
    ending: Arc<Ending>,
    waker: Waker,
}

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.ending.set(ORDERLY);
        self.waker.wake();
    }
}

/// A running replica. Dropping it stops the replica.
#[derive(Debug)]
pub struct ReplicaHandle {
    address: SocketAddr,
    layout: Layout,
    ending: Arc<Ending>,
    waker: Waker,
    questions: Sender<Sender<NodeStatus>>,
    last: Arc<Mutex<NodeStatus>>,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
}

impl ReplicaHandle {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The layout that it runs in: the one that was asked for, or the nearest that its durability
    /// allows.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Where it stands; of one that has stopped, where it stood at the end.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        let (answer, status) = bounded(1);
        if self.questions.send(answer).is_ok() {
            self.waker.wake();
            if let Ok(status) = status.recv() {
                return status;
            }
        }
        self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops it: what was delivered is executed and written.
    ///
    /// # Errors
    /// Why it had stopped by itself, or could not write.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.end(ORDERLY)
    }

    /// Stops it as a crash of the process would: nothing more is written.
    pub fn abort(mut self) {
        // Whatever it was about to say, a crash says nothing.
        let _ = self.end(AT_ONCE);
    }

    /// Waits until it stops by itself.
    ///
    /// # Errors
    /// Why it stopped.
    pub fn wait(mut self) -> Result<(), NodeError> {
        self.join()
    }

    fn end(&mut self, how: u8) -> Result<(), NodeError> {
        self.ending.set(how);
        self.waker.wake();
        self.join()
    }

    fn join(&mut self) -> Result<(), NodeError> {
        self.thread.take().map_or(Ok(()), join)
    }
}

impl Drop for ReplicaHandle {
    fn drop(&mut self) {
        let _ = self.end(ORDERLY);
    }
}

/// A thread's result, or what it panicked with.
fn join(thread: JoinHandle<Result<(), NodeError>>) -> Result<(), NodeError> {
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(NodeError::Panicked(text.unwrap_or("no message").to_owned()))
    })
}

/// Starts a replica: opens its files, listens, recovers, and runs.
///
/// `app` makes the application in its first state. When execution has a thread of its own, a
/// second one is made, which looks at operations before they are ordered
/// ([`Application::check`]) and never executes any.
///
/// # Errors
/// When the key, the files or the port cannot be used. The text says what to do.
pub fn start(
    config: ReplicaConfig,
    app: impl Fn() -> Box<dyn Application>,
) -> Result<ReplicaHandle, StartError> {
    let ReplicaConfig { node, listen, data, layout, limits } = config;
    let membership = node.membership.clone();
    let replica = node.me;
    let member = membership
        .member(replica)
        .ok_or(StartError::NotAMember { replica, last: membership.n() - 1 })?;
    if member.key != node.secret.public() {
        return Err(StartError::WrongKey { replica });
    }
    let home: Box<dyn Home> = match data {
        Data::Memory(storage) => Box::new(storage),
        Data::Directory(path) => {
            let (chain, suite) = (membership.chain(), membership.suite());
            let identity = Identity { chain, replica, suite };
            Box::new(DataDir::open_or_create(path, &identity)?)
        }
    };
    let transport = Transport::bind(tercio_transport::Settings {
        me: Principal::Replica(replica),
        secret: node.secret.clone(),
        membership,
        listen: Some(listen),
        limits,
    })?;
    let address = transport.local_addr().expect("it listens");
    let clock = Clock::new();
    let stages = Stages::open(&node, &*home, app(), clock.now())?;
    let layout = layout.under(node.durability);
    let checker = layout.execution_apart().then(app);

    let ending = Arc::new(Ending::default());
    let waker = transport.waker();
    let last = Arc::new(Mutex::new(stages.order.status()));
    let (questions, asked) = bounded(16);
    let Stages { order, log, execute, outbox } = stages;
    let spawner = Spawner { name: format!("tercio-{replica}"), ending: &ending, waker: &waker };
    let (work, done) = bounded(LOOP_QUEUE);
    let mut others = Vec::new();
    let log = if layout.log_apart() {
        let (commands, queue) = bounded(LOG_QUEUE);
        let thread = LogThread {
            stage: log,
            queue,
            work: work.clone(),
            waker: waker.clone(),
            durability: node.durability,
            ending: ending.clone(),
        };
        others.push(spawner.spawn("log", move || thread.run())?);
        Seat::Apart(commands)
    } else {
        Seat::Here(log)
    };
    let execute = if layout.execution_apart() {
        let (commands, queue) = bounded(EXECUTE_QUEUE);
        let thread = ExecuteThread {
            stage: execute,
            queue,
            log: log.sender(),
            work,
            waker: waker.clone(),
            ending: ending.clone(),
        };
        others.push(spawner.spawn("execute", move || thread.run())?);
        Seat::Apart(commands)
    } else {
        Seat::Here(execute)
    };
    // Execution ends before the log, which still gets its blocks.
    others.reverse();
    let looping = LoopThread {
        transport,
        order,
        log,
        execute,
        checker,
        outbox,
        done,
        asked,
        clock,
        ending: ending.clone(),
        last: last.clone(),
        others,
        home,
    };
    let thread = spawner.spawn("loop", move || looping.run())?;
    Ok(ReplicaHandle { address, layout, ending, waker, questions, last, thread: Some(thread) })
}

struct Spawner<'a> {
    name: String,
    ending: &'a Arc<Ending>,
    waker: &'a Waker,
}

impl Spawner<'_> {
    fn spawn(
        &self,
        what: &str,
        run: impl FnOnce() -> Result<(), NodeError> + Send + 'static,
    ) -> Result<JoinHandle<Result<(), NodeError>>, StartError> {
        let guard = EndsAll { ending: self.ending.clone(), waker: self.waker.clone() };
        let run = move || {
            let _guard = guard;
            run()
        };
        let builder = std::thread::Builder::new().name(format!("{}-{what}", self.name));
        builder.spawn(run).map_err(StartError::Thread)
    }
}

/// Where a stage sits: with the loop, or behind a queue.
enum Seat<T, C> {
    Here(T),
    Apart(Sender<C>),
}

impl<T, C> Seat<T, C> {
    fn sender(&self) -> Option<Sender<C>> {
        match self {
            Self::Here(_) => None,
            Self::Apart(sender) => Some(sender.clone()),
        }
    }

    /// Whether the queue before it is more than half full.
    fn is_behind(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::Apart(sender) => {
                sender.len() > sender.capacity().expect("queues are bounded") / 2
            }
        }
    }
}

/// Moves what fits into a queue; false when its thread has ended.
fn hand_on<C>(commands: &mut std::collections::VecDeque<C>, queue: &Sender<C>) -> bool {
    while let Some(command) = commands.pop_front() {
        match queue.try_send(command) {
            Ok(()) => {}
            Err(TrySendError::Full(command)) => {
                commands.push_front(command);
                return true;
            }
            Err(TrySendError::Disconnected(_)) => return false,
        }
    }
    true
}

struct LoopThread {
    transport: Transport,
    order: OrderStage<Pbft>,
    log: Seat<LogStage, ToLog>,
    execute: Seat<ExecuteStage, ToExecute>,
    /// Looks at operations when execution is elsewhere.
    checker: Option<Box<dyn Application>>,
    outbox: Outbox,
    /// What came of commands elsewhere.
    done: Receiver<Outbox>,
    asked: Receiver<Sender<NodeStatus>>,
    clock: Clock,
    ending: Arc<Ending>,
    last: Arc<Mutex<NodeStatus>>,
    /// The other threads, in the order in which they end.
    others: Vec<JoinHandle<Result<(), NodeError>>>,
    /// Held, and its lock with it, until all threads have ended.
    home: Box<dyn Home>,
}

impl LoopThread {
    fn run(mut self) -> Result<(), NodeError> {
        let result = self.turn_until_ended();
        *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = self.status();
        let Self { log, execute, done, others, ending, home, outbox, .. } = self;
        if result.is_err() {
            ending.set(AT_ONCE);
        }
        let log = finish(log, execute, outbox, &done, &ending);
        // Nobody waits for room in this queue any more.
        drop(done);
        let mut ends: Vec<_> = others.into_iter().map(join).collect();
        ends.insert(0, result);
        ends.push(log);
        drop(home);
        ends.into_iter().collect()
    }

    fn status(&self) -> NodeStatus {
        NodeStatus { links: self.transport.counters().clone(), ..self.order.status() }
    }

    fn turn_until_ended(&mut self) -> Result<(), NodeError> {
        let mut events = Vec::new();
        // What recovery left to do.
        self.work()?;
        while self.ending.is_running() {
            let deadline = self.order.deadline();
            let wait = deadline.map(|at| at.since(self.clock.now()));
            self.transport.poll(wait, &mut events);
            self.answer_questions();
            self.take_done()?;
            let now = self.clock.now();
            let behind = self.execute.is_behind() || self.log.is_behind();
            self.order.set_busy(behind);
            for event in events.drain(..) {
                if let TransportEvent::Frame { from, bytes } = event {
                    self.take_frame(from, &bytes, now)?;
                }
            }
            if self.order.deadline().is_some_and(|at| at <= now) {
                self.order.handle_timeout(now, &mut self.outbox)?;
            }
            self.work()?;
            while !self.has_room() && self.ending.is_running() {
                self.stall()?;
            }
        }
        Ok(())
    }

    fn answer_questions(&self) {
        while let Ok(answer) = self.asked.try_recv() {
            // Whoever asked may have given up.
            let _ = answer.send(self.status());
        }
    }

    fn take_frame(
        &mut self,
        from: Principal,
        bytes: &bytes::Bytes,
        now: Instant,
    ) -> Result<(), NodeError> {
        let Self { order, execute, checker, outbox, .. } = self;
        let check = |op: &[u8]| match (&*execute, &*checker) {
            (Seat::Here(execute), _) => execute.check(op),
            (_, Some(checker)) => checker.check(op),
            (Seat::Apart(_), None) => unreachable!("execution apart comes with a checker"),
        };
        order.handle_frame(from, bytes, &check, now, outbox)
    }

    /// Takes over what came of commands elsewhere.
    fn take_done(&mut self) -> Result<(), NodeError> {
        while let Ok(work) = self.done.try_recv() {
            self.take_work(work)?;
        }
        Ok(())
    }

    fn take_work(&mut self, work: Outbox) -> Result<(), NodeError> {
        let now = self.clock.now();
        self.outbox.log.extend(work.log);
        self.outbox.send.extend(work.send);
        for message in work.order {
            self.order.handle(message, now, &mut self.outbox)?;
        }
        Ok(())
    }

    /// Runs the stages that sit here, hands commands to those that do not, and frames to the
    /// links.
    fn work(&mut self) -> Result<(), NodeError> {
        let now = self.clock.now();
        let out = &mut self.outbox;
        loop {
            let mut idle = true;
            match &mut self.execute {
                Seat::Here(execute) => {
                    while let Some(command) = out.execute.pop_front() {
                        execute.handle(command, out)?;
                    }
                }
                Seat::Apart(queue) => {
                    if !hand_on(&mut out.execute, queue) {
                        return Ok(());
                    }
                }
            }
            while let Some(message) = out.order.pop_front() {
                idle = false;
                self.order.handle(message, now, out)?;
            }
            if !idle {
                continue;
            }
            match &mut self.log {
                Seat::Here(log) => {
                    while let Some(command) = out.log.pop_front() {
                        log.handle(command, out)?;
                    }
                    log.commit(false, out)?;
                }
                Seat::Apart(queue) => {
                    if !hand_on(&mut out.log, queue) {
                        return Ok(());
                    }
                }
            }
            if out.order.is_empty() {
                break;
            }
        }
        while let Some((to, bytes)) = out.send.pop_front() {
            // Loss is counted by the transport, and normal.
            let _ = self.transport.send(to, bytes);
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.outbox.execute.is_empty() && self.outbox.log.is_empty()
    }

    /// A queue is full: waits until its thread has done something, and reads nothing meanwhile.
    fn stall(&mut self) -> Result<(), NodeError> {
        self.transport.flush();
        self.answer_questions();
        if let Ok(work) = self.done.recv_timeout(STALL) {
            self.take_work(work)?;
        }
        self.work()
    }
}

/// Ends the stages that sit with the loop, and closes the queues of the others.
fn finish(
    log: Seat<LogStage, ToLog>,
    execute: Seat<ExecuteStage, ToExecute>,
    mut outbox: Outbox,
    done: &Receiver<Outbox>,
    ending: &Ending,
) -> Result<(), NodeError> {
    // Closes its queue when it is apart; it does what is in there, and ends.
    drop(execute);
    let Seat::Here(mut log) = log else { return Ok(()) };
    if ending.is_at_once() {
        return Ok(());
    }
    for work in done {
        outbox.log.extend(work.log);
    }
    while let Some(command) = outbox.log.pop_front() {
        log.handle(command, &mut outbox)?;
    }
    log.close()
}

struct LogThread {
    stage: LogStage,
    queue: Receiver<ToLog>,
    work: Sender<Outbox>,
    waker: Waker,
    durability: Durability,
    ending: Arc<Ending>,
}

impl LogThread {
    fn run(mut self) -> Result<(), NodeError> {
        // When the next sync may begin.
        let mut next = Clock::monotonic();
        loop {
            let first = if self.stage.is_dirty() {
                self.queue.recv_deadline(next)
            } else {
                self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            if self.ending.is_at_once() {
                return Ok(());
            }
            if matches!(first, Err(RecvTimeoutError::Disconnected)) {
                return self.stage.close();
            }
            let mut out = Outbox::default();
            let rest = self.queue.try_iter().take(LOG_QUEUE);
            for command in first.into_iter().chain(rest) {
                self.stage.handle(command, &mut out)?;
            }
            match self.durability {
                Durability::Memory => self.stage.commit(false, &mut out)?,
                Durability::Sync => self.stage.commit(true, &mut out)?,
                Durability::Group(pause) => {
                    if Clock::monotonic() >= next {
                        next = Clock::monotonic() + pause;
                        self.stage.commit(true, &mut out)?;
                    }
                }
            }
            if !out.order.is_empty() && self.work.send(out).is_ok() {
                self.waker.wake();
            }
        }
    }
}

struct ExecuteThread {
    stage: ExecuteStage,
    queue: Receiver<ToExecute>,
    /// The log's queue, when it is apart too.
    log: Option<Sender<ToLog>>,
    work: Sender<Outbox>,
    waker: Waker,
    ending: Arc<Ending>,
}

impl ExecuteThread {
    fn run(mut self) -> Result<(), NodeError> {
        while let Ok(first) = self.queue.recv() {
            let mut out = Outbox::default();
            let rest = self.queue.try_iter().take(EXECUTE_BATCH - 1);
            for command in std::iter::once(first).chain(rest) {
                if self.ending.is_at_once() {
                    return Ok(());
                }
                self.stage.handle(command, &mut out)?;
            }
            if let Some(log) = &self.log {
                // The block goes first, so that what is said about it finds it there.
                for command in out.log.drain(..) {
                    if log.send(command).is_err() {
                        // The log has ended, and so will we.
                        return Ok(());
                    }
                }
            }
            if self.work.send(out).is_ok() {
                self.waker.wake();
            }
        }
        Ok(())
    }
}
