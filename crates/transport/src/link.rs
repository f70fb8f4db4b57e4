//! One connection: socket, buffers, and how far it has come.

use crate::handshake::{Answering, Dialling};
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
    /// Dialled; our opening is out.
    AwaitAnswer(Dialling),
    /// Accepted; the opening must come.
    AwaitOpening,
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
    /// When the handshake must be through; `None` when it is.
    pub(crate) deadline: Option<Instant>,
    /// The event queue tells of changes only, so what it told is kept until a call says otherwise.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has closed its side; the end of the stream is near.
    pub(crate) ending: bool,
}

impl Link {
    pub(crate) fn new(
        stream: TcpStream,
        address: SocketAddr,
        dialled: Option<ReplicaId>,
        deadline: Instant,
    ) -> Self {
        let stage = if dialled.is_some() { Stage::Connecting } else { Stage::AwaitOpening };
        Self {
            stream,
            address,
            stage,
            dialled,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            deadline: Some(deadline),
            readable: false,
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

    /// For how long it has been open.
    pub(crate) fn held(&self, now: Instant) -> Option<Duration> {
        match self.stage {
            Stage::Open(_, since) => Some(now.saturating_duration_since(since)),
            _ => None,
        }
    }
}

/// Small frames leave at once, and a peer whose machine is gone is noticed within half a minute.
/// Best effort: a link without these options still works.
pub(crate) fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(stream, Duration::from_secs(10));
    let _ = rustix::net::sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5));
    let _ = rustix::net::sockopt::set_tcp_keepcnt(stream, 4);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, 30_000);
}
