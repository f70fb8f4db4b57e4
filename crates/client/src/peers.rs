//! What a client thinks of each replica: whether it is linked, which view it has reached, and
//! whether it is worth naming as a replier.

use crate::Nanos;
use std::sync::Arc;
use std::time::Duration;
use tercio_types::{Membership, ReplicaId, ReplicaSet, View};

/// Exponential back-off of a silent replier: for how long it is passed over the first time.
const FIRST_PENALTY: Duration = Duration::from_millis(100);
/// How often that doubles at most.
const MAX_DOUBLINGS: u32 = 7;
/// Time-out of a replier, in usual round trips, and the least.
const PATIENCE_TRIPS: u64 = 8;
const LEAST_PATIENCE: Duration = Duration::from_millis(2);
/// Time-out of the primary in round trips; at least the time of the settings.
const TIMEOUT_TRIPS: u64 = 4;
/// What a round trip is taken to be before the first.
const FIRST_TRIP: u64 = 50_000_000;
/// How many packages in a row show that the estimate is far too low, and not one replica slow.
const FAR: u32 = 8;

/// A replica that failed as a replier has `strikes`. It is passed over from then on, but for one
/// package at a time (`probe`) once its penalty is over, which shows whether it answers again.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    view: View,
    strikes: u32,
    penalty_until: Nanos,
    probe: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Peers {
    membership: Arc<Membership>,
    peers: Vec<Peer>,
    connected: ReplicaSet,
    view: View,
    /// About the median of the round trips, in nanoseconds.
    trip: u64,
    /// How many in a row took more than twice as long.
    far: u32,
}

impl Peers {
    pub(crate) fn new(membership: Arc<Membership>) -> Self {
        let peers = vec![Peer::default(); membership.ids().bound()];
        Self {
            membership,
            peers,
            connected: ReplicaSet::EMPTY,
            view: View(0),
            trip: FIRST_TRIP,
            far: 0,
        }
    }

    pub(crate) fn connected(&self) -> ReplicaSet {
        self.connected
    }

    pub(crate) fn is_connected(&self, replica: ReplicaId) -> bool {
        self.connected.contains(replica)
    }

    pub(crate) fn connect(&mut self, replica: ReplicaId) {
        self.connected.insert(replica);
    }

    pub(crate) fn disconnect(&mut self, replica: ReplicaId) {
        self.connected = self.connected.iter().filter(|r| *r != replica).collect();
    }

    pub(crate) fn view(&self) -> View {
        self.view
    }

    pub(crate) fn primary(&self) -> ReplicaId {
        self.membership.primary(self.view)
    }

    /// Takes a replica's word on its view; true when that moved the view that f+1 have reached.
    pub(crate) fn saw_view(&mut self, replica: ReplicaId, view: View) -> bool {
        let peer = &mut self.peers[replica.index()];
        if view <= peer.view {
            return false;
        }
        peer.view = view;
        let mut views: Vec<View> = self.peers.iter().map(|p| p.view).collect();
        views.sort_unstable_by(|a, b| b.cmp(a));
        let reached = views[self.membership.reply_threshold() - 1];
        let moved = reached > self.view;
        self.view = self.view.max(reached);
        moved
    }

    /// Whether it makes sense to wait for the result of package number `turn` from `replica`.
    pub(crate) fn answers(&self, replica: ReplicaId, turn: u64) -> bool {
        let peer = &self.peers[replica.index()];
        self.is_connected(replica) && (peer.strikes == 0 || peer.probe == Some(turn))
    }

    /// A package came back after so long. The estimate moves by a small step towards it, so that
    /// one replica's delays do not move it far; by a longer one when many in a row took twice as
    /// long, as in the beginning on links across the world.
    pub(crate) fn took(&mut self, trip: Duration) {
        let far = trip > Duration::from_nanos(self.trip.saturating_mul(2));
        self.far = if far { self.far.saturating_add(1) } else { 0 };
        let step = if self.far > FAR { self.trip / 2 + 1 } else { self.trip / 16 + 1 };
        if trip > Duration::from_nanos(self.trip) {
            self.trip = self.trip.saturating_add(step);
        } else {
            self.trip = self.trip.saturating_sub(step);
        }
    }

    /// How long a replier may stay silent once f+1 agree: a few round trips, at most `most`; but no
    /// less than a quarter of one, by which it may just be farther away than they are.
    pub(crate) fn patience(&self, most: Duration) -> Duration {
        let most = most.max(Duration::from_nanos(self.trip / 4));
        Duration::from_nanos(PATIENCE_TRIPS.saturating_mul(self.trip)).max(LEAST_PATIENCE).min(most)
    }

    /// How long to wait before all replicas are asked: a few round trips, and at least `least`.
    pub(crate) fn timeout(&self, least: Duration) -> Duration {
        Duration::from_nanos(TIMEOUT_TRIPS.saturating_mul(self.trip)).max(least)
    }

    /// The longest pause between two times that all are asked: `most`, or two round trips when those
    /// are longer, so that what is on its way is not asked for again and again.
    pub(crate) fn longest_pause(&self, most: Duration) -> Duration {
        most.max(Duration::from_nanos(self.trip.saturating_mul(2)))
    }

    /// The one that is to send the result of package number `turn`: whose turn it is, or the next
    /// that is trusted.
    pub(crate) fn replier(&mut self, turn: u64, now: Nanos) -> ReplicaId {
        let Some(next) = self.pick(turn, |_| true) else {
            return self.membership.primary(View(turn));
        };
        let due = self.membership.primary(View(turn % self.membership.n() as u64));
        let peer = &mut self.peers[due.index()];
        let free = peer.probe.is_none_or(|other| other == turn);
        let probes = peer.strikes > 0 && free && peer.penalty_until <= now;
        if probes && self.connected.contains(due) {
            peer.probe = Some(turn);
            return due;
        }
        next
    }

    /// One of those that are `wanted`, beginning with that of `turn`; better one that is trusted.
    pub(crate) fn pick(&self, turn: u64, wanted: impl Fn(ReplicaId) -> bool) -> Option<ReplicaId> {
        let n = self.membership.n() as u64;
        let circle = || (0..n).map(|i| self.membership.primary(View(turn % n + i)));
        let linked = || circle().filter(|r| self.is_connected(*r) && wanted(*r));
        let trusted = |r: &ReplicaId| self.peers[r.index()].strikes == 0;
        linked().find(trusted).or_else(|| linked().next())
    }

    /// The replier of package number `turn` did not send the result that others agreed on. Only
    /// the first such package counts, and later those that were to show whether it has recovered.
    pub(crate) fn was_silent(&mut self, replica: ReplicaId, turn: u64, now: Nanos) {
        let peer = &mut self.peers[replica.index()];
        if peer.strikes == 0 || peer.probe == Some(turn) {
            peer.penalty_until = now + FIRST_PENALTY * (1 << peer.strikes.min(MAX_DOUBLINGS));
            peer.strikes += 1;
            peer.probe = None;
        }
    }

    /// It sent a result.
    pub(crate) fn sent_result(&mut self, replica: ReplicaId) {
        let peer = &mut self.peers[replica.index()];
        (peer.strikes, peer.probe) = (0, None);
    }

    /// Package number `turn`, whose replier it was, is over: what it did not show the next must.
    pub(crate) fn ended(&mut self, replica: ReplicaId, turn: u64) {
        let peer = &mut self.peers[replica.index()];
        if peer.probe == Some(turn) {
            peer.probe = None;
        }
    }
}
