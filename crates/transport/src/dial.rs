//! When to dial whom, and where.

use crate::Refusal;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tercio_types::ReplicaId;
use thiserror::Error;

/// Why the last attempt to reach a replica failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DialError {
    /// The address in the membership means nothing.
    #[error("its address '{0}' cannot be resolved: {1}")]
    Address(String, String),
    /// The membership has no usable key for it.
    #[error("the membership has no usable public key for it")]
    BadKey,
    /// No connection.
    #[error("{0}: {1}")]
    Connect(SocketAddr, io::ErrorKind),
    /// It closed the connection during the handshake.
    #[error("{0}: it closed the connection during the handshake")]
    Closed(SocketAddr),
    /// It refused us, or we refused it.
    #[error("{0}: {1}")]
    Refused(SocketAddr, Refusal),
}

/// What happens with a replica that we dial.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Dial at this time.
    Waiting(Instant),
    /// A name is being looked up.
    Resolving,
    /// The link, open or on the way, has this slot.
    Link(usize),
}

/// A replica that we dial, for ever.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) to: ReplicaId,
    pub(crate) address: String,
    pub(crate) stage: Stage,
    /// An older attempt that goes on beside the newer ones.
    pub(crate) patient: Option<usize>,
    pub(crate) last_error: Option<DialError>,
    /// The pause before the next attempt.
    pause: Duration,
    /// How many attempts were planned: a name with several addresses is tried at each in turn.
    attempts: usize,
}

impl Dial {
    pub(crate) fn new(to: ReplicaId, address: String, now: Instant, pause: Duration) -> Self {
        Self {
            to,
            address,
            stage: Stage::Waiting(now),
            patient: None,
            last_error: None,
            pause,
            attempts: 0,
        }
    }

    /// Plans the next attempt, after a pause with jitter, so that replicas that lost each other at the
    /// same time do not dial at the same time. A link that held for longer than the longest pause starts
    /// afresh; one that breaks at once does not (two processes under one id would otherwise throw
    /// each other out fifty times a second).
    pub(crate) fn again(
        &mut self,
        now: Instant,
        held: Option<Duration>,
        (min, max): (Duration, Duration),
    ) {
        if held.is_some_and(|held| held > max) {
            self.pause = min;
        }
        self.stage = Stage::Waiting(now + jitter(self.pause));
        self.pause = self.pause.saturating_mul(2).min(max);
        self.attempts += 1;
    }

    /// Plans the next attempt after one that has taken its time already: the pause does not grow.
    pub(crate) fn again_soon(&mut self, now: Instant, pause: Duration) {
        self.stage = Stage::Waiting(now + jitter(pause));
        self.attempts += 1;
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Waiting(at) => Some(at),
            Stage::Resolving | Stage::Link(_) => None,
        }
    }
}

/// Three to five quarters of a pause.
fn jitter(pause: Duration) -> Duration {
    let mut random = [0];
    // Without randomness there is no jitter.
    if getrandom::fill(&mut random).is_err() {
        return pause;
    }
    pause * 3 / 4 + pause * u32::from(random[0]) / 512
}

/// The outcome of a name's lookup.
pub(crate) type Resolved = (ReplicaId, Result<SocketAddr, String>);

/// Looks names up away from the event loop: the system's resolver blocks.
#[derive(Debug)]
pub(crate) struct Resolver {
    sender: mpsc::Sender<Resolved>,
    results: mpsc::Receiver<Resolved>,
}

impl Resolver {
    pub(crate) fn new() -> Self {
        let (sender, results) = mpsc::channel();
        Self { sender, results }
    }

    /// Starts a lookup; `wake` is called when its outcome is there.
    pub(crate) fn start(&self, dial: &Dial, wake: impl Fn() + Send + 'static) {
        let (to, address, attempt) = (dial.to, dial.address.clone(), dial.attempts);
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            let found = address.to_socket_addrs().map_err(|e| e.to_string()).and_then(|all| {
                let all: Vec<_> = all.collect();
                let turn = attempt % all.len().max(1);
                all.get(turn).copied().ok_or_else(|| "the name has no address".to_owned())
            });
            // The receiver is gone when the transport is: nobody wants to know any more.
            let _ = sender.send((to, found));
            wake();
        });
    }

    pub(crate) fn next(&self) -> Option<Resolved> {
        self.results.try_recv().ok()
    }
}
