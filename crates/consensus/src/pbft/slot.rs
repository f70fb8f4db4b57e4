//! What is known of one sequence number.

use crate::Instant;
use std::sync::Arc;
use tercio_types::{ClientId, Digest, View};
use tercio_wire::EncodedBatch;

/// The most digests that Q keeps for one number. A primary that equivocates in every view cannot
/// make the set grow; the entry of the oldest view goes first (thesis of Castro, section 3.2.4).
pub(crate) const MAX_PREPREPARED: usize = 6;

/// A batch with whether the write-ahead log holds it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) batch: Arc<EncodedBatch>,
    pub(super) logged: bool,
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

/// What is known of one sequence number.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// What the primary of this view wants here.
    pub(super) proposal: Option<(View, Digest)>,
    /// When we heard of that.
    pub(super) proposed_at: Instant,
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
    /// Clients in the proposal whose MACs fail for us: we vote only when others vouch for it.
    pub(super) doubts: Vec<ClientId>,
    /// The application's word on the proposal, when it is asked.
    pub(super) verdict: Verdict,
}

impl Slot {
    /// The body of a digest. A null request has none and needs none.
    pub(super) fn body(&self, digest: Digest) -> Option<&Arc<EncodedBatch>> {
        self.bodies.iter().find(|held| held.batch.digest == digest).map(|held| &held.batch)
    }

    pub(super) fn has_body(&self, digest: Digest) -> bool {
        digest == Digest::NULL || self.body(digest).is_some()
    }

    pub(super) fn add_body(&mut self, batch: Arc<EncodedBatch>, logged: bool) {
        match self.bodies.iter_mut().find(|held| held.batch.digest == batch.digest) {
            Some(held) => held.logged |= logged,
            None => self.bodies.push(Held { batch, logged }),
        }
    }

    /// Notes in Q that `digest` was accepted in `view`.
    pub(super) fn note_preprepared(&mut self, digest: Digest, view: View) {
        match self.preprepared.iter_mut().find(|(d, _)| *d == digest) {
            Some((_, latest)) => *latest = (*latest).max(view),
            None => self.preprepared.push((digest, view)),
        }
        if self.preprepared.len() > MAX_PREPREPARED {
            let oldest = self.preprepared.iter().map(|(_, v)| *v).min().expect("not empty");
            self.preprepared.retain(|(_, v)| *v != oldest);
        }
        // A body is needed as long as P, Q, the proposal or the decision may call for it.
        let keep = [self.proposal, self.accepted, self.prepared];
        self.bodies.retain(|held| {
            let d = held.batch.digest;
            keep.iter().flatten().any(|(_, kept)| *kept == d)
                || self.committed == Some(d)
                || self.preprepared.iter().any(|(q, _)| *q == d)
        });
    }
}
