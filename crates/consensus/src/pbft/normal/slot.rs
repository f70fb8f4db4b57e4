//! What is known of one sequence number.

use super::clock::Proposed;
use crate::Instant;
use crate::protocol::MAX_PREPREPARED;
use bytes::Bytes;
use std::sync::Arc;
use tercio_types::zoo::{Mutant, mutated};
use tercio_types::{ClientId, Digest, Package, SeqNum, Suite, View};
use tercio_wire::EncodedBatch;

/// A batch, with whether the write-ahead log holds it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) digest: Digest,
    /// Its encoding.
    pub(super) bytes: Bytes,
    pub(super) logged: bool,
    /// The packages in it, and at the primary the buffers that they came in, take twice as much
    /// again. Nobody asks for them once it is delivered; what is retransmitted is the encoding.
    decoded: Option<Arc<EncodedBatch>>,
}

impl Held {
    /// The packages, unless it is delivered.
    pub(super) fn packages(&self) -> &[Package] {
        self.decoded.as_ref().map_or(&[], |batch| &batch.batch.packages)
    }

    fn batch(&self, suite: Suite) -> Arc<EncodedBatch> {
        self.decoded.clone().unwrap_or_else(|| {
            let batch = EncodedBatch::from_bytes(self.bytes.clone(), self.digest, suite);
            Arc::new(batch.expect("it was decoded before"))
        })
    }
}

/// What the application says of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Verdict {
    /// It was not asked yet.
    #[default]
    Open,
    /// It was asked.
    Asked,
    /// It has nothing against it, or need not be asked.
    Good,
    /// It vetoed.
    Vetoed,
}

/// What binds us at one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pbft) struct SlotPromises {
    pub(in crate::pbft) seq: SeqNum,
    pub(in crate::pbft) accepted: Option<(View, Digest)>,
    pub(in crate::pbft) prepared: Option<(View, Digest)>,
    pub(in crate::pbft) preprepared: Vec<(Digest, View)>,
}

impl SlotPromises {
    /// A slot that is bound so and holds these bodies.
    pub(super) fn into_slot(self, bodies: Vec<Held>) -> Slot {
        let Self { seq: _, accepted, prepared, preprepared } = self;
        Slot { accepted, prepared, preprepared, bodies, ..Slot::default() }
    }
}

/// What is known of one sequence number.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// What the primary of this view wants here.
    pub(super) proposal: Option<(View, Digest)>,
    /// When we heard of that.
    pub(super) proposed_at: Instant,
    /// When what we said of it last can have left us, behind the bytes before it.
    pub(super) said_at: Instant,
    /// What we voted PREPARE for, in the latest view. A promise.
    pub(super) accepted: Option<(View, Digest)>,
    /// What prepared, in the latest view: our entry of the P set. A promise once we vote COMMIT.
    pub(super) prepared: Option<(View, Digest)>,
    /// What we accepted in any view, each with its latest view: our entries of the Q set.
    pub(super) preprepared: Vec<(Digest, View)>,
    /// What is decided.
    pub(super) committed: Option<Digest>,
    /// Bodies of proposals.
    pub(super) bodies: Vec<Held>,
    /// The time of the proposal, when it came as one in this view and has packages.
    pub(super) time: Option<Proposed>,
    /// Clients in the proposal whose MACs fail for us: we vote only when others vouch for it.
    pub(super) doubts: Vec<ClientId>,
    /// The application's word on the proposal, when it is asked.
    pub(super) verdict: Verdict,
}

impl Slot {
    /// The body of a digest. A null request has none and needs none.
    pub(super) fn body(&self, digest: Digest, suite: Suite) -> Option<Arc<EncodedBatch>> {
        self.held(digest).map(|held| held.batch(suite))
    }

    pub(super) fn held(&self, digest: Digest) -> Option<&Held> {
        self.bodies.iter().find(|held| held.digest == digest)
    }

    /// How long what is proposed here is.
    pub(super) fn proposed_bytes(&self) -> usize {
        let held = self.proposal.and_then(|(_, digest)| self.held(digest));
        held.map_or(0, |held| held.bytes.len())
    }

    pub(super) fn has_body(&self, digest: Digest) -> bool {
        digest == Digest::NULL || self.held(digest).is_some()
    }

    /// Whether a digest may be wanted here.
    pub(super) fn wants_body(&self, digest: Digest) -> bool {
        let wanted = self.committed == Some(digest)
            || self.proposal.is_some_and(|(_, proposed)| proposed == digest);
        wanted && !self.has_body(digest)
    }

    /// What binds us here, at `seq`.
    pub(super) fn promises(&self, seq: SeqNum) -> SlotPromises {
        SlotPromises {
            seq,
            accepted: self.accepted,
            prepared: self.prepared.filter(|_| !mutated(Mutant::StateDropsPrepared)),
            preprepared: self.preprepared.clone(),
        }
    }

    pub(super) fn add_body(&mut self, batch: Arc<EncodedBatch>, logged: bool) {
        match self.bodies.iter_mut().find(|held| held.digest == batch.digest) {
            Some(held) => held.logged |= logged,
            None => self.bodies.push(Held {
                digest: batch.digest,
                bytes: batch.bytes.clone(),
                logged,
                decoded: Some(batch),
            }),
        }
    }

    /// The number is delivered: its batches are kept as bytes only.
    pub(super) fn delivered(&mut self) {
        self.bodies.iter_mut().for_each(|held| held.decoded = None);
    }

    /// Notes in Q that `digest` was accepted in `view`.
    pub(super) fn note_preprepared(&mut self, digest: Digest, view: View) {
        match self.preprepared.iter_mut().find(|(d, _)| *d == digest) {
            Some(_) if mutated(Mutant::AcceptedFirstView) => {}
            Some((_, latest)) => *latest = (*latest).max(view),
            None => self.preprepared.push((digest, view)),
        }
        if self.preprepared.len() > MAX_PREPREPARED {
            let oldest = self.preprepared.iter().map(|(_, v)| *v).min().expect("not empty");
            self.preprepared.retain(|(_, v)| *v != oldest);
        }
        self.drop_bodies();
    }

    /// A view begins, and what it begins with is noted: what older ones proposed here and was not
    /// accepted binds nobody.
    pub(super) fn enter(&mut self, view: View) {
        self.proposal = self.proposal.filter(|(proposed_in, _)| *proposed_in == view);
        self.drop_bodies();
    }

    /// A body is needed as long as P, Q, the proposal or the decision may call for it.
    fn drop_bodies(&mut self) {
        let keep = [self.proposal, self.accepted, self.prepared];
        self.bodies.retain(|held| {
            let d = held.digest;
            keep.iter().flatten().any(|(_, kept)| *kept == d)
                || self.committed == Some(d)
                || self.preprepared.iter().any(|(q, _)| *q == d)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Batch, Timestamp};

    /// W2: of what older views proposed, a new one keeps what was accepted and what it begins with.
    #[test]
    fn a_new_view_lets_go_of_what_nobody_accepted() {
        let batch = |time| {
            let batch = Batch { time: Timestamp(time), checkpoint: true, packages: vec![] };
            Arc::new(EncodedBatch::new(batch, Suite::default()))
        };
        let [accepted, proposed, chosen] = [1, 2, 3].map(batch);
        let mut slot = Slot::default();
        for (view, batch) in [(0, &accepted), (1, &proposed), (2, &chosen)] {
            slot.proposal = Some((View(view), batch.digest));
            slot.add_body(batch.clone(), false);
            if view == 0 {
                slot.accepted = slot.proposal;
            }
        }
        slot.enter(View(2));
        assert!(slot.has_body(accepted.digest) && slot.has_body(chosen.digest));
        assert!(!slot.has_body(proposed.digest));
        slot.enter(View(3));
        assert_eq!(slot.proposal, None);
        assert_eq!(slot.bodies.len(), 1, "what was accepted");
    }
}
