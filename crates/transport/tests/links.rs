//! Links between peers that keep the rules.

use crate::common;

use bytes::Bytes;
use common::{Node, client, drive, frame, now, plan, replica, secret};
use std::time::Duration;
use tercio_transport::{
    BindError, Disconnect, Limits, SendError, Settings, Transport, TransportEvent,
};

#[test]
fn replicas_and_clients_exchange_frames() {
    let (plan, sockets) = plan(4);
    let mut nodes: Vec<Node> =
        sockets.into_iter().enumerate().map(|(i, s)| Node::replica(i as u16, &plan, s)).collect();
    nodes.extend((1..=2).map(|i| Node::client(i, &plan)));
    let who = [replica(0), replica(1), replica(2), replica(3), client(1), client(2)];
    let links = [5, 5, 5, 5, 4, 4];
    let mut all: Vec<&mut Node> = nodes.iter_mut().collect();
    drive(&mut all, "links", |n| n.iter().zip(links).all(|(n, k)| n.connects() == k));
    for (i, node) in all.iter_mut().enumerate() {
        let replicas = (0..4).map(replica).filter(|r| *r != who[i]);
        node.transport.broadcast(replicas, &frame(i as u64, 100 * i));
        if i < 4 {
            for c in [client(1), client(2)] {
                assert_eq!(node.transport.send(c, frame(10 + i as u64, 10)), Ok(()));
            }
        }
    }
    drive(&mut all, "frames", |n| {
        let got = |n: &Node| who.iter().filter(|w| !n.frames_from(**w).is_empty()).count();
        n.iter().zip(links).all(|(n, k)| got(n) == k)
    });
    for (i, node) in all.iter().enumerate() {
        for (j, from) in who.iter().enumerate().filter(|(j, _)| *j != i) {
            let expected = match (i, j) {
                (0..4, _) => vec![frame(j as u64, 100 * j)],
                (_, 0..4) => vec![frame(10 + j as u64, 10)],
                _ => vec![],
            };
            assert_eq!(node.frames_from(*from), expected, "{} to {}", from, who[i]);
        }
    }
    let nobody = all[4].transport.send(client(2), frame(0, 0));
    assert_eq!(nobody, Err(SendError::NotConnected(client(2))), "clients have no links");
    assert_eq!(all[4].counter("not_connected"), 1);
}

#[test]
fn long_frames_arrive_in_pieces_and_in_order() {
    let (plan, mut sockets) = plan(2);
    let mut one = Node::replica(1, &plan, sockets.pop().unwrap());
    let mut zero = Node::replica(0, &plan, sockets.pop().unwrap());
    let mut all = [&mut zero, &mut one];
    drive(&mut all, "link", |n| n.iter().all(|n| n.connects() == 1));
    let lengths = [0, 15 << 20, 1, 70_000, 3 << 20, 12, 1 << 18];
    let sent: Vec<Bytes> = (0..).zip(lengths).map(|(i, len)| frame(i, len)).collect();
    for bytes in &sent {
        all[1].transport.send(replica(0), bytes.clone()).unwrap();
    }
    drive(&mut all, "frames", |n| n[0].frames_from(replica(1)).len() == sent.len());
    assert!(all[0].frames_from(replica(1)) == sent, "each byte arrives, in order");
}

#[test]
fn a_peer_that_never_reads_costs_a_bounded_queue() {
    let (plan, mut sockets) = plan(2);
    let limits = Limits { max_client_queue: 1 << 20, ..Limits::default() };
    let mut one = Node::replica(1, &plan, sockets.pop().unwrap());
    let mut zero = Node::new(replica(0), &plan, Some(sockets.pop().unwrap().into()), limits);
    let mut idler = Node::client(1, &plan);
    drive(&mut [&mut zero, &mut one, &mut idler], "links", |n| n[0].connects() == 2);
    // From here on nobody polls the idler; the system's own buffers fill, then the queue.
    let long = frame(0, 60_000);
    let mut refused = 0;
    drive(&mut [&mut zero, &mut one], "a full queue", |n| {
        while n[0].transport.send(client(1), long.clone()).is_ok() {
            assert!(n[0].transport.queued_bytes(client(1)) <= 1 << 20, "the bound holds");
        }
        refused += 1;
        // After as many turns the system's buffers are full as well.
        refused > 50
    });
    assert!(zero.counter("queue_full") > 0);
    zero.transport.send(replica(1), frame(9, 9)).unwrap();
    drive(&mut [&mut zero, &mut one], "others are served", |n| {
        n[1].frames_from(replica(0)) == [frame(9, 9)]
    });
    drive(&mut [&mut zero, &mut idler], "the rest drains when it reads", |n| {
        n[0].transport.queued_bytes(client(1)) == 0
    });
}

#[test]
fn a_link_comes_back_after_a_restart() {
    let (plan, mut sockets) = plan(2);
    let mut one = Node::replica(1, &plan, sockets.pop().unwrap());
    let mut reader = Node::client(1, &plan);
    for life in 0..3 {
        let listen = match sockets.pop() {
            Some(socket) => socket.into(),
            None => plan.addresses[0].into(),
        };
        let mut zero = Node::new(replica(0), &plan, Some(listen), Limits::default());
        let mut all = [&mut zero, &mut one, &mut reader];
        drive(&mut all, "links", |n| n[0].connects() == 2);
        all[0].transport.broadcast([replica(1), client(1)], &frame(life, 20));
        drive(&mut all, "frames of this life", |n| {
            n[1..].iter().all(|n| n.frames_from(replica(0)).last() == Some(&frame(life, 20)))
        });
        assert_eq!(all[1].transport.last_error(tercio_types::ReplicaId(0)), None);
        drop(zero);
        drive(&mut [&mut one, &mut reader], "the loss is noticed", |n| {
            n.iter().all(|n| !n.transport.is_connected(replica(0)))
        });
        let why = one.transport.last_error(tercio_types::ReplicaId(0)).unwrap().to_string();
        assert!(why.contains(&plan.addresses[0].to_string()), "{why}");
    }
    let lost = |e: &&TransportEvent| matches!(e, TransportEvent::Disconnected(..));
    assert_eq!(one.events.iter().filter(lost).count(), 3);
}

#[test]
fn a_newer_link_takes_the_older_ones_place() {
    let (plan, mut sockets) = plan(1);
    let mut zero = Node::replica(0, &plan, sockets.pop().unwrap());
    let mut old = Node::client(1, &plan);
    drive(&mut [&mut zero, &mut old], "the first", |n| n.iter().all(|n| n.connects() == 1));
    let mut new = Node::client(1, &plan);
    drive(&mut [&mut zero, &mut new], "the second", |n| {
        n[1].connects() == 1 && n[0].connects() == 2
    });
    let replaced = TransportEvent::Disconnected(client(1), Disconnect::Replaced);
    let at = zero.events.iter().position(|e| *e == replaced).unwrap();
    assert_eq!(zero.events[at + 1..], [TransportEvent::Connected(client(1))]);
    zero.transport.send(client(1), frame(5, 5)).unwrap();
    drive(&mut [&mut zero, &mut new], "a frame to the newer", |n| {
        n[1].frames_from(replica(0)) == [frame(5, 5)]
    });
}

#[test]
fn a_replica_by_name_is_found() {
    let (named, mut sockets) = plan(1);
    let mut zero = Node::replica(0, &named, sockets.pop().unwrap());
    // The plan's addresses are numbers; a membership can hold names as well.
    let port = named.addresses[0].port();
    let membership = {
        use tercio_types::{ClientInfo, FaultModel, Member, Membership};
        let numbers = named.membership();
        let key = numbers.member(tercio_types::ReplicaId(0)).unwrap().key;
        let members = vec![Member { key, address: format!("localhost:{port}") }];
        let clients = numbers.clients().map(|(id, info)| (id, ClientInfo::new(info.key))).collect();
        let (chain, epoch, suite) = (numbers.chain(), numbers.epoch(), numbers.suite());
        let model = FaultModel::Byzantine;
        Membership::new(chain, epoch, suite, model, members, clients).unwrap().into()
    };
    let (me, limits) = (client(1), Limits::default());
    let settings = Settings { me, secret: secret(me), membership, listen: None, limits };
    let mut one = Node { transport: Transport::bind(settings).unwrap(), events: vec![] };
    // Where 'localhost' is ::1 first, nobody listens there, and the next attempt takes the other.
    drive(&mut [&mut zero, &mut one], "a link by name", |n| n[1].connects() == 1);
}

#[test]
fn another_thread_wakes_the_loop() {
    let (plan, mut sockets) = plan(1);
    let mut zero = Node::replica(0, &plan, sockets.pop().unwrap());
    let waker = zero.transport.waker();
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // Without a waker this would wait for ever.
        zero.transport.poll(None, &mut zero.events);
        tell.send(()).unwrap();
    });
    waker.wake();
    told.recv_timeout(common::PATIENCE).expect("the loop woke");
    waiter.join().unwrap();
}

#[test]
fn who_looks_on_hears_frames_and_keeps_the_time_it_was_given() {
    let (plan, mut sockets) = plan(2);
    let hour = Duration::from_secs(3600);
    let mut node = |i: u16| {
        let limits = Limits { poll: hour, ..Limits::default() };
        Node::new(replica(i), &plan, Some(sockets.remove(0).into()), limits)
    };
    let (mut zero, mut one) = (node(0), node(1));
    drive(&mut [&mut zero, &mut one], "the link", |n| n.iter().all(|n| n.connects() == 1));
    // Each turn after a frame busy-polls, and ends with the millisecond that it was given.
    for i in 1..=20 {
        zero.transport.send(replica(1), frame(i, 10)).unwrap();
        drive(&mut [&mut zero, &mut one], "a frame", |n| {
            n[1].frames_from(replica(0)).len() == i as usize
        });
    }
    let waker = one.transport.waker();
    zero.transport.send(replica(1), frame(21, 10)).unwrap();
    drive(&mut [&mut zero, &mut one], "the last", |n| n[1].frames_from(replica(0)).len() == 21);
    waker.wake();
    // Without the waker this would go on for an hour.
    one.transport.poll(None, &mut one.events);
}

#[test]
fn a_port_in_use_is_named() {
    let (plan, mut sockets) = plan(1);
    let zero = Node::replica(0, &plan, sockets.pop().unwrap());
    let again = Settings {
        me: replica(0),
        secret: secret(replica(0)),
        membership: plan.membership(),
        listen: Some(zero.transport.local_addr().unwrap().into()),
        limits: Limits::default(),
    };
    let error = Transport::bind(again).unwrap_err();
    assert!(matches!(error, BindError::InUse { address } if address == plan.addresses[0]));
    assert!(error.to_string().contains(&plan.addresses[0].to_string()), "{error}");
}

#[test]
fn a_secret_that_is_not_ours_is_noticed_at_the_start() {
    let (plan, _sockets) = plan(1);
    let settings = Settings {
        me: replica(0),
        secret: secret(client(1)),
        membership: plan.membership(),
        listen: None,
        limits: Limits::default(),
    };
    assert!(matches!(Transport::bind(settings), Err(BindError::WrongSecret(_))));
    let stranger = Settings {
        me: client(99),
        secret: secret(client(99)),
        membership: plan.membership(),
        listen: None,
        limits: Limits::default(),
    };
    assert!(matches!(Transport::bind(stranger), Err(BindError::NotAMember(_))));
}

#[test]
fn a_greedy_peer_gets_its_share_of_a_turn_only() {
    let (plan, mut sockets) = plan(1);
    let limits = Limits { read_budget: 64 << 10, ..Limits::default() };
    let mut zero = Node::new(replica(0), &plan, Some(sockets.pop().unwrap().into()), limits);
    let (mut greedy, mut modest) = (Node::client(1, &plan), Node::client(2, &plan));
    drive(&mut [&mut zero, &mut greedy, &mut modest], "links", |n| n[0].connects() == 2);
    for i in 0..1000 {
        greedy.transport.send(replica(0), frame(i, 3000)).unwrap();
    }
    // As much as the system takes waits for the replica then, far more than a turn's budget.
    let mut before = usize::MAX;
    while greedy.transport.queued_bytes(replica(0)) < before {
        before = greedy.transport.queued_bytes(replica(0));
        greedy.turn();
    }
    modest.transport.send(replica(0), frame(1, 10)).unwrap();
    modest.turn();
    // The budget, one chunk beyond it, and the modest one's frame.
    let bound = ((64 << 10) + (256 << 10)) / 3000 + 2;
    drive(&mut [&mut greedy], "all frames", |n| {
        let before = zero.events.len();
        zero.transport.poll(Some(Duration::from_millis(1)), &mut zero.events);
        let turn = zero.events.len() - before;
        assert!(turn <= bound, "{turn} frames in a turn, more than {bound}");
        n[0].transport.flush();
        zero.frames_from(client(1)).len() == 1000 && zero.frames_from(client(2)).len() == 1
    });
}

/// Back-pressure on one link: what its peer sends stays in the queues between, others are read on, and
/// nothing is lost.
#[test]
fn a_link_that_is_paused_is_not_read_until_that_is_over() {
    let (plan, mut sockets) = plan(1);
    let mut zero = Node::replica(0, &plan, sockets.pop().unwrap());
    let (mut noisy, mut good) = (Node::client(1, &plan), Node::client(2, &plan));
    drive(&mut [&mut zero, &mut noisy, &mut good], "links", |n| {
        n[1..].iter().all(|node| node.transport.is_connected(replica(0)))
            && [1, 2].iter().all(|i| n[0].transport.is_connected(client(*i)))
    });
    let (begin, span) = (now(), Duration::from_millis(300));
    zero.transport.pause(client(1), span);
    // A second pause does not make the first longer.
    zero.transport.pause(client(1), Duration::from_secs(3600));
    noisy.transport.send(replica(0), frame(1, 100_000)).unwrap();
    let mut sent = 0;
    drive(&mut [&mut zero, &mut noisy, &mut good], "what was sent meanwhile", |n| {
        let came = n[0].frames_from(client(2)).len();
        if came == sent && n[0].frames_from(client(1)).is_empty() {
            n[2].transport.send(replica(0), frame(2, 100)).unwrap();
            sent += 1;
        }
        let noisy = n[0].frames_from(client(1));
        assert!(noisy.is_empty() || begin.elapsed() >= span, "it was read while paused");
        noisy == [frame(1, 100_000)]
    });
    assert!(sent > 1, "the other link was read meanwhile");
}
