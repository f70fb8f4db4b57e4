//! Censor: does not hear one client, neither from the client itself nor through others. As primary
//! it orders everybody else's requests at full speed.

use super::{Actor, Stage};
use bytes::Bytes;
use tercio_types::{ClientId, Principal};
use tercio_wire::{Forward, Frame, Kind, Message};

/// Ignores a client.
#[derive(Clone, Copy, Debug)]
pub struct Censor {
    client: ClientId,
}

impl Censor {
    /// Ignores `client`.
    #[must_use]
    pub fn new(client: u64) -> Self {
        Self { client: ClientId(client) }
    }
}

impl Actor for Censor {
    fn name(&self) -> &'static str {
        "censor"
    }

    fn receive(&mut self, from: Principal, bytes: &Bytes, stage: &mut Stage<'_>) -> bool {
        if from == Principal::Client(self.client) {
            return false;
        }
        let suite = stage.forger.membership().suite();
        let Ok(frame) = Frame::decode(bytes, suite) else { return true };
        match frame.key.kind {
            Kind::FORWARD => Forward::from_frame(&frame, suite)
                .map_or(true, |forward| forward.0.client != self.client),
            _ => true,
        }
    }
}
