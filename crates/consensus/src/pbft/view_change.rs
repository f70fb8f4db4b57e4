//! View changes (TOCS section 4.5): leaving a view, beginning the next, and the timers that
//! decide when (section 4.5.3 and OSDI'99 section 4.4).

use super::message::MAX_BLAMED;
use super::slot::{Held, MAX_PREPREPARED, Verdict};
use super::{
    Arc, BTreeSet, Claimed, ClientId, Digest, Effect, Evidence, Instant, Package, Pbft, Promise,
    Record, ReplicaId, Selection, SeqNum, SignedNewView, SignedViewChange, View, ViewChange,
    VoteTable, select,
};
use tercio_types::zoo::{Defence, Mutant, less, mutated, stands};

impl<T: VoteTable> Pbft<T> {
    /// Rule T1: the oldest request that waits to be delivered is what a view is measured by (f18),
    /// of those that a correct primary can order (rule A4), and the oldest proposal that is not
    /// delivered though nothing else was.
    /// Timers of requests stop while a view change runs (f12).
    pub(super) fn request_deadline(&self) -> Option<Instant> {
        let stopped = self.changing || self.catching_up.is_some() || !self.may_leave_now();
        if stopped || !stands(Defence::F18RequestTimers) {
            return None;
        }
        let proposed = (self.slots.range(self.delivered.next()..))
            .find(|(_, slot)| slot.proposal.is_some_and(|(view, _)| view == self.view))
            .map(|(_, slot)| slot.proposed_at.max(self.idle_since));
        let since = [self.pool.oldest(), proposed].into_iter().flatten().min()?;
        Some(since + self.timeout())
    }

    /// Rule T2: half-way to that, as it is before any back-off, a backup hands the request to all, so
    /// that all wait for it. One that waits for a view does so too: the others may need its word
    /// (rule A4) to leave as well.
    pub(super) fn forward_deadline(&self) -> Option<Instant> {
        let leads = self.is_primary() && !self.changing && self.may_vote();
        if leads || !stands(Defence::F18RequestTimers) {
            return None;
        }
        self.pool.oldest_unforwarded().map(|since| since + self.settings.view_timeout / 2)
    }

    /// Rule A4: a request under MACs that too few others have handed to us as well does not stay.
    pub(super) fn unvouched_deadline(&self) -> Option<Instant> {
        if self.changing || self.is_primary() || self.catching_up.is_some() {
            return None;
        }
        self.pool.oldest_unvouched().map(|since| since + self.timeout())
    }

    /// Rule T4: numbers that are delivered, and that no stable checkpoint covers though nothing
    /// else is to be done, count as waiting too: somebody may lack what only a checkpoint brings.
    /// Each view has its time for that.
    pub(super) fn uncovered_deadline(&self) -> Option<Instant> {
        let uncovered = self.delivered > self.low && self.executed == self.delivered;
        let busy = self.changing || self.catching_up.is_some() || !self.pool.is_empty();
        if busy || !uncovered || self.is_primary() || !self.may_leave_now() {
            return None;
        }
        let since = self.idle_since.max(self.entered_at);
        Some(since + self.settings.checkpoint_idle + self.timeout())
    }

    pub(super) fn check_view_timers(&mut self) {
        self.pool.trim(self.now);
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= self.now);
        if due(self.unvouched_deadline()) {
            let expired = self.pool.expire_unvouched(self.ago(self.timeout()));
            *self.dropped.entry("request_not_vouched_for").or_default() += expired;
        }
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= self.now);
        if due(self.forward_deadline()) {
            let before = self.ago(self.settings.view_timeout / 2);
            for package in self.pool.to_forward(before) {
                for to in self.membership.replicas().filter(|r| *r != self.me) {
                    self.effects.push_back(Effect::Forward { to, package: package.clone() });
                }
            }
        }
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= self.now);
        let deadlines = [self.view_deadline, self.request_deadline(), self.uncovered_deadline()];
        if deadlines.into_iter().any(due) {
            self.leave(self.view.next());
        }
    }

    /// Rule V1: leave all views below `target` and say what binds us. From here on we vote in none
    /// of them.
    pub(super) fn leave(&mut self, target: View) {
        assert!(target > self.view, "views only go up");
        assert!(self.may_leave_for(target), "a learner that knows too little stays");
        let blamed = self.blamed();
        self.view = target;
        self.changing = !mutated(Mutant::BeginsByItself);
        self.leads = false;
        self.view_deadline = None;
        self.batch_deadline = None;
        self.building = false;
        self.candidates.clear();
        self.parked.clear();
        self.failed_views = self.failed_views.saturating_add(1);
        // What lies below the highest certificate that we know is decided, and nobody need hear of
        // it, though we may not have reached it.
        let highest = [&self.stable, &self.ahead].into_iter().flatten();
        let stable = highest.max_by_key(|certificate| certificate.checkpoint.seq).cloned();
        let low = stable.as_ref().map_or(SeqNum(0), |certificate| certificate.checkpoint.seq);
        let (mut prepared, mut preprepared) = (Vec::new(), Vec::new());
        if stands(Defence::F06CarryPrepared) {
            for (&seq, slot) in self.slots.range(low.next()..) {
                prepared.extend(slot.prepared.map(|(view, digest)| Claimed { seq, digest, view }));
                let mut q: Vec<_> = (slot.preprepared.iter())
                    .map(|&(digest, view)| Claimed { seq, digest, view })
                    .collect();
                q.sort();
                preprepared.extend(q.into_iter().filter(|_| !mutated(Mutant::AcceptedNotSaid)));
            }
        }
        let stable = stable.as_deref().cloned();
        let content = ViewChange { view: target, stable, prepared, preprepared, blamed };
        let signed = Arc::new(SignedViewChange::new(self.me, content, &self.signer, self.suite));
        self.leaving = Some(signed.clone());
        // Rule L6: one that may leave for a view that it cannot have voted in has learnt enough,
        // and its log says both at once.
        let record = match self.learner.take() {
            Some(_) => Record::State(self.standing_promises()),
            None => Record::Leave(signed.clone()),
        };
        self.persist(&record, Some(Promise::Leave(signed)));
    }

    /// Rule A3: the clients whose MACs keep us from voting in this view.
    fn blamed(&self) -> Vec<ClientId> {
        let held = self.slots.values().filter(|slot| {
            let proposal = slot.proposal.filter(|(view, _)| *view == self.view);
            proposal.is_some() && slot.accepted != proposal
        });
        let clients: BTreeSet<ClientId> =
            held.flat_map(|slot| slot.doubts.iter().copied()).collect();
        if !stands(Defence::F16VouchForClients) {
            return Vec::new();
        }
        clients.into_iter().take(MAX_BLAMED).collect()
    }

    pub(super) fn on_own_view_change(&mut self, view_change: Arc<SignedViewChange>) {
        self.view_changes.insert(self.me, view_change);
        self.after_view_change();
    }

    /// Whether a VIEW-CHANGE is one that a correct replica could have sent.
    fn is_sensible(&self, content: &ViewChange) -> bool {
        let low = content.low();
        let certified =
            content.stable.as_ref().is_none_or(|s| s.signatures.len() >= self.membership.quorum());
        let inside = |c: &Claimed| {
            c.seq > low && c.seq.0 <= low.0 + self.settings.window && c.view < content.view
        };
        let one_each = content.prepared.windows(2).all(|pair| pair[0].seq < pair[1].seq);
        let few_each = content
            .preprepared
            .windows(MAX_PREPREPARED + 1)
            .all(|run| run[0].seq < run[MAX_PREPREPARED].seq);
        certified
            && one_each
            && few_each
            && content.prepared.iter().all(inside)
            && content.preprepared.iter().all(inside)
    }

    pub(super) fn on_view_change(&mut self, from: ReplicaId, view_change: Arc<SignedViewChange>) {
        let view = view_change.content.view;
        if view < self.view || (view == self.view && !self.changing) {
            // Rule V5: it is behind; the view never goes back for it (f09).
            self.drop_message("old_view_change");
            if self.may_help(from) {
                self.show_view(from);
            }
            return;
        }
        if !self.is_sensible(&view_change.content) {
            let why = "senseless_view_change";
            return self.evidence(Evidence::Malformed { replica: from, why });
        }
        // One VIEW-CHANGE for each replica, the latest: what spam can cost is bounded (f11).
        if self.view_changes.get(&from).is_some_and(|known| known.content.view >= view) {
            return;
        }
        let certificate = view_change.content.stable.clone();
        self.view_changes.insert(from, view_change);
        if let Some(certificate) = certificate {
            self.on_certificate(Arc::new(certificate));
        }
        self.after_view_change();
    }

    pub(super) fn after_view_change(&mut self) {
        // Rule V2: when f+1 want later views, one of them is correct: join them in the lowest view
        // that f+1 have reached. A single replica moves nobody (f10).
        let mut later: Vec<View> = (self.view_changes.iter())
            .filter(|(replica, vc)| **replica != self.me && vc.content.view > self.view)
            .map(|(_, vc)| vc.content.view)
            .collect();
        later.sort_unstable_by(|a, b| b.cmp(a));
        let weak = less(Mutant::JoinOnFewer, self.membership.weak_quorum());
        let enough = if stands(Defence::F21JoinOnWeakQuorum) { weak } else { 1 };
        if let Some(&target) = later.get(enough - 1)
            && self.may_leave_for(target)
        {
            return self.leave(target);
        }
        // Rule V6: a primary that has left its view proposes nothing in it any more.
        let said = self.view_changes.get(&self.primary());
        let resigned = said.is_some_and(|vc| vc.content.view > self.view);
        if resigned && !self.changing && self.may_leave_now() {
            return self.leave(self.view.next());
        }
        if !self.changing {
            return;
        }
        // Rule T3: the next primary's time runs from when a quorum has left.
        let left = self.view_changes.values().filter(|vc| vc.content.view >= self.view).count();
        if left >= self.membership.quorum() {
            let deadline = self.now + self.timeout();
            self.view_deadline.get_or_insert(deadline);
        }
        if self.is_primary() {
            self.begin_view();
        }
    }

    /// Rule V3: the new primary begins its view as soon as the VIEW-CHANGEs decide how.
    fn begin_view(&mut self) {
        let for_view: Vec<_> = (self.view_changes.values())
            .filter(|vc| vc.content.view == self.view)
            .cloned()
            .collect();
        if !for_view.iter().any(|vc| vc.sender == self.me) {
            return;
        }
        let (quorum, weak) = (self.membership.quorum(), self.membership.weak_quorum());
        let Some(selection) = select(&for_view, quorum, weak) else { return };
        let signed = SignedNewView::new(self.me, self.view, for_view, &self.signer, self.suite);
        self.enter(Arc::new(signed), selection);
    }

    /// Rule V4: a backup checks everything that the new primary builds on, and computes the same.
    pub(super) fn on_new_view(&mut self, new_view: Arc<SignedNewView>) {
        let (view, sender) = (new_view.view, new_view.sender);
        let behind = view < self.view && !mutated(Mutant::ViewGoesBack);
        if behind || (view == self.view && !self.changing) || view == View(0) {
            return self.drop_message("old_new_view");
        }
        let refuse = |why| Evidence::Malformed { replica: sender, why };
        if sender != self.membership.primary(view) {
            return self.evidence(refuse("new_view_not_primary"));
        }
        let senders: BTreeSet<ReplicaId> =
            new_view.view_changes.iter().map(|vc| vc.sender).collect();
        let distinct = senders.len() == new_view.view_changes.len();
        if !distinct && stands(Defence::F08DistinctViewChanges) {
            return self.evidence(refuse("new_view_without_quorum"));
        }
        let sensible =
            |vc: &Arc<SignedViewChange>| vc.content.view == view && self.is_sensible(&vc.content);
        if !new_view.view_changes.iter().all(sensible) {
            return self.evidence(refuse("new_view_with_senseless_view_change"));
        }
        let (quorum, weak) = (self.membership.quorum(), self.membership.weak_quorum());
        match select(&new_view.view_changes, quorum, weak) {
            Some(selection) => self.enter(new_view, selection),
            None => self.evidence(refuse("new_view_without_quorum")),
        }
    }

    fn enter(&mut self, new_view: Arc<SignedNewView>, selection: Selection) {
        let view = new_view.view;
        self.view = view;
        self.changing = false;
        self.leads = false;
        self.uncovered_bytes = self.settings.checkpoint_bytes;
        self.view_deadline = None;
        self.parked.clear();
        self.entered_views += 1;
        self.entered_at = self.now;
        self.view_changes.retain(|_, vc| vc.content.view > view);
        self.new_view = Some(new_view.clone());
        self.status_deadline = self.now + self.settings.status_interval;
        if let Some(stable) = selection.stable.clone() {
            self.on_certificate(Arc::new(stable));
        }
        self.skip_to_ahead();
        self.catch_up();
        self.persist(&Record::Enter(new_view.clone()), Some(Promise::Enter(new_view)));
        self.adopt(&selection);
        self.requeue(&selection);
        self.slots.values_mut().for_each(|slot| slot.enter(view));
        self.vote_for(&selection);
    }

    /// Takes what a view begins with as its primary's proposals, and votes for it.
    pub(super) fn vote_for(&mut self, selection: &Selection) {
        for &(seq, digest) in &selection.chosen {
            if seq <= self.low {
                continue;
            }
            if !self.slots.get(&seq).is_some_and(|slot| slot.has_body(digest)) {
                self.fetch_body(seq, digest);
            }
            // Votes for this view may have come before its beginning.
            self.accept(seq);
        }
    }

    /// Takes over what a selection proposes, without voting for it yet.
    pub(super) fn adopt(&mut self, selection: &Selection) {
        self.blame(selection.blamed.iter().copied());
        self.next_seq = selection.last().max(self.low).next();
        for &(seq, digest) in selection.chosen.iter().filter(|(seq, _)| *seq > self.low) {
            let slot = self.slots.entry(seq).or_default();
            slot.proposal = Some((self.view, digest));
            slot.proposed_at = self.now;
            slot.doubts.clear();
            slot.verdict = Verdict::Good;
        }
    }

    /// Rule A3: these clients must sign from now on.
    pub(super) fn blame(&mut self, clients: impl IntoIterator<Item = ClientId>) {
        if stands(Defence::F16VouchForClients) {
            // A faulty replica blames whom it likes; that must not fill our memory.
            let known = clients.into_iter().filter(|client| self.membership.may_have(*client));
            self.must_sign.extend(known);
        }
    }

    /// What the old view left behind waits again, and nobody has waited yet.
    fn requeue(&mut self, selection: &Selection) {
        let view = self.view;
        let mut abandoned: Vec<Package> = Vec::new();
        for slot in self.slots.range(self.delivered.next()..).map(|(_, slot)| slot) {
            if slot.proposal.is_some_and(|(v, _)| v == view) || !slot.doubts.is_empty() {
                continue;
            }
            let packages = slot.bodies.iter().flat_map(Held::packages);
            abandoned.extend(packages.cloned());
        }
        for package in abandoned {
            if package.is_signed() || !self.must_sign.contains(&package.client) {
                self.pool.admit(package, self.now);
            }
        }
        let carried = selection
            .chosen
            .iter()
            .filter_map(|(seq, digest)| self.slots.get(seq)?.held(*digest).map(Held::packages));
        self.pool.requeue(carried.flatten(), self.now);
        let must_sign = &self.must_sign;
        let refused = self.pool.discard(|p| !p.is_signed() && must_sign.contains(&p.client));
        for (client, first) in refused {
            let reason = tercio_wire::reject::Reason::MustSign;
            self.effects.push_back(Effect::Decline { client, first, reason });
        }
    }

    /// Whether a digest may be wanted at `seq`.
    pub(super) fn wants_body(&self, seq: SeqNum, digest: Digest) -> bool {
        self.slots.get(&seq).is_some_and(|slot| {
            let wanted =
                slot.committed == Some(digest) || slot.proposal.is_some_and(|(_, d)| d == digest);
            wanted && !slot.has_body(digest)
        })
    }
}
