//! Asking what we forgot, and answering others that do (rules L2 to L8).

use super::learner::Learnt;
use super::record::Record;
use super::{
    Arc, CertifiedCheckpoint, Pbft, PbftMessage, ReplicaId, Report, SignedNewView, VoteTable,
};

impl<T: VoteTable> Pbft<T> {
    /// Rules L2 and L7: the answer, which counts what is not durable yet too. A learner cannot
    /// answer: it may have promised more than it knows of.
    pub(super) fn on_learn(&mut self, from: ReplicaId, nonce: u64) {
        if self.learner.is_learning() {
            return self.out.drop_message("asked_a_learner");
        }
        // First, since the asker may promise something once it has the answer.
        if self.resend.may_show(&self.config, from, self.at()) {
            self.views.show(&self.config, from, &mut self.out);
        }
        let accepted = self.slots.last_accepted().unwrap_or_default();
        let certified = self.checkpoints.highest().map(|certificate| certificate.checkpoint.seq);
        let reach = self.slots.delivered().max(accepted).max(certified.unwrap_or_default());
        let said = self.checkpoints.said_by(from).map(Arc::new);
        let report = Report { nonce, view: self.views.view(), reach, said };
        self.out.send(from, PbftMessage::Report(report));
    }

    pub(super) fn on_report(&mut self, from: ReplicaId, report: Report) {
        if let Some(said) = &report.said {
            self.see_own_word(said);
        }
        match self.learner.on_report(&self.config, from, report, &mut self.out) {
            Learnt::Nothing => {}
            Learnt::Floor => self.slots.accept_all(&self.config, self.at(), &mut self.out),
            Learnt::Enough { resigns } => self.promise_again(resigns),
        }
    }

    /// Rule L7: does what had to wait.
    fn promise_again(&mut self, resigns: bool) {
        for checkpoint in self.checkpoints.own_above(self.slots.low()) {
            self.sign_when_durable(checkpoint);
        }
        if resigns {
            self.lead_or_resign(false);
        }
        self.slots.accept_all(&self.config, self.at(), &mut self.out);
        self.after_view_change();
    }

    /// Rule L8: our own signature on a state that our log does not know.
    pub(super) fn see_own_word(&mut self, said: &CertifiedCheckpoint) {
        let ours = said.signatures.iter().any(|(signer, _)| *signer == self.config.me);
        if ours && self.learner.is_forgotten(&said.checkpoint) {
            self.log_went_back();
        }
    }

    /// Rule L8: our own signature on a view change that our log does not know.
    pub(super) fn see_own_views(&mut self, new_view: &SignedNewView) {
        let left = new_view.view_changes.iter().map(|vc| (vc.sender, vc.content.view));
        let began = (new_view.sender, new_view.view);
        let (me, view) = (self.config.me, self.views.view());
        let forgotten = |said| self.learner.is_forgotten_view(said, view);
        if left.chain([began]).any(|(by, said)| by == me && forgotten(said)) {
            self.log_went_back();
        }
    }

    fn log_went_back(&mut self) {
        self.out.drop_message("own_log_went_back");
        self.learner.begin(&self.config, &mut self.out);
    }

    /// Rules L5 and L6: what was kept from us may be allowed by now.
    pub(super) fn see_whether_learnt(&mut self) {
        if !self.learner.is_learning() || !self.may_leave_now() {
            return;
        }
        if self.learner.may_vote(self.views.view()) {
            self.learner.end(self.slots.low());
            self.out.note(&Record::State(self.standing_promises()));
        } else {
            // Others may have left before we could join them.
            self.after_view_change();
        }
    }
}
