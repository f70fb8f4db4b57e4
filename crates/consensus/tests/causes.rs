//! Every step from view to view is told, with its cause.

use crate::common;

use common::*;
use std::time::Duration;
use tercio_consensus::pbft::PbftMessage;
use tercio_consensus::{Event, LeaveCause, ViewStep};
use tercio_types::*;

const LONG: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(50);

/// Why replica `i` left views, one after the other.
fn causes(net: &mut Net, i: usize) -> Vec<LeaveCause> {
    let left = |step: &ViewStep| match step {
        ViewStep::Left { view, next, cause } => {
            assert!(next > view, "{step:?}");
            Some(*cause)
        }
        ViewStep::Entered { .. } => None,
    };
    net.peer(i).view_steps.iter().filter_map(left).collect()
}

fn entered(net: &mut Net, i: usize) -> Vec<(View, ReplicaId)> {
    let entered = |step: &ViewStep| match step {
        ViewStep::Entered { view, primary } => Some((*view, *primary)),
        ViewStep::Left { .. } => None,
    };
    net.peer(i).view_steps.iter().filter_map(entered).collect()
}

/// A request reaches all replicas from `first` on.
fn request_at_all(net: &mut Net, first: usize) {
    let package = net.package(0, 1, 1, None);
    for i in first..net.membership.n() {
        net.request(i, &package);
    }
}

#[test]
fn a_request_waits_and_then_a_new_view() {
    let mut net = Net::with(7, |_| {});
    (0..2).for_each(|i| drop(net.stop(i)));
    request_at_all(&mut net, 2);
    net.pass(LONG);
    let all: Vec<_> = (2..7).map(|i| causes(&mut net, i)).collect();
    assert!(all.iter().any(|causes| causes[0] == LeaveCause::RequestWaits), "{all:?}");
    assert!(all.iter().any(|causes| causes.contains(&LeaveCause::NewViewWaits)), "{all:?}");
    assert!((2..7).all(|i| entered(&mut net, i) == [(View(2), ReplicaId(2))]));
}

#[test]
fn one_that_hears_of_f_plus_1_others_joins_them() {
    let mut net = Net::with(4, |_| {});
    request_at_all(&mut net, 0);
    net.pass(MOMENT);
    let disk = net.stop(0);
    // The primary starts again and leaves; replica 3 does not hear it, and hears the two others.
    net.filter =
        Box::new(|from, to, m| (from, to) != (0, 3) || !matches!(m, PbftMessage::ViewChange(_)));
    net.start(0, disk);
    net.pass(MOMENT);
    assert_eq!(causes(&mut net, 3), [LeaveCause::Joined]);
}

#[test]
fn a_proposal_that_nobody_commits_waits() {
    let mut net = Net::with(4, |_| {});
    // Nobody but the primary had the request; its proposal gets no quorum of COMMITs.
    net.filter = Box::new(|_, _, m| !matches!(m, PbftMessage::Commit { view: View(0), .. }));
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.pass(LONG);
    let all: Vec<_> = (0..4).map(|i| causes(&mut net, i)).collect();
    assert!(all.iter().any(|causes| causes.first() == Some(&LeaveCause::ProposalWaits)), "{all:?}");
}

#[test]
fn a_primary_that_starts_again_leaves_and_the_others_see_it() {
    let mut net = Net::with(4, |_| {});
    request_at_all(&mut net, 0);
    net.pass(MOMENT);
    let disk = net.stop(0);
    net.start(0, disk);
    net.pass(MOMENT);
    assert_eq!(causes(&mut net, 0), [LeaveCause::Restarted]);
    let others: Vec<_> = (1..4).map(|i| causes(&mut net, i)).collect();
    assert!(others.iter().any(|causes| causes[..] == [LeaveCause::PrimaryLeft]), "{others:?}");
    assert_eq!(entered(&mut net, 2), [(View(1), ReplicaId(1))]);
}

#[test]
fn what_no_checkpoint_covers_waits() {
    let mut net = Net::with(4, |_| {});
    // One hears nothing.
    net.filter = Box::new(|_, to, m| to != 3 && !matches!(m, PbftMessage::Checkpoint { .. }));
    let package = net.package(0, 1, 1, None);
    net.request(0, &package);
    net.pass(LONG);
    let all: Vec<_> = (0..4).map(|i| causes(&mut net, i)).collect();
    assert!(all.iter().flatten().any(|c| *c == LeaveCause::CheckpointWaits), "{all:?}");
}

/// P1: a NEW-VIEW of ours is shown to nobody before it is durable, whoever asks where we are: after a
/// power failure we could begin the same view otherwise.
#[test]
fn p1_a_new_view_is_shown_once_it_is_durable() {
    let mut net = Net::with(4, |_| {});
    net.stop(0);
    request_at_all(&mut net, 1);
    net.filter = Box::new(|_, to, m| !(to == 1 && matches!(m, PbftMessage::ViewChange(_))));
    let mut tries = 0;
    while !net.status(1).changing {
        net.pass(Duration::from_millis(1));
        tries += 1;
        assert!(tries < 60_000, "it never left the first view");
    }
    net.peer(1).acknowledge = false;
    net.filter = Box::new(|_, _, _| true);
    net.pass(Duration::from_millis(300));
    let begins = |m: &PbftMessage| matches!(m, PbftMessage::NewView(_));
    assert!(!net.status(1).changing, "it has a quorum, and enters the view");
    assert!(!net.peer(1).sent.iter().any(begins), "it is in no log yet");
    net.peer(1).acknowledge = true;
    while let Some(id) = net.peer(1).pending_acks.pop_front() {
        net.handle(1, Event::Persisted(id));
    }
    assert!(net.peer(1).sent.iter().any(begins));
}
