//! Retransmission: loss is normal. Nothing is retransmitted on a timer of its own; a replica that
//! waits says where it stands (STATUS, TOCS section 4.6.3), and those ahead of it send what
//! it lacks: at most [`HELPED_AT_ONCE`] numbers, and to each replica at most once in half a status
//! interval. Asking for bodies has the same bound, so that small questions do not draw any number
//! of large answers.

use super::{
    Arc, Digest, EncodedBatch, Pbft, PbftMessage, Phase, ReplicaId, SeqNum, Standing, Vote,
    VoteTable,
};
use std::ops::Bound::{Excluded, Included};
use tercio_types::zoo::{Defence, stands};

/// How many numbers' messages one STATUS brings.
const HELPED_AT_ONCE: u64 = 32;

impl<T: VoteTable> Pbft<T> {
    /// Rule S1: say where we stand, often when we wait for something and get no further, and seldom
    /// when there is nothing to wait for.
    pub(super) fn on_status_tick(&mut self) {
        let asks = self.ask_to_learn();
        let waits = asks
            || self.changing
            || self.ahead.is_some()
            || !self.pool.is_empty()
            || self.slots.range(self.delivered.next()..).next().is_some();
        let interval =
            if waits { self.settings.status_interval } else { self.settings.idle_interval };
        self.status_deadline = self.now + interval;
        // Whoever moves is not stuck: what it lacks is most likely on its way.
        let moves = self.delivered > self.delivered_at_status;
        self.delivered_at_status = self.delivered;
        if waits && moves && !self.changing {
            return;
        }
        self.broadcast(PbftMessage::Status(Standing {
            view: self.view,
            changing: self.changing,
            delivered: self.delivered,
            stable: self.low,
        }));
        if self.changing {
            self.say_view_change(None);
        }
        let missing: Vec<(SeqNum, Digest)> = self
            .slots
            .range(self.delivered.next()..)
            .filter_map(|(seq, slot)| {
                let proposed = slot.proposal.filter(|(view, _)| *view == self.view).map(|p| p.1);
                let digest = slot.committed.or(proposed)?;
                (!slot.has_body(digest)).then_some((*seq, digest))
            })
            .take(HELPED_AT_ONCE as usize)
            .collect();
        for (seq, digest) in missing {
            self.fetch_body(seq, digest);
        }
        self.catch_up();
    }

    fn say_view_change(&mut self, to: Option<ReplicaId>) {
        let Some(own) = self.view_changes.get(&self.me) else { return };
        if own.content.view == self.view {
            let message = PbftMessage::ViewChange(own.clone());
            match to {
                Some(to) => self.send(to, message),
                None => self.broadcast(message),
            }
        }
    }

    /// Whether `to` may be helped again, which is noted.
    pub(super) fn may_help(&mut self, to: ReplicaId) -> bool {
        let pause = self.settings.status_interval / 2;
        let rested = self.helped.get(&to).is_none_or(|at| self.now.since(*at) >= pause);
        if rested {
            self.helped.insert(to, self.now);
        }
        rested
    }

    /// Shows a replica that is behind which view we are in.
    pub(super) fn show_view(&mut self, to: ReplicaId) {
        if self.changing {
            self.say_view_change(Some(to));
        } else if let Some(new_view) = self.new_view.clone() {
            self.send(to, PbftMessage::NewView(new_view));
        }
    }

    /// Rule S2: send one that is behind what it lacks.
    pub(super) fn on_status(&mut self, from: ReplicaId, standing: Standing) {
        if !self.may_help(from) {
            return;
        }
        if let Some(stable) = self.stable.clone().filter(|_| standing.stable < self.low)
            && stands(Defence::F27ServeLaggards)
        {
            self.send(from, PbftMessage::Stable(stable));
        }
        for message in self.own_checkpoints_above(standing.stable) {
            self.send(from, message);
        }
        if standing.view < self.view || (standing.view == self.view && standing.changing) {
            self.show_view(from);
        }
        // It may say any number.
        let after = standing.delivered.max(self.low);
        let last = SeqNum(after.0.saturating_add(HELPED_AT_ONCE));
        let mut messages = Vec::new();
        for (&seq, slot) in self.slots.range((Excluded(after), Included(last))) {
            // Only what we are known to have said: the vote table holds our vote once it is kept.
            let said = |phase, (view, digest)| {
                self.votes.voters(&Vote { phase, view, seq, digest }).contains(self.me)
            };
            if let Some((view, digest)) = slot.accepted.filter(|a| said(Phase::Prepare, *a)) {
                let proposed = self.is_primary() && self.is_current(view);
                if proposed && let Some(batch) = slot.body(digest, self.suite) {
                    messages.push(PbftMessage::PrePrepare { view, seq, batch });
                }
                messages.push(PbftMessage::Prepare { view, seq, digest });
            }
            if let Some((view, digest)) = slot.prepared.filter(|p| said(Phase::Commit, *p)) {
                messages.push(PbftMessage::Commit { view, seq, digest });
            }
        }
        messages.into_iter().for_each(|message| self.send(from, message));
    }

    /// Asks everybody for a batch, unless it would find no room (rule W4).
    pub(super) fn fetch_body(&mut self, seq: SeqNum, digest: Digest) {
        if self.takes_bodies() {
            self.broadcast(PbftMessage::FetchBody { seq, digest });
        }
    }

    pub(super) fn on_fetch_body(&mut self, from: ReplicaId, seq: SeqNum, digest: Digest) {
        let body = self.slots.get(&seq).and_then(|slot| slot.body(digest, self.suite));
        let Some(batch) = body else { return };
        let (since, given) = self.bodies_given.entry(from).or_insert((self.now, 0));
        if self.now.since(*since) >= self.settings.status_interval / 2 {
            (*since, *given) = (self.now, 0);
        }
        if *given == HELPED_AT_ONCE {
            return self.drop_message("fetch_body_too_often");
        }
        *given += 1;
        self.send(from, PbftMessage::Body { seq, batch });
    }

    pub(super) fn on_body(&mut self, seq: SeqNum, batch: Arc<EncodedBatch>) {
        if !self.wants_body(seq, batch.digest) {
            return self.drop_message("unwanted_body");
        }
        if !self.takes_bodies() {
            return self.drop_message("no_room_for_body");
        }
        if let Some(slot) = self.slots.get_mut(&seq) {
            slot.add_body(batch, false);
        }
        self.accept(seq);
    }
}
