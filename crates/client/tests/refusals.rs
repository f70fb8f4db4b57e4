//! What a client does about refusals, busy replicas and deadlines.

use crate::common;

use bytes::Bytes;
use common::world::{MS, World, did};
use std::time::Duration;
use tercio_client::{CoreSettings, Failure, SubmitError};
use tercio_types::{OpKind, ReplicaId, RequestSeq, Suite};
use tercio_wire::Frame;
use tercio_wire::reject::Reason;

#[test]
fn busy_is_asked_again_when_it_says() {
    let mut w = World::new(4);
    w.submit("op");
    w.sent();
    w.reject(0, 1, Reason::Busy, 50);
    w.pass(49 * MS);
    assert_eq!(w.receivers(), [0; 0]);
    w.pass(MS);
    assert_eq!(w.receivers(), [0], "the busy one only");
    // One that lies does not keep us from asking the others for ever.
    w.reject(0, 1, Reason::Busy, u32::MAX);
    w.pass(1949 * MS);
    assert_eq!(w.receivers(), [0; 0]);
    w.pass(MS);
    assert_eq!(w.receivers(), [0, 1, 2, 3]);
    // f+1 do, since one of them is right.
    w.reject(1, 1, Reason::Busy, 1000);
    w.reject(2, 1, Reason::Busy, 1000);
    w.pass(900 * MS);
    assert_eq!(w.receivers(), [0; 0]);
    w.pass(100 * MS);
    assert_eq!(w.receivers(), [1, 2]);
    w.full(1, 1, &did("op"));
    w.full(2, 1, &did("op"));
    assert_eq!(w.outcome(), Ok(did("op")));
}

/// f31's other half: a client that is refused as busy sends less, and finds its way back.
#[test]
fn a_client_that_is_turned_away_holds_back() {
    let mut w = World::new(4);
    for _ in 0..100 {
        w.submit("op");
    }
    assert_eq!(w.sent().len(), 100);
    // The last forty are too many.
    for first in 61..=100 {
        w.reject(0, first, Reason::Busy, 30);
    }
    assert_eq!((w.core.held_back(), w.core.busy_for(w.now)), (40, 30 * MS));
    w.submit("one more");
    assert_eq!(w.sent(), [], "nothing new while it is busy");
    for first in 1..=40 {
        w.full(0, first, &did("op"));
        w.brief(1, first, &did("op"));
    }
    assert_eq!(w.done().len(), 40);
    assert_eq!(w.sent(), [], "nor when others end");
    w.pass(29 * MS);
    assert_eq!(w.sent(), []);
    assert_eq!(w.core.poll_timeout(), Some(w.now + MS));
    w.pass(MS);
    let sent = w.sent();
    // Three quarters of the hundred may be in flight; twenty still are.
    assert_eq!(sent.len(), 41, "all that waited");
    assert!(sent.iter().all(|(to, _)| *to == 0), "to the primary alone");
    let first = |bytes: &Bytes| Frame::decode(bytes, Suite::default()).unwrap().key.seq;
    let order: Vec<u64> = sent.iter().map(|(_, bytes)| first(bytes)).collect();
    assert_eq!(order, (61..=101).collect::<Vec<_>>(), "the oldest first");
    for first in 41..=101 {
        w.full(0, first, &did(if first > 100 { "one more" } else { "op" }));
        w.brief(1, first, &did(if first > 100 { "one more" } else { "op" }));
    }
    let done = w.done();
    assert_eq!(done.len(), 61);
    assert!(done.iter().all(|c| c.resent == 0), "being turned away is not being unanswered");
    assert_eq!(w.core.held_back(), 0);
    // The window opens again by what ends.
    let mut most = 0;
    for _ in 0..20 {
        let before = w.core.next_number().unwrap().0;
        for _ in 0..200 {
            w.submit("op");
        }
        let mut open = vec![];
        while open.len() < 200 {
            let sent: Vec<u64> = w.sent().iter().map(|(_, bytes)| first(bytes)).collect();
            most = most.max(sent.len());
            for first in sent {
                open.push(first);
                w.full(0, first, &did("op"));
                w.brief(1, first, &did("op"));
            }
        }
        assert_eq!(w.core.next_number().unwrap().0, before + 200);
    }
    assert_eq!(most, 200);
}

#[test]
fn the_deadline_names_who_did_not_answer_and_the_numbers_are_still_closed() {
    let mut w = World::new(4);
    let ticket = w.submit("op");
    w.reject(3, 1, Reason::Busy, 50);
    w.full(0, 1, &did("op"));
    let mut time = Duration::ZERO;
    while time < Duration::from_secs(10) {
        assert_eq!(w.done(), []);
        w.pass(50 * MS);
        time += 50 * MS;
    }
    let done = w.done();
    assert_eq!(done[0].ticket, ticket);
    let failure = done[0].outcome.clone().unwrap_err();
    let expected = "1 of 4 replicas answered: 0; replica 3: busy; no answer from 1 and 2 for 10s; \
                    are they running?; number 1 may have been executed, or may be yet";
    assert_eq!(failure.to_string(), expected);
    assert_eq!(w.core.outstanding(), 1, "its number is still open");
    w.sent();
    w.pass(Duration::from_secs(2));
    assert_eq!(w.receivers(), [0, 1, 2, 3], "so it is asked on");
    w.brief(1, 1, &did("op"));
    assert_eq!((w.core.outstanding(), w.done()), (0, vec![]), "told once");
    assert_eq!(w.core.poll_timeout(), None, "and nothing is left to do");
}

#[test]
fn a_deadline_holds_for_what_is_submitted_after_it_was_set() {
    let mut w = World::new(4);
    let long = w.submit("long");
    w.core.set_deadline(300 * MS);
    let short = w.submit("short");
    w.core.query("short, too".into(), w.now).unwrap();
    w.pass(300 * MS);
    let done = w.done();
    assert_eq!(done.iter().map(|c| c.ticket).collect::<Vec<_>>(), [short]);
    let text = done[0].outcome.clone().unwrap_err().to_string();
    let silent = "none of 4 replicas answered for 300ms; are they running?";
    assert_eq!(text, format!("{silent}; number 2 may have been executed, or may be yet"));
    // A question changes nothing.
    assert_eq!(w.core.poll_answer().unwrap().outcome.unwrap_err().to_string(), silent);
    w.pass(Duration::from_secs(10));
    assert_eq!(w.done()[0].ticket, long);
}

/// Nothing is sent to a busy network, and no number is used up, for a caller who wants to know.
#[test]
fn who_does_not_wait_is_told_when_to_try_again() {
    let settings = CoreSettings { wait_when_busy: false, ..CoreSettings::unused_id() };
    let mut w = World::with(4, settings);
    w.submit("op");
    w.reject(0, 1, Reason::Busy, 50);
    w.sent();
    let number = w.core.next_number();
    let refused = w.core.submit(vec!["another".into()], w.now);
    assert_eq!(refused, Err(SubmitError::Busy { retry_after: 50 * MS }));
    assert_eq!((w.core.next_number(), w.receivers()), (number, vec![]));
    w.pass(50 * MS);
    assert_eq!(w.receivers(), [0], "what was taken before is sent again");
    w.submit("another");
    assert_eq!(w.receivers(), [0]);
}

#[test]
fn f_plus_1_refusals_end_a_package_and_its_numbers_are_used_up() {
    let mut w = World::new(4);
    w.core.submit(vec!["bad".into(), "worse".into()], w.now).unwrap();
    w.sent();
    w.reject(0, 1, Reason::Malformed, 0);
    assert_eq!(w.done(), [], "one may lie");
    assert_eq!(w.receivers(), [0, 1, 2, 3], "the others are asked");
    w.reject(1, 1, Reason::TooLarge, 0);
    assert_eq!(w.done(), [], "another reason is another matter");
    w.reject(2, 1, Reason::Malformed, 0);
    let by = vec![ReplicaId(0), ReplicaId(2)];
    assert_eq!(w.outcome(), Err(Failure::Refused { reason: Reason::Malformed, by }));
    let fillers = w.sent();
    assert_eq!(fillers.len(), 4);
    for (to, bytes) in fillers {
        let package = w.replicas[usize::from(to)].read(&bytes);
        assert_eq!((package.kind, package.first), (OpKind::System, RequestSeq(1)));
        assert_eq!(package.ops, ["", ""][..]);
        let reply = w.replicas[usize::from(to)].serve(&bytes);
        w.hear(to, &reply);
    }
    assert_eq!((w.core.outstanding(), w.done()), (0, vec![]));
}

/// What was executed, and has a result that no frame holds, is not said to differ.
#[test]
fn a_result_that_is_too_long_is_named() {
    let mut w = World::new(4);
    w.submit("much");
    w.sent();
    w.reject(2, 1, Reason::ResultTooLong, 0);
    assert_eq!(w.done(), [], "one may lie");
    w.sent();
    w.reject(1, 1, Reason::ResultTooLong, 0);
    let failure = w.outcome().unwrap_err();
    assert_eq!(failure, Failure::ResultTooLong { by: vec![ReplicaId(1), ReplicaId(2)] });
    let text = failure.to_string();
    assert!(text.contains("was executed") && text.contains("too long"), "{text}");
    assert_eq!((w.sent(), w.core.outstanding()), (vec![], 0), "its number is used");
}

/// Two processes under one id: the numbers are used, so nothing more is sent under them.
#[test]
fn a_number_that_was_used_for_another_operation_is_named() {
    let mut w = World::new(4);
    w.submit("first");
    w.full(0, 1, &did("first"));
    w.brief(1, 1, &did("first"));
    w.done();
    w.submit("second");
    w.sent();
    w.reject(0, 2, Reason::NumberUsed, 0);
    assert_eq!(w.done(), [], "one may lie");
    w.full(1, 2, &did("something else"));
    w.sent();
    w.reject(3, 2, Reason::NumberUsed, 0);
    let failure = w.outcome().unwrap_err();
    let by = vec![ReplicaId(0), ReplicaId(3)];
    assert_eq!(failure, Failure::NumberUsed { first: RequestSeq(2), by });
    let text = failure.to_string();
    assert!(
        text.starts_with("number 2 was used for another operation, say replicas 0, 3"),
        "{text}"
    );
    assert_eq!((w.sent(), w.core.outstanding()), (vec![], 0));
    // What uses numbers up may find that somebody else did.
    w.submit("bad");
    (0..2).for_each(|r| w.reject(r, 3, Reason::Malformed, 0));
    w.outcome().unwrap_err();
    (2..4).for_each(|r| w.reject(r, 3, Reason::NumberUsed, 0));
    assert_eq!((w.done(), w.core.outstanding()), (vec![], 0));
    assert_eq!(w.counter("numbers_left_open"), 0);
}

/// A replica that is behind says so as well, so it is asked again; f+1 that stay with it end it.
#[test]
fn a_number_far_ahead_is_named_once_replicas_stay_with_it() {
    let far = RequestSeq(9_000_000_000);
    let mut w = World::with(4, CoreSettings { first: Some(far), ..CoreSettings::unused_id() });
    w.submit("far");
    w.sent();
    let refuse = |w: &mut World, by: &[u16]| {
        by.iter().for_each(|r| w.reject(*r, far.0, Reason::BeyondWindow, 100));
    };
    refuse(&mut w, &[0]);
    assert_eq!(w.receivers(), [0, 1, 2, 3], "the others are asked at once");
    refuse(&mut w, &[1, 2, 3]);
    assert_eq!((w.done(), w.receivers()), (vec![], vec![]), "they may be behind");
    for _ in 0..19 {
        w.pass(100 * MS);
        assert!(!w.receivers().is_empty());
        refuse(&mut w, &[0, 1, 2, 3]);
        assert_eq!(w.done(), []);
    }
    // Two came level meanwhile, and say nothing of it: what they said before does not count.
    w.pass(200 * MS);
    w.sent();
    refuse(&mut w, &[3]);
    assert_eq!(w.done(), []);
    refuse(&mut w, &[0]);
    let by = vec![ReplicaId(0), ReplicaId(3)];
    let failure = w.outcome().unwrap_err();
    assert_eq!(failure, Failure::BeyondWindow { first: far, by });
    assert!(failure.to_string().starts_with("number 9000000000 is far above those"), "{failure}");
    // Its number is used up if the replicas were behind; where they are not, that ends too.
    w.sent();
    for _ in 0..30 {
        refuse(&mut w, &[0, 1, 2, 3]);
        w.pass(100 * MS);
        w.sent();
    }
    assert_eq!((w.core.outstanding(), w.done()), (0, vec![]));
    assert_eq!(w.counter("numbers_left_open"), 1);
}
