//! Replicas that left our view alone, and the way back for them (rules V7 and V8 of
//! `docs/protocol/pbft.md`, decision 0044).
//!
//! One that was paused leaves a view that works. It follows that view without a vote (V7): its
//! VIEW-CHANGE tells of all that binds it, and stays true only while it promises nothing more below.
//! What it lacks is a vote, and the network its redundancy. So the view's primary lets it in: it leaves
//! for the next view itself, all follow at once (V6), and the view begins with everybody (V8). That is
//! rare, and rarer each time for the same replica, since a faulty one could ask for it for ever.

use super::context::{At, Config};
use super::{BTreeMap, Instant, ReplicaId, SeqNum, Standing, View};
use std::time::Duration;

/// For how long one waits before it is let in, the first time.
const FIRST: Duration = Duration::from_secs(5);
/// By how much that grows each time for the same replica, and where it ends.
const GROWTH: u32 = 4;
const LONGEST: Duration = Duration::from_secs(3600);
/// After how long without it the replica begins anew.
const FORGIVEN: Duration = Duration::from_secs(4 * 3600);
/// One that waits for less when a view ends did not wait alone: it was among the first to leave.
const ALONE: Duration = Duration::from_secs(2);

/// What is known of one replica.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    /// What its last STATUS said, and when it came.
    view: View,
    changing: bool,
    /// Whether it stood no more than a window below our low watermark then.
    level: bool,
    spoke: Instant,
    /// Since when it waits for the view after ours.
    since: Option<Instant>,
    /// How often a view ended while it waited alone, and when last.
    moves: u32,
    moved: Instant,
}

impl Other {
    fn pause(&self) -> Duration {
        FIRST.saturating_mul(GROWTH.saturating_pow(self.moves)).min(LONGEST)
    }

    /// Whether it is there, and follows our view while it waits for the next.
    fn follows(&self, config: &Config, at: At) -> bool {
        let lately = config.settings.idle_interval * 4 + at.trip;
        self.changing
            && self.view == at.view.next()
            && self.level
            && at.now.since(self.spoke) <= lately
    }
}

/// The others, as far as they wait for a view without us.
#[derive(Debug, Default)]
pub(super) struct Lone {
    others: BTreeMap<ReplicaId, Other>,
    /// Whether this is a good moment to leave: little is under way.
    moment: bool,
}

impl Lone {
    /// A replica says where it stands; our window began here then.
    pub(super) fn heard(
        &mut self,
        config: &Config,
        at: At,
        from: ReplicaId,
        standing: &Standing,
        low: SeqNum,
    ) {
        let other = self.others.entry(from).or_default();
        (other.view, other.changing) = (standing.view, standing.changing);
        other.level = standing.delivered.0.saturating_add(config.settings.window) >= low.0;
        other.spoke = at.now;
    }

    /// Who has left for the view after ours, while we are in ours.
    pub(super) fn waits(&mut self, who: impl Fn(ReplicaId) -> bool, config: &Config, now: Instant) {
        for id in config.others() {
            let other = self.others.entry(id).or_default();
            other.since = who(id).then(|| other.since.unwrap_or(now));
        }
    }

    /// We leave our view. All count alike for whom that may have been, whoever leads the next.
    pub(super) fn left(&mut self, now: Instant) {
        for other in self.others.values_mut() {
            if other.since.take().is_some_and(|since| now.since(since) >= ALONE) {
                let forgiven = now.since(other.moved) >= FORGIVEN;
                other.moves = if forgiven { 1 } else { other.moves.saturating_add(1) };
                other.moved = now;
            }
        }
    }

    /// Little is under way now.
    pub(super) fn at_rest(&mut self) {
        self.moment = true;
    }

    /// Whether little was under way just now; once.
    pub(super) fn take_moment(&mut self) -> bool {
        std::mem::take(&mut self.moment)
    }

    /// Rule V8: whether somebody has waited for long enough, and is there to be let in. When more than f
    /// wait it is not for us to decide (rule V2).
    pub(super) fn is_due(&self, config: &Config, at: At) -> bool {
        let waiting = || self.others.values().filter(|other| other.since.is_some());
        let due = |other: &Other| {
            other.since.is_some_and(|since| at.now.since(since) >= other.pause())
                && other.follows(config, at)
        };
        waiting().count() <= config.membership.f() && waiting().any(due)
    }
}
