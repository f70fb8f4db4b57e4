//! Who is of no help is dropped, and named; when nobody is, another round begins after a pause.

use super::{Peer, Phase, Question, Standing, Transfer, TransferStep, Wanted};
use tercio_consensus::Instant;
use tercio_types::ReplicaId;
use tercio_types::zoo::{Defence, stands};

impl Transfer {
    /// A source is of no help any more in this round. It is named.
    pub(super) fn drop_peer(&mut self, replica: ReplicaId, reason: &'static str, now: Instant) {
        self.drop_reason(reason);
        self.status.drop_source(replica, reason);
        let peer = self.peers.get_mut(&replica).expect("a peer");
        peer.standing = Standing::Dropped;
        self.put_back(replica);
        self.go_on(now);
    }

    /// What a peer was asked for is to be asked of others.
    pub(super) fn put_back(&mut self, replica: ReplicaId) {
        let peer = self.peers.get_mut(&replica).expect("a peer");
        for question in std::mem::take(&mut peer.out).into_values() {
            match question {
                Question::Offer => {}
                Question::Nodes(nodes) => self.nodes.extend(nodes),
                Question::Chunks(chunks) => {
                    let whole = |wanted| Wanted { begun: Vec::new(), ..wanted };
                    self.chunks.extend(chunks.into_iter().map(whole));
                }
            }
        }
    }

    /// Nobody can help now; perhaps somebody can later.
    pub(super) fn pause(&mut self, now: Instant) {
        let peers: Vec<_> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|replica| self.put_back(replica));
        self.set_phase(Phase::Pausing(now + self.settings.timeout));
    }

    /// When to call [`Self::on_timeout`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Asking(until) | Phase::Pausing(until) => Some(until),
            Phase::Fetching => {
                let waiting = self.peers.values().filter(|peer| !peer.out.is_empty());
                waiting.map(|peer| peer.heard + 4 * self.settings.timeout).min()
            }
            Phase::Idle | Phase::Own(_) | Phase::Installing => None,
        }
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        match self.phase {
            Phase::Asking(_) => self.choose(now),
            // What is fetched is kept; who was dropped has another chance.
            Phase::Pausing(_) if self.target.is_some() => self.ask_all(now),
            Phase::Pausing(_) => self.end("nobody", Some(TransferStep::Blocks)),
            _ => {
                let late = 4 * self.settings.timeout;
                let stalled = |peer: &Peer| !peer.out.is_empty() && peer.heard + late <= now;
                let found = self.peers.iter().find(|(_, peer)| stalled(peer));
                if let Some((&replica, _)) = found {
                    if stands(Defence::F24SwitchSource) {
                        self.drop_peer(replica, "state_timed_out", now);
                    } else if let Some(peer) = self.peers.get_mut(&replica) {
                        peer.heard = now;
                    }
                }
            }
        }
    }
}
