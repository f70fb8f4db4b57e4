//! DoubleVoter: sends every third receiver votes for a batch that does not exist, and often the
//! true vote after it.

use super::{Actor, Stage};
use crate::checks::kinds;
use crate::trace::peek_key;
use bytes::Bytes;
use tercio_types::{Digest, Principal};
use tercio_wire::Key;

/// Votes twice.
#[derive(Clone, Copy, Debug)]
pub struct DoubleVoter;

impl Actor for DoubleVoter {
    fn name(&self) -> &'static str {
        "double voter"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        let vote = peek_key(&bytes)
            .filter(|key| matches!(key.kind, kinds::PREPARE | kinds::COMMIT))
            .filter(|_| stage.rng.chance(333));
        let Some(key) = vote else { return stage.send(to, bytes) };
        let mut digest = key.digest.0;
        digest[0] ^= 0xff;
        let lie = stage.forger.maced(Key { digest: Digest(digest), ..key }, Bytes::new());
        stage.send(to, lie);
        if stage.rng.chance(500) {
            stage.send(to, bytes);
        }
    }
}
