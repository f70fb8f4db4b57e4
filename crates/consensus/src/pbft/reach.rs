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
    /// When we were cut off last, and were no more.
    over: Option<Instant>,
}

impl Reach {
    pub(super) fn new(now: Instant) -> Self {
        Self { start: now, heard: BTreeMap::new(), cut_off: false, look_at: now, over: None }
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
    /// it off.
    pub(super) fn look(&mut self, config: &Config, at: At, oldest: Option<Instant>) {
        let patience = Self::patience(config, at, oldest.is_some());
        self.look_at = at.now + patience / 8;
        let silent = |last: Instant| at.now.since(last) > patience;
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

    /// How long another may be silent. One that waits as we do: half of T, and two of its intervals
    /// where those are long. One that waits for nothing: half of T, and its interval.
    fn patience(config: &Config, at: At, waits: bool) -> Duration {
        let half = at.patience(config) / 2;
        if waits {
            half.max(2 * at.resend_after(config))
        } else {
            half + config.settings.idle_interval
        }
    }

    /// When what waits begins anew.
    pub(super) fn over(&self) -> Option<Instant> {
        self.over
    }
}
