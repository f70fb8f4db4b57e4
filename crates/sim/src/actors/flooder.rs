//! Flooder: now and then sends votes and proposals for numbers far ahead of everybody, each for
//! another number, to fill the others' memory.

use super::{Actor, Stage};
use bytes::Bytes;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Digest, Principal, SeqNum, View};

/// Sends votes for numbers far ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flooder {
    sent: u64,
}

impl Flooder {
    /// One that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Actor for Flooder {
    fn name(&self) -> &'static str {
        "flooder"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        stage.send(to, bytes);
        if !stage.rng.chance(100) {
            return;
        }
        for _ in 0..8 {
            self.sent += 1;
            let far = if stage.rng.chance(500) { 1 } else { 1_000 };
            let (view, seq) = (View(stage.rng.below(4)), SeqNum(self.sent * far));
            let digest = Digest([self.sent as u8; 32]);
            let vote = if stage.rng.chance(500) {
                PbftMessage::Prepare { view, seq, digest }
            } else {
                PbftMessage::Commit { view, seq, digest }
            };
            let frame = stage.forger.message(&vote);
            stage.send(to, frame);
        }
    }
}
