//! Carriers of frames. A server polls [`Port`]s, a client has a [`Link`]; neither knows what frames
//! mean. Which one to use is written as an [`Endpoint`]: `shm:PATH`, `udp:ADDRESS`, `tcp:ADDRESS`,
//! or `verbs:DEVICE`, which carries nothing yet (`verbs`).

pub mod ring;
pub mod shm;
pub mod sim;
pub mod tcp;
pub mod udp;
mod verbs;

use crate::engine::{Batch, Peer};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Why a link is of no use any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The other side is gone.
    #[error("the server closed the connection")]
    Closed,
    /// What arrives is no frame.
    #[error("the server sends what is no frame")]
    Garbage,
    /// The server's answers are not taken away, so it takes no requests.
    #[error("the link is full: take answers before sending more")]
    Full,
    /// The system says so.
    #[error("the link failed: {0}")]
    Io(#[from] io::Error),
}

/// A client's end.
pub trait Link: Send + fmt::Debug {
    /// Whether frames arrive once, in order, or else the link fails.
    fn is_reliable(&self) -> bool;
    /// A frame is about to be made and sent. A link that has to wait for something before it can take
    /// one begins to.
    fn make_way(&self) {}
    /// Takes a frame to be sent, with the next [`Link::flush`] at the latest.
    ///
    /// # Errors
    /// When the link is of no use any more.
    ///
    /// # Panics
    /// In shared memory, when what it is given does not begin as frames do.
    fn send(&mut self, frame: &[u64]) -> Result<(), LinkError>;
    /// Sends what was taken.
    ///
    /// # Errors
    /// When the link is of no use any more.
    fn flush(&mut self) -> Result<(), LinkError>;
    /// Whether the other side is there for certain. A link that cannot tell says no.
    fn is_open(&self) -> bool {
        false
    }
    /// Takes the files, so many, that the server handed over beside an answer that has arrived; waits for
    /// those that are on their way.
    ///
    /// # Errors
    /// When they do not come, or the link can carry none.
    fn files(&mut self, _count: usize) -> io::Result<Vec<OwnedFd>> {
        let what = "no files can be handed over by this link";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }
    /// Appends the next frame that has arrived. False when none has.
    ///
    /// # Errors
    /// When the link is of no use any more.
    fn receive(&mut self, frame: &mut Vec<u64>) -> Result<bool, LinkError>;
}

/// A server's end, with any number of clients.
pub trait Port: Send + fmt::Debug {
    /// Whether frames arrive once, in order, or else the link fails.
    fn is_reliable(&self) -> bool;
    /// Adds frames that have arrived. Clients that are gone are added to `lost`. Where it takes a while
    /// to be done after a frame is there, a port shows a frame that comes by itself to `early` first.
    ///
    /// # Errors
    /// When the port is of no use any more. What one client does is none of these.
    fn poll(
        &mut self,
        batch: &mut Batch,
        lost: &mut Vec<Peer>,
        early: &mut dyn FnMut(&[u64]),
    ) -> io::Result<()>;
    /// Takes an answer to be sent with the next [`Port::flush`] at the latest. One that cannot be
    /// sent is dropped, and a client that takes no answers is cut off.
    fn send(&mut self, to: Peer, frame: &[u64]);
    /// Hands files over, which belong to an answer. A port that can carry none drops them.
    fn hand_over(&mut self, _to: Peer, _files: &[Arc<OwnedFd>]) {}
    /// Sends what was taken.
    fn flush(&mut self);
    /// The next poll is to look for new clients, which a port otherwise does once in many: polls are far
    /// between now.
    fn look(&mut self) {}
}

/// Where a server can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Shared memory, arranged for at this Unix socket.
    Shm(PathBuf),
    /// Datagrams.
    Udp(SocketAddr),
    /// A stream.
    Tcp(SocketAddr),
    /// An RDMA card, by its name or `any`.
    Verbs(String),
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str| {
            text.parse().map_err(|_| format!("'{text}' is no address such as 127.0.0.1:7400"))
        };
        match text.split_once(':') {
            Some(("shm", path)) if !path.is_empty() => Ok(Self::Shm(path.into())),
            Some(("udp", text)) => address(text).map(Self::Udp),
            Some(("tcp", text)) => address(text).map(Self::Tcp),
            Some(("verbs", device)) if !device.is_empty() => Ok(Self::Verbs(device.into())),
            _ => {
                Err(format!("'{text}' is none of shm:PATH, udp:ADDRESS, tcp:ADDRESS, verbs:DEVICE"))
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(path) => write!(f, "shm:{}", path.display()),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Verbs(device) => write!(f, "verbs:{device}"),
        }
    }
}

impl Endpoint {
    /// Opens a link to the server there.
    ///
    /// # Errors
    /// When nobody can be reached.
    pub fn link(&self) -> io::Result<Box<dyn Link>> {
        Ok(match self {
            Self::Shm(path) => Box::new(shm::ShmLink::open(path)?),
            Self::Udp(address) => Box::new(udp::UdpLink::open(*address, true)?),
            Self::Tcp(address) => Box::new(tcp::TcpLink::open(*address)?),
            Self::Verbs(device) => return Err(verbs::open(device)),
        })
    }

    /// Waits for clients there; gives the endpoint with the port that was chosen, if it was left
    /// open.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn port(&self) -> io::Result<(Box<dyn Port>, Self)> {
        Ok(match self {
            Self::Shm(path) => (Box::new(shm::ShmPort::bind(path)?), self.clone()),
            Self::Udp(address) => {
                let port = udp::UdpPort::bind(*address, true)?;
                let address = port.local_addr()?;
                (Box::new(port), Self::Udp(address))
            }
            Self::Tcp(address) => {
                let port = tcp::TcpPort::bind(*address)?;
                let address = port.local_addr()?;
                (Box::new(port), Self::Tcp(address))
            }
            Self::Verbs(device) => return Err(verbs::open(device)),
        })
    }
}
