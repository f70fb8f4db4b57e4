//! Coroutines on links to servers: connections, their failures, and connecting again.
//!
//! A server that cannot be reached costs its requests, not the thread: they are lost at once, and the
//! next one after [`RETRY_NS`] tries to connect again. So it is with a server that has restarted and
//! knows the connection no more; what it held in memory is gone then, which [`super::Net::life`] tells.

use super::{Net, Outgoing, Tasks};
use crate::client::{ClientError, Session};
use crate::clock;
use crate::engine::WINDOW;
use crate::op::{Capability, Reject};
use crate::rng::Rng;
use crate::transport::{Endpoint, Link};
use crate::wire::{Answer, Kind};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;

/// A server out of reach is not tried again for so long, in nanoseconds.
pub const RETRY_NS: u64 = 50_000_000;
/// Over links that lose frames, a connection is asked for again after this time, so many times.
const GREET_NS: u64 = 20_000_000;
const MAX_GREETINGS: u32 = 50;

/// Opens a link to a server, by its number.
pub type Connect = Box<dyn FnMut(usize) -> io::Result<Box<dyn Link>>>;

#[derive(Debug)]
enum State {
    /// Not before this time.
    Down(u64),
    Greeting {
        link: Box<dyn Link>,
        nonce: u64,
        again_ns: u64,
        greetings: u32,
    },
    Up {
        link: Box<dyn Link>,
        session: Session,
    },
}

#[derive(Debug)]
struct Remote {
    capability: Capability,
    state: State,
    lives: u64,
    /// Not sent yet.
    queue: VecDeque<Outgoing>,
    /// By the request's number modulo the window.
    calls: Vec<Option<usize>>,
}

/// Coroutines and the servers they speak with.
pub struct Cluster {
    tasks: Tasks,
    remotes: Vec<Remote>,
    connect: Connect,
    rng: Rng,
    received: Vec<u64>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("remotes", &self.remotes.len()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Before the servers at these endpoints, each with the capability that opens what it serves. None
    /// of them has to be there yet.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn open(servers: &[(Endpoint, Capability)]) -> io::Result<Self> {
        let seed = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let capabilities = servers.iter().map(|(_, capability)| *capability).collect();
        let endpoints: Vec<_> = servers.iter().map(|(endpoint, _)| endpoint.clone()).collect();
        let connect = Box::new(move |server: usize| endpoints[server].link());
        let mut cluster = Self::new(capabilities, connect, seed);
        cluster.step(clock::now_ns());
        Ok(cluster)
    }

    /// Before as many servers as there are capabilities, over links that `connect` opens. Nonces are
    /// drawn from `seed`.
    #[must_use]
    pub fn new(capabilities: Vec<Capability>, connect: Connect, seed: u64) -> Self {
        let remote = |capability| Remote {
            capability,
            state: State::Down(0),
            lives: 0,
            queue: VecDeque::new(),
            calls: vec![None; WINDOW],
        };
        let remotes: Vec<_> = capabilities.into_iter().map(remote).collect();
        let tasks = Tasks::new(remotes.len());
        Self { tasks, remotes, connect, rng: Rng::new(seed), received: Vec::new() }
    }

    /// What coroutines speak through.
    #[must_use]
    pub const fn net(&self) -> &Net {
        self.tasks.net()
    }

    /// A number that another cluster is not likely to draw, from the seed.
    pub fn draw(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// How many coroutines have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.running()
    }

    /// Runs a coroutine to its end, and the others meanwhile.
    pub fn block_on<T: 'static>(&mut self, task: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let place = Rc::clone(&result);
        self.net().spawn(async move {
            let value = task.await;
            *place.borrow_mut() = Some(value);
        });
        loop {
            self.step(clock::now_ns());
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
        }
    }

    /// Runs until no coroutine is left.
    pub fn drain(&mut self) {
        while self.running() > 0 {
            self.step(clock::now_ns());
        }
    }

    /// Takes in what has arrived, lets coroutines go on, and sends what they ask for. Never waits.
    /// Says whether anything arrived.
    pub fn step(&mut self, now_ns: u64) -> bool {
        self.tasks.advance(now_ns);
        let mut arrived = false;
        for at in 0..self.remotes.len() {
            arrived |= self.receive(at, now_ns);
        }
        self.tasks.run();
        while let Some(outgoing) = self.tasks.take_outgoing() {
            self.remotes[outgoing.to].queue.push_back(outgoing);
        }
        for at in 0..self.remotes.len() {
            self.send(at, now_ns);
        }
        arrived
    }

    /// When something is due without anything arriving, in nanoseconds.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        let remote = |remote: &Remote| match &remote.state {
            State::Down(_) => None,
            State::Greeting { again_ns, .. } => Some(*again_ns),
            State::Up { session, .. } => Some(session.due_ns()).filter(|due| *due != u64::MAX),
        };
        self.remotes.iter().filter_map(remote).chain(self.tasks.due_ns()).min()
    }

    /// Says goodbye to the servers.
    pub fn close(mut self) {
        for remote in &mut self.remotes {
            if let State::Up { link, session } = &mut remote.state {
                let _ = link.send(&session.farewell()).and_then(|()| link.flush());
            }
        }
    }

    fn receive(&mut self, at: usize, now_ns: u64) -> bool {
        let mut arrived = false;
        for _ in 0..WINDOW {
            let remote = &mut self.remotes[at];
            let link = match &mut remote.state {
                State::Down(_) => break,
                State::Greeting { link, .. } | State::Up { link, .. } => link,
            };
            self.received.clear();
            match link.receive(&mut self.received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.down(at, now_ns);
                    break;
                }
            }
            arrived = true;
            match &mut remote.state {
                State::Down(_) => {}
                State::Greeting { nonce, .. } => match Answer::decode(&self.received) {
                    Some(answer) if answer.number == *nonce && answer.rejected.is_some() => {
                        self.down(at, now_ns);
                    }
                    Some(answer) if answer.number == *nonce && answer.kind == Kind::Connect => {
                        self.up(at, answer.connection, now_ns);
                    }
                    _ => {}
                },
                State::Up { session, .. } => {
                    let Some(answer) = session.receive(&self.received) else { continue };
                    self.tasks.received(self.received.len() * 8);
                    let slot = (answer.number % WINDOW as u64) as usize;
                    let call = remote.calls[slot].take().expect("the session knows the request");
                    if answer.rejected == Some(Reject::UnknownConnection) {
                        // Another life of the server: it knows nothing of what was in flight.
                        self.tasks.lost(call);
                        self.down(at, now_ns);
                        self.remotes[at].state = State::Down(now_ns);
                    } else {
                        self.tasks.answered(call, &answer);
                    }
                }
            }
        }
        arrived
    }

    fn up(&mut self, at: usize, connection: u32, now_ns: u64) {
        let remote = &mut self.remotes[at];
        let State::Greeting { link, .. } =
            std::mem::replace(&mut remote.state, State::Down(now_ns))
        else {
            unreachable!("it was greeted");
        };
        let session = Session::new(connection, remote.capability, link.is_reliable());
        remote.state = State::Up { link, session };
        remote.lives += 1;
        self.tasks.set_life(at, remote.lives);
    }

    /// The server is gone, and all that was asked of it is lost.
    fn down(&mut self, at: usize, now_ns: u64) {
        let remote = &mut self.remotes[at];
        remote.state = State::Down(now_ns + RETRY_NS);
        self.tasks.set_life(at, 0);
        for call in remote.calls.iter_mut().filter_map(Option::take) {
            self.tasks.lost(call);
        }
        for outgoing in remote.queue.drain(..) {
            self.tasks.lost(outgoing.call);
        }
    }

    fn send(&mut self, at: usize, now_ns: u64) {
        let remote = &mut self.remotes[at];
        match &mut remote.state {
            // Nobody wants anything of it; only the first time it is sought unasked.
            State::Down(_) if remote.queue.is_empty() && remote.lives > 0 => {}
            State::Down(not_before) if now_ns < *not_before => {
                remote.queue.drain(..).for_each(|outgoing| self.tasks.lost(outgoing.call));
            }
            State::Down(_) => match (self.connect)(at) {
                Err(_) => self.down(at, now_ns),
                Ok(link) => {
                    let nonce = self.rng.next_u64();
                    let greetings = 0;
                    remote.state = State::Greeting { link, nonce, again_ns: now_ns, greetings };
                    self.greet(at, now_ns);
                }
            },
            State::Greeting { .. } => self.greet(at, now_ns),
            State::Up { .. } => {
                if self.send_queued(at, now_ns).is_err() {
                    self.down(at, now_ns);
                }
            }
        }
    }

    fn send_queued(&mut self, at: usize, now_ns: u64) -> Result<(), ClientError> {
        let Remote { state: State::Up { link, session }, queue, calls, .. } = &mut self.remotes[at]
        else {
            return Ok(());
        };
        while session.has_room()
            && let Some(Outgoing { call, draft, .. }) = queue.pop_front()
        {
            let mut bytes = 0;
            link.make_way();
            let number = session.send(&draft, now_ns, |frame| {
                bytes = frame.len() * 8;
                link.send(frame)
            });
            self.tasks.sent(draft, bytes);
            match number {
                Ok((number, sent)) => {
                    calls[(number % WINDOW as u64) as usize] = Some(call);
                    sent?;
                }
                // Longer than the limits allow; the stores do not let it come to that.
                Err(_) => self.tasks.lost(call),
            }
        }
        let mut sent = Ok(());
        session.resend(now_ns, |frame| {
            if sent.is_ok() {
                sent = link.send(frame);
            }
        })?;
        sent?;
        Ok(link.flush()?)
    }

    fn greet(&mut self, at: usize, now_ns: u64) {
        let remote = &mut self.remotes[at];
        let State::Greeting { link, nonce, again_ns, greetings } = &mut remote.state else {
            return;
        };
        if now_ns < *again_ns {
            return;
        }
        let greeting = Session::greeting(remote.capability, *nonce);
        *greetings += 1;
        *again_ns = now_ns + GREET_NS;
        let once = link.is_reliable() && *greetings > 1;
        let sent = if once { Ok(()) } else { link.send(&greeting).and_then(|()| link.flush()) };
        if sent.is_err() || *greetings > MAX_GREETINGS {
            self.down(at, now_ns);
        }
    }
}
