//! Packages that a client, or whoever hands them on, made good for some replicas only: who is held
//! to what. Rule names are those of `docs/protocol/pbft.md`.

use crate::common;

use common::*;
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_consensus::*;
use tercio_types::*;
use tercio_wire::{Forward, Message, Received};

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

/// A2, A3: a client whose MACs are good for some replicas only costs one view change, then it must
/// sign; the others are served throughout (f16).
#[test]
fn a_client_with_half_good_macs_costs_one_view_change() {
    let mut net = Net::with(4, |_| {});
    let trap = net.package(1, 1, 1, Some(&[0, 1]));
    assert!(net.request(0, &trap) && net.request(1, &trap) && !net.request(2, &trap));
    let honest = net.package(0, 1, 1, None);
    to_all(&mut net, &honest);
    net.pass(LONG);
    assert!((0..4).all(|i| net.operations(i) == ["op 0 1"]), "{:?}", net.operations(3));
    assert!((0..4).all(|i| net.status(i).view_changes == 1));
    for k in 2..10 {
        let trap = net.package(1, k, 1, Some(&[0, 1]));
        net.request(0, &trap);
        net.request(1, &trap);
        let honest = net.package(0, k, 1, None);
        to_all(&mut net, &honest);
        net.pass(LONG);
    }
    assert!((0..4).all(|i| net.status(i).view_changes == 1), "one view change and no more");
    assert!((0..4).all(|i| net.operations(i).len() == 9));
    let must_sign = |d: &(ClientId, RequestSeq, tercio_wire::reject::Reason)| {
        d.0 == ClientId(1) && d.2 == tercio_wire::reject::Reason::MustSign
    };
    assert!(net.peer(1).declined.iter().any(must_sign));
    let signed = net.signed(1, 1, 1);
    to_all(&mut net, &signed);
    net.pass(MOMENT);
    assert!((0..4).all(|i| net.operations(i).contains(&"op 1 1".into())));
}

/// A3, P2: who was blamed once must sign for the epoch, whatever views come after, and whoever is
/// started again.
#[test]
fn a3_blame_outlives_views_and_restarts() {
    // No checkpoint becomes stable: its record would tell of the blame.
    let mut net = Net::with(4, |s| s.checkpoint_idle = Duration::from_secs(1 << 20));
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Checkpoint { .. }));
    let trap = net.package(1, 1, 1, Some(&[0, 1]));
    assert!(net.request(0, &trap) && net.request(1, &trap));
    let mut honest = 0;
    let mut go_on = |net: &mut Net| {
        honest += 1;
        let package = net.package(0, honest, 1, None);
        to_all(net, &package);
        net.pass(LONG);
        assert_eq!(net.operations(2).len() as u64, honest);
    };
    go_on(&mut net);
    assert_eq!(net.status(2).view, View(1), "the trap costs a view");
    // The next view blames nobody.
    let away = net.stop(1);
    go_on(&mut net);
    net.start(1, away);
    go_on(&mut net);
    for i in 0..4 {
        let disk = net.stop(i);
        net.start(i, disk);
        net.pass(MOMENT);
    }
    go_on(&mut net);
    let view = net.status(2).view;
    let primary = net.status(2).primary.index();
    let trap = net.package(1, 2, 1, Some(&[primary, (primary + 1) % 4]));
    net.request(primary, &trap);
    go_on(&mut net);
    let declined = net.peer(primary).declined.iter().any(|d| d.0 == ClientId(1));
    assert!(declined && net.status(2).view == view, "it cost another view");
}

/// A4: tags that are good for one backup alone move nobody, and do not take that backup out of its
/// view; those good for all but the primary are taken by it when f+1 hand them on (f16).
#[test]
fn tags_that_few_can_check_are_not_held_against_the_primary() {
    let mut net = Net::with(4, |_| {});
    for k in 1..=3 {
        let trap = net.package(1, k, 1, Some(&[2]));
        assert!(net.request(2, &trap));
        net.pass(LONG);
        assert!((0..4).all(|i| net.status(i).view_changes == 0 && !net.status(i).changing));
        assert_eq!(net.status(2).pending, 0);
        assert_eq!(net.status(2).dropped["request_not_vouched_for"], k);
    }
    let package = net.package(0, 1, 1, Some(&[1, 2, 3]));
    to_all(&mut net, &package);
    net.pass(LONG);
    assert!((0..4).all(|i| net.operations(i).len() == 1 && net.status(i).view_changes == 0));
}

/// A2: tags that fail for f replicas only are vouched for by the others, without a view change.
#[test]
fn f_bad_tags_are_vouched_for() {
    let mut net = Net::with(4, |_| {});
    let package = net.package(0, 1, 1, Some(&[0, 1, 2]));
    net.request(0, &package);
    net.pass(MOMENT);
    assert!((0..4).all(|i| net.log(i).len() == 1));
    net.pass(LONG);
    assert!((0..4).all(|i| net.status(i).view_changes == 0));
}

/// A1: numbers that are done in another package are done in all.
#[test]
fn a_client_with_overlapping_packages_moves_no_view() {
    let mut net = Net::with(4, |_| {});
    for k in 0..5 {
        let whole = net.package(1, 1 + 10 * k, 10, None);
        let part = net.package(1, 3 + 10 * k, 2, None);
        for i in 1..4 {
            net.request(i, &part);
        }
        // What is forwarded to the primary comes later than the whole.
        net.request(0, &whole);
        net.pass(LONG);
    }
    assert!((0..4).all(|i| net.status(i).view_changes == 0 && net.status(i).pending == 0));
}

/// A1: a copy whose tags a replica spoilt on its way does not take the place of the client's own
#[test]
fn a_spoilt_copy_does_not_replace_a_good_one() {
    let mut net = Net::with(4, |s| (s.pipeline, s.batch_time) = (1, Duration::from_millis(50)));
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Commit { .. }));
    let first = net.package(0, 1, 1, None);
    net.request(0, &first);
    net.settle();
    let good = net.package(1, 1, 1, None);
    net.request(0, &good);
    let spoilt = net.package(1, 1, 1, Some(&[0]));
    let ring = &net.rings[3];
    let frame = Forward(spoilt).to_frame(ReplicaId(3), SUITE, |key| ring.mac_vector(key));
    let verified = net.rings[0].verify(Received::from_frame(frame, SUITE).unwrap()).unwrap();
    net.handle(0, Event::Forwarded(verified));
    net.filter = Box::new(|_, _, _| true);
    net.pass(LONG);
    assert!((0..4).all(|i| net.status(i).view_changes == 0));
    assert!((0..4).all(|i| net.operations(i).len() == 2));
}

/// A2: what f+1 backups forward is proposed, though the client's tag fails for the primary.
#[test]
fn tags_that_fail_for_the_primary_move_no_view() {
    let mut net = Net::with(4, |_| {});
    for k in 1..=4 {
        let others = [1, 2, 3];
        let trap = net.package(1, k, 1, Some(&others));
        for i in others {
            assert!(net.request(i, &trap));
        }
        net.pass(LONG);
    }
    assert!((0..4).all(|i| net.status(i).view_changes == 0));
    assert!((0..4).all(|i| net.operations(i).len() == 4));
}

/// T2, A4: a replica that has left the view alone hands requests on like the others; without its
/// word nobody else could hold a request under MACs against a primary that has crashed.
#[test]
fn one_that_left_alone_still_vouches() {
    for lonely in 1..4 {
        let mut net = Net::with(4, |_| {});
        // It hears where the others stand, or it would hold nothing against the primary (T9).
        net.filter = Box::new(move |_, to, m| {
            to != lonely || matches!(m, PbftMessage::PrePrepare { .. } | PbftMessage::Status(_))
        });
        let package = net.signed(0, 1, 1);
        to_all(&mut net, &package);
        while !net.status(lonely).changing {
            net.pass(MOMENT);
        }
        net.filter = Box::new(|_, _, _| true);
        // Not for so long that the primary lets it in (rule V8).
        net.pass(Duration::from_secs(2));
        assert!((0..4).all(|i| net.operations(i).len() == 1));
        assert!(net.status(lonely).changing && net.status(0).view == View(0));
        net.stop(0);
        let package = net.package(1, 1, 1, None);
        to_all(&mut net, &package);
        // All that they forward at first is lost; the client retransmits, as clients do.
        net.lose_forwards = true;
        net.pass(Duration::from_secs(3));
        net.lose_forwards = false;
        assert!((1..4).all(|i| net.operations(i).len() == 1));
        to_all(&mut net, &package);
        net.pass(LONG);
        assert!((1..4).all(|i| net.operations(i).len() == 2), "replica {lonely} left alone");
    }
}
