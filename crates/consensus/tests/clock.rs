//! The time of a proposal, held against the backups' clocks (rule N8).

use crate::common;

use common::{Net, to_all};
use std::time::Duration;
use tercio_consensus::Protocol;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{Digest, View};

const MOMENT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(3);
const MINUTE: i64 = 60_000_000;

fn net() -> Net {
    Net::with(4, |s| s.max_time_ahead = Some(Duration::from_secs(2)))
}

fn set(net: &mut Net, i: usize, ahead_micros: i64) {
    net.peer(i).pbft.set_wall_clock(ahead_micros);
}

/// How far the latest batch with packages is ahead of the time of the net, in microseconds.
fn ahead(net: &Net, i: usize) -> i64 {
    let delivered = &net.peers[i].as_ref().unwrap().disk.delivered;
    let batches = delivered.iter().rev().filter_map(|(_, batch)| batch.as_ref());
    let last =
        batches.map(|b| &b.batch).find(|b| !b.packages.is_empty()).expect("one is delivered");
    last.time.0 as i64 - (net.now.0 / 1000) as i64
}

fn refused(net: &Net, i: usize) -> u64 {
    net.status(i).dropped.get("proposal_ahead_of_clock").copied().unwrap_or(0)
}

#[test]
fn n8_a_primary_that_is_ahead_is_replaced() {
    let mut net = net();
    set(&mut net, 0, MINUTE);
    let package = net.package(1, 1, 1, None);
    to_all(&mut net, &package);
    net.pass(MOMENT);
    assert!((1..4).all(|i| refused(&net, i) == 1 && net.log(i).is_empty()));
    let clock = net.status(1).clock.unwrap();
    assert!(clock.refused && !clock.decided && clock.micros > MINUTE / 2, "{clock:?}");
    net.pass(LONG);
    assert_eq!(net.operations(3).len(), 1);
    assert!(net.status(3).view >= View(1));
    assert!(ahead(&net, 3) <= 0, "the next primary's clock is right");
    net.agree();
    // One that has no bound takes it as it comes.
    let mut free = Net::with(4, |_| {});
    set(&mut free, 0, MINUTE);
    free.request(0, &package);
    free.pass(MOMENT);
    assert_eq!(free.operations(3).len(), 1);
    assert!(ahead(&free, 3) > MINUTE / 2);
}

#[test]
fn n8_a_primary_that_is_behind_or_hardly_ahead_is_not() {
    for ahead in [-MINUTE, 1_900_000] {
        let mut net = net();
        set(&mut net, 0, ahead);
        let package = net.package(1, 1, 1, None);
        to_all(&mut net, &package);
        net.pass(MOMENT);
        assert!((0..4).all(|i| net.operations(i).len() == 1 && refused(&net, i) == 0), "{ahead}");
    }
}

#[test]
fn n8_f_plus_one_others_vouch_for_a_time() {
    let mut net = net();
    (0..3).for_each(|i| set(&mut net, i, MINUTE));
    let package = net.package(1, 1, 1, None);
    net.request(0, &package);
    net.pass(MOMENT);
    assert!((0..4).all(|i| net.operations(i).len() == 1));
    let prepares = |net: &mut Net| {
        let sent = &net.peer(3).sent;
        sent.iter().filter(|m| matches!(m, PbftMessage::Prepare { .. })).count()
    };
    assert_eq!(prepares(&mut net), 1, "two of the others have");
    let clock = net.status(3).clock.unwrap();
    assert!(clock.refused && clock.decided, "{clock:?}");
    assert!(!net.status(2).clock.unwrap().refused);
    // With one of them away nobody vouches for it but one.
    net.stop(2);
    let package = net.package(1, 2, 1, None);
    net.request(0, &package);
    net.pass(MOMENT);
    assert_eq!((prepares(&mut net), net.operations(3).len()), (1, 1));
    // Its clock is set right: its vote is due when it hears of the proposal again.
    set(&mut net, 3, MINUTE);
    net.pass(Duration::from_millis(300));
    assert_eq!(net.operations(3).len(), 2, "{:?}", net.status(3));
    assert_eq!(net.status(3).view, View(0));
}

#[test]
fn n8_what_prepared_is_carried_over_whatever_its_time() {
    let mut net = net();
    (0..4).for_each(|i| set(&mut net, i, MINUTE));
    net.filter = Box::new(|_, _, message| !matches!(message, PbftMessage::Commit { .. }));
    let package = net.package(1, 1, 1, None);
    to_all(&mut net, &package);
    net.pass(MOMENT);
    assert!((0..4).all(|i| net.log(i).is_empty()));
    (0..4).for_each(|i| set(&mut net, i, 0));
    net.pass(Duration::from_millis(600));
    net.filter = Box::new(|_, _, _| true);
    net.pass(LONG);
    assert!((0..4).all(|i| net.operations(i).len() == 1));
    assert!(ahead(&net, 3) > MINUTE / 2, "it is the same batch");
    assert!((0..4).all(|i| refused(&net, i) == 0));
    let log: Vec<Option<Digest>> = net.agree();
    assert!(log[0].is_some());
}

#[test]
fn n8_a_batch_that_makes_no_block_has_no_time() {
    let mut net = net();
    let package = net.package(1, 1, 1, None);
    net.request(0, &package);
    net.pass(MOMENT);
    set(&mut net, 0, MINUTE);
    net.pass(Duration::from_secs(5));
    let status = net.status(3);
    assert_eq!(status.stable, status.delivered, "the idle primary asked for a checkpoint");
    assert_eq!((status.view, refused(&net, 3)), (View(0), 0));
}
