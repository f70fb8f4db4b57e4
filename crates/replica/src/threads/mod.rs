//! The stages on threads and sockets. The one module that reads clocks.
//!
//! The loop thread has the links and ordering; execution and the log are on it too, or on threads
//! of their own ([`Layout`]), and so is verification (`[verify] threads`, decision 0035).
//! - Queues between threads are bounded. The loop never waits for room: what does not fit stays
//!   with it, and until it is gone nothing more is read from the links. Long before that, clients
//!   are told that the replica is busy. The other threads may wait for the loop, which always goes
//!   on; so nobody waits in a circle. Deliveries before execution are bounded where they come from:
//!   by the window, and in bytes (decision 0041).
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
mod reporter;
mod rest;
mod scrape;
mod upkeep;
mod watch;

use crate::config::{Data, ReplicaConfig};
use crate::metrics::Metrics;
use crate::report::ReplicaReport;
use crate::stages::Stages;
use crate::{Home, Layout, NodeError, NodeStatus, StartError, descriptors};
use apart::{ExecuteThread, LogThread};
use crossbeam_channel::{bounded, unbounded};
use event_loop::{LoopThread, Seat};
use gentle::Gentle;
use peers::Peers;
use reporter::{Facts, Reporter, questions};
use rest::Rest;
use scrape::Scrape;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant as Monotonic;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{Instant, ProtocolKind};
use tercio_execution::Executor;
use tercio_ledger::{DataDir, Identity};
use tercio_transport::{Transport, Waker};
use tercio_types::{ClientInfo, Membership, Principal, ReplicaId, Scheme};
use upkeep::UpkeepThread;
use watch::Watch;

/// With so many commands before execution it is asked for nothing that can be asked for again.
const EXECUTE_QUEUE: usize = 64;
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
        let base = u64::try_from(Self::since_1970().as_nanos()).unwrap_or(0);
        Self { base, start: Monotonic::now() }
    }

    #[expect(clippy::disallowed_methods, reason = "clocks and reports begin with the real time")]
    fn since_1970() -> std::time::Duration {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }

    /// The wall clock, in milliseconds since 1970.
    fn unix_ms() -> u64 {
        u64::try_from(Self::since_1970().as_millis()).unwrap_or(u64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "the clock of a replica")]
    fn monotonic() -> Monotonic {
        Monotonic::now()
    }

    fn now(&self) -> Instant {
        Instant(self.base) + (Self::monotonic() - self.start)
    }

    /// How far the wall clock is ahead of that, in microseconds: it was set since, or the machine
    /// slept.
    fn wall_ahead(&self) -> i64 {
        let wall = i128::try_from(Self::since_1970().as_micros()).unwrap_or(i128::MAX);
        let ahead = wall - i128::from(self.now().0 / 1000);
        i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX })
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
    reporter: Reporter,
    scrape: Option<Scrape>,
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
        self.reporter.status()
    }

    /// All that it says of itself: what its metrics say, and `status.json`.
    #[must_use]
    pub fn report(&self) -> ReplicaReport {
        self.reporter.report()
    }

    /// Writes that as `status.json` into the replica's home, and gives it. A failure is counted, and
    /// changes nothing: no promise stands on this file.
    ///
    /// # Errors
    /// The second value says why it could not be written.
    pub fn write_report(&self, home: &Path) -> (ReplicaReport, std::io::Result<()>) {
        self.reporter.write(home)
    }

    /// Where it answers for metrics, if it does.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.scrape.as_ref().map(Scrape::address)
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
/// `app` is the application in its first state, or what else executes.
///
/// # Errors
/// When the key, the files or the port cannot be used. The text says what to do.
pub fn start(
    config: ReplicaConfig,
    app: impl Into<Box<dyn Executor>>,
) -> Result<ReplicaHandle, StartError> {
    start_with::<Pbft>(config, app.into())
}

/// As [`start`], with another ordering protocol.
///
/// # Errors
/// As [`start`].
pub fn start_with<P: ProtocolKind>(
    config: ReplicaConfig,
    executor: Box<dyn Executor>,
) -> Result<ReplicaHandle, StartError> {
    let ReplicaConfig { node, listen, data, layout, mut limits, metrics } = config;
    let membership = node.membership.clone();
    let replica = node.me;
    let member = membership
        .member(replica)
        .ok_or(StartError::NotAMember { replica, all: membership.ids().to_string() })?;
    if member.key != node.secret.public() {
        return Err(StartError::WrongKey { replica });
    }
    let peers = membership.replicas().count() - 1;
    descriptors::bound_links(&mut limits, peers, metrics.is_some())?;
    let scrape = metrics.map(scrape::Bound::new).transpose()?;
    let metrics = Arc::new(Metrics::new(scrape.is_some()));
    let directory = match &data {
        Data::Memory(_) => None,
        Data::Directory(path) => Some(path.clone()),
    };
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
    let mut stages = Stages::<P>::open(&node, &*home, executor, clock.now())?;
    let layout = layout.under(node.durability);

    let ending = Arc::new(Ending::default());
    let waker = transport.waker();
    let status = stages.order.status();
    let facts = Facts {
        start_height: status.height.0,
        idle_interval: node.consensus.idle_interval,
        sm2_backend: uses_sm2(&membership).then(|| node.verify.sm2.name().to_owned()),
        data: directory,
    };
    stages.order.set_probe(Box::new(Watch::new(&metrics, clock)));
    let last = Arc::new(Mutex::new(status));
    let (questions, asked) = questions();
    let reporter = Reporter::new(questions, waker.clone(), last.clone(), facts, metrics.clone());
    let spawner = Spawner { name: format!("tercio-{replica}"), ending: &ending, waker: &waker };
    let mut others = Vec::new();
    if node.verify.threads > 0 {
        let waker = waker.clone();
        let workers = stages.order.verify_on_threads(&node.verify, move || waker.wake());
        for (i, worker) in workers.into_iter().enumerate() {
            let run = move || {
                worker.run();
                Ok(())
            };
            others.push(spawner.spawn(&format!("verify-{i}"), run)?);
        }
    }
    let Stages { order, log, mut execute, outbox } = stages;
    let (work, done) = bounded(LOOP_QUEUE);
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
            fsync: metrics.measured.as_ref().map(|measured| measured.fsync.clone()),
            ending: ending.clone(),
        };
        others.push(spawner.spawn("log", move || thread.run())?);
        Seat::Apart(commands)
    } else {
        Seat::Here(log)
    };
    let lender = Gentle::new(spawner.name.clone(), waker.clone());
    let (execute, lender) = if layout.execution_apart() {
        // How far execution may lag is bounded before the queue.
        let (commands, queue) = unbounded();
        let (wake, progress) = bounded(1);
        let progress = (wake.clone(), progress);
        // A full channel wakes, too.
        execute.set_wake(Arc::new(move || {
            let _ = wake.try_send(());
        }));
        let thread = ExecuteThread {
            stage: execute,
            progress,
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
        let waker = waker.clone();
        execute.set_wake(Arc::new(move || waker.wake()));
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
        outbox,
        removals,
        done,
        asked,
        clock,
        peers: Peers::new(membership.replicas().filter(|id| *id != replica), clock),
        stalled_since: None,
        queues: metrics.counts.queues.clone(),
        ending: ending.clone(),
        last: last.clone(),
        others,
        home,
    };
    let thread = spawner.spawn("loop", move || looping.run())?;
    let scrape = scrape.map(|bound| bound.start(&spawner.name, reporter.clone())).transpose()?;
    let (id, thread) = (replica, Some(thread));
    Ok(ReplicaHandle { id, address, layout, ending, waker, reporter, scrape, thread })
}

/// Whether anybody signs with SM2.
fn uses_sm2(membership: &Membership) -> bool {
    let suite = membership.suite();
    let sm2 = |(_, client): (_, &ClientInfo)| client.signing_key(suite).scheme == Scheme::Sm2;
    suite.scheme() == Scheme::Sm2 || membership.clients().any(sm2)
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
    use bytes::Bytes;
    use crossbeam_channel::RecvTimeoutError;
    use std::time::Duration;
    use tercio_crypto::{Claim, Keyring, SecretKey};
    use tercio_types::{
        Authenticator, ChainId, Digest, Epoch, FaultModel, Member, Membership, ReplicaId,
        SignatureBytes, Suite, Tag,
    };
    use tercio_verify::{Bounds, Gather, Threads, VerifyStage};
    use tercio_wire::{Carries, DecodeError, Frame, Key, Kind, Message};

    /// A message that nobody survives reading.
    struct Broken;

    impl Message for Broken {
        fn from_frame(_: &Frame, _: Suite) -> Result<Self, DecodeError> {
            panic!("this message breaks us")
        }

        fn carries(&self) -> Carries {
            Carries::Macs
        }

        fn inner_claims(&self, _: Suite, _: &mut dyn FnMut(Claim<'_>)) {}

        fn parts(&self, me: ReplicaId, _: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
            let key = Key::of_replica(Kind(Kind::PROTOCOL), me, 0, 0, Digest::NULL);
            (key, Bytes::new(), None)
        }
    }

    /// All threads end, the loop is woken to see it, and the replica's end says why.
    #[test]
    fn a_verify_thread_that_dies_ends_the_replica() {
        let secret = SecretKey::from_seed([1; 32]);
        let member = Member { key: secret.public(), address: String::new() };
        let (suite, model) = (Suite::default(), FaultModel::Byzantine);
        let (chain, members) = (ChainId([1; 32]), vec![member]);
        let membership =
            Membership::new(chain, Epoch(0), suite, model, members, [].into()).unwrap();
        let (me, membership) = (Principal::Replica(ReplicaId(0)), Arc::new(membership));
        let mut transport = Transport::bind(tercio_transport::Settings {
            me,
            secret: secret.clone(),
            membership: membership.clone(),
            listen: None,
            limits: tercio_transport::Limits::default(),
        })
        .unwrap();
        let (ending, waker) = (Arc::new(Ending::default()), transport.waker());
        let spawner = Spawner { name: "test".into(), ending: &ending, waker: &waker };

        let keyring = Keyring::new(me, secret, membership, Default::default());
        let (mut stage, mut workers) =
            Threads::<Broken>::new(&keyring, Gather::default(), Bounds::default(), 1, || {});
        let worker = workers.remove(0);
        let thread = spawner.spawn("verify-0", move || {
            worker.run();
            Ok(())
        });
        let tag = |_: &[u8; 52]| Authenticator::Mac(Tag::default());
        let frame = Broken.to_frame(ReplicaId(0), suite, tag).to_bytes();
        stage.submit(me, &frame, Duration::ZERO);
        stage.flush();
        transport.poll(Some(Duration::from_secs(60)), &mut Vec::new());
        assert!(!ending.is_running());
        let error = join(thread.unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a stage stopped by a failed assertion: this message breaks us"
        );
    }

    /// The machine slept for an hour, or its clock was set: timers do not see it, proposals do.
    #[test]
    fn the_wall_clock_is_read_anew() {
        let clock = Clock::new();
        let hour = 3_600_000_000;
        assert!(clock.wall_ahead().abs() < hour / 60, "nobody sets it meanwhile");
        let slept = Clock { base: clock.base - hour as u64 * 1000, ..clock };
        assert!((slept.wall_ahead() - hour).abs() < hour / 60);
        let early = Clock { base: clock.base + hour as u64 * 1000, ..clock };
        assert!((early.wall_ahead() + hour).abs() < hour / 60);
    }

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
