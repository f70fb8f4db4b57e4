//! An attacker's links, which prove its identity as anybody's do.

use super::Means;
use crate::Trouble;
use bytes::Bytes;
use std::time::Duration;
use tercio_crypto::SecretKey;
use tercio_network::{now, pause};
use tercio_transport::{Limits, Settings, Transport, TransportEvent};
use tercio_types::{Principal, ReplicaId};

/// How long to wait for links at first, and how much may wait to be sent on one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Links to all replicas that one may dial.
pub(super) struct Links {
    transport: Transport,
    events: Vec<TransportEvent>,
    to: Vec<ReplicaId>,
    /// How much may wait for one replica.
    room: usize,
    sent: u64,
}

impl Links {
    /// Dials, and waits for a while for the links to be open.
    pub(super) fn open(
        means: &Means,
        me: Principal,
        secret: SecretKey,
        room: usize,
    ) -> Result<Self, Trouble> {
        let mut links = Self { room, ..Self::dial(means, me, secret)? };
        let start = now();
        while !links.all_open() && start.elapsed() < PATIENCE && !means.stopped() {
            links.turn(Duration::from_millis(10));
        }
        Ok(links)
    }

    /// Begins to dial with the first turn.
    pub(super) fn dial(means: &Means, me: Principal, secret: SecretKey) -> Result<Self, Trouble> {
        let membership = means.membership.clone();
        let to: Vec<_> = (membership.replicas())
            .filter(|id| match me {
                Principal::Replica(me) => *id < me,
                Principal::Client(_) => true,
            })
            .collect();
        let limits = Limits { max_queue: 256 << 20, ..Limits::default() };
        let settings = Settings { me, secret, membership, listen: None, limits };
        let transport =
            Transport::bind(settings).map_err(|error| Trouble::Means(error.to_string()))?;
        Ok(Self { transport, events: vec![], to, room: 0, sent: 0 })
    }

    fn all_open(&self) -> bool {
        self.count_open() == self.to.len() as u64
    }

    pub(super) fn count_open(&self) -> u64 {
        let open = |id: &&ReplicaId| self.transport.is_connected(Principal::Replica(**id));
        self.to.iter().filter(open).count() as u64
    }

    /// Works on the links; what is answered goes unread.
    pub(super) fn turn(&mut self, wait: Duration) {
        self.transport.poll(Some(wait), &mut self.events);
        self.events.clear();
    }

    /// Whether a link has room for another frame.
    pub(super) fn has_room(&self) -> bool {
        let room = |id: &ReplicaId| {
            let peer = Principal::Replica(*id);
            self.transport.is_connected(peer) && self.transport.queued_bytes(peer) < self.room
        };
        self.to.iter().any(room)
    }

    /// Sends a frame to every replica whose link has room for it.
    pub(super) fn send(&mut self, frame: &Bytes) {
        for id in &self.to {
            let peer = Principal::Replica(*id);
            if self.transport.queued_bytes(peer) < self.room
                && self.transport.send(peer, frame.clone()).is_ok()
            {
                self.sent += 1;
            }
        }
    }

    /// How many frames went into links.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

/// A rate that is not exceeded: what a flood costs its sender must not be what slows the machine.
pub(super) struct Rate {
    start: std::time::Instant,
    step: Duration,
    done: u32,
}

impl Rate {
    pub(super) fn a_second(count: u32) -> Self {
        Self { start: now(), step: Duration::from_secs(1) / count, done: 0 }
    }

    /// Notes so many; waits when that is more than the rate allows.
    pub(super) fn spend(&mut self, count: u32) {
        self.done += count;
        let due = self.start + self.step * self.done;
        let time = now();
        if due > time {
            pause(due - time);
        } else {
            // What could not be sent is not made up for.
            (self.start, self.done) = (time, 0);
        }
    }
}
