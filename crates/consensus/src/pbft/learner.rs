//! A replica that lost its log, or whose log went back in time: what it promised is forgotten, and
//! the network may still count on it (rules L1 to L8 of `docs/protocol/pbft.md`; TOCS section 4 recovers replicas that keep their
//! memory, so these rules are ours).
//!
//! It votes nothing, signs nothing and leaves no view until a quorum of the others has told it
//! where the network stands. From that follow a number and a view that bound all that it can have
//! promised ([`Floor`]). It then votes in views above that view only, and says VIEW-CHANGE, which
//! tells of all its votes, once a certified checkpoint has passed that number.
//!
//! A log that went back looks like any other. So one that starts again promises nothing until as
//! many others as make a quorum with it have told what it signed last. What it signed and does not
//! know of proves that its log went back, whoever shows it: then the log counts as lost.

use super::context::Config;
use super::outbox::Outbox;
use super::{
    BTreeMap, Checkpoint, Floor, Height, Instant, Learning, PbftMessage, Record, ReplicaId, Report,
    SeqNum, View,
};
use tercio_types::zoo::{Defence, Mutant, mutated, stands};

/// What we forgot, as far as that is known, and what it keeps us from.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    /// Names our questions since this start.
    nonce: u64,
    /// Each replica's last report.
    reports: BTreeMap<ReplicaId, Report>,
    /// Rule L7: too few have told us yet what we signed last.
    asking: bool,
    /// Rule P3: we started again in a view that is ours, and leave it once we may.
    resigns: bool,
    /// Our log was lost, and we may not yet promise everything again; with the highest of what we
    /// can have promised, or `None` as long as it may be anything.
    lost: Option<Option<Floor>>,
    /// What was promised before operators agreed on a chain reaches up to here, and binds nobody.
    agreed: Option<Floor>,
    words: Words,
}

/// Which of our signed states we know of.
#[derive(Clone, Debug)]
struct Words {
    /// What we signed up to here we need not know.
    low: SeqNum,
    /// The last block that our disk had when we started. Blocks are durable before a state is signed
    /// (rule P4), so we had signed nothing above it.
    height: Height,
    /// The first and the last number that we signed at since this start.
    signed: Option<(SeqNum, SeqNum)>,
}

/// What a report brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learnt {
    /// Nothing that matters.
    Nothing,
    /// Another floor.
    Floor,
    /// Enough to promise again; whether we leave our view then.
    Enough {
        /// Whether we are its primary, and started again in it.
        resigns: bool,
    },
}

impl Learner {
    /// The time of the start names our questions: it is no other start's.
    pub(super) fn new(now: Instant, height: Height) -> Self {
        let words = Words { low: SeqNum(0), height, signed: None };
        let (asking, resigns, lost) = (false, false, None);
        let reports = BTreeMap::new();
        Self { nonce: now.0, reports, asking, resigns, lost, agreed: None, words }
    }

    /// Rule L7: the log may have gone back. What we signed up to `low` we need not know.
    pub(super) fn begin_to_ask(&mut self, config: &Config, low: SeqNum) {
        self.words.low = low;
        let alone = config.quorum() == 1;
        self.asking = !alone && stands(Defence::F51AskAfterRestart);
    }

    /// Rule L1: there is no log, and there was one; or it went back.
    pub(super) fn begin(&mut self, config: &Config, out: &mut Outbox) {
        if stands(Defence::F41LearnAfterLoss) {
            (self.asking, self.lost) = (false, Some(None));
            out.note(&Record::Learning(None));
            self.bound(config, out);
        }
    }

    /// The log says that an older one was lost, with the floor if it is known.
    pub(super) fn recall(&mut self, lost: Option<Option<Floor>>) {
        self.lost = lost;
    }

    /// The log says that operators agreed on it.
    pub(super) fn recall_agreed(&mut self, agreed: Option<Floor>) {
        self.agreed = agreed;
    }

    /// What the log keeps of that.
    pub(super) fn agreed(&self) -> Option<Floor> {
        self.agreed
    }

    /// We have learnt enough. What we signed up to `low` we need not know.
    pub(super) fn end(&mut self, low: SeqNum) {
        self.lost = None;
        self.words.low = low;
    }

    pub(super) fn is_learning(&self) -> bool {
        self.lost.is_some()
    }

    /// What the log keeps of it; `None` without a loss.
    pub(super) fn floor(&self) -> Option<Option<Floor>> {
        self.lost
    }

    pub(super) fn status(&self) -> Option<Learning> {
        let reports = self.reports.keys().copied().collect();
        self.lost.map(|floor| Learning { reports, floor })
    }

    /// Rule P3, once rule L7 allows it. Whether it has to wait for that.
    pub(super) fn resign_later(&mut self) -> bool {
        self.resigns = self.asking;
        self.asking
    }

    /// We sign our state at `seq`.
    pub(super) fn sign(&mut self, seq: SeqNum) {
        let first = self.words.signed.map_or(seq, |(first, _)| first);
        self.words.signed = Some((first, seq));
    }

    /// Rule L8: whether a state that we signed shows that our log went back: it does not reach there,
    /// and we signed it in no run that the log knows of.
    pub(super) fn is_forgotten(&self, said: &Checkpoint) -> bool {
        let Words { low, height, signed } = self.words;
        let floor = match self.lost {
            Some(None) => return false,
            Some(Some(floor)) => floor.seq,
            None => SeqNum(0),
        };
        let floor = floor.max(self.agreed.map_or(SeqNum(0), |agreed| agreed.seq));
        let signed = signed.is_some_and(|(first, last)| (first..=last).contains(&said.seq));
        let unknown = said.seq > low.max(floor) && said.height > height && !signed;
        unknown && stands(Defence::F51AskAfterRestart)
    }

    /// Rule L8: whether a view that we left for, or began, shows the same, when our log says that we
    /// are in `view`.
    pub(super) fn is_forgotten_view(&self, said: View, view: View) -> bool {
        let floor = match self.lost {
            Some(None) => return false,
            // What others reported may be any number.
            Some(Some(floor)) => View(floor.view.0.saturating_add(1)),
            None => View(0),
        };
        let floor = floor.max(self.agreed.map_or(View(0), |agreed| agreed.view));
        said > view.max(floor) && stands(Defence::F51AskAfterRestart)
    }

    /// Rule L4: whether we can have voted in this view before.
    pub(super) fn may_vote(&self, view: View) -> bool {
        let at_floor = |floor: Floor| mutated(Mutant::VotesAtFloor) && view == floor.view;
        let above = |floor: Floor| view > floor.view || at_floor(floor);
        !self.asking && self.lost.is_none_or(|floor| floor.is_some_and(above))
    }

    /// Rule L5: whether a VIEW-CHANGE of ours would tell of all that binds us, with this low
    /// watermark.
    pub(super) fn may_leave_for(&self, target: View, low: SeqNum) -> bool {
        let early = mutated(Mutant::LeavesEarly);
        let told = |floor: Floor| (early || low >= floor.seq) && target > floor.view;
        !self.asking && self.lost.is_none_or(|floor| floor.is_some_and(told))
    }

    /// Rule L4, for checkpoints.
    pub(super) fn may_sign(&self, seq: SeqNum) -> bool {
        let above = |floor: Floor| seq > floor.seq;
        !self.asking && self.lost.is_none_or(|floor| floor.is_some_and(above))
    }

    /// Rule L2: asks everybody where the network stands, until all have said it; or, rule L7, until
    /// enough have. Whether nothing can be done before that.
    pub(super) fn ask(&self, config: &Config, out: &mut Outbox) -> bool {
        let learns = self.lost.is_some() && self.reports.len() < config.membership.n() - 1;
        if self.asking || learns {
            out.broadcast(PbftMessage::Learn { nonce: self.nonce });
        }
        self.asking || learns && self.lost == Some(None)
    }

    /// Where another replica stands.
    pub(super) fn on_report(
        &mut self,
        config: &Config,
        from: ReplicaId,
        report: Report,
        out: &mut Outbox,
    ) -> Learnt {
        if self.nonce != report.nonce {
            out.drop_message("stale_report");
            return Learnt::Nothing;
        }
        self.reports.insert(from, Report { said: None, ..report });
        let floor = self.bound(config, out);
        // Rule L7: with us that is a quorum, and without one our votes are of no use.
        if self.asking && self.reports.len() >= config.quorum() - 1 {
            self.asking = false;
            return Learnt::Enough { resigns: std::mem::take(&mut self.resigns) };
        }
        if floor { Learnt::Floor } else { Learnt::Nothing }
    }

    /// Rule L3: a quorum of the others bounds what we can have promised, and any quorum does: so
    /// the lowest bound counts, and no minority can put it out of reach. Whether it is a new one.
    fn bound(&mut self, config: &Config, out: &mut Outbox) -> bool {
        let (quorum, window) = (config.quorum(), config.settings.window);
        let Some(lost) = self.lost.as_mut().filter(|_| self.reports.len() >= quorum) else {
            return false;
        };
        let mut views: Vec<View> = self.reports.values().map(|r| r.view).collect();
        let mut reaches: Vec<SeqNum> = self.reports.values().map(|r| r.reach).collect();
        views.sort_unstable();
        reaches.sort_unstable();
        let counts = if mutated(Mutant::LowestReport) { 0 } else { quorum - 1 };
        let (view, reach) = (views[counts], reaches[counts]);
        let mut floor = Floor { seq: SeqNum(reach.0.saturating_add(window)), view };
        if let Some(known) = *lost {
            floor = Floor { seq: floor.seq.min(known.seq), view: floor.view.min(known.view) };
        }
        if lost.replace(floor) == Some(floor) {
            return false;
        }
        out.note(&Record::Learning(Some(floor)));
        true
    }
}
