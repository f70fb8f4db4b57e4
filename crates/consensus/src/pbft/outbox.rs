//! What a replica wants done, in order, and the promises that wait for their records.
//!
//! Rule P1: a promise is sent, and counted, once its record is durable. So whoever promises hands
//! the promise in with the record, and gets it back when it is to be kept.

use super::{
    Arc, Checkpoint, Digest, Effect, Evidence, PbftMessage, PersistId, Record, ReplicaId, SeqNum,
    SignedNewView, SignedViewChange, View,
};
use std::collections::{BTreeMap, VecDeque};
use tercio_types::CertifiedCheckpoint;
use tercio_types::zoo::{Defence, stands};
use tercio_wire::Encode;

/// A promise whose record is not durable yet: what follows when it is.
#[derive(Clone, Debug)]
pub(super) enum Promise {
    /// Vote PREPARE.
    Prepare { view: View, seq: SeqNum, digest: Digest },
    /// Vote COMMIT.
    Commit { view: View, seq: SeqNum, digest: Digest },
    /// Say VIEW-CHANGE.
    Leave(Arc<SignedViewChange>),
    /// Say NEW-VIEW and propose in the view, if it is ours.
    Enter(Arc<SignedNewView>),
    /// Propose in the first view, which begins without a NEW-VIEW.
    Lead,
    /// Sign this state, whose blocks are durable, and say CHECKPOINT.
    Checkpoint(Checkpoint),
}

/// Effects, promises and counts of what was dropped.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    effects: VecDeque<Effect<PbftMessage>>,
    promises: VecDeque<(PersistId, Promise)>,
    last_persist: PersistId,
    durable: PersistId,
    dropped: BTreeMap<&'static str, u64>,
}

impl Outbox {
    pub(super) fn push(&mut self, effect: Effect<PbftMessage>) {
        self.effects.push_back(effect);
    }

    pub(super) fn pop(&mut self) -> Option<Effect<PbftMessage>> {
        self.effects.pop_front()
    }

    pub(super) fn broadcast(&mut self, message: PbftMessage) {
        self.push(Effect::Broadcast(message));
    }

    pub(super) fn send(&mut self, to: ReplicaId, message: PbftMessage) {
        self.push(Effect::Send { to, message });
    }

    /// A message is dropped.
    pub(super) fn drop_message(&mut self, reason: &'static str) {
        self.drop_messages(reason, 1);
    }

    pub(super) fn drop_messages(&mut self, reason: &'static str, count: u64) {
        *self.dropped.entry(reason).or_default() += count;
    }

    /// A message is dropped that shows a fault.
    pub(super) fn evidence(&mut self, evidence: Evidence) {
        self.drop_message(evidence.reason());
        self.push(Effect::Evidence(evidence));
    }

    pub(super) fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    /// Names what the log is given next.
    fn next_persist(&mut self) -> PersistId {
        self.last_persist = PersistId(self.last_persist.0 + 1);
        self.last_persist
    }

    /// Records something that promises nothing by itself.
    pub(super) fn note(&mut self, record: &Record) {
        let (id, tag) = (self.next_persist(), record.tag());
        // Long enough for what is recorded of each batch.
        let mut bytes = Vec::with_capacity(128);
        record.encode(&mut bytes);
        self.push(Effect::Persist { id, tag, record: bytes.into() });
    }

    /// Records something; what it promises follows when the record is durable.
    pub(super) fn persist(&mut self, record: &Record, promise: Promise) {
        self.note(record);
        self.promises.push_back((self.last_persist, promise));
    }

    /// Rule P4: CHECKPOINT promises that we have the state whatever happens to our memory. Its
    /// blocks are durable before it is signed.
    pub(super) fn persist_blocks(&mut self, checkpoint: Checkpoint) {
        let (id, height) = (self.next_persist(), checkpoint.height);
        self.push(Effect::PersistBlocks { id, height });
        self.promises.push_back((id, Promise::Checkpoint(checkpoint)));
    }

    /// A checkpoint is stable; `record` stands for all that older records said. It follows what it
    /// stands on, by construction: one effect.
    pub(super) fn stable(&mut self, certificate: Arc<CertifiedCheckpoint>, record: &Record) {
        let id = self.next_persist();
        self.push(Effect::Stable { certificate, id, record: record.to_bytes() });
    }

    /// All records up to this one are durable.
    pub(super) fn on_persisted(&mut self, id: PersistId) {
        assert!(id <= self.last_persist, "the log acknowledges only what it was given");
        self.durable = self.durable.max(id);
    }

    /// The next promise that is to be kept.
    pub(super) fn next_due(&mut self) -> Option<Promise> {
        // The broken order that the zoo shows waits for nothing.
        let due = |(id, _): &mut (PersistId, Promise)| {
            *id <= self.durable || !stands(Defence::F04PersistBeforeSend)
        };
        self.promises.pop_front_if(due).map(|(_, promise)| promise)
    }

    /// The broken order that the zoo shows: say it, then write it.
    pub(super) fn write_last(&mut self) {
        let written = |effect: &Effect<PbftMessage>| matches!(effect, Effect::Persist { .. });
        self.effects.make_contiguous().sort_by_key(written);
    }
}
