//! Rings in memory that a client and the server share.
//!
//! A client connects to the server's Unix socket and is handed a sealed piece of memory with two
//! rings, one each way. The socket stays open and carries nothing more: when either side's process
//! ends, however it ends, the other one sees the socket close.
//!
//! A ring has one writer and one reader, and is an array of cache lines. A frame begins with a line
//! and lies there as it is: its first word, which is never zero, is written last and thereby
//! publishes it, and its length is what its header states. Before that the writer puts a zero where
//! the next frame will begin, so that the reader, looking there, finds zero or the truth and never
//! an old word. The reader tells how far it has read, in a word of its own cache line. A frame so
//! costs one transfer of its own lines between the processors and nothing else; a request of one
//! operation without data is one line.
//!
//! The other side may write anything anywhere at any time: lengths are checked against what a frame
//! can have, words are copied out before they are looked at, indices are always within the ring.

use super::{Link, LinkError, Port};
use crate::engine::{Batch, Peer, next_link};
use crate::op::Reject;
use crate::wire::{answer_words, request_words};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use tercio_unsafe_sys::{Words, prefetch_to_write};

/// The rings' lengths in words, powers of two: twice the longest frame and more.
const REQUEST_RING: usize = 8192;
const ANSWER_RING: usize = 32_768;
/// Before each ring's words: how far its reader is, in a cache line of its own.
const RING_HEADER: usize = 16;
const TOTAL: usize = 2 * RING_HEADER + REQUEST_RING + ANSWER_RING;
/// Words of a cache line.
const LINE: usize = 8;
/// What the server sends along with the memory, so that both mean the same layout.
const LAYOUT: [u8; 8] = *b"prism-r2";
/// How often a port looks for new clients and for those that are gone, in polls.
const LOOK_EVERY: u32 = 4096;
/// The most frames that are taken from one client in one poll: others want their turn.
const TURN: usize = 64;

/// One direction's words in the shared memory.
#[derive(Clone, Debug)]
struct Ring {
    words: Arc<Words>,
    start: usize,
    size: usize,
}

impl Ring {
    fn requests(words: &Arc<Words>) -> Self {
        Self { words: Arc::clone(words), start: 0, size: REQUEST_RING }
    }

    fn answers(words: &Arc<Words>) -> Self {
        let start = RING_HEADER + REQUEST_RING;
        Self { words: Arc::clone(words), start, size: ANSWER_RING }
    }

    fn read_until(&self) -> &std::sync::atomic::AtomicU64 {
        &self.words[self.start]
    }

    fn at(&self, position: u64) -> &std::sync::atomic::AtomicU64 {
        let index = position as usize & (self.size - 1);
        &self.words[self.start + RING_HEADER + index]
    }

    /// The line that begins at `position`.
    fn line(&self, position: u64) -> &[std::sync::atomic::AtomicU64; LINE] {
        let first = self.start + RING_HEADER + (position as usize & (self.size - LINE));
        self.words[first..].first_chunk().expect("a ring is made of lines")
    }

    /// The `count` words from `position` on, as the two runs in which they lie.
    fn runs(&self, position: u64, count: usize) -> [&[std::sync::atomic::AtomicU64]; 2] {
        let data = &self.words[self.start + RING_HEADER..][..self.size];
        let first = position as usize & (self.size - 1);
        let straight = count.min(self.size - first);
        [&data[first..first + straight], &data[..count - straight]]
    }

    fn store(&self, position: u64, words: &[u64]) {
        let [first, second] = self.runs(position, words.len());
        let (head, tail) = words.split_at(first.len());
        for (word, value) in first.iter().zip(head).chain(second.iter().zip(tail)) {
            word.store(*value, Relaxed);
        }
    }
}

#[derive(Debug)]
struct Writer {
    ring: Ring,
    written: u64,
    /// As of the last look: the reader may be further.
    read_until: u64,
}

impl Writer {
    const fn new(ring: Ring) -> Self {
        Self { ring, written: 0, read_until: 0 }
    }

    /// False when there is no room now.
    fn push(&mut self, frame: &[u64]) -> bool {
        let Some((first, _)) = frame.split_first() else { return true };
        assert_ne!(*first, 0, "no frame begins with a zero");
        let next = self.written + (frame.len() as u64).next_multiple_of(LINE as u64);
        let need = next - self.written + LINE as u64;
        // What the reader claims is no more than a hint: a lie spoils its own ring.
        let size = self.ring.size as u64;
        if self.written.wrapping_sub(self.read_until).saturating_add(need) > size {
            self.read_until = self.ring.read_until().load(Acquire);
            if self.written.wrapping_sub(self.read_until).saturating_add(need) > size {
                return false;
            }
        }
        self.ring.at(next).store(0, Relaxed);
        // The reader keeps taking the first line to look at it. Written last and at one go, the line
        // is fetched back once, not for the words and again for the first of them.
        let (near, far) = frame.split_at(frame.len().min(LINE));
        self.ring.store(self.written + LINE as u64, far);
        self.ring.store(self.written + 1, &near[1..]);
        self.ring.at(self.written).store(*first, Release);
        // The next frame will be about as long. Its further lines still are the reader's, and so is
        // the one behind it, which gets the zero.
        for ahead in (LINE as u64..=next - self.written).step_by(LINE) {
            prefetch_to_write(self.ring.at(next + ahead));
        }
        self.written = next;
        true
    }
}

#[derive(Debug)]
struct Reader {
    ring: Ring,
    read: u64,
    told: u64,
    /// How many words the frame with these first ones has.
    length: fn(&[u64; LINE]) -> Result<usize, Reject>,
}

impl Reader {
    fn new(ring: Ring, length: fn(&[u64; LINE]) -> Result<usize, Reject>) -> Self {
        Self { ring, read: 0, told: 0, length }
    }

    /// Appends the next frame's words. `Ok(false)` when there is none, an error when what is there
    /// can be none.
    #[inline]
    fn pop(&mut self, out: &mut Vec<u64>) -> Result<bool, LinkError> {
        let line = self.ring.line(self.read);
        let first = line[0].load(Acquire);
        if first == 0 {
            return Ok(false);
        }
        let mut head = [first; LINE];
        for (head, word) in head[1..].iter_mut().zip(&line[1..]) {
            *head = word.load(Relaxed);
        }
        let length = (self.length)(&head).map_err(|_| LinkError::Garbage)?;
        out.extend_from_slice(&head[..length.min(LINE)]);
        if length > LINE {
            let [straight, wrapped] = self.ring.runs(self.read + LINE as u64, length - LINE);
            out.extend(straight.iter().map(|word| word.load(Relaxed)));
            out.extend(wrapped.iter().map(|word| word.load(Relaxed)));
        }
        self.read += length.next_multiple_of(LINE) as u64;
        Ok(true)
    }

    /// Lets the writer have the room of what was read, once it is worth a cache line's transfer.
    fn tell(&mut self) {
        if self.read - self.told > self.ring.size as u64 / 8 {
            self.ring.read_until().store(self.read, Release);
            self.told = self.read;
        }
    }
}

/// A frame's header, which is shorter than a line.
fn first<const HEADER: usize>(head: &[u64; LINE]) -> &[u64; HEADER] {
    head.first_chunk().expect("headers are shorter than a line")
}

/// The server's end.
#[derive(Debug)]
pub struct ShmPort {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<ShmClient>,
    polls: u32,
}

#[derive(Debug)]
struct ShmClient {
    id: u64,
    stream: UnixStream,
    requests: Reader,
    answers: Writer,
    cut_off: bool,
}

impl ShmPort {
    /// Waits for clients at a Unix socket, which only this user can open. What is left of an
    /// earlier server there is replaced; a server that still runs is not.
    ///
    /// # Errors
    /// When the path cannot be used.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            let what = format!("{}: another server is waiting there", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket_file()) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.to_owned(), clients: Vec::new(), polls: 0 })
    }

    fn accept(&mut self) -> io::Result<()> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        let (words, file) = Words::shared("tercio-prism", TOTAL)?;
        let words = Arc::new(words);
        let (requests, answers) = (Ring::requests(&words), Ring::answers(&words));
        // One that is gone again already is not worth a word.
        if send_memory(&stream, file).is_ok() {
            self.clients.push(ShmClient {
                id: next_link(),
                stream,
                requests: Reader::new(requests, |head| request_words(first(head))),
                answers: Writer::new(answers),
                cut_off: false,
            });
        }
        Ok(())
    }
}

trait IsSocketFile {
    fn is_socket_file(&self) -> bool;
}

impl IsSocketFile for fs::FileType {
    fn is_socket_file(&self) -> bool {
        std::os::unix::fs::FileTypeExt::is_socket(self)
    }
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Port for ShmPort {
    fn is_reliable(&self) -> bool {
        true
    }

    fn poll(&mut self, batch: &mut Batch, lost: &mut Vec<Peer>) -> io::Result<()> {
        self.polls += 1;
        // A new client should not have to wait for a busy server's next look in vain.
        let look = self.polls >= LOOK_EVERY || self.clients.is_empty();
        if look {
            self.polls = 0;
            self.accept()?;
        }
        self.clients.retain_mut(|client| {
            let peer = Peer::Link(client.id);
            let mut here = !(client.cut_off || look && is_closed(&client.stream));
            for _ in 0..TURN {
                match batch.push_with(peer, |words| client.requests.pop(words)) {
                    Ok(true) if here => {}
                    Ok(_) => break,
                    Err(_) => {
                        here = false;
                        break;
                    }
                }
            }
            client.requests.tell();
            if !here {
                lost.push(peer);
            }
            here
        });
        Ok(())
    }

    fn send(&mut self, to: Peer, frame: &[u64]) {
        let Peer::Link(id) = to else { return };
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id)
            && !client.answers.push(frame)
        {
            // Its window of requests has room for all answers that it can have asked for, unless
            // it asks for the longest ones and takes none.
            client.cut_off = true;
        }
    }

    fn flush(&mut self) {}
}

/// The client's end.
#[derive(Debug)]
pub struct ShmLink {
    stream: UnixStream,
    requests: Writer,
    answers: Reader,
    polls: u32,
}

impl ShmLink {
    /// Connects to the server at a Unix socket.
    ///
    /// # Errors
    /// When there is none, or it is of another version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let file = receive_memory(&stream)?;
        stream.set_nonblocking(true)?;
        let words = Arc::new(Words::of_shared(&file, TOTAL)?);
        let (requests, answers) = (Ring::requests(&words), Ring::answers(&words));
        Ok(Self {
            stream,
            requests: Writer::new(requests),
            answers: Reader::new(answers, |head| answer_words(first(head))),
            polls: 0,
        })
    }
}

impl Link for ShmLink {
    fn is_reliable(&self) -> bool {
        true
    }

    fn send(&mut self, frame: &[u64]) -> Result<(), LinkError> {
        while !self.requests.push(frame) {
            // The server will take something away in a moment, if it is there.
            self.polls += 1;
            if self.polls.is_multiple_of(LOOK_EVERY) && is_closed(&self.stream) {
                return Err(LinkError::Closed);
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn receive(&mut self, frame: &mut Vec<u64>) -> Result<bool, LinkError> {
        let got = self.answers.pop(frame)?;
        if got {
            self.answers.tell();
        } else {
            self.polls = self.polls.wrapping_add(1);
            if self.polls.is_multiple_of(LOOK_EVERY * 16) && is_closed(&self.stream) {
                return Err(LinkError::Closed);
            }
        }
        Ok(got)
    }
}

/// The other side sends nothing after the memory, so anything but 'would block' is an end.
fn is_closed(mut stream: &UnixStream) -> bool {
    !matches!(stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn send_memory(stream: &UnixStream, file: OwnedFd) -> io::Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)), "there is room for one");
    sendmsg(stream, &[IoSlice::new(&LAYOUT)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_memory(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut layout = [0; LAYOUT.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut layout)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next();
    match file {
        Some(file) if got.bytes == LAYOUT.len() && layout == LAYOUT => Ok(file),
        _ => {
            let what = "what waits there is no PRISM server of this version";
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Capability;
    use crate::rng::Rng;
    use crate::wire::{self, Header, Kind, MAX_REQUEST, REQUEST_HEADER};

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
        let words = Arc::new(Words::private(TOTAL, false).unwrap());
        let ring = || Ring::requests(&words);
        let (mut writer, mut reader) =
            (Writer::new(ring()), Reader::new(ring(), |head| request_words(first(head))));
        let (mut rng, mut waiting) = (Rng::new(1), std::collections::VecDeque::new());
        let (mut full, mut got) = (0, Vec::new());
        for number in 0..20_000 {
            let longest = if rng.percent(5) { MAX_REQUEST } else { 4 * LINE };
            let length = REQUEST_HEADER as u64 + rng.below((longest - REQUEST_HEADER + 1) as u64);
            let frame = frame(length as usize, number);
            while !writer.push(&frame) {
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
        for bad in [[1; LINE], [u64::MAX; LINE], [0x5250; LINE]] {
            let words = Arc::new(Words::private(TOTAL, false).unwrap());
            let (mut writer, mut reader) = (
                Writer::new(Ring::requests(&words)),
                Reader::new(Ring::requests(&words), |head| request_words(first(head))),
            );
            let mut long = bad;
            long[4] = u64::from(u32::MAX);
            assert!(writer.push(&long));
            assert!(matches!(reader.pop(&mut Vec::new()), Err(LinkError::Garbage)), "{bad:?}");
        }
    }
}
