//! What a protocol says of its own correct replicas, beyond what holds for every protocol. The other
//! checkers look at every network alike; what they count with (f, quorums) a protocol says in its
//! membership.

use super::{Conduct, Promises, Views, Violation, demand, kinds};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use tercio_consensus::pbft::{Pbft, PbftMessage, ViewChange};
use tercio_consensus::{ProtocolKind, Reading, Status};
use tercio_sequencer::Sequencer;
use tercio_types::{Checkpoint, Digest, Membership, ReplicaId, ReplicaSet, SeqNum, Suite, View};
use tercio_wire::{Decode, Frame, Key, Kind, Message};

/// A protocol that the simulator knows how to watch.
pub trait Simulated: ProtocolKind {
    /// Its rules.
    type Rules: Rules;
}

impl Simulated for Pbft {
    type Rules = PbftRules;
}

impl Simulated for Sequencer {
    type Rules = Words<Self>;
}

/// A frame that a watcher sees.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What it authenticates.
    pub key: Key,
    /// All of it.
    pub bytes: &'a bytes::Bytes,
    /// Among whom.
    pub membership: &'a Membership,
}

impl Seen<'_> {
    fn suite(&self) -> Suite {
        self.membership.suite()
    }

    fn frame(&self) -> Option<Frame> {
        Frame::decode(self.bytes, self.suite()).ok()
    }

    /// What the frame's body is, if it is such.
    pub(crate) fn body<T: Decode>(&self) -> Result<T, String> {
        let body = self.frame().map(|frame| frame.body).unwrap_or_default();
        T::from_bytes(&body, self.suite()).map_err(|error| error.to_string())
    }
}

/// Watches correct replicas.
pub trait Rules: Default {
    /// A correct replica sent a frame.
    ///
    /// # Errors
    /// When no correct replica would have.
    fn sent(&mut self, by: ReplicaId, frame: &Seen<'_>) -> Result<(), Violation>;

    /// A correct replica was shown a frame.
    fn shown(&mut self, to: ReplicaId, frame: &Seen<'_>) {
        let _ = (to, frame);
    }

    /// A correct replica says where it stands; `window` is how far above its stable checkpoint it
    /// takes part. `faulty` ones may have said anything.
    ///
    /// # Errors
    /// When it cannot have come there.
    fn stands(
        &mut self,
        by: ReplicaId,
        status: &Status,
        window: u64,
        membership: &Membership,
        faulty: ReplicaSet,
    ) -> Result<(), Violation>;

    /// A correct replica's log was lost, or went back.
    fn lost_log(&mut self, by: ReplicaId) {
        let _ = by;
    }

    /// How many views above the first were entered.
    fn views(&self) -> usize {
        0
    }

    /// The end of a run.
    ///
    /// # Errors
    /// What was seen and has done no harm.
    fn finish(&self) -> Result<(), Violation>;
}

/// PBFT's: promises, views and conduct.
#[derive(Debug, Default)]
pub struct PbftRules {
    promises: Promises,
    views: Views,
    conduct: Conduct,
}

impl Rules for PbftRules {
    fn sent(&mut self, by: ReplicaId, frame: &Seen<'_>) -> Result<(), Violation> {
        let Seen { key, membership, .. } = *frame;
        self.promises.sent(by, &key)?;
        match key.kind {
            kinds::PREPARE => {
                let said = (View(key.view), SeqNum(key.seq), key.digest);
                self.conduct.prepared(by, said, membership);
            }
            kinds::VIEW_CHANGE => {
                let content = frame.body::<ViewChange>().map_err(|error| {
                    Violation::new("promises", format!("{by:?} sent no VIEW-CHANGE: {error}"))
                })?;
                self.views.asked(by, content.view);
                self.conduct.asked(by, &content, membership);
                self.promises.left(by, content)?;
            }
            kinds::NEW_VIEW => {
                let body = frame.frame().map(|frame| frame.body).unwrap_or_default();
                if let (Some(sender), Some(view)) = (body.first_chunk(), body.get(2..10))
                    && u16::from_le_bytes(*sender) == by.0
                {
                    let view = u64::from_le_bytes(*view.first_chunk().expect("eight bytes"));
                    self.promises.began(by, View(view), key.digest)?;
                }
                self.shown(by, frame);
            }
            Kind::CHECKPOINT => {
                if let Ok(checkpoint) = frame.body::<Checkpoint>() {
                    self.conduct.signed(by, checkpoint.seq);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn shown(&mut self, to: ReplicaId, frame: &Seen<'_>) {
        if frame.key.kind != kinds::NEW_VIEW {
            return;
        }
        self.conduct.shown(
            to,
            frame.key.digest,
            frame.membership,
            || match PbftMessage::from_frame(&frame.frame()?, frame.suite()).ok()? {
                PbftMessage::NewView(begun) => Some((*begun).clone()),
                _ => None,
            },
        );
    }

    fn stands(
        &mut self,
        by: ReplicaId,
        status: &Status,
        window: u64,
        membership: &Membership,
        faulty: ReplicaSet,
    ) -> Result<(), Violation> {
        if !status.changing {
            self.views.entered(by, status.view, membership, faulty)?;
            self.conduct.entered(status.view);
        }
        self.conduct.stands(by, status.stable, window, membership, faulty);
        Ok(())
    }

    fn lost_log(&mut self, by: ReplicaId) {
        self.promises.lost_log(by);
        self.conduct.lost_log(by);
    }

    fn views(&self) -> usize {
        self.views.count()
    }

    fn finish(&self) -> Result<(), Violation> {
        self.conduct.finish()
    }
}

/// What holds for every protocol that says how its frames read: its replicas do not contradict
/// their proposals, votes and decisions, and call nothing stable that no quorum signed.
#[derive(Debug)]
pub struct Words<P> {
    said: BTreeMap<(ReplicaId, Kind, View, SeqNum), Digest>,
    conduct: Conduct,
    protocol: PhantomData<fn() -> P>,
}

impl<P> Default for Words<P> {
    fn default() -> Self {
        let (said, conduct) = (BTreeMap::new(), Conduct::default());
        Self { said, conduct, protocol: PhantomData }
    }
}

impl<P: ProtocolKind> Rules for Words<P> {
    fn sent(&mut self, by: ReplicaId, frame: &Seen<'_>) -> Result<(), Violation> {
        let Key { kind, view, seq, digest, .. } = frame.key;
        if kind == Kind::CHECKPOINT
            && let Ok(checkpoint) = frame.body::<Checkpoint>()
        {
            self.conduct.signed(by, checkpoint.seq);
        }
        if P::reading(kind) == Reading::Other {
            return Ok(());
        }
        let first = *self.said.entry((by, kind, View(view), SeqNum(seq))).or_insert(digest);
        demand(first == digest, "promises", || {
            let name = P::message_name(kind).unwrap_or("message");
            format!("{by:?} sent two {name}s at view {view} seq {seq}: {first:?} and {digest:?}")
        })
    }

    fn stands(
        &mut self,
        by: ReplicaId,
        status: &Status,
        _window: u64,
        membership: &Membership,
        faulty: ReplicaSet,
    ) -> Result<(), Violation> {
        self.conduct.stands(by, status.stable, u64::MAX / 2, membership, faulty);
        Ok(())
    }

    fn finish(&self) -> Result<(), Violation> {
        self.conduct.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cast, Forger};
    use std::sync::Arc;
    use tercio_sequencer::SequencerMessage;
    use tercio_types::{Batch, Timestamp};
    use tercio_wire::EncodedBatch;

    #[test]
    fn a_number_that_is_given_twice_is_caught() {
        let cast = Cast::of::<Sequencer>(4);
        let (me, forger) = (ReplicaId(0), Forger::new(&cast, ReplicaId(0)));
        let order = |seq, time| {
            let batch = Batch { time: Timestamp(time), checkpoint: false, packages: vec![] };
            let batch = Arc::new(EncodedBatch::new(batch, cast.suite()));
            forger.message(&SequencerMessage::Order { seq: SeqNum(seq), batch })
        };
        let mut rules = Words::<Sequencer>::default();
        let mut sent = |bytes: bytes::Bytes| {
            let key = crate::peek_key(&bytes).unwrap();
            rules.sent(me, &Seen { key, bytes: &bytes, membership: cast.membership() })
        };
        sent(order(1, 1)).unwrap();
        sent(order(1, 1)).unwrap();
        sent(order(2, 7)).unwrap();
        let violation = sent(order(1, 2)).unwrap_err();
        assert!(violation.seen.contains("two ORDERs at view 0 seq 1"), "{violation}");
    }

    #[test]
    fn a_checkpoint_that_nobody_signed_is_caught() {
        let cast = Cast::of::<Sequencer>(4);
        let mut rules = Words::<Sequencer>::default();
        let status = Status { stable: SeqNum(8), ..Status::default() };
        let (me, nobody) = (ReplicaId(1), ReplicaSet::EMPTY);
        rules.stands(me, &status, 16, cast.membership(), nobody).unwrap();
        assert!(rules.finish().unwrap_err().seen.contains("calls 8 stable, which 0"));
    }
}
