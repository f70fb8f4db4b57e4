//! The receive buffer of a link. Bytes are read into a chunk, and whole frames are handed out as
//! slices of it; only the tail of a frame that does not fit moves to the next chunk. Whoever keeps
//! a short frame for long keeps its chunk.

use crate::FrameError;
use bytes::{Bytes, BytesMut};
use std::io::{self, Read};
use tercio_wire::{FRAME_HEADER, FrameHeader, WIRE_VERSION};

/// What a replica sends when it has nothing else to say: a frame's header that announces neither key
/// nor value, which no frame has.
pub(crate) const HEARTBEAT: [u8; FRAME_HEADER] = [8, 0, 0, 0, WIRE_VERSION, 0, 0, 0, 0, 0, 0, 0];

/// The size of a quiet link's chunk.
const MIN_CHUNK: usize = 16 << 10;
/// The size of a busy link's chunk.
const MAX_CHUNK: usize = 64 << 10;
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

    /// The next whole frame, at most `limit` bytes long; `None` while more must come. Heartbeats in
    /// front of it are passed over.
    pub(crate) fn next_frame(&mut self, limit: usize) -> Result<Option<Bytes>, FrameError> {
        while self.received().starts_with(&HEARTBEAT) {
            let _ = self.take(HEARTBEAT.len());
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Authenticator, Digest, Tag};
    use tercio_wire::{Frame, Key, Kind, MAX_FRAME};

    fn frame(seq: u64, len: usize) -> Bytes {
        let key = Key { kind: Kind(16), flags: 0, sender: 0, view: 0, seq, digest: Digest::NULL };
        let body = vec![seq as u8; len].into();
        Frame { key, auth: Authenticator::Mac(Tag::default()), body }.to_bytes()
    }

    /// Gives at most `piece` bytes a read.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(room.len()).min(self.0.len());
            room[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let lengths = [0, 1, 100, 16 << 10, 3, 300 << 10, 0, 40_000];
        let sent: Vec<Bytes> = (0..).zip(lengths).map(|(i, len)| frame(i, len)).collect();
        let stream: Vec<u8> = sent.concat();
        for piece in [1, 7, 63, 64, 1000, 16 << 10, 1 << 20] {
            let mut inbox = Inbox::default();
            let mut from = Pieces(&stream, piece);
            let mut got = vec![];
            while inbox.fill(&mut from).unwrap().bytes > 0 {
                while let Some(frame) = inbox.next_frame(MAX_FRAME).unwrap() {
                    got.push(frame);
                }
            }
            assert!(got == sent, "pieces of {piece}");
            assert_eq!(inbox.received(), b"");
        }
    }

    #[test]
    fn heartbeats_between_frames_are_passed_over() {
        let (one, two) = (frame(1, 10), frame(2, 0));
        let stream = [&HEARTBEAT[..], &HEARTBEAT, &one, &HEARTBEAT, &two, &HEARTBEAT].concat();
        for piece in [1, 5, 12, 13, 1000] {
            let mut inbox = Inbox::default();
            let mut from = Pieces(&stream, piece);
            let mut got = vec![];
            while inbox.fill(&mut from).unwrap().bytes > 0 {
                while let Some(frame) = inbox.next_frame(MAX_FRAME).unwrap() {
                    got.push(frame);
                }
            }
            assert!(got == [one.clone(), two.clone()], "pieces of {piece}");
            assert_eq!(inbox.received(), b"");
        }
    }

    #[test]
    fn announcing_a_frame_takes_no_memory() {
        let long = frame(1, MAX_FRAME - 100);
        let mut inbox = Inbox::default();
        for start in (0..1 << 20).step_by(10_000) {
            inbox.fill(&mut Pieces(&long[start..start + 10_000], 10_000)).unwrap();
            assert_eq!(inbox.next_frame(MAX_FRAME), Ok(None));
            let bound = 4 * inbox.received().len() + MIN_CHUNK;
            assert!(inbox.chunk.len() <= bound, "{} above {bound}", inbox.chunk.len());
        }
        let (found, limit) = (long.len(), 1000);
        assert_eq!(inbox.next_frame(limit), Err(FrameError::TooLong { found, limit }));
    }
}
