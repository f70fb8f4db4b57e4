//! The attacks: what each needs, does, and must not achieve.

mod files;
mod homes;

use crate::Trouble;
use crate::ground::Ground;
use crate::hostile::Part;
use crate::net::{Net, Plan, SmallHome, VICTIM};
use std::time::Duration;
use tercio_replica::Durability;

/// What must hold of an attack beside what must always hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demands {
    /// The least part of the results of before.
    pub(crate) part: f64,
    /// The most view changes.
    pub(crate) views: u64,
    /// How soon all must be level.
    pub(crate) level: Duration,
    /// Where links are wide: the delay of one way.
    pub(crate) one_way: Option<Duration>,
}

/// What is demanded of most.
const ALL: Demands = Demands { part: 0.5, views: 0, level: LEVEL, one_way: None };
/// 2 s; what replicas say of themselves is up to 0.2 s old, and held against what they said 0.3 s
/// before.
const LEVEL: Duration = Duration::from_millis(2_500);
/// One that starts on no data fetches all.
const LEARNER: Demands = Demands { level: Duration::from_secs(20), ..ALL };

impl Demands {
    /// What is demanded of two attacks at once.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            part: self.part * other.part,
            views: self.views + other.views,
            level: self.level.max(other.level),
            one_way: self.one_way.or(other.one_way),
        }
    }
}

/// One attack.
pub(crate) struct Attack {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does, in words.
    pub(crate) what: &'static str,
    /// How long it goes on.
    pub(crate) seconds: u64,
    pub(crate) demands: Demands,
    /// What it takes of those things that only one attack can have; none that cannot be in a pair.
    pub(crate) takes: Option<&'static [&'static str]>,
    /// What it needs that a machine may lack.
    pub(crate) needs: &'static [Need],
    pub(crate) prepare: fn(&mut Plan),
    pub(crate) begin: fn(&mut Ground) -> Result<(), Trouble>,
    pub(crate) heal: fn(&mut Ground) -> Result<(), Trouble>,
    /// Looks at what is left of it, before the replicas stop.
    pub(crate) look: fn(&mut Ground) -> Result<(), Trouble>,
}

/// What a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// To mount a file system.
    Mounts,
    /// The library that shows a process another time.
    FakeTime,
}

fn nothing(_: &mut Ground) -> Result<(), Trouble> {
    Ok(())
}

/// One that does nothing, to be changed.
const NONE: Attack = Attack {
    name: "none",
    what: "nobody attacks: the control",
    seconds: 6,
    demands: ALL,
    takes: None,
    needs: &[],
    prepare: |_| {},
    begin: nothing,
    heal: nothing,
    look: nothing,
};

/// How many clients of the attacker have keys where descriptors are what is attacked, and what a
/// replica then may have.
const IDLE: usize = 1_010;
const WAN_SECONDS: u64 = 10;

const fn wan(name: &'static str, what: &'static str, ms: u64) -> Attack {
    let one_way = Some(Duration::from_millis(ms));
    Attack {
        name,
        what,
        seconds: WAN_SECONDS,
        demands: Demands { part: 0.0, one_way, ..ALL },
        prepare: |plan| plan.relayed = true,
        heal: |ground| {
            delays(&ground.net, 0, 0);
            Ok(())
        },
        ..NONE
    }
}

fn delays(net: &Net, least: u64, jitter: u64) {
    let ms = Duration::from_millis;
    net.relays.values().for_each(|relay| relay.delay(ms(least), ms(jitter)));
}

/// All attacks; the first is the control.
pub(crate) const ATTACKS: &[Attack] = &[
    NONE,
    Attack {
        name: "idle-clients",
        what: "1,010 clients with keys link to all replicas and say nothing, at nofile 1024",
        takes: Some(&["nofile"]),
        prepare: |plan| (plan.nofile, plan.idle_clients) = (Some(1_024), IDLE),
        begin: |ground| ground.attack_with(Part::Idle, IDLE),
        ..NONE
    },
    Attack {
        name: "strangers",
        what: "100 connections a replica without a word, at nofile 60",
        takes: Some(&["nofile"]),
        prepare: |plan| plan.nofile = Some(60),
        begin: |ground| ground.attack(Part::Strangers, 1),
        ..NONE
    },
    Attack {
        name: "bad-signatures",
        what: "a client sends well-formed requests with false signatures to all",
        takes: Some(&[]),
        begin: |ground| ground.attack(Part::Signatures, 1),
        ..NONE
    },
    Attack {
        name: "forwards",
        what: "a faulty replica forwards such requests to all",
        takes: Some(&["victim"]),
        prepare: |plan| plan.down = Some(VICTIM),
        begin: |ground| ground.attack(Part::Forwards, 1),
        ..NONE
    },
    Attack {
        name: "large",
        what: "a client sends 8 good requests of 900 KB to all every 2 s",
        takes: Some(&[]),
        begin: |ground| ground.attack(Part::Large, 1),
        ..NONE
    },
    Attack {
        name: "large-flood",
        what: "a client sends such requests to all as fast as they are taken",
        takes: Some(&[]),
        begin: |ground| ground.attack(Part::LargeFlood, 1),
        ..NONE
    },
    Attack {
        name: "far-numbers",
        what: "a client sends requests with numbers far ahead, and `submit` begins with such a one",
        takes: Some(&[]),
        begin: |ground| ground.attack(Part::Far, 1),
        heal: homes::submit_far,
        ..NONE
    },
    Attack {
        name: "junk-handshakes",
        what: "4 processes begin handshakes with junk behind a good hello",
        takes: Some(&["handshakes"]),
        begin: |ground| ground.attack(Part::Junk, 4),
        ..NONE
    },
    Attack {
        name: "replayed-handshakes",
        what: "4 processes replay the openings of good handshakes",
        takes: Some(&["handshakes"]),
        begin: |ground| ground.attack(Part::Replays, 4),
        ..NONE
    },
    Attack {
        name: "cut",
        what: "14 s without a byte between one replica and the others",
        seconds: 14,
        takes: Some(&["victim"]),
        prepare: |plan| plan.relayed = true,
        begin: |ground| {
            ground.net.relays_of(VICTIM).for_each(crate::relay::Relay::cut);
            Ok(())
        },
        heal: |ground| {
            ground.net.relays_of(VICTIM).for_each(crate::relay::Relay::heal);
            Ok(())
        },
        ..NONE
    },
    Attack {
        begin: |ground| {
            delays(&ground.net, 150, 0);
            Ok(())
        },
        ..wan("delay-150", "150 ms one way between replicas, after 10 s to learn that", 150)
    },
    Attack {
        begin: |ground| {
            delays(&ground.net, 250, 0);
            Ok(())
        },
        ..wan("delay-250", "250 ms one way between replicas, after 10 s to learn that", 250)
    },
    Attack {
        begin: |ground| {
            delays(&ground.net, 100, 400);
            Ok(())
        },
        ..wan("delay-300", "300 +- 200 ms one way between replicas, after 10 s to learn that", 300)
    },
    Attack {
        name: "clock",
        what: "the first primary is ten years ahead for some seconds",
        seconds: 3,
        // Replacing it is right, and so is losing what it held up until then.
        demands: Demands { part: 0.0, views: 3, ..ALL },
        needs: &[Need::FakeTime],
        prepare: |plan| plan.ahead = Some(0),
        heal: homes::right_clock,
        look: homes::time_is_now,
        ..NONE
    },
    Attack {
        name: "full-status",
        what: "no room for status.json in one home; its data is elsewhere",
        takes: Some(&["victim"]),
        needs: &[Need::Mounts],
        prepare: |plan| plan.small_home = Some(SmallHome { mib: 2, data_elsewhere: true }),
        begin: files::fill,
        heal: files::empty_again,
        ..NONE
    },
    Attack {
        name: "full-disk",
        what: "no room in one home; when there is room again its replica is started again",
        takes: Some(&["victim"]),
        needs: &[Need::Mounts],
        prepare: |plan| plan.small_home = Some(SmallHome { mib: 64, data_elsewhere: false }),
        begin: files::fill,
        heal: files::start_again,
        ..NONE
    },
    Attack {
        name: "flip-block",
        what: "one bit in the middle of one block log; its replica is started again",
        seconds: 2,
        begin: |ground| files::damage(ground, crate::blocks::flip_block),
        heal: files::start_damaged,
        ..NONE
    },
    Attack {
        name: "flip-wal",
        what: "one bit in the middle of one write-ahead log; it must be told, and learn anew",
        seconds: 2,
        demands: LEARNER,
        begin: |ground| files::damage(ground, crate::blocks::flip_wal),
        heal: files::refused_then_empty,
        ..NONE
    },
    Attack {
        name: "half-wal",
        what: "one write-ahead log is cut to half; it must be told, and learn anew",
        seconds: 2,
        demands: LEARNER,
        // In the page cache nothing says how far the log was durable.
        prepare: |plan| plan.durability = Durability::Group(Durability::GROUP),
        begin: |ground| files::damage(ground, crate::blocks::halve_wal),
        heal: files::refused_then_empty,
        ..NONE
    },
    Attack {
        name: "same-home",
        what: "one home is started a second time",
        takes: Some(&["victim"]),
        begin: homes::start_twice,
        ..NONE
    },
    Attack {
        name: "cloned-replica",
        what: "a copy of one home runs beside it",
        takes: Some(&["victim"]),
        begin: homes::start_clone,
        heal: homes::end_clone,
        ..NONE
    },
    Attack {
        name: "cloned-client",
        what: "two processes submit from copies of one client's home",
        takes: Some(&[]),
        begin: homes::submit_twice,
        ..NONE
    },
];

/// The attack of this name.
pub(crate) fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// All pairs that can be made at once.
pub(crate) fn pairs() -> Vec<[&'static Attack; 2]> {
    let mut pairs = vec![];
    for (i, one) in ATTACKS.iter().enumerate() {
        for other in &ATTACKS[i + 1..] {
            if let (Some(first), Some(second)) = (one.takes, other.takes)
                && first.iter().all(|thing| !second.contains(thing))
            {
                pairs.push([one, other]);
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_pairs_share_nothing() {
        let names: BTreeSet<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        let pairs = pairs();
        let both = |a: &str, b: &str| pairs.iter().any(|p| p[0].name == a && p[1].name == b);
        assert!(both("bad-signatures", "large") && both("forwards", "large"));
        assert!(!both("forwards", "cut") && !both("idle-clients", "strangers"));
        assert!(pairs.iter().all(|[a, b]| a.name != "none" && b.name != "none"));
    }
}
