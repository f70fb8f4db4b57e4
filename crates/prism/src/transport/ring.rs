//! Rings of frames in memory that two processes share.
//!
//! A ring has one writer and one reader, and is an array of slots. A frame begins with a slot and
//! goes on in those behind it. The first word of each slot is its *stamp*, whose low 16 bits are the
//! number of the lap, from 1 on. No other word lies there, ever, so that the reader, looking at the
//! next slot, finds the stamp of the lap before, or a zero in the first one, until the writer comes
//! by: neither what a frame says nor what an earlier one said can be taken for a stamp. The stamp of
//! a frame's first slot is the frame's first word, with the lap in place of the magic number that all
//! frames have there; it is written last and thereby publishes the frame. The length is what the
//! header states. The reader tells how far it has read, in a word of its own cache line.
//!
//! A frame so costs one transfer of the lines that it fills and nothing else: a request of one
//! operation without data is one line. (To announce a frame in a word elsewhere, or to clear the word
//! that the reader will look at next, would each cost another line's way to the other processor.)
//!
//! A frame that comes alone has its other lines sent to the cache that both processors share before
//! the first is stored: the reader gets each of them sooner from there.
//!
//! The other side may write anything anywhere at any time: lengths are checked against what a frame
//! can have, words are copied out before they are looked at, indices are always within the ring.

use super::LinkError;
use crate::op::Reject;
use crate::wire::{MAGIC, answer_words, request_words};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use tercio_unsafe_sys::{Words, demote, load_words, prefetch_to_write, store_words};

/// Words of a cache line.
const LINE: usize = 8;
/// Words of a slot: most frames fit in one. Not a power of two, so that the lines in which frames
/// begin are spread over a cache's sets.
const SLOT: usize = 17 * LINE;
/// The rings' lengths in slots, powers of two: a window of short frames, and several longest ones.
const REQUEST_SLOTS: usize = 128;
const ANSWER_SLOTS: usize = 256;
/// Before each ring's words: how far its reader is, in a cache line of its own.
const RING_HEADER: usize = 16;
/// The words of both rings.
pub const WORDS: usize = 2 * RING_HEADER + (REQUEST_SLOTS + ANSWER_SLOTS) * SLOT;
/// How many slots ahead a writer prefetches the lines that it will write.
const AHEAD: u64 = 4;

/// One direction's words in the shared memory. Positions count slots, from 0 on and without end.
#[derive(Clone, Debug)]
struct Ring {
    words: Arc<Words>,
    start: usize,
    /// A power of two.
    slots: usize,
}

impl Ring {
    fn requests(words: &Arc<Words>) -> Self {
        Self { words: Arc::clone(words), start: 0, slots: REQUEST_SLOTS }
    }

    fn answers(words: &Arc<Words>) -> Self {
        let start = RING_HEADER + REQUEST_SLOTS * SLOT;
        Self { words: Arc::clone(words), start, slots: ANSWER_SLOTS }
    }

    fn read_until(&self) -> &AtomicU64 {
        &self.words[self.start]
    }

    #[inline]
    fn slot(&self, position: u64) -> &[AtomicU64; SLOT] {
        let first = self.start + RING_HEADER + (position as usize & (self.slots - 1)) * SLOT;
        self.words[first..].first_chunk().expect("a ring is made of slots")
    }

    /// What the stamp at `position` ends with once the writer has been there. It differs from that
    /// of one lap before, also where the number begins again, and from the zero of no lap.
    #[inline]
    fn lap(&self, position: u64) -> u16 {
        ((position >> self.slots.trailing_zeros()) + 1) as u16
    }
}

/// How many slots a frame of this many words takes. Its first word travels in the first stamp.
fn slots(words: usize) -> usize {
    (words - 1).div_ceil(SLOT - 1).max(1)
}

/// A ring's writing end.
#[derive(Debug)]
pub struct Writer {
    ring: Ring,
    written: u64,
    /// As of the last look: the reader may be further.
    read_until: u64,
    /// Words of the last frame in its first slot.
    last: usize,
}

impl Writer {
    const fn new(ring: Ring) -> Self {
        Self { ring, written: 0, read_until: 0, last: 0 }
    }

    /// The client's.
    pub fn of_requests(words: &Arc<Words>) -> Self {
        Self::new(Ring::requests(words))
    }

    /// The server's.
    pub fn of_answers(words: &Arc<Words>) -> Self {
        Self::new(Ring::answers(words))
    }

    /// Writes a frame. False when there is no room now.
    ///
    /// `alone`: no other frame follows soon. Then the reader waits for this one, and finds the lines
    /// behind the first sooner in the cache that both share than in this processor's; the first one it
    /// polls all the time. Where frames follow each other, sending lines there is work that nobody
    /// waits for.
    #[inline]
    pub fn push(&mut self, frame: &[u64], alone: bool) -> bool {
        let (begin, behind) = frame.split_at(frame.len().min(SLOT));
        let ([first, near @ ..], far) = begin.split_at(begin.len().min(LINE)) else {
            return true;
        };
        assert_eq!(*first as u16, MAGIC, "every frame begins so");
        let need = slots(frame.len()) as u64;
        // What the reader claims is no more than a hint: a lie spoils its own ring.
        let size = self.ring.slots as u64;
        if self.written.wrapping_sub(self.read_until).saturating_add(need) > size {
            self.read_until = self.ring.read_until().load(Acquire);
            if self.written.wrapping_sub(self.read_until).saturating_add(need) > size {
                return false;
            }
        }
        for (position, words) in (self.written + 1..).zip(behind.chunks(SLOT - 1)) {
            let [stamp, slot @ ..] = self.ring.slot(position);
            stamp.store(u64::from(self.ring.lap(position)), Relaxed);
            store_words(words, slot);
        }
        // The reader keeps taking the first line to look at it. Written last and at one go, the line
        // is fetched back once, not for the words and again for the first of them.
        let slot = self.ring.slot(self.written);
        store_words(far, &slot[LINE..]);
        if alone {
            demote(&slot[LINE..][..far.len()]);
        }
        store_words(near, &slot[1..]);
        let stamp = first - u64::from(MAGIC) + u64::from(self.ring.lap(self.written));
        slot[0].store(stamp, Release);
        self.written += need;
        self.last = begin.len();
        true
    }

    /// A frame is about to be made: prefetches its first line for writing meanwhile, which is the
    /// reader's as long as it polls there.
    #[inline]
    pub fn make_way(&self) {
        prefetch_to_write(&self.ring.slot(self.written)[..1]);
    }

    /// More frames follow the last one: prefetches the lines of one of them for writing, which will be
    /// as long. They still are the reader's, which has no use for them any more; fetched now, they do not hold up
    /// what is stored behind them. Not for a frame that comes alone: its own lines would have to wait
    /// for these.
    #[inline]
    pub fn prepare(&self) {
        prefetch_to_write(&self.ring.slot(self.written + AHEAD)[..self.last]);
    }
}

/// A ring's reading end.
#[derive(Debug)]
pub struct Reader {
    ring: Ring,
    read: u64,
    told: u64,
    /// How many words the frame with these first ones has.
    length: fn(&[u64; LINE]) -> Result<usize, Reject>,
}

impl Reader {
    /// The server's.
    pub fn of_requests(words: &Arc<Words>) -> Self {
        let ring = Ring::requests(words);
        Self { ring, read: 0, told: 0, length: |head| request_words(first(head)) }
    }

    /// The client's.
    pub fn of_answers(words: &Arc<Words>) -> Self {
        let ring = Ring::answers(words);
        Self { ring, read: 0, told: 0, length: |head| answer_words(first(head)) }
    }

    /// Appends the next frame's words. `Ok(false)` when there is none, an error when what is there
    /// can be none.
    #[inline]
    pub fn pop(&mut self, out: &mut Vec<u64>) -> Result<bool, LinkError> {
        let slot = self.ring.slot(self.read);
        let stamp = slot[0].load(Acquire);
        let lap = self.ring.lap(self.read);
        if stamp as u16 != lap {
            return Ok(false);
        }
        // Copied before they are looked at: the writer may change them meanwhile.
        let start = out.len();
        load_words(&slot[..LINE], out);
        out[start] = stamp - u64::from(lap) + u64::from(MAGIC);
        let head = out[start..].first_chunk().expect("a line was appended");
        let length = (self.length)(head).map_err(|_| LinkError::Garbage)?;
        out.truncate(start + length);
        load_words(&slot[LINE..length.clamp(LINE, SLOT)], out);
        let mut left = length.saturating_sub(SLOT);
        while left > 0 {
            self.read += 1;
            let words = left.min(SLOT - 1);
            load_words(&self.ring.slot(self.read)[1..][..words], out);
            left -= words;
        }
        self.read += 1;
        Ok(true)
    }

    /// Lets the writer have the room of what was read, once it is worth a cache line's transfer.
    pub fn tell(&mut self) {
        if self.read - self.told > self.ring.slots as u64 / 8 {
            self.ring.read_until().store(self.read, Release);
            self.told = self.read;
        }
    }
}

/// A frame's header, which is shorter than a line.
fn first<const HEADER: usize>(head: &[u64; LINE]) -> &[u64; HEADER] {
    head.first_chunk().expect("headers are shorter than a line")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Capability;
    use crate::rng::Rng;
    use crate::wire::{self, Header, Kind, MAX_REQUEST, REQUEST_HEADER};

    fn memory() -> Arc<Words> {
        Arc::new(Words::private(WORDS, false).unwrap())
    }

    /// A request whose body is numbers.
    fn frame(words: usize, number: u64) -> Vec<u64> {
        let header = Header { kind: Kind::Call, connection: 1, number, capability: Capability(0) };
        let mut frame = Vec::new();
        wire::begin_request(&mut frame, &header);
        frame.resize(words, number);
        wire::finish_request(&mut frame, 0, 0).unwrap();
        frame
    }

    #[test]
    fn frames_of_all_lengths_are_read_as_they_were_written() {
        let words = memory();
        let (mut writer, mut reader) = (Writer::of_requests(&words), Reader::of_requests(&words));
        let (mut rng, mut waiting) = (Rng::new(1), std::collections::VecDeque::new());
        let (mut full, mut got) = (0, Vec::new());
        for number in 0..20_000 {
            let longest = if rng.percent(5) { MAX_REQUEST } else { 2 * SLOT };
            let length = REQUEST_HEADER as u64 + rng.below((longest - REQUEST_HEADER + 1) as u64);
            let frame = frame(length as usize, number);
            while !writer.push(&frame, number.is_multiple_of(2)) {
                full += 1;
                got.clear();
                assert!(reader.pop(&mut got).unwrap());
                assert_eq!(Some(&got), waiting.pop_front().as_ref());
                reader.tell();
            }
            waiting.push_back(frame);
        }
        for frame in waiting {
            got.clear();
            assert!(reader.pop(&mut got).unwrap());
            assert_eq!(got, frame);
        }
        assert!(!reader.pop(&mut got).unwrap(), "nothing is left");
        assert!(full > 0, "the ring was never full");
    }

    #[test]
    fn what_is_no_frame_ends_the_ring() {
        for bad in [0, 1, u64::MAX, 0x5250] {
            let words = memory();
            let ring = Ring::requests(&words);
            store_words(&[bad; LINE], ring.slot(0));
            ring.slot(0)[4].store(u64::from(u32::MAX), Relaxed);
            ring.slot(0)[0].store(bad & !0xffff | u64::from(ring.lap(0)), Relaxed);
            let mut reader = Reader::of_requests(&words);
            assert!(matches!(reader.pop(&mut Vec::new()), Err(LinkError::Garbage)), "{bad:x}");
        }
    }

    /// Whatever earlier frames say and wherever their ends lie, in the first laps and in those in
    /// which their number begins again.
    #[test]
    fn old_words_are_no_frame() {
        for begin in [0, 0xfff0 * REQUEST_SLOTS as u64] {
            let words = memory();
            let ring = Ring::requests(&words);
            let (mut writer, mut reader) =
                (Writer::of_requests(&words), Reader::of_requests(&words));
            (writer.written, writer.read_until, reader.read, reader.told) =
                (begin, begin, begin, begin);
            ring.read_until().store(begin, Relaxed);
            for position in begin.saturating_sub(REQUEST_SLOTS as u64)..begin {
                ring.slot(position)[0].store(u64::from(ring.lap(position)), Relaxed);
            }
            let (mut rng, mut got) = (Rng::new(7), Vec::new());
            while writer.written < begin + 32 * REQUEST_SLOTS as u64 {
                // Each word looks like the stamp that the next lap will have in its place.
                let next = ring.lap(writer.written).wrapping_add(1);
                let length = if rng.percent(30) { 4 * SLOT } else { REQUEST_HEADER + 1 };
                let frame = frame(length, u64::from(next));
                assert!(writer.push(&frame, false));
                got.clear();
                assert!(reader.pop(&mut got).unwrap());
                assert_eq!(got, frame);
                assert!(!reader.pop(&mut got).unwrap(), "there is nothing behind the newest frame");
                reader.tell();
            }
        }
    }
}
