//! Heartbeats: links between replicas over which nothing comes any more.
//!
//! TCP notices a cut late: without traffic never, and with some it tries again after pauses that
//! double, so that a link can be dead for as long after a cut as the cut was long. So a replica that
//! sent nothing to another for a quarter of [`crate::Limits::link_timeout`] sends a heartbeat, and a
//! link on which nothing came for all of it is taken down, and dialled again.
//!
//! A replica that was itself away (stopped, starved, at work for long) judges nobody before it has
//! looked once more.

use super::{End, Transport};
use crate::Disconnect;
use crate::inbox::HEARTBEAT;
use bytes::Bytes;
use std::time::{Duration, Instant};

/// When to look after the links to other replicas.
#[derive(Debug)]
pub(super) struct Alive {
    /// Clients send no heartbeats and expect none.
    is_replica: bool,
    beat_at: Instant,
    look_at: Instant,
}

impl Alive {
    pub(super) fn new(is_replica: bool, now: Instant) -> Self {
        Self { is_replica, beat_at: now, look_at: now }
    }
}

impl Transport {
    fn interval(&self) -> Duration {
        self.limits.link_timeout / 4
    }

    /// When the next heartbeat or look is due.
    pub(super) fn alive_due(&self) -> Option<Instant> {
        let due = self.alive.beat_at.min(self.alive.look_at);
        (self.alive.is_replica && !self.replicas.is_empty()).then_some(due)
    }

    /// Queues a heartbeat for each replica that was sent nothing since the last time.
    pub(super) fn beat(&mut self, now: Instant) {
        if !self.alive.is_replica || self.replicas.is_empty() || now < self.alive.beat_at {
            return;
        }
        self.alive.beat_at = now + self.interval();
        for slot in self.replicas.values() {
            let Some(link) = &mut self.links[*slot] else { continue };
            if !std::mem::take(&mut link.spoke) && link.outbox.is_empty() {
                link.outbox.push(Bytes::from_static(&HEARTBEAT));
                self.unwritten.push(*slot);
            }
        }
    }

    /// Takes down links on which nothing came for too long.
    pub(super) fn end_silent(&mut self, now: Instant) {
        if !self.alive.is_replica || now < self.alive.look_at {
            return;
        }
        let was_away = now - self.alive.look_at > self.interval();
        self.alive.look_at = now + self.interval();
        if was_away {
            return;
        }
        let is_silent = |slot: &usize| {
            let link = self.links[*slot].as_ref();
            // What is still to be read may be a heartbeat.
            link.is_some_and(|l| !l.readable && now - l.heard >= self.limits.link_timeout)
        };
        let silent: Vec<usize> = self.replicas.values().copied().filter(is_silent).collect();
        for slot in silent {
            self.with_link(slot, || now, |_, _, _| Err(End::Broken(Disconnect::Silent)));
        }
    }
}
