//! A client that lies: its frames go out with MACs that are good for some replicas only, or say
//! one thing to some replicas and another to others, under the same number. Underneath is a real
//! client, which signs once it is told to.

use crate::forger::spoil;
use crate::trace::peek_key;
use crate::{Cast, FalseClient, Rng};
use bytes::Bytes;
use std::sync::Arc;
use tercio_types::{ClientId, Membership, Package, ReplicaId, ReplicaSet};
use tercio_wire::{Frame, Kind, package_from_content};

/// What a lying client makes of an honest one's frames.
pub(crate) struct Liar {
    client: FalseClient,
    membership: Arc<Membership>,
    rng: Rng,
    /// How many packages in a thousand get wrong MACs.
    wrong_macs: u64,
    /// How many in a thousand get a second face.
    two_faces: u64,
}

impl Liar {
    pub(crate) fn new(cast: &Cast, id: ClientId, mut rng: Rng) -> Self {
        let (wrong_macs, two_faces) = (rng.below(300), rng.below(300));
        let (client, membership) = (FalseClient::new(cast, id), cast.membership().clone());
        Self { client, membership, rng, wrong_macs, two_faces }
    }

    /// The frame that goes out instead, and the package in it if it is another one.
    pub(crate) fn twist(&mut self, to: ReplicaId, bytes: Bytes) -> (Bytes, Option<Package>) {
        if peek_key(&bytes).is_none_or(|key| key.kind != Kind::REQUEST) {
            return (bytes, None);
        }
        let suite = self.membership.suite();
        let Ok(frame) = Frame::decode(&bytes, suite) else { return (bytes, None) };
        let package = package_from_content(&frame.body, frame.auth.clone(), suite);
        let Ok(package) = package else { return (bytes, None) };
        // One way of lying for each package, whoever gets it and however often.
        let mut rng = Rng::new(self.rng.clone().bits() ^ package.first.0);
        if rng.chance(self.wrong_macs) {
            let wrong = ReplicaSet(u128::from(rng.bits()));
            let auth = spoil(frame.auth, &self.membership, |replica| wrong.contains(replica));
            return (Frame { auth, ..frame }.to_bytes(), None);
        }
        let other = ReplicaSet(u128::from(rng.bits()));
        if rng.chance(self.two_faces) && other.contains(to) {
            let package = self.client.other_face(&package);
            return (self.client.request(&package), Some(package));
        }
        (bytes, None)
    }
}
