//! A replica that lost its log: what it promised is forgotten, and the network may still count on
//! it (rules L1 to L6 of `docs/protocol/pbft.md`; TOCS section 4 recovers replicas that keep their
//! memory, so these rules are ours).
//!
//! It votes nothing, signs nothing and leaves no view until a quorum of the others has told it
//! where the network stands. From that follow a number and a view that bound all that it can have
//! promised ([`Floor`]). It then votes in views above that view only, and says VIEW-CHANGE, which
//! tells of all its votes, once a certified checkpoint has passed that number.

use super::{
    BTreeMap, Floor, Instant, Learning, Pbft, PbftMessage, Record, ReplicaId, Report, SeqNum, View,
    VoteTable,
};
use tercio_types::zoo::{Defence, Mutant, mutated, stands};

/// What is known of a lost log.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    /// Names our questions since this start.
    nonce: u64,
    /// Each replica's last report.
    reports: BTreeMap<ReplicaId, Report>,
    floor: Option<Floor>,
}

impl Learner {
    /// The time of the start names its questions: it is no other start's.
    pub(super) fn new(now: Instant, floor: Option<Floor>) -> Self {
        Self { nonce: now.0, reports: BTreeMap::new(), floor }
    }

    pub(super) fn floor(&self) -> Option<Floor> {
        self.floor
    }

    pub(super) fn status(&self) -> Learning {
        Learning { reports: self.reports.keys().copied().collect(), floor: self.floor }
    }
}

impl<T: VoteTable> Pbft<T> {
    /// Rule L1: there is no log, and there was one.
    pub(super) fn begin_to_learn(&mut self) {
        if stands(Defence::F41LearnAfterLoss) {
            self.learner = Some(Learner::new(self.now, None));
            self.persist(&Record::Learning(None), None);
        }
    }

    /// The highest of what we can have promised; `None` as long as it may be anything. Only of a
    /// learner.
    fn floor(&self) -> Option<Option<Floor>> {
        self.learner.as_ref().map(Learner::floor)
    }

    /// Rule L4: whether we can have voted in this view before.
    pub(super) fn may_vote(&self) -> bool {
        let at_floor = |floor: Floor| mutated(Mutant::VotesAtFloor) && self.view == floor.view;
        let above = |floor: Floor| self.view > floor.view || at_floor(floor);
        self.floor().is_none_or(|floor| floor.is_some_and(above))
    }

    /// Rule L5: whether a VIEW-CHANGE of ours would tell of all that binds us.
    pub(super) fn may_leave_for(&self, target: View) -> bool {
        let early = mutated(Mutant::LeavesEarly);
        let told = |floor: Floor| (early || self.low >= floor.seq) && target > floor.view;
        self.floor().is_none_or(|floor| floor.is_some_and(told))
    }

    /// Whether we may leave this view for the next.
    pub(super) fn may_leave_now(&self) -> bool {
        self.may_leave_for(self.view.next())
    }

    /// Rule L4, for checkpoints.
    pub(super) fn may_sign(&self, seq: SeqNum) -> bool {
        self.floor().is_none_or(|floor| floor.is_some_and(|floor| seq > floor.seq))
    }

    /// Rule L2: asks everybody where the network stands, until all have said it. Whether nothing
    /// can be done before that.
    pub(super) fn ask_to_learn(&mut self) -> bool {
        let others = self.membership.n() - 1;
        let asking = self.learner.as_ref().filter(|learner| learner.reports.len() < others);
        let Some(Learner { nonce, floor, .. }) = asking.cloned() else { return false };
        self.broadcast(PbftMessage::Learn { nonce });
        floor.is_none()
    }

    /// Rule L2: the answer, which counts what is not durable yet too. A learner cannot answer: it
    /// may have promised more than it knows of.
    pub(super) fn on_learn(&mut self, from: ReplicaId, nonce: u64) {
        if self.learner.is_some() {
            return self.drop_message("asked_a_learner");
        }
        let accepted = self.slots.iter().rev().find(|(_, slot)| slot.accepted.is_some());
        let accepted = accepted.map_or(SeqNum(0), |(seq, _)| *seq);
        let certified = [&self.stable, &self.ahead].into_iter().flatten();
        let certified = certified.map(|c| c.checkpoint.seq).max().unwrap_or_default();
        let reach = self.delivered.max(accepted).max(certified);
        self.send(from, PbftMessage::Report(Report { nonce, view: self.view, reach }));
    }

    /// Rule L3: a quorum of the others bounds what we can have promised, and any quorum does: so
    /// the lowest bound counts, and no minority can put it out of reach.
    pub(super) fn on_report(&mut self, from: ReplicaId, report: Report) {
        let (quorum, window) = (self.membership.quorum(), self.settings.window);
        let Some(learner) = self.learner.as_mut().filter(|l| l.nonce == report.nonce) else {
            return self.drop_message("stale_report");
        };
        learner.reports.insert(from, report);
        if learner.reports.len() < quorum {
            return;
        }
        let mut views: Vec<View> = learner.reports.values().map(|r| r.view).collect();
        let mut reaches: Vec<SeqNum> = learner.reports.values().map(|r| r.reach).collect();
        views.sort_unstable();
        reaches.sort_unstable();
        let counts = if mutated(Mutant::LowestReport) { 0 } else { quorum - 1 };
        let (view, reach) = (views[counts], reaches[counts]);
        let mut floor = Floor { seq: SeqNum(reach.0.saturating_add(window)), view };
        if let Some(known) = learner.floor {
            floor = Floor { seq: floor.seq.min(known.seq), view: floor.view.min(known.view) };
        }
        if learner.floor.replace(floor) == Some(floor) {
            return;
        }
        self.persist(&Record::Learning(Some(floor)), None);
        let proposed: Vec<SeqNum> = self.slots.keys().copied().collect();
        proposed.into_iter().for_each(|seq| self.accept(seq));
    }

    /// Rules L5 and L6: what was kept from us may be allowed by now.
    pub(super) fn see_whether_learnt(&mut self) {
        if self.learner.is_none() || !self.may_leave_now() {
            return;
        }
        if self.may_vote() {
            self.learner = None;
            self.persist(&Record::State(self.standing_promises()), None);
        } else {
            // Others may have left before we could join them.
            self.after_view_change();
        }
    }
}
