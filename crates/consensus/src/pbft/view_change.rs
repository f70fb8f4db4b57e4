//! View changes (TOCS section 4.5): who has left which view, and how the next begins.

use super::context::{At, Config};
use super::normal::Claims;
use super::outbox::Outbox;
use super::{
    Arc, BTreeMap, BTreeSet, CertifiedCheckpoint, Claimed, ClientId, Evidence, Instant, LeaveCause,
    PbftMessage, ReplicaId, ReplicaSet, Selection, SignedNewView, SignedViewChange, View,
    ViewChange, select,
};
use crate::protocol::MAX_PREPREPARED;
use std::time::Duration;
use tercio_types::zoo::{Defence, Mutant, less, mutated, stands};

/// What the VIEW-CHANGEs that we hold call for.
pub(super) enum Move {
    /// To leave all views below this one, and why.
    Leave(View, LeaveCause),
    /// To begin the view that we wait for, as its primary.
    Begin(Arc<SignedNewView>, Box<Selection>),
}

/// What a VIEW-CHANGE brought.
pub(super) enum Heard {
    /// Its sender is behind.
    Behind,
    /// Nothing new.
    Nothing,
    /// It is the sender's latest; with the certificate in it.
    Latest(Option<Arc<CertifiedCheckpoint>>),
}

/// Which view we promised to be in, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ViewPromises {
    pub(super) view: View,
    pub(super) changing: bool,
    pub(super) leave: Option<Arc<SignedViewChange>>,
    pub(super) enter: Option<Arc<SignedNewView>>,
}

/// The view, and the way out of it.
#[derive(Debug)]
pub(super) struct Views {
    view: View,
    /// Whether we have left all views below `view` and wait for it to begin.
    changing: bool,
    /// The latest VIEW-CHANGE of each replica.
    said: BTreeMap<ReplicaId, Arc<SignedViewChange>>,
    /// Our own VIEW-CHANGE for the view that we wait for.
    leaving: Option<Arc<SignedViewChange>>,
    /// What began the view we are in, to show to others.
    new_view: Option<Arc<SignedNewView>>,
    /// The last view of which the log says durably that we entered it.
    logged: Option<View>,
    /// View changes in a row without a delivery between them: the timeout's exponent.
    failed: u32,
    /// How many views were entered after the first.
    entered: u64,
    /// When we entered the view.
    entered_at: Instant,
    /// When the next primary has had its time. Runs once a quorum has left.
    deadline: Option<Instant>,
}

impl Views {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            view: View(0),
            changing: false,
            said: BTreeMap::new(),
            leaving: None,
            new_view: None,
            logged: None,
            failed: 0,
            entered: 0,
            entered_at: now,
            deadline: None,
        }
    }

    pub(super) fn view(&self) -> View {
        self.view
    }

    pub(super) fn is_changing(&self) -> bool {
        self.changing
    }

    /// The last view that we entered.
    pub(super) fn last_entered(&self) -> View {
        self.new_view.as_ref().map_or(View(0), |new_view| new_view.view)
    }

    /// Whether a replica has left for the view after ours, in which we are.
    pub(super) fn waits_for_next(&self, replica: ReplicaId) -> bool {
        let said = self.said.get(&replica).map(|vc| vc.content.view);
        !self.changing && said == Some(self.view.next())
    }

    pub(super) fn entered(&self) -> u64 {
        self.entered
    }

    pub(super) fn entered_at(&self) -> Instant {
        self.entered_at
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long to wait for a primary, after so many failed in a row.
    pub(super) fn timeout(&self, config: &Config, at: At) -> Duration {
        let doublings = self.failed.saturating_sub(1).min(20);
        let doubled = at.patience(config).saturating_mul(1 << doublings);
        doubled.min(config.settings.view_timeout_max)
    }

    /// Something was delivered: the view works.
    pub(super) fn on_delivered(&mut self) {
        self.failed = 0;
    }

    /// Rule V1: leaves all views below `target` and says what binds us: `claims`, above the
    /// certificate `stable`.
    pub(super) fn leave(
        &mut self,
        config: &Config,
        target: View,
        stable: Option<CertifiedCheckpoint>,
        claims: Claims,
        blamed: Vec<ClientId>,
    ) -> Arc<SignedViewChange> {
        assert!(target > self.view, "views only go up");
        self.view = target;
        self.changing = !mutated(Mutant::BeginsByItself);
        self.deadline = None;
        self.failed = self.failed.saturating_add(1);
        let Claims { prepared, preprepared } = claims;
        let content = ViewChange { view: target, stable, prepared, preprepared, blamed };
        let signed = SignedViewChange::new(config.me, content, &config.signer, config.suite);
        let signed = Arc::new(signed);
        self.leaving = Some(signed.clone());
        signed
    }

    pub(super) fn on_own(&mut self, config: &Config, view_change: Arc<SignedViewChange>) {
        self.said.insert(config.me, view_change);
    }

    /// Whether a VIEW-CHANGE is one that a correct replica could have sent.
    fn is_sensible(config: &Config, content: &ViewChange) -> bool {
        let low = content.low();
        let certified =
            content.stable.as_ref().is_none_or(|s| s.signatures.len() >= config.quorum());
        let inside = |c: &Claimed| {
            c.seq > low && c.seq.0 <= low.0 + config.settings.window && c.view < content.view
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

    pub(super) fn on_view_change(
        &mut self,
        config: &Config,
        from: ReplicaId,
        view_change: Arc<SignedViewChange>,
        out: &mut Outbox,
    ) -> Heard {
        let view = view_change.content.view;
        if view < self.view || (view == self.view && !self.changing) {
            // Rule V5: it is behind; the view never goes back for it (f09).
            out.drop_message("old_view_change");
            return Heard::Behind;
        }
        if !Self::is_sensible(config, &view_change.content) {
            let why = "senseless_view_change";
            out.evidence(Evidence::Malformed { replica: from, why });
            return Heard::Nothing;
        }
        // One VIEW-CHANGE for each replica, the latest: what spam can cost is bounded (f11).
        if self.said.get(&from).is_some_and(|known| known.content.view >= view) {
            return Heard::Nothing;
        }
        let certificate = view_change.content.stable.clone().map(Arc::new);
        self.said.insert(from, view_change);
        Heard::Latest(certificate)
    }

    /// What is to be done about the VIEW-CHANGEs that we hold. `may_leave_for` is rule L5.
    pub(super) fn next_move(
        &mut self,
        config: &Config,
        at: At,
        may_leave_for: impl Fn(View) -> bool,
    ) -> Option<Move> {
        // Rule V2: when f+1 want later views, one of them is correct: join them in the lowest view
        // that f+1 have reached. A single replica moves nobody (f10).
        let mut later: Vec<View> = (self.said.iter())
            .filter(|(replica, vc)| **replica != config.me && vc.content.view > self.view)
            .map(|(_, vc)| vc.content.view)
            .collect();
        later.sort_unstable_by(|a, b| b.cmp(a));
        let weak = less(Mutant::JoinOnFewer, config.weak_quorum());
        let enough = if stands(Defence::F21JoinOnWeakQuorum) { weak } else { 1 };
        if let Some(&target) = later.get(enough - 1)
            && may_leave_for(target)
        {
            return Some(Move::Leave(target, LeaveCause::Joined));
        }
        // Rule V6: a primary that has left its view proposes nothing in it any more.
        let said = self.said.get(&at.primary(config));
        let resigned = said.is_some_and(|vc| vc.content.view > self.view);
        if resigned && !self.changing && may_leave_for(self.view.next()) {
            return Some(Move::Leave(self.view.next(), LeaveCause::PrimaryLeft));
        }
        if !self.changing {
            return None;
        }
        // Rule T3: the next primary's time runs from when a quorum has left.
        if self.left().len() >= config.quorum() {
            let deadline = at.now + self.timeout(config, at);
            self.deadline.get_or_insert(deadline);
        }
        // A primary whose log went back may have begun its view before.
        let begins = at.is_primary(config) && may_leave_for(self.view);
        if begins { self.begin(config) } else { None }
    }

    /// Who has left all views below ours.
    pub(super) fn left(&self) -> ReplicaSet {
        let left = self.said.iter().filter(|(_, vc)| vc.content.view >= self.view);
        left.map(|(replica, _)| *replica).collect()
    }

    /// Rule V3: the new primary begins its view as soon as the VIEW-CHANGEs decide how.
    fn begin(&self, config: &Config) -> Option<Move> {
        let for_view: Vec<_> =
            self.said.values().filter(|vc| vc.content.view == self.view).cloned().collect();
        if !for_view.iter().any(|vc| vc.sender == config.me) {
            return None;
        }
        let selection = select(&for_view, config.quorum(), config.weak_quorum())?;
        let (signer, suite) = (&config.signer, config.suite);
        let signed = SignedNewView::new(config.me, self.view, for_view, signer, suite);
        Some(Move::Begin(Arc::new(signed), Box::new(selection)))
    }

    /// Rule V4: a backup checks everything that the new primary builds on, and computes the same.
    pub(super) fn on_new_view(
        &self,
        config: &Config,
        new_view: &SignedNewView,
        out: &mut Outbox,
    ) -> Option<Selection> {
        let (view, sender) = (new_view.view, new_view.sender);
        let behind = view < self.view && !mutated(Mutant::ViewGoesBack);
        if behind || (view == self.view && !self.changing) || view == View(0) {
            out.drop_message("old_new_view");
            return None;
        }
        let checked = Self::check(config, new_view);
        if let Err(why) = checked {
            out.evidence(Evidence::Malformed { replica: sender, why });
        }
        checked.ok()
    }

    fn check(config: &Config, new_view: &SignedNewView) -> Result<Selection, &'static str> {
        let view = new_view.view;
        if new_view.sender != config.membership.primary(view) {
            return Err("new_view_not_primary");
        }
        let senders: BTreeSet<ReplicaId> =
            new_view.view_changes.iter().map(|vc| vc.sender).collect();
        let distinct = senders.len() == new_view.view_changes.len();
        if !distinct && stands(Defence::F08DistinctViewChanges) {
            return Err("new_view_without_quorum");
        }
        let sensible = |vc: &Arc<SignedViewChange>| {
            vc.content.view == view && Self::is_sensible(config, &vc.content)
        };
        if !new_view.view_changes.iter().all(sensible) {
            return Err("new_view_with_senseless_view_change");
        }
        let selection = select(&new_view.view_changes, config.quorum(), config.weak_quorum());
        selection.ok_or("new_view_without_quorum")
    }

    /// A view begins.
    pub(super) fn enter(&mut self, new_view: Arc<SignedNewView>, now: Instant) {
        let view = new_view.view;
        self.view = view;
        self.changing = false;
        self.deadline = None;
        self.entered += 1;
        self.entered_at = now;
        self.said.retain(|_, vc| vc.content.view > view);
        self.new_view = Some(new_view);
    }

    /// The log says durably that we entered this view.
    pub(super) fn entry_is_logged(&mut self, view: View) {
        self.logged = Some(view);
    }

    /// Shows a replica that is behind which view we are in. A NEW-VIEW of our own is a promise, so it is
    /// shown to nobody before it is logged (rule P1); others' are theirs.
    pub(super) fn show(&self, config: &Config, to: ReplicaId, out: &mut Outbox) {
        if self.changing {
            if let Some(message) = self.own(config) {
                out.send(to, message);
            }
        } else if let Some(new_view) = self.new_view.clone()
            && (new_view.sender != config.me || self.logged == Some(new_view.view))
        {
            out.send(to, PbftMessage::NewView(new_view));
        }
    }

    /// Says our VIEW-CHANGE again to all.
    pub(super) fn say_again(&self, config: &Config, out: &mut Outbox) {
        if let Some(message) = self.own(config) {
            out.broadcast(message);
        }
    }

    /// Our VIEW-CHANGE for the view that we wait for, once it is said.
    fn own(&self, config: &Config) -> Option<PbftMessage> {
        let own = self.said.get(&config.me).filter(|own| own.content.view == self.view)?;
        Some(PbftMessage::ViewChange(own.clone()))
    }

    /// Our VIEW-CHANGE for the view that we wait for.
    pub(super) fn leaving(&self) -> Option<Arc<SignedViewChange>> {
        self.leaving.clone().filter(|_| self.changing)
    }

    /// What began the view that we are in.
    pub(super) fn begun(&self) -> Option<Arc<SignedNewView>> {
        self.new_view.clone().filter(|_| !self.changing)
    }

    /// Our last VIEW-CHANGE, whether its view has begun or not.
    pub(super) fn last_leave(&self) -> Option<&SignedViewChange> {
        self.leaving.as_deref()
    }

    /// What the log keeps of it.
    pub(super) fn promises(&self) -> ViewPromises {
        ViewPromises {
            view: self.view,
            changing: self.changing,
            leave: self.leaving(),
            enter: self.new_view.clone(),
        }
    }

    /// The log says where we are.
    pub(super) fn recall(&mut self, promised: ViewPromises) {
        (self.view, self.changing) = (promised.view, promised.changing);
        (self.leaving, self.new_view) = (promised.leave, promised.enter);
        self.logged = self.new_view.as_ref().map(|new_view| new_view.view);
    }

    /// The log says that we left all views below.
    pub(super) fn recall_leave(&mut self, view_change: Arc<SignedViewChange>) {
        (self.view, self.changing) = (view_change.content.view, true);
        self.leaving = Some(view_change);
    }

    /// The log says that we entered a view.
    pub(super) fn recall_enter(&mut self, new_view: Arc<SignedNewView>) {
        (self.view, self.changing) = (new_view.view, false);
        self.logged = Some(new_view.view);
        self.new_view = Some(new_view);
    }
}
