//! The receive buffer of a link. Bytes are read into a chunk, and whole frames are handed out as
//! slices of it; only the tail of a frame that does not fit moves to the next chunk. Whoever keeps
//! a short frame for long keeps its chunk.

use crate::FrameError;
use bytes::{Bytes, BytesMut};
use std::io::{self, Read};
use tercio_wire::FrameHeader;

/// The size of a quiet link's chunk.
const MIN_CHUNK: usize = 16 << 10;
/// The size of a busy link's chunk.
const MAX_CHUNK: usize = 256 << 10;
/// The least room worth a system call.
const MIN_ROOM: usize = 2 << 10;

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Bytes received, then room. All of it is initialised, so that `read` can take it.
    chunk: BytesMut,
    filled: usize,
    next_chunk: usize,
}

/// What a read brought.
pub(crate) struct Filled {
    /// How many bytes; zero at the end of the stream.
    pub(crate) bytes: usize,
    /// Whether there may be more at once.
    pub(crate) maybe_more: bool,
}

impl Inbox {
    /// What was received and not yet taken.
    pub(crate) fn received(&self) -> &[u8] {
        &self.chunk[..self.filled]
    }

    /// Takes the first `n` received bytes.
    pub(crate) fn take(&mut self, n: usize) -> Bytes {
        assert!(n <= self.filled, "only received bytes are taken");
        self.filled -= n;
        self.chunk.split_to(n).freeze()
    }

    /// Drops everything that was received.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    /// One read.
    pub(crate) fn fill(&mut self, from: &mut impl Read) -> io::Result<Filled> {
        self.make_room();
        let room = &mut self.chunk[self.filled..];
        let size = room.len();
        let bytes = from.read(room)?;
        self.filled += bytes;
        let maybe_more = bytes == size;
        self.next_chunk = if maybe_more {
            (self.next_chunk * 2).clamp(2 * MIN_CHUNK, MAX_CHUNK)
        } else if bytes < self.next_chunk / 16 {
            (self.next_chunk / 2).max(MIN_CHUNK)
        } else {
            self.next_chunk
        };
        Ok(Filled { bytes, maybe_more })
    }

    /// Moves to a new chunk when this one is used up. A long frame gets room in proportion to what
    /// has come of it, so that announcing a frame costs a peer as much as it costs us.
    fn make_room(&mut self) {
        if self.chunk.len() - self.filled >= MIN_ROOM {
            return;
        }
        let size = self.next_chunk.max(MIN_CHUNK).max(4 * self.filled);
        let mut chunk = BytesMut::zeroed(size);
        chunk[..self.filled].copy_from_slice(&self.chunk[..self.filled]);
        self.chunk = chunk;
    }

    /// The next whole frame, at most `limit` bytes long; `None` while more must come.
    pub(crate) fn next_frame(&mut self, limit: usize) -> Result<Option<Bytes>, FrameError> {
        let Some(header) = FrameHeader::peek(self.received())? else { return Ok(None) };
        let found = header.frame_len();
        if found > limit {
            return Err(FrameError::TooLong { found, limit });
        }
        if found > self.filled {
            return Ok(None);
        }
        Ok(Some(self.take(found)))
    }
}
