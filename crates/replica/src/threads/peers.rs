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
    /// Why the last handshake of somebody who claimed to be it failed.
    refused: Option<String>,
}

/// The other replicas.
pub(super) struct Peers {
    clock: Clock,
    all: Vec<Peer>,
}

impl Peers {
    pub(super) fn new(others: impl Iterator<Item = ReplicaId>, clock: Clock) -> Self {
        let since = clock.now();
        let peer = |id| Peer { id, linked: false, since, refused: None };
        Self { clock, all: others.map(peer).collect() }
    }

    fn get(&mut self, id: ReplicaId) -> Option<&mut Peer> {
        self.all.iter_mut().find(|peer| peer.id == id)
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
            PeerStatus { id: peer.id, linked: peer.linked, since: now.since(peer.since), problem }
        };
        self.all.iter().map(status).collect()
    }
}
