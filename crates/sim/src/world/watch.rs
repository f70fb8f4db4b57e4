//! Every checker looks at every event.

use super::World;
use crate::checks::{Blame, Cover, Violation, kinds};
use crate::trace::peek_key;
use crate::witness::Deed;
use crate::{Customer, Host};
use bytes::Bytes;
use std::collections::BTreeSet;
use tercio_consensus::Status;
use tercio_consensus::pbft::{PbftMessage, ViewChange};
use tercio_types::{Checkpoint, Height, Principal, ReplicaId, SeqNum, View};
use tercio_wire::{Decode, Frame, Kind, Message};

impl World {
    pub(super) fn observe_deeds(&mut self, i: usize) -> Result<(), Violation> {
        let (id, correct) = (self.hosts[i].id(), self.hosts[i].is_correct());
        for deed in self.hosts[i].deeds() {
            if !correct {
                continue;
            }
            match deed {
                Deed::Restored(places) => self.checks.durability.restored(id, places),
                Deed::Executed { height, chain, done, count } => {
                    self.checks.agreement.executed(id, height, chain)?;
                    self.checks.reads.executed(height, count);
                    for done in &done {
                        self.checks.exactly_once.executed(id, done)?;
                        self.checks.durability.executed(id, done);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn observe_sent(
        &mut self,
        by: ReplicaId,
        sent: &[(Principal, Bytes)],
    ) -> Result<(), Violation> {
        let mut last: Option<&Bytes> = None;
        for (_, bytes) in sent {
            // A broadcast is the same bytes again and again.
            if last.is_some_and(|last| last.as_ptr() == bytes.as_ptr()) {
                continue;
            }
            last = Some(bytes);
            let Some(key) = peek_key(bytes) else {
                return Err(Violation::new("promises", format!("{by:?} sent what is no frame")));
            };
            self.checks.promises.sent(by, &key)?;
            let suite = self.cast.suite();
            let body = || Frame::decode(bytes, suite).map(|frame| frame.body);
            match key.kind {
                kinds::PREPARE => {
                    let (view, seq) = (View(key.view), SeqNum(key.seq));
                    let said = (view, seq, key.digest);
                    self.checks.conduct.prepared(by, said, self.cast.membership());
                }
                kinds::COMMIT => {
                    let (view, seq) = (View(key.view), SeqNum(key.seq));
                    self.checks.agreement.committed(by, view, seq, key.digest)?;
                }
                kinds::VIEW_CHANGE => {
                    let content = ViewChange::from_bytes(&body().unwrap_or_default(), suite);
                    let content = content.map_err(|error| {
                        Violation::new("promises", format!("{by:?} sent no VIEW-CHANGE: {error}"))
                    })?;
                    self.checks.views.asked(by, content.view);
                    self.checks.conduct.asked(by, &content, self.cast.membership());
                    self.checks.promises.left(by, content)?;
                }
                kinds::NEW_VIEW => {
                    let body = body().unwrap_or_default();
                    if let (Some(sender), Some(view)) = (body.first_chunk(), body.get(2..10))
                        && u16::from_le_bytes(*sender) == by.0
                    {
                        let view = u64::from_le_bytes(*view.first_chunk().expect("eight bytes"));
                        self.checks.promises.began(by, View(view), key.digest)?;
                    }
                    self.note_beginning(by, bytes);
                }
                Kind::CHECKPOINT => {
                    let checkpoint = Checkpoint::from_bytes(&body().unwrap_or_default(), suite);
                    let checkpoint = checkpoint.map_err(|error| {
                        Violation::new("agreement", format!("{by:?} signed what is none: {error}"))
                    })?;
                    self.checks.conduct.signed(by, checkpoint.seq);
                    self.checks.agreement.checkpoint(by, checkpoint)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A correct replica has, or sees, what a view begins with.
    pub(super) fn note_beginning(&mut self, by: ReplicaId, bytes: &Bytes) {
        let suite = self.cast.suite();
        let Some(key) = peek_key(bytes).filter(|key| key.kind == kinds::NEW_VIEW) else { return };
        self.checks.conduct.shown(by, key.digest, self.cast.membership(), || {
            let frame = Frame::decode(bytes, suite).ok()?;
            match PbftMessage::from_frame(&frame, suite).ok()? {
                PbftMessage::NewView(begun) => Some((*begun).clone()),
                _ => None,
            }
        });
    }

    pub(super) fn observe_standing(&mut self, i: usize) -> Result<(), Violation> {
        let host = &self.hosts[i];
        let Some(status) = host.status().filter(|_| host.is_correct()) else { return Ok(()) };
        let id = host.id();
        if !status.protocol.changing {
            let (view, membership) = (status.protocol.view, self.cast.membership());
            self.checks.views.entered(id, view, membership, self.faulty)?;
            self.checks.conduct.entered(view);
        }
        if status.height > Height(0) {
            self.checks.agreement.head(id, status.height, status.block)?;
        }
        Blame::accused(id, &status.accused, self.faulty)?;
        let (stable, window) = (status.protocol.stable, host.window());
        self.checks.conduct.stands(id, stable, window, self.cast.membership(), self.faulty);
        self.checks.cover.stands(id, stable)?;
        self.checks.bounds.held(id, host.held().expect("it runs"))
    }

    /// Whether all honest clients have all their results, and all correct replicas stand at one
    /// height.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        if !self.honest().all(Customer::is_done) {
            return false;
        }
        let mut heights = BTreeSet::new();
        for host in self.hosts() {
            let Some(status) = host.status() else { return false };
            heights.insert(status.height);
        }
        heights.len() == 1
    }

    /// Whether the stable checkpoint of every correct replica covers what it delivered.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        let mut status = self.hosts().map(Host::status);
        status.all(|s| s.is_some_and(|s| Cover::covers(s.protocol.stable, s.protocol.delivered)))
    }

    /// The network was idle for long: stable checkpoints cover everything.
    ///
    /// # Errors
    /// When one does not.
    pub fn idle(&self) -> Result<(), Violation> {
        self.hosts().try_for_each(|host| {
            let Status { stable, delivered, .. } = self.status(host.id())?.protocol;
            Cover::idle(host.id(), stable, delivered)
        })
    }

    /// The end: what was acknowledged is everywhere.
    ///
    /// # Errors
    /// When it is not.
    pub fn finish(&self) -> Result<(), Violation> {
        let correct: Vec<_> = self.correct().collect();
        self.checks.durability.finish(correct)?;
        self.checks.conduct.finish()
    }
}
