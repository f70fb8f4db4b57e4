//! The client's protocol against replicas by hand, under a clock by hand.

mod common;

use bytes::Bytes;
use common::{ME, Replica, digest, membership, results, secret};
use std::time::Duration;
use tercio_client::{
    Answer, ClientAuth, ClientCore, Completion, CoreSettings, Failure, Nanos, OpResult,
    SubmitError, Ticket,
};
use tercio_execution::{encode_results, results_digest};
use tercio_types::{
    Authenticator, Height, OpKind, Principal, ReplicaId, RequestSeq, RequestWindow, Suite, Tag,
    View,
};
use tercio_wire::reject::Reason;
use tercio_wire::{Decode, Encode, Frame, Kind, Reply};

const MS: Duration = Duration::from_millis(1);

struct World {
    core: ClientCore,
    replicas: Vec<Replica>,
    now: Nanos,
}

impl World {
    fn with(n: usize, settings: CoreSettings) -> Self {
        let membership = membership(n, &[]);
        let replicas = (0..n).map(|i| Replica::new(i, &membership)).collect();
        let mut core = ClientCore::new(ME, secret(Principal::Client(ME)), membership, settings);
        (0..n as u16).for_each(|i| core.handle_connected(ReplicaId(i)));
        Self { core, replicas, now: Nanos(1) }
    }

    fn new(n: usize) -> Self {
        Self::with(n, CoreSettings { auth: ClientAuth::Mac, ..CoreSettings::default() })
    }

    fn submit(&mut self, op: &'static str) -> Ticket {
        self.core.submit(vec![op.into()], self.now).unwrap()
    }

    /// What the core wants sent, and to whom.
    fn sent(&mut self) -> Vec<(u16, Bytes)> {
        std::iter::from_fn(|| self.core.poll_send()).map(|(r, bytes)| (r.0, bytes)).collect()
    }

    fn receivers(&mut self) -> Vec<u16> {
        self.sent().into_iter().map(|(r, _)| r).collect()
    }

    fn hear(&mut self, from: u16, bytes: &Bytes) {
        self.core.handle_frame(ReplicaId(from), bytes, self.now);
    }

    fn full(&mut self, from: u16, first: u64, results: &[OpResult]) {
        let bytes = self.replicas[usize::from(from)].full(RequestSeq(first), results);
        self.hear(from, &bytes);
    }

    fn brief(&mut self, from: u16, first: u64, results: &[OpResult]) {
        let bytes = self.replicas[usize::from(from)].brief(RequestSeq(first), results);
        self.hear(from, &bytes);
    }

    fn reject(&mut self, from: u16, first: u64, reason: Reason, ms: u32) {
        let bytes = self.replicas[usize::from(from)].reject(RequestSeq(first), reason, ms);
        self.hear(from, &bytes);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.core.handle_timeout(self.now);
    }

    fn done(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.core.poll_completion()).collect()
    }

    fn outcome(&mut self) -> Result<Vec<OpResult>, Failure> {
        let [one] = <[_; 1]>::try_from(self.done()).expect("one completion");
        one.outcome
    }

    fn counter(&self, reason: &str) -> u64 {
        self.core.counters().get(reason).copied().unwrap_or(0)
    }

    /// The one package that was sent, as replica `reader` reads it.
    fn package(&mut self, reader: usize) -> tercio_types::Package {
        let sent = self.sent();
        self.replicas[reader].read(&sent[0].1)
    }
}

fn did(op: &'static str) -> Vec<OpResult> {
    results(&[op.into()])
}

#[test]
fn the_primary_alone_is_asked_first_and_can_check_the_package() {
    for auth in [ClientAuth::Mac, ClientAuth::Signature] {
        let mut w = World::with(4, CoreSettings { auth, ..CoreSettings::default() });
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
        assert_eq!(w.core.next_number(), RequestSeq(3), "numbers are consecutive");
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

/// Shows 2 of a dead backup: its link is open and it says nothing, or lies. Each package is sent
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

/// f31's other half: a client that is turned away sends less, and finds its way back.
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
    // Three quarters of the hundred may be under way; twenty still are.
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
        let before = w.core.next_number().0;
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
        assert_eq!(w.core.next_number().0, before + 200);
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
                    are they running?";
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
    assert_eq!(text, "none of 4 replicas answered for 300ms; are they running?");
    assert_eq!(w.core.poll_answer().unwrap().outcome.unwrap_err().to_string(), text);
    w.pass(Duration::from_secs(10));
    assert_eq!(w.done()[0].ticket, long);
}

/// Nothing is sent to a busy network, and no number is used up, for a caller who wants to know.
#[test]
fn who_does_not_wait_is_told_when_to_try_again() {
    let settings = CoreSettings { wait_when_busy: false, ..CoreSettings::default() };
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

#[test]
fn what_is_under_way_is_bounded() {
    let settings = CoreSettings { max_outstanding: 3, ..CoreSettings::default() };
    let mut w = World::with(4, settings);
    assert_eq!(w.core.submit(vec![], w.now), Err(SubmitError::Empty));
    let long = vec![Bytes::from(vec![0; 1 << 20])];
    assert!(matches!(w.core.submit(long, w.now), Err(SubmitError::TooLarge { unit: "bytes", .. })));
    let many = vec![Bytes::new(); 1025];
    let unit = "operations";
    let too_large = SubmitError::TooLarge { found: 1025, limit: 1024, unit };
    assert_eq!(w.core.submit(many, w.now), Err(too_large));
    assert_eq!(w.core.next_number(), RequestSeq(1), "refusals use no number");
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
    let settings = CoreSettings { max_held: 1000, ..CoreSettings::default() };
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
    let mut w = World::new(4);
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

    assert_eq!(w.core.resume_at(&done, RequestSeq(9), w.now), 3, "4, 7 and 8 are open");
    assert_eq!(w.core.next_number(), RequestSeq(9));
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
    assert_eq!(w.core.resume_at(&window(&[1, 2, 3, 4, 5, 6, 7, 8]), RequestSeq(9), w.now), 0);
    w.submit("ten");
    assert_eq!(w.core.next_number(), RequestSeq(10));
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
/// packages under way: each ends once, with its own result.
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
