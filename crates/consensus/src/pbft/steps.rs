//! Steps that move several parts at once: checkpoints and what follows from them, and the way from
//! view to view.

use super::checkpoint::{Checkpoints, Own};
use super::message::MAX_BLAMED;
use super::outbox::Promise;
use super::record::{Promises, Record};
use super::view_change::{Heard, Move};
use super::{
    Arc, BTreeMap, CertifiedCheckpoint, Checkpoint, ClientId, Digest, Effect, Height, LeaveCause,
    Pbft, PbftMessage, Proposal, ReplicaId, RequestWindow, Selection, SeqNum, SignatureBytes,
    SignedNewView, SignedViewChange, Standing, View, ViewStep, VoteTable,
};
use std::cmp::Ordering;
use tercio_types::zoo::{Defence, Mutant, mutated, stands};

impl<T: VoteTable> Pbft<T> {
    /// Rule L5: whether a VIEW-CHANGE of ours would tell of all that binds us.
    pub(super) fn may_leave_for(&self, target: View) -> bool {
        self.learner.may_leave_for(target, self.slots.low())
    }

    /// Whether we may leave this view for the next.
    pub(super) fn may_leave_now(&self) -> bool {
        self.may_leave_for(self.views.view().next())
    }

    /// All that binds us now.
    pub(super) fn standing_promises(&self) -> Promises {
        Promises {
            stable: self.checkpoints.stable().cloned(),
            view: self.views.promises(),
            must_sign: self.requests.must_sign(),
            slots: self.slots.promises(),
            learning: self.learner.floor(),
            agreed: self.learner.agreed(),
        }
    }

    /// Rule C1: what was executed may be signed once it is durable.
    pub(super) fn on_executed(
        &mut self,
        seq: SeqNum,
        block: Option<(Height, Digest)>,
        checkpoint: Option<Checkpoint>,
    ) {
        self.checkpoints.on_executed(seq);
        self.slots.came_further(self.now);
        if let Some((height, block)) = block {
            self.attestations.on_block(&self.config, height, block, &mut self.out);
        }
        if let Some(checkpoint) = checkpoint {
            match self.checkpoints.on_own(&checkpoint, self.slots.low(), &mut self.out) {
                Own::Differs => return,
                Own::New => self.sign_when_durable(checkpoint),
                Own::Certified => {}
            }
        }
        self.reach_ahead();
    }

    /// Rule P4.
    pub(super) fn sign_when_durable(&mut self, checkpoint: Checkpoint) {
        if !self.learner.may_sign(checkpoint.seq) {
            return;
        }
        if stands(Defence::F46DurableCheckpoint) {
            self.out.persist_blocks(checkpoint);
        } else {
            self.say_checkpoint(checkpoint);
        }
    }

    /// State came as blocks.
    pub(super) fn on_caught_up(
        &mut self,
        certificate: Arc<CertifiedCheckpoint>,
        windows: BTreeMap<ClientId, RequestWindow>,
    ) {
        let seq = certificate.checkpoint.seq;
        self.checkpoints.on_caught_up();
        if !stands(Defence::F34FetchedIsDelivered) {
            return;
        }
        if seq > self.slots.delivered() {
            self.slots.skip_to(seq, self.now);
            self.checkpoints.skip_to(seq);
            self.proposer.is_taken(seq);
            self.requests.skip_to(windows, self.now);
        }
        self.reach_ahead();
        self.on_certificate(certificate);
        // The window may have moved on since these blocks were asked for.
        if self.slots.delivered() < self.slots.low() {
            self.checkpoints.catch_up(self.slots.delivered(), &mut self.out);
        }
    }

    /// A replica's signed state, perhaps our own.
    pub(super) fn on_checkpoint(
        &mut self,
        from: ReplicaId,
        checkpoint: Checkpoint,
        signature: SignatureBytes,
    ) {
        let (seq, low) = (checkpoint.seq, self.slots.low());
        let (config, out) = (&self.config, &mut self.out);
        if self.checkpoints.on_checkpoint(config, from, checkpoint, signature, low, out) {
            self.slots.came_further(self.now);
        }
        if seq > low
            && let Some(certificate) = self.checkpoints.certify(config, seq)
        {
            self.on_certificate(Arc::new(certificate));
        }
    }

    /// Rule C1: signs a state. When a certificate has come meanwhile, nobody needs our word for
    /// that; but it tells us, should we ask, how far our log came (rule L7).
    pub(super) fn say_checkpoint(&mut self, checkpoint: Checkpoint) {
        self.learner.sign(checkpoint.seq);
        let signature = Checkpoints::sign(&self.config, &checkpoint);
        let said = (checkpoint.clone().into(), signature.into());
        self.out.broadcast(PbftMessage::Checkpoint { checkpoint: said.0, signature: said.1 });
        self.on_checkpoint(self.config.me, checkpoint, signature);
    }

    /// A certificate whose signatures are good: ours to assemble, or from another replica.
    pub(super) fn on_certificate(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        self.see_own_word(&certificate);
        let marks = self.slots.marks(&self.config);
        let reached =
            self.checkpoints.on_certificate(&self.config, certificate, marks, &mut self.out);
        if let Some(reached) = reached {
            self.make_stable(reached);
        }
    }

    /// Takes the certificate that was ahead of what we have executed, once it is not.
    pub(super) fn reach_ahead(&mut self) {
        let Some(ahead) = self.checkpoints.take_reached() else { return };
        match ahead.checkpoint.seq.cmp(&self.slots.low()) {
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
        let low = self.slots.low();
        let ahead = self.checkpoints.ahead().filter(|ahead| ahead.checkpoint.seq > low);
        let Some(ahead) = ahead.cloned() else { return };
        if !stands(Defence::F44SkipToCertificate) {
            return;
        }
        if !mutated(Mutant::SkipForgotten) {
            self.out.note(&Record::Skipped(ahead.clone()));
        }
        self.move_window(ahead);
    }

    /// Moves the watermarks and lets go of what lies below.
    pub(super) fn move_window(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        self.slots.move_window(certificate.checkpoint.seq);
        self.checkpoints.move_to(certificate);
    }

    /// Rule W1: a stable checkpoint that we have reached moves the window there, and what the disk
    /// keeps of what lies below may go.
    fn make_stable(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        let seq = certificate.checkpoint.seq;
        let low = self.slots.low();
        assert!(seq >= low && seq <= self.checkpoints.executed(), "a checkpoint we have reached");
        if seq > low {
            self.move_window(certificate.clone());
        }
        // The log's older records go; this one stands for all that still binds us.
        self.out.stable(certificate, &Record::State(self.standing_promises()));
        if self.config.membership.n() > 1 {
            self.out.note(&Record::Heard(self.checkpoints.heard(&self.config)));
        }
        let at = self.at();
        for (seq, proposal) in self.slots.unpark(&self.config) {
            if proposal.view == at.view || at.follows(proposal.view) {
                let primary = self.config.membership.primary(proposal.view);
                self.on_pre_prepare(primary, seq, proposal);
            }
        }
        self.lone.at_rest();
    }

    /// A PRE-PREPARE from the network, or one that had to wait for the window.
    pub(super) fn on_pre_prepare(&mut self, from: ReplicaId, seq: SeqNum, proposal: Proposal) {
        let mut proposal = proposal;
        self.requests.doubt(&proposal.batch, &mut proposal.doubts);
        self.slots.on_pre_prepare(&self.config, self.at(), from, seq, proposal, &mut self.out);
    }

    /// Rule V1: leave all views below `target` and say what binds us. From here on we vote in none
    /// of them.
    pub(super) fn leave(&mut self, target: View, cause: LeaveCause) {
        assert!(self.may_leave_for(target), "a learner that knows too little stays");
        let view = self.views.view();
        self.out.push(Effect::View(ViewStep::Left { view, next: target, cause }));
        let blamed = self.slots.blamed(view, MAX_BLAMED);
        // What lies below the highest certificate that we know is decided, and nobody need hear of
        // it, though we may not have reached it.
        let stable = self.checkpoints.highest().map(|stable| CertifiedCheckpoint::clone(stable));
        let low = stable.as_ref().map_or(SeqNum(0), |certificate| certificate.checkpoint.seq);
        let claims = self.slots.claims_above(low);
        let signed = self.views.leave(&self.config, target, stable, claims, blamed);
        self.proposer.leave();
        self.lone.left(self.now);
        self.slots.clear_parked();
        // Rule L6: one that may leave for a view that it cannot have voted in has learnt enough,
        // and its log says both at once.
        let record = if self.learner.is_learning() {
            self.learner.end(self.slots.low());
            Record::State(self.standing_promises())
        } else {
            Record::Leave(signed.clone())
        };
        self.out.persist(&record, Promise::Leave(signed));
    }

    /// Rule V8: a primary leaves its view for the next so that one may take part again that left it
    /// alone.
    pub(super) fn let_in(&mut self) {
        if !self.lone.take_moment() || !stands(Defence::F62ReturnToTheView) {
            return;
        }
        let at = self.at();
        let leads = at.is_primary(&self.config) && !at.changing && self.may_leave_now();
        if leads && self.lone.is_due(&self.config, at) {
            self.leave(at.view.next(), LeaveCause::LetsIn);
        }
    }

    pub(super) fn on_view_change(&mut self, from: ReplicaId, view_change: Arc<SignedViewChange>) {
        let at = self.at();
        let (config, out) = (&self.config, &mut self.out);
        match self.views.on_view_change(config, from, view_change, out) {
            Heard::Nothing => {}
            Heard::Behind => {
                if self.resend.may_help(config, from, at) {
                    self.views.show(config, from, out);
                }
            }
            Heard::Latest(certificate) => {
                if let Some(certificate) = certificate {
                    self.on_certificate(certificate);
                }
                self.after_view_change();
            }
        }
    }

    pub(super) fn on_own_view_change(&mut self, view_change: Arc<SignedViewChange>) {
        self.views.on_own(&self.config, view_change);
        self.after_view_change();
    }

    /// Does what the VIEW-CHANGEs that we hold call for.
    pub(super) fn after_view_change(&mut self) {
        let (learner, low) = (&self.learner, self.slots.low());
        let may_leave_for = |view| learner.may_leave_for(view, low);
        match self.views.next_move(&self.config, self.at(), may_leave_for) {
            Some(Move::Leave(target, cause)) => self.leave(target, cause),
            Some(Move::Begin(new_view, selection)) => self.enter(new_view, &selection),
            None => {}
        }
    }

    /// A view begins with `selection`.
    pub(super) fn enter(&mut self, new_view: Arc<SignedNewView>, selection: &Selection) {
        self.views.enter(new_view.clone(), self.now);
        let (view, primary) = (new_view.view, self.config.membership.primary(new_view.view));
        self.out.push(Effect::View(ViewStep::Entered { view, primary }));
        self.proposer.enter(&self.config);
        self.slots.clear_parked();
        self.resend.enter(&self.config, self.at());
        if let Some(stable) = selection.stable.clone() {
            self.on_certificate(Arc::new(stable));
        }
        self.skip_to_ahead();
        self.checkpoints.catch_up(self.slots.delivered(), &mut self.out);
        self.out.persist(&Record::Enter(new_view.clone()), Promise::Enter(new_view));
        self.adopt(selection);
        let abandoned = self.slots.abandoned(self.views.view());
        let carried = self.slots.carried(selection);
        self.requests.requeue(abandoned, carried, self.now, &mut self.out);
        self.slots.enter(self.views.view());
        self.slots.vote_for(&self.config, self.at(), selection, &mut self.out);
    }

    /// Takes over what a selection proposes, without voting for it yet.
    pub(super) fn adopt(&mut self, selection: &Selection) {
        self.requests.blame(&self.config.membership, selection.blamed.iter().copied());
        self.proposer.begin_after(selection.last().max(self.slots.low()));
        self.slots.adopt(self.at(), selection);
    }

    /// Rule S2: send one that is behind what it lacks.
    pub(super) fn on_status(&mut self, from: ReplicaId, standing: Standing) {
        self.resend.heard(from, standing.delivered);
        let (at, low) = (self.at(), self.slots.low());
        self.lone.heard(&self.config, at, from, &standing, low);
        self.trips.heard(&self.config, from, standing.sent, &standing.echoes, self.now);
        if standing.well || !self.resend.may_help(&self.config, from, self.at()) {
            return;
        }
        let (config, at, low) = (&self.config, self.at(), self.slots.low());
        let out = &mut self.out;
        let stable = self.checkpoints.stable().filter(|_| standing.stable < low);
        if let Some(stable) = stable
            && stands(Defence::F27ServeLaggards)
        {
            out.send(from, PbftMessage::Stable(stable.clone()));
        }
        self.checkpoints.send_above(config, from, standing.stable, out);
        if standing.view < at.view || (standing.view == at.view && standing.changing) {
            self.views.show(config, from, out);
        }
        let pool = self.requests.pool();
        let sent = self.slots.repeat_to(config, at, from, standing.delivered, out);
        self.resend.helped_with(from, at.now + pool.time_for(sent));
    }
}
