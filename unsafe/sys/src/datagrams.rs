//! Many datagrams a system call: `recvmmsg` and `sendmmsg`, with the kernel's segmentation of one
//! long buffer into equal datagrams (`UDP_SEGMENT`) and its inverse (`UDP_GRO`). A lone datagram
//! takes the plain calls, which have fewer headers to copy. All calls go past the C library, whose
//! own are points of thread cancellation: that costs a poller a tenth of its time.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, send, sendto};
use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

/// The most datagrams that the kernel cuts out of one buffer.
pub const MAX_SEGMENTS: usize = 64;
/// The longest buffer that the kernel takes for one datagram or one run of segments.
const MAX_BYTES: usize = 65_000;
const WORD: usize = 8;
/// The most buffers of one system call.
const MAX_BUFFERS: usize = 64;
/// Room for one control message with an integer of up to four bytes, with its alignment.
type Control = [u64; 4];

/// Asks the kernel to hand on runs of equal datagrams as one buffer. [`Inbox`] takes them apart.
///
/// # Errors
/// When the kernel does not know how, or the descriptor is no datagram socket.
pub fn coalesce_on_receipt(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an integer that lives across the call, given with its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Buffers for what a call receives.
#[derive(Debug)]
pub struct Inbox {
    buffers: Vec<Vec<u64>>,
    names: Vec<libc::sockaddr_storage>,
    control: Vec<Control>,
    /// Of what the last call received: the length in bytes and that of each segment.
    received: Vec<(usize, usize)>,
    /// How many buffers the next call offers. To look for more than will come costs the kernel a
    /// second look and us the headers, which a lone datagram's latency shows.
    offer: usize,
    /// Whether a buffer may hold several datagrams.
    coalesced: bool,
}

impl Inbox {
    /// Room for `messages` buffers of `bytes` each, of a socket that was asked to coalesce or not.
    #[must_use]
    pub fn new(messages: usize, bytes: usize, coalesced: bool) -> Self {
        // SAFETY: an address of all zeros is valid, of the family 'unspecified'.
        let name: libc::sockaddr_storage = unsafe { zeroed() };
        Self {
            buffers: vec![vec![0; bytes.div_ceil(WORD)]; messages],
            names: vec![name; messages],
            control: vec![Control::default(); messages],
            received: Vec::with_capacity(messages),
            offer: 1,
            coalesced,
        }
    }

    /// Takes what has arrived, without waiting. Gives how many buffers were filled.
    ///
    /// # Errors
    /// What the system says; that nothing has arrived is none.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        self.received.clear();
        let room = self.buffers.len().min(MAX_BUFFERS);
        let offer = self.offer.min(room);
        let got = if offer == 1 && !self.coalesced {
            usize::from(self.receive_one(&socket)?)
        } else if offer == 1 {
            self.receive_up_to::<1>(socket, offer)?
        } else {
            self.receive_up_to::<MAX_BUFFERS>(socket, offer)?
        };
        self.offer = if got == offer { offer * 2 } else { got }.clamp(1, room.max(1));
        Ok(got)
    }

    /// Receives one datagram into the first buffer.
    fn receive_one(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let buffer = &mut self.buffers[0];
        // SAFETY: the words are initialised, any bytes are valid words, and bytes need no alignment;
        // the length is that of the words, which nothing else uses meanwhile.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), buffer.len() * WORD)
        };
        let room = bytes.len();
        // With TRUNC the length is the datagram's, even if that is more than there is room for.
        let (length, from) = match recvfrom(socket, bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, length, from)) => (length, from),
            // The last is what an earlier datagram of ours met; it says nothing of what arrives.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // A connected socket may leave the name out: there is one who can have sent it.
        self.names[0].ss_family = libc::AF_UNSPEC as libc::sa_family_t;
        if let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) {
            write_name(&mut self.names[0], from);
        }
        // What did not fit is not what was sent: it counts as nothing.
        let length = if length > room { 0 } else { length };
        self.received.push((length, length));
        Ok(true)
    }

    /// Receives into the first `count` buffers, at most `N`. `N` decides what is set up for it.
    fn receive_up_to<const N: usize>(
        &mut self,
        socket: impl AsFd,
        count: usize,
    ) -> io::Result<usize> {
        assert!(count <= N, "more buffers than headers");
        let mut parts = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; N];
        // SAFETY: a message header of all zeros is valid: it points nowhere.
        let mut headers: [libc::mmsghdr; N] = unsafe { zeroed() };
        for i in 0..count {
            let buffer = &mut self.buffers[i];
            parts[i].iov_base = buffer.as_mut_ptr().cast();
            parts[i].iov_len = buffer.len() * WORD;
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut parts[i];
            header.msg_iovlen = 1;
            header.msg_control = self.control[i].as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>();
        }
        // SAFETY: each of the `count` headers points to an address, one part and control room that
        // belong to `self` or this frame, are as long as stated, and live across the call; words
        // may take any bytes.
        let got = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
                null_mut::<libc::timespec>(),
            )
        };
        let Ok(got) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                // What an earlier datagram of ours met; it says nothing of what arrives.
                io::ErrorKind::ConnectionRefused => Ok(0),
                _ => Err(error),
            };
        };
        for header in &headers[..got] {
            let length = header.msg_len as usize;
            let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            // What did not fit is not what was sent: it counts as nothing.
            let length = if whole { length } else { 0 };
            self.received.push((length, segment_size(&header.msg_hdr).unwrap_or(length)));
        }
        Ok(got)
    }

    /// The datagrams in the buffer `index` of those that the last call filled. One whose length is
    /// not a multiple of eight bytes is left out: no frame has such a length.
    pub fn datagrams(&self, index: usize) -> impl Iterator<Item = &[u64]> {
        let (length, segment) = self.received[index];
        let whole = length % WORD == 0 && segment % WORD == 0 && segment > 0;
        let words = if whole { &self.buffers[index][..length / WORD] } else { &[] };
        words.chunks((segment / WORD).max(1))
    }

    /// Who sent the buffer `index`. `None` when that was no IP address.
    #[must_use]
    pub fn sender(&self, index: usize) -> Option<SocketAddr> {
        assert!(index < self.received.len(), "no such buffer");
        let name = &raw const self.names[index];
        match libc::c_int::from(self.names[index].ss_family) {
            libc::AF_INET => {
                // SAFETY: the storage is large and aligned enough for every address, and of this
                // family; all its bytes are initialised.
                let name = unsafe { &*name.cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let name = unsafe { &*name.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
                let port = u16::from_be(name.sin6_port);
                Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// The length of the segments that the kernel put together, when it did.
fn segment_size(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel filled the control room and set its length; CMSG_FIRSTHDR checks that a
    // header fits in it.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: not null, so within the control room, which is aligned for it.
    let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
    if level != libc::SOL_UDP || kind != libc::UDP_GRO {
        return None;
    }
    // SAFETY: a UDP_GRO message carries one C integer; it need not be aligned.
    let size = unsafe { libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned() };
    usize::try_from(size).ok()
}

/// One buffer to send: a datagram, or several of equal length one behind the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    to: Option<SocketAddr>,
    start: usize,
    words: usize,
    segment: usize,
    count: usize,
}

/// Datagrams that wait to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    words: Vec<u64>,
    runs: Vec<Run>,
    segmentation: bool,
}

impl Outbox {
    /// With `segmentation`, equal datagrams to one receiver go to the kernel as one buffer.
    #[must_use]
    pub fn new(segmentation: bool) -> Self {
        Self { segmentation, ..Self::default() }
    }

    /// Adds a datagram. Without a receiver it goes where the socket is connected to.
    ///
    /// # Panics
    /// When it is longer than a datagram can be.
    pub fn push(&mut self, to: Option<SocketAddr>, datagram: &[u64]) {
        assert!(datagram.len() * WORD <= MAX_BYTES, "a frame that no datagram can carry");
        let start = self.words.len();
        self.words.extend_from_slice(datagram);
        if self.segmentation
            && let Some(run) = self.runs.last_mut()
            && run.to == to
            && run.segment == datagram.len()
            && run.count < MAX_SEGMENTS
            && (run.words + datagram.len()) * WORD <= MAX_BYTES
        {
            run.words += datagram.len();
            run.count += 1;
            return;
        }
        let segment = datagram.len();
        self.runs.push(Run { to, start, words: segment, segment, count: 1 });
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Sends all that waits. What the socket has no room for is lost, as datagrams may be.
    ///
    /// # Errors
    /// What the system says of the first datagram that it refuses.
    pub fn send(&mut self, socket: impl AsFd) -> io::Result<()> {
        let result = match self.runs[..] {
            [Run { count: 1, .. }] => self.send_one(socket),
            [_] => self.send_runs::<1>(socket),
            _ => self.send_runs::<MAX_BUFFERS>(socket),
        };
        self.words.clear();
        self.runs.clear();
        result
    }

    /// Sends the only datagram that waits.
    fn send_one(&self, socket: impl AsFd) -> io::Result<()> {
        let words = &self.words;
        // SAFETY: words are readable as bytes, which need no alignment, for the words' length.
        let bytes =
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * WORD) };
        loop {
            let sent = match self.runs[0].to {
                Some(to) => sendto(&socket, bytes, SendFlags::DONTWAIT, &to),
                None => send(&socket, bytes, SendFlags::DONTWAIT),
            };
            match sent {
                Ok(_) | Err(Errno::AGAIN | Errno::CONNREFUSED) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends the runs, `N` a system call. `N` decides what is set up for it.
    fn send_runs<const N: usize>(&mut self, socket: impl AsFd) -> io::Result<()> {
        for runs in self.runs.chunks(N) {
            let mut parts = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; N];
            // SAFETY: headers and addresses of all zeros are valid: they point nowhere.
            let (mut headers, mut names): ([libc::mmsghdr; N], [libc::sockaddr_storage; N]) =
                unsafe { (zeroed(), zeroed()) };
            let mut control = [Control::default(); N];
            for (i, run) in runs.iter().enumerate() {
                let words = &mut self.words[run.start..run.start + run.words];
                parts[i].iov_base = words.as_mut_ptr().cast();
                parts[i].iov_len = words.len() * WORD;
                let header = &mut headers[i].msg_hdr;
                header.msg_iov = &raw mut parts[i];
                header.msg_iovlen = 1;
                if let Some(to) = run.to {
                    header.msg_namelen = write_name(&mut names[i], to);
                    header.msg_name = (&raw mut names[i]).cast();
                }
                if run.count > 1 {
                    let size = u16::try_from(run.segment * WORD).expect("a datagram's length");
                    header.msg_control = control[i].as_mut_ptr().cast();
                    // SAFETY: only computes a size.
                    header.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as usize;
                    // SAFETY: the control room is longer than CMSG_SPACE(2), aligned for a header
                    // and zero; the header comes first in it, and two bytes of data behind it.
                    unsafe {
                        let message = libc::CMSG_FIRSTHDR(header);
                        (*message).cmsg_level = libc::SOL_UDP;
                        (*message).cmsg_type = libc::UDP_SEGMENT;
                        (*message).cmsg_len = libc::CMSG_LEN(2) as usize;
                        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(size);
                    }
                }
            }
            let mut sent = 0;
            while sent < runs.len() {
                // SAFETY: each header from `sent` on points to parts, names and control room that
                // live in this frame or in `self`, with their right lengths; nothing is written.
                let got = unsafe {
                    libc::syscall(
                        libc::SYS_sendmmsg,
                        socket.as_fd().as_raw_fd(),
                        headers[sent..].as_mut_ptr(),
                        (runs.len() - sent) as libc::c_uint,
                        libc::MSG_DONTWAIT,
                    )
                };
                match usize::try_from(got) {
                    Ok(got) if got > 0 => sent += got,
                    _ => {
                        let error = io::Error::last_os_error();
                        match error.kind() {
                            io::ErrorKind::Interrupted => {}
                            io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused => {
                                sent += 1;
                            }
                            _ => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn write_name(name: &mut libc::sockaddr_storage, to: SocketAddr) -> libc::socklen_t {
    let storage = std::ptr::from_mut(name);
    match to {
        SocketAddr::V4(to) => {
            // SAFETY: the storage is large and aligned enough for every address, and all its bytes
            // are initialised.
            let name = unsafe { &mut *storage.cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as libc::sa_family_t;
            name.sin_port = to.port().to_be();
            name.sin_addr.s_addr = u32::from(*to.ip()).to_be();
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(to) => {
            // SAFETY: as above.
            let name = unsafe { &mut *storage.cast::<libc::sockaddr_in6>() };
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_port = to.port().to_be();
            name.sin6_addr.s6_addr = to.ip().octets();
            name.sin6_scope_id = to.scope_id();
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn pair(local: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
        let receiver = UdpSocket::bind(local).unwrap();
        let sender = UdpSocket::bind(local).unwrap();
        let to = receiver.local_addr().unwrap();
        (sender, receiver, to)
    }

    /// Loopback hands a datagram on before the sending call returns.
    fn all(inbox: &mut Inbox, receiver: &UdpSocket) -> Vec<(SocketAddr, Vec<u64>)> {
        let mut got = Vec::new();
        loop {
            let count = inbox.receive(receiver).unwrap();
            if count == 0 {
                return got;
            }
            for i in 0..count {
                let from = inbox.sender(i).unwrap();
                got.extend(inbox.datagrams(i).map(|words| (from, words.to_vec())));
            }
        }
    }

    #[test]
    fn datagrams_arrive_whole_and_in_order_with_and_without_segmentation() {
        for (local, segmentation) in
            [("127.0.0.1:0", false), ("127.0.0.1:0", true), ("[::1]:0", true)]
        {
            let (sender, receiver, to) = pair(local);
            if segmentation {
                coalesce_on_receipt(&receiver).unwrap();
            }
            let mut outbox = Outbox::new(segmentation);
            let sent: Vec<Vec<u64>> =
                (0..100u64).map(|i| vec![i; if i % 10 == 9 { 70 } else { 66 }]).collect();
            for datagram in &sent {
                outbox.push(Some(to), datagram);
            }
            outbox.send(&sender).unwrap();
            assert!(outbox.is_empty());
            let got = all(&mut Inbox::new(8, 65_536, segmentation), &receiver);
            assert!(got.iter().all(|(from, _)| *from == sender.local_addr().unwrap()));
            assert_eq!(got.into_iter().map(|(_, words)| words).collect::<Vec<_>>(), sent);
        }
    }

    #[test]
    fn what_cannot_be_a_frame_is_left_out() {
        for coalesced in [false, true] {
            let (sender, receiver, to) = pair("127.0.0.1:0");
            let mut inbox = Inbox::new(8, 1024, coalesced);
            // Each alone, and then all at once.
            let (odd, long) = (&[1; 7][..], &[1; 4096][..]);
            for datagrams in [&[odd][..], &[long], &[&[]], &[odd, long, &[], &[0; 16]]] {
                for datagram in datagrams {
                    sender.send_to(datagram, to).unwrap();
                }
                let got = all(&mut inbox, &receiver);
                let frames = datagrams.iter().filter(|d| d.len() == 16).map(|_| vec![0, 0]);
                let from = sender.local_addr().unwrap();
                assert_eq!(got, frames.map(|frame| (from, frame)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn nobody_there_is_no_error() {
        let (sender, receiver, to) = pair("127.0.0.1:0");
        drop(receiver);
        sender.connect(to).unwrap();
        let mut outbox = Outbox::new(true);
        for _ in 0..3 {
            outbox.push(None, &[1, 2]);
            outbox.send(&sender).unwrap();
        }
        for coalesced in [false, true] {
            assert_eq!(Inbox::new(1, 64, coalesced).receive(&sender).unwrap(), 0);
            outbox.push(None, &[1, 2]);
            outbox.send(&sender).unwrap();
        }
    }
}
