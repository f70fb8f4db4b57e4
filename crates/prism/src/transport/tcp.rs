//! Streams: one frame behind the other, each as long as its header says.

use super::{Link, LinkError, Port};
use crate::engine::{Batch, Peer, next_link};
use crate::op::Reject;
use crate::wire::{ANSWER_HEADER, REQUEST_HEADER, answer_words, request_words};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use zerocopy::IntoBytes;

/// A client that lets this many bytes of answers wait is cut off.
const MAX_UNSENT: usize = 4 << 20;
const READ_AT_ONCE: usize = 64 << 10;
/// How often a port looks for new clients, in polls.
const LOOK_EVERY: u32 = 64;
const MAX_CLIENTS: usize = 256;

/// A stream with what has arrived and what is to be sent.
#[derive(Debug)]
struct Framed {
    stream: TcpStream,
    /// Received bytes, in words so that frames are aligned; `received` bytes of them count, and
    /// frames begin at `taken`.
    input: Vec<u64>,
    received: usize,
    taken: usize,
    output: Vec<u8>,
}

impl Framed {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), received: 0, taken: 0, output: Vec::new() })
    }

    /// Takes in what has arrived. False when the other side is gone.
    fn fill(&mut self) -> io::Result<bool> {
        if self.taken * 8 == self.received {
            (self.taken, self.received) = (0, 0);
        } else if self.taken * 8 > READ_AT_ONCE {
            self.input.copy_within(self.taken..self.received.div_ceil(8), 0);
            self.received -= self.taken * 8;
            self.taken = 0;
        }
        let room = self.received + READ_AT_ONCE;
        if self.input.len() * 8 < room {
            self.input.resize(room.div_ceil(8), 0);
        }
        match self.stream.read(&mut self.input.as_mut_bytes()[self.received..]) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.received += count;
                Ok(true)
            }
            Err(error) if is_nothing(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The next whole frame, by what `length` reads from its first `HEADER` words.
    fn frame<const HEADER: usize>(
        &mut self,
        length: impl Fn(&[u64; HEADER]) -> Result<usize, Reject>,
    ) -> Result<Option<&[u64]>, Reject> {
        let rest = &self.input[self.taken..self.received / 8];
        let Some(head) = rest.first_chunk::<HEADER>() else { return Ok(None) };
        let length = length(head)?;
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        self.taken += length;
        Ok(Some(frame))
    }

    fn push(&mut self, frame: &[u64]) {
        self.output.extend_from_slice(frame.as_bytes());
    }

    /// Sends what it can.
    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let result = loop {
            if sent == self.output.len() {
                break Ok(());
            }
            match self.stream.write(&self.output[sent..]) {
                Ok(count) => sent += count,
                Err(error) if is_nothing(&error) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.output.drain(..sent);
        result
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The server's end.
#[derive(Debug)]
pub struct TcpPort {
    listener: TcpListener,
    clients: Vec<(u64, Framed, bool)>,
    polls: u32,
}

impl TcpPort {
    /// Waits for clients at an address.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, clients: Vec::new(), polls: 0 })
    }

    /// The address.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Port for TcpPort {
    fn is_reliable(&self) -> bool {
        true
    }

    fn poll(
        &mut self,
        batch: &mut Batch,
        lost: &mut Vec<Peer>,
        _: &mut dyn FnMut(&[u64]),
    ) -> io::Result<()> {
        self.polls = self.polls.saturating_add(1);
        if self.polls >= LOOK_EVERY || self.clients.is_empty() {
            self.polls = 0;
            match self.listener.accept() {
                Ok((stream, _)) if self.clients.len() < MAX_CLIENTS => {
                    if let Ok(framed) = Framed::new(stream) {
                        self.clients.push((next_link(), framed, true));
                    }
                }
                // One too many, or one that is gone again.
                Ok(_) | Err(_) => {}
            }
        }
        self.clients.retain_mut(|(id, framed, here)| {
            let peer = Peer::Link(*id);
            *here = *here && framed.fill().unwrap_or(false);
            while *here {
                match framed.frame::<REQUEST_HEADER>(request_words) {
                    Ok(Some(frame)) => batch.push(peer, frame),
                    Ok(None) => break,
                    Err(_) => *here = false,
                }
            }
            if !*here {
                lost.push(peer);
            }
            *here
        });
        Ok(())
    }

    fn send(&mut self, to: Peer, frame: &[u64]) {
        let Peer::Link(to) = to else { return };
        if let Some((_, framed, here)) = self.clients.iter_mut().find(|(id, ..)| *id == to) {
            framed.push(frame);
            *here = *here && framed.output.len() <= MAX_UNSENT;
        }
    }

    fn look(&mut self) {
        self.polls = LOOK_EVERY;
    }

    fn flush(&mut self) {
        for (_, framed, here) in &mut self.clients {
            if !framed.output.is_empty() {
                *here = *here && framed.flush().is_ok();
            }
        }
    }
}

/// The client's end.
#[derive(Debug)]
pub struct TcpLink(Framed);

impl TcpLink {
    /// Connects.
    ///
    /// # Errors
    /// When nobody is there.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(Framed::new(TcpStream::connect(address)?)?))
    }
}

impl Link for TcpLink {
    fn is_reliable(&self) -> bool {
        true
    }

    fn send(&mut self, frame: &[u64]) -> Result<(), LinkError> {
        self.0.push(frame);
        if self.0.output.len() > MAX_UNSENT { Err(LinkError::Full) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(self.0.flush()?)
    }

    fn receive(&mut self, frame: &mut Vec<u64>) -> Result<bool, LinkError> {
        for fresh in [false, true] {
            if fresh {
                if !self.0.output.is_empty() {
                    self.0.flush()?;
                }
                if !self.0.fill()? {
                    return Err(LinkError::Closed);
                }
            }
            match self.0.frame::<ANSWER_HEADER>(answer_words) {
                Ok(Some(words)) => {
                    frame.extend_from_slice(words);
                    return Ok(true);
                }
                Ok(None) => {}
                Err(_) => return Err(LinkError::Garbage),
            }
        }
        Ok(false)
    }
}
