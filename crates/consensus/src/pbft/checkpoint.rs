//! Checkpoints and what is known of certificates (TOCS section 4.4).

use super::context::{Config, Marks};
use super::outbox::Outbox;
use super::{
    Arc, BTreeMap, CertifiedCheckpoint, Checkpoint, Effect, Evidence, PbftMessage, ReplicaId,
    SeqNum, SignatureBytes,
};
use std::ops::Bound::{Excluded, Unbounded};
use tercio_types::zoo::{Defence, Mutant, less, stands};
use tercio_wire::checkpoint_key;

/// How a state of ours compares with the certificate of its number.
pub(super) enum Own {
    /// Another state is certified.
    Differs,
    /// Nobody need sign it any more.
    Certified,
    /// It is not certified yet.
    New,
}

/// Signed states, ours and others', and the certificates that came of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    /// The certificate at the low watermark.
    stable: Option<Arc<CertifiedCheckpoint>>,
    /// A certificate above what we executed.
    ahead: Option<Arc<CertifiedCheckpoint>>,
    /// The driver is fetching blocks up to here; nothing is delivered meanwhile.
    catching_up: Option<SeqNum>,
    /// The last number whose execution was reported.
    executed: SeqNum,
    /// The last number after which a checkpoint was due.
    last_due: SeqNum,
    own: BTreeMap<SeqNum, Checkpoint>,
    /// Each replica's latest signed states, bounded per replica.
    said: BTreeMap<ReplicaId, BTreeMap<SeqNum, (Checkpoint, SignatureBytes)>>,
    /// The highest number at which each replica signed our state, as far as that has put off rule
    /// T4.
    agreed: BTreeMap<ReplicaId, SeqNum>,
    /// Each replica's latest signed state, to show it when it starts again (rule L7).
    latest: BTreeMap<ReplicaId, (Checkpoint, SignatureBytes)>,
}

impl Checkpoints {
    pub(super) fn new(executed: SeqNum) -> Self {
        Self { executed, ..Self::default() }
    }

    pub(super) fn stable(&self) -> Option<&Arc<CertifiedCheckpoint>> {
        self.stable.as_ref()
    }

    pub(super) fn ahead(&self) -> Option<&Arc<CertifiedCheckpoint>> {
        self.ahead.as_ref()
    }

    /// The highest certificate that we know.
    pub(super) fn highest(&self) -> Option<&Arc<CertifiedCheckpoint>> {
        let known = [&self.stable, &self.ahead].into_iter().flatten();
        known.max_by_key(|certificate| certificate.checkpoint.seq)
    }

    pub(super) fn executed(&self) -> SeqNum {
        self.executed
    }

    pub(super) fn is_catching_up(&self) -> bool {
        self.catching_up.is_some()
    }

    pub(super) fn last_due(&self) -> SeqNum {
        self.last_due
    }

    /// A checkpoint is due after `seq`.
    pub(super) fn fell_due(&mut self, seq: SeqNum) {
        self.last_due = self.last_due.max(seq);
    }

    /// How many signed states are kept.
    pub(super) fn len(&self) -> usize {
        self.said.values().map(BTreeMap::len).sum()
    }

    pub(super) fn on_executed(&mut self, seq: SeqNum) {
        self.executed = self.executed.max(seq);
    }

    /// We reached a state.
    pub(super) fn on_own(&mut self, checkpoint: &Checkpoint, low: SeqNum, out: &mut Outbox) -> Own {
        let seq = checkpoint.seq;
        self.fell_due(seq);
        if let Some(stable) = self.stable.as_ref().filter(|s| s.checkpoint.seq == seq) {
            if let Some(what) = checkpoint.first_difference(&stable.checkpoint) {
                out.evidence(Evidence::OwnStateDiffers { seq, what });
                return Own::Differs;
            }
            return Own::Certified;
        }
        if seq <= low {
            return Own::Certified;
        }
        self.own.insert(seq, checkpoint.clone());
        // What others said before may be compared only now.
        for (replica, said) in &self.said {
            if let Some((theirs, _)) = said.get(&seq) {
                self.compare(*replica, theirs, out);
            }
        }
        Own::New
    }

    /// Rule C1: signs a state.
    pub(super) fn sign(config: &Config, checkpoint: &Checkpoint) -> SignatureBytes {
        let said = checkpoint_key(config.suite, config.me, checkpoint);
        config.signer.sign(&said.to_array())
    }

    /// Rule C2: a signed state that differs from ours at its number is told of.
    fn compare(&self, replica: ReplicaId, theirs: &Checkpoint, out: &mut Outbox) {
        let seq = theirs.seq;
        let stable = self.stable.as_ref().map(|s| &s.checkpoint).filter(|s| s.seq == seq);
        let own = self.own.get(&seq).or(stable);
        if let Some(what) = own.and_then(|own| own.first_difference(theirs))
            && stands(Defence::F26CompareCheckpoints)
        {
            out.evidence(Evidence::Divergence { replica, seq, what, state: theirs.state });
        }
    }

    /// A replica's signed state; whether that is a step towards stability (rule T4).
    pub(super) fn on_checkpoint(
        &mut self,
        config: &Config,
        from: ReplicaId,
        checkpoint: Checkpoint,
        signature: SignatureBytes,
        low: SeqNum,
        out: &mut Outbox,
    ) -> bool {
        let seq = checkpoint.seq;
        self.compare(from, &checkpoint, out);
        if self.latest.get(&from).is_none_or(|(known, _)| known.seq < seq) {
            self.latest.insert(from, (checkpoint.clone(), signature));
        }
        if seq <= low {
            return false;
        }
        // Numbers beyond the window are kept too: that is how one that lags learns of it. Each
        // sender pays with its own entries.
        let most = (config.settings.window / config.settings.checkpoint_interval) as usize + 8;
        let is_step = self.is_step_towards_stability(from, &checkpoint);
        let said = self.said.entry(from).or_default();
        said.entry(seq).or_insert((checkpoint, signature));
        if said.len() > most && stands(Defence::F29BoundedBacklog) {
            said.pop_first();
        }
        is_step
    }

    /// Rule T4: a replica that signs our state at a number above those at which it did before is on
    /// the way to a certificate. Nothing else puts the rule off, so a liar can do that only as often
    /// as we have states that no certificate covers.
    fn is_step_towards_stability(&mut self, from: ReplicaId, checkpoint: &Checkpoint) -> bool {
        let ours = self.own.get(&checkpoint.seq) == Some(checkpoint);
        let agreed = self.agreed.entry(from).or_default();
        let is = ours && checkpoint.seq > *agreed;
        if is {
            *agreed = checkpoint.seq;
        }
        is
    }

    /// Rule C2: a quorum of equal signed states is a certificate.
    pub(super) fn certify(&self, config: &Config, seq: SeqNum) -> Option<CertifiedCheckpoint> {
        let mut by_state: Vec<CertifiedCheckpoint> = Vec::new();
        for (replica, said) in &self.said {
            let Some((checkpoint, signature)) = said.get(&seq) else { continue };
            let counts = |c: &&mut CertifiedCheckpoint| {
                c.checkpoint == *checkpoint || !stands(Defence::F26CompareCheckpoints)
            };
            match by_state.iter_mut().find(counts) {
                Some(certificate) => certificate.signatures.push((*replica, *signature)),
                None => by_state.push(CertifiedCheckpoint {
                    checkpoint: checkpoint.clone(),
                    signatures: vec![(*replica, *signature)],
                }),
            }
        }
        let quorum = less(Mutant::CertificateLess, config.quorum());
        by_state.into_iter().find(|c| c.signatures.len() >= quorum)
    }

    /// A certificate whose signatures are good: ours to assemble, or from another replica. Gives it
    /// back when we have reached it: then it is to be made stable.
    pub(super) fn on_certificate(
        &mut self,
        config: &Config,
        certificate: Arc<CertifiedCheckpoint>,
        marks: Marks,
        out: &mut Outbox,
    ) -> Option<Arc<CertifiedCheckpoint>> {
        let checkpoint = &certificate.checkpoint;
        let seq = checkpoint.seq;
        if certificate.signatures.len() < less(Mutant::CertificateLess, config.quorum()) {
            out.drop_message("certificate_without_quorum");
            return None;
        }
        if seq <= marks.low {
            return None;
        }
        let own = self.own.get(&seq);
        if let Some(what) = own.and_then(|own| own.first_difference(checkpoint)) {
            out.evidence(Evidence::OwnStateDiffers { seq, what });
            return None;
        }
        if seq <= self.executed {
            return Some(certificate);
        }
        if self.ahead.as_ref().is_none_or(|known| known.checkpoint.seq < seq) {
            self.ahead = Some(certificate);
        }
        // Within the window it may just be that we are a moment late; the status timer decides.
        if seq > marks.high {
            self.catch_up(marks.delivered, out);
        }
        None
    }

    /// Rule S3: what the others have forgotten comes as blocks.
    pub(super) fn catch_up(&mut self, delivered: SeqNum, out: &mut Outbox) {
        let Some(ahead) = &self.ahead else { return };
        if self.catching_up.is_none() && ahead.checkpoint.seq > delivered {
            self.catching_up = Some(ahead.checkpoint.seq);
            out.push(Effect::CatchUp(ahead.clone()));
        }
    }

    /// The driver has fetched what it was asked for.
    pub(super) fn on_caught_up(&mut self) {
        self.catching_up = None;
    }

    /// State up to `seq` came as blocks.
    pub(super) fn skip_to(&mut self, seq: SeqNum) {
        self.executed = seq;
        self.last_due = seq;
    }

    /// The certificate that was ahead of what we have executed, once it is not.
    pub(super) fn take_reached(&mut self) -> Option<Arc<CertifiedCheckpoint>> {
        let executed = self.executed;
        self.ahead.take_if(|ahead| ahead.checkpoint.seq <= executed)
    }

    /// What the disk or the log of a restarted replica has a certificate of may not be reached yet.
    pub(super) fn recall_ahead(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        self.ahead = Some(certificate);
    }

    /// The window moves to a certificate: states up to it are let go of.
    pub(super) fn move_to(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        let above = certificate.checkpoint.seq.next();
        self.own = self.own.split_off(&above);
        for said in self.said.values_mut() {
            *said = said.split_off(&above);
        }
        self.stable = Some(certificate);
    }

    /// Our states above `low`.
    pub(super) fn own_above(&self, low: SeqNum) -> Vec<Checkpoint> {
        self.own.range((Excluded(low), Unbounded)).map(|(_, own)| own.clone()).collect()
    }

    /// What others signed last, for the log.
    pub(super) fn heard(&self, config: &Config) -> Vec<CertifiedCheckpoint> {
        config.others().filter_map(|by| self.said_by(by)).collect()
    }

    /// The log says what others signed.
    pub(super) fn recall_heard(&mut self, heard: Vec<CertifiedCheckpoint>) {
        for CertifiedCheckpoint { checkpoint, signatures } in heard {
            for (by, signature) in signatures {
                self.latest.insert(by, (checkpoint.clone(), signature));
            }
        }
    }

    /// Rule L7: the latest state that `by` signed, as far as we know, under its signature alone.
    pub(super) fn said_by(&self, by: ReplicaId) -> Option<CertifiedCheckpoint> {
        let certified = [&self.stable, &self.ahead].into_iter().flatten().filter_map(|known| {
            let (_, signature) = known.signatures.iter().find(|(signer, _)| *signer == by)?;
            Some((&known.checkpoint, signature))
        });
        let heard = self.latest.get(&by).map(|(checkpoint, signature)| (checkpoint, signature));
        let (checkpoint, signature) = certified.chain(heard).max_by_key(|(c, _)| c.seq)?;
        let signatures = vec![(by, *signature)];
        Some(CertifiedCheckpoint { checkpoint: checkpoint.clone(), signatures })
    }

    /// Says our own signed states above `stable` again.
    pub(super) fn send_above(
        &self,
        config: &Config,
        to: ReplicaId,
        stable: SeqNum,
        out: &mut Outbox,
    ) {
        let said = self.said.get(&config.me);
        let above = said.into_iter().flat_map(|said| said.range((Excluded(stable), Unbounded)));
        for (_, (checkpoint, signature)) in above {
            let (checkpoint, signature) = (checkpoint.clone().into(), (*signature).into());
            out.send(to, PbftMessage::Checkpoint { checkpoint, signature });
        }
    }
}
