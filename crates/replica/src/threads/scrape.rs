//! Answers `GET /metrics` on an address of its own, on a thread of its own.
//!
//! Whoever connects is a stranger. At most [`MAX_LINKS`] connections are open, a head of 8 KiB is
//! read of each, and each has [`DEADLINE`] for all of it, reading the answer included; one more
//! takes the place of the oldest. The text is made anew ten times a second at most, whoever asks how
//! often. The loop is asked how it stands, as for `status.json`; when it does not answer within
//! [`PATIENCE`] the last answer stands. Nothing here can hold up another thread.

use super::{Clock, Monotonic, Reporter};
use crate::StartError;
use crate::metrics::http::{self, Request};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many connections are open at once.
const MAX_LINKS: usize = 16;
/// How long a connection may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long the same text is given.
const FRESH: Duration = Duration::from_millis(100);
/// How long the loop may take to say how it stands.
const PATIENCE: Duration = Duration::from_millis(500);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_LINK: usize = 2;

/// The thread that answers; dropping it ends it.
#[derive(Debug)]
pub(super) struct Scrape {
    address: SocketAddr,
    ending: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// An address that is listened on, and nobody answers yet.
pub(super) struct Bound {
    address: SocketAddr,
    listener: TcpListener,
    poll: Poll,
}

impl Bound {
    /// Listens on an address.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(super) fn new(address: SocketAddr) -> Result<Self, StartError> {
        let bind = || {
            let mut listener = TcpListener::bind(address)?;
            let poll = Poll::new()?;
            poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
            Ok(Self { address: listener.local_addr()?, listener, poll })
        };
        bind().map_err(|error: io::Error| StartError::Metrics { address, error })
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(self, name: &str, reporter: Reporter) -> Result<Scrape, StartError> {
        let Self { address, listener, poll } = self;
        let waker = Waker::new(poll.registry(), WAKER).map_err(StartError::Thread)?;
        let ending = Arc::new(AtomicBool::new(false));
        let thread = ScrapeThread {
            listener,
            poll,
            reporter,
            ending: ending.clone(),
            links: BTreeMap::new(),
            next: FIRST_LINK,
            text: None,
        };
        let builder = std::thread::Builder::new().name(format!("{name}-metrics"));
        let thread = builder.spawn(move || thread.run()).map_err(StartError::Thread)?;
        Ok(Scrape { address, ending, waker, thread: Some(thread) })
    }
}

impl Scrape {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Scrape {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        // It looks at `ending` after each wait, and none is longer than a deadline.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that answers for metrics stopped by a failed assertion");
        }
    }
}

/// A connection.
struct Link {
    stream: TcpStream,
    until: Monotonic,
    read: Vec<u8>,
    /// What is left to be written, once the request is whole.
    answer: Option<VecDeque<u8>>,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Waits,
    /// The request is whole, and is to be answered.
    Asks(Request),
    Ends,
}

struct ScrapeThread {
    listener: TcpListener,
    poll: Poll,
    reporter: Reporter,
    ending: Arc<AtomicBool>,
    /// In the order in which they came.
    links: BTreeMap<usize, Link>,
    next: usize,
    /// The last text, and when it was made.
    text: Option<(Monotonic, Arc<str>)>,
}

impl ScrapeThread {
    fn run(mut self) {
        let mut events = Events::with_capacity(MAX_LINKS + 2);
        let mut more = false;
        while !self.ending.load(Ordering::SeqCst) {
            let now = Clock::monotonic();
            self.links.retain(|_, link| link.until > now);
            let first = self.links.values().map(|link| link.until).min();
            let wait = first.map(|until| until.saturating_duration_since(now));
            let wait = if more { Some(Duration::ZERO) } else { wait };
            match self.poll.poll(&mut events, wait) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!("metrics are not answered any more: {error}");
                    return;
                }
            }
            let mut accepts = std::mem::take(&mut more);
            for event in &events {
                match event.token() {
                    LISTENER => accepts = true,
                    WAKER => {}
                    Token(id) => self.serve(id),
                }
            }
            if accepts {
                more = self.accept();
            }
        }
    }

    /// Takes connections that wait, and says whether there may be more. Edges are reported once, so
    /// an error that passes (no file descriptor is left) leaves the others waiting until the next
    /// comes.
    fn accept(&mut self) -> bool {
        for _ in 0..MAX_LINKS {
            let Ok((mut stream, _)) = self.listener.accept() else { return false };
            if self.links.len() >= MAX_LINKS {
                self.links.pop_first();
            }
            let id = self.next;
            self.next += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(id), interest).is_ok() {
                let until = Clock::monotonic() + DEADLINE;
                self.links.insert(id, Link { stream, until, read: Vec::new(), answer: None });
                self.serve(id);
            }
        }
        true
    }

    fn serve(&mut self, id: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let mut next = link.go_on();
        if let Next::Asks(request) = next {
            let answer = match request {
                Request::Refused(refusal) => http::refuse(refusal),
                _ => http::answer(&self.text()),
            };
            let link = self.links.get_mut(&id).expect("it was just there");
            link.answer = Some(answer.into());
            next = link.go_on();
        }
        if next == Next::Ends {
            self.links.remove(&id);
        }
    }

    fn text(&mut self) -> Arc<str> {
        let now = Clock::monotonic();
        if let Some((made, text)) = &self.text
            && now - *made < FRESH
        {
            return text.clone();
        }
        self.reporter.note_within(PATIENCE);
        let text: Arc<str> = self.reporter.metrics().text().into();
        self.text = Some((Clock::monotonic(), text.clone()));
        text
    }
}

impl Link {
    /// Reads and writes as much as goes now.
    fn go_on(&mut self) -> Next {
        match self.try_go_on() {
            Ok(next) => next,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Next::Waits,
            // Whoever is gone gets no answer.
            Err(_) => Next::Ends,
        }
    }

    fn try_go_on(&mut self) -> io::Result<Next> {
        if self.answer.is_none() {
            let mut bytes = [0; 1024];
            while self.read.len() < http::MAX_HEAD {
                match retried(|| self.stream.read(&mut bytes))? {
                    0 => return Ok(Next::Ends),
                    n => self.read.extend_from_slice(&bytes[..n]),
                }
                match http::read(&self.read) {
                    Request::More => {}
                    request => return Ok(Next::Asks(request)),
                }
            }
            return Ok(Next::Asks(http::read(&self.read)));
        }
        while let Some(answer) = self.answer.as_mut().filter(|answer| !answer.is_empty()) {
            let (front, _) = answer.as_slices();
            let written = retried(|| self.stream.write(front))?;
            if written == 0 {
                return Ok(Next::Ends);
            }
            answer.drain(..written);
        }
        // Bytes that were not read would turn the end of the connection into a reset, and the answer
        // might be lost with it.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let mut rest = [0; 1024];
        let mut read = 0;
        while read < http::MAX_HEAD {
            match retried(|| self.stream.read(&mut rest))? {
                0 => break,
                n => read += n,
            }
        }
        Ok(Next::Ends)
    }
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
