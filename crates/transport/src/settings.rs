//! What a transport is told at its start.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::SecretKey;
use tercio_types::{Membership, Principal};
use tercio_wire::MAX_FRAME;

/// Where to listen.
#[derive(Debug)]
pub enum Listen {
    /// At this address; port 0 takes a free one.
    Address(SocketAddr),
    /// On a socket that is bound already, so that an address can be made known before the
    /// transport exists.
    Socket(TcpListener),
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl From<TcpListener> for Listen {
    fn from(socket: TcpListener) -> Self {
        Self::Socket(socket)
    }
}

/// Who we are, whom we know, and where we listen.
#[derive(Debug)]
pub struct Settings {
    /// Who we are.
    pub me: Principal,
    /// The secret of our identity.
    pub secret: SecretKey,
    /// Who takes part, with keys and addresses.
    pub membership: Arc<Membership>,
    /// Where to listen; clients do not.
    pub listen: Option<Listen>,
    /// What peers may cost us.
    pub limits: Limits,
}

/// What peers may cost us.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest frame taken from a replica, in bytes; at most `tercio_wire::MAX_FRAME`.
    pub max_frame: usize,
    /// The longest frame taken from a client, in bytes.
    pub max_client_frame: usize,
    /// The most bytes that wait for one replica. A longer frame still goes into an empty queue.
    pub max_queue: usize,
    /// The most bytes that wait for one client.
    pub max_client_queue: usize,
    /// The most links of clients.
    pub max_clients: usize,
    /// The most accepted connections whose handshake is under way.
    pub max_half_open: usize,
    /// When all places of clients are taken, one who sent nothing for this long gives way to another.
    pub client_idle: Duration,
    /// How long a handshake may take, connecting included.
    pub handshake_timeout: Duration,
    /// After how long without a link another attempt is made beside the first, which goes on until
    /// `handshake_timeout`: what a cut swallowed is not waited for.
    pub dial_timeout: Duration,
    /// A link between replicas on which nothing came for this long is taken down. A replica that has
    /// nothing to say for a quarter of it sends a heartbeat.
    pub link_timeout: Duration,
    /// How long to busy-poll for frames after one came before the thread sleeps, yielding the
    /// processor between two polls; zero for not at all.
    pub poll: Duration,
    /// The most bytes read from one peer in a turn.
    pub read_budget: usize,
    /// The first pause before a lost link is dialled again.
    pub redial_min: Duration,
    /// The longest pause before a lost link is dialled again, up to a quarter more or less.
    pub redial_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame: MAX_FRAME,
            max_client_frame: 1 << 20,
            max_queue: 64 << 20,
            max_client_queue: 4 << 20,
            max_clients: 1024,
            max_half_open: 512,
            client_idle: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(5),
            dial_timeout: Duration::from_secs(5),
            link_timeout: Duration::from_secs(2),
            poll: Duration::ZERO,
            read_budget: 256 << 10,
            redial_min: Duration::from_millis(20),
            redial_max: Duration::from_secs(1),
        }
    }
}
