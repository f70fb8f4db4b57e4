//! Those who connect and have proven nothing: what they may take.
//!
//! - **Time.** What is accepted, and what comes on a connection whose handshake is under way, waits
//!   until the links were served, and gets at most [`TURN`] of a turn of the loop. When the links were
//!   busy in that turn, nothing of it is done for [`REST`] times as long as it took; otherwise it goes
//!   on at once.
//! - **Order.** Connections from addresses of replicas come first.
//! - **Places.** When all places of handshakes are taken, one is evicted: one of those that have proven
//!   nothing, not from a replica's address, from the address that has most of them, the oldest. So a
//!   flood from a few addresses evicts itself.
//! - **Descriptors.** When the system has none left, nothing is accepted for a while; connections wait
//!   in the system's queue.

use super::{ACCEPT_PAUSE, End, Transport, now};
use crate::link::Stage;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tercio_types::{Membership, Principal, ReplicaId};

/// The most of a turn.
const TURN: Duration = Duration::from_micros(300);
/// How many times as long nothing is done.
const REST: u32 = 3;

/// Whom to look after, and when.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Slots of handshakes on which something came.
    waiting: VecDeque<usize>,
    rests_until: Option<Instant>,
    /// What the last turn took.
    took: Duration,
    /// Where replicas are: what the membership says as an address, and from where each came last.
    listed: BTreeSet<IpAddr>,
    seen: BTreeMap<ReplicaId, IpAddr>,
}

impl Strangers {
    pub(super) fn new(membership: &Membership) -> Self {
        let mut strangers = Self::default();
        strangers.set_membership(membership);
        strangers
    }

    pub(super) fn set_membership(&mut self, membership: &Membership) {
        let address = |id| membership.member(id)?.address.parse::<SocketAddr>().ok();
        self.listed = membership.replicas().filter_map(address).map(|at| at.ip()).collect();
        self.seen.retain(|id, _| membership.contains(*id));
    }

    /// A replica has proven that it is there.
    pub(super) fn seen(&mut self, peer: Principal, at: SocketAddr) {
        if let Principal::Replica(id) = peer {
            self.seen.insert(id, at.ip());
        }
    }

    fn is_of_replica(&self, at: SocketAddr) -> bool {
        self.listed.contains(&at.ip()) || self.seen.values().any(|ip| *ip == at.ip())
    }

    /// When to go on, if there is anything to be done.
    pub(super) fn due(&self, accept_at: Option<Instant>, now: Instant) -> Option<Instant> {
        let at = if self.waiting.is_empty() { accept_at } else { Some(now) };
        at.map(|at| self.rests_until.map_or(at, |until| until.max(at)))
    }

    /// After a turn: whether the links were busy in it.
    pub(super) fn rest(&mut self, busy: bool) {
        let took = std::mem::take(&mut self.took);
        if !took.is_zero() {
            // What is above it was the system's: other processes had the processor.
            self.rests_until = busy.then(|| now() + REST * took.min(TURN));
        }
    }
}

impl Transport {
    /// Leaves what came for the links in `unread`; handshakes of others wait.
    pub(super) fn set_strangers_aside(&mut self) {
        let Self { links, unread, strangers, .. } = self;
        unread.retain(|slot| {
            let Some(link) = links[*slot].as_ref().filter(|link| link.is_half_open()) else {
                return true;
            };
            if strangers.is_of_replica(link.address) {
                strangers.waiting.push_front(*slot);
            } else {
                strangers.waiting.push_back(*slot);
            }
            false
        });
    }

    /// Goes on with handshakes, and accepts connections, within what they may take.
    pub(super) fn serve_strangers(&mut self, time: Instant) {
        let rests = self.strangers.rests_until.is_some_and(|until| time < until);
        if rests || self.strangers.due(self.accept_at, time).is_none_or(|at| at > time) {
            return;
        }
        let begin = now();
        loop {
            // Who was accepted gets on before another is.
            if let Some(slot) = self.strangers.waiting.pop_front() {
                self.with_link(slot, || time, |me, slot, link| me.read(slot, link, time));
            } else if !self.accept(time) {
                break;
            }
            if now() - begin >= TURN {
                break;
            }
        }
        self.strangers.took = now() - begin;
    }

    /// Accepts one connection; false when there is none, or none can be had.
    fn accept(&mut self, now: Instant) -> bool {
        if self.accept_at.is_none_or(|at| at > now) {
            return false;
        }
        let Some(listener) = &self.listener else { return false };
        match listener.accept() {
            Ok((stream, address)) => {
                if self.half_open >= self.limits.max_half_open {
                    self.evict(now);
                }
                self.add(stream, address, None, now);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.accept_at = None;
                return false;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => {
                self.count("accept_failed", 1);
                self.accept_at = Some(now + ACCEPT_PAUSE);
                return false;
            }
        }
        true
    }

    /// Handshakes of others, in the order of their beginning.
    fn half_open(&self) -> impl Iterator<Item = (usize, &crate::link::Link)> {
        let link = |(_, slot): &(Instant, usize)| Some((*slot, &**self.links[*slot].as_ref()?));
        self.handshakes.iter().filter_map(link).filter(|(_, link)| link.is_half_open())
    }

    fn evict(&mut self, now: Instant) {
        let mut of_address = BTreeMap::<IpAddr, usize>::new();
        self.half_open()
            .for_each(|(_, link)| *of_address.entry(link.address.ip()).or_default() += 1);
        // The first of the least: a correct peer needs a few round trips, while a flood only sits there.
        let worth = |link: &crate::link::Link| {
            let proven = matches!(link.stage, Stage::AwaitConfirm(_));
            let of_replica = self.strangers.is_of_replica(link.address);
            (proven, of_replica, Reverse(of_address.get(&link.address.ip()).copied()))
        };
        let least = self.half_open().min_by_key(|(_, link)| worth(link)).map(|(slot, _)| slot);
        if let Some(slot) = least {
            self.with_link(slot, || now, |_, _, _| Err(End::Evicted));
        }
    }

    /// One identity may have two handshakes to be confirmed, so that it cannot take the places of
    /// others: the oldest give way.
    pub(super) fn evict_of(&mut self, peer: Principal, now: Instant) {
        let is_its = |link: &crate::link::Link| matches!(&link.stage, Stage::AwaitConfirm(answering) if answering.from == peer);
        let its: Vec<usize> =
            self.half_open().filter(|(_, link)| is_its(link)).map(|(slot, _)| slot).collect();
        for slot in its.iter().take(its.len().saturating_sub(1)) {
            self.with_link(*slot, || now, |_, _, _| Err(End::Evicted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_wait_three_times_as_long_as_they_took_while_links_are_busy() {
        let begin = now();
        let mut strangers = Strangers::default();
        assert_eq!(strangers.due(None, begin), None, "there is nothing to do");
        assert_eq!(strangers.due(Some(begin), begin), Some(begin));
        strangers.took = 2 * TURN;
        strangers.rest(true);
        // Turns in which nothing was done for them do not end that.
        strangers.rest(true);
        strangers.rest(false);
        strangers.waiting.push_back(1);
        let due = strangers.due(Some(begin), begin).unwrap();
        assert!(due >= begin + 3 * TURN, "{:?}", due - begin);
        strangers.took = 2 * TURN;
        strangers.rest(false);
        assert_eq!(strangers.due(None, begin), Some(begin), "nobody else wants the time");
    }
}
