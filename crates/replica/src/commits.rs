//! When the log of a [`Node`](crate::Node) commits, and how long that takes.
//!
//! A replica on threads commits whatever has come to its log when the sync before has returned: a
//! commit can fall between any two commands, and everything else goes on while a sync takes its
//! time. A node has no threads and no clock, so its driver says how it goes ([`DiskPace`]):
//! a simulator by its seed. By default all that waits is committed at once.

use crate::stages::{LogStage, Outbox};
use crate::{Durability, NodeError};
use std::time::Duration;
use tercio_consensus::Instant;

/// How a node's disk keeps pace with it.
pub trait DiskPace: Send {
    /// How many of the commands that wait for the log are taken before it commits: from 1 to
    /// `waiting`.
    fn commands(&mut self, waiting: usize) -> usize;

    /// How long the next sync takes.
    fn sync(&mut self) -> Duration;
}

/// Everything at once.
struct AtOnce;

impl DiskPace for AtOnce {
    fn commands(&mut self, waiting: usize) -> usize {
        waiting
    }

    fn sync(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// The commits of a node's log.
pub(crate) struct Commits {
    durability: Durability,
    pace: Box<dyn DiskPace>,
    /// When the sync ends that is in flight. The log takes nothing meanwhile.
    busy: Option<Instant>,
    /// Until when a group gathers, with [`Durability::Group`].
    gathers: Instant,
}

impl Commits {
    pub(crate) fn new(durability: Durability) -> Self {
        Self { durability, pace: Box::new(AtOnce), busy: None, gathers: Instant(0) }
    }

    pub(crate) fn set_pace(&mut self, pace: Box<dyn DiskPace>) {
        self.pace = pace;
    }

    /// Whether the log may take commands, and do other work.
    pub(crate) fn is_free(&self) -> bool {
        self.busy.is_none()
    }

    /// When [`Self::go_on`] has something to do next.
    pub(crate) fn deadline(&self, log: &LogStage) -> Option<Instant> {
        let gathers = (log.is_dirty() && self.durability.syncs()).then_some(self.gathers);
        self.busy.or(gathers)
    }

    /// Has the log take what the pace says of what waits for it.
    pub(crate) fn take(&mut self, log: &mut LogStage, out: &mut Outbox) -> Result<(), NodeError> {
        let waiting = out.log.len();
        for _ in 0..self.pace.commands(waiting).clamp(1, waiting) {
            let command = out.log.pop_front().expect("it waits");
            log.handle(command, out)?;
        }
        Ok(())
    }

    /// Ends the sync that is in flight, or begins one, if it is time. Whether it did something.
    pub(crate) fn go_on(
        &mut self,
        log: &mut LogStage,
        out: &mut Outbox,
        now: Instant,
    ) -> Result<bool, NodeError> {
        if !log.is_dirty() || self.busy.is_some_and(|ends| now < ends) {
            return Ok(false);
        }
        if !self.durability.syncs() {
            log.commit(false, out)?;
            return Ok(true);
        }
        if self.busy.take().is_none() {
            if now < self.gathers {
                return Ok(false);
            }
            let takes = self.pace.sync();
            if !takes.is_zero() {
                log.write()?;
                self.busy = Some(now + takes);
                return Ok(true);
            }
        }
        log.commit(true, out)?;
        if let Durability::Group(pause) = self.durability {
            self.gathers = now + pause;
        }
        Ok(true)
    }
}
