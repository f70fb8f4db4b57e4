//! Checkpoints, watermarks and garbage collection (TOCS section 4.4), and optional attestations.

use super::{
    Arc, BTreeMap, CertifiedCheckpoint, Checkpoint, ClientId, Digest, Effect, Evidence, Height,
    Instant, Pbft, PbftMessage, Promise, Record, ReplicaId, RequestWindow, SeqNum, SignatureBytes,
    VoteTable,
};
use std::cmp::Ordering;
use std::ops::Bound::{Excluded, Unbounded};
use tercio_types::zoo::{Defence, Mutant, less, mutated, stands};
use tercio_wire::{Encode, Key, Kind, checkpoint_key};

/// How many blocks may wait for a quorum of attestations.
const MAX_ATTESTING: usize = 1024;

impl<T: VoteTable> Pbft<T> {
    /// Rule C1: what was executed may be signed once it is durable.
    pub(super) fn on_executed(
        &mut self,
        seq: SeqNum,
        block: Option<(Height, Digest)>,
        checkpoint: Option<Checkpoint>,
    ) {
        self.executed = self.executed.max(seq);
        self.idle_since = self.now;
        if let Some((height, block)) = block.filter(|_| self.settings.attest) {
            let key = Key::of_replica(Kind::ATTEST, self.me, 0, height.0, block);
            let signature = self.signer.sign(&key.to_array());
            self.broadcast(PbftMessage::Attest { height, block, signature });
            self.on_attest(self.me, height, block, signature);
        }
        if let Some(checkpoint) = checkpoint {
            let seq = checkpoint.seq;
            self.last_checkpoint = self.last_checkpoint.max(seq);
            if let Some(stable) = self.stable.as_ref().filter(|s| s.checkpoint.seq == seq) {
                if let Some(what) = checkpoint.first_difference(&stable.checkpoint) {
                    return self.evidence(Evidence::OwnStateDiffers { seq, what });
                }
            } else if seq > self.low {
                self.own_checkpoints.insert(seq, checkpoint.clone());
                // What others said before may be compared only now.
                let said = self.said_checkpoints.iter();
                let said: Vec<_> = said
                    .filter_map(|(replica, said)| Some((*replica, said.get(&seq)?.0.clone())))
                    .collect();
                said.iter().for_each(|(replica, theirs)| self.compare(*replica, theirs));
                if self.may_sign(seq) {
                    self.persist_blocks(checkpoint);
                }
            }
        }
        self.reach_ahead();
    }

    /// Rule P4: CHECKPOINT promises that we have the state whatever happens to our memory. Its
    /// blocks are durable before it is signed.
    fn persist_blocks(&mut self, checkpoint: Checkpoint) {
        let (id, height) = (self.next_persist(), checkpoint.height);
        if !stands(Defence::F46DurableCheckpoint) {
            return self.say_checkpoint(checkpoint);
        }
        self.effects.push_back(Effect::PersistBlocks { id, height });
        self.promises.push_back((id, Promise::Checkpoint(checkpoint)));
    }

    /// Rule C1: signs a state. When a certificate has come meanwhile, nobody needs our word.
    pub(super) fn say_checkpoint(&mut self, checkpoint: Checkpoint) {
        if checkpoint.seq <= self.low {
            return;
        }
        let said = checkpoint_key(self.suite, self.me, &checkpoint);
        let signature = self.signer.sign(&said.to_array());
        self.broadcast(PbftMessage::Checkpoint { checkpoint: checkpoint.clone(), signature });
        self.on_checkpoint(self.me, checkpoint, signature);
    }

    /// Rule C2: a signed state that differs from ours at its number is told of.
    fn compare(&mut self, replica: ReplicaId, theirs: &Checkpoint) {
        let seq = theirs.seq;
        let stable = self.stable.as_ref().map(|s| &s.checkpoint).filter(|s| s.seq == seq);
        let own = self.own_checkpoints.get(&seq).or(stable);
        if let Some(what) = own.and_then(|own| own.first_difference(theirs))
            && stands(Defence::F26CompareCheckpoints)
        {
            self.evidence(Evidence::Divergence { replica, seq, what, state: theirs.state });
        }
    }

    /// A replica's signed state.
    pub(super) fn on_checkpoint(
        &mut self,
        from: ReplicaId,
        checkpoint: Checkpoint,
        signature: SignatureBytes,
    ) {
        let seq = checkpoint.seq;
        self.compare(from, &checkpoint);
        if seq <= self.low {
            return;
        }
        // Numbers beyond the window are kept too: that is how one that lags learns of it. Each
        // sender pays with its own entries.
        let most = (self.settings.window / self.settings.checkpoint_interval) as usize + 8;
        if self.is_step_towards_stability(from, &checkpoint) {
            self.idle_since = self.now;
        }
        let said = self.said_checkpoints.entry(from).or_default();
        said.entry(seq).or_insert((checkpoint, signature));
        if said.len() > most && stands(Defence::F29BoundedBacklog) {
            said.pop_first();
        }
        self.certify(seq);
    }

    /// Rule T4: a replica that signs our state at a number above those at which it did before is on
    /// the way to a certificate. Nothing else puts the rule off, so a liar can do that only as often
    /// as we have states that no certificate covers.
    fn is_step_towards_stability(&mut self, from: ReplicaId, checkpoint: &Checkpoint) -> bool {
        let ours = self.own_checkpoints.get(&checkpoint.seq) == Some(checkpoint);
        let agreed = self.agreed_checkpoints.entry(from).or_default();
        let is = ours && checkpoint.seq > *agreed;
        if is {
            *agreed = checkpoint.seq;
        }
        is
    }

    /// Rule C2: a quorum of equal signed states is a certificate.
    fn certify(&mut self, seq: SeqNum) {
        let mut by_state: Vec<CertifiedCheckpoint> = Vec::new();
        for (replica, said) in &self.said_checkpoints {
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
        let quorum = less(Mutant::CertificateLess, self.membership.quorum());
        if let Some(certificate) = by_state.into_iter().find(|c| c.signatures.len() >= quorum) {
            self.on_certificate(Arc::new(certificate));
        }
    }

    /// A certificate whose signatures are good: ours to assemble, or from another replica.
    pub(super) fn on_certificate(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        let checkpoint = &certificate.checkpoint;
        let seq = checkpoint.seq;
        if certificate.signatures.len() < less(Mutant::CertificateLess, self.membership.quorum()) {
            return self.drop_message("certificate_without_quorum");
        }
        if seq <= self.low {
            return;
        }
        let own = self.own_checkpoints.get(&seq);
        if let Some(what) = own.and_then(|own| own.first_difference(checkpoint)) {
            return self.evidence(Evidence::OwnStateDiffers { seq, what });
        }
        if seq <= self.executed {
            return self.make_stable(certificate);
        }
        if self.ahead.as_ref().is_none_or(|known| known.checkpoint.seq < seq) {
            self.ahead = Some(certificate);
        }
        // Within the window it may just be that we are a moment late; the status timer decides.
        if seq > self.high() {
            self.catch_up();
        }
    }

    /// Rule S3: what the others have forgotten comes as blocks.
    pub(super) fn catch_up(&mut self) {
        let Some(ahead) = &self.ahead else { return };
        if self.catching_up.is_none() && ahead.checkpoint.seq > self.delivered {
            self.catching_up = Some(ahead.checkpoint.seq);
            self.effects.push_back(Effect::CatchUp(ahead.clone()));
        }
    }

    /// State came as blocks.
    pub(super) fn on_caught_up(
        &mut self,
        certificate: Arc<CertifiedCheckpoint>,
        windows: BTreeMap<ClientId, RequestWindow>,
    ) {
        let seq = certificate.checkpoint.seq;
        self.catching_up = None;
        if !stands(Defence::F34FetchedIsDelivered) {
            return;
        }
        if seq > self.delivered {
            self.delivered = seq;
            self.executed = seq;
            self.next_seq = self.next_seq.max(seq.next());
            self.last_checkpoint = seq;
            self.idle_since = self.now;
            self.pool.replace_windows(windows, self.now);
        }
        self.reach_ahead();
        self.on_certificate(certificate);
        // The window may have moved on since these blocks were asked for.
        if self.delivered < self.low {
            self.catch_up();
        }
    }

    /// Takes the certificate that was ahead of what we have executed, once it is not.
    pub(super) fn reach_ahead(&mut self) {
        let reached = |ahead: &mut Arc<CertifiedCheckpoint>| ahead.checkpoint.seq <= self.executed;
        let Some(ahead) = self.ahead.take_if(reached) else { return };
        match ahead.checkpoint.seq.cmp(&self.low) {
            Ordering::Less => {}
            // Rule W3: the window has moved there already.
            Ordering::Equal => self.make_stable(ahead),
            Ordering::Greater => self.on_certificate(ahead),
        }
    }

    /// Rule W3: one that enters a view and lags moves its window to the highest certificate that it
    /// knows, and fetches what lies below. What it promised there binds nobody: it is decided, and
    /// a VIEW-CHANGE of ours begins above it. The log says so before it says that we entered, so
    /// that nothing is forgotten that a restarted replica would have to know.
    pub(super) fn skip_to_ahead(&mut self) {
        let Some(ahead) = self.ahead.clone().filter(|ahead| ahead.checkpoint.seq > self.low) else {
            return;
        };
        if !stands(Defence::F44SkipToCertificate) {
            return;
        }
        if !mutated(Mutant::SkipForgotten) {
            self.persist(&Record::Skipped(ahead.clone()), None);
        }
        self.move_window(ahead);
    }

    /// Moves the window to a certificate that the log says was skipped or stable (rules W1, W3), unless
    /// the disk has a later one.
    pub(super) fn recall_certificate(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        if certificate.checkpoint.seq > self.low {
            self.ahead = Some(certificate.clone());
            self.move_window(certificate);
        }
    }

    /// Moves the watermarks and releases what lies below.
    pub(super) fn move_window(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        let seq = certificate.checkpoint.seq;
        assert!(seq > self.low, "the window moves up");
        self.low = seq;
        self.slots = self.slots.split_off(&seq.next());
        self.votes.forget(seq);
        self.own_checkpoints = self.own_checkpoints.split_off(&seq.next());
        for said in self.said_checkpoints.values_mut() {
            *said = said.split_off(&seq.next());
        }
        self.delivered_bytes = self.count_delivered();
        self.stable = Some(certificate);
    }

    /// Rule W1: a stable checkpoint that we have reached moves the window there, and what the disk
    /// keeps of what lies below may go.
    fn make_stable(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        let seq = certificate.checkpoint.seq;
        assert!(seq >= self.low && seq <= self.executed, "a checkpoint we have reached");
        if seq > self.low {
            self.move_window(certificate.clone());
        }
        // The log's older records go; this one stands for all that still binds us. It follows what it
        // stands on, by construction: one effect.
        let record = Record::State(self.standing_promises()).to_bytes();
        let id = self.next_persist();
        self.effects.push_back(Effect::Stable { certificate, id, record });
        let (view, primary, high) = (self.view, self.primary(), self.high());
        let inside = self.parked.split_off(&high.next());
        for (seq, (parked_in, batch, doubts)) in std::mem::replace(&mut self.parked, inside) {
            if parked_in == view {
                self.on_pre_prepare(primary, view, seq, batch, &doubts);
            }
        }
    }

    /// Rule C3: when an idle primary asks for a checkpoint.
    pub(super) fn checkpoint_deadline(&self) -> Option<Instant> {
        let uncovered = self.delivered > self.last_checkpoint;
        let idle = self.pool.is_empty() && self.next_seq == self.delivered.next();
        (self.may_propose() && uncovered && idle)
            .then(|| self.idle_since + self.settings.checkpoint_idle)
    }

    /// Rule C4: a quorum's signatures on a block.
    pub(super) fn on_attest(
        &mut self,
        from: ReplicaId,
        height: Height,
        block: Digest,
        signature: SignatureBytes,
    ) {
        if !self.settings.attest || height <= self.attested {
            return;
        }
        let reach = self.attested.0 + MAX_ATTESTING as u64;
        if from == self.me && height.0 > reach {
            // After a restart: what lies far below is nobody's to attest any more.
            self.attested = Height(height.0 - MAX_ATTESTING as u64 / 2);
            self.said_attestations = self.said_attestations.split_off(&self.attested.next());
        } else if height.0 > reach {
            return self.drop_message("attestation_too_far");
        }
        let said = self.said_attestations.entry(height).or_default();
        said.entry(from).or_insert((block, signature));
        let agreed: Vec<_> =
            said.iter().filter(|(_, (b, _))| *b == block).map(|(r, (_, s))| (*r, *s)).collect();
        if agreed.len() == self.membership.quorum() {
            self.effects.push_back(Effect::Attested { height, block, signatures: agreed });
        }
        // Heights are done in any order; the lowest is given up when too many wait behind it.
        // A liar's word is no reason: it counts for its own block only.
        let quorum = self.membership.quorum();
        let is_done = |said: &BTreeMap<ReplicaId, (Digest, SignatureBytes)>| {
            let equal = |block| said.values().filter(|(b, _)| *b == block).count();
            said.len() >= quorum && said.values().any(|(block, _)| equal(*block) >= quorum)
        };
        while let Some((height, said)) = self.said_attestations.first_key_value() {
            if !is_done(said) && self.said_attestations.len() <= MAX_ATTESTING {
                break;
            }
            self.attested = *height;
            self.said_attestations.pop_first();
        }
    }

    /// Our own signed states above `stable`, to say again.
    pub(super) fn own_checkpoints_above(&self, stable: SeqNum) -> Vec<PbftMessage> {
        let said = self.said_checkpoints.get(&self.me);
        let above = said.into_iter().flat_map(|said| said.range((Excluded(stable), Unbounded)));
        above
            .map(|(_, (checkpoint, signature))| PbftMessage::Checkpoint {
                checkpoint: checkpoint.clone(),
                signature: *signature,
            })
            .collect()
    }
}
