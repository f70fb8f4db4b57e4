//! What a replica that is behind has to compute, on a thread that gives way to all others of the
//! machine: taking a state of a gigabyte to pieces or building one up takes seconds, and blocks are
//! executed in bursts. A machine often has more to do than this replica, other replicas of the same
//! network not least.
//!
//! Giving way must have an end, or a replica under full load never is current. So once executing
//! blocks has lost [`LOST`] on the network, which took less time to order them, it goes on at the
//! usual priority until the replica is no more behind.

use super::Clock;
use crate::NodeError;
use crate::stages::{ExecuteStage, Outbox, ToExecute};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::time::Duration;
use tercio_transport::Waker;

/// The niceness of the thread: next to threads of the usual priority it gets a tenth of what they
/// get, and all that they leave.
const NICE: i32 = 10;

/// How far a replica may fall behind while it gives way.
const LOST: Duration = Duration::from_secs(1);

/// Execution, given back.
pub(super) struct Back {
    pub(super) stage: ExecuteStage,
    pub(super) out: Outbox,
    pub(super) result: Result<(), NodeError>,
    /// How long the network took to order what was executed, and how long that took here.
    pace: Option<(Duration, Duration)>,
}

/// The side that lends.
pub(super) struct Gentle {
    lent: Sender<(ExecuteStage, ToExecute)>,
    back: Receiver<Back>,
    lost: Lost,
}

/// How much the replica has lost on the network by giving way.
#[derive(Debug, Default)]
struct Lost(Duration);

impl Lost {
    /// What the network took `ordered` for took `executed` here.
    fn note(&mut self, ordered: Duration, executed: Duration) {
        self.0 = (self.0 + executed).saturating_sub(ordered);
    }

    fn is_too_much(&self) -> bool {
        self.0 > LOST
    }
}

/// The thread's side.
pub(super) struct GentleThread {
    lent: Receiver<(ExecuteStage, ToExecute)>,
    back: Sender<Back>,
    waker: Waker,
}

/// Both sides.
pub(super) fn gentle(waker: Waker) -> (Gentle, GentleThread) {
    let (lent, commands) = bounded(1);
    let (done, back) = bounded(1);
    let thread = GentleThread { lent: commands, back: done, waker };
    (Gentle { lent, back, lost: Lost::default() }, thread)
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
            ToExecute::Replay(_) => !self.lost.is_too_much(),
            ToExecute::Deliver { .. } => {
                self.lost = Lost::default();
                false
            }
            _ => false,
        }
    }

    /// Lends execution; [`Self::take`] or [`Self::wait`] give it back.
    pub(super) fn lend(&self, stage: ExecuteStage, command: ToExecute) {
        let lent = self.lent.send((stage, command));
        assert!(lent.is_ok(), "the thread runs as long as this side is there");
    }

    /// Execution, if the command is done.
    pub(super) fn take(&mut self) -> Option<Back> {
        let back = self.back.try_recv().ok()?;
        Some(self.note(back))
    }

    /// Execution, when the command is done; none when it panicked.
    pub(super) fn wait(&mut self) -> Option<Back> {
        let back = self.back.recv().ok()?;
        Some(self.note(back))
    }

    fn note(&mut self, back: Back) -> Back {
        if let Some((ordered, executed)) = back.pace {
            self.lost.note(ordered, executed);
        }
        back
    }
}

/// From here on this thread gives way, and no other one of the process.
fn give_way() {
    // One may always give way; where the system has another opinion, it is done all the same.
    let _ = rustix::process::setpriority_process(None, NICE);
}

impl GentleThread {
    pub(super) fn run(self) -> Result<(), NodeError> {
        give_way();
        while let Ok((mut stage, command)) = self.lent.recv() {
            let (ordered, begin) = (ordered_in(&command), Clock::monotonic());
            let mut out = Outbox::default();
            let result = stage.handle(command, &mut out);
            let pace = ordered.map(|ordered| (ordered, Clock::monotonic() - begin));
            if self.back.send(Back { stage, out, result, pace }).is_ok() {
                self.waker.wake();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::CertifiedBlocks;
    use bytes::Bytes;
    use std::sync::Arc;
    use tercio_consensus::Delivery;
    use tercio_ledger::Block;
    use tercio_types::{
        BlockHeader, CertifiedCheckpoint, Checkpoint, Digest, Epoch, Height, SeqNum, Suite,
        Timestamp, View,
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

    #[test]
    fn what_is_long_is_for_the_thread_until_too_much_is_lost() {
        let (lent, _commands) = bounded(1);
        let (_done, back) = bounded(1);
        let mut gentle = Gentle { lent, back, lost: Lost::default() };
        assert!(gentle.takes(&ToExecute::Pieces));
        let run = blocks(Duration::from_millis(300));
        assert_eq!(ordered_in(&run), Some(Duration::from_millis(300)));
        assert!(gentle.takes(&run));
        gentle.lost.note(Duration::from_millis(300), LOST);
        assert!(gentle.takes(&run), "not all of it is lost");
        gentle.lost.note(Duration::ZERO, LOST);
        assert!(!gentle.takes(&run) && gentle.takes(&ToExecute::Pieces));
        let delivery = Delivery { seq: SeqNum(1), batch: None, checkpoint: false };
        assert!(!gentle.takes(&ToExecute::Deliver { delivery, view: View(0) }));
        assert!(gentle.takes(&run), "it caught up");
    }

    #[test]
    fn a_replica_gives_way_until_it_has_lost_too_much() {
        let ms = Duration::from_millis;
        let mut lost = Lost::default();
        // Short runs may be slow, as long as long ones make up for it.
        for _ in 0..20 {
            lost.note(ms(10), ms(200));
            lost.note(ms(1600), ms(900));
            assert!(!lost.is_too_much());
        }
        // What was gained before is no reason to be slow now.
        (0..4).for_each(|_| lost.note(ms(1000), ms(1300)));
        assert!(lost.is_too_much());
    }
}
