//! The event loop's half of all links.

mod alive;
mod dials;
mod handshakes;
mod strangers;

use crate::dial::{Dial, Resolver};
use crate::handshake::Identity;
use crate::link::{Link, Stage};
use crate::look::Look;
use crate::proof::Proofs;
use crate::{BindError, DialError, Disconnect, Limits, Listen, Refusal, SendError, Settings};
use alive::Alive;
use bytes::Bytes;
use mio::net::TcpListener;
use mio::{Interest, Poll, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use strangers::Strangers;
use tercio_types::{ClientId, Membership, Principal, ReplicaId, ReplicaSet};

const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
/// The most bytes read in a turn of one whose handshake is under way, which has few.
const HANDSHAKE_BUDGET: usize = 4 << 10;
/// The pause after the system could give no connection (it has no descriptors left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What happened on the links.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportEvent {
    /// A link to this peer is open; both sides have proven who they are.
    Connected(Principal),
    /// A frame came. Its header is sound; nothing else about it is known.
    Frame {
        /// The peer of the link.
        from: Principal,
        /// The whole frame, header included. It is a slice of the receive buffer (64 KiB, or more for a longer frame);
        /// whoever keeps a short frame for long should copy it.
        bytes: Bytes,
    },
    /// The link to this peer is gone, with all that was queued for it.
    Disconnected(Principal, Disconnect),
    /// A handshake failed.
    Rejected {
        /// The other side's address.
        peer_addr: SocketAddr,
        /// Whom we dialled; `None` when the other side dialled.
        dialled: Option<ReplicaId>,
        /// Who the other side says it is, unproven, when it dialled and said so.
        claimed: Option<Principal>,
        /// Why.
        reason: Refusal,
    },
}

/// Wakes the thread that waits in [`Transport::poll`].
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// Makes the current or the next [`Transport::poll`] return. From any thread.
    pub fn wake(&self) {
        // Fails only when the event loop's counter is full, and then it is awake.
        let _ = self.0.wake();
    }
}

/// The one place where the transport asks for the time.
#[expect(clippy::disallowed_methods, reason = "redials and handshakes have real deadlines")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Why a link is taken down.
enum End {
    /// The connection failed or was closed.
    Broken(Disconnect),
    /// The handshake failed.
    Refused(Refusal),
    /// It is evicted for another handshake.
    Evicted,
    /// Another attempt to reach the same replica has succeeded.
    Spare,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Broken(Disconnect::Io(error.kind()))
    }
}

/// All links of one principal. See the crate's documentation.
#[derive(Debug)]
pub struct Transport {
    poll: Poll,
    ready: mio::Events,
    waker: Waker,
    identity: Identity,
    limits: Limits,
    listener: Option<TcpListener>,
    /// Whether connections may wait to be accepted, and from when on to look.
    accept_at: Option<Instant>,
    links: Vec<Option<Box<Link>>>,
    free: Vec<usize>,
    replicas: BTreeMap<ReplicaId, usize>,
    clients: BTreeMap<ClientId, usize>,
    dials: Vec<Dial>,
    resolver: Resolver,
    /// Handshakes under way by deadline, which is also the order of their beginning.
    handshakes: BTreeSet<(Instant, usize)>,
    half_open: usize,
    proofs: Proofs,
    strangers: Strangers,
    alive: Alive,
    /// Slots whose link may have something to read, and to write.
    unread: Vec<usize>,
    /// Slots whose link is not read for a while.
    paused: BTreeSet<(Instant, usize)>,
    unwritten: Vec<usize>,
    events: Vec<TransportEvent>,
    /// Whether the last turn brought a frame, and what became of looking for more.
    heard: bool,
    look: Look,
    counters: BTreeMap<&'static str, u64>,
}

/// How a member is dialled, from now on.
fn dial(membership: &Membership, id: ReplicaId, now: Instant, pause: Duration) -> Option<Dial> {
    Some(Dial::new(id, membership.member(id)?.address.clone(), now, pause))
}

impl Transport {
    /// Listens, if told so, and prepares to dial. Nothing is dialled before the first
    /// [`Self::poll`].
    ///
    /// # Errors
    /// When the address cannot be listened on, or the secret is not the membership's for us.
    pub fn bind(settings: Settings) -> Result<Self, BindError> {
        let Settings { me, secret, membership, listen, limits } = settings;
        let identity = Identity { me, secret, membership };
        let listed = identity.listed_key().ok_or(BindError::NotAMember(me))?;
        if listed != identity.secret.public() {
            return Err(BindError::WrongSecret(me));
        }
        let poll = Poll::new()?;
        let waker = Waker(Arc::new(mio::Waker::new(poll.registry(), WAKER)?));
        let mut listener = listen.map(listen_on).transpose()?;
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        let start = now();
        let dial = |id| dial(&identity.membership, id, start, limits.redial_min);
        let dials = identity.dials().filter_map(dial).collect();
        let strangers = Strangers::new(&identity.membership);
        let alive = Alive::new(matches!(me, Principal::Replica(_)), start);
        Ok(Self {
            poll,
            ready: mio::Events::with_capacity(1024),
            waker,
            limits,
            accept_at: listener.is_some().then_some(start),
            listener,
            links: vec![],
            free: vec![],
            replicas: BTreeMap::new(),
            clients: BTreeMap::new(),
            identity,
            dials,
            resolver: Resolver::new(),
            handshakes: BTreeSet::new(),
            half_open: 0,
            proofs: Proofs::default(),
            strangers,
            alive,
            unread: vec![],
            paused: BTreeSet::new(),
            unwritten: vec![],
            events: vec![],
            heard: false,
            look: Look::default(),
            counters: BTreeMap::new(),
        })
    }

    /// Goes over to another membership: who may open a link from now on, and who is dialled. Links
    /// that are open stay so.
    pub fn set_membership(&mut self, membership: Arc<Membership>) {
        let before = std::mem::replace(&mut self.identity.membership, membership);
        self.proofs.forget();
        let after = &self.identity.membership;
        self.strangers.set_membership(after);
        self.dials.retain(|dial| after.contains(dial.to));
        let come = self.identity.dials().filter(|id| !before.contains(*id));
        let (start, pause) = (now(), self.limits.redial_min);
        self.dials.extend(come.filter_map(|id| dial(after, id, start, pause)));
    }

    /// Dials none but these replicas. To be called before the first [`Self::poll`].
    pub fn dial_only(&mut self, replicas: ReplicaSet) {
        self.dials.retain(|dial| replicas.contains(dial.to));
    }

    /// Where we listen.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|l| l.local_addr().ok())
    }

    /// Whether a link to `peer` is open.
    #[must_use]
    pub fn is_connected(&self, peer: Principal) -> bool {
        self.slot(peer).is_some()
    }

    /// Why the last attempt to reach a replica that we dial failed; `None` while its link is open,
    /// before the first attempt ended, and for replicas that dial us.
    #[must_use]
    pub fn last_error(&self, replica: ReplicaId) -> Option<&DialError> {
        self.dials.iter().find(|d| d.to == replica)?.last_error.as_ref()
    }

    /// What was dropped, refused or lost, by reason.
    #[must_use]
    pub fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// A handle with which other threads interrupt [`Self::poll`].
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// How many bytes wait for `peer`.
    #[must_use]
    pub fn queued_bytes(&self, peer: Principal) -> usize {
        let link = self.slot(peer).and_then(|slot| self.links[slot].as_ref());
        link.map_or(0, |link| link.outbox.bytes())
    }

    fn count(&mut self, reason: &'static str, n: usize) {
        if n > 0 {
            *self.counters.entry(reason).or_default() += n as u64;
        }
    }

    fn slot(&self, peer: Principal) -> Option<usize> {
        match peer {
            Principal::Replica(id) => self.replicas.get(&id).copied(),
            Principal::Client(id) => self.clients.get(&id).copied(),
        }
    }

    fn set_slot(&mut self, peer: Principal, slot: Option<usize>) {
        match (peer, slot) {
            (Principal::Replica(id), Some(slot)) => {
                self.replicas.insert(id, slot);
            }
            (Principal::Replica(id), None) => {
                self.replicas.remove(&id);
            }
            (Principal::Client(id), Some(slot)) => {
                self.clients.insert(id, slot);
            }
            (Principal::Client(id), None) => {
                self.clients.remove(&id);
            }
        }
    }

    /// Queues one frame for `to`; it leaves with the next [`Self::flush`] or [`Self::poll`].
    ///
    /// # Errors
    /// When there is no link, or its queue is full. The frame is dropped and counted; a protocol
    /// that counts loss as normal need not look.
    pub fn send(&mut self, to: Principal, bytes: Bytes) -> Result<(), SendError> {
        let bound = match to {
            Principal::Replica(_) => self.limits.max_queue,
            Principal::Client(_) => self.limits.max_client_queue,
        };
        let slot = self.slot(to);
        let Some((slot, link)) = slot.and_then(|slot| Some((slot, self.links[slot].as_mut()?)))
        else {
            self.count("not_connected", 1);
            return Err(SendError::NotConnected(to));
        };
        if !link.outbox.is_empty() && link.outbox.bytes() + bytes.len() > bound {
            self.count("queue_full", 1);
            return Err(SendError::Full(to));
        }
        if link.outbox.is_empty() {
            self.unwritten.push(slot);
        }
        link.outbox.push(bytes);
        link.spoke = true;
        Ok(())
    }

    /// Queues the same bytes for every peer of `to`, without a copy. What cannot be queued is
    /// dropped and counted.
    pub fn broadcast(&mut self, to: impl IntoIterator<Item = Principal>, bytes: &Bytes) {
        for peer in to {
            // Counted by reason; the protocol above retransmits.
            let _ = self.send(peer, bytes.clone());
        }
    }

    /// Writes what is queued as far as the system takes it: one vectored write per peer, unless
    /// more than 256 frames wait for it. [`Self::poll`] begins with it. Whoever does not poll for long
    /// is to flush now and then: heartbeats leave with it.
    pub fn flush(&mut self) {
        self.beat(now());
        self.flush_links();
    }

    fn flush_links(&mut self) {
        for slot in std::mem::take(&mut self.unwritten) {
            self.with_link(slot, now, Self::write);
        }
    }

    /// One turn: writes what is queued, waits up to `timeout` (without one, for ever) until
    /// something happens or a [`Waker`] calls, and appends what happened to `events`. After a turn
    /// that brought a frame it busy-polls for [`Limits::poll`] before it sleeps.
    pub fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<TransportEvent>) {
        let mut time = now();
        self.beat(time);
        self.flush_links();
        self.dial_due(time);
        self.wait_for_system(self.wait(timeout, time), time);
        time = now();
        self.note_readiness(time);
        while let Some((to, found)) = self.resolver.next() {
            self.resolved(to, found, time);
        }
        self.expire(time);
        self.set_strangers_aside();
        self.resume(time);
        for slot in std::mem::take(&mut self.unread) {
            self.with_link(slot, || time, |me, slot, link| me.read(slot, link, time));
        }
        self.end_silent(time);
        self.serve_strangers(time);
        self.flush_links();
        self.heard = self.events.iter().any(|e| matches!(e, TransportEvent::Frame { .. }));
        self.strangers.rest(self.heard);
        events.append(&mut self.events);
    }

    /// Has the system say what is ready: at once, while busy-polling, or after a sleep of at most
    /// `wait`.
    fn wait_for_system(&mut self, wait: Option<Duration>, since: Instant) {
        let Self { poll, ready, look, limits, .. } = self;
        let mut ask = |wait: Option<Duration>| match poll.poll(ready, wait) {
            Ok(()) => !ready.is_empty(),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => !ready.is_empty(),
            Err(e) => panic!("the system's event queue failed: {e}"),
        };
        let span = wait.map_or(limits.poll, |wait| wait.min(limits.poll));
        let at_once = || ask(Some(Duration::ZERO));
        if self.heard && look.on(span, now, at_once, thread::yield_now) {
            return;
        }
        let left = wait.map(|wait| wait.saturating_sub(now().saturating_duration_since(since)));
        ask(left);
    }

    /// How long to wait for the system.
    fn wait(&self, timeout: Option<Duration>, now: Instant) -> Option<Duration> {
        if !self.unread.is_empty() || !self.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let dials = self.dials.iter().filter_map(Dial::due);
        let handshake = self.handshakes.first().map(|(at, _)| *at);
        let strangers = self.strangers.due(self.accept_at, now);
        let paused = self.paused.first().map(|(at, _)| *at);
        let next =
            dials.chain(handshake).chain(strangers).chain(self.alive_due()).chain(paused).min();
        let due = next.map(|at| at.saturating_duration_since(now));
        timeout.into_iter().chain(due).min()
    }

    /// Takes over what the event queue says about each link.
    fn note_readiness(&mut self, now: Instant) {
        for event in &self.ready {
            match event.token() {
                WAKER => {}
                LISTENER => self.accept_at = Some(now),
                Token(slot) => {
                    let Some(Some(link)) = self.links.get_mut(slot) else { continue };
                    if event.is_writable() {
                        link.writable = true;
                        if !link.outbox.is_empty() || matches!(link.stage, Stage::Connecting) {
                            self.unwritten.push(slot);
                        }
                    }
                    link.ending |= event.is_read_closed() || event.is_error();
                    if (event.is_readable() || link.ending) && !link.readable {
                        link.readable = true;
                        self.unread.push(slot);
                    }
                }
            }
        }
    }

    /// Takes the link of a slot, works on it, and puts it back unless it ended.
    fn with_link(
        &mut self,
        slot: usize,
        now: impl FnOnce() -> Instant,
        work: impl FnOnce(&mut Self, usize, &mut Link) -> Result<(), End>,
    ) {
        let Some(mut link) = self.links[slot].take() else { return };
        match work(self, slot, &mut link) {
            Ok(()) => self.links[slot] = Some(link),
            Err(end) => self.take_down(slot, link, &end, now()),
        }
    }

    fn write(&mut self, _slot: usize, link: &mut Link) -> Result<(), End> {
        if !link.writable {
            return Ok(());
        }
        if matches!(link.stage, Stage::Connecting) {
            return self.connected(link);
        }
        link.writable = link.outbox.write(&mut link.stream)?;
        Ok(())
    }

    /// Reads nothing from the link to `peer` for so long: its own queues fill then, and no work of ours
    /// is spent on what would be dropped. What was read comes all the same.
    pub fn pause(&mut self, peer: Principal, span: Duration) {
        let Some(slot) = self.slot(peer) else { return };
        let Some(link) = &mut self.links[slot] else { return };
        if link.paused.is_none() {
            let until = now() + span;
            link.paused = Some(until);
            self.paused.insert((until, slot));
        }
    }

    /// Ends the pauses that are over.
    fn resume(&mut self, now: Instant) {
        while self.paused.first().is_some_and(|(until, _)| *until <= now) {
            let Some((until, slot)) = self.paused.pop_first() else { return };
            // Another link may have the slot by now.
            if let Some(link) = &mut self.links[slot]
                && link.paused == Some(until)
            {
                link.paused = None;
                self.unread.extend(link.readable.then_some(slot));
            }
        }
    }

    fn read(&mut self, slot: usize, link: &mut Link, now: Instant) -> Result<(), End> {
        if link.paused.is_some() {
            return Ok(());
        }
        let half_open = link.is_half_open();
        let mut budget = if half_open { HANDSHAKE_BUDGET } else { self.limits.read_budget };
        while link.readable {
            match link.inbox.fill(&mut link.stream) {
                Ok(filled) if filled.bytes == 0 => {
                    return Err(End::Broken(Disconnect::Closed));
                }
                Ok(filled) => {
                    // A short read empties the socket; when more comes the event queue tells. It
                    // has told of the end already, though.
                    link.readable = filled.maybe_more || link.ending;
                    self.digest(slot, link, now)?;
                    budget = budget.saturating_sub(filled.bytes);
                    if budget == 0 && link.readable {
                        self.unread.push(slot);
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => link.readable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

fn listen_on(listen: Listen) -> Result<TcpListener, BindError> {
    match listen {
        Listen::Address(address) => TcpListener::bind(address).map_err(|source| {
            if source.kind() == io::ErrorKind::AddrInUse {
                BindError::InUse { address }
            } else {
                BindError::Listen { address, source }
            }
        }),
        Listen::Socket(socket) => {
            socket.set_nonblocking(true)?;
            Ok(TcpListener::from_std(socket))
        }
    }
}
