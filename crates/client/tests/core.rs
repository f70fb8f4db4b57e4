//! The client's protocol against replicas by hand, under a clock by hand.

use crate::common;

use bytes::Bytes;
use common::world::{MS, World, did};
use common::{ME, digest, results};
use std::time::Duration;
use tercio_client::{
    AHEAD, Answer, ClientAuth, CoreSettings, Failure, NumbersAhead, OpResult, SubmitError, Ticket,
};
use tercio_types::{
    Authenticator, Height, OpKind, ReplicaId, RequestSeq, RequestWindow, Suite, Tag, WINDOW,
};
use tercio_wire::{Decode, Encode, Frame, Kind, Reply, encode_results, results_digest};

#[test]
fn the_primary_alone_is_asked_first_and_can_check_the_package() {
    for auth in [ClientAuth::Mac, ClientAuth::Signature] {
        let mut w = World::with(4, CoreSettings { auth, ..CoreSettings::unused_id() });
        w.core.submit(vec!["a".into(), "b".into()], w.now).unwrap();
        let sent = w.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, 0);
        for replica in &mut w.replicas {
            let package = replica.read(&sent[0].1);
            assert_eq!((package.client, package.first), (ME, RequestSeq(1)));
            assert_eq!(package.kind, OpKind::User);
            assert_eq!(package.ops, ["a", "b"][..]);
        }
        assert_eq!(w.core.next_number(), Some(RequestSeq(3)), "numbers are consecutive");
    }
}

/// OSDI'99, section 4.1: f+1 equal replies, since f may lie.
#[test]
fn f_equal_wrong_replies_never_complete() {
    for (n, f) in [(4, 1), (7, 2), (10, 3)] {
        let mut w = World::new(n);
        w.submit("op");
        for liar in 0..f {
            w.full(liar, 1, &did("something else"));
            w.full(liar, 1, &did("something else"));
        }
        for correct in f..2 * f {
            w.full(correct, 1, &did("op"));
        }
        assert_eq!(w.done(), [], "n = {n}: neither side has f+1");
        w.brief(2 * f, 1, &did("op"));
        assert_eq!(w.outcome(), Ok(did("op")), "n = {n}");
        assert_eq!(w.counter("duplicate_reply"), u64::from(f));
    }
}

#[test]
fn digests_of_all_but_one_are_enough() {
    let mut w = World::new(4);
    w.submit("op");
    let replier = w.package(0).replier.0;
    let others: Vec<u16> = (0..4).filter(|r| *r != replier).collect();
    w.brief(others[0], 1, &did("op"));
    w.brief(others[1], 1, &did("op"));
    w.brief(others[2], 1, &did("op"));
    assert_eq!(w.done(), [], "nobody sent the bytes");
    w.full(replier, 1, &did("op"));
    assert_eq!(w.outcome(), Ok(did("op")));
    assert_eq!(w.receivers(), [0; 0], "nothing had to be asked again");
    // What comes late is not even checked.
    w.full(replier, 1, &did("op"));
    assert_eq!(w.counter("not_waited_for"), 1);
}

#[test]
fn forged_foreign_and_broken_frames_count_for_nothing() {
    let mut w = World::new(4);
    w.submit("op");
    let wrong = did("wrong");
    let good = w.replicas[1].full(RequestSeq(1), &wrong);
    // The bytes of one replica over the link of another.
    w.hear(2, &good);
    assert_eq!(w.counter("wrong_sender"), 1);
    // A tag that is not there, or for somebody else.
    let mut frame = Frame::decode(&good, Suite::default()).unwrap();
    frame.auth = Authenticator::Mac(Tag([1; 16]));
    w.hear(1, &frame.to_bytes());
    let stolen = w.replicas[2].keys.mac_vector(&frame.key.to_array());
    frame.auth = stolen;
    w.hear(1, &frame.to_bytes());
    assert_eq!(w.counter("bad_mac"), 2);
    // A body that is not the digest's.
    let mut bytes = good.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    w.hear(1, &bytes.into());
    assert_eq!(w.counter("wrong_results"), 1);
    // A package that was never sent, and a kind that clients do not get.
    w.full(1, 77, &wrong);
    assert_eq!(w.counter("not_waited_for"), 1);
    let odd = w.replicas[1].say(Kind::CHECKPOINT, 1, digest(b""), Bytes::new());
    w.hear(1, &odd);
    assert_eq!(w.counter("unexpected_kind"), 1);
    // Cut at every byte, and with every byte changed.
    for len in 0..good.len() {
        w.hear(1, &good.slice(..len));
        let mut bent = good.to_vec();
        bent[len] ^= 0x55;
        w.hear(1, &bent.into());
    }
    // A replica that is none.
    w.core.handle_frame(ReplicaId(900), &good, w.now);
    assert_eq!(w.done(), []);
    // None of these was a vote: it takes f+1 others.
    w.brief(0, 1, &wrong);
    assert_eq!(w.done(), []);
}

#[test]
fn a_replica_with_two_words_counts_once() {
    let mut w = World::new(4);
    w.submit("op");
    w.full(1, 1, &did("x"));
    w.full(1, 1, &did("op"));
    w.full(1, 1, &did("x"));
    assert_eq!(w.counter("conflicting_reply"), 2);
    assert_eq!(w.done(), []);
    w.brief(2, 1, &did("op"));
    assert_eq!(w.done(), [], "replica 1 says something else now");
    w.full(3, 1, &did("op"));
    assert_eq!(w.outcome(), Ok(did("op")));
}

/// Numbers and times without an end are the caller's to choose: nothing overflows, and there is no
/// number after the last.
#[test]
fn the_last_number_and_the_longest_times_are_no_accident() {
    let settings = CoreSettings {
        auth: ClientAuth::Mac,
        first: Some(RequestSeq(u64::MAX - 1)),
        timeout: Duration::MAX,
        max_timeout: Duration::MAX,
        deadline: Duration::MAX,
        replier_patience: Duration::MAX,
        ..CoreSettings::unused_id()
    };
    let mut w = World::with(4, settings);
    let two = w.core.submit(vec!["one".into(), "two".into()], w.now);
    assert!(matches!(two, Err(SubmitError::TooMany { outstanding: 0 })), "{two:?}");
    w.submit("the last");
    w.core.query("question".into(), w.now).unwrap();
    w.pass(Duration::from_secs(3600));
    let none = w.core.submit(vec!["one more".into()], w.now);
    assert!(matches!(none, Err(SubmitError::TooMany { .. })), "{none:?}");
}

#[test]
fn what_is_under_way_is_bounded() {
    let settings = CoreSettings { max_outstanding: 3, ..CoreSettings::unused_id() };
    let mut w = World::with(4, settings);
    assert_eq!(w.core.submit(vec![], w.now), Err(SubmitError::Empty));
    let long = vec![Bytes::from(vec![0; 1 << 20])];
    assert!(matches!(w.core.submit(long, w.now), Err(SubmitError::TooLarge { unit: "bytes", .. })));
    let many = vec![Bytes::new(); 1025];
    let unit = "operations";
    let too_large = SubmitError::TooLarge { found: 1025, limit: 1024, unit };
    assert_eq!(w.core.submit(many, w.now), Err(too_large));
    assert_eq!(w.core.next_number(), Some(RequestSeq(1)), "refusals use no number");
    for _ in 0..3 {
        w.submit("op");
    }
    let full = Err(SubmitError::TooMany { outstanding: 3 });
    assert_eq!(w.core.submit(vec!["op".into()], w.now), full);
    w.full(1, 2, &did("op"));
    w.full(2, 2, &did("op"));
    w.submit("op");
}

/// Replicas execute nothing further than the window above the lowest number not executed.
#[test]
fn numbers_stay_within_the_window() {
    let mut w = World::new(4);
    w.submit("the oldest");
    w.core.submit(vec![Bytes::new(); 1000], w.now).unwrap();
    let twenty_four = vec![Bytes::new(); 24];
    let full = Err(SubmitError::TooMany { outstanding: 2 });
    assert_eq!(w.core.submit(twenty_four.clone(), w.now), full, "1 to 1025 is one too many");
    w.core.submit(vec![Bytes::new(); 23], w.now).unwrap();
    for r in [1, 2] {
        w.full(r, 2, &results(&vec![Bytes::new(); 1000]));
    }
    let full = Err(SubmitError::TooMany { outstanding: 2 });
    assert_eq!(w.core.submit(twenty_four.clone(), w.now), full, "the oldest holds the window");
    for r in [1, 2] {
        w.full(r, 1, &did("the oldest"));
    }
    w.core.submit(twenty_four, w.now).unwrap();
}

#[test]
fn bytes_kept_of_a_replica_are_bounded() {
    let settings = CoreSettings { max_held: 1000, ..CoreSettings::unused_id() };
    let mut w = World::with(4, settings);
    let long = vec![OpResult::Executed(vec![7; 600].into())];
    w.submit("a");
    w.submit("b");
    w.full(1, 1, &long);
    w.full(1, 2, &long);
    assert_eq!(w.counter("result_not_kept"), 1);
    w.sent();
    w.brief(2, 2, &long);
    w.pass(20 * MS);
    let asked = w.receivers();
    w.full(asked[0], 2, &long);
    w.brief(2, 1, &long);
    let done = w.done();
    assert!(done.iter().all(|c| c.outcome == Ok(long.clone())));
    assert!(!done.is_empty());
    // Everything that ended gave its room back.
    for first in 3..20 {
        w.submit("c");
        w.full(1, first, &long);
        w.brief(3, first, &long);
    }
    assert_eq!(w.counter("result_not_kept"), 1);
}

#[test]
fn agreed_bytes_that_are_no_results_are_an_error() {
    let mut w = World::new(4);
    w.submit("op");
    let two = results(&["op".into(), "op".into()]);
    w.full(1, 1, &two);
    w.full(2, 1, &two);
    assert!(matches!(w.outcome(), Err(Failure::BadResults(_))));
    w.submit("op");
    for r in [1, 2] {
        let body = Bytes::from_static(b"no list");
        let bytes = w.replicas[usize::from(r)].reply(RequestSeq(2), digest(&body), body);
        w.hear(r, &bytes);
    }
    assert_eq!((w.counter("wrong_results"), w.done()), (2, vec![]), "nobody's word");
    // Results that are another operation's, and a digest of all that is not that of the parts.
    let other = w.replicas[1].full(RequestSeq(3), &did("op"));
    let mut moved = Frame::decode(&other, Suite::default()).unwrap();
    let mut body = moved.body.to_vec();
    body[8..16].copy_from_slice(&2u64.to_le_bytes());
    moved.body = body.into();
    w.hear(1, &moved.to_bytes());
    assert_eq!(w.counter("wrong_results"), 3);
    let mut body = moved.body.to_vec();
    body[20] ^= 1;
    moved.body = body.into();
    w.hear(1, &moved.to_bytes());
    assert_eq!((w.counter("wrong_digest"), w.done()), (1, vec![]));
}

/// One frame answers several packages, some in full and some by digest, each for itself.
#[test]
fn a_reply_answers_any_number_of_packages() {
    let mut w = World::new(4);
    for op in ["a", "b", "c"] {
        w.submit(op);
    }
    let entry = |first: u64, op: &'static str, full: bool| {
        let (first, results) = (RequestSeq(first), encode_results(&did(op)));
        let digest = results_digest(Suite::default(), ME, first, &results).unwrap();
        Reply { first, digest, results: if full { results } else { Bytes::new() } }
    };
    let one = w.replicas[1].replies(&[entry(1, "a", true), entry(2, "b", false)]);
    let two = [entry(2, "b", true), entry(3, "x", true), entry(1, "a", false), entry(9, "z", true)];
    let two = w.replicas[2].replies(&two);
    let three = w.replicas[3].replies(&[entry(3, "c", false)]);
    w.hear(1, &one);
    assert_eq!(w.done(), []);
    w.hear(2, &two);
    let done: Vec<_> = w.done().into_iter().map(|c| (c.first.0, c.outcome)).collect();
    assert_eq!(done, [(2, Ok(did("b"))), (1, Ok(did("a")))]);
    w.hear(3, &three);
    assert_eq!(w.done(), [], "only one replica says so");
    let last = w.replicas[0].replies(&[entry(3, "c", true)]);
    w.hear(0, &last);
    assert_eq!(w.outcome(), Ok(did("c")));
}

#[test]
fn queries_need_f_plus_1_equal_answers() {
    let mut w = World::new(4);
    let ticket = w.core.query("what?".into(), w.now).unwrap();
    let sent = w.sent();
    assert_eq!(sent.len(), 4, "all are asked");
    let frame = Frame::decode(&sent[0].1, Suite::default()).unwrap();
    assert_eq!((frame.key.kind, &frame.body[..]), (Kind::QUERY, &b"what?"[..]));
    let answer = |w: &mut World, r: u16, text: &'static str| {
        let body = Bytes::from(text);
        let bytes = w.replicas[usize::from(r)].say(Kind::ANSWER, ticket.0, digest(&body), body);
        w.hear(r, &bytes);
    };
    answer(&mut w, 0, "old");
    answer(&mut w, 0, "old");
    answer(&mut w, 1, "new");
    assert_eq!(w.core.poll_answer(), None);
    w.pass(200 * MS);
    assert_eq!(w.receivers(), [0, 1, 2, 3], "asked again");
    answer(&mut w, 0, "new");
    let (outcome, height) = (Ok(Bytes::from("new")), Height(0));
    assert_eq!(
        w.core.poll_answer(),
        Some(Answer { ticket, outcome, height }),
        "latest words count"
    );

    // The height is one that a correct replica among those that agree had reached.
    let ticket = w.core.query("how high?".into(), w.now).unwrap();
    (w.replicas[0].view, w.replicas[1].view) = (1_000_000, 7);
    for r in 0..2 {
        let bytes = w.replicas[r].say(Kind::ANSWER, ticket.0, digest(b"x"), b"x"[..].into());
        w.hear(r as u16, &bytes);
    }
    assert_eq!(w.core.poll_answer().unwrap().height, Height(7));
    w.sent();

    // An empty answer must have the digest of nothing.
    let ticket = w.core.query("nothing?".into(), w.now).unwrap();
    for r in 0..2 {
        let bytes = w.replicas[r].say(Kind::ANSWER, ticket.0, digest(b"x"), Bytes::new());
        w.hear(r as u16, &bytes);
    }
    assert_eq!((w.counter("wrong_digest"), w.core.poll_answer()), (2, None));
    w.pass(Duration::from_secs(10));
    let failure = w.core.poll_answer().unwrap().outcome.unwrap_err();
    assert_eq!(failure.to_string(), "none of 4 replicas answered for 10s; are they running?");
    assert_eq!(w.core.poll_timeout(), None);
}

/// A returning client goes on above what a quorum says was executed and above what it kept, and
/// uses up what is open between.
#[test]
fn numbers_go_on_where_an_earlier_life_ended() {
    let mut w = World::with(4, CoreSettings::default());
    let submit = |w: &mut World| w.core.submit(vec!["early".into()], w.now);
    assert_eq!(submit(&mut w), Err(SubmitError::NotResumed));
    assert_eq!(w.core.read(vec!["early".into()], w.now), Err(SubmitError::NotResumed));
    let ticket = w.core.ask_numbers(w.now).unwrap();
    let sent = w.sent();
    let frame = Frame::decode(&sent[0].1, Suite::default()).unwrap();
    assert_eq!((frame.key.kind, sent.len()), (Kind::NUMBERS, 4));
    let window = |done: &[u64]| {
        let mut window = RequestWindow::default();
        assert!(done.iter().all(|n| window.insert(RequestSeq(*n))));
        window
    };
    let say = |w: &mut World, r: u16, window: &RequestWindow| {
        let body: Bytes = window.to_bytes();
        let bytes = w.replicas[usize::from(r)].say(Kind::ANSWER, ticket.0, digest(&body), body);
        w.hear(r, &bytes);
    };
    let (old, new) = (window(&[1, 2]), window(&[1, 2, 3, 5, 6]));
    say(&mut w, 0, &new);
    say(&mut w, 1, &new);
    say(&mut w, 2, &old);
    assert_eq!(w.core.poll_answer(), None, "f+1 may be a liar and a laggard");
    say(&mut w, 2, &new);
    let answer = w.core.poll_answer().unwrap().outcome.unwrap();
    let done = RequestWindow::from_bytes(&answer, Suite::default()).unwrap();
    assert_eq!(done, new);

    // A kept number that is farther ahead than the window allows uses nothing up.
    let ahead = NumbersAhead { found: RequestSeq(9_000_000_000), expected: RequestSeq(7) };
    assert_eq!(w.core.resume_at(&done, ahead.found, w.now), Err(ahead));
    let least = RequestSeq(3 + 2 * WINDOW + AHEAD + 2);
    assert!(w.core.resume_at(&done, least, w.now).is_err());
    assert_eq!((w.core.outstanding(), w.sent().len()), (0, 0));

    assert_eq!(w.core.resume_at(&done, RequestSeq(9), w.now), Ok(3), "4, 7 and 8 are open");
    assert_eq!((w.core.next_number(), submit(&mut w)), (None, Err(SubmitError::NotResumed)));
    let sent = w.sent();
    let fillers: Vec<_> = sent
        .iter()
        .map(|(r, bytes)| {
            let package = w.replicas[usize::from(*r)].read(bytes);
            assert_eq!(package.kind, OpKind::System);
            (*r, package.first.0, package.ops.len())
        })
        .filter(|(r, ..)| *r == 3)
        .collect();
    assert_eq!(fillers, [(3, 4, 1), (3, 7, 2)], "all replicas are sent both");
    for (first, ops) in [(4, 1), (7, 2)] {
        let results = vec![OpResult::Unsupported; ops];
        (0..2).for_each(|r| w.full(r, first, &results));
    }
    assert_eq!((w.core.outstanding(), w.core.poll_completion()), (0, None));
    assert_eq!(w.core.resume_at(&window(&[1, 2, 3, 4, 5, 6, 7, 8]), RequestSeq(9), w.now), Ok(0));
    w.submit("ten");
    assert_eq!(w.core.next_number(), Some(RequestSeq(10)));
}

/// A small generator of numbers (Lehmer), so that a run can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0 * 48271 % 0x7fff_ffff;
        self.0 % n
    }
}

/// A network that loses, repeats and reorders, f replicas that lie or say nothing, and many
/// packages in flight: each ends once, with its own result.
#[test]
fn many_packages_end_out_of_order_over_a_bad_network() {
    for seed in 1..=20 {
        let mut dice = Dice(seed);
        let (n, f) = if seed % 2 == 0 { (4, 1) } else { (7, 2) };
        let mut w = World::new(n);
        let faulty: Vec<u16> = (0..f).map(|_| dice.below(n as u64) as u16).collect();
        let mut waiting: Vec<(Ticket, Vec<Bytes>)> = vec![];
        let mut flying: Vec<(u16, Bytes)> = vec![];
        let (mut submitted, mut ended) = (0, 0);
        let mut turns = 0;
        while ended < 200 {
            turns += 1;
            assert!(turns < 200_000, "seed {seed}: no progress");
            while submitted < 200 {
                let ops: Vec<Bytes> =
                    (0..=dice.below(20)).map(|i| format!("op {submitted} {i}").into()).collect();
                match w.core.submit(ops.clone(), w.now) {
                    Ok(ticket) => waiting.push((ticket, ops)),
                    Err(SubmitError::TooMany { .. }) => break,
                    Err(other) => panic!("{other}"),
                }
                submitted += 1;
            }
            for (to, bytes) in w.sent() {
                if dice.below(5) == 0 {
                    continue;
                }
                // Whoever gets it makes all know it, as ordering does.
                for r in 0..n as u16 {
                    let i = usize::from(r);
                    match (faulty.contains(&r), dice.below(3)) {
                        (true, 0) => {}
                        (true, 1) => {
                            let package = w.replicas[i].read(&bytes);
                            let lie = vec![OpResult::Executed("lie".into()); package.ops.len()];
                            flying.push((r, w.replicas[i].full(package.first, &lie)));
                        }
                        _ if r == to || dice.below(4) > 0 => {
                            flying.push((r, w.replicas[i].serve(&bytes)));
                        }
                        _ => {}
                    }
                }
            }
            for _ in 0..dice.below(40) {
                if flying.is_empty() {
                    break;
                }
                let at = dice.below(flying.len() as u64) as usize;
                let (from, bytes) = flying.swap_remove(at);
                if dice.below(10) == 0 {
                    flying.push((from, bytes.clone()));
                }
                if dice.below(5) > 0 {
                    w.hear(from, &bytes);
                }
            }
            w.pass(MS);
            for done in w.done() {
                let at = waiting.iter().position(|(ticket, _)| *ticket == done.ticket);
                let (_, ops) = waiting.swap_remove(at.expect("each ends once"));
                assert_eq!(done.outcome, Ok(results(&ops)), "seed {seed}");
                ended += 1;
            }
        }
        assert_eq!(w.core.outstanding(), 0);
    }
}
