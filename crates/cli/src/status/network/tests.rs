//! Networks of four and more, in every state that `status` tells apart.

use super::*;
use tercio_replica::report::{ClockReport, DroppedReport, Peer, TransferReport, Waiting};

fn up(id: u16) -> ReplicaReport {
    ReplicaReport { id, checkpoint_height: 1, ..ReplicaReport::default() }
}

fn network(states: Vec<State>) -> Network {
    let key = |i: usize| tercio_types::PublicKey::new(&[i as u8 + 1; 32]).unwrap();
    let member = |i: usize| tercio_types::Member { key: key(i), address: i.to_string() };
    let members = (0..states.len()).map(member).collect();
    let (chain, epoch) = (tercio_types::ChainId([0; 32]), tercio_types::Epoch(0));
    let (suite, model) = (tercio_types::Suite::default(), tercio_types::FaultModel::Byzantine);
    let membership = Membership::new(chain, epoch, suite, model, members, BTreeMap::new()).unwrap();
    Network::of(&(0..).zip(states).collect(), &membership)
}

fn state(report: ReplicaReport) -> State {
    State::Up(Box::new(report))
}

const WELL: &str = "all is well: 4 of 4 replicas vote, 1 may fail";
const NONE_TO_SPARE: &str =
    "no faults to spare: 3 of 4 replicas vote, one more failure stops the network";
const TWO_LEFT: &str = "the network stands: 2 of 4 replicas can vote and 3 are needed; bring back \
                        replicas 2 and 3";

/// Four replicas, of which the last are in these states.
fn four(last: &[State]) -> Network {
    let well = (0..4 - last.len() as u16).map(|id| state(up(id)));
    network(well.chain(last.iter().cloned()).collect())
}

#[test]
fn a_whole_network_is_well() {
    let whole = four(&[]);
    assert_eq!(whole.sentences, [WELL]);
    assert!(whole.works);
    assert_eq!((whole.voting, whole.may_fail), (4, 1));
}

#[test]
fn missing_replicas_are_named_with_what_that_means() {
    let down = State::Down { since_ms: 12_345, height: 7 };
    let one = network(vec![state(up(0)), state(up(1)), down.clone(), state(up(3))]);
    assert_eq!(one.sentences, ["replica 2 is down since 12 s (at height 7)", NONE_TO_SPARE]);
    assert!(one.works);
    let silent = State::Silent { since_ms: 3000, pid: 77, height: 7 };
    let two = four(&[down, silent]);
    assert_eq!(
        two.sentences[1..],
        [
            "replica 3 does not answer since 3.0 s (process 77 is there: it hangs, or it cannot \
             write status.json, which its messages say)",
            TWO_LEFT
        ]
    );
    assert!(!two.works);
}

/// A replica that cannot write its report is heard by the others, after what it wrote last.
#[test]
fn one_that_cannot_write_its_report_votes_all_the_same() {
    let hears = |heard_ms| {
        let peer = Peer { id: 3, linked: true, since_ms: 90_000, heard_ms, problem: None };
        state(ReplicaReport { peers: vec![peer], ..up(0) })
    };
    let here = [hears(Some(100))];
    for (old, words) in [
        (State::Silent { since_ms: 60_000, pid: 7, height: 5 }, "is 60 s old"),
        (State::Down { since_ms: 60_000, height: 5 }, "is 60 s old"),
        (State::NeverRan, "cannot be read"),
    ] {
        let seen = old.unreported(3, here.iter()).expect("it is heard");
        let network = four(&[seen]);
        assert!(network.works && network.voting == 4, "{:?}", network.sentences);
        assert!(network.sentences[0].contains(words), "{:?}", network.sentences);
        assert!(network.sentences[0].starts_with("replica 3 works"), "{:?}", network.sentences);
    }
    // It was heard until it hung, or ended, and not since.
    let gone = State::Silent { since_ms: 2500, pid: 7, height: 5 };
    assert!(gone.unreported(3, [hears(Some(2400))].iter()).is_none());
    assert!(State::NeverRan.unreported(3, [state(up(0))].iter()).is_none());
    assert!(state(up(3)).unreported(3, here.iter()).is_none());
}

/// A clock that differs is named with its replica, and many of them as what they are.
#[test]
fn clocks_that_differ_are_named() {
    let clock = |id, ahead_ms, refused, decided| {
        let clock = Some(ClockReport { primary: 0, ahead_ms, refused, decided });
        state(ReplicaReport { clock, ..up(id) })
    };
    let usual = four(&[clock(2, -4000, false, true), clock(3, 300, false, true)]);
    assert_eq!(usual.sentences, [WELL], "a proposal that was long under way is no wrong clock");
    for (state, words) in [
        (
            clock(3, 60_000, true, true),
            "replica 3: this replica's clock is 60 s behind the others'",
        ),
        (clock(3, 60_000, true, false), "replica 3: it refuses what replica 0 proposed"),
        (clock(3, -60_000, false, true), "replica 3: this replica's clock is 60 s ahead of that"),
    ] {
        let one = four(&[state]);
        assert!(one.sentences[0].starts_with(words), "{:?}", one.sentences);
        assert_eq!(one.sentences.len(), 2, "{:?}", one.sentences);
        assert!(one.works && one.voting == 4);
    }
    let two = four(&[clock(2, 60_000, true, false), clock(3, 60_000, true, false)]);
    assert!(two.sentences[2].contains("2 replicas differ, and at most 1 may"), "{two:?}");
}

/// Of more replicas than faults ask for, more may fail; never more than f are promised.
#[test]
fn the_margin_is_what_can_vote_above_a_quorum() {
    let down = || State::Down { since_ms: 1000, height: 7 };
    for (n, missing, may_fail) in
        [(7, 0, 2), (7, 1, 1), (7, 2, 0), (6, 0, 1), (6, 1, 1), (6, 2, 0), (1, 0, 0)]
    {
        let states = (0..n).map(|id| if id < n - missing { state(up(id)) } else { down() });
        let network = network(states.collect());
        assert_eq!((network.may_fail, network.works), (may_fail, true), "{n} less {missing}");
    }
}

/// Learners and laggards answer, and nobody can count on them.
#[test]
fn who_cannot_vote_does_not_count() {
    let learner = ReplicaReport { learning: Some("learner: waits".into()), ..up(3) };
    let one = four(&[state(learner.clone())]);
    assert_eq!(one.sentences, ["replica 3 learner: waits", NONE_TO_SPARE]);
    assert!(one.works);
    let laggard = ReplicaReport { catching_up: true, ..up(2) };
    let two = four(&[state(laggard), state(learner)]);
    assert_eq!(two.sentences[0], "replica 2 catching up");
    assert_eq!(two.sentences[2], TWO_LEFT);
    assert_eq!((two.works, two.voting, two.may_fail), (false, 2, 0));
}

/// It misses what a quorum certified, and does not move.
#[test]
fn one_that_is_behind_a_checkpoint_does_not_count() {
    let moved = |id| state(ReplicaReport { delivered: 130, stable: 128, ..up(id) });
    let behind = |progress_ms| ReplicaReport { delivered: 7, progress_ms, ..up(3) };
    let of = |report| network(vec![moved(0), moved(1), moved(2), state(report)]);
    assert_eq!(
        of(behind(5000)).sentences,
        ["replica 3 lags behind: it has delivered 7, and 128 is certified", NONE_TO_SPARE]
    );
    // A moment ago it was where the others were when they wrote.
    assert_eq!(of(behind(100)).sentences, [WELL]);
}

/// They vote, and the others give clients their results.
#[test]
fn executions_that_stand_are_named_and_still_vote() {
    let stands =
        |id| state(ReplicaReport { executing: 9, executing_ms: 4000, height: 5, ..up(id) });
    let one = four(&[stands(3)]);
    assert_eq!(
        one.sentences,
        [
            "replica 3: execution stands at 5 since 4.0 s, 9 number(s) wait",
            "the network works: 4 of 4 replicas vote, 1 may still fail"
        ]
    );
    assert_eq!((one.works, one.voting, one.executing, one.may_fail), (true, 4, 3, 1));
    // f+1 are left, and a client needs them all.
    let two = four(&[stands(2), stands(3)]);
    assert_eq!(
        two.sentences,
        [
            "replica 2: execution stands at 5 since 4.0 s, 9 number(s) wait",
            "replica 3: execution stands at 5 since 4.0 s, 9 number(s) wait",
            "ordering goes on until the window is full: execution goes on at 2 of 4, and no \
             checkpoint becomes stable with fewer than 3",
            "no faults to spare: 4 of 4 replicas vote, one more failure stops the network"
        ]
    );
    assert_eq!((two.works, two.voting, two.executing, two.may_fail), (true, 4, 2, 0));
    // Another that is down leaves a quorum, and one execution.
    let down = State::Down { since_ms: 1000, height: 7 };
    let lost = four(&[down, stands(2), stands(3)]);
    assert!(!lost.works && lost.voting == 3, "{:?}", lost.sentences);
    let busy = ReplicaReport { executing: 9, executing_ms: 400, ..up(3) };
    assert_eq!(four(&[state(busy)]).sentences, [WELL]);
}

/// All is ordered, and no client hears of it.
#[test]
fn where_fewer_than_f_plus_one_execute_the_network_stands() {
    let stands =
        |id| state(ReplicaReport { executing: 9, executing_ms: 4000, height: 5, ..up(id) });
    let three = four(&[stands(1), stands(2), stands(3)]);
    assert_eq!(
        three.sentences.last().unwrap(),
        "the network stands, though 4 of 4 replicas vote: execution goes on at 1, and a client needs \
         results of 2"
    );
    assert_eq!((three.works, three.voting, three.executing, three.may_fail), (false, 4, 1, 0));
    let alone = network(vec![stands(0)]);
    assert!(!alone.works, "{:?}", alone.sentences);
}

#[test]
fn an_execution_that_stands_is_told_by_its_replica() {
    let report = ReplicaReport { executing: 9, executing_ms: 4000, height: 5, ..up(3) };
    let stands = state(report.clone());
    assert_eq!(stands.role(), "execution stands at 5 since 4.0 s, 9 number(s) wait");
    assert_eq!((stands.word(), stands.votes()), ("exec stands", true));
    // A loop that reads nothing is the worse of the two.
    let both = state(ReplicaReport { stalled_ms: 2500, ..report });
    assert_eq!((both.word(), both.votes()), ("halted", false));
}

/// A loop that waits for room answers, and its last event is always now.
#[test]
fn a_loop_that_reads_nothing_does_not_count() {
    let frozen = |id| state(ReplicaReport { stalled_ms: 2500, progress_ms: 0, ..up(id) });
    let one = four(&[frozen(3)]);
    assert_eq!(
        one.sentences,
        ["replica 3 reads nothing since 2.5 s: a queue in it is full", NONE_TO_SPARE]
    );
    assert!(!four(&[frozen(2), frozen(3)]).works);
}

fn waiting(message: &str, missing: &[u16]) -> Option<Waiting> {
    Some(Waiting { message: message.into(), missing: missing.to_vec() })
}

#[test]
fn a_stall_says_what_is_waited_for() {
    let stalled = |id| ReplicaReport {
        pending: 1,
        oldest_pending_ms: Some(3000),
        progress_ms: 9000,
        ..up(id)
    };
    let primary = ReplicaReport { waiting: waiting("PREPARE", &[2, 3]), ..stalled(0) };
    let backup = |id| ReplicaReport { waiting: waiting("PREPARE", &[0, 2, 3]), ..stalled(id) };
    let all = vec![state(primary), state(backup(1)), state(stalled(2)), state(stalled(3))];
    let stall = network(all.clone());
    assert_eq!(
        stall.sentences,
        [
            "no progress for 3.0 s: waiting for the PREPAREs of 2 and 3",
            "the network stands, though 4 of 4 replicas vote"
        ]
    );
    assert!(!stall.works);
    // A replica that is behind does not make a stall.
    let mut others = all;
    others[2] = state(ReplicaReport { progress_ms: 10, ..up(2) });
    assert!(network(others).works);
    let changing = |id| {
        let waiting = waiting("NEW-VIEW", &[1]);
        state(ReplicaReport { changing: true, view: 1, waiting, progress_ms: 1500, ..up(id) })
    };
    let stall = network((0..4).map(changing).collect());
    assert_eq!(stall.sentences[0], "a view change runs: waiting for the NEW-VIEW of 1");
    assert!(!stall.works);
    // One that leaves its view by itself leaves a quorum.
    assert!(four(&[changing(3)]).works);
}

/// A network that made no progress for an hour, since nobody asked for any.
#[test]
fn an_idle_network_with_one_late_request_is_measured_by_the_request() {
    let idle = |id| ReplicaReport { progress_ms: 3_600_000, ..up(id) };
    let with = |ms| {
        let late = ReplicaReport { pending: 1, oldest_pending_ms: Some(ms), ..idle(1) };
        network(vec![state(idle(0)), state(late), state(idle(2)), state(idle(3))])
    };
    assert_eq!(network((0..4).map(|id| state(idle(id))).collect()).sentences, [WELL]);
    assert_eq!(with(30).sentences, [WELL], "it only just came");
    let stands = with(2000);
    assert_eq!(stands.sentences[0], "no progress for 2.0 s: 1 package(s) wait");
    assert!(!stands.works);
}

/// Under load the oldest request may be old, and one that is passed over is worth a word.
#[test]
fn a_request_that_waits_long_while_others_are_ordered_is_told() {
    let with = |ms| {
        let waits = |id| ReplicaReport { oldest_pending_ms: Some(ms), progress_ms: 1, ..up(id) };
        network((0..4).map(|id| state(waits(id))).collect())
    };
    assert_eq!(with(3000).sentences, [WELL]);
    let late = with(20_000);
    assert_eq!(
        late.sentences,
        [
            "the oldest request that waits has done so for 20 s",
            "the network works: 4 of 4 replicas vote, 1 may still fail"
        ]
    );
    assert!(late.works);
}

fn peer(id: u16, linked: bool, heard_ms: u64) -> Peer {
    Peer { id, linked, since_ms: 60_000, heard_ms: Some(heard_ms), problem: None }
}

#[test]
fn a_replica_that_hears_no_quorum_does_not_count() {
    let hearing = |id: u16, heard_ms: [u64; 4]| {
        let others = (0..4).filter(|other| *other != id);
        let peers = others.map(|other| peer(other, true, heard_ms[usize::from(other)])).collect();
        state(ReplicaReport { peers, ..up(id) })
    };
    let all = [100; 4];
    let one = network(vec![
        hearing(0, all),
        hearing(1, all),
        hearing(2, all),
        hearing(3, [9000, 9000, 100, 100]),
    ]);
    assert_eq!(
        one.sentences,
        [
            "replica 3 is cut off: it hears 1 of the others that can vote, and needs 2",
            NONE_TO_SPARE
        ]
    );
    // Two and two.
    let halves = (0..4).map(|id| match id {
        0 | 1 => hearing(id, [100, 100, 9000, 9000]),
        _ => hearing(id, [9000, 9000, 100, 100]),
    });
    assert!(!network(halves.collect()).works);
}

#[test]
fn a_refused_link_and_two_states_are_named() {
    let mut reports: Vec<_> = (0..4).map(up).collect();
    for id in [0, 1] {
        let problem = Some("refused: another network".into());
        let refused = Peer { problem, ..peer(2, false, 9) };
        reports[usize::from(id)].peers = vec![peer(1 - id, true, 9), refused, peer(3, true, 9)];
    }
    reports[3].checkpoint_seq = 5;
    reports[3].state_digest = "aa".into();
    reports[2].checkpoint_seq = 5;
    reports[2].state_digest = "bb".into();
    let sentences = network(reports.into_iter().map(state).collect()).sentences;
    assert_eq!(
        sentences[0],
        "replicas 0 and 1 have no link to replica 2: refused: another network"
    );
    assert!(sentences[1].starts_with("replicas 2 and 3 DISAGREE"), "{sentences:?}");
    assert_eq!(sentences[2], "the network works: 4 of 4 replicas vote, 1 may still fail");
}

#[test]
fn a_state_that_differs_is_named_with_its_keys() {
    let key = |text: &str| Some(text.to_owned());
    let differs =
        |keys| DivergenceReport { replica: 3, number: 128, what: "the state digest".into(), keys };
    let keys =
        vec![KeyRange { from: None, to: key("\"b\"") }, KeyRange { from: key("0x00ff"), to: None }];
    let mut reports: Vec<_> = (0..4).map(up).collect();
    for id in [0, 1] {
        reports[id].divergences = vec![differs(keys.clone())];
    }
    reports[2].divergences = vec![differs(vec![])];
    assert_eq!(
        network(reports.into_iter().map(state).collect()).sentences[..2],
        [
            "replica 3 signed a state that differs at number 128 in the state digest: it has \
             not shown in which keys (compared by replica 2)",
            "replica 3 signed a state that differs at number 128 in the state digest: keys \
             below \"b\", from 0x00ff on (compared by replicas 0 and 1)",
        ]
    );
}

#[test]
fn a_transfer_of_state_is_shown_with_its_liars() {
    let dropped = DroppedReport { replica: 1, reason: "wrong_digest".into() };
    let mut transfer = TransferReport {
        phase: "fetching".into(),
        height: 9,
        bytes: 3 << 20,
        dropped: vec![dropped],
        ..TransferReport::default()
    };
    let report = |transfer: &TransferReport| ReplicaReport {
        catching_up: true,
        transfer: Some(transfer.clone()),
        ..up(0)
    };
    assert_eq!(state(report(&transfer)).role(), "fetching state of height 9, 3 MB");
    transfer.state_bytes = 12 << 20;
    assert_eq!(state(report(&transfer)).role(), "fetching state of height 9, 3 of 12 MB");
    let all = vec![state(report(&transfer)), state(up(1)), state(up(2)), state(up(3))];
    assert_eq!(
        network(all).sentences,
        [
            "replica 0 fetching state of height 9, 3 of 12 MB",
            "replica 1 gave replica 0 no good state: wrong_digest",
            NONE_TO_SPARE
        ]
    );
    transfer.phase = "done".into();
    assert_eq!(state(report(&transfer)).role(), "catching up");
}

/// On the machine of one operator: a link says nothing of a process that is frozen.
#[test]
fn replicas_elsewhere_are_known_by_when_they_were_heard() {
    let peers = vec![peer(1, true, 400), peer(2, false, 400), peer(3, true, 5000)];
    let here = ReplicaReport { peers, ..up(0) };
    let elsewhere =
        |id, here: &ReplicaReport| State::elsewhere(id, [&state(here.clone())].into_iter());
    assert_eq!(elsewhere(1, &here).role(), "elsewhere, linked since 60 s");
    assert_eq!(elsewhere(2, &here).role(), "elsewhere, no link since 60 s");
    assert_eq!(elsewhere(3, &here).role(), "elsewhere, linked, but silent for 5.0 s");
    let of = |ids: [u16; 3]| {
        let others = ids.map(|id| elsewhere(id, &here));
        let here = ReplicaReport { peers: vec![], ..here.clone() };
        network([state(here)].into_iter().chain(others).collect())
    };
    assert_eq!(of([1, 1, 1]).sentences, [WELL]);
    assert_eq!(of([1, 1, 3]).voting, 3);
    let two = of([1, 2, 3]);
    assert_eq!((two.voting, two.works), (2, false));
    // Where replicas speak seldom, silence takes longer to mean something.
    let seldom = ReplicaReport { idle_interval_ms: 2000, ..here.clone() };
    assert_eq!(elsewhere(3, &seldom).word(), "elsewhere");
    // One that was linked just now has proven who it is.
    let fresh = Peer { since_ms: 10, heard_ms: None, ..peer(3, true, 0) };
    let linked = ReplicaReport { peers: vec![fresh], ..up(0) };
    assert_eq!(elsewhere(3, &linked).word(), "elsewhere");
    // Whoever reads nothing hears nobody, and says nothing of others.
    let frozen = ReplicaReport { stalled_ms: 9000, ..here.clone() };
    let both = [state(frozen), state(here.clone())];
    assert_eq!(State::elsewhere(1, both.iter()).word(), "elsewhere");
    assert_eq!(State::elsewhere(1, both[..1].iter()).word(), "no link");
}

#[test]
fn a_learner_that_votes_from_the_next_view_on_counts_for_that() {
    let learner = |id, rejoins| {
        let learning = Some("learner, since its log was lost".to_owned());
        state(ReplicaReport { learning, rejoins, ..up(id) })
    };
    let down = || State::Down { since_ms: 1000, height: 7 };
    let back = network(vec![state(up(0)), state(up(1)), learner(2, true), down()]);
    assert!(back.works, "{:?}", back.sentences);
    let last = back.sentences.last().unwrap();
    assert!(last.contains("2 of 4 replicas vote, and replica 2 from the next view on"), "{last}");
    let waits = network(vec![state(up(0)), state(up(1)), learner(2, false), down()]);
    assert!(!waits.works, "{:?}", waits.sentences);
    // More than may be: nothing that an operator brings back ends that.
    let two = network(vec![state(up(0)), state(up(1)), learner(2, false), learner(3, false)]);
    let last = two.sentences.last().unwrap();
    assert!(!two.works && last.contains("cannot go on by itself: 2 of 4 replicas learn"), "{last}");
}

/// Whoever asks right after the start gets reports of replicas that have no links yet.
#[test]
fn replicas_that_start_are_not_cut_off() {
    let peer = |id, since_ms| Peer { id, linked: false, since_ms, heard_ms: None, problem: None };
    let starting = |id: u16, since_ms| {
        let peers = (0..4).filter(|other| *other != id).map(|other| peer(other, since_ms));
        state(ReplicaReport { peers: peers.collect(), ..up(id) })
    };
    let now = network((0..4).map(|id| starting(id, 100)).collect());
    assert!(now.works, "{:?}", now.sentences);
    let later = network((0..4).map(|id| starting(id, 10_000)).collect());
    assert!(!later.works, "{:?}", later.sentences);
}
