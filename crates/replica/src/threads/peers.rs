//! Which of the other replicas there is a link to, since when, and what is wrong with the rest.

use super::Clock;
use crate::PeerStatus;
use tercio_consensus::Instant;
use tercio_transport::{Transport, TransportEvent};
use tercio_types::{Principal, ReplicaId};

struct Peer {
    id: ReplicaId,
    linked: bool,
    since: Instant,
    /// When a frame last came from it.
    heard: Option<Instant>,
    /// Why the last handshake of somebody who claimed to be it failed.
    refused: Option<String>,
}

/// The other replicas.
pub(super) struct Peers {
    clock: Clock,
    all: Vec<Peer>,
}

impl Peers {
    /// `others` in ascending order.
    pub(super) fn new(others: impl Iterator<Item = ReplicaId>, clock: Clock) -> Self {
        let since = clock.now();
        let peer = |id| Peer { id, linked: false, since, heard: None, refused: None };
        Self { clock, all: others.map(peer).collect() }
    }

    fn get(&mut self, id: ReplicaId) -> Option<&mut Peer> {
        let place = self.all.binary_search_by_key(&id, |peer| peer.id).ok()?;
        Some(&mut self.all[place])
    }

    /// Takes note that a frame came on the link of `from`.
    pub(super) fn hear(&mut self, from: Principal, now: Instant) {
        if let Principal::Replica(id) = from
            && let Some(peer) = self.get(id)
        {
            peer.heard = Some(now);
        }
    }

    /// Takes note of what happened to a link.
    pub(super) fn note(&mut self, event: &TransportEvent) {
        let now = self.clock.now();
        match event {
            TransportEvent::Connected(Principal::Replica(id)) => {
                if let Some(peer) = self.get(*id) {
                    (peer.linked, peer.since, peer.refused) = (true, now, None);
                }
            }
            TransportEvent::Disconnected(Principal::Replica(id), why) => {
                if let Some(peer) = self.get(*id) {
                    (peer.linked, peer.since, peer.refused) = (false, now, Some(why.to_string()));
                }
            }
            TransportEvent::Rejected {
                claimed: Some(Principal::Replica(id)),
                peer_addr,
                reason,
                ..
            } => {
                if let Some(peer) = self.get(*id) {
                    let ip = peer_addr.ip();
                    peer.refused =
                        Some(format!("somebody at {ip} who says to be it is refused: {reason}"));
                }
            }
            _ => {}
        }
    }

    /// How each is doing.
    pub(super) fn status(&self, transport: &Transport) -> Vec<PeerStatus> {
        let now = self.clock.now();
        let status = |peer: &Peer| {
            let dialled = transport.last_error(peer.id).map(ToString::to_string);
            let problem = if peer.linked { None } else { dialled.or_else(|| peer.refused.clone()) };
            let heard = peer.heard.map(|at| now.since(at));
            let since = now.since(peer.since);
            PeerStatus { id: peer.id, linked: peer.linked, since, heard, problem }
        };
        self.all.iter().map(status).collect()
    }
}
