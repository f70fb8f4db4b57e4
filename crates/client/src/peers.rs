//! What a client thinks of each replica: whether it is linked, which view it has reached, and
//! whether it is worth naming as a replier.

use crate::Nanos;
use std::sync::Arc;
use std::time::Duration;
use tercio_types::{Membership, ReplicaId, ReplicaSet, View};

/// For how long a silent replier is passed over the first time.
const FIRST_PENALTY: Duration = Duration::from_millis(100);
/// How often that doubles.
const MAX_DOUBLINGS: u32 = 7;

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    view: View,
    passed_over_until: Nanos,
    strikes: u32,
}

#[derive(Debug)]
pub(crate) struct Peers {
    membership: Arc<Membership>,
    peers: Vec<Peer>,
    connected: ReplicaSet,
    view: View,
}

impl Peers {
    pub(crate) fn new(membership: Arc<Membership>) -> Self {
        let peers = vec![Peer::default(); membership.n()];
        Self { membership, peers, connected: ReplicaSet::EMPTY, view: View(0) }
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

    /// Whether it makes sense to wait for a result from `replica`.
    pub(crate) fn answers(&self, replica: ReplicaId, now: Nanos) -> bool {
        self.is_connected(replica) && self.peers[replica.index()].passed_over_until <= now
    }

    /// The one that is to send the result of package number `turn`.
    pub(crate) fn replier(&self, turn: u64, now: Nanos) -> ReplicaId {
        self.pick(turn, now, |_| true).unwrap_or_else(|| self.membership.primary(View(turn)))
    }

    /// One of those that are `wanted`, beginning with that of `turn`; better one that answers.
    pub(crate) fn pick(
        &self,
        turn: u64,
        now: Nanos,
        wanted: impl Fn(ReplicaId) -> bool,
    ) -> Option<ReplicaId> {
        let n = self.membership.n() as u64;
        let circle = || (0..n).map(|i| self.membership.primary(View(turn % n + i)));
        let linked = || circle().filter(|r| self.is_connected(*r) && wanted(*r));
        linked().find(|r| self.answers(*r, now)).or_else(|| linked().next())
    }

    /// The replier of a result that others agreed on was silent. It is passed over for a while,
    /// twice as long as the last time; packages that were under way meanwhile do not count.
    pub(crate) fn was_silent(&mut self, replica: ReplicaId, now: Nanos) {
        let peer = &mut self.peers[replica.index()];
        if peer.passed_over_until > now {
            return;
        }
        peer.passed_over_until = now + FIRST_PENALTY * (1 << peer.strikes);
        peer.strikes = (peer.strikes + 1).min(MAX_DOUBLINGS);
    }

    /// It sent a result.
    pub(crate) fn sent_result(&mut self, replica: ReplicaId) {
        let peer = &mut self.peers[replica.index()];
        peer.passed_over_until = Nanos(0);
        peer.strikes = 0;
    }
}
