//! What the write-ahead log keeps: every promise, and the bodies they name, each body once
//! (`docs/format.md`). A restarted replica reads them back, says the same again, and nothing else
//! (f03, f05).

use super::slot::Verdict;
use super::{
    Arc, BTreeMap, Bytes, CertifiedCheckpoint, ClientId, Digest, EncodedBatch, Floor, Learner,
    Pbft, PbftMessage, Phase, Promise, Recovery, SeqNum, SignedNewView, SignedViewChange, Suite,
    View, Vote, VoteTable, select,
};
use crate::SettingsError;
use tercio_types::zoo::{Defence, Mutant, mutated, stands};
use tercio_wire::{Decode, DecodeError, Encode, Reader};
use thiserror::Error;

/// The most slots or digests that a record is read with.
const MAX_ENTRIES: usize = 1 << 17;

/// Why a replica cannot take up where it stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The settings make no sense.
    #[error("setting {0}")]
    Settings(#[from] SettingsError),
    /// A record is not of this protocol or version.
    #[error("record {index} of the write-ahead log is not one of PBFT's: {error}")]
    Record {
        /// Its place in the log.
        index: usize,
        /// What is wrong.
        error: DecodeError,
    },
}

/// What binds us at one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotPromises {
    seq: SeqNum,
    accepted: Option<(View, Digest)>,
    prepared: Option<(View, Digest)>,
    preprepared: Vec<(Digest, View)>,
}

/// Everything that binds us, but for bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promises {
    /// The checkpoint that all of it lies above: the record stands for what was forgotten below, so it
    /// must not be known without that.
    stable: Option<Arc<CertifiedCheckpoint>>,
    view: View,
    changing: bool,
    leave: Option<Arc<SignedViewChange>>,
    enter: Option<Arc<SignedNewView>>,
    /// Clients that must sign, in order.
    must_sign: Vec<ClientId>,
    slots: Vec<SlotPromises>,
    /// That our log was lost, with the floor if it is known.
    learning: Option<Option<Floor>>,
}

/// A record of the write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// We accepted a proposal; with its body if the log does not hold it yet.
    Accepted { view: View, seq: SeqNum, digest: Digest, body: Option<Bytes> },
    /// It prepared.
    Prepared { view: View, seq: SeqNum, digest: Digest },
    /// We left all views below.
    Leave(Arc<SignedViewChange>),
    /// We entered a view.
    Enter(Arc<SignedNewView>),
    /// All of it at once, at a stable checkpoint, so that older records may go.
    State(Promises),
    /// Our log was lost; with what bounds the promises in it, once that is known.
    Learning(Option<Floor>),
    /// The window was moved to a certificate that was not reached (rule W3).
    Skipped(Arc<CertifiedCheckpoint>),
}

fn put_floor(out: &mut Vec<u8>, floor: Option<&Floor>) {
    out.push(floor.is_some().into());
    if let Some(Floor { seq, view }) = floor {
        out.extend_from_slice(&seq.0.to_le_bytes());
        out.extend_from_slice(&view.0.to_le_bytes());
    }
}

fn take_floor(input: &mut Reader) -> Result<Option<Floor>, DecodeError> {
    Ok(match input.flag("floor")? {
        true => {
            let seq = SeqNum(input.u64("floor")?);
            Some(Floor { seq, view: View(input.u64("floor")?) })
        }
        false => None,
    })
}

fn put_pair(out: &mut Vec<u8>, pair: Option<(View, Digest)>) {
    out.push(pair.is_some().into());
    if let Some((view, digest)) = pair {
        out.extend_from_slice(&view.0.to_le_bytes());
        out.extend_from_slice(&digest.0);
    }
}

fn take_pair(input: &mut Reader) -> Result<Option<(View, Digest)>, DecodeError> {
    Ok(match input.flag("promise")? {
        true => Some((View(input.u64("promise")?), input.digest("promise")?)),
        false => None,
    })
}

fn put_part(out: &mut Vec<u8>, part: Option<Bytes>) {
    let part = part.unwrap_or_default();
    out.extend_from_slice(&(part.len() as u32).to_le_bytes());
    out.extend_from_slice(&part);
}

fn take_part<P: Decode>(input: &mut Reader) -> Result<Option<P>, DecodeError> {
    let len = input.u32("part")? as usize;
    let part = input.take(len, "part")?;
    (len > 0).then(|| P::from_bytes(&part, input.suite())).transpose()
}

impl Record {
    /// The number with which the record loses its worth; zero when a later `State` replaces it.
    pub(super) fn tag(&self) -> SeqNum {
        match self {
            Self::Accepted { seq, .. } | Self::Prepared { seq, .. } => *seq,
            Self::Skipped(certificate) => certificate.checkpoint.seq,
            Self::Leave(_) | Self::Enter(_) | Self::State(_) | Self::Learning(_) => SeqNum(0),
        }
    }
}

impl Encode for Record {
    fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, view: &View, seq: &SeqNum, digest: &Digest| {
            out.push(kind);
            out.extend_from_slice(&view.0.to_le_bytes());
            out.extend_from_slice(&seq.0.to_le_bytes());
            out.extend_from_slice(&digest.0);
        };
        match self {
            Self::Accepted { view, seq, digest, body } => {
                head(out, 1, view, seq, digest);
                out.extend_from_slice(body.as_deref().unwrap_or_default());
            }
            Self::Prepared { view, seq, digest } => head(out, 2, view, seq, digest),
            Self::Leave(view_change) => {
                out.push(3);
                view_change.encode(out);
            }
            Self::Enter(new_view) => {
                out.push(4);
                new_view.encode(out);
            }
            Self::State(promises) => {
                out.push(8);
                put_part(out, promises.stable.as_ref().map(|stable| stable.to_bytes()));
                out.extend_from_slice(&promises.view.0.to_le_bytes());
                out.push(promises.changing.into());
                put_part(out, promises.leave.as_ref().map(|leave| leave.to_bytes()));
                put_part(out, promises.enter.as_ref().map(|enter| enter.to_bytes()));
                out.extend_from_slice(&(promises.must_sign.len() as u32).to_le_bytes());
                for client in &promises.must_sign {
                    out.extend_from_slice(&client.0.to_le_bytes());
                }
                out.extend_from_slice(&(promises.slots.len() as u32).to_le_bytes());
                for slot in &promises.slots {
                    out.extend_from_slice(&slot.seq.0.to_le_bytes());
                    put_pair(out, slot.accepted);
                    put_pair(out, slot.prepared);
                    out.extend_from_slice(&(slot.preprepared.len() as u32).to_le_bytes());
                    for (digest, view) in &slot.preprepared {
                        out.extend_from_slice(&digest.0);
                        out.extend_from_slice(&view.0.to_le_bytes());
                    }
                }
                if let Some(floor) = &promises.learning {
                    put_floor(out, floor.as_ref());
                }
            }
            Self::Learning(floor) => {
                out.push(6);
                put_floor(out, floor.as_ref());
            }
            Self::Skipped(certificate) => {
                out.push(7);
                certificate.encode(out);
            }
        }
    }
}

impl Decode for Record {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let suite = input.suite();
        let kind = input.u8("record")?;
        Ok(match kind {
            1 | 2 => {
                let view = View(input.u64("record")?);
                let seq = SeqNum(input.u64("record")?);
                let digest = input.digest("record")?;
                if kind == 2 {
                    Self::Prepared { view, seq, digest }
                } else {
                    let body = Some(input.take_rest()).filter(|body| !body.is_empty());
                    Self::Accepted { view, seq, digest, body }
                }
            }
            3 => Self::Leave(Arc::new(SignedViewChange::from_bytes(&input.take_rest(), suite)?)),
            4 => Self::Enter(Arc::new(SignedNewView::from_bytes(&input.take_rest(), suite)?)),
            5 | 8 => {
                // Before it had the certificate it was kind 5.
                let stable = if kind == 8 { take_part(input)?.map(Arc::new) } else { None };
                let view = View(input.u64("record")?);
                let changing = input.flag("record")?;
                let leave = take_part(input)?.map(Arc::new);
                let enter = take_part(input)?.map(Arc::new);
                let mut must_sign = Vec::new();
                for _ in 0..input.count(8, MAX_ENTRIES, "record")? {
                    must_sign.push(ClientId(input.u64("record")?));
                }
                let mut slots = Vec::new();
                for _ in 0..input.count(14, MAX_ENTRIES, "record")? {
                    let seq = SeqNum(input.u64("record")?);
                    let (accepted, prepared) = (take_pair(input)?, take_pair(input)?);
                    let mut preprepared = Vec::new();
                    for _ in 0..input.count(40, MAX_ENTRIES, "record")? {
                        let digest = input.digest("record")?;
                        preprepared.push((digest, View(input.u64("record")?)));
                    }
                    slots.push(SlotPromises { seq, accepted, prepared, preprepared });
                }
                // At the end, and only of a learner: the records of others are as they were.
                let learning = (input.remaining() > 0).then(|| take_floor(input)).transpose()?;
                Self::State(Promises {
                    stable,
                    view,
                    changing,
                    leave,
                    enter,
                    must_sign,
                    slots,
                    learning,
                })
            }
            6 => Self::Learning(take_floor(input)?),
            7 => Self::Skipped(Arc::new(CertifiedCheckpoint::decode(input)?)),
            other => {
                return Err(DecodeError::Unknown { what: "record kind", found: other.into() });
            }
        })
    }
}

impl<T: VoteTable> Pbft<T> {
    /// All that binds us now.
    pub(super) fn standing_promises(&self) -> Promises {
        let slots = self.slots.iter().map(|(seq, slot)| SlotPromises {
            seq: *seq,
            accepted: slot.accepted,
            prepared: slot.prepared.filter(|_| !mutated(Mutant::StateDropsPrepared)),
            preprepared: slot.preprepared.clone(),
        });
        let leave = self.leaving.clone().filter(|_| self.changing);
        Promises {
            stable: self.stable.clone(),
            view: self.view,
            changing: self.changing,
            leave,
            enter: self.new_view.clone(),
            must_sign: self.must_sign.iter().copied().collect(),
            slots: slots.collect(),
            learning: self.learner.as_ref().map(Learner::floor),
        }
    }

    /// Rule P2: takes the promises up again, and says them again.
    pub(super) fn recover(&mut self, recovery: &Recovery) -> Result<(), RecoverError> {
        if let Some(stable) = &recovery.stable {
            self.low = stable.checkpoint.seq;
            self.last_checkpoint = self.low;
            let stable = Arc::new(stable.clone());
            if self.low > self.delivered {
                self.ahead = Some(stable.clone());
            }
            self.stable = Some(stable);
        }
        for (index, record) in recovery.records.iter().enumerate() {
            if !stands(Defence::F03RememberPromises) {
                break;
            }
            let record = Record::from_bytes(record, self.suite)
                .map_err(|error| RecoverError::Record { index, error })?;
            self.recall(record, self.suite)
                .map_err(|error| RecoverError::Record { index, error })?;
        }
        if recovery.lost_log {
            self.begin_to_learn();
        }
        self.slots = self.slots.split_off(&self.low.next());
        self.delivered_bytes = self.count_delivered();
        self.take_up();
        self.lead_or_resign(recovery.records.is_empty() && !recovery.lost_log);
        self.ask_to_learn();
        Ok(())
    }

    fn recall(&mut self, record: Record, suite: Suite) -> Result<(), DecodeError> {
        match record {
            Record::Accepted { view, seq, digest, body } => {
                let slot = self.slots.entry(seq).or_default();
                slot.accepted = Some((view, digest));
                if let Some(bytes) = body {
                    let batch = EncodedBatch::from_bytes(bytes, digest, suite)?;
                    slot.add_body(Arc::new(batch), true);
                }
                if !mutated(Mutant::AcceptedForgotten) {
                    slot.note_preprepared(digest, view);
                }
            }
            Record::Prepared { view, seq, digest } => {
                self.slots.entry(seq).or_default().prepared = Some((view, digest));
            }
            Record::Leave(_) if mutated(Mutant::LeaveForgotten) => {}
            Record::Leave(view_change) => {
                (self.view, self.changing) = (view_change.content.view, true);
                self.leaving = Some(view_change);
            }
            Record::Enter(_) if mutated(Mutant::EnterForgotten) => {}
            Record::Enter(new_view) => {
                (self.view, self.changing) = (new_view.view, false);
                // Rule A3: for the epoch, whatever view comes after.
                let contents = new_view.view_changes.iter().map(|vc| &vc.content);
                self.blame(contents.flat_map(|content| &content.blamed).copied());
                self.new_view = Some(new_view);
            }
            Record::Learning(floor) => self.learner = Some(Learner::new(self.now, floor)),
            Record::Skipped(certificate) => self.recall_certificate(certificate),
            Record::State(promises) => {
                if stands(Defence::F45StateFollows) {
                    promises.stable.into_iter().for_each(|stable| self.recall_certificate(stable));
                }
                self.learner = promises.learning.map(|floor| Learner::new(self.now, floor));
                (self.view, self.changing) = (promises.view, promises.changing);
                (self.leaving, self.new_view) = (promises.leave, promises.enter);
                self.must_sign = promises.must_sign.into_iter().collect();
                let bodies: BTreeMap<SeqNum, _> = std::mem::take(&mut self.slots)
                    .into_iter()
                    .map(|(seq, slot)| (seq, slot.bodies))
                    .collect();
                for promised in promises.slots {
                    let slot = self.slots.entry(promised.seq).or_default();
                    slot.accepted = promised.accepted;
                    slot.prepared = promised.prepared;
                    slot.preprepared = promised.preprepared;
                    slot.bodies = bodies.get(&promised.seq).cloned().unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    /// Sets up what follows from the promises.
    fn take_up(&mut self) {
        let (quorum, weak) = (self.membership.quorum(), self.membership.weak_quorum());
        let begun = self.new_view.clone().filter(|_| !self.changing);
        let selection = begun.and_then(|begun| select(&begun.view_changes, quorum, weak));
        // Numbers up to where the window was moved may have been executed since.
        self.reach_ahead();
        // Certificates that were learnt on the way into the view, or out of the last, still hold.
        let learnt = selection.as_ref().and_then(|selection| selection.stable.clone());
        let proved = self.leaving.as_ref().and_then(|leaving| leaving.content.stable.clone());
        for certificate in [learnt, proved].into_iter().flatten() {
            self.on_certificate(Arc::new(certificate));
        }
        self.skip_to_ahead();
        if let Some(selection) = &selection {
            self.adopt(selection);
        }
        let mut again = Vec::new();
        for (&seq, slot) in &mut self.slots {
            if !stands(Defence::F05RepeatVotes) {
                break;
            }
            if let Some((view, digest)) = slot.accepted {
                if view == self.view && !self.changing {
                    slot.proposal = Some((view, digest));
                    slot.proposed_at = self.now;
                    slot.verdict = Verdict::Good;
                    self.next_seq = self.next_seq.max(seq.next());
                }
                self.votes.record(self.me, &Vote { phase: Phase::Prepare, view, seq, digest });
                let view = if mutated(Mutant::RepeatsInLaterView) { self.view } else { view };
                if seq > self.delivered {
                    again.push(PbftMessage::Prepare { view, seq, digest });
                }
            }
            if let Some((view, digest)) = slot.prepared {
                self.votes.record(self.me, &Vote { phase: Phase::Commit, view, seq, digest });
                if seq > self.delivered {
                    again.push(PbftMessage::Commit { view, seq, digest });
                }
            }
        }
        self.next_seq = self.next_seq.max(self.delivered.next()).max(self.low.next());
        again.into_iter().for_each(|message| self.broadcast(message));
        if let Some(selection) = &selection {
            self.vote_for(selection);
        }
        if let Some(leaving) = self.leaving.clone().filter(|_| self.changing) {
            self.broadcast(PbftMessage::ViewChange(leaving.clone()));
            self.on_own_view_change(leaving);
        }
    }

    /// Rule P3: what we proposed in this view before we stopped may be in no log of ours. So we
    /// propose nothing more in it, and say so at once, that nobody waits for us.
    fn lead_or_resign(&mut self, fresh: bool) {
        if !self.is_primary() || self.changing {
            return;
        }
        let alone = self.membership.n() == 1;
        if fresh {
            self.persist(&Record::State(self.standing_promises()), Some(Promise::Lead));
        } else if alone || !stands(Defence::F42ResignAfterRestart) {
            self.leads = true;
        } else if self.may_leave_now() {
            self.leave(self.view.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Recovery;
    use super::*;
    use crate::{Instant, Settings};
    use tercio_crypto::{Instance, Keyring, SecretKey};
    use tercio_types::{Batch, SeqNum};
    use tercio_types::{
        ChainId, Epoch, FaultModel, Member, Membership, Principal, ReplicaId, Timestamp,
    };

    fn restarted(records: Vec<Record>) -> Pbft {
        let key = |i: u8| SecretKey::from_seed([i; 32]);
        let member = |i| Member { key: key(i).public(), address: String::new() };
        let (chain, epoch, model) = (ChainId([1; 32]), Epoch(0), FaultModel::Byzantine);
        let members = (0..4).map(member).collect();
        let membership =
            Membership::new(chain, epoch, Suite::default(), model, members, BTreeMap::new());
        let membership = Arc::new(membership.unwrap());
        let me = ReplicaId(2);
        let ring = Keyring::new(Principal::Replica(me), key(2), membership.clone(), Instance(0));
        let records = records.iter().map(Encode::to_bytes).collect();
        let recovery = Recovery { records, ..Recovery::default() };
        Pbft::new(me, membership, ring.signer(), Settings::default(), recovery, Instant(1)).unwrap()
    }

    /// P2: one record stands for all that came before it, bodies apart.
    #[test]
    fn a_state_record_carries_everything_that_binds() {
        let batch = Batch { time: Timestamp(1), checkpoint: true, packages: vec![] };
        let batch = EncodedBatch::new(batch, Suite::default());
        let (view, seq, digest) = (View(0), SeqNum(7), batch.digest);
        let body = Some(batch.bytes);
        let accepted = Record::Accepted { view, seq, digest, body };
        let promised = SlotPromises {
            seq,
            accepted: Some((view, digest)),
            prepared: Some((view, digest)),
            preprepared: vec![(digest, view)],
        };
        let promises = Promises {
            stable: None,
            view,
            changing: false,
            leave: None,
            enter: None,
            must_sign: vec![ClientId(3), ClientId(9)],
            slots: vec![promised],
            learning: Some(Some(Floor { seq: SeqNum(40), view: View(2) })),
        };
        let stale = Record::Prepared { view, seq: SeqNum(8), digest };
        let pbft = restarted(vec![accepted, stale, Record::State(promises.clone())]);
        assert_eq!(pbft.standing_promises(), promises);
        assert!(pbft.slots[&seq].has_body(digest));
        assert!(!pbft.slots.contains_key(&SeqNum(8)), "what the state does not name is gone");
    }
}
