//! What a replica that is behind has to compute, on a thread that gives way to all others of the
//! machine: taking a state of a gigabyte to pieces or building one up takes seconds, and blocks are
//! executed in bursts. A machine often has more to do than this replica, other replicas of the same
//! network not least.
//!
//! Giving way must have an end, or a replica under full load never is current. So blocks are
//! executed at the usual priority from the moment on at which that takes longer than the network
//! took to order them, until the replica is no more behind.

use super::Clock;
use crate::NodeError;
use crate::stages::{ExecuteStage, Outbox, ToExecute};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::time::Duration;
use tercio_transport::Waker;

/// The niceness of the thread: next to threads of the usual priority it gets a tenth of what they
/// get, and all that they leave.
const NICE: i32 = 10;

/// Execution, lent with a command; and how long the network took to order what is to be executed.
type Lent = (ExecuteStage, ToExecute, Option<Duration>);

/// Execution, given back.
pub(super) struct Back {
    pub(super) stage: ExecuteStage,
    pub(super) out: Outbox,
    pub(super) result: Result<(), NodeError>,
    /// Whether it took longer than the network did.
    late: bool,
}

/// The side that lends.
pub(super) struct Gentle {
    lent: Sender<Lent>,
    back: Receiver<Back>,
    /// Blocks are executed at the usual priority.
    hurries: bool,
}

/// The thread's side.
pub(super) struct GentleThread {
    lent: Receiver<Lent>,
    back: Sender<Back>,
    waker: Waker,
}

/// Both sides.
pub(super) fn gentle(waker: Waker) -> (Gentle, GentleThread) {
    let (lent, commands) = bounded(1);
    let (done, back) = bounded(1);
    let thread = GentleThread { lent: commands, back: done, waker };
    (Gentle { lent, back, hurries: false }, thread)
}

/// How long the network took to order the blocks that are to be executed again.
fn ordered_in(command: &ToExecute) -> Option<Duration> {
    let ToExecute::Replay(run) = command else { return None };
    let (first, last) = (run.blocks.first()?, run.blocks.last()?);
    Some(Duration::from_micros(last.header.time.0.saturating_sub(first.header.time.0)))
}

impl Gentle {
    /// Whether a command is for the thread.
    pub(super) fn takes(&mut self, command: &ToExecute) -> bool {
        match command {
            ToExecute::Install(_) | ToExecute::Pieces => true,
            ToExecute::Replay(_) => !self.hurries,
            ToExecute::Deliver { .. } => {
                self.hurries = false;
                false
            }
            _ => false,
        }
    }

    /// Lends execution; [`Self::take`] or [`Self::wait`] give it back.
    pub(super) fn lend(&self, stage: ExecuteStage, command: ToExecute) {
        let allowed = ordered_in(&command);
        let lent = self.lent.send((stage, command, allowed));
        assert!(lent.is_ok(), "the thread runs as long as this side is there");
    }

    /// Execution, if the command is done.
    pub(super) fn take(&mut self) -> Option<Back> {
        let back = self.back.try_recv().ok()?;
        self.hurries |= back.late;
        Some(back)
    }

    /// Execution, when the command is done; none when it panicked.
    pub(super) fn wait(&mut self) -> Option<Back> {
        let back = self.back.recv().ok()?;
        self.hurries |= back.late;
        Some(back)
    }
}

impl GentleThread {
    pub(super) fn run(self) -> Result<(), NodeError> {
        // One may always give way; where the system has another opinion, it is done all the same.
        let _ = rustix::process::setpriority_process(None, NICE);
        while let Ok((mut stage, command, allowed)) = self.lent.recv() {
            let begin = Clock::monotonic();
            let mut out = Outbox::default();
            let result = stage.handle(command, &mut out);
            let late = allowed.is_some_and(|allowed| Clock::monotonic() - begin > allowed);
            if self.back.send(Back { stage, out, result, late }).is_ok() {
                self.waker.wake();
            }
        }
        Ok(())
    }
}
