//! A restart: the promises that the log and the disk hold are taken up, and said again (rules P2
//! and P3).

use super::outbox::Promise;
use super::record::Record;
use super::{Arc, CertifiedCheckpoint, LeaveCause, Pbft, PbftMessage, Recovery, VoteTable, select};
use crate::RecoverError;
use tercio_types::zoo::{Defence, Mutant, mutated, stands};
use tercio_wire::{Decode, DecodeError};

impl<T: VoteTable> Pbft<T> {
    /// Rule P2: takes the promises up again, and says them again.
    pub(super) fn recover(&mut self, recovery: &Recovery) -> Result<(), RecoverError> {
        if let Some(stable) = &recovery.stable {
            let stable = Arc::new(stable.clone());
            if stable.checkpoint.seq > self.slots.delivered() {
                self.checkpoints.recall_ahead(stable.clone());
            }
            self.checkpoints.fell_due(stable.checkpoint.seq);
            self.move_window(stable);
        }
        for (index, record) in recovery.records.iter().enumerate() {
            if !stands(Defence::F03RememberPromises) {
                break;
            }
            let record = Record::from_bytes(record, self.config.suite)
                .map_err(|error| RecoverError::Record { index, error })?;
            self.recall(record).map_err(|error| RecoverError::Record { index, error })?;
        }
        if recovery.lost_log {
            self.learner.begin(&self.config, &mut self.out);
        } else if recovery.ask_first {
            self.learner.begin_to_ask(&self.config, self.slots.low());
        }
        self.slots.forget_below();
        self.take_up();
        self.lead_or_resign(recovery.records.is_empty() && !recovery.lost_log);
        self.learner.ask(&self.config, &mut self.out);
        Ok(())
    }

    fn recall(&mut self, record: Record) -> Result<(), DecodeError> {
        match record {
            Record::Accepted { view, seq, digest, body } => {
                self.slots.recall_accepted(view, seq, digest, body, self.config.suite)?;
            }
            Record::Prepared { view, seq, digest } => self.slots.recall_prepared(view, seq, digest),
            Record::Leave(_) if mutated(Mutant::LeaveForgotten) => {}
            Record::Leave(view_change) => self.views.recall_leave(view_change),
            Record::Enter(_) if mutated(Mutant::EnterForgotten) => {}
            Record::Enter(new_view) => {
                // Rule A3: for the epoch, whatever view comes after.
                let contents = new_view.view_changes.iter().map(|vc| &vc.content);
                let blamed = contents.flat_map(|content| &content.blamed).copied();
                self.requests.blame(&self.config.membership, blamed);
                self.views.recall_enter(new_view);
            }
            Record::Learning(floor) => self.learner.recall(Some(floor)),
            Record::Heard(heard) => self.checkpoints.recall_heard(heard),
            Record::Skipped(certificate) => self.recall_certificate(certificate),
            Record::State(promises) => {
                if stands(Defence::F45StateFollows) {
                    promises.stable.into_iter().for_each(|stable| self.recall_certificate(stable));
                }
                self.learner.recall(promises.learning);
                self.learner.recall_agreed(promises.agreed);
                self.slots.recall_agreed(promises.agreed);
                self.views.recall(promises.view);
                self.requests.recall_must_sign(promises.must_sign);
                self.slots.recall_promises(promises.slots);
            }
        }
        Ok(())
    }

    /// Moves the window to a certificate that the log says was skipped or stable (rules W1, W3), unless
    /// the disk has a later one.
    fn recall_certificate(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        if certificate.checkpoint.seq > self.slots.low() {
            self.checkpoints.recall_ahead(certificate.clone());
            self.move_window(certificate);
        }
    }

    /// Sets up what follows from the promises.
    fn take_up(&mut self) {
        let (quorum, weak) = (self.config.quorum(), self.config.weak_quorum());
        let begun = self.views.begun();
        let selection = begun.and_then(|begun| select(&begun.view_changes, quorum, weak));
        // Numbers up to where the window was moved may have been executed since.
        self.reach_ahead();
        // Certificates that were learnt on the way into the view, or out of the last, still hold.
        let learnt = selection.as_ref().and_then(|selection| selection.stable.clone());
        let proved = self.views.last_leave().and_then(|leaving| leaving.content.stable.clone());
        for certificate in [learnt, proved].into_iter().flatten() {
            self.on_certificate(Arc::new(certificate));
        }
        self.skip_to_ahead();
        if let Some(selection) = &selection {
            self.adopt(selection);
        }
        let at = self.at();
        let repeated = self.slots.repeat_promises(&self.config, at, &mut self.out);
        for seq in [repeated, self.slots.delivered(), self.slots.low()] {
            self.proposer.is_taken(seq);
        }
        if let Some(selection) = &selection {
            self.slots.vote_for(&self.config, at, selection, &mut self.out);
        }
        if let Some(leaving) = self.views.leaving() {
            self.out.broadcast(PbftMessage::ViewChange(leaving.clone()));
            self.on_own_view_change(leaving);
        }
    }

    /// Rule P3: what we proposed in this view before we stopped may be in no log of ours. So we
    /// propose nothing more in it, and say so at once, that nobody waits for us.
    pub(super) fn lead_or_resign(&mut self, fresh: bool) {
        let at = self.at();
        if !at.is_primary(&self.config) || at.changing {
            return;
        }
        let alone = self.config.membership.n() == 1;
        if fresh {
            self.out.persist(&Record::State(self.standing_promises()), Promise::Lead);
        } else if alone || !stands(Defence::F42ResignAfterRestart) {
            self.proposer.lead();
        } else if !self.learner.resign_later() && self.may_leave_for(at.view.next()) {
            self.leave(at.view.next(), LeaveCause::Restarted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::normal::SlotPromises;
    use super::super::record::Promises;
    use super::super::view_change::ViewPromises;
    use super::*;
    use crate::{Floor, Instant, Settings};
    use std::collections::BTreeMap;
    use tercio_crypto::{Instance, Keyring, SecretKey};
    use tercio_types::{Batch, ClientId, SeqNum, Suite, View};
    use tercio_types::{
        ChainId, Epoch, FaultModel, Member, Membership, Principal, ReplicaId, Timestamp,
    };
    use tercio_wire::{Encode, EncodedBatch};

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
            view: ViewPromises { view, changing: false, leave: None, enter: None },
            must_sign: vec![ClientId(3), ClientId(9)],
            slots: vec![promised],
            learning: Some(Some(Floor { seq: SeqNum(40), view: View(2) })),
            agreed: Some(Floor { seq: SeqNum(9), view: View(1) }),
        };
        let stale = Record::Prepared { view, seq: SeqNum(8), digest };
        let pbft = restarted(vec![accepted, stale, Record::State(promises.clone())]);
        assert_eq!(pbft.standing_promises(), promises);
        assert!(pbft.slots.body(&pbft.config, seq, digest).is_some());
        assert_eq!(pbft.slots.len(), 1, "what the state does not name is gone");
    }
}
