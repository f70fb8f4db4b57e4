//! Memory that a client and the server share.
//!
//! A client connects to the server's Unix socket and is handed a sealed piece of memory with two
//! rings (`ring`), one each way. The socket stays open: when either side's process ends, however it ends,
//! the other one sees it close. Beyond that it carries the descriptors of memory that a client may read
//! without the server, when the server answers that question (`SCM_RIGHTS`).

use super::ring::{self, Reader, Writer};
use super::{Link, LinkError, Port};
use crate::engine::{Batch, Peer, next_link};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tercio_unsafe_sys::Words;

/// What the server sends along with the memory, so that both mean the same layout.
const LAYOUT: [u8; 8] = *b"prism-r4";
/// What comes with other files, and how many of these at once.
const FILES: [u8; 8] = *b"prism-fd";
const FILES_AT_ONCE: usize = 64;
/// How often a port looks for new clients and for those that are gone, in polls.
const LOOK_EVERY: u32 = 4096;
/// The most frames that are taken from one client in one poll: others want their turn.
const TURN: usize = 64;

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
    /// How many requests the last look found.
    taken: usize,
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
        let (words, file) = Words::shared("tercio-prism", ring::WORDS)?;
        let words = Arc::new(words);
        // One that is gone again already is not worth a word.
        if send_rings(&stream, file.as_fd()).is_ok() {
            self.clients.push(ShmClient {
                id: next_link(),
                stream,
                requests: Reader::of_requests(&words),
                answers: Writer::of_answers(&words),
                cut_off: false,
                taken: 0,
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

    fn poll(
        &mut self,
        batch: &mut Batch,
        lost: &mut Vec<Peer>,
        early: &mut dyn FnMut(&[u64]),
    ) -> io::Result<()> {
        self.polls = self.polls.saturating_add(1);
        // A new client should not have to wait for a busy server's next look in vain.
        let look = self.polls >= LOOK_EVERY || self.clients.is_empty();
        if look {
            self.polls = 0;
            self.accept()?;
        }
        self.clients.retain_mut(|client| {
            let peer = Peer::Link(client.id);
            let mut here = !(client.cut_off || look && is_closed(&client.stream));
            // What comes alone is run before anybody looks behind it: the line there is still the
            // client's, and everything would wait for it.
            let turn = if client.taken == 0 { 1 } else { TURN };
            client.taken = 0;
            while here && client.taken < turn {
                let taken = batch.push_with(peer, |words| {
                    let start = words.len();
                    let taken = client.requests.pop(words);
                    if turn == 1 && matches!(taken, Ok(true)) {
                        early(&words[start..]);
                    }
                    taken
                });
                match taken {
                    Ok(true) => client.taken += 1,
                    Ok(false) => break,
                    Err(_) => here = false,
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
        let Some(client) = self.clients.iter_mut().find(|client| client.id == id) else { return };
        // Its window of requests has room for all answers that it can have asked for, unless it asks
        // for the longest ones and takes none.
        let alone = client.taken <= 1;
        client.cut_off |= !client.answers.push(frame, alone);
        if !alone {
            client.answers.prepare();
        }
    }

    fn hand_over(&mut self, to: Peer, files: &[Arc<OwnedFd>]) {
        let Some(client) = self.clients.iter_mut().find(|client| Peer::Link(client.id) == to)
        else {
            return;
        };
        for files in files.chunks(FILES_AT_ONCE) {
            let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
            // One that asks again and again and takes nothing has filled its socket.
            client.cut_off |= send_files(&client.stream, FILES, &files).is_err();
        }
    }

    fn flush(&mut self) {}

    fn look(&mut self) {
        self.polls = LOOK_EVERY;
    }
}

/// The client's end.
#[derive(Debug)]
pub struct ShmLink {
    stream: UnixStream,
    requests: Writer,
    answers: Reader,
    /// Frames that were sent and not answered yet.
    under_way: u64,
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
        let file = receive_rings(&stream)?;
        stream.set_nonblocking(true)?;
        let words = Arc::new(Words::of_shared(&file, ring::WORDS)?);
        Ok(Self {
            stream,
            requests: Writer::of_requests(&words),
            answers: Reader::of_answers(&words),
            under_way: 0,
            polls: 0,
        })
    }
}

impl Link for ShmLink {
    fn is_reliable(&self) -> bool {
        true
    }

    fn make_way(&self) {
        self.requests.make_way();
    }

    fn send(&mut self, frame: &[u64]) -> Result<(), LinkError> {
        let alone = self.under_way == 0;
        self.under_way += 1;
        while !self.requests.push(frame, alone) {
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

    fn is_open(&self) -> bool {
        !is_closed(&self.stream)
    }

    fn files(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut files = Vec::new();
        self.stream.set_nonblocking(false)?;
        // As many times as they are sent, so that none is left for the next question.
        let received = (0..count.div_ceil(FILES_AT_ONCE)).try_for_each(|_| {
            files.extend(receive_files(&self.stream, FILES)?);
            Ok(())
        });
        self.stream.set_nonblocking(true)?;
        received.map(|()| files)
    }

    fn receive(&mut self, frame: &mut Vec<u64>) -> Result<bool, LinkError> {
        let got = self.answers.pop(frame)?;
        if got {
            self.under_way = self.under_way.saturating_sub(1);
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

/// Whether the other side is gone. What it sent stays there to be received.
fn is_closed(stream: &UnixStream) -> bool {
    let mut byte = [0_u8];
    match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, length)) => length == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

/// Hands the memory of two rings over.
///
/// # Errors
/// When the other side does not take it.
pub fn send_rings(stream: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    send_files(stream, LAYOUT, &[file])
}

/// Takes the memory of two rings; waits for it as the stream waits for bytes.
///
/// # Errors
/// When the other side hands over nothing, or something else.
pub fn receive_rings(stream: &UnixStream) -> io::Result<OwnedFd> {
    let files = receive_files(stream, LAYOUT)?;
    let file = files.into_iter().next();
    file.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, NO_SERVER))
}

fn send_files(stream: &UnixStream, what: [u8; 8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(files)), "there is room for them");
    let sent = sendmsg(stream, &[IoSlice::new(&what)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == what.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// What a client is told whose server is none.
const NO_SERVER: &str = "what waits there is no PRISM server of this version";

fn receive_files(stream: &UnixStream, what: [u8; 8]) -> io::Result<Vec<OwnedFd>> {
    let mut with = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got =
        recvmsg(stream, &mut [IoSliceMut::new(&mut with)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    if got.bytes == with.len() && with == what {
        Ok(files)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, NO_SERVER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_told_to_look_takes_the_next_client_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut port = ShmPort::bind(&path).unwrap();
        let poll = |port: &mut ShmPort| {
            port.poll(&mut Batch::default(), &mut Vec::new(), &mut |_| {}).unwrap();
            port.clients.len()
        };
        let _first = UnixStream::connect(&path).unwrap();
        assert_eq!(poll(&mut port), 1);
        let second = UnixStream::connect(&path).unwrap();
        assert_eq!(poll(&mut port), 1, "a busy one has no time");
        port.look();
        assert_eq!(poll(&mut port), 2);
        assert_eq!(receive_files(&second, LAYOUT).unwrap().len(), 1);
    }

    #[test]
    fn files_are_handed_over_whole_and_one_question_apart_from_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut port = ShmPort::bind(&path).unwrap();
        let opening = std::thread::spawn({
            let path = path.clone();
            move || ShmLink::open(&path).unwrap()
        });
        while !opening.is_finished() {
            port.poll(&mut Batch::default(), &mut Vec::new(), &mut |_| {}).unwrap();
        }
        let mut link = opening.join().unwrap();
        let to = Peer::Link(port.clients[0].id);
        let files = |count: usize| -> Vec<_> {
            let file = |_| Arc::new(Words::shared("test", 1).unwrap().1);
            (0..count).map(file).collect()
        };
        let inode = |file: &dyn AsFd| rustix::fs::fstat(file.as_fd()).unwrap().st_ino;
        for count in [1, FILES_AT_ONCE, FILES_AT_ONCE + 1, 255] {
            let sent = files(count);
            port.hand_over(to, &sent);
            assert!(link.is_open(), "what waits there is no end");
            let got = link.files(count).unwrap();
            assert!(sent.iter().map(|f| inode(&**f)).eq(got.iter().map(|f| inode(f))), "{count}");
        }
        // One that never takes what it asked for is cut off.
        let sent = files(200);
        while !port.clients[0].cut_off {
            port.hand_over(to, &sent);
        }
    }
}
