//! Replicas by hand on threads and sockets; they do not order anything.

use super::{ME, Replica, membership, secret};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tercio_client::{CoreSettings, Settings};
use tercio_transport::{Limits, Transport, TransportEvent, Waker};
use tercio_types::{Membership, Principal, ReplicaId};

/// A replica on a thread of its own, until it is dropped.
pub struct Running {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(i: usize, socket: TcpListener, membership: &Arc<Membership>) -> Self {
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

pub fn network() -> (Arc<Membership>, Vec<TcpListener>) {
    let sockets: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |s: &TcpListener| s.local_addr().unwrap().to_string();
    let addresses: Vec<_> = sockets.iter().map(address).collect();
    (membership(4, &addresses), sockets)
}

pub fn settings(membership: &Arc<Membership>) -> Settings {
    Settings {
        core: CoreSettings::unused_id(),
        connect_timeout: Duration::from_secs(60),
        ..Settings::new(ME, secret(Principal::Client(ME)), membership.clone())
    }
}

/// Tries with more and more time, since how much is enough is the machine's to say.
///
/// # Panics
/// When minutes are not enough; with what came last.
pub fn given_time(mut attempt: impl FnMut(Duration) -> Result<(), String>) {
    let mut within = Duration::from_millis(300);
    while let Err(came) = attempt(within) {
        assert!(within < Duration::from_secs(120), "{came}");
        within *= 2;
    }
}
