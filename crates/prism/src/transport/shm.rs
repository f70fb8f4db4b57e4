//! Memory that a client and the server share.
//!
//! A client connects to the server's Unix socket and is handed a sealed piece of memory with two
//! rings (`ring`), one each way. The socket stays open and carries nothing more: when either side's
//! process ends, however it ends, the other one sees the socket close.

use super::ring::{self, Reader, Writer};
use super::{Link, LinkError, Port};
use crate::engine::{Batch, Peer, next_link};
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
use std::time::Duration;
use tercio_unsafe_sys::Words;

/// What the server sends along with the memory, so that both mean the same layout.
const LAYOUT: [u8; 8] = *b"prism-r3";
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
        if send_memory(&stream, file).is_ok() {
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

    fn flush(&mut self) {}
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
        let file = receive_memory(&stream)?;
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
