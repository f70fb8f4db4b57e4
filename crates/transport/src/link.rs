//! One connection: socket, buffers, and how far it has come.

use crate::Limits;
use crate::handshake::{Answering, Dialling, Said};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use mio::net::TcpStream;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tercio_types::{Principal, ReplicaId};

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Dialled; TCP has not connected yet.
    Connecting,
    /// Dialled; our hello is out.
    AwaitChallenge,
    /// Dialled; our opening is out.
    AwaitAnswer(Dialling),
    /// Accepted; the hello must come.
    AwaitHello,
    /// Accepted; our challenge is out. Who it says it is is not proven.
    AwaitOpening(Principal, Box<Said>),
    /// Accepted; our answer is out.
    AwaitConfirm(Answering),
    /// Refused; what still comes is discarded, so that closing does not overtake the refusal.
    Refused,
    /// Authenticated.
    Open(Principal, Instant),
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) stage: Stage,
    /// Whom we dialled; `None` when they dialled us.
    pub(crate) dialled: Option<ReplicaId>,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    /// Who the dialler says it is, once it said so.
    pub(crate) claimed: Option<Principal>,
    /// When the handshake is to be looked after; `None` when it is through.
    pub(crate) deadline: Option<Instant>,
    /// When the handshake must be through.
    pub(crate) until: Instant,
    /// When something last came: of a client a frame, of a replica anything.
    pub(crate) heard: Instant,
    /// Whether anything was sent since the last look.
    pub(crate) spoke: bool,
    /// The event queue tells of changes only, so what it told is kept until a call says otherwise.
    pub(crate) readable: bool,
    /// Until when nothing is read from it.
    pub(crate) paused: Option<Instant>,
    pub(crate) writable: bool,
    /// The peer has closed its side; the end of the stream is near.
    pub(crate) ending: bool,
}

impl Link {
    pub(crate) fn new(
        stream: TcpStream,
        address: SocketAddr,
        dialled: Option<ReplicaId>,
        now: Instant,
        limits: &Limits,
    ) -> Self {
        let until = now + limits.handshake_timeout;
        let (stage, deadline) = match dialled {
            Some(_) => (Stage::Connecting, until.min(now + limits.dial_timeout)),
            None => (Stage::AwaitHello, until),
        };
        Self {
            stream,
            address,
            stage,
            dialled,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            claimed: None,
            deadline: Some(deadline),
            until,
            heard: now,
            spoke: false,
            readable: false,
            paused: None,
            writable: false,
            ending: false,
        }
    }

    pub(crate) fn peer(&self) -> Option<Principal> {
        match self.stage {
            Stage::Open(peer, _) => Some(peer),
            _ => None,
        }
    }

    /// Whether it is a handshake that somebody else began.
    pub(crate) fn is_half_open(&self) -> bool {
        self.deadline.is_some() && self.dialled.is_none()
    }

    /// For how long it has been open.
    pub(crate) fn held(&self, now: Instant) -> Option<Duration> {
        match self.stage {
            Stage::Open(_, since) => Some(now.saturating_duration_since(since)),
            _ => None,
        }
    }
}

/// Small frames leave at once, and a peer whose machine is gone is noticed within ten seconds; between
/// replicas heartbeats are faster.
/// Best effort: a link without these options still works.
pub(crate) fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(stream, Duration::from_secs(5));
    let _ = rustix::net::sockopt::set_tcp_keepintvl(stream, Duration::from_secs(2));
    let _ = rustix::net::sockopt::set_tcp_keepcnt(stream, 3);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, 10_000);
}
