//! Corrupter: signs states that nobody has.

use super::{Actor, Stage};
use crate::trace::peek_key;
use bytes::Bytes;
use tercio_types::{Checkpoint, Principal};
use tercio_wire::{Decode, Frame, Kind};

/// Puts another state digest into every CHECKPOINT, and signs that.
#[derive(Clone, Copy, Debug)]
pub struct Corrupter;

impl Actor for Corrupter {
    fn name(&self) -> &'static str {
        "corrupter"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        if peek_key(&bytes).is_none_or(|key| key.kind != Kind::CHECKPOINT) {
            return stage.send(to, bytes);
        }
        let suite = stage.forger.membership().suite();
        let Ok(frame) = Frame::decode(&bytes, suite) else { return };
        let Ok(mut checkpoint) = Checkpoint::from_bytes(&frame.body, suite) else { return };
        checkpoint.state.0[0] ^= 1;
        let lie = stage.forger.checkpoint(checkpoint);
        stage.send(to, lie);
    }
}
