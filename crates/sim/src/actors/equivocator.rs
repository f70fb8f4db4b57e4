//! Equivocator: as primary it proposes two batches for one number, one to some backups and one to
//! the others, and votes for both.

use super::{Actor, Stage, as_replica};
use crate::checks::kinds;
use crate::trace::peek_key;
use crate::{Forger, Rng};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Batch, Digest, Principal, ReplicaSet, Timestamp};
use tercio_wire::{EncodedBatch, Frame, Key, Message};

/// A number with two proposals.
struct Double {
    /// Who gets the second one.
    side: ReplicaSet,
    first: Digest,
    second: Digest,
    frame: Bytes,
}

/// Proposes twice.
pub struct Equivocator {
    rng: Rng,
    side: Option<ReplicaSet>,
    doubles: BTreeMap<(u64, u64), Double>,
    /// Whether everybody gets both proposals, one after the other.
    insists: bool,
}

/// The batch with another time: as valid as the first, and with another digest.
fn variant(forger: &Forger, batch: &Batch) -> Arc<EncodedBatch> {
    let time = Timestamp(batch.time.0 + 1);
    let batch = Batch { time, ..batch.clone() };
    Arc::new(EncodedBatch::new(batch, forger.membership().suite()))
}

impl Equivocator {
    /// Takes other sides for each number.
    #[must_use]
    pub fn new(mut rng: Rng) -> Self {
        let insists = rng.chance(300);
        Self { rng, side: None, doubles: BTreeMap::new(), insists }
    }

    /// Gives the second proposal to `side` and the first to the others; with `insists` each gets
    /// the other one too, after its own.
    #[must_use]
    pub fn between(side: ReplicaSet, insists: bool) -> Self {
        Self { rng: Rng::new(0), side: Some(side), doubles: BTreeMap::new(), insists }
    }

    fn double(&mut self, key: &Key, bytes: &Bytes, forger: &mut Forger) -> Option<&Double> {
        let at = (key.view, key.seq);
        if !self.doubles.contains_key(&at) {
            let suite = forger.membership().suite();
            let frame = Frame::decode(bytes, suite).ok()?;
            let PbftMessage::PrePrepare { view, seq, batch } =
                PbftMessage::from_frame(&frame, suite).ok()?
            else {
                return None;
            };
            let other = variant(forger, &batch.batch);
            let second = other.digest;
            let frame = forger.message(&PbftMessage::PrePrepare { view, seq, batch: other });
            let side = self.side.unwrap_or_else(|| ReplicaSet(u128::from(self.rng.bits())));
            self.doubles.insert(at, Double { side, first: key.digest, second, frame });
        }
        self.doubles.get(&at)
    }
}

impl Actor for Equivocator {
    fn name(&self) -> &'static str {
        "equivocator"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        let receiver = as_replica(to);
        let (Some(key), Some(receiver)) = (peek_key(&bytes), receiver) else {
            return stage.send(to, bytes);
        };
        match key.kind {
            kinds::PRE_PREPARE => {
                let insists = self.insists;
                let Some(double) = self.double(&key, &bytes, stage.forger) else {
                    return stage.send(to, bytes);
                };
                let (mut one, mut other) = (bytes, double.frame.clone());
                if double.side.contains(receiver) {
                    std::mem::swap(&mut one, &mut other);
                }
                stage.send(to, one);
                if insists {
                    stage.send(to, other);
                }
            }
            // The replica underneath believes in the first proposal; each side hears what it
            // wants to hear.
            kinds::PREPARE | kinds::COMMIT => {
                let double = self.doubles.get(&(key.view, key.seq));
                let votes = match double {
                    Some(d) if self.insists => vec![d.first, d.second],
                    Some(d) if d.side.contains(receiver) => vec![d.second],
                    _ => vec![key.digest],
                };
                for digest in votes {
                    let vote = stage.forger.maced(Key { digest, ..key }, Bytes::new());
                    stage.send(to, vote);
                }
            }
            _ => stage.send(to, bytes),
        }
    }
}
