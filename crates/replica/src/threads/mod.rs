//! The stages on threads and sockets. The one module that reads clocks.
//!
//! The loop thread has the links and ordering; execution and the log are on it too, or on threads
//! of their own ([`Layout`]).
//! - Queues between threads are bounded. The loop never waits for room: what does not fit stays
//!   with it, and until it is gone nothing more is read from the links. Long before that, clients
//!   are told that the replica is busy. The other threads may wait for the loop, which always goes
//!   on; so nobody waits in a circle.
//! - What a replica that is behind has to compute is on a throttled thread of low priority
//!   ([`gentle`]), and background work takes a fifth of the log's thread ([`rest`]), half of it where
//!   the replica waits for just that.
//! - Files that nothing needs any more are removed by a thread of their own ([`upkeep`]).
//! - A thread that has done a batch of work wakes the loop once.
//! - Group commit: the log thread takes all that waits, writes it with one append, and syncs once, as
//!   the durability says; meanwhile the next group gathers.
//! - An error of any stage, or a panic, ends all threads; [`ReplicaHandle::wait`] gives it.

mod apart;
mod event_loop;
mod gentle;
mod peers;
mod rest;
mod upkeep;

use crate::config::{Data, ReplicaConfig};
use crate::stages::Stages;
use crate::{Home, Layout, NodeError, NodeSettings, NodeStatus, StartError};
use apart::{ExecuteThread, LogThread};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use event_loop::{LoopThread, Seat};
use gentle::Gentle;
use peers::Peers;
use rest::Rest;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant as Monotonic;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{Instant, Protocol};
use tercio_execution::Application;
use tercio_ledger::{DataDir, Identity};
use tercio_transport::{Transport, Waker};
use tercio_types::{Principal, ReplicaId};
use upkeep::UpkeepThread;

/// How many commands may wait before execution: as many batches may be in memory because of it.
const EXECUTE_QUEUE: usize = 128;
/// How many commands may wait before the log.
const LOG_QUEUE: usize = 4096;
/// How many batches of work may wait before the loop.
const LOOP_QUEUE: usize = 64;

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
    id: ReplicaId,
    address: SocketAddr,
    layout: Layout,
    ending: Arc<Ending>,
    waker: Waker,
    questions: Sender<Sender<NodeStatus>>,
    last: Arc<Mutex<NodeStatus>>,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
}

impl ReplicaHandle {
    /// Which replica.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.id
    }

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

/// Starts a replica that orders with PBFT: opens its files, listens, recovers, and runs.
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
    start_with(config, app, Stages::<Pbft>::open)
}

/// As [`start`], with the ordering protocol of the stages that `open` opens.
///
/// # Errors
/// As [`start`], and when `open` fails.
pub fn start_with<P: Protocol + 'static>(
    config: ReplicaConfig,
    app: impl Fn() -> Box<dyn Application>,
    open: impl FnOnce(
        &NodeSettings,
        &dyn Home,
        Box<dyn Application>,
        Instant,
    ) -> Result<Stages<P>, NodeError>,
) -> Result<ReplicaHandle, StartError> {
    let ReplicaConfig { node, listen, data, layout, limits } = config;
    let membership = node.membership.clone();
    let replica = node.me;
    let member = membership
        .member(replica)
        .ok_or(StartError::NotAMember { replica, all: membership.ids().to_string() })?;
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
        membership: membership.clone(),
        listen: Some(listen),
        limits,
    })?;
    let address = transport.local_addr().expect("it listens");
    let clock = Clock::new();
    let stages = open(&node, &*home, app(), clock.now())?;
    let layout = layout.under(node.durability);
    let checker = layout.execution_apart().then(app);

    let ending = Arc::new(Ending::default());
    let waker = transport.waker();
    let last = Arc::new(Mutex::new(stages.order.status()));
    let (questions, asked) = questions();
    let Stages { order, log, execute, outbox } = stages;
    let spawner = Spawner { name: format!("tercio-{replica}"), ending: &ending, waker: &waker };
    let (work, done) = bounded(LOOP_QUEUE);
    let mut others = Vec::new();
    let (removals, queue) = unbounded();
    let thread = UpkeepThread { queue, ending: ending.clone() };
    others.push(spawner.spawn("upkeep", move || thread.run())?);
    let log = if layout.log_apart() {
        let (commands, queue) = bounded(LOG_QUEUE);
        let thread = LogThread {
            stage: log,
            queue,
            work: work.clone(),
            waker: waker.clone(),
            removals: removals.clone(),
            durability: node.durability,
            ending: ending.clone(),
        };
        others.push(spawner.spawn("log", move || thread.run())?);
        Seat::Apart(commands)
    } else {
        Seat::Here(log)
    };
    let lender = Gentle::new(spawner.name.clone(), waker.clone());
    let (execute, lender) = if layout.execution_apart() {
        let (commands, queue) = bounded(EXECUTE_QUEUE);
        let thread = ExecuteThread {
            stage: execute,
            gentle: lender,
            queue,
            log: log.sender(),
            work,
            waker: waker.clone(),
            ending: ending.clone(),
        };
        others.push(spawner.spawn("execute", move || thread.run())?);
        (Seat::Apart(commands), None)
    } else {
        (Seat::Here(execute), Some(lender))
    };
    // Execution ends before the log, which still gets its blocks, and the log before upkeep.
    others.reverse();
    let looping = LoopThread {
        transport,
        order,
        log,
        execute,
        gentle: lender,
        rest: Rest::default(),
        checker,
        outbox,
        removals,
        done,
        asked,
        clock,
        peers: Peers::new(membership.replicas().filter(|id| *id != replica), clock),
        stalled_since: None,
        ending: ending.clone(),
        last: last.clone(),
        others,
        home,
    };
    let thread = spawner.spawn("loop", move || looping.run())?;
    let (id, thread) = (replica, Some(thread));
    Ok(ReplicaHandle { id, address, layout, ending, waker, questions, last, thread })
}

/// A channel for questions about the status. The caller waits, so there are few; and what the
/// loop leaves unanswered goes with it: in a bounded channel it would stay as long as the other end,
/// and the caller would wait for ever.
fn questions() -> (Sender<Sender<NodeStatus>>, Receiver<Sender<NodeStatus>>) {
    unbounded()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::RecvTimeoutError;

    #[test]
    fn who_asks_a_replica_that_ends_does_not_wait_for_ever() {
        let (questions, asked) = questions();
        let (answer, status) = bounded(1);
        assert!(questions.send(answer).is_ok());
        drop(asked);
        let long = std::time::Duration::from_secs(10);
        assert_eq!(status.recv_timeout(long).unwrap_err(), RecvTimeoutError::Disconnected);
    }
}
