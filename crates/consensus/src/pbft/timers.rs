//! When something is to be done though nothing comes (TOCS section 4.5.3 and OSDI'99 section 4.4).

use super::resend::HELPED_AT_ONCE;
use super::{
    Duration, Event, Instant, LeaveCause, Pbft, PbftMessage, Principal, Standing, VoteTable,
};
use tercio_types::zoo::{Defence, stands};

/// When the window was full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Full {
    /// Since when it is.
    since: Option<Instant>,
    /// When it was for long, and no more.
    over: Option<Instant>,
}

impl<T: VoteTable> Pbft<T> {
    /// How long a primary has, as things stand (rules T3 and T6).
    fn timeout(&self) -> Duration {
        self.views.timeout(&self.config, self.at())
    }

    /// Rule T1: the oldest request that waits to be delivered is what a view is measured by (f18),
    /// of those that a correct primary can order (rule A4), and the oldest proposal that is not
    /// delivered though nothing else was.
    /// Timers of requests stop while a view change runs (f12).
    fn request_deadline(&self) -> Option<Instant> {
        let (changing, catching_up) = (self.views.is_changing(), self.checkpoints.is_catching_up());
        if changing || catching_up || !self.may_leave_now() || !stands(Defence::F18RequestTimers) {
            return None;
        }
        if self.is_overtaken() || self.is_full() && self.only_execution_is_late() {
            return None;
        }
        if self.reach.is_cut_off() {
            return None;
        }
        let since =
            [self.requests.pool().oldest(), self.proposed_since()].into_iter().flatten().min()?;
        let since =
            [self.full.over, self.reach.over()].into_iter().flatten().fold(since, Instant::max);
        Some(since + self.timeout())
    }

    /// Rule T9: notes whom an event is from, and whether enough others are heard.
    pub(super) fn note_reach(&mut self, event: &Event<PbftMessage>) {
        match event {
            Event::Message(message) => self.note_heard(message.sender()),
            Event::Forwarded(forward) => self.note_heard(forward.sender()),
            Event::Counted(counted) => {
                counted.voters().iter().for_each(|voter| self.reach.heard(voter, self.now));
            }
            _ => {}
        }
        if self.reach.is_due(self.now) {
            let proposed = self.slots.proposed_since(self.views.view()).map(|(since, _)| since);
            let oldest = [self.requests.pool().oldest(), proposed].into_iter().flatten().min();
            self.reach.look(&self.config, self.at(), self.trips.longest(), oldest);
        }
    }

    fn note_heard(&mut self, from: Principal) {
        if let Principal::Replica(from) = from {
            self.reach.heard(from, self.now);
        }
    }

    /// Since when the oldest proposal has waited, its bytes given their time (rule T7).
    fn proposed_since(&self) -> Option<Instant> {
        let (since, bytes) = self.slots.proposed_since(self.views.view())?;
        Some(since + self.requests.pool().time_for(bytes))
    }

    /// Rule T5: whether no primary could order anything: all numbers up to the high watermark are
    /// delivered, or there is no room (rule W4), and the checkpoint that would move them was asked for.
    /// What is missing is a quorum that has executed so far.
    fn is_full(&self) -> bool {
        let marks = self.slots.marks(&self.config);
        self.checkpoints.last_due() > marks.low
            && (marks.delivered >= marks.high || !self.slots.may_fill(&self.config))
    }

    /// Rule W3: whether the window has moved beyond what is executed. What is delivered waits for that,
    /// and no view changes it. Those who signed what the window stands at are f+1 correct ones at least.
    fn is_overtaken(&self) -> bool {
        self.slots.low() > self.checkpoints.executed()
    }

    /// Whether all others say that they have delivered what the checkpoint stands for that was asked
    /// for: another view would bring nobody anything.
    fn only_execution_is_late(&self) -> bool {
        self.resend.all_delivered(&self.config, self.checkpoints.last_due())
            && stands(Defence::F52OrderAhead)
    }

    /// Rule T8: whether nobody handed us anything for so long that a deadline of ours is long over: we
    /// stood still, not the primary. What came meanwhile is looked at first, so all has its whole time
    /// from here on, once for each request, as after a full window.
    pub(super) fn note_pause(&mut self) {
        let late = self.now.since(self.resend.status_deadline());
        let is_late = !late.is_zero() && late >= self.at().patience(&self.config) / 4;
        if is_late && stands(Defence::F62ReturnToTheView) {
            let proposed = self.slots.proposed_since(self.views.view()).map(|(since, _)| since);
            self.begin_anew([self.requests.pool().oldest(), proposed].into_iter().flatten().min());
        }
    }

    /// Rules T5 and T8: what waits has its whole time from now on, unless the oldest of it had that
    /// before.
    fn begin_anew(&mut self, oldest: Option<Instant>) {
        let had = |over: Instant| oldest.is_some_and(|at| at <= over);
        if !self.full.over.is_some_and(had) {
            self.full.over = Some(self.now);
        }
    }

    /// Rule T5: when a primary can order again. It gets its whole time then, if it could not for long,
    /// and once for each request: one that fills the window again and again must not put off the
    /// timer of a request that it passes over.
    pub(super) fn note_full(&mut self) {
        match (self.is_full() || self.is_overtaken(), self.full.since) {
            (true, None) => self.full.since = Some(self.now),
            (false, Some(since)) => {
                self.full.since = None;
                let long = self.now.since(since) >= self.at().patience(&self.config) / 2;
                if long {
                    self.begin_anew(self.requests.pool().oldest());
                }
            }
            _ => {}
        }
    }

    /// What [`Self::request_deadline`] is measured by.
    fn what_waits(&self) -> LeaveCause {
        match (self.requests.pool().oldest(), self.proposed_since()) {
            (request, Some(proposed)) if request.is_none_or(|request| proposed < request) => {
                LeaveCause::ProposalWaits
            }
            _ => LeaveCause::RequestWaits,
        }
    }

    /// Rule T3, for those that may leave.
    fn view_deadline(&self) -> Option<Instant> {
        self.views.deadline().filter(|_| self.may_leave_now())
    }

    /// Rule T4: numbers that are delivered, and that no stable checkpoint covers though nothing
    /// else is to be done, count as waiting too: somebody may lack what only a checkpoint brings.
    /// Each view has its time for that. When a checkpoint was asked for and all others say that they
    /// lack nothing, it is execution that is late.
    fn uncovered_deadline(&self) -> Option<Instant> {
        let (at, delivered) = (self.at(), self.slots.delivered());
        let uncovered = delivered > self.slots.low() && at.executed == delivered;
        let busy = at.changing || at.catching_up || !self.requests.pool().is_empty();
        if self.checkpoints.last_due() == delivered && self.only_execution_is_late() {
            return None;
        }
        if busy || !uncovered || at.is_primary(&self.config) || !self.may_leave_now() {
            return None;
        }
        if self.reach.is_cut_off() {
            return None;
        }
        let since = self.slots.idle_since().max(self.views.entered_at());
        let since =
            [self.full.over, self.reach.over()].into_iter().flatten().fold(since, Instant::max);
        Some(since + self.config.settings.checkpoint_idle + self.timeout())
    }

    /// Rule C3: when an idle primary asks for a checkpoint.
    fn checkpoint_deadline(&self) -> Option<Instant> {
        let uncovered = self.slots.delivered() > self.checkpoints.last_due();
        let idle = self.requests.pool().is_empty() && self.proposer.is_idle(&self.slots);
        let may = self.proposer.may_propose(&self.config, self.at(), &self.slots);
        (may && uncovered && idle)
            .then(|| self.slots.idle_since() + self.config.settings.checkpoint_idle)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let at = self.at();
        let primary_only = if at.is_primary(&self.config) && !at.changing {
            let pool = self.requests.pool();
            let batch = self.proposer.deadline(&self.config, at, pool, &self.slots);
            [batch, self.checkpoint_deadline()]
        } else {
            [None, None]
        };
        let timeout = self.timeout();
        [
            Some(self.resend.status_deadline()),
            self.view_deadline(),
            self.request_deadline(),
            self.uncovered_deadline(),
            self.requests.unvouched_deadline(&self.config, at, timeout),
            self.requests.forward_deadline(&self.config, at),
        ]
        .into_iter()
        .chain(primary_only)
        .flatten()
        .min()
    }

    pub(super) fn on_timeout(&mut self) {
        let now = self.now;
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        let batch = self.proposer.batch_is_due(now);
        let checkpoint = due(self.checkpoint_deadline());
        let timeout = self.timeout();
        self.requests.on_timeout(&self.config, self.at(), timeout, &mut self.out);
        let deadlines = [
            (self.view_deadline(), LeaveCause::NewViewWaits),
            (self.request_deadline(), self.what_waits()),
            (self.uncovered_deadline(), LeaveCause::CheckpointWaits),
        ];
        if let Some((_, cause)) = deadlines.into_iter().find(|(deadline, _)| due(*deadline)) {
            self.leave(self.views.view().next(), cause);
        }
        let (config, at, out) = (&self.config, self.at(), &mut self.out);
        if batch {
            let pool = self.requests.pool_mut();
            self.proposer.on_batch_timeout(config, at, pool, &mut self.slots, out);
        }
        if checkpoint {
            let pool = self.requests.pool();
            self.proposer.propose_checkpoint(config, at, pool, &mut self.slots, out);
        }
        if self.resend.status_deadline() <= now {
            self.on_status_tick();
        }
    }

    /// Rule S1: says where we stand, if we wait for something and get no further.
    fn on_status_tick(&mut self) {
        let asks = self.learner.ask(&self.config, &mut self.out);
        let at = self.at();
        let waits = asks
            || at.changing
            || at.behind
            || !self.requests.pool().is_empty()
            || self.slots.is_under_way();
        let delivered = self.slots.delivered();
        let moved = self.resend.on_tick(&self.config, at, waits, delivered);
        let views = &self.views;
        self.lone.waits(|id| views.waits_for_next(id), &self.config, self.now);
        if !self.slots.is_under_way() {
            self.lone.at_rest();
        }
        // Whoever moves is not stuck: what it lacks is most likely on its way.
        let well = waits && moved && !at.changing;
        if well && !self.resend.is_silent(&self.config, at) {
            return;
        }
        self.resend.speak(at);
        self.out.broadcast(PbftMessage::Status(Standing {
            view: at.view,
            changing: at.changing,
            delivered,
            stable: self.slots.low(),
            well,
            sent: self.now,
            echoes: self.trips.echoes(self.now),
        }));
        if well {
            return;
        }
        if at.changing {
            self.views.say_again(&self.config, &mut self.out);
        }
        self.slots.fetch_missing(&self.config, at, HELPED_AT_ONCE as usize, &mut self.out);
        self.checkpoints.catch_up(delivered, &mut self.out);
    }
}
