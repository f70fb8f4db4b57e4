//! A replica behind a cut that no socket notices.

use crate::relay::Relay;
use crate::running::{CLIENT, Network, counter, wait};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tercio_replica::{Durability, Layout, ReplicaHandle};
use tercio_types::{Member, Membership, ReplicaId};

/// The network's membership as a replica has it that reaches the others through relays.
fn through(net: &Network, relays: &[Relay]) -> Arc<Membership> {
    let all = &net.membership;
    let member = |id: ReplicaId| {
        let member = all.member(id).unwrap();
        let relay = relays.get(usize::from(id.0)).map(|relay| relay.address.to_string());
        Member { key: member.key, address: relay.unwrap_or_else(|| member.address.clone()) }
    };
    let clients = all.clients().map(|(id, client)| (id, client.clone())).collect();
    let members = all.ids().iter().map(member).collect();
    let (chain, epoch) = (all.chain(), all.epoch());
    let made = Membership::new(chain, epoch, all.suite(), all.model(), members, clients).unwrap();
    Arc::new(made.with_protocol(all.protocol()))
}

fn links(replica: &ReplicaHandle) -> usize {
    replica.status().peers.iter().filter(|peer| peer.linked).count()
}

/// All is done when the cut is over, and nobody would have anything to say for an hour: it is level
/// because both sides say where they stand when a link opens.
#[test]
#[expect(clippy::print_stdout, reason = "how long it took")]
fn a_replica_that_was_cut_off_is_soon_level() {
    let tune = |node: &mut tercio_replica::NodeSettings| {
        node.consensus.idle_interval = Duration::from_secs(3600);
    };
    let mut net = Network::with(4, Layout::default(), Durability::Memory, tune, counter);
    net.replicas[3].take().unwrap().stop().unwrap();
    let relays: Vec<Relay> = (0..3).map(|i| Relay::to(net.address(i))).collect();
    net.restart_with(3, |net| {
        let mut config = net.config(3);
        config.node.membership = through(net, &relays);
        config
    });
    let mut client = net.client(CLIENT);
    client.call(Bytes::new()).unwrap();
    net.wait_for_height(1);
    relays.iter().for_each(|relay| relay.cut(true));
    for _ in 0..20 {
        client.call(Bytes::new()).unwrap();
    }
    let replica = |i: usize| net.replicas[i].as_ref().unwrap();
    wait("it is cut off, and the others know", || {
        links(replica(3)) == 0 && (0..3).all(|i| links(replica(i)) == 2)
    });
    assert!(replica(3).status().height < replica(0).status().height);
    relays.iter().for_each(|relay| relay.cut(false));
    let healed = now();
    net.wait_for_height(21);
    println!("level {} ms after the cut was over", healed.elapsed().as_millis());
}

#[expect(clippy::disallowed_methods, reason = "how long it took")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
