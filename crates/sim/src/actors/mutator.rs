//! Mutator: small changes to honest votes (Winter et al., ByzzFuzz, OOPSLA 2023): the view or the
//! number off by one, or a stale vote once more; correctly authenticated.

use super::{Actor, Stage};
use crate::checks::kinds;
use crate::trace::peek_key;
use bytes::Bytes;
use tercio_types::Principal;
use tercio_wire::Key;

/// Sends slightly wrong votes.
#[derive(Clone, Copy, Debug)]
pub struct Mutator;

impl Actor for Mutator {
    fn name(&self) -> &'static str {
        "mutator"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        let vote = peek_key(&bytes).filter(|k| matches!(k.kind, kinds::PREPARE | kinds::COMMIT));
        let Some(key) = vote.filter(|_| stage.rng.chance(250)) else {
            return stage.send(to, bytes);
        };
        let mutated = match stage.rng.below(5) {
            0 => Key { view: key.view + 1, ..key },
            1 => Key { view: key.view.saturating_sub(1), ..key },
            2 => Key { seq: key.seq + 1, ..key },
            3 => Key { seq: key.seq.saturating_sub(1), ..key },
            _ => {
                let kind = if key.kind == kinds::PREPARE { kinds::COMMIT } else { kinds::PREPARE };
                Key { kind, ..key }
            }
        };
        let frame = stage.forger.maced(mutated, Bytes::new());
        stage.send(to, frame);
        if stage.rng.chance(500) {
            stage.send(to, bytes);
        }
    }
}
