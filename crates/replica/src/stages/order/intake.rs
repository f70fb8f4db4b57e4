//! What comes on the links: frames gather until there are enough for a batch of signatures, and a
//! client with much useless noise is not heard.

use crate::node::VerifySettings;
use crate::stages::manners::Manners;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_crypto::{Checked, Keyring};
use tercio_types::{ClientId, Membership, Principal};
use tercio_verify::{Dropped, HostVerify, Inbound};
use tercio_wire::Message;

/// Frames on their way to be messages.
pub(super) struct Intake<M> {
    verifier: HostVerify<M>,
    /// How long a frame waits for company, and until when the first that waits does.
    gather: Duration,
    verify_by: Option<Instant>,
    manners: Manners,
}

impl<M: Message> Intake<M> {
    pub(super) fn new(keyring: Keyring, settings: VerifySettings) -> Self {
        Self {
            verifier: HostVerify::new(keyring, settings.batch),
            gather: settings.gather,
            verify_by: None,
            manners: Manners::default(),
        }
    }

    pub(super) fn set_membership(&mut self, membership: Arc<Membership>) {
        self.verifier.set_membership(membership);
    }

    /// A frame of the client's was of no use.
    pub(super) fn note_useless(&mut self, client: ClientId) {
        self.manners.note(client);
    }

    /// Whether the client's frames are to be looked at.
    pub(super) fn listens_to(&mut self, client: ClientId, now: Instant) -> bool {
        self.manners.listens_to(client, now)
    }

    /// What a frame is, unless it waits for others to be verified with.
    pub(super) fn receive(
        &mut self,
        from: Principal,
        bytes: &Bytes,
        now: Instant,
    ) -> Option<Result<Inbound<M>, Dropped>> {
        let result = self.verifier.receive(from, bytes);
        if result.is_none() {
            self.verify_by.get_or_insert(now + self.gather);
        }
        result
    }

    pub(super) fn waits(&self) -> bool {
        self.verifier.waits()
    }

    pub(super) fn must_verify(&self, drained: bool, now: Instant) -> bool {
        self.verify_by.is_some_and(|by| drained || by <= now || self.verifier.is_full())
    }

    /// Verifies all that waits for it.
    pub(super) fn verify(&mut self) -> Vec<(Principal, Result<Inbound<M>, Dropped>)> {
        self.verify_by = None;
        self.verifier.decide()
    }

    /// What was dropped, by reason.
    pub(super) fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        self.verifier.dropped()
    }

    /// How many signatures were checked, and how.
    pub(super) fn checked(&self) -> Checked {
        self.verifier.checked()
    }
}
