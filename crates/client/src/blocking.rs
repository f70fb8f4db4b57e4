//! The client for programs that block: the core, a transport, and the clock.

use crate::{
    Answer, CallError, ClientCore, Completion, ConnectError, Failure, Nanos, Numbers, NumbersError,
    OpResult, QueryTicket, Settings, SubmitError, Ticket, results,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tercio_transport::{DialError, Refusal, Transport, TransportEvent, Waker};
use tercio_types::{
    ChainId, ClientId, ClientInfo, Height, Membership, Principal, ReplicaId, ReplicaSet,
    RequestSeq, RequestWindow, SignatureBytes, SystemOp, WINDOW,
};
use tercio_wire::{Decode, decode_result};

/// The answer to a question, and where the state stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The application's answer.
    pub answer: Bytes,
    /// Of an ordered read the height at which it was answered, of another one that had been
    /// reached.
    pub height: Height,
}

/// The one place where the client asks for the time.
#[expect(clippy::disallowed_methods, reason = "time-outs of a real client")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Microseconds since 1970: above every number that an earlier life of this client began with.
#[expect(clippy::disallowed_methods, reason = "a number that was not used before")]
fn fresh_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX / 2)
}

/// A client of a network.
#[derive(Debug)]
pub struct Client {
    core: ClientCore,
    transport: Transport,
    membership: Arc<Membership>,
    /// The replicas that we link to.
    replicas: ReplicaSet,
    start: Instant,
    events: Vec<TransportEvent>,
    /// Ended, and not yet given to the caller.
    completions: VecDeque<Completion>,
    answers: VecDeque<Answer>,
    /// Behind the links: who waits for the file finds them gone.
    numbers: Option<Numbers>,
}

impl Client {
    /// Links to a quorum of the replicas (to all that the settings name, when they are fewer); the
    /// others are dialled on in the background of later calls. With [`Settings::numbers`] it then
    /// takes up the client's numbers ([`Self::resume`]), unless [`Settings::resume`] says not to.
    ///
    /// # Errors
    /// When our identity is not in the membership, or too few replicas can be reached; the error
    /// says of each why. When the numbers cannot be taken up.
    pub fn connect(settings: Settings) -> Result<Self, ConnectError> {
        let Settings { client, secret, membership, core, limits, replicas, .. } = settings;
        let (connect_timeout, numbers) = (settings.connect_timeout, settings.numbers);
        let resumes = settings.resume && numbers.is_some();
        let chosen = |r: &ReplicaId| replicas.is_none_or(|chosen| chosen.contains(*r));
        let replicas: ReplicaSet = membership.replicas().filter(chosen).collect();
        let (named, needed) = (replicas.len(), membership.reply_threshold());
        if named < needed {
            return Err(ConnectError::TooFew { named, needed });
        }
        let mut core = core;
        core.first_query = fresh_number();
        core.max_package = core.max_package.min(limits.max_client_frame);
        let mut transport = Transport::bind(tercio_transport::Settings {
            me: Principal::Client(client),
            secret: secret.clone(),
            membership: membership.clone(),
            listen: None,
            limits,
        })?;
        transport.dial_only(replicas);
        let mut client = Self {
            core: ClientCore::new(client, secret, membership.clone(), core),
            transport,
            start: now(),
            events: vec![],
            completions: VecDeque::new(),
            answers: VecDeque::new(),
            membership,
            replicas,
            numbers,
        };
        let needed = client.membership.quorum().min(named);
        while client.reached() < needed {
            if let Some((theirs, by)) = client.other_chain() {
                let ours = client.membership.chain();
                return Err(ConnectError::OtherChain { ours, theirs, by });
            }
            let left = connect_timeout.saturating_sub(client.start.elapsed());
            if left.is_zero() {
                let (reached, problems) = (client.reached(), client.link_problems());
                let (n, within) = (client.membership.n(), connect_timeout);
                return Err(ConnectError::Unreachable { reached, n, needed, within, problems });
            }
            client.turn(left);
        }
        if resumes {
            let next = RequestSeq(1);
            client.resume(next).map_err(|error| ConnectError::Resume(Box::new(error)))?;
        }
        Ok(client)
    }

    /// The other chain that f+1 replicas say is theirs, and who they are. Whoever sits at an address
    /// may say so, and nobody else: fewer of them end nothing.
    fn other_chain(&self) -> Option<(ChainId, Vec<ReplicaId>)> {
        let mut chains: BTreeMap<[u8; 32], Vec<ReplicaId>> = BTreeMap::new();
        for replica in self.replicas.iter() {
            if let Some(DialError::Refused(_, Refusal::WrongChain(theirs))) =
                self.transport.last_error(replica)
            {
                chains.entry(theirs.0).or_default().push(replica);
            }
        }
        let enough = |by: &Vec<ReplicaId>| by.len() >= self.membership.reply_threshold();
        chains.into_iter().find(|(_, by)| enough(by)).map(|(chain, by)| (ChainId(chain), by))
    }

    fn reached(&self) -> usize {
        let linked = |r: &ReplicaId| self.transport.is_connected(Principal::Replica(*r));
        self.membership.replicas().filter(linked).count()
    }

    /// One sentence for each replica without a link.
    #[must_use]
    pub fn link_problems(&self) -> Vec<String> {
        (self.membership.replicas())
            .filter(|r| !self.transport.is_connected(Principal::Replica(*r)))
            .map(|r| match self.transport.last_error(r) {
                Some(error) => format!("replica {r}: {error}"),
                None if !self.replicas.contains(r) => {
                    format!("replica {r}: left out by the settings")
                }
                None => format!("replica {r}: no link yet"),
            })
            .collect()
    }

    /// The protocol's half, to read its counters and its view.
    #[must_use]
    pub fn core(&self) -> &ClientCore {
        &self.core
    }

    /// The file of the client's numbers, if there is one.
    #[must_use]
    pub fn numbers(&self) -> Option<&Numbers> {
        self.numbers.as_ref()
    }

    /// The links' half, to read its counters.
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Makes [`Self::poll`] return early, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.transport.waker()
    }

    fn time(&self) -> Nanos {
        Nanos::default() + now().saturating_duration_since(self.start)
    }

    /// Hands what the core has to say to the transport, and keeps what has ended.
    fn drain(&mut self) {
        while let Some((to, bytes)) = self.core.poll_send() {
            // Lost frames are retransmitted by the core, and counted by the transport.
            let _ = self.transport.send(Principal::Replica(to), bytes);
        }
        self.completions.extend(std::iter::from_fn(|| self.core.poll_completion()));
        self.answers.extend(std::iter::from_fn(|| self.core.poll_answer()));
    }

    /// Waits for something to happen, at most `timeout`, and works on it.
    pub(crate) fn turn(&mut self, timeout: Duration) {
        let due = self.core.poll_timeout().map(|at| self.time().until(at));
        let wait = due.into_iter().fold(timeout, Duration::min);
        self.transport.poll(Some(wait), &mut self.events);
        let time = self.time();
        for event in self.events.drain(..) {
            match event {
                TransportEvent::Connected(Principal::Replica(r)) => self.core.handle_connected(r),
                TransportEvent::Disconnected(Principal::Replica(r), _) => {
                    self.core.handle_disconnected(r, time);
                }
                TransportEvent::Frame { from: Principal::Replica(r), bytes } => {
                    self.core.handle_frame(r, &bytes, time);
                }
                _ => {}
            }
        }
        self.core.handle_timeout(time);
        self.drain();
        self.transport.flush();
    }

    /// Notes the numbers of the next `ops` operations as used.
    fn note(&mut self, ops: usize) -> Result<(), SubmitError> {
        let (Some(numbers), Some(next)) = (&mut self.numbers, self.core.next_number()) else {
            return Ok(());
        };
        // A longer package is refused, and so is one without a number.
        let end = next.0.saturating_add((ops as u64).min(WINDOW));
        numbers.use_below(RequestSeq(end)).map_err(|error| match error {
            NumbersError::Io { source, .. } => SubmitError::NotNoted(source.kind()),
            _ => unreachable!("it was opened"),
        })
    }

    /// Takes operations as one package; it leaves with the next [`Self::poll`].
    ///
    /// # Errors
    /// See [`ClientCore::submit`]; when the file of the client's numbers cannot be written.
    pub fn submit(&mut self, ops: Vec<Bytes>) -> Result<Ticket, SubmitError> {
        self.note(ops.len())?;
        let ticket = self.core.submit(ops, self.time())?;
        self.drain();
        Ok(ticket)
    }

    /// Works until a package ends, at most `timeout`, and gives all that have ended.
    pub fn poll(&mut self, timeout: Duration) -> Vec<Completion> {
        let begin = now();
        if self.completions.is_empty() {
            self.turn(timeout);
        }
        while self.completions.is_empty() {
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                break;
            }
            self.turn(left);
        }
        self.completions.drain(..).collect()
    }

    /// Submits one operation and waits for its result. Packages that end meanwhile are given by
    /// the next [`Self::poll`].
    ///
    /// # Errors
    /// When the operation was not taken, or has no result by the deadline of the core's settings.
    pub fn call(&mut self, op: Bytes) -> Result<Bytes, CallError> {
        let ticket = self.submit(vec![op])?;
        self.results(ticket).and_then(results::one)
    }

    /// Submits operations as one package, with one authenticator for all, and waits for their
    /// results.
    ///
    /// # Errors
    /// As [`Self::call`]; when one of the operations has no result, the others may have been
    /// executed.
    pub fn call_all(&mut self, ops: Vec<Bytes>) -> Result<Vec<Bytes>, CallError> {
        let ticket = self.submit(ops)?;
        self.results(ticket).and_then(results::all)
    }

    /// Asks a question that is ordered with the operations, and waits for the answer: it reflects
    /// every operation that was answered before, whoever submitted it.
    ///
    /// # Errors
    /// As [`Self::call`], and when the application finds no sense in the question.
    pub fn read(&mut self, question: Bytes) -> Result<Read, CallError> {
        self.note(1)?;
        let ticket = self.core.read(vec![question], self.time())?;
        self.drain();
        let mut result = self.results(ticket).and_then(results::one)?;
        if result.len() < 8 {
            return Err(CallError::NoResult("the replicas answered without a height"));
        }
        let answer = result.split_off(8);
        let height = u64::from_le_bytes(result[..].try_into().expect("eight bytes"));
        Ok(Read { answer, height: Height(height) })
    }

    /// Has a client added to the network, and waits for its number. Which signatures that takes is
    /// said at [`SystemOp::AddClient`].
    ///
    /// # Errors
    /// As [`Self::call`], and when the replicas decline, with their words.
    pub fn add_client(
        &mut self,
        info: ClientInfo,
        approvals: Vec<(ReplicaId, SignatureBytes)>,
    ) -> Result<ClientId, CallError> {
        let op = SystemOp::AddClient { info, approvals };
        self.note(1)?;
        let ticket = self.core.system(&op, self.time())?;
        self.drain();
        let result = self.results(ticket).and_then(results::one)?;
        let number = result[..].try_into().map(u64::from_le_bytes);
        let wrong = CallError::NoResult("the replicas answered without the client's number");
        number.map(ClientId).map_err(|_| wrong)
    }

    /// Takes the client's numbers up where an earlier life under the same id left them: above every
    /// number that replicas have executed, above those of [`Settings::numbers`], and not below
    /// `next`, which a caller knows that kept it elsewhere (otherwise 1). Open numbers are used up.
    /// Gives the next number.
    ///
    /// # Errors
    /// When a quorum does not say the same by the deadline of the core's settings: too few
    /// replicas are reached, or another process uses the id at the same time.
    /// [`CallError::NumbersAhead`] when the number that was kept is farther above all that was
    /// executed than the window allows. When the file cannot be written.
    ///
    /// # Panics
    /// When something was submitted before.
    pub fn resume(&mut self, next: RequestSeq) -> Result<RequestSeq, CallError> {
        let next = self.numbers.as_ref().map_or(next, |numbers| next.max(numbers.next()));
        loop {
            let ticket = self.core.ask_numbers(self.time())?;
            self.drain();
            let answer = self.answer(ticket)?;
            let suite = self.membership.suite();
            let done = RequestWindow::from_bytes(&answer.0, suite).map_err(|_| {
                CallError::NoResult("replicas agree on numbers that this build cannot read")
            })?;
            let open = self.core.resume_at(&done, next, self.time()).map_err(|ahead| {
                let file = self.numbers.as_ref().map(|numbers| numbers.path().to_owned());
                CallError::NumbersAhead { file, found: ahead.found, expected: ahead.expected }
            })?;
            self.drain();
            if let Some(next) = self.core.next_number().filter(|_| open == 0) {
                if let Some(numbers) = &mut self.numbers {
                    // Those below are used, by others or just now.
                    numbers.use_below(next)?;
                }
                return Ok(next);
            }
            let begin = now();
            while self.core.outstanding() > 0 {
                if begin.elapsed() >= self.core.settings.deadline {
                    let why = "numbers of an earlier life are open and cannot be used up";
                    return Err(CallError::NoResult(why));
                }
                self.turn(self.until_core());
            }
        }
    }

    /// Asks a quorum what became of one of this client's numbers, of a package that timed out, say:
    /// nothing when it is not executed so far, otherwise its result. `Unsupported` is the result of a
    /// number that was used up without effect, and of an unknown system operation. Needs no
    /// [`Self::resume`], which uses up what is open.
    ///
    /// # Errors
    /// When a quorum does not say the same by the deadline of the core's settings.
    pub fn ask_number(&mut self, number: RequestSeq) -> Result<Option<OpResult>, CallError> {
        let ticket = self.core.ask_number(number, self.time())?;
        self.drain();
        match self.answer(ticket)? {
            (nothing, _) if nothing.is_empty() => Ok(None),
            (result, _) => decode_result(result).map(Some).map_err(|_| {
                CallError::NoResult("replicas agree on a result that this build cannot read")
            }),
        }
    }

    /// Waits for a package's end.
    fn results(&mut self, ticket: Ticket) -> Result<Vec<OpResult>, CallError> {
        let completion = loop {
            if let Some(at) = self.completions.iter().position(|c| c.ticket == ticket) {
                break self.completions.remove(at).expect("just found");
            }
            self.turn(self.until_core());
        };
        completion.outcome.map_err(|failure| self.failed(failure))
    }

    /// The time until the core has something to do; it always has while something is in flight.
    pub(crate) fn until_core(&self) -> Duration {
        self.core.poll_timeout().map_or(Duration::ZERO, |at| self.time().until(at))
    }

    pub(crate) fn failed(&self, failure: Failure) -> CallError {
        CallError::Failed { failure: Box::new(failure), links: self.link_problems() }
    }

    /// How long calls, packages and queries wait for their results.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.core.deadline()
    }

    /// Changes how long those wait that are submitted from now on.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.core.set_deadline(deadline);
    }

    /// Asks all replicas without ordering; the answer comes with a later turn.
    pub(crate) fn ask(&mut self, question: Bytes) -> Result<QueryTicket, SubmitError> {
        let ticket = self.core.query(question, self.time())?;
        self.drain();
        Ok(ticket)
    }

    pub(crate) fn take_completions(&mut self) -> impl Iterator<Item = Completion> + use<> {
        std::mem::take(&mut self.completions).into_iter()
    }

    pub(crate) fn take_answers(&mut self) -> impl Iterator<Item = Answer> + use<> {
        std::mem::take(&mut self.answers).into_iter()
    }

    /// Asks all replicas without ordering, and waits for f+1 equal answers.
    ///
    /// # Errors
    /// When there are not as many by the deadline of the core's settings.
    pub fn query(&mut self, question: Bytes) -> Result<Bytes, CallError> {
        self.query_at(question).map(|read| read.answer)
    }

    /// As [`Self::query`], with a height that the state had reached which was asked.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn query_at(&mut self, question: Bytes) -> Result<Read, CallError> {
        let ticket = self.ask(question)?;
        self.answer(ticket).map(|(answer, height)| Read { answer, height })
    }

    fn answer(&mut self, ticket: QueryTicket) -> Result<(Bytes, Height), CallError> {
        loop {
            if let Some(at) = self.answers.iter().position(|a| a.ticket == ticket) {
                let Answer { outcome, height, .. } = self.answers.remove(at).expect("just found");
                return match outcome {
                    Ok(bytes) => Ok((bytes, height)),
                    Err(failure) => Err(self.failed(failure)),
                };
            }
            self.turn(self.until_core());
        }
    }

    /// Keeps as many packages in flight as the settings allow: takes them from `next` until it has
    /// no more, and hands every completion to `done` as it comes, in whatever order.
    ///
    /// # Errors
    /// When a package is not taken though none of those before is waited for any more: it is too
    /// large, say, or too many went unanswered past their deadline.
    pub fn pipeline(
        &mut self,
        mut next: impl FnMut() -> Option<Vec<Bytes>>,
        mut done: impl FnMut(Completion),
    ) -> Result<(), SubmitError> {
        let mut open = BTreeSet::new();
        let mut waiting = next();
        while waiting.is_some() || !open.is_empty() {
            while let Some(ops) = waiting.take() {
                match self.submit(ops.clone()) {
                    Ok(ticket) => {
                        open.insert(ticket);
                        waiting = next();
                    }
                    Err(SubmitError::TooMany { .. }) if !open.is_empty() => {
                        waiting = Some(ops);
                        break;
                    }
                    Err(SubmitError::Busy { retry_after }) if open.is_empty() => {
                        waiting = Some(ops);
                        self.turn(retry_after);
                    }
                    Err(SubmitError::Busy { .. }) => {
                        waiting = Some(ops);
                        break;
                    }
                    Err(other) => return Err(other),
                }
            }
            for completion in self.poll(self.until_core()) {
                open.remove(&completion.ticket);
                done(completion);
            }
        }
        Ok(())
    }
}
