//! How much of the verifying thread's time a link may use up in vain: token buckets in nanoseconds.
//!
//! The party that pays is the link that brought the frame, never who is named in it.
//!
//! - A client pays for each frame that fails, what it cost ([`crate::cost`]), and for each that is
//!   refused or answered again. An honest one sends no false frames at all.
//! - A replica pays for false signatures in its messages. An honest one verifies what it sends on, and
//!   its tag on the message is checked before, so nobody else can run up its account.
//! - A replica's FORWARDs have an account of their own. An honest replica may forward tags that fail
//!   here (f16) and what we have already, so nothing of that can be held against it, and a share is what
//!   it gets. A signature that is good and new is free: its client asked for it, and whether it is
//!   ordered must not depend on how much that client asks for through one replica (T1, T2).
//!
//! Whoever has nothing left is not listened to until time has paid again: its frames are dropped
//! before what is dear about them, and counted. Consensus' own messages of a replica without
//! signatures always pass.

use crate::{Dropped, Filtered, Inbound, Lane, cost};
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_crypto::Reject;
use tercio_types::zoo::{Defence, stands};

/// What an account gets, and the most that it holds.
struct Rate {
    /// It gets one `part`-th of the time.
    part: u64,
    most: i64,
}

/// In nanoseconds.
const MILLISECOND: i64 = 1_000_000;

/// A hundredth: 170 false signatures each second, and as many at once.
const CLIENT: Rate = Rate { part: 100, most: 10 * MILLISECOND };
/// A proposal with a thousand signatures may be the first that has a false one.
const REPLICA: Rate = Rate { part: 100, most: 100 * MILLISECOND };
/// A quarter, 90,000 requests under MACs each second; at once, as many as clients may have under way
/// when their primary stops.
const FORWARDS: Rate = Rate { part: 4, most: 250 * MILLISECOND };

impl Rate {
    const fn of(lane: Lane) -> &'static Self {
        match lane {
            Lane::Client(_) => &CLIENT,
            Lane::Replica(_) => &REPLICA,
            Lane::Forwards(_) => &FORWARDS,
        }
    }
}

/// One account.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// What is left, below zero when more was used than there was.
    left: i64,
    /// Until when it was paid.
    paid: Duration,
}

/// The accounts of all links that have used something up.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    accounts: BTreeMap<Lane, Account>,
    /// The last time that was said.
    now: Duration,
}

impl Meters {
    /// Whether frames of this lane are listened to now.
    pub(crate) fn hear(&mut self, lane: Lane, now: Duration) -> Result<(), Filtered> {
        self.now = self.now.max(now);
        let Some(account) = self.accounts.get_mut(&lane) else { return Ok(()) };
        let rate = Rate::of(lane);
        let elapsed = self.now.saturating_sub(account.paid);
        let pay = i64::try_from(elapsed.as_nanos() / u128::from(rate.part)).unwrap_or(i64::MAX);
        if pay > 0 {
            account.left = account.left.saturating_add(pay);
            account.paid = self.now;
        }
        if account.left >= rate.most {
            self.accounts.remove(&lane);
            return Ok(());
        }
        self.may(lane)
    }

    /// The same as of the last time that was said.
    pub(crate) fn may(&self, lane: Lane) -> Result<(), Filtered> {
        let spent = self.accounts.get(&lane).is_some_and(|account| account.left <= 0);
        if spent && stands(Defence::F59ChargeByCost) { Err(Filtered::Floods(lane)) } else { Ok(()) }
    }

    /// How long it takes until a lane that is not listened to has a tenth of what it may have: so many
    /// frames at a time are worth hearing again.
    pub(crate) fn silence(&self, lane: Lane) -> Duration {
        let (Some(account), Err(_)) = (self.accounts.get(&lane), self.may(lane)) else {
            return Duration::ZERO;
        };
        let rate = Rate::of(lane);
        let lacks = u64::try_from(rate.most / 10 - account.left).unwrap_or(0);
        Duration::from_nanos(lacks.saturating_mul(rate.part))
    }

    /// This came of a frame of so many bytes, and its signatures took so long.
    pub(crate) fn settle<M>(
        &mut self,
        lane: Lane,
        result: &Result<Inbound<M>, Dropped>,
        bytes: usize,
        signatures: u64,
    ) {
        let frame = || cost::of_frame(bytes);
        match (lane, result) {
            (Lane::Forwards(_), Ok(_)) if signatures == 0 => self.charge(lane, frame()),
            (_, Ok(_) | Err(Dropped::Filtered(_))) => {}
            (Lane::Forwards(_), Err(_)) => self.charge(lane, frame() + signatures),
            (Lane::Client(_), Err(_)) => self.charge(lane, frame() + signatures),
            (Lane::Replica(_), Err(Dropped::Reject(Reject::BadSignature(_)))) => {
                self.charge(lane, signatures);
            }
            // It might be our keys that are old.
            (Lane::Replica(_), Err(_)) => {}
        }
    }

    /// So much was used up.
    pub(crate) fn charge(&mut self, lane: Lane, cost: u64) {
        let (left, paid) = (Rate::of(lane).most, self.now);
        let account = self.accounts.entry(lane).or_insert(Account { left, paid });
        // No deeper than what was full once: who stops is heard again soon.
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        account.left = account.left.saturating_sub(cost).max(-left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tercio_types::{ClientId, ReplicaId, Scheme};

    const NOISY: Lane = Lane::Client(ClientId(1));
    const QUIET: Lane = Lane::Client(ClientId(2));

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn who_has_used_its_time_up_is_not_heard_until_time_has_paid() {
        let mut meters = Meters::default();
        let false_one = cost::of_frame(200) + cost::of_signature(Scheme::Ed25519);
        let mut heard = 0;
        while meters.hear(NOISY, ms(1000)).is_ok() {
            meters.charge(NOISY, false_one);
            heard += 1;
        }
        assert!((140..180).contains(&heard), "{heard}");
        assert_eq!(meters.hear(NOISY, ms(1000)), Err(Filtered::Floods(NOISY)));
        assert!(meters.hear(QUIET, ms(1000)).is_ok());
        assert!(meters.hear(NOISY, ms(1020)).is_ok(), "0.2 ms were paid");
        // One that was left alone for long has no more than a full account.
        assert!(meters.hear(NOISY, ms(1_000_000)).is_ok());
        assert!(meters.accounts.is_empty(), "nothing is kept of who owes nothing");
    }

    #[test]
    fn a_replica_pays_for_its_forwards_apart() {
        let mut meters = Meters::default();
        let (forwards, messages) = (Lane::Forwards(ReplicaId(3)), Lane::Replica(ReplicaId(3)));
        meters.charge(forwards, 10_000_000_000);
        assert!(meters.hear(forwards, ms(1)).is_err());
        assert!(meters.hear(messages, ms(1)).is_ok());
        assert!(meters.hear(forwards, ms(2100)).is_ok(), "no debt is deeper than the account");
    }

    proptest! {
        /// Whoever sends whatever, whenever: in all, no more is used up than the account held, what was
        /// paid since, and the last frame.
        #[test]
        fn no_more_is_used_than_was_paid(
            frames in prop::collection::vec((0..2_000_u64, 1..2_000_000_u64), 1..300),
        ) {
            let (mut meters, mut now, mut used, mut dearest) = (Meters::default(), 0, 0, 0);
            for (later, cost) in frames {
                now += later;
                if meters.hear(NOISY, Duration::from_micros(now)).is_ok() {
                    meters.charge(NOISY, cost);
                    used += cost;
                    dearest = dearest.max(cost);
                }
            }
            let paid = now * 1000 / CLIENT.part;
            prop_assert!(used <= CLIENT.most as u64 + paid + dearest, "{used}");
        }
    }
}
