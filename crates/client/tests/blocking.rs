//! The blocking client over real sockets, against replicas by hand that do not order anything.

mod common;

use bytes::Bytes;
use common::{ME, Replica, membership, secret};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tercio_client::{CallError, Client, ConnectError, Settings};
use tercio_transport::{Limits, Transport, TransportEvent, Waker};
use tercio_types::{Membership, Principal, ReplicaId};

/// A replica on a thread of its own, until it is dropped.
struct Running {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(i: usize, socket: TcpListener, membership: &Arc<Membership>) -> Self {
        let me = Principal::Replica(ReplicaId(i as u16));
        let mut replica = Replica::new(i, membership);
        let mut transport = Transport::bind(tercio_transport::Settings {
            me,
            secret: secret(me),
            membership: membership.clone(),
            listen: Some(socket.into()),
            limits: Limits::default(),
        })
        .unwrap();
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), transport.waker());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut events = vec![];
            // What the primary gets, all would order; here it hands packages on in the clear.
            while !stopped.load(Ordering::Acquire) {
                transport.poll(None, &mut events);
                for event in events.drain(..) {
                    let TransportEvent::Frame { from, bytes } = event else { continue };
                    if matches!(from, Principal::Client(_)) {
                        let others = (0..4).map(|r| Principal::Replica(ReplicaId(r)));
                        transport.broadcast(others.filter(|r| *r != me), &bytes);
                    }
                    // A peer may be gone: then its loss is not what is tested.
                    let _ = transport.send(Principal::Client(ME), replica.serve(&bytes));
                }
            }
        });
        Self { stop, waker, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn network() -> (Arc<Membership>, Vec<TcpListener>) {
    let sockets: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |s: &TcpListener| s.local_addr().unwrap().to_string();
    let addresses: Vec<_> = sockets.iter().map(address).collect();
    (membership(4, &addresses), sockets)
}

fn settings(membership: &Arc<Membership>) -> Settings {
    Settings {
        connect_timeout: Duration::from_secs(60),
        ..Settings::new(ME, secret(Principal::Client(ME)), membership.clone())
    }
}

#[test]
fn calls_queries_and_pipelines_survive_a_crash_of_the_primary() {
    let (membership, sockets) = network();
    let start = |(i, socket)| Some(Running::start(i, socket, &membership));
    let mut replicas: Vec<_> = sockets.into_iter().enumerate().map(start).collect();
    let mut settings = settings(&membership);
    settings.core.max_outstanding = 16;
    let mut client = Client::connect(settings).unwrap();
    assert_eq!(client.call("one".into()).unwrap(), "did one");
    assert_eq!(client.query("what".into()).unwrap(), "seen what");

    let mut left = 0..300;
    let mut seen = BTreeSet::new();
    let next = || left.next().map(|i| (0..=i % 7).map(|j| format!("{i} {j}").into()).collect());
    let done = |completion: tercio_client::Completion| {
        assert!(seen.insert(completion.ticket), "each once");
        for result in completion.outcome.unwrap() {
            let tercio_client::OpResult::Executed(bytes) = result else { panic!("{result:?}") };
            assert!(bytes.starts_with(b"did "));
        }
        if seen.len() == 100 {
            replicas[0] = None;
        }
    };
    client.pipeline(next, done).unwrap();
    assert_eq!(seen.len(), 300);
    assert_eq!(client.call("after".into()).unwrap(), "did after");
    assert_eq!(client.core().outstanding(), 0);
}

#[test]
fn errors_say_which_replicas_are_missing_and_why() {
    let (membership, mut sockets) = network();
    let addresses: Vec<_> = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
    sockets.truncate(1);
    let zero = Running::start(0, sockets.pop().unwrap(), &membership);
    let mut short = settings(&membership);
    short.connect_timeout = Duration::from_millis(300);
    let error = Client::connect(short).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { reached: 1, needed: 3, .. }), "{error}");
    let text = error.to_string();
    for address in &addresses[1..] {
        assert!(text.contains(&format!("{address}: connection refused")), "{text}");
    }
    drop(zero);
}

#[test]
fn a_call_without_enough_replicas_ends_with_their_names() {
    let (membership, sockets) = network();
    let mut replicas: Vec<_> = (sockets.into_iter().enumerate())
        .map(|(i, socket)| Running::start(i, socket, &membership))
        .collect();
    let mut settings = settings(&membership);
    settings.core.deadline = Duration::from_millis(600);
    let mut client = Client::connect(settings).unwrap();
    assert_eq!(client.call("fine".into()).unwrap(), "did fine");
    replicas.drain(1..);
    let error = client.call("alone".into()).unwrap_err();
    assert!(matches!(error, CallError::Failed { .. }));
    let text = error.to_string();
    assert!(text.starts_with("no answer from replicas 1, 2, 3 within 600ms"), "{text}");
    assert!(text.contains("replica 2: 127.0.0.1"), "why there is no link: {text}");
    let error = client.query(Bytes::from("alone")).unwrap_err().to_string();
    assert!(error.starts_with("no answer from replicas 1, 2, 3"), "{error}");
}
