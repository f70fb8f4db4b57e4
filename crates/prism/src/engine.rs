//! Requests in, answers out: connections, at-most-once execution, batches, and calls of services.
//! No I/O and no clock: [`crate::server`] brings both.
//!
//! **At most once.** A request has a number, unique on its connection. A client has at most
//! [`WINDOW`] requests in flight, so that the numbers `n` and `n + WINDOW` never are at once; the
//! engine caches the last number and its answer for each of the `WINDOW` residues. What arrives
//! again is answered from memory, unless it only read, when reading again is as good; what is older
//! is dropped. Transports that lose and duplicate nothing ("reliable") need none of that.

use crate::exec;
use crate::memory::{Buffers, Memory, MemoryView};
use crate::op::{Addr, Capability, Reject};
use crate::wire::{AnswerWriter, Header, Kind, Request};
use crate::zoo::{Defence, stands};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most requests that a connection has in flight.
pub const WINDOW: usize = 64;
/// The longest answer that is cached, in bytes, on transports that may lose it: a request that
/// changes something cannot ask for more there.
pub const MAX_KEPT_ANSWER: usize = 4096;
/// The most addresses in one call of [`FREE`].
pub const MAX_FREED: usize = 512;
/// The call that gives buffers back: the first word of its body; the others are addresses. Answers
/// with how many it took and how many were not what they claimed to be.
pub const FREE: u64 = 0;
/// The call, all of its body, that asks what the holder of the capability needs to read the memory by
/// himself (`docs/format-prism.md`); turned down where the memory is not published. Files belong to the
/// answer ([`Engine::handed_over`]).
pub const MAP: u64 = u64::MAX;
/// The call, all of its body, that asks where the buffers are of what the capability opens
/// ([`Buffers::words`]). The server looks at each of them meanwhile.
pub const COUNT: u64 = u64::MAX - 1;

const MAX_CONNECTIONS: usize = 256;
/// After this many nanoseconds without a request a connection over an unreliable transport is lost.
const IDLE_NS: u64 = 30_000_000_000;

/// Who sent a frame, as far as the transport can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The other end of a link, by a number that no other link of this process has: ports of several
    /// kinds share an engine, and what one of them says of its peer must not hit another's.
    Link(u64),
    /// A datagram's sender.
    Address(SocketAddr),
}

/// The number of a new link.
pub(crate) fn next_link() -> u64 {
    static LINKS: AtomicU64 = AtomicU64::new(1);
    LINKS.fetch_add(1, Ordering::Relaxed)
}

/// Frames that arrived together.
#[derive(Debug, Default)]
pub struct Batch {
    words: Vec<u64>,
    frames: Vec<(Peer, Range<usize>)>,
}

impl Batch {
    /// Adds a frame.
    pub fn push(&mut self, from: Peer, frame: &[u64]) {
        let start = self.words.len();
        self.words.extend_from_slice(frame);
        self.frames.push((from, start..self.words.len()));
    }

    /// Adds the frame that `fill` appends, if it says that it has one.
    ///
    /// # Errors
    /// What `fill` says.
    pub fn push_with<E>(
        &mut self,
        from: Peer,
        fill: impl FnOnce(&mut Vec<u64>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let start = self.words.len();
        let filled = fill(&mut self.words)?;
        if filled {
            self.frames.push((from, start..self.words.len()));
        }
        Ok(filled)
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.words.clear();
        self.frames.clear();
    }

    /// How many frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// What a server does beside memory operations: two-sided calls, and its own upkeep.
pub trait Service: Send {
    /// Answers a call. The first word of `body` is not [`FREE`], and `body` is not [`MAP`] or [`COUNT`].
    ///
    /// # Errors
    /// Why it cannot.
    fn call(
        &mut self,
        view: &MemoryView<'_>,
        body: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Reject>;

    /// Does what is due. Called now and then between batches, when no view is out.
    fn maintain(&mut self, memory: &Memory, now_ns: u64);

    /// A client went away without saying so: it may have left buffers behind.
    fn client_lost(&mut self);

    /// Where its buffers are; a service that has none needs not say so.
    fn buffers(&self, _view: &MemoryView<'_>) -> Buffers {
        Buffers::default()
    }
}

/// What an engine has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Requests that were run.
    pub requests: u64,
    /// Requests that were answered from memory.
    pub repeated: u64,
    /// Requests that were older than what is cached.
    pub outdated: u64,
    /// Requests that were turned down.
    pub rejected: u64,
    /// Clients that went away without saying so.
    pub clients_lost: u64,
    /// Buffers that clients gave back.
    pub freed: u64,
    /// Addresses that clients gave back and that were stale or wrong.
    pub free_refused: u64,
}

struct Connection {
    id: u32,
    peer: Peer,
    nonce: u64,
    reliable: bool,
    last_ns: u64,
    window: Box<[Kept]>,
}

/// The cached answer to the last request of a residue.
#[derive(Default)]
struct Kept {
    /// One more than its number.
    until: u64,
    /// Empty when it only read.
    answer: Vec<u64>,
}

/// One data plane thread's engine.
pub struct Engine {
    memory: Arc<Memory>,
    plane: usize,
    connections: Vec<Option<Connection>>,
    /// How many connections there ever were, from a start that nobody knows: numbers of an earlier
    /// server mean nothing here.
    opened: u32,
    services: Vec<(Capability, Box<dyn Service>)>,
    counters: Counters,
    out: Vec<u64>,
    /// Files that belong to answers of the last batch.
    handed: Vec<(Peer, Vec<Arc<OwnedFd>>)>,
    spare: Vec<u64>,
    pointers: Vec<exec::Pointer>,
    /// The request that runs came by itself.
    alone: bool,
    /// What the next request will read first has been prefetched.
    expected: bool,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine on the thread `plane` of a memory. `epoch` should differ from start to start.
    #[must_use]
    pub fn new(memory: Arc<Memory>, plane: usize, epoch: u32) -> Self {
        Self {
            memory,
            plane,
            connections: (0..MAX_CONNECTIONS).map(|_| None).collect(),
            opened: epoch,
            services: Vec::new(),
            counters: Counters::default(),
            out: Vec::new(),
            handed: Vec::new(),
            spare: Vec::new(),
            pointers: Vec::new(),
            alone: false,
            expected: false,
        }
    }

    /// Calls under `capability` go to `service` from now on.
    pub fn serve(&mut self, capability: Capability, service: Box<dyn Service>) {
        self.services.push((capability, service));
    }

    /// The number of its thread.
    #[must_use]
    pub const fn plane(&self) -> usize {
        self.plane
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Where the services' buffers are.
    #[must_use]
    pub fn buffers(&self) -> Vec<Buffers> {
        let view = self.memory.view(self.plane);
        self.services.iter().map(|(_, service)| service.buffers(&view)).collect()
    }

    /// The files that belong to answers of the last [`Engine::run`], for ports that can hand some over
    /// ([`crate::transport::Port::hand_over`]).
    pub fn handed_over(&mut self) -> impl Iterator<Item = (Peer, Vec<Arc<OwnedFd>>)> {
        self.handed.drain(..)
    }

    /// Prefetches what a request will read first, so that it is on its way already when
    /// [`Engine::run`] comes to it. For one that comes by itself; nothing else depends on it.
    pub fn expect(&mut self, view: &MemoryView<'_>, frame: &[u64]) {
        exec::ask(view, [frame].into_iter(), &mut self.pointers);
        self.expected = true;
    }

    /// Runs a batch; hands each answer to `reply`. `view` is this engine's own, of its memory;
    /// `reliable` says whether the batch's transport neither loses nor duplicates nor reorders.
    ///
    /// # Panics
    /// When the view is another thread's or of another memory.
    pub fn run(
        &mut self,
        view: &MemoryView<'_>,
        batch: &Batch,
        reliable: bool,
        now_ns: u64,
        mut reply: impl FnMut(Peer, &[u64]),
    ) {
        assert!(view.is_of(&self.memory, self.plane), "the view is not this engine's");
        self.handed.clear();
        let expected = std::mem::take(&mut self.expected) && batch.len() == 1;
        for group in batch.frames.chunks(exec::GROUP) {
            let frame = |range: &Range<usize>| &batch.words[range.clone()];
            let requests = group.iter().map(|(_, range)| frame(range));
            if !expected {
                exec::ask(view, requests, &mut self.pointers);
            }
            // Nothing could overlap with a lone request's second miss.
            self.alone = group.len() == 1;
            if !self.alone {
                exec::follow(view, &mut self.pointers);
            }
            for (peer, range) in group {
                // By reference: see `exec` on copies.
                match &Request::decode(frame(range)) {
                    Ok(request) => {
                        self.request(view, *peer, request, reliable, now_ns, &mut reply);
                    }
                    Err((why, Some(header))) => self.reject(*peer, header, *why, &mut reply),
                    // Not even a header: there is nothing to answer to.
                    Err((_, None)) => self.counters.rejected += 1,
                }
            }
        }
    }

    fn reject(
        &mut self,
        peer: Peer,
        header: &Header,
        why: Reject,
        reply: &mut impl FnMut(Peer, &[u64]),
    ) {
        self.counters.rejected += 1;
        self.out.clear();
        let (connection, number) = (header.connection, header.number);
        AnswerWriter::begin(&mut self.out, header.kind, connection, number)
            .reject(connection, number, why);
        reply(peer, &self.out);
    }

    fn request(
        &mut self,
        view: &MemoryView<'_>,
        peer: Peer,
        request: &Request<'_>,
        reliable: bool,
        now_ns: u64,
        reply: &mut impl FnMut(Peer, &[u64]),
    ) {
        let header = &request.header;
        match header.kind {
            Kind::Connect => {
                match self.connect(peer, header, reliable, now_ns) {
                    Ok(id) => {
                        self.out.clear();
                        AnswerWriter::begin(&mut self.out, header.kind, id, header.number).finish();
                        reply(peer, &self.out);
                    }
                    Err(why) => self.reject(peer, header, why, reply),
                }
                return;
            }
            Kind::Ops | Kind::Call | Kind::Bye | Kind::Rejected => {}
        }
        let at = header.connection as usize % MAX_CONNECTIONS;
        let connection = match &mut self.connections[at] {
            Some(c) if c.id == header.connection && c.peer == peer => c,
            _ => return self.reject(peer, header, Reject::UnknownConnection, reply),
        };
        connection.last_ns = now_ns;
        if header.kind == Kind::Bye {
            self.connections[at] = None;
            self.out.clear();
            AnswerWriter::begin(&mut self.out, header.kind, header.connection, header.number)
                .finish();
            return reply(peer, &self.out);
        }
        let mut keep = false;
        if !connection.reliable {
            let kept = &mut connection.window[(header.number % WINDOW as u64) as usize];
            let until = header.number.saturating_add(1);
            keep = header.kind == Kind::Call || request.mutates();
            if until < kept.until {
                self.counters.outdated += 1;
                return;
            }
            if until == kept.until && !kept.answer.is_empty() && stands(Defence::AtMostOnce) {
                self.counters.repeated += 1;
                return reply(peer, &kept.answer);
            }
            if keep && request.answer_bytes() > MAX_KEPT_ANSWER {
                return self.reject(peer, header, Reject::TooLong, reply);
            }
            kept.until = until;
            kept.answer.clear();
        }
        self.counters.requests += 1;
        self.out.clear();
        let mut answer =
            AnswerWriter::begin(&mut self.out, header.kind, header.connection, header.number);
        let changes = header.kind == Kind::Call || request.mutates();
        let change = if changes { self.memory.change() } else { None };
        if header.kind == Kind::Ops {
            exec::run(view, request, &mut answer, &mut self.spare, self.alone);
            answer.finish();
        } else {
            let result = match request.body() {
                [FREE, freed @ ..] => {
                    free(view, freed, header.capability, &mut self.counters, answer.body())
                }
                [MAP] => view.describe(header.capability, answer.body()).map(|files| {
                    self.handed.push((peer, files));
                }),
                [COUNT] => match self.services.iter().find(|(c, _)| *c == header.capability) {
                    Some((_, service)) => {
                        answer.body().extend(service.buffers(view).words());
                        Ok(())
                    }
                    None => Err(Reject::BadCapability),
                },
                body => match self.services.iter_mut().find(|(c, _)| *c == header.capability) {
                    Some((_, service)) => service.call(view, body, answer.body()),
                    None => Err(Reject::BadCapability),
                },
            };
            match result {
                Ok(()) => answer.finish(),
                Err(why) => {
                    self.counters.rejected += 1;
                    answer.reject(header.connection, header.number, why);
                }
            }
        }
        drop(change);
        if keep && let Some(connection) = &mut self.connections[at] {
            let kept = &mut connection.window[(header.number % WINDOW as u64) as usize];
            kept.answer.clone_from(&self.out);
        }
        reply(peer, &self.out);
    }

    fn connect(
        &mut self,
        peer: Peer,
        header: &Header,
        reliable: bool,
        now_ns: u64,
    ) -> Result<u32, Reject> {
        if !self.memory.is_known(header.capability) {
            return Err(Reject::BadCapability);
        }
        // The same question again, since the answer was lost or slow.
        let same = |c: &&Connection| c.peer == peer && c.nonce == header.number;
        if let Some(connection) = self.connections.iter().flatten().find(same) {
            return Ok(connection.id);
        }
        let free = self.connections.iter().position(Option::is_none).ok_or(Reject::Busy)?;
        self.opened = self.opened.wrapping_add(1);
        let id = (self.opened << 8 | free as u32).max(1);
        let window = if reliable { 0 } else { WINDOW };
        self.connections[free] = Some(Connection {
            id,
            peer,
            nonce: header.number,
            reliable,
            last_ns: now_ns,
            window: (0..window).map(|_| Kept::default()).collect(),
        });
        Ok(id)
    }

    /// The transport noticed that the peer is gone.
    pub fn peer_lost(&mut self, peer: Peer) {
        let mut lost = 0;
        for connection in &mut self.connections {
            if connection.as_ref().is_some_and(|c| c.peer == peer) {
                *connection = None;
                lost += 1;
            }
        }
        self.lost(lost);
    }

    fn lost(&mut self, clients: u64) {
        self.counters.clients_lost += clients;
        if clients > 0 {
            self.services.iter_mut().for_each(|(_, service)| service.client_lost());
        }
    }

    /// Releases connections that have been silent for long, and lets services do their upkeep. To
    /// be called about every millisecond, between batches.
    pub fn maintain(&mut self, now_ns: u64) {
        let mut lost = 0;
        for connection in &mut self.connections {
            let silent = |c: &Connection| !c.reliable && now_ns.saturating_sub(c.last_ns) > IDLE_NS;
            if connection.as_ref().is_some_and(silent) {
                *connection = None;
                lost += 1;
            }
        }
        self.lost(lost);
        let _change = self.memory.change();
        for (_, service) in &mut self.services {
            service.maintain(&self.memory, now_ns);
        }
    }
}

fn free(
    view: &MemoryView<'_>,
    freed: &[u64],
    by: Capability,
    counters: &mut Counters,
    out: &mut Vec<u64>,
) -> Result<(), Reject> {
    if freed.len() > MAX_FREED {
        return Err(Reject::TooLong);
    }
    let mut taken = 0;
    for addr in freed {
        if view.retire(Addr(*addr), by).is_ok() {
            taken += 1;
        }
    }
    let refused = freed.len() as u64 - taken;
    counters.freed += taken;
    counters.free_refused += refused;
    out.extend([taken, refused]);
    Ok(())
}
