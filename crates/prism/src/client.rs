//! The client: requests out, answers in, and retransmission with exponential back-off.
//!
//! [`Session`] is the state of one connection, without I/O and clock: it numbers requests, keeps
//! those that may be lost until they are answered, and says when to retransmit them. [`Client`]
//! drives a session over a link.

use crate::clock;
use crate::direct::Direct;
use crate::engine::{MAP, WINDOW};
use crate::memory::files_of;
use crate::op::{Capability, Op, Reject};
use crate::transport::{Endpoint, Link, LinkError};
use crate::wire::{self, Answer, Header, Kind};
use std::io::{self, ErrorKind};

/// The first wait for an answer, in nanoseconds; it doubles with each time.
const FIRST_WAIT_NS: u64 = 20_000_000;
/// How often a request is sent before the server counts as out of reach.
const MAX_SENDS: u32 = 10;
/// The longest wait.
const MAX_WAIT_NS: u64 = 1_000_000_000;
/// How often a client that reads without the server looks whether it is still there, in nanoseconds.
const LOOK_NS: u64 = 10_000_000;

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The server turned the request down.
    #[error("the server turned the request down: {0}")]
    Rejected(#[from] Reject),
    /// No answer came.
    #[error("the server does not answer")]
    NoAnswer,
    /// The answer does not fit the question.
    #[error("the server's answer makes no sense")]
    Confused,
    /// The server's memory cannot be read without it.
    #[error("the server's memory cannot be read without it: {0}")]
    Direct(#[source] io::Error),
}

/// A request that is being written.
#[derive(Debug, Default)]
pub struct Draft {
    body: Vec<u64>,
    ops: usize,
}

impl Draft {
    /// Adds an operation.
    pub fn op<'a>(&mut self, op: impl Into<Op<'a>>) {
        wire::put_op(&mut self.body, &op.into());
        self.ops += 1;
    }

    /// Makes it a call of the service: a method's number and its arguments.
    ///
    /// # Panics
    /// When it has operations already.
    pub fn call(&mut self, method: u64, arguments: &[u64]) {
        assert!(self.ops == 0 && self.body.is_empty(), "a call is all of a request");
        self.body.push(method);
        self.body.extend_from_slice(arguments);
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.body.clear();
        self.ops = 0;
    }
}

#[derive(Debug)]
struct Pending {
    number: u64,
    frame: Vec<u64>,
    again_ns: u64,
    sends: u32,
}

/// One connection's state, without I/O.
#[derive(Debug)]
pub struct Session {
    connection: u32,
    capability: Capability,
    reliable: bool,
    next: u64,
    window: Vec<Option<Pending>>,
    under_way: usize,
    next_due_ns: u64,
    spare: Vec<Vec<u64>>,
}

impl Session {
    /// The frame that asks for a connection. `nonce` names the question, so that a repeated one
    /// opens no second connection.
    #[must_use]
    pub fn greeting(capability: Capability, nonce: u64) -> Vec<u64> {
        let mut frame = Vec::new();
        let header = Header { kind: Kind::Connect, connection: 0, number: nonce, capability };
        wire::begin_request(&mut frame, &header);
        frame
    }

    /// Begins with the connection that the server gave.
    #[must_use]
    pub fn new(connection: u32, capability: Capability, reliable: bool) -> Self {
        Self {
            connection,
            capability,
            reliable,
            next: 0,
            window: (0..WINDOW).map(|_| None).collect(),
            under_way: 0,
            next_due_ns: u64::MAX,
            spare: Vec::new(),
        }
    }

    /// Whether another request can be sent now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.window[(self.next % WINDOW as u64) as usize].is_none()
    }

    /// How many requests are in flight.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Makes a request of the draft, hands its frame to `send`, and gives its number.
    ///
    /// # Errors
    /// [`Reject::TooLong`] when it is longer than the limits allow.
    ///
    /// # Panics
    /// When there is no room, or the draft is empty.
    pub fn send<R>(
        &mut self,
        draft: &Draft,
        now_ns: u64,
        send: impl FnOnce(&[u64]) -> R,
    ) -> Result<(u64, R), Reject> {
        let (number, kind) = (self.next, if draft.ops > 0 { Kind::Ops } else { Kind::Call });
        assert!(!draft.body.is_empty(), "an empty request");
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        let (connection, capability) = (self.connection, self.capability);
        wire::begin_request(&mut frame, &Header { kind, connection, number, capability });
        frame.extend_from_slice(&draft.body);
        wire::finish_request(&mut frame, 0, draft.ops)?;
        let sent = send(&frame);
        let again_ns = if self.reliable { u64::MAX } else { now_ns + FIRST_WAIT_NS };
        self.next_due_ns = self.next_due_ns.min(again_ns);
        let slot = &mut self.window[(number % WINDOW as u64) as usize];
        assert!(slot.is_none(), "no room in the window");
        *slot = Some(Pending { number, frame, again_ns, sends: 1 });
        self.next += 1;
        self.under_way += 1;
        Ok((number, sent))
    }

    /// Takes a frame in. `None` when it answers nothing that is in flight.
    pub fn receive<'a>(&mut self, frame: &'a [u64]) -> Option<Answer<'a>> {
        let answer = Answer::decode(frame)?;
        if answer.connection != self.connection {
            return None;
        }
        let slot = &mut self.window[(answer.number % WINDOW as u64) as usize];
        let pending = slot.take_if(|pending| pending.number == answer.number)?;
        self.spare.push(pending.frame);
        self.under_way -= 1;
        Some(answer)
    }

    /// When something is due next, in nanoseconds.
    #[must_use]
    pub const fn due_ns(&self) -> u64 {
        self.next_due_ns
    }

    /// Retransmits what has waited for long enough.
    ///
    /// # Errors
    /// When a request was sent as often as is sensible.
    pub fn resend(&mut self, now_ns: u64, mut send: impl FnMut(&[u64])) -> Result<(), ClientError> {
        if now_ns < self.next_due_ns {
            return Ok(());
        }
        for pending in self.window.iter_mut().flatten() {
            if pending.again_ns <= now_ns {
                if pending.sends >= MAX_SENDS {
                    return Err(ClientError::NoAnswer);
                }
                let wait = (FIRST_WAIT_NS << pending.sends).min(MAX_WAIT_NS);
                pending.sends += 1;
                pending.again_ns = now_ns + wait;
                send(&pending.frame);
            }
        }
        let due = self.window.iter().flatten().map(|pending| pending.again_ns).min();
        self.next_due_ns = due.unwrap_or(u64::MAX);
        Ok(())
    }

    /// The frame that ends the connection.
    #[must_use]
    pub fn farewell(&self) -> Vec<u64> {
        let mut frame = Vec::new();
        let (connection, capability) = (self.connection, self.capability);
        let header = Header { kind: Kind::Bye, connection, number: self.next, capability };
        wire::begin_request(&mut frame, &header);
        frame
    }
}

/// A client: a session over a link, with a clock.
#[derive(Debug)]
pub struct Client {
    link: Box<dyn Link>,
    session: Session,
    received: Vec<u64>,
    draft: Draft,
    /// Goes without a word.
    silent: bool,
    direct: Option<Direct>,
    answered_directly: u64,
    /// When the link was last asked whether the server is still there.
    looked_ns: u64,
}

impl Client {
    /// Ends as a crash would: the server is not told.
    pub fn abandon(mut self) {
        self.silent = true;
    }

    /// Connects to the server at an endpoint, and reads without it where that can be: in shared memory
    /// that it publishes, within reach of this process ([`Client::read_directly`]).
    ///
    /// # Errors
    /// When nobody can be reached or answers, or the server takes no such client.
    pub fn open(endpoint: &Endpoint, capability: Capability) -> Result<Self, ClientError> {
        let mut client = Self::connect(endpoint.link().map_err(LinkError::Io)?, capability)?;
        match client.read_directly() {
            Ok(()) | Err(ClientError::Direct(_)) => Ok(client),
            Err(error) => Err(error),
        }
    }

    /// Connects over a link; the server runs all requests.
    ///
    /// # Errors
    /// When the link fails, nobody answers, or the server takes no such client.
    pub fn connect(mut link: Box<dyn Link>, capability: Capability) -> Result<Self, ClientError> {
        let nonce = getrandom::u64().map_err(|_| ClientError::NoAnswer)?;
        let greeting = Session::greeting(capability, nonce);
        let reliable = link.is_reliable();
        let mut received = Vec::new();
        for tries in 0..MAX_SENDS {
            link.send(&greeting)?;
            link.flush()?;
            // A reliable link needs no second greeting, only patience.
            let wait = if reliable { MAX_WAIT_NS * 10 } else { FIRST_WAIT_NS << tries.min(5) };
            let deadline = clock::now_ns() + wait;
            while clock::now_ns() < deadline {
                received.clear();
                if !link.receive(&mut received)? {
                    continue;
                }
                match Answer::decode(&received) {
                    Some(Answer { number, rejected: Some(why), .. }) if number == nonce => {
                        return Err(why.into());
                    }
                    Some(Answer { kind: Kind::Connect, connection, number, .. })
                        if number == nonce =>
                    {
                        let session = Session::new(connection, capability, reliable);
                        let draft = Draft::default();
                        return Ok(Self {
                            link,
                            session,
                            received,
                            draft,
                            silent: false,
                            direct: None,
                            answered_directly: 0,
                            looked_ns: 0,
                        });
                    }
                    _ => {}
                }
            }
        }
        Err(ClientError::NoAnswer)
    }

    /// Runs operations; hands the answer to `read`.
    ///
    /// # Errors
    /// When there is none. That an operation failed is none of these: its outcome says so.
    pub fn run<R>(
        &mut self,
        ops: &[Op<'_>],
        read: impl FnOnce(&Answer<'_>) -> R,
    ) -> Result<R, ClientError> {
        let mut draft = std::mem::take(&mut self.draft);
        draft.clear();
        ops.iter().for_each(|op| draft.op(*op));
        let result = self.exchange(&draft, read);
        self.draft = draft;
        result
    }

    /// Calls the service.
    ///
    /// # Errors
    /// When there is no answer, or the service turns the call down.
    pub fn call(&mut self, method: u64, arguments: &[u64]) -> Result<Vec<u64>, ClientError> {
        let mut draft = Draft::default();
        draft.call(method, arguments);
        self.exchange(&draft, |answer| answer.body().to_vec())
    }

    fn exchange<R>(
        &mut self,
        draft: &Draft,
        read: impl FnOnce(&Answer<'_>) -> R,
    ) -> Result<R, ClientError> {
        let number = self.submit(draft, clock::now_ns())?;
        self.flush()?;
        let mut read = Some(read);
        loop {
            let got = self.poll(|answer| {
                (answer.number == number).then(|| match answer.rejected {
                    Some(why) => Err(why.into()),
                    None => Ok(read.take().expect("one answer a request")(answer)),
                })
            })?;
            if let Some(Some(result)) = got {
                return result;
            }
        }
    }

    /// Whether another request can be submitted now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.session.has_room()
    }

    /// How many requests are in flight.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.session.under_way()
    }

    /// Whether the link neither loses nor duplicates frames: then no time is needed for them.
    #[must_use]
    pub const fn is_reliable(&self) -> bool {
        self.session.reliable
    }

    /// From now on, runs requests that only read here, on the server's memory, where that gives what
    /// the server would (the module `direct` says when). For clients in shared memory, where the link
    /// knows when the server ends, of memory made by [`crate::memory::Memory::published`].
    ///
    /// # Errors
    /// When the server does not publish its memory, or it cannot be mapped here.
    ///
    /// # Panics
    /// When requests are in flight.
    pub fn read_directly(&mut self) -> Result<(), ClientError> {
        assert_eq!(self.under_way(), 0, "requests are under way");
        let known = self.direct.take();
        if !self.link.is_open() {
            let what = "over this link nobody would notice that the server has ended";
            return Err(ClientError::Direct(io::Error::new(ErrorKind::Unsupported, what)));
        }
        let unpublished = |error| match error {
            ClientError::Rejected(Reject::UnknownMethod) => {
                let what = "the server keeps it to itself";
                ClientError::Direct(io::Error::new(ErrorKind::Unsupported, what))
            }
            error => error,
        };
        let described = self.call(MAP, &[]).map_err(unpublished)?;
        let opened = files_of(&described).and_then(|count| self.link.files(count));
        let opened = opened.and_then(|files| {
            Direct::open(&described, &files, self.session.capability, known.as_ref())
        });
        self.direct = Some(opened.map_err(ClientError::Direct)?);
        Ok(())
    }

    /// How many requests were run here since [`Client::read_directly`].
    #[must_use]
    pub const fn answered_directly(&self) -> u64 {
        self.answered_directly
    }

    /// Puts a request on its way, with the next [`Client::flush`] at the latest; gives its number.
    ///
    /// # Errors
    /// When the link fails or the request is too long.
    ///
    /// # Panics
    /// When there is no room.
    pub fn submit(&mut self, draft: &Draft, now_ns: u64) -> Result<u64, ClientError> {
        if self.direct.is_some() {
            self.keep_direct(now_ns)?;
        }
        // Behind a request that the server has, all are the server's.
        let under_way = self.session.under_way();
        let direct = self.direct.as_mut().filter(|direct| direct.under_way() == under_way);
        let link = &mut self.link;
        if direct.is_none() {
            link.make_way();
        }
        let (number, sent) = self.session.send(draft, now_ns, |frame| match direct {
            Some(direct) => {
                direct.push(frame);
                Ok(())
            }
            None => link.send(frame),
        })?;
        sent?;
        Ok(number)
    }

    /// What a client that reads without the server has to look at before.
    fn keep_direct(&mut self, now_ns: u64) -> Result<(), ClientError> {
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.looked_ns = now_ns;
            if !self.link.is_open() {
                return Err(LinkError::Closed.into());
            }
        }
        if self.under_way() == 0 && self.direct.as_ref().is_some_and(Direct::is_outdated) {
            match self.read_directly() {
                // What cannot be mapped any more is the server's to read.
                Ok(()) | Err(ClientError::Direct(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends what was submitted, or runs it here.
    ///
    /// # Errors
    /// When the link fails.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        if let Some(direct) = &mut self.direct {
            direct.run(|frame| self.link.send(frame))?;
        }
        Ok(self.link.flush()?)
    }

    /// Looks once for an answer and hands it to `read`; retransmits what is due.
    ///
    /// # Errors
    /// When the link fails, or the server does not answer.
    pub fn poll<R>(
        &mut self,
        read: impl FnOnce(&Answer<'_>) -> R,
    ) -> Result<Option<R>, ClientError> {
        let direct = self.direct.as_mut().is_some_and(|direct| direct.take(&mut self.received));
        if direct {
            self.answered_directly += 1;
        } else {
            self.received.clear();
        }
        if direct || self.link.receive(&mut self.received)? {
            if let Some(answer) = self.session.receive(&self.received) {
                return Ok(Some(read(&answer)));
            }
        } else if self.session.due_ns() != u64::MAX {
            let now = clock::now_ns();
            if now >= self.session.due_ns() {
                let (link, mut failed) = (&mut self.link, Ok(()));
                self.session.resend(now, |frame| {
                    if failed.is_ok() {
                        failed = link.send(frame);
                    }
                })?;
                failed?;
                self.link.flush()?;
            }
        }
        Ok(None)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.silent {
            return;
        }
        let farewell = self.session.farewell();
        // Nobody waits for the answer; without it the server finds out by itself, later.
        let _ = self.link.send(&farewell).and_then(|()| self.link.flush());
    }
}
