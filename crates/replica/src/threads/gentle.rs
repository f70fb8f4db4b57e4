//! A thread of low priority, throttled, for what a replica that is behind has to compute: taking a
//! state of a gigabyte to pieces or building one up takes seconds, and blocks are executed in
//! bursts; the thread that reads its links must not wait. A machine often has more to do than this
//! replica, other replicas of the same network not least. So (decision 0019):
//!
//! - A *gentle* thread has a high niceness: it gets the processor time that others leave.
//! - That must have an end, or a replica under full load is never current: it is to gain on the
//!   network at a pace of [`PACE`], by the times at which the network ordered what is executed.
//!   Once the gentle thread has lost [`LOST`] on that, the next blocks are for a *steady* one, of
//!   the usual priority, until it has made up for it.
//! - Either is throttled: it comes in bursts that others would wait for, and a processor that is
//!   idle just now is not free, since caches, memory and often a core are shared. After each run of
//!   blocks it sleeps half as long as that took, and longer where it is faster than [`MOST`].
//!
//! A thread cannot lower its niceness again, so another manner is another thread, in place of the one
//! before: never at the same time, since the system's allocator keeps an arena for each thread that
//! runs.

use super::Clock;
use crate::NodeError;
use crate::stages::{ExecuteStage, Outbox, ToExecute};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;
use tercio_transport::Waker;

/// The niceness of the thread: next to threads of the usual priority it gets a tenth of what they
/// get, and all that they leave.
const NICE: i32 = 10;

/// How many times as fast as the network ordered them a replica executes blocks at least, as far as
/// the machine can.
const PACE: u32 = 2;

/// How many times as fast at most.
const MOST: u32 = 3;

/// How far a replica may fall behind that pace at low priority.
const LOST: Duration = Duration::from_secs(1);

/// However slowly the network went: it sleeps at most this many times as long as it worked.
const REST: u32 = 4;

/// Execution, given back.
pub(super) struct Back {
    pub(super) stage: ExecuteStage,
    pub(super) out: Outbox,
    pub(super) result: Result<(), NodeError>,
    /// How long the network took to order what was executed, and how long that took here.
    pace: Option<(Duration, Duration)>,
}

/// Execution with a command that is long.
type Lent = (ExecuteStage, ToExecute);

/// The side that lends.
pub(super) struct Gentle {
    /// Of the threads.
    name: String,
    waker: Waker,
    helper: Option<Helper>,
    lost: Lost,
}

/// A thread to lend to.
struct Helper {
    manner: Manner,
    lent: Sender<Lent>,
    back: Receiver<Back>,
    thread: JoinHandle<()>,
}

/// How much the replica has lost on its pace at low priority.
#[derive(Debug, Default)]
struct Lost(Duration);

impl Lost {
    /// What the network took `ordered` for took `executed` here.
    fn note(&mut self, ordered: Duration, executed: Duration) {
        self.0 = (self.0 + executed).saturating_sub(ordered / PACE);
    }

    fn is_too_much(&self) -> bool {
        self.0 > LOST
    }
}

/// How a thread shares the processor with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Of low priority (a high niceness).
    Gentle,
    /// Of the usual priority, throttled.
    Steady,
}

/// A thread's side.
struct GentleThread {
    manner: Manner,
    lent: Receiver<Lent>,
    back: Sender<Back>,
    waker: Waker,
}

/// How long the network took to order the blocks that are to be executed again.
fn ordered_in(command: &ToExecute) -> Option<Duration> {
    let ToExecute::Replay(run) = command else { return None };
    let (first, last) = (run.blocks.first()?, run.blocks.last()?);
    Some(Duration::from_micros(last.header.time.0.saturating_sub(first.header.time.0)))
}

impl Gentle {
    /// Nothing is lent; the threads are called after `name`.
    pub(super) fn new(name: String, waker: Waker) -> Self {
        Self { name, waker, helper: None, lost: Lost::default() }
    }

    /// Whether a command is for the thread.
    pub(super) fn takes(&mut self, command: &ToExecute) -> bool {
        match command {
            ToExecute::Install(_) | ToExecute::Pieces | ToExecute::Replay(_) => true,
            ToExecute::Deliver { .. } => {
                self.lost = Lost::default();
                false
            }
            _ => false,
        }
    }

    /// For one of which manner.
    fn manner(&self, command: &ToExecute) -> Manner {
        match command {
            ToExecute::Replay(_) if self.lost.is_too_much() => Manner::Steady,
            _ => Manner::Gentle,
        }
    }

    /// Lends execution; [`Self::take`] or [`Self::wait`] give it back.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(super) fn lend(
        &mut self,
        stage: ExecuteStage,
        command: ToExecute,
    ) -> Result<(), NodeError> {
        let manner = self.manner(&command);
        if self.helper.as_ref().is_none_or(|helper| helper.manner != manner) {
            if let Some(before) = self.helper.take() {
                before.end();
            }
            self.helper = Some(self.start(manner).map_err(NodeError::Thread)?);
        }
        let helper = self.helper.as_ref().expect("just made");
        assert!(helper.lent.send((stage, command)).is_ok(), "it waits for something to do");
        Ok(())
    }

    fn start(&self, manner: Manner) -> io::Result<Helper> {
        let ((lent, commands), (done, back)) = (bounded(1), bounded(1));
        let waker = self.waker.clone();
        let thread = GentleThread { manner, lent: commands, back: done, waker };
        let name = match manner {
            Manner::Gentle => "gentle",
            Manner::Steady => "steady",
        };
        let builder = std::thread::Builder::new().name(format!("{}-{name}", self.name));
        Ok(Helper { manner, lent, back, thread: builder.spawn(move || thread.run())? })
    }

    /// Execution, if the command is done.
    ///
    /// # Panics
    /// When the command did.
    pub(super) fn take(&mut self) -> Option<Back> {
        match self.helper.as_ref()?.back.try_recv() {
            Ok(back) => Some(self.note(back)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => self.fail(),
        }
    }

    /// Execution, when the command is done; none if there was no thread to lend it to.
    ///
    /// # Panics
    /// When the command did.
    pub(super) fn wait(&mut self) -> Option<Back> {
        match self.helper.as_ref()?.back.recv() {
            Ok(back) => Some(self.note(back)),
            Err(_) => self.fail(),
        }
    }

    /// The thread panicked, and so does this one.
    fn fail(&mut self) -> ! {
        self.helper.take().expect("it was just there").end();
        unreachable!("a thread that panicked has a reason")
    }

    fn note(&mut self, back: Back) -> Back {
        if let Some((ordered, executed)) = back.pace {
            self.lost.note(ordered, executed);
        }
        back
    }
}

impl Helper {
    /// Ends the thread, and waits until it has.
    ///
    /// # Panics
    /// As it did.
    fn end(self) {
        let Self { lent, back, thread, .. } = self;
        drop((lent, back));
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Wakes the loop when a thread ends, which it does by itself only when it panicked.
struct WakesAtEnd(Waker);

impl Drop for WakesAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Raises the niceness of this thread, and of no other one of the process.
fn give_way() {
    // Anybody may raise it; where the system refuses, the work is done all the same.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// How long to sleep after `executed` time on what the network `ordered` in that time.
fn rest_after(ordered: Duration, executed: Duration) -> Duration {
    let too_fast = (ordered / MOST).saturating_sub(executed);
    too_fast.clamp(executed / 2, REST * executed)
}

#[expect(clippy::disallowed_methods, reason = "the pace of a replica that catches up")]
fn rest(time: Duration) {
    std::thread::sleep(time);
}

impl GentleThread {
    fn run(self) {
        let Self { manner, lent, back, waker } = self;
        if manner == Manner::Gentle {
            give_way();
        }
        // After the channel, so that the woken side finds it closed.
        let waker = WakesAtEnd(waker);
        let back = back;
        while let Ok((mut stage, command)) = lent.recv() {
            let (ordered, begin) = (ordered_in(&command), Clock::monotonic());
            let mut work = begin;
            while stage.prepare(&command) {
                rest((Clock::monotonic() - work) / 2);
                work = Clock::monotonic();
            }
            let mut out = Outbox::default();
            let result = stage.handle(command, &mut out);
            if let Some(ordered) = ordered {
                rest(rest_after(ordered, Clock::monotonic() - work));
            }
            let pace = ordered.map(|ordered| (ordered, Clock::monotonic() - begin));
            if back.send(Back { stage, out, result, pace }).is_ok() {
                waker.0.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use tercio_crypto::SecretKey;
    use tercio_execution::Ordered;
    use tercio_ledger::Block;
    use tercio_sync::CertifiedBlocks;
    use tercio_transport::{Limits, Settings, Transport};
    use tercio_types::{
        BlockHeader, CertifiedCheckpoint, ChainId, Checkpoint, Digest, Epoch, FaultModel, Height,
        Member, Membership, Principal, ReplicaId, SeqNum, Suite, Timestamp, View,
    };

    fn niceness() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    #[test]
    fn the_thread_gives_way_and_no_other() {
        let before = niceness();
        let given = std::thread::spawn(|| {
            give_way();
            niceness()
        });
        assert_eq!(given.join().unwrap(), before.max(NICE));
        assert_eq!(niceness(), before);
    }

    /// Blocks whose first and last were ordered so far apart.
    fn blocks(ordered: Duration) -> ToExecute {
        let block = |time: u64| {
            let header = BlockHeader {
                suite: Suite::default(),
                epoch: Epoch(0),
                height: Height(time),
                seq: SeqNum(time),
                parent: Digest::NULL,
                body: Digest::NULL,
                time: Timestamp(time),
                ops: 0,
                lag: 0,
                results: Digest::NULL,
                state: Digest::NULL,
            };
            Block { header, body: Bytes::new() }
        };
        let checkpoint = Checkpoint {
            seq: SeqNum(1),
            height: Height(1),
            block: Digest::NULL,
            results: Digest::NULL,
            state: Digest::NULL,
            clients: Digest::NULL,
            membership: Digest::NULL,
            epoch: Epoch(0),
            time: Timestamp(1),
        };
        let blocks = vec![block(1), block(1 + ordered.as_micros() as u64)];
        let certificate = Arc::new(CertifiedCheckpoint { checkpoint, signatures: vec![] });
        ToExecute::Replay(CertifiedBlocks { blocks, certificate, last: false })
    }

    /// One that has lent nothing.
    fn lender() -> Gentle {
        let secret = SecretKey::from_seed([1; 32]);
        let member = Member { key: secret.public(), address: String::new() };
        let (chain, epoch, suite) = (ChainId([1; 32]), Epoch(0), Suite::default());
        let model = FaultModel::Byzantine;
        let membership =
            Membership::new(chain, epoch, suite, model, vec![member], BTreeMap::new()).unwrap();
        let transport = Transport::bind(Settings {
            me: Principal::Replica(ReplicaId(0)),
            secret,
            membership: Arc::new(membership),
            listen: None,
            limits: Limits::default(),
        });
        Gentle::new("test".into(), transport.unwrap().waker())
    }

    #[test]
    fn what_is_long_is_for_a_thread_and_the_steady_one_makes_up_for_what_is_lost() {
        let mut lender = lender();
        assert!(lender.takes(&ToExecute::Pieces));
        let run = blocks(Duration::from_millis(300));
        assert_eq!(ordered_in(&run), Some(Duration::from_millis(300)));
        assert!(lender.takes(&run));
        assert_eq!(lender.manner(&run), Manner::Gentle);
        lender.lost.note(Duration::from_millis(300), LOST);
        assert_eq!(lender.manner(&run), Manner::Gentle, "not all of it is lost");
        lender.lost.note(Duration::ZERO, LOST);
        assert_eq!(lender.manner(&run), Manner::Steady);
        assert_eq!(lender.manner(&ToExecute::Pieces), Manner::Gentle);
        lender.lost.note(2 * PACE * LOST, LOST);
        assert_eq!(lender.manner(&run), Manner::Gentle, "it made up for it");
        lender.lost.note(Duration::ZERO, 3 * LOST);
        let ordered = Ordered { seq: SeqNum(1), block: None };
        let delivered =
            ToExecute::Deliver { ordered, batch: None, checkpoint: false, view: View(0) };
        assert!(!lender.takes(&delivered));
        assert_eq!(lender.manner(&run), Manner::Gentle, "it caught up");
    }

    #[test]
    fn a_replica_gives_way_until_it_has_lost_too_much() {
        let ms = Duration::from_millis;
        let mut lost = Lost::default();
        // Short runs may be slow, as long as long ones make up for it.
        for _ in 0..20 {
            lost.note(PACE * ms(10), ms(200));
            lost.note(PACE * ms(1600), ms(900));
            assert!(!lost.is_too_much());
        }
        // What was gained before is no reason to be slow now; and as fast as the network is slow.
        (0..3).for_each(|_| lost.note(ms(1000), ms(1000)));
        assert!(lost.is_too_much());
    }

    #[test]
    fn it_rests_half_as_long_as_it_worked_and_as_it_is_too_fast() {
        let ms = Duration::from_millis;
        assert_eq!(rest_after(MOST * ms(100), ms(40)), ms(60));
        assert_eq!(rest_after(MOST * ms(100), ms(80)), ms(40));
        assert_eq!(rest_after(MOST * ms(100), ms(110)), ms(55));
        // An idle network ordered this in an hour.
        assert_eq!(rest_after(ms(3_600_000), ms(5)), REST * ms(5));
    }
}
