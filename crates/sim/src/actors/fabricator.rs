//! Fabricator: its VIEW-CHANGEs claim that batches prepared which nobody has seen, or that nothing
//! did, and tell different replicas different things.

use super::{Actor, Stage};
use crate::Rng;
use crate::checks::kinds;
use crate::trace::peek_key;
use bytes::Bytes;
use tercio_consensus::pbft::{Claimed, ViewChange};
use tercio_types::{Digest, Principal, SeqNum, View};

/// Lies about what it prepared.
#[derive(Clone, Copy, Debug)]
pub struct Fabricator;

/// A VIEW-CHANGE for `view` without a word of truth, in proper form.
pub(super) fn lie(view: View, rng: &mut Rng) -> ViewChange {
    let claims = if rng.chance(300) { 0 } else { rng.below(6) };
    let before = rng.below(view.0.max(1));
    let claims: Vec<_> = (1..=claims)
        .map(|seq| Claimed {
            seq: SeqNum(seq),
            digest: if rng.chance(300) { Digest::NULL } else { Digest([rng.bits() as u8; 32]) },
            view: View(before),
        })
        .collect();
    let prepared = claims.clone();
    ViewChange { view, stable: None, prepared, preprepared: claims, blamed: vec![] }
}

impl Actor for Fabricator {
    fn name(&self) -> &'static str {
        "fabricator"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        let key = peek_key(&bytes).filter(|key| key.kind == kinds::VIEW_CHANGE);
        let Some(key) = key.filter(|_| stage.rng.chance(700)) else {
            return stage.send(to, bytes);
        };
        let content = lie(View(key.view), stage.rng);
        let frame = stage.forger.view_change(content);
        stage.send(to, frame);
    }
}
