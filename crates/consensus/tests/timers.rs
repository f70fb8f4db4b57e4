//! Timers that follow what a primary can do, and the way back of one that left its view alone: rules
//! T6 to T8, S4, V7 and V8 of `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::time::Duration;
use tercio_consensus::pbft::{Echo, PbftMessage, Standing};
use tercio_consensus::*;
use tercio_types::*;

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Replica `to` hears of `from` that a round trip took so long, often enough to believe it.
fn far(net: &mut Net, from: usize, to: usize, trip: Duration) {
    for _ in 0..40 {
        net.now = net.now + millis(5);
        let sent = Instant(net.now.0 - trip.as_nanos() as u64);
        let echo = Echo { of: ReplicaId(to as u16), sent, held: 0 };
        let standing = Standing { well: true, echoes: vec![echo], ..Standing::default() };
        net.inject(from, to, &PbftMessage::Status(standing));
        net.settle();
    }
}

/// T6: a primary has four round trips to a quorum besides its time, within `view_timeout_max`; f
/// replicas that say they are far away, the primary among them, gain nothing, nor by any length.
#[test]
fn t6_a_primary_has_four_round_trips_to_a_quorum() {
    let mut net = Net::with(4, |_| {});
    let least = net.settings.view_timeout;
    assert_eq!(net.status(1).patience, least);
    far(&mut net, 0, 1, millis(3000));
    far(&mut net, 2, 1, millis(1));
    far(&mut net, 3, 1, millis(1));
    assert!(net.status(1).patience < least + millis(10), "the nearest two decide");
    far(&mut net, 2, 1, millis(300));
    let patience = net.status(1).patience;
    let around = least + millis(4 * 280)..least + millis(4 * 330);
    assert!(around.contains(&patience), "{patience:?}");
    for from in [2, 3] {
        far(&mut net, from, 1, Duration::from_secs(60));
    }
    assert_eq!(
        net.status(1).patience,
        least + millis(4 * 3000),
        "no more than three seconds count"
    );
}

/// T6: what is given back late, or was never sent, is no round trip.
#[test]
fn t6_absurd_echoes_harm_nobody() {
    let mut net = Net::with(4, |_| {});
    let least = net.settings.view_timeout;
    let now = net.now;
    for (sent, held) in [(u64::MAX, 0), (now.0, u64::MAX), (0, u64::MAX), (0, 20_000_000_000)] {
        for from in [0, 2, 3] {
            let echo = Echo { of: ReplicaId(1), sent: Instant(sent), held };
            let sent = Instant(u64::MAX);
            let standing = Standing { sent, echoes: vec![echo], ..Standing::default() };
            net.inject(from, 1, &PbftMessage::Status(standing));
            net.settle();
        }
    }
    assert_eq!(net.status(1).patience, least);
    net.pass(LONG);
    assert!((0..4).all(|i| net.status(i).view == View(0)));
}

/// S4: one that does well says so, twice a second, and nobody sends it anything for that.
#[test]
fn s4_one_that_does_well_draws_no_help() {
    let mut net = Net::with(4, |_| {});
    // COMMITs do not get through: there is something to be sent again.
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Commit { .. }));
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.pass(MOMENT * 5);
    let sent = |net: &mut Net| net.peer(0).sent.len();
    let before = sent(&mut net);
    let well = Standing { well: true, ..Standing::default() };
    net.inject(1, 0, &PbftMessage::Status(well.clone()));
    net.settle();
    assert_eq!(sent(&mut net), before);
    net.pass(MOMENT * 2);
    let before = sent(&mut net);
    net.inject(1, 0, &PbftMessage::Status(Standing { well: false, ..well }));
    net.settle();
    assert!(sent(&mut net) > before);
}

/// T8: one that stood still gives the primary its time, and what came meanwhile counts.
#[test]
fn t8_one_that_stood_still_blames_nobody() {
    let mut net = Net::with(4, |_| {});
    net.filter = Box::new(|_, to, _| to != 3);
    let package = net.signed(0, 1, 1);
    to_all(&mut net, &package);
    net.settle();
    // A second passes in which nobody handed replica 3 anything.
    net.now = net.now + Duration::from_secs(1);
    net.filter = Box::new(|_, _, _| true);
    net.handle(3, Event::Timeout);
    assert!(!net.status(3).changing, "what came meanwhile is looked at first");
    // But once only: it waits no longer for what it has given its time.
    net.filter = Box::new(|_, to, _| to != 3);
    let mut late = 0;
    while !net.status(3).changing && late < 10 {
        net.now = net.now + Duration::from_secs(1);
        for from in 0..3 {
            net.inject(from, 3, &PbftMessage::Status(Standing::default()));
        }
        net.filter = Box::new(|_, to, m| to != 3 || matches!(m, PbftMessage::Status(_)));
        net.settle();
        net.handle(3, Event::Timeout);
        late += 1;
    }
    assert!(late < 3, "it left after {late} s more");
}

/// Replica 3 alone leaves its view: it alone hears of a request, and nobody of what it hands on.
fn left_alone(net: &mut Net) {
    net.lose_forwards = true;
    net.filter = Box::new(|_, to, m| to != 3 || matches!(m, PbftMessage::Status(_)));
    let secret = net.signed(1, 1, 1);
    assert!(net.request(3, &secret));
    let mut waited = 0;
    while !net.status(3).changing {
        net.pass(MOMENT);
        waited += 1;
        assert!(waited < 1000, "it never left");
    }
    net.filter = Box::new(|_, _, _| true);
    net.lose_forwards = false;
}

fn work(net: &mut Net, numbers: std::ops::Range<u64>) {
    for k in numbers {
        let package = net.package(0, k, 1, None);
        net.request(0, &package);
        net.pass(MOMENT);
    }
}

/// V7: it follows the view that it left, from the proposals themselves, hands requests to its primary
/// at once, and votes for nothing.
#[test]
fn v7_one_that_left_alone_follows() {
    let mut net = Net::with(4, |_| {});
    left_alone(&mut net);
    net.peer(3).sent.clear();
    work(&mut net, 1..30);
    assert_eq!(net.log(3).len(), net.log(0).len());
    let sent = &net.peer(3).sent;
    let fetches = |m: &&PbftMessage| matches!(m, PbftMessage::FetchBody { .. });
    let votes =
        |m: &&PbftMessage| matches!(m, PbftMessage::Prepare { .. } | PbftMessage::Commit { .. });
    assert_eq!(sent.iter().filter(fetches).count(), 0, "it has the proposals");
    assert_eq!(sent.iter().filter(votes).count(), 0, "its VIEW-CHANGE told all");
    let before = net.operations(0).len();
    let package = net.signed(2, 1, 1);
    net.request(3, &package);
    net.settle();
    assert_eq!(net.operations(0).len(), before + 1, "the primary has it at once");
}

/// V8: the primary lets it in after some seconds; once, and much later the next time.
#[test]
fn v8_one_that_left_alone_is_let_in() {
    let mut net = Net::with(4, |_| {});
    left_alone(&mut net);
    work(&mut net, 1..100);
    assert!(net.status(3).changing, "not within two seconds");
    work(&mut net, 100..500);
    assert_eq!((net.status(3).view, net.status(3).changing), (View(1), false));
    let causes = net.peer(0).view_steps.clone();
    let lets_in =
        |step: &ViewStep| matches!(step, ViewStep::Left { cause: LeaveCause::LetsIn, .. });
    assert_eq!(causes.iter().filter(|step| lets_in(step)).count(), 1, "{causes:?}");
    // With it there is a quorum without another one.
    net.stop(2);
    let before = net.operations(0).len();
    let package = net.signed(2, 1, 1);
    net.request(1, &package);
    net.pass(MOMENT * 3);
    assert_eq!((net.operations(0).len(), net.status(0).view), (before + 1, View(1)));
}

/// V8: one that asks for it for ever, as a faulty replica may, gets it ever more seldom.
#[test]
fn v8_a_faulty_replica_is_let_in_ever_more_seldom() {
    let mut net = Net::with(4, |_| {});
    net.stop(3);
    let mut changes = Vec::new();
    let mut view = 0;
    for second in 0..600_u64 {
        let next = View(view + 1);
        net.inject_all(3, &PbftMessage::ViewChange(view_change(&net, 3, next.0)));
        let delivered = net.status(0).delivered;
        let standing = Standing { view: next, changing: true, delivered, ..Standing::default() };
        net.inject_all(3, &PbftMessage::Status(standing));
        let package = net.package(0, 1 + second, 1, None);
        assert!((0..3).all(|i| net.request(i, &package)));
        net.pass(Duration::from_secs(1));
        if net.status(0).view.0 > view {
            view = net.status(0).view.0;
            changes.push(second);
        }
    }
    assert!((3..=5).contains(&changes.len()), "{changes:?}");
    assert_eq!(net.operations(0).len(), 600);
}

/// S1: who breaks its links and opens them again all the time draws no STATUS each time.
#[test]
fn s1_links_that_open_again_and_again_draw_few_statuses() {
    let mut net = Net::with(4, |_| {});
    net.pass(LONG);
    let said = |net: &mut Net| {
        let sent = &net.peer(0).sent;
        sent.iter().filter(|m| matches!(m, PbftMessage::Status(_))).count()
    };
    let interval = net.settings.status_interval;
    let next = net.peer(0).pbft.deadline().unwrap();
    if next.since(net.now) < interval {
        net.pass(next.since(net.now) + interval);
    }
    let before = said(&mut net);
    let open = |net: &mut Net| {
        let now = net.now;
        net.peer(0).pbft.on_link(ReplicaId(3), now);
        net.pass(interval / 100);
    };
    open(&mut net);
    let first = said(&mut net) - before;
    assert!(first > 0, "at once after a rest");
    for _ in 0..400 {
        open(&mut net);
    }
    let all = said(&mut net) - before;
    assert!((3 * first..=6 * first).contains(&all), "{first}, then {all}");
}

/// T9: one whose links are cut holds nothing against the primary, and takes part again at once when
/// they are whole.
#[test]
fn t9_one_that_is_cut_off_stays_in_its_view() {
    let mut net = Net::with(4, |_| {});
    work(&mut net, 1..5);
    // What was delivered here lacks its checkpoint, and nothing waits.
    net.filter = Box::new(|from, to, _| to != 3 && from != 3);
    net.pass(LONG);
    assert_eq!((net.status(3).view, net.status(3).changing), (View(0), false));
    net.filter = Box::new(|_, _, _| true);
    net.pass(MOMENT * 5);
    let (package, secret) = (net.signed(1, 1, 1), net.signed(2, 1, 1));
    to_all(&mut net, &package);
    // It has a proposal that it cannot deliver, and a request that nobody else has.
    net.filter =
        Box::new(|from, to, m| to != 3 && from != 3 || matches!(m, PbftMessage::PrePrepare { .. }));
    net.settle();
    net.filter = Box::new(|from, to, _| to != 3 && from != 3);
    net.lose_forwards = true;
    assert!(net.request(3, &secret));
    net.pass(LONG);
    assert_eq!((net.status(3).view, net.status(3).changing), (View(0), false));
    net.lose_forwards = false;
    net.filter = Box::new(|_, _, _| true);
    work(&mut net, 5..40);
    assert_eq!((net.status(3).view, net.status(3).changing), (View(0), false));
    net.agree();
    // Without another one there is no quorum but with it.
    let disk = net.stop(2);
    let before = net.operations(0).len();
    work(&mut net, 40..41);
    assert_eq!(net.operations(0).len(), before + 1);
    assert_eq!(net.status(0).view, View(0));
    // A primary that stops is left, as ever: the other two say that they wait.
    net.stop(0);
    net.start(2, disk);
    let package = net.signed(1, 2, 1);
    to_all(&mut net, &package);
    net.pass(LONG);
    assert!(net.status(3).view > View(0) && !net.status(3).changing);
}

/// N1: where round trips are long, what comes while the pipeline is full does not wait for a whole one;
/// and with a pipeline of one it does.
#[test]
fn n1_on_a_wide_network_batches_leave_at_a_pace() {
    for (pipeline, most) in [(8, 200), (1, 400)] {
        let mut net = Net::with(4, |s| s.pipeline = pipeline);
        let proposals = |net: &mut Net| {
            let sent = &net.peer(0).sent;
            sent.iter().filter(|m| matches!(m, PbftMessage::PrePrepare { .. })).count()
        };
        // The others are 300 ms away and back.
        for _ in 0..20 {
            for from in 1..4 {
                let ago = Duration::from_millis(300).as_nanos() as u64;
                let sent = Instant(net.now.0.saturating_sub(ago));
                let echo = Echo { of: ReplicaId(0), sent, held: 0 };
                let standing = Standing { echoes: vec![echo], ..Standing::default() };
                net.inject(from, 0, &PbftMessage::Status(standing));
                net.settle();
            }
            net.pass(MOMENT * 10);
        }
        // Nothing is decided from now on.
        net.filter = Box::new(|_, _, m| matches!(m, PbftMessage::Status(_)));
        let mut waited = vec![];
        for k in 1..=16 {
            let (before, begin) = (proposals(&mut net), net.now);
            let package = net.package(0, k, 1, None);
            net.request(0, &package);
            while proposals(&mut net) == before && net.now.since(begin).as_millis() < 400 {
                net.pass(Duration::from_millis(1));
            }
            waited.push(net.now.since(begin).as_millis());
        }
        assert!(waited.iter().take(pipeline as usize).all(|ms| *ms < 10), "{waited:?}");
        let longest = waited.iter().max().unwrap();
        assert!((20..=most).contains(longest), "{pipeline}: {waited:?}");
        assert!(pipeline > 1 || *longest == 400, "{waited:?}");
    }
}
