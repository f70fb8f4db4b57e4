//! What a window that is full means for timers (rules T5 and T4), and what it does not. Rule names are
//! those of `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_consensus::{LeaveCause, ViewStep};
use tercio_types::*;

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);
/// The window, and four checkpoints.
const WINDOW: u64 = 32;

/// Each request is a batch.
fn four() -> Net {
    Net::with(4, |s| (s.batch_ops, s.pipeline) = (1, 16))
}

fn halt(net: &mut Net, which: &[usize]) {
    which.iter().for_each(|i| net.peer(*i).execute = false);
}

/// Execution goes on, and does all that waits.
fn go_on(net: &mut Net, which: &[usize]) {
    for i in which {
        net.peer(*i).execute = true;
        net.execute(*i);
    }
}

/// So many more requests than the window has numbers reach everybody.
fn fill(net: &mut Net, more: u64) {
    for k in 1..=WINDOW + more {
        let package = net.package(0, k, 1, None);
        to_all(net, &package);
        net.settle();
    }
}

fn left(net: &mut Net, i: usize) -> Vec<LeaveCause> {
    let cause = |step: &ViewStep| match step {
        ViewStep::Left { cause, .. } => Some(*cause),
        ViewStep::Entered { .. } => None,
    };
    net.peer(i).view_steps.iter().filter_map(cause).collect()
}

/// T5: another primary could not order either, and it has its whole time when it can again.
#[test]
fn t5_nobody_leaves_while_only_execution_is_late() {
    let mut net = four();
    halt(&mut net, &[0, 1, 2, 3]);
    fill(&mut net, 8);
    net.pass(LONG);
    for i in 0..4 {
        let status = net.status(i);
        assert_eq!((status.delivered, status.pending), (SeqNum(WINDOW), 8), "{status:?}");
        assert_eq!((status.view, left(&mut net, i).len()), (View(0), 0));
    }
    // What has waited for twenty seconds is under way for a while.
    net.filter = Box::new(|_, _, message| !matches!(message, PbftMessage::PrePrepare { .. }));
    go_on(&mut net, &[0, 1, 2, 3]);
    net.pass(net.settings.view_timeout / 2);
    assert!((1..4).all(|i| net.status(i).pending == 8), "{:?}", net.status(1));
    net.filter = Box::new(|_, _, _| true);
    net.pass(MOMENT);
    net.pass(LONG);
    net.agree();
    for i in 0..4 {
        assert_eq!((net.operations(i).len(), left(&mut net, i).len()), (40, 0));
    }
}

/// T5: its end gives the primary one such time and no second one.
#[test]
fn t5_a_primary_that_orders_nothing_afterwards_is_replaced() {
    let mut net = four();
    halt(&mut net, &[0, 1, 2, 3]);
    fill(&mut net, 8);
    net.pass(LONG);
    net.filter = Box::new(|from, _, m| from != 0 || !matches!(m, PbftMessage::PrePrepare { .. }));
    go_on(&mut net, &[0, 1, 2, 3]);
    net.pass(net.settings.view_timeout + MOMENT);
    assert!((1..4).all(|i| left(&mut net, i).len() == 1), "{:?}", net.status(1));
    net.pass(LONG);
    assert!((1..4).all(|i| net.operations(i).len() == 40));
}

/// T5: one that says that it has delivered less may need another view for it, and so may one that
/// says nothing.
#[test]
fn t5_a_laggard_is_no_late_execution() {
    for silent in [false, true] {
        let mut net = four();
        net.serve_blocks = false;
        net.filter = Box::new(move |from, to, _| to != 3 && !(silent && from == 3));
        halt(&mut net, &[0, 1, 2]);
        fill(&mut net, 8);
        net.pass(MOMENT);
        assert!((0..3).all(|i| net.status(i).delivered == SeqNum(WINDOW)));
        assert_eq!(net.status(3).delivered, SeqNum(0));
        net.pass(LONG);
        // Whoever's time is over first; others join it.
        let causes: Vec<_> = (0..3).map(|i| left(&mut net, i)).collect();
        let first = |causes: &Vec<_>| causes.first() == Some(&LeaveCause::RequestWaits);
        assert!(causes.iter().any(first), "silent: {silent}, {causes:?}");
        assert!(causes.iter().all(|causes| !causes.is_empty()), "silent: {silent}, {causes:?}");
    }
}

/// T5: a primary that fills the window again and again, as fast as checkpoints become stable, does not
/// put off the time of a request that it passes over.
#[test]
fn t5_short_full_spells_put_nothing_off() {
    let mut net = four();
    let censored = net.package(1, 1, 1, None);
    (1..4).for_each(|i| assert!(net.request(i, &censored)));
    let (start, mut k) = (net.now, 0);
    let timeout = net.settings.view_timeout;
    let mut spells = 0;
    while net.now.since(start) < 4 * timeout && net.status(1).view == View(0) {
        halt(&mut net, &[0, 1, 2, 3]);
        for _ in 0..40 {
            k += 1;
            let package = net.package(0, k, 1, None);
            net.request(0, &package);
        }
        net.pass_censored(timeout / 10, ClientId(1));
        let status = net.status(1);
        spells += u64::from(status.delivered.0 == status.stable.0 + WINDOW);
        go_on(&mut net, &[0, 1, 2, 3]);
        net.pass_censored(timeout / 20, ClientId(1));
    }
    assert!(spells >= 3, "the window was full {spells} times");
    assert_eq!(left(&mut net, 1).first(), Some(&LeaveCause::RequestWaits));
    assert!(net.now.since(start) < 2 * timeout, "after {:?}", net.now.since(start));
    net.pass(LONG);
    assert!(net.operations(1).contains(&"op 1 1".into()));
}

/// T4: numbers that no checkpoint covers are nobody's fault while all have delivered them and only
/// execution is late; they are when somebody lacks them.
#[test]
fn t4_waits_for_late_execution_and_for_no_laggard() {
    for lags in [false, true] {
        let mut net = four();
        net.serve_blocks = false;
        if lags {
            net.filter = Box::new(|_, to, _| to != 3);
        }
        halt(&mut net, &[0, 3]);
        for k in 1..=8 {
            let package = net.package(0, k, 1, None);
            to_all(&mut net, &package);
            net.settle();
        }
        net.pass(LONG);
        let status = net.status(1);
        assert_eq!((status.stable, status.pending), (SeqNum(0), 0), "{status:?}");
        let causes = left(&mut net, 1);
        let expected = lags.then_some(&LeaveCause::CheckpointWaits);
        assert_eq!(causes.first(), expected, "lags: {lags}");
        net.filter = Box::new(|_, _, _| true);
        net.serve_blocks = true;
        go_on(&mut net, &[0, 3]);
        net.pass(LONG);
        assert!((0..4).all(|i| net.status(i).stable >= SeqNum(8)), "{:?}", net.status(0));
    }
}

/// T5: one that fills the window again and again, while execution takes its time each time, cannot
/// put off the timer of a request that it passes over.
#[test]
fn t5_a_window_that_is_full_again_and_again_hides_no_censorship() {
    let victim = ClientId(1);
    let mut net = Net::with(4, |s| {
        s.view_timeout = Duration::from_millis(1000);
        s.batch_ops = 1;
    });
    halt(&mut net, &[0, 1, 2, 3]);
    let passed_over = net.package(1, 1, 1, None);
    (1..4).for_each(|i| assert!(net.request(i, &passed_over)));
    for round in 0..20 {
        for k in 1..=WINDOW + 8 {
            let package = net.package(0, round * (WINDOW + 8) + k, 1, None);
            net.request(0, &package);
            net.pass_censored(Duration::from_millis(1), victim);
        }
        net.pass_censored(Duration::from_millis(700), victim);
        (0..4).for_each(|i| net.execute(i));
        net.pass_censored(Duration::from_millis(1), victim);
    }
    assert!((1..4).all(|i| net.operations(i).contains(&"op 1 1".into())), "it is passed over");
}
