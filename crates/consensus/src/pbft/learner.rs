//! A replica that lost its log: what it promised is forgotten, and the network may still count on
//! it (rules L1 to L6 of `docs/protocol/pbft.md`; TOCS section 4 recovers replicas that keep their
//! memory, so these rules are ours).
//!
//! It votes nothing, signs nothing and leaves no view until a quorum of the others has told it
//! where the network stands. From that follow a number and a view that bound all that it can have
//! promised ([`Floor`]). It then votes in views above that view only, and says VIEW-CHANGE, which
//! tells of all its votes, once a certified checkpoint has passed that number.

use super::context::Config;
use super::outbox::Outbox;
use super::{BTreeMap, Floor, Instant, Learning, PbftMessage, Record, ReplicaId, Report};
use super::{SeqNum, View};
use tercio_types::zoo::{Defence, Mutant, mutated, stands};

/// What a lost log keeps us from, if it was lost and we may not yet promise everything again.
#[derive(Clone, Debug, Default)]
pub(super) struct Learner {
    lost: Option<Lost>,
}

/// What is known of a lost log.
#[derive(Clone, Debug)]
struct Lost {
    /// Names our questions since this start.
    nonce: u64,
    /// Each replica's last report.
    reports: BTreeMap<ReplicaId, Report>,
    /// The highest of what we can have promised; `None` as long as it may be anything.
    floor: Option<Floor>,
}

impl Learner {
    /// Rule L1: there is no log, and there was one.
    pub(super) fn begin(&mut self, now: Instant, out: &mut Outbox) {
        if stands(Defence::F41LearnAfterLoss) {
            self.recall(now, Some(None));
            out.note(&Record::Learning(None));
        }
    }

    /// The log says that an older one was lost, with the floor if it is known. The time of the
    /// start names our questions: it is no other start's.
    pub(super) fn recall(&mut self, now: Instant, lost: Option<Option<Floor>>) {
        self.lost = lost.map(|floor| Lost { nonce: now.0, reports: BTreeMap::new(), floor });
    }

    /// We have learnt enough.
    pub(super) fn end(&mut self) {
        self.lost = None;
    }

    pub(super) fn is_learning(&self) -> bool {
        self.lost.is_some()
    }

    /// What the log keeps of it; `None` without a loss.
    pub(super) fn floor(&self) -> Option<Option<Floor>> {
        self.lost.as_ref().map(|lost| lost.floor)
    }

    pub(super) fn status(&self) -> Option<Learning> {
        self.lost.as_ref().map(|lost| Learning {
            reports: lost.reports.keys().copied().collect(),
            floor: lost.floor,
        })
    }

    /// Rule L4: whether we can have voted in this view before.
    pub(super) fn may_vote(&self, view: View) -> bool {
        let at_floor = |floor: Floor| mutated(Mutant::VotesAtFloor) && view == floor.view;
        let above = |floor: Floor| view > floor.view || at_floor(floor);
        self.floor().is_none_or(|floor| floor.is_some_and(above))
    }

    /// Rule L5: whether a VIEW-CHANGE of ours would tell of all that binds us, with this low
    /// watermark.
    pub(super) fn may_leave_for(&self, target: View, low: SeqNum) -> bool {
        let early = mutated(Mutant::LeavesEarly);
        let told = |floor: Floor| (early || low >= floor.seq) && target > floor.view;
        self.floor().is_none_or(|floor| floor.is_some_and(told))
    }

    /// Rule L4, for checkpoints.
    pub(super) fn may_sign(&self, seq: SeqNum) -> bool {
        self.floor().is_none_or(|floor| floor.is_some_and(|floor| seq > floor.seq))
    }

    /// Rule L2: asks everybody where the network stands, until all have said it. Whether nothing
    /// can be done before that.
    pub(super) fn ask(&self, config: &Config, out: &mut Outbox) -> bool {
        let others = config.membership.n() - 1;
        let asking = self.lost.as_ref().filter(|lost| lost.reports.len() < others);
        let Some(Lost { nonce, floor, .. }) = asking else { return false };
        out.broadcast(PbftMessage::Learn { nonce: *nonce });
        floor.is_none()
    }

    /// Rule L3: a quorum of the others bounds what we can have promised, and any quorum does: so
    /// the lowest bound counts, and no minority can put it out of reach. Whether it is a new one.
    pub(super) fn on_report(
        &mut self,
        config: &Config,
        from: ReplicaId,
        report: Report,
        out: &mut Outbox,
    ) -> bool {
        let (quorum, window) = (config.quorum(), config.settings.window);
        let Some(lost) = self.lost.as_mut().filter(|lost| lost.nonce == report.nonce) else {
            out.drop_message("stale_report");
            return false;
        };
        lost.reports.insert(from, report);
        if lost.reports.len() < quorum {
            return false;
        }
        let mut views: Vec<View> = lost.reports.values().map(|r| r.view).collect();
        let mut reaches: Vec<SeqNum> = lost.reports.values().map(|r| r.reach).collect();
        views.sort_unstable();
        reaches.sort_unstable();
        let counts = if mutated(Mutant::LowestReport) { 0 } else { quorum - 1 };
        let (view, reach) = (views[counts], reaches[counts]);
        let mut floor = Floor { seq: SeqNum(reach.0.saturating_add(window)), view };
        if let Some(known) = lost.floor {
            floor = Floor { seq: floor.seq.min(known.seq), view: floor.view.min(known.view) };
        }
        if lost.floor.replace(floor) == Some(floor) {
            return false;
        }
        out.note(&Record::Learning(Some(floor)));
        true
    }
}
