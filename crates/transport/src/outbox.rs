//! The send queue of a link.

use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// How many frames go into one system call.
const MAX_SLICES: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Bytes>,
    /// How many bytes of the front have been written.
    written: usize,
    /// How many bytes are still to be written.
    bytes: usize,
}

impl Outbox {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn frames(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.queue.push_back(bytes);
        }
    }

    /// Writes what the system takes; true when all is written.
    pub(crate) fn write(&mut self, to: &mut impl Write) -> io::Result<bool> {
        while !self.queue.is_empty() {
            let first = &self.queue[0][self.written..];
            let (written, offered) = match self.queue.len() {
                1 => (to.write(first), first.len()),
                waiting => {
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    let slices = &mut slices[..waiting.min(MAX_SLICES)];
                    for (slice, bytes) in slices.iter_mut().zip(&self.queue) {
                        *slice = IoSlice::new(bytes);
                    }
                    slices[0] = IoSlice::new(first);
                    (to.write_vectored(slices), slices.iter().map(|s| s.len()).sum())
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.advance(n);
                    if n < offered {
                        return Ok(false);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn advance(&mut self, n: usize) {
        self.bytes -= n;
        self.written += n;
        while let Some(front) = self.queue.front() {
            if self.written < front.len() {
                break;
            }
            self.written -= front.len();
            self.queue.pop_front();
        }
    }
}
