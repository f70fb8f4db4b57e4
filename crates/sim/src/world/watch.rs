//! Every checker looks at every event.

use super::World;
use crate::checks::{Blame, Cover, Rules, Seen, Simulated, Violation};
use crate::trace::peek_key;
use crate::witness::Deed;
use crate::{Customer, Host};
use bytes::Bytes;
use std::collections::BTreeSet;
use tercio_consensus::{Reading, Status};
use tercio_types::{Checkpoint, Height, Principal, ReplicaId, SeqNum, View};
use tercio_wire::Kind;

impl<P: Simulated> World<P> {
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
            let seen = Seen { key, bytes, membership: self.cast.membership() };
            self.rules.sent(by, &seen)?;
            if P::reading(key.kind) == Reading::Decision {
                let (view, seq) = (View(key.view), SeqNum(key.seq));
                self.checks.agreement.committed(by, view, seq, key.digest)?;
            }
            if key.kind == Kind::CHECKPOINT {
                let checkpoint = seen.body::<Checkpoint>().map_err(|error| {
                    Violation::new("agreement", format!("{by:?} signed what is none: {error}"))
                })?;
                self.checks.agreement.checkpoint(by, checkpoint)?;
            }
        }
        Ok(())
    }

    /// A correct replica is shown a frame.
    pub(super) fn note_beginning(&mut self, to: ReplicaId, bytes: &Bytes) {
        if let Some(key) = peek_key(bytes) {
            self.rules.shown(to, &Seen { key, bytes, membership: self.cast.membership() });
        }
    }

    pub(super) fn observe_standing(&mut self, i: usize) -> Result<(), Violation> {
        let host = &self.hosts[i];
        let Some(status) = host.status().filter(|_| host.is_correct()) else { return Ok(()) };
        let id = host.id();
        let (window, membership) = (host.window(), self.cast.membership());
        self.rules.stands(id, &status.protocol, window, membership, self.faulty)?;
        if status.height > Height(0) {
            self.checks.agreement.head(id, status.height, status.block)?;
        }
        Blame::accused(id, &status.accused, self.faulty)?;
        self.checks.cover.stands(id, status.protocol.stable)?;
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
        self.rules.finish()
    }
}
