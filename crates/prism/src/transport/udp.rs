//! Datagrams: one frame each. What is lost or comes twice is the session's affair and the engine's.
//! System calls are batched (`sendmmsg`, `recvmmsg`), and equal datagrams go through the kernel
//! as one buffer where it knows how (GSO and GRO).

use super::{Link, LinkError, Port};
use crate::engine::{Batch, Peer};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use tercio_unsafe_sys::{Inbox, Outbox, coalesce_on_receipt};

/// What the socket is asked to hold in each direction, in bytes. The system may give less.
const SOCKET_BUFFER: usize = 4 << 20;
const MESSAGES: usize = 32;
const LONGEST: usize = 65_536;

fn prepare(socket: &UdpSocket, coalesce: bool) -> io::Result<bool> {
    socket.set_nonblocking(true)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER)?;
    rustix::net::sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER)?;
    // A kernel that does not know it hands on single datagrams.
    Ok(coalesce && coalesce_on_receipt(socket).is_ok())
}

/// The server's end.
#[derive(Debug)]
pub struct UdpPort {
    socket: UdpSocket,
    inbox: Inbox,
    outbox: Outbox,
}

impl UdpPort {
    /// Waits for datagrams at an address. With `coalesce`, uses GSO and GRO where they are known.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn bind(address: SocketAddr, coalesce: bool) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let coalesce = prepare(&socket, coalesce)?;
        let inbox = Inbox::new(MESSAGES, LONGEST, coalesce);
        Ok(Self { socket, inbox, outbox: Outbox::new(coalesce) })
    }

    /// The address.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl Port for UdpPort {
    fn is_reliable(&self) -> bool {
        false
    }

    fn poll(
        &mut self,
        batch: &mut Batch,
        _: &mut Vec<Peer>,
        _: &mut dyn FnMut(&[u64]),
    ) -> io::Result<()> {
        for i in 0..self.inbox.receive(&self.socket)? {
            if let Some(from) = self.inbox.sender(i) {
                self.inbox.datagrams(i).for_each(|frame| batch.push(Peer::Address(from), frame));
            }
        }
        Ok(())
    }

    fn send(&mut self, to: Peer, frame: &[u64]) {
        // The longest answers fit no datagram; their client learns that by hearing nothing.
        if let Peer::Address(to) = to
            && frame.len() * 8 <= MAX_FRAME
        {
            self.outbox.push(Some(to), frame);
        }
    }

    fn flush(&mut self) {
        if !self.outbox.is_empty() {
            // An unreachable client is its own affair; it asks again.
            let _ = self.outbox.send(&self.socket);
        }
    }
}

/// The longest frame that a datagram carries, in bytes.
pub const MAX_FRAME: usize = 65_000;

/// The client's end.
#[derive(Debug)]
pub struct UdpLink {
    socket: UdpSocket,
    inbox: Inbox,
    outbox: Outbox,
    /// How many of the inbox's buffers are filled, and what of them was handed on: whole buffers, and
    /// datagrams of the next one.
    filled: usize,
    taken: (usize, usize),
}

impl UdpLink {
    /// Makes a socket that speaks with the server at `address`. With `coalesce`, uses GSO and GRO
    /// where they are known.
    ///
    /// # Errors
    /// What the system says. Whether somebody is there is not known yet.
    pub fn open(address: SocketAddr, coalesce: bool) -> io::Result<Self> {
        let local: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(local)?;
        socket.connect(address)?;
        let coalesce = prepare(&socket, coalesce)?;
        Ok(Self {
            socket,
            inbox: Inbox::new(MESSAGES, LONGEST, coalesce),
            outbox: Outbox::new(coalesce),
            filled: 0,
            taken: (0, 0),
        })
    }
}

impl Link for UdpLink {
    fn is_reliable(&self) -> bool {
        false
    }

    fn send(&mut self, frame: &[u64]) -> Result<(), LinkError> {
        self.outbox.push(None, frame);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(self.outbox.send(&self.socket)?)
    }

    fn receive(&mut self, frame: &mut Vec<u64>) -> Result<bool, LinkError> {
        if self.taken.0 == self.filled {
            (self.filled, self.taken) = (self.inbox.receive(&self.socket)?, (0, 0));
        }
        while self.taken.0 < self.filled {
            if let Some(datagram) = self.inbox.datagrams(self.taken.0).nth(self.taken.1) {
                frame.extend_from_slice(datagram);
                self.taken.1 += 1;
                return Ok(true);
            }
            self.taken = (self.taken.0 + 1, 0);
        }
        Ok(false)
    }
}
