//! Whom a client asks for the full reply, and whom it asks when none comes.

use crate::common;

use bytes::Bytes;
use common::Replica;
use common::world::{MS, World, did};
use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_types::{Authenticator, ReplicaId, Suite, View};
use tercio_wire::Frame;
use tercio_wire::reject::Reason;

#[test]
fn repliers_take_turns() {
    let mut w = World::new(4);
    let repliers: Vec<u16> = (0..8)
        .map(|_| {
            // Packages of four: numbers alone would always name the same one.
            w.core.submit(vec!["x".into(); 4], w.now).unwrap();
            w.package(0).replier.0
        })
        .collect();
    assert_eq!(repliers, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_silent_replier_is_replaced_and_remembered() {
    let mut w = World::new(4);
    w.submit("op 0");
    w.submit("op 1");
    let sent = w.sent();
    let dead = w.replicas[0].read(&sent[1].1).replier.0;
    assert_eq!(dead, 1);
    for r in [0, 2] {
        w.brief(r, 2, &did("op 1"));
    }
    w.pass(19 * MS);
    assert_eq!(w.receivers(), [0; 0], "it still has time");
    w.pass(MS);
    let asked = w.sent();
    assert_eq!(asked.len(), 1, "another is asked");
    assert!([0, 2].contains(&asked[0].0), "one that agrees");
    assert_eq!(asked[0].1, sent[1].1, "with the same bytes");
    w.pass(20 * MS);
    let next = w.receivers();
    assert_eq!(next.len(), 1);
    assert_ne!(next[0], asked[0].0, "then the other one");
    w.full(next[0], 2, &did("op 1"));
    assert_eq!(w.outcome(), Ok(did("op 1")));
    // Passed over for a while, and then tried again.
    let mut named = vec![];
    for _ in 0..4 {
        w.submit("more");
        named.push(w.package(0).replier.0);
    }
    assert_eq!(named, [2, 3, 0, 2], "replica 1 is passed over");
    w.pass(150 * MS);
    w.sent();
    for _ in 0..4 {
        w.submit("more");
        named.push(w.package(0).replier.0);
    }
    assert!(named[4..].contains(&1), "{named:?}");
}

/// Answers everything but replica `except`, which says what `says` makes of a package's number.
fn serve_all(
    w: &mut World,
    except: u16,
    mut says: impl FnMut(&mut Replica, &Bytes) -> Option<Bytes>,
) -> usize {
    let mut asked = 0;
    for (to, bytes) in w.sent() {
        asked += 1;
        // The primary hands it to the others.
        let again = to != 0 || w.replicas[0].knows(&bytes);
        let by: Vec<u16> = if again { vec![to] } else { (0..4).collect() };
        for replica in by {
            let answer = if replica == except {
                says(&mut w.replicas[usize::from(replica)], &bytes)
            } else {
                Some(w.replicas[usize::from(replica)].serve(&bytes))
            };
            if let Some(answer) = answer {
                w.hear(replica, &answer);
            }
        }
    }
    asked
}

/// A dead backup: its link is open and it says nothing, or lies. Each package is sent
/// again once at most, and hardly any are.
#[test]
fn a_dead_or_lying_replier_costs_no_package_two_retransmissions() {
    for lies in [false, true] {
        let mut w = World::new(4);
        let mut resent = vec![];
        for round in 0..2000 {
            w.submit("op");
            w.submit("op");
            for _ in 0..4 {
                serve_all(&mut w, 1, |replica, bytes| {
                    let package = replica.read(bytes);
                    lies.then(|| replica.full(package.first, &did("a lie")))
                });
                // Nobody has to wait for one that lies.
                w.pass(if lies { Duration::ZERO } else { MS });
            }
            if !lies {
                w.pass(20 * MS);
                serve_all(&mut w, 1, |_, _| None);
            }
            let done = w.done();
            assert_eq!(done.len(), 2, "round {round}");
            resent.extend(done.iter().map(|c| c.resent));
            assert!(done.iter().all(|c| c.outcome == Ok(did("op"))));
            w.pass(MS);
        }
        assert!(resent.iter().all(|n| *n <= 1), "no package twice");
        let paid: u32 = resent.iter().sum();
        assert!((1..=20).contains(&paid), "{paid} of {} packages paid", resent.len());
    }
}

/// A replier that comes late, though within the most patience, is found out by the round trips of
/// the others.
#[test]
fn a_slow_replier_is_passed_over() {
    let mut w = World::new(4);
    let late = |w: &mut World| {
        // Package by package; replica 1 would answer 15 ms after the others.
        w.submit("op");
        let sent = w.sent();
        let slow = w.replicas[0].read(&sent[0].1).replier == ReplicaId(1);
        for r in [0, 2, 3] {
            let answer = w.replicas[usize::from(r)].serve(&sent[0].1);
            w.hear(r, &answer);
        }
        let mut time = 0;
        while slow && w.core.outstanding() > 0 {
            for (to, bytes) in w.sent() {
                let answer = w.replicas[usize::from(to)].serve(&bytes);
                w.hear(to, &answer);
            }
            w.pass(MS);
            time += 1;
            if time == 15 {
                let answer = w.replicas[1].serve(&sent[0].1);
                w.hear(1, &answer);
            }
        }
        assert_eq!(w.done().len(), 1);
        w.pass(MS / 10);
        slow
    };
    // At first its time is that of anybody whom nothing is known of.
    for _ in 0..400 {
        late(&mut w);
    }
    let named = (0..400).filter(|_| late(&mut w)).count();
    assert!(named <= 4, "{named} of 400 packages named it");
}

#[test]
fn a_disconnected_replier_is_replaced_at_once() {
    let mut w = World::new(4);
    // Named before its link dropped.
    w.submit("op 0");
    w.submit("op 1");
    w.sent();
    w.brief(2, 2, &did("op 1"));
    w.brief(3, 2, &did("op 1"));
    w.core.handle_disconnected(ReplicaId(1), w.now);
    assert_eq!(w.receivers(), [2], "no waiting");
    // Dropped before f+1 agreed.
    for _ in 0..4 {
        w.submit("op");
    }
    w.sent();
    w.core.handle_disconnected(ReplicaId(2), w.now);
    w.brief(0, 3, &did("op"));
    w.brief(3, 3, &did("op"));
    assert_eq!(w.receivers(), [3], "no waiting either");
    w.full(3, 3, &did("op"));
    assert_eq!(w.outcome(), Ok(did("op")));
}

#[test]
fn all_are_asked_after_the_time_out_with_growing_pauses() {
    let mut w = World::new(4);
    w.submit("op");
    w.sent();
    w.pass(199 * MS);
    assert_eq!(w.receivers(), [0; 0]);
    for pause in [1, 400, 800, 1600, 2000, 2000] {
        w.pass((pause - 1) * MS);
        assert_eq!(w.receivers(), [0; 0], "not before {pause} ms");
        assert_eq!(w.core.poll_timeout(), Some(w.now + MS));
        w.pass(MS);
        assert_eq!(w.receivers(), [0, 1, 2, 3]);
    }
}

#[test]
fn all_are_asked_at_once_when_the_primary_drops() {
    let mut w = World::new(4);
    w.submit("op");
    w.sent();
    w.core.handle_disconnected(ReplicaId(0), w.now);
    assert_eq!(w.receivers(), [1, 2, 3]);
    w.submit("another");
    assert_eq!(w.receivers(), [1, 2, 3], "while it is gone");
    w.core.handle_connected(ReplicaId(0));
    assert_eq!(w.receivers(), [0, 0], "it gets both when it is back");
}

#[test]
fn only_f_plus_1_replicas_move_the_view() {
    let mut w = World::new(4);
    w.submit("a");
    w.submit("b");
    w.sent();
    w.replicas[3].view = u64::MAX;
    w.brief(3, 1, &did("a"));
    assert_eq!(w.core.view(), View(0), "one liar is no view");
    w.replicas[2].view = 5;
    w.brief(2, 1, &did("a"));
    assert_eq!(w.core.view(), View(5));
    assert_eq!(w.receivers(), [1, 1], "the new primary gets what is open");
    w.full(1, 1, &did("a"));
    assert_eq!(w.done()[0].view, View(5));
    w.submit("c");
    assert_eq!(w.receivers(), [1]);
}

#[test]
fn one_must_sign_asks_the_others_and_f_plus_1_make_it_so_for_good() {
    let mut w = World::new(4);
    w.submit("op");
    w.submit("op");
    w.sent();
    w.reject(0, 1, Reason::MustSign, 0);
    assert_eq!(w.core.auth(), ClientAuth::Mac, "one may lie");
    assert_eq!(w.receivers(), [0, 1, 2, 3]);
    w.reject(0, 1, Reason::MustSign, 0);
    assert_eq!(w.core.auth(), ClientAuth::Mac, "twice one is one");
    w.reject(2, 2, Reason::MustSign, 0);
    assert_eq!(w.core.auth(), ClientAuth::Signature);
    w.submit("later");
    let sent = w.sent();
    // What asking the others because of the second reject sent is still under MACs.
    for (to, bytes) in &sent[4..] {
        let frame = Frame::decode(bytes, Suite::default()).unwrap();
        assert!(matches!(frame.auth, Authenticator::Signature(_)));
        w.replicas[usize::from(*to)].read(bytes);
    }
    assert_eq!(sent.len(), 4 + 8 + 1);
    w.brief(1, 1, &did("op"));
    w.full(3, 1, &did("op"));
    assert_eq!(w.outcome(), Ok(did("op")), "the digest is the same under either");
}
