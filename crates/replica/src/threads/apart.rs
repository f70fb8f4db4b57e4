//! The stages that have a thread of their own.

use super::gentle::{Back, Gentle};
use super::rest::Rest;
use super::{Clock, Ending, LOG_QUEUE, Monotonic};
use crate::metrics::Times;
use crate::stages::{ExecuteStage, LogStage, Outbox, ToExecute, ToLog};
use crate::{Durability, NodeError};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::Arc;
use std::time::Duration;
use tercio_ledger::Removal;
use tercio_transport::Waker;

/// The most commands that execution does before it passes on what came of them.
const EXECUTE_BATCH: usize = 16;

/// The longest that a group gathers without a poll of the queue, which is bounded.
const LOOK: Duration = Duration::from_millis(1);

pub(super) struct LogThread {
    pub(super) stage: LogStage,
    pub(super) queue: Receiver<ToLog>,
    pub(super) work: Sender<Outbox>,
    pub(super) waker: Waker,
    pub(super) removals: Sender<Removal>,
    pub(super) durability: Durability,
    /// Where the time of each fsync is counted, if it is.
    pub(super) fsync: Option<Times>,
    pub(super) ending: Arc<Ending>,
}

impl LogThread {
    /// Commits with an fsync, if there is anything to commit.
    fn sync(&mut self, out: &mut Outbox) -> Result<(), NodeError> {
        let begin =
            self.fsync.as_ref().filter(|_| self.stage.is_dirty()).map(|_| Clock::monotonic());
        self.stage.commit(true, out)?;
        if let (Some(times), Some(begin)) = (&self.fsync, begin) {
            times.observe(Clock::monotonic() - begin);
        }
        Ok(())
    }

    pub(super) fn run(mut self) -> Result<(), NodeError> {
        // When the next sync of a group may begin.
        let mut next = Clock::monotonic();
        let mut rest = Rest::default();
        loop {
            let first = if self.stage.has_work() {
                let left = rest.left();
                let due = self
                    .stage
                    .is_dirty()
                    .then(|| next.saturating_duration_since(Clock::monotonic()));
                self.queue.recv_timeout(due.map_or(left, |due| due.min(left)))
            } else if self.stage.is_dirty() {
                rest_until(next);
                self.queue.try_recv().map_err(|error| match error {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                })
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
            let more = self.queue.try_iter().take(LOG_QUEUE);
            for command in first.into_iter().chain(more) {
                self.stage.handle(command, &mut out)?;
            }
            match self.durability {
                Durability::Memory => self.stage.commit(false, &mut out)?,
                Durability::Sync => self.sync(&mut out)?,
                Durability::Group(pause) => {
                    let begin = Clock::monotonic();
                    if self.stage.is_dirty() && begin >= next {
                        self.sync(&mut out)?;
                        let end = Clock::monotonic();
                        next = end + rest_after(end - begin, pause);
                    }
                }
            }
            if self.stage.has_work() && rest.is_over() {
                let (begin, times) = (Clock::monotonic(), self.stage.rest());
                self.stage.work(&mut out)?;
                rest.after(begin, times);
            }
            // Who removes files is there as long as this thread is, or all end.
            out.removals.drain(..).for_each(|removal| drop(self.removals.send(removal)));
            if !out.order.is_empty() && self.work.send(out).is_ok() {
                self.waker.wake();
            }
        }
    }
}

/// Group commit: lets a group gather in the queue until `next`, or for [`LOOK`]. To block on the
/// queue instead would wake this thread for each command.
#[expect(clippy::disallowed_methods, reason = "the pace of a disk")]
fn rest_until(next: Monotonic) {
    let left = next.saturating_duration_since(Clock::monotonic());
    std::thread::sleep(left.min(LOOK));
}

/// How long a group gathers after a sync that took `sync`: half as long, and at most `pause`.
///
/// A batch waits for two groups in a row, so a delay that is long against a sync costs throughput
/// where clients have a bounded number of requests in flight, and saves nothing that the disk
/// lacks. A slow disk gets the whole pause.
fn rest_after(sync: Duration, pause: Duration) -> Duration {
    pause.min(sync / 2)
}

pub(super) struct ExecuteThread {
    pub(super) stage: ExecuteStage,
    pub(super) gentle: Gentle,
    pub(super) queue: Receiver<ToExecute>,
    /// The executor may have something; the sending side is held, so that one that calls nobody closes
    /// nothing.
    pub(super) progress: (Sender<()>, Receiver<()>),
    /// The log's queue, when it is apart too.
    pub(super) log: Option<Sender<ToLog>>,
    pub(super) work: Sender<Outbox>,
    pub(super) waker: Waker,
    pub(super) ending: Arc<Ending>,
}

impl ExecuteThread {
    pub(super) fn run(self) -> Result<(), NodeError> {
        let Self { mut stage, mut gentle, queue, progress, log, work, waker, ending } = self;
        loop {
            let first = crossbeam_channel::select! {
                recv(queue) -> command => command.ok(),
                recv(progress.1) -> _ => Some(ToExecute::Progress),
            };
            let Some(first) = first else { return Ok(()) };
            let mut out = Outbox::default();
            let rest = queue.try_iter().take(EXECUTE_BATCH - 1);
            for command in std::iter::once(first).chain(rest) {
                if ending.is_at_once() {
                    return Ok(());
                }
                if !gentle.takes(&command) {
                    stage.handle(command, &mut out)?;
                    continue;
                }
                gentle.lend(stage, command)?;
                let Some(back) = gentle.wait() else { return Ok(()) };
                let Back { out: mut more, result, .. } = back;
                stage = back.stage;
                result?;
                out.log.append(&mut more.log);
                out.order.append(&mut more.order);
                out.send.append(&mut more.send);
            }
            if let Some(log) = &log {
                // The block goes first, so that what is said about it finds it there.
                for command in out.log.drain(..) {
                    if log.send(command).is_err() {
                        // The log has ended, and so will we.
                        return Ok(());
                    }
                }
            }
            if !out.is_empty() && work.send(out).is_ok() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_rests_as_the_disk_is_slow_and_never_longer_than_asked() {
        let us = Duration::from_micros;
        assert_eq!(rest_after(us(300), us(2000)), us(150));
        assert_eq!(rest_after(us(20_000), us(2000)), us(2000));
        assert_eq!(rest_after(Duration::ZERO, us(2000)), Duration::ZERO);
    }
}
