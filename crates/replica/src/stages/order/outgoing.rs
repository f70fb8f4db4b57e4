//! What goes out on the links: each message is authenticated and encoded once, whoever and how many
//! get it.

use crate::stages::Outbox;
use std::sync::Arc;
use tercio_crypto::Keyring;
use tercio_types::{Authenticator, ClientId, Membership, Principal, ReplicaId, Suite, View};
use tercio_wire::reject::Reject;
use tercio_wire::{Encode, Frame, Key, Kind, Message};

/// Messages on their way to be frames.
pub(super) struct Outgoing {
    me: ReplicaId,
    suite: Suite,
    keyring: Keyring,
}

impl Outgoing {
    pub(super) fn new(me: ReplicaId, keyring: Keyring) -> Self {
        Self { me, suite: keyring.membership().suite(), keyring }
    }

    pub(super) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    pub(super) fn me(&self) -> ReplicaId {
        self.me
    }

    pub(super) fn membership(&self) -> &Arc<Membership> {
        self.keyring.membership()
    }

    pub(super) fn set_membership(&mut self, membership: Arc<Membership>) {
        self.keyring.set_membership(membership);
    }

    pub(super) fn send(&mut self, to: ReplicaId, message: &impl Message, out: &mut Outbox) {
        let keyring = &mut self.keyring;
        let to = Principal::Replica(to);
        // The protocol names members only; the tag of another would be nobody's to check.
        let tag = |said: &[u8; 52]| Authenticator::Mac(keyring.tag(to, said).unwrap_or_default());
        let frame = message.to_frame(self.me, self.suite, tag);
        out.send.push_back((to, frame.to_bytes()));
    }

    pub(super) fn broadcast(&self, message: &impl Message, out: &mut Outbox) {
        if self.keyring.membership().n() == 1 {
            return;
        }
        let keyring = &self.keyring;
        let frame = message.to_frame(self.me, self.suite, |said| keyring.mac_vector(said));
        let bytes = frame.to_bytes();
        for replica in keyring.membership().replicas().filter(|replica| *replica != self.me) {
            out.send.push_back((Principal::Replica(replica), bytes.clone()));
        }
    }

    /// Answers a client's package of this number with a REJECT.
    pub(super) fn reject(
        &mut self,
        client: ClientId,
        number: u64,
        reject: &Reject,
        view: View,
        out: &mut Outbox,
    ) {
        let body = reject.to_bytes();
        let digest = tercio_crypto::hash(self.suite, &[&body]);
        let key = Key::of_replica(Kind::REJECT, self.me, view.0, number, digest);
        let to = Principal::Client(client);
        // Only requests of known clients get this far.
        let Ok(tag) = self.keyring.tag(to, &key.to_array()) else { return };
        let frame = Frame { key, auth: Authenticator::Mac(tag), body };
        out.send.push_back((to, frame.to_bytes()));
    }
}
