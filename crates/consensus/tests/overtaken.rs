//! A window that moves while execution is late (rule W3 of `docs/protocol/pbft.md`).

use crate::common;

use common::*;
use std::time::Duration;

const WINDOW: u64 = 32;

/// W3: what is delivered and not executed is bounded, however many views come and go.
#[test]
fn w3_views_do_not_add_to_what_waits_for_execution() {
    let mut net = Net::with(4, |s| {
        s.view_timeout = Duration::from_millis(500);
        s.batch_ops = 1;
    });
    net.peer(3).execute = false;
    // Nothing is fetched before all that was delivered is executed.
    net.serve_blocks = false;
    let mut next = 1;
    for round in 0..12 {
        for _ in 0..WINDOW / 2 {
            let package = net.package(0, next, 1, None);
            next += 1;
            to_all(&mut net, &package);
            net.pass(Duration::from_millis(1));
        }
        let view = net.status(1).view;
        let primary = (view.0 % 4) as usize;
        // The primary says nothing for a while.
        net.filter = Box::new(move |from, _, _| from != primary);
        let package = net.package(0, next, 1, None);
        next += 1;
        to_all(&mut net, &package);
        net.pass(Duration::from_millis(900));
        net.filter = Box::new(|_, _, _| true);
        net.pass(Duration::from_millis(300));
        let waiting = net.peer(3).unexecuted.len() as u64;
        assert!(waiting <= WINDOW, "{waiting} wait in round {round}");
    }
    net.peer(3).execute = true;
    net.serve_blocks = true;
    net.execute(3);
    if let Some(certificate) = net.peer(3).catch_up.last().cloned() {
        net.catch_up(3, certificate);
    }
    net.pass(Duration::from_secs(5));
    net.agree();
    assert_eq!(net.operations(3).len(), net.operations(1).len(), "it goes on when it can");
}
