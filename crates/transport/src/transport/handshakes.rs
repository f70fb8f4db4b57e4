//! A link's way from connection to peer, and its end.

use super::{ACCEPT_PAUSE, ACCEPTS, End, Transport, TransportEvent};
use crate::handshake::{CONFIRM, answer_len, claimed, opening_len, refuse};
use crate::link::{Link, Stage, tune};
use crate::{DialError, Disconnect, Refusal};
use mio::net::TcpStream;
use mio::{Interest, Token};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Instant;
use tercio_types::{Principal, ReplicaId};

impl Transport {
    /// Makes of the received bytes what the link's stage makes of them.
    pub(super) fn digest(&mut self, slot: usize, link: &mut Link, now: Instant) -> Result<(), End> {
        loop {
            match std::mem::replace(&mut link.stage, Stage::AwaitOpening) {
                Stage::Connecting => {
                    link.stage = Stage::Connecting;
                    return Ok(());
                }
                Stage::Refused => {
                    link.inbox.clear();
                    return Ok(());
                }
                Stage::AwaitOpening => {
                    let opening = link.inbox.received();
                    let answered = match self.identity.check_opening(opening) {
                        Ok(None) => {
                            link.stage = Stage::AwaitOpening;
                            return Ok(());
                        }
                        Ok(Some(from)) if self.has_room(from) => {
                            self.identity.answer(from, opening)
                        }
                        Ok(Some(_)) => Err(Refusal::TooManyLinks),
                        Err(refusal) => Err(refusal),
                    };
                    match answered {
                        Ok((answering, answer)) => {
                            let _ = link.inbox.take(opening_len(self.identity.suite()));
                            write_all(&mut link.stream, &answer)?;
                            link.stage = Stage::AwaitConfirm(answering);
                        }
                        Err(refusal) => {
                            self.refuse(link, refusal)?;
                        }
                    }
                }
                Stage::AwaitConfirm(answering) => {
                    if link.inbox.received().len() < CONFIRM {
                        link.stage = Stage::AwaitConfirm(answering);
                        return Ok(());
                    }
                    let peer = answering.from;
                    if !answering.confirmed(&link.inbox.take(CONFIRM)) {
                        return Err(End::Refused(Refusal::BadProof));
                    }
                    if !self.has_room(peer) {
                        return Err(End::Refused(Refusal::TooManyLinks));
                    }
                    self.open(slot, link, peer, now);
                }
                Stage::AwaitAnswer(dialling) => {
                    let answer = link.inbox.received();
                    if !dialling.check_answer(answer).map_err(End::Refused)? {
                        link.stage = Stage::AwaitAnswer(dialling);
                        return Ok(());
                    }
                    let confirm = dialling.finish(answer).map_err(End::Refused)?;
                    let _ = link.inbox.take(answer_len(self.identity.suite()));
                    write_all(&mut link.stream, &confirm)?;
                    let to = link.dialled.expect("we dialled whom we await an answer of");
                    self.open(slot, link, Principal::Replica(to), now);
                }
                Stage::Open(from, since) => {
                    link.stage = Stage::Open(from, since);
                    let limit = match from {
                        Principal::Replica(_) => self.limits.max_frame,
                        Principal::Client(_) => self.limits.max_client_frame,
                    };
                    while let Some(bytes) = link
                        .inbox
                        .next_frame(limit)
                        .map_err(|e| End::Broken(Disconnect::Frame(e)))?
                    {
                        self.events.push(TransportEvent::Frame { from, bytes });
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Whether one more link of `peer` keeps the bound on clients.
    fn has_room(&self, peer: Principal) -> bool {
        match peer {
            Principal::Replica(_) => true,
            Principal::Client(id) => {
                self.clients.len() < self.limits.max_clients || self.clients.contains_key(&id)
            }
        }
    }

    /// Tells the dialler why, and lets it read that before the connection goes.
    fn refuse(&mut self, link: &mut Link, reason: Refusal) -> Result<(), End> {
        if reason == Refusal::Garbage {
            return Err(End::Refused(reason));
        }
        self.rejected(link, reason);
        let chain = self.identity.membership.chain();
        write_all(&mut link.stream, &refuse(reason, chain))?;
        link.stream.shutdown(Shutdown::Write)?;
        link.stage = Stage::Refused;
        Ok(())
    }

    fn rejected(&mut self, link: &Link, reason: Refusal) {
        self.count(reason.reason(), 1);
        let (peer_addr, dialled) = (link.address, link.dialled);
        let claimed = if dialled.is_none() { claimed(link.inbox.received()) } else { None };
        self.events.push(TransportEvent::Rejected { peer_addr, dialled, claimed, reason });
    }

    /// TCP reports something about a connection that we dialled.
    pub(super) fn connected(&self, link: &mut Link) -> Result<(), End> {
        if let Some(error) = link.stream.take_error()? {
            return Err(error.into());
        }
        match link.stream.peer_addr() {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotConnected => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let to = link.dialled.expect("only dialled links connect");
        let (dialling, opening) = self.identity.open(to).expect("checked before dialling");
        write_all(&mut link.stream, &opening)?;
        link.stage = Stage::AwaitAnswer(dialling);
        Ok(())
    }

    /// The handshake is through.
    fn open(&mut self, slot: usize, link: &mut Link, peer: Principal, now: Instant) {
        self.end_handshake(slot, link);
        if let Some(older) = self.slot(peer) {
            self.with_link(older, || now, |_, _, _| Err(End::Broken(Disconnect::Replaced)));
        }
        link.stage = Stage::Open(peer, now);
        self.set_slot(peer, Some(slot));
        if let Some(dial) = self.dials.iter_mut().find(|d| link.dialled == Some(d.to)) {
            dial.last_error = None;
        }
        self.events.push(TransportEvent::Connected(peer));
    }

    fn end_handshake(&mut self, slot: usize, link: &mut Link) {
        if let Some(deadline) = link.deadline.take() {
            self.handshakes.remove(&(deadline, slot));
            if link.dialled.is_none() {
                self.half_open -= 1;
            }
        }
    }

    /// Ends a link for good: the books, the events, the next dial.
    pub(super) fn take_down(&mut self, slot: usize, mut link: Box<Link>, end: &End, now: Instant) {
        self.end_handshake(slot, &mut link);
        // Closing the socket takes it off the event queue as well; this only says so.
        let _ = self.poll.registry().deregister(&mut link.stream);
        self.free.push(slot);
        let held = link.held(now);
        let refused = matches!(link.stage, Stage::Refused);
        match (link.peer(), end) {
            (Some(peer), End::Broken(why)) => {
                self.set_slot(peer, None);
                self.count(why.reason(), 1);
                self.count("lost_with_link", link.outbox.frames());
                self.events.push(TransportEvent::Disconnected(peer, *why));
            }
            (_, End::Refused(why)) => self.rejected(&link, *why),
            (_, End::Evicted) => self.count("half_open_evicted", 1),
            (None, End::Broken(_)) if refused => {}
            (None, End::Broken(_)) if link.dialled.is_some() => self.count("dial_failed", 1),
            (None, End::Broken(_)) => self.count("handshake_broken_off", 1),
        }
        let range = (self.limits.redial_min, self.limits.redial_max);
        if let Some(dial) = self.dials.iter_mut().find(|d| link.dialled == Some(d.to)) {
            dial.last_error = match end {
                End::Refused(why) => Some(DialError::Refused(link.address, *why)),
                End::Broken(Disconnect::Io(kind)) => Some(DialError::Connect(link.address, *kind)),
                End::Broken(_) | End::Evicted => Some(DialError::Closed(link.address)),
            };
            dial.again(now, held, range);
        }
    }

    /// Ends handshakes that took too long.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(at, slot)) = self.handshakes.first() {
            if at > now {
                break;
            }
            self.with_link(
                slot,
                || now,
                |_, _, link| {
                    // A refused peer that keeps the connection was told already.
                    match link.stage {
                        Stage::Refused => Err(End::Broken(Disconnect::Closed)),
                        _ => Err(End::Refused(Refusal::TimedOut)),
                    }
                },
            );
        }
    }

    pub(super) fn accept(&mut self, now: Instant) {
        if self.accept_at.is_none_or(|at| at > now) {
            return;
        }
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, address)) => {
                    if self.half_open >= self.limits.max_half_open {
                        self.evict(now);
                    }
                    self.add(stream, address, None, now);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.accept_at = None;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.count("accept_failed", 1);
                    self.accept_at = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// The oldest accepted handshake is evicted: a correct peer needs a few round trips, while a
    /// flood only sits there.
    fn evict(&mut self, now: Instant) {
        let accepted = |slot: usize| self.links[slot].as_ref().is_some_and(|l| l.dialled.is_none());
        let oldest = self.handshakes.iter().map(|(_, slot)| *slot).find(|slot| accepted(*slot));
        if let Some(slot) = oldest {
            self.with_link(slot, || now, |_, _, _| Err(End::Evicted));
        }
    }

    pub(super) fn add(
        &mut self,
        mut stream: TcpStream,
        address: SocketAddr,
        dialled: Option<ReplicaId>,
        now: Instant,
    ) -> Option<usize> {
        tune(&stream);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, Token(slot), interest).is_err() {
            self.free.push(slot);
            self.count("register_failed", 1);
            return None;
        }
        let deadline = now + self.limits.handshake_timeout;
        self.handshakes.insert((deadline, slot));
        self.half_open += usize::from(dialled.is_none());
        self.links[slot] = Some(Box::new(Link::new(stream, address, dialled, deadline)));
        Some(slot)
    }
}

/// Writes a message of the handshake. It is shorter than any socket's send buffer, which is empty
/// at that time; a system that takes less breaks the handshake off.
fn write_all(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), End> {
    match stream.write(bytes) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(End::Broken(Disconnect::Io(io::ErrorKind::WriteZero))),
        Err(e) => Err(e.into()),
    }
}
