//! Usurper: begins the views that it leads by itself, again and again: with too few VIEW-CHANGEs,
//! with one repeated, with stale ones, and with different quorums (and different lies of its own
//! among them) for different replicas.

use super::{Actor, Stage};
use crate::checks::kinds;
use crate::trace::peek_key;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_consensus::pbft::{PbftMessage, SignedViewChange};
use tercio_types::{Principal, ReplicaId, View};
use tercio_wire::{Frame, Message};

/// Begins views on its own terms.
#[derive(Default)]
pub struct Usurper {
    /// The latest VIEW-CHANGE of each other replica.
    heard: BTreeMap<ReplicaId, Arc<SignedViewChange>>,
}

impl Usurper {
    /// One that has heard nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn begin(&self, view: View, stage: &mut Stage<'_>) {
        let quorum = stage.forger.membership().quorum();
        for to in stage.others() {
            // Each receiver gets a NEW-VIEW of its own.
            let lies = super::fabricator::lie(view, stage.rng);
            let mut on = vec![stage.forger.signed_view_change(lies)];
            match stage.rng.below(4) {
                // One and the same, as often as it takes.
                0 => on.resize(quorum, on[0].clone()),
                // Whatever was heard, of this view or not, too few or enough.
                1 => on.extend(self.heard.values().cloned()),
                // Those of this view, from another one on for everybody.
                _ => {
                    let mut of_view: Vec<_> =
                        self.heard.values().filter(|vc| vc.content.view == view).cloned().collect();
                    if !of_view.is_empty() {
                        let start = stage.rng.below(of_view.len() as u64) as usize;
                        of_view.rotate_left(start);
                    }
                    on.extend(of_view.into_iter().take(quorum - 1));
                }
            }
            on.sort_by_key(|vc| vc.sender);
            let frame = stage.forger.new_view(view, on);
            stage.send(to, frame);
        }
    }
}

impl Actor for Usurper {
    fn name(&self) -> &'static str {
        "usurper"
    }

    fn receive(&mut self, _from: Principal, bytes: &Bytes, stage: &mut Stage<'_>) -> bool {
        let kind = peek_key(bytes).map(|key| key.kind);
        if kind != Some(kinds::VIEW_CHANGE) {
            return true;
        }
        let suite = stage.forger.membership().suite();
        let message = Frame::decode(bytes, suite).and_then(|f| PbftMessage::from_frame(&f, suite));
        if let Ok(PbftMessage::ViewChange(heard)) = message {
            let view = heard.content.view;
            self.heard.insert(heard.sender, heard);
            if stage.forger.membership().primary(view) == stage.forger.me() {
                self.begin(view, stage);
            }
        }
        true
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        let view = peek_key(&bytes).map_or(0, |key| key.view);
        stage.send(to, bytes);
        if stage.rng.chance(5) {
            let (n, me) = (stage.forger.membership().n() as u64, u64::from(stage.forger.me().0));
            // The next view that would be its own.
            let mine = view + 1 + (n + me - (view + 1) % n) % n;
            self.begin(View(mine), stage);
        }
    }
}
