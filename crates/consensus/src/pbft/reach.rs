//! Whether we hear enough others to hold anything against a primary (rule T9 of
//! `docs/protocol/pbft.md`).
//!
//! One whose links are cut waits for proposals like one whose primary is gone. But where a primary is
//! gone, all others wait, too, and whoever waits says so; where nobody is heard, no VIEW-CHANGE of ours
//! would be heard either, and once it is, its sender is out of a view that works (rule V7).

use super::context::{At, Config};
use super::{BTreeMap, Instant, ReplicaId};
use std::time::Duration;

/// Whom we heard, and when.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    start: Instant,
    heard: BTreeMap<ReplicaId, Instant>,
    cut_off: bool,
    /// When to look again.
    look_at: Instant,
    /// Since when something waits here.
    waits_since: Option<Instant>,
    /// When we were cut off last, and were no more.
    over: Option<Instant>,
}

impl Reach {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            start: now,
            heard: BTreeMap::new(),
            cut_off: false,
            look_at: now,
            waits_since: None,
            over: None,
        }
    }

    /// Something came from this replica.
    pub(super) fn heard(&mut self, from: ReplicaId, now: Instant) {
        self.heard.insert(from, now);
    }

    /// Whether fewer than a quorum, we included, were heard for as long as those who wait may be silent
    /// (rule S1).
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Whether to look again: all the time when we are cut off, and often enough before that.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.cut_off || now >= self.look_at
    }

    /// Looks again; `oldest` is since when the oldest waits that a primary is measured by. It has its
    /// whole time from the end of a cut on, once, so that nobody who is silent now and then can put
    /// it off. `longest` is the longest round trip.
    pub(super) fn look(
        &mut self,
        config: &Config,
        at: At,
        longest: Duration,
        oldest: Option<Instant>,
    ) {
        self.waits_since = oldest.and(self.waits_since.or(Some(at.now)));
        // The intervals of one that waits, by its own round trips.
        let interval = config.settings.status_interval.max(2 * longest);
        let half = at.patience(config) / 2;
        let idle = config.settings.idle_interval;
        let (patience, spoken) = match self.waits_since {
            // It begins to say where it stands when it has waited for one of them, or when it would
            // have, idle: where that is long its silence says little.
            Some(since) if idle <= at.patience(config) => {
                (half.max(2 * interval), since + interval)
            }
            _ => (half + idle, self.start),
        };
        self.look_at = at.now + patience / 8;
        // One that is cut off already is no less so for having something that waits.
        let spoken = if self.cut_off { self.start } else { spoken };
        let silent = |last: Instant| at.now.since(last.max(spoken)) > patience;
        let last = |id: ReplicaId| self.heard.get(&id).copied().unwrap_or(self.start);
        let heard = config.others().filter(|id| !silent(last(*id))).count();
        let was = std::mem::replace(&mut self.cut_off, heard + 1 < config.quorum());
        if was && !self.cut_off {
            let had = |over: Instant| oldest.is_some_and(|at| at <= over);
            if !self.over.is_some_and(had) {
                self.over = Some(at.now);
            }
        }
    }

    /// When what waits begins anew.
    pub(super) fn over(&self) -> Option<Instant> {
        self.over
    }
}
