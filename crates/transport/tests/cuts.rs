//! Links over which nothing comes any more, though no socket says so.

use crate::common;

use common::relay::Relay;
use common::{Node, Plan, client, drive, frame, now, plan, replica};
use std::time::Duration;
use tercio_transport::{Disconnect, Limits, TransportEvent};
use tercio_types::Principal;

/// Replicas 0 and 1, the second of which dials the first through a relay.
fn pair(limits: &Limits) -> (Plan, Relay, Node, Node) {
    let (plan, mut sockets) = plan(2);
    let relay = Relay::to(plan.addresses[0]);
    let mut through = plan.clone();
    through.addresses[0] = relay.address;
    let second = sockets.pop().unwrap();
    let zero = Node::new(replica(0), &plan, sockets.pop().map(Into::into), limits.clone());
    let one = Node::new(replica(1), &through, Some(second.into()), limits.clone());
    (plan, relay, zero, one)
}

fn quick() -> Limits {
    let ms = Duration::from_millis;
    Limits { link_timeout: ms(400), dial_timeout: ms(200), redial_max: ms(50), ..Limits::default() }
}

fn silent(node: &Node, peer: Principal) -> bool {
    node.events.contains(&TransportEvent::Disconnected(peer, Disconnect::Silent))
}

fn linked(nodes: &[&mut Node]) -> bool {
    nodes[0].transport.is_connected(replica(1)) && nodes[1].transport.is_connected(replica(0))
}

/// Nothing is on its way that TCP would miss, and nothing says that the link is dead.
#[test]
fn a_dead_link_is_noticed_on_both_sides_and_dialled_again() {
    let (_, relay, mut zero, mut one) = pair(&quick());
    drive(&mut [&mut zero, &mut one], "a link", |n| linked(n));
    relay.cut(true);
    drive(&mut [&mut zero, &mut one], "both notice", |n| {
        silent(n[0], replica(1)) && silent(n[1], replica(0))
    });
    let before = relay.accepted();
    // What is dialled meanwhile is swallowed, too.
    drive(&mut [&mut zero, &mut one], "attempts", |_| relay.accepted() > before + 2);
    relay.cut(false);
    drive(&mut [&mut zero, &mut one], "a link again", |n| linked(n));
    one.transport.send(replica(0), frame(1, 10)).unwrap();
    drive(&mut [&mut zero, &mut one], "a frame", |n| {
        n[0].frames_from(replica(1)) == [frame(1, 10)]
    });
}

#[test]
fn heartbeats_keep_an_idle_link_and_clients_need_none() {
    let limits = quick();
    let (plan, _relay, mut zero, mut one) = pair(&limits);
    let mut idler = Node::client(1, &plan);
    drive(&mut [&mut zero, &mut one, &mut idler], "links", |n| {
        linked(n) && n[0].transport.is_connected(client(1))
    });
    let end = now() + 5 * limits.link_timeout;
    drive(&mut [&mut zero, &mut one], "time", |_| now() > end);
    let lost =
        |node: &Node| node.events.iter().any(|e| matches!(e, TransportEvent::Disconnected(..)));
    assert!(!lost(&zero) && !lost(&one), "{:?} {:?}", zero.events, one.events);
    assert!(zero.frames_from(replica(1)).is_empty(), "heartbeats are no frames");
}

/// Where no attempt comes through as fast as wished, the first goes on beside the others.
#[test]
fn a_slow_attempt_is_let_go_on() {
    let limits = Limits { dial_timeout: Duration::ZERO, ..quick() };
    let (_, _relay, mut zero, mut one) = pair(&limits);
    drive(&mut [&mut zero, &mut one], "a link", |n| linked(n));
}

/// An attempt whose bytes were swallowed is not waited for.
#[test]
fn an_attempt_that_was_swallowed_holds_up_no_other() {
    let limits = Limits { handshake_timeout: Duration::from_secs(3600), ..quick() };
    let (_, relay, mut zero, mut one) = pair(&limits);
    relay.cut(true);
    drive(&mut [&mut zero, &mut one], "attempts", |_| relay.accepted() == 3);
    relay.cut(false);
    drive(&mut [&mut zero, &mut one], "a link", |n| linked(n));
}
