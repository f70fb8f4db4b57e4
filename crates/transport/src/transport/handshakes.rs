//! A link's way from connection to peer, and its end.

use super::{End, Transport, TransportEvent};
use crate::handshake::{
    Answering, CHALLENGE, CONFIRM, Dialling, HELLO, Said, answer_len, challenge, check_challenge,
    claimed, opening_len,
};
use crate::link::{Link, Stage, tune};
use crate::{Disconnect, Refusal};
use mio::net::TcpStream;
use mio::{Interest, Token};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Instant;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{Principal, ReplicaId};

impl Transport {
    /// Makes of the received bytes what the link's stage makes of them.
    pub(super) fn digest(&mut self, slot: usize, link: &mut Link, now: Instant) -> Result<(), End> {
        let mut goes_on = true;
        while goes_on {
            goes_on = match std::mem::replace(&mut link.stage, Stage::AwaitHello) {
                waits @ (Stage::Connecting | Stage::Refused) => {
                    link.inbox.clear();
                    link.stage = waits;
                    false
                }
                Stage::AwaitHello => self.hear_hello(link)?,
                Stage::AwaitOpening(from, said) => self.hear_opening(link, from, said, now)?,
                Stage::AwaitConfirm(answering) => self.hear_confirm(slot, link, answering, now)?,
                Stage::AwaitChallenge => self.hear_challenge(link)?,
                Stage::AwaitAnswer(dialling) => self.hear_answer(slot, link, dialling, now)?,
                Stage::Open(from, since) => {
                    link.stage = Stage::Open(from, since);
                    self.hear_frames(link, from, now)?;
                    false
                }
            };
        }
        Ok(())
    }

    fn hear_frames(&mut self, link: &mut Link, from: Principal, now: Instant) -> Result<(), End> {
        let limit = match from {
            Principal::Replica(_) => self.limits.max_frame,
            Principal::Client(_) => self.limits.max_client_frame,
        };
        let before = self.events.len();
        while let Some(bytes) =
            link.inbox.next_frame(limit).map_err(|e| End::Broken(Disconnect::Frame(e)))?
        {
            self.events.push(TransportEvent::Frame { from, bytes });
        }
        // A client that sends something else than frames is idle all the same.
        if self.events.len() > before || matches!(from, Principal::Replica(_)) {
            link.heard = now;
        }
        Ok(())
    }

    /// Those that follow give whether to go on with what was received.
    fn hear_hello(&mut self, link: &mut Link) -> Result<bool, End> {
        match self.identity.check_hello(link.inbox.received()) {
            Ok(None) => Ok(false),
            Ok(Some(from)) => {
                link.claimed = Some(from);
                let hello = link.inbox.take(HELLO);
                let broken = End::Broken(Disconnect::Io(io::ErrorKind::Other));
                let (said, challenge) = challenge(&hello).ok_or(broken)?;
                write_all(&mut link.stream, &challenge)?;
                link.stage = Stage::AwaitOpening(from, Box::new(said));
                Ok(true)
            }
            Err(refusal) => self.refuse(link, refusal),
        }
    }

    fn hear_opening(
        &mut self,
        link: &mut Link,
        from: Principal,
        said: Box<Said>,
        now: Instant,
    ) -> Result<bool, End> {
        let Some(opening) = link.inbox.received().get(..opening_len(self.identity.suite())) else {
            link.stage = Stage::AwaitOpening(from, said);
            return Ok(false);
        };
        let key = self.proofs.key(&self.identity, from);
        // Nothing above a microsecond is done for whoever has not shown this.
        let is_proven = key.is_some_and(|key| said.is_proven_by(opening, key));
        let answered = if !is_proven && stands(Defence::F58ProofFirst) {
            Err(Refusal::BadProof)
        } else if !self.has_room(from, now) {
            Err(Refusal::TooManyLinks)
        } else if !self.proofs.grants(from, now) {
            Err(Refusal::TooOften)
        } else {
            self.identity.answer(from, &said, opening)
        };
        match answered {
            Ok((answering, answer)) => {
                let _ = link.inbox.take(opening_len(self.identity.suite()));
                write_all(&mut link.stream, &answer)?;
                self.evict_of(from, now);
                link.stage = Stage::AwaitConfirm(answering);
                Ok(true)
            }
            Err(refusal) => self.refuse(link, refusal),
        }
    }

    fn hear_confirm(
        &mut self,
        slot: usize,
        link: &mut Link,
        answering: Answering,
        now: Instant,
    ) -> Result<bool, End> {
        if link.inbox.received().len() < CONFIRM {
            link.stage = Stage::AwaitConfirm(answering);
            return Ok(false);
        }
        let peer = answering.from;
        if !answering.confirmed(&link.inbox.take(CONFIRM)) {
            return Err(End::Refused(Refusal::BadProof));
        }
        if !self.make_room(peer, now) {
            return Err(End::Refused(Refusal::TooManyLinks));
        }
        tune(&link.stream);
        self.strangers.seen(peer, link.address);
        self.open(slot, link, peer, now);
        Ok(true)
    }

    fn hear_challenge(&mut self, link: &mut Link) -> Result<bool, End> {
        let received = link.inbox.received();
        if !check_challenge(received).map_err(End::Refused)? {
            link.stage = Stage::AwaitChallenge;
            return Ok(false);
        }
        let to = link.dialled.expect("we dialled whom we await a challenge of");
        let key = self.proofs.key(&self.identity, Principal::Replica(to));
        let opening = key.and_then(|key| self.identity.open(to, received, key));
        // The membership may have changed since it was dialled.
        let (dialling, opening) = opening.ok_or(End::Refused(Refusal::UnknownId))?;
        let _ = link.inbox.take(CHALLENGE);
        write_all(&mut link.stream, &opening)?;
        link.stage = Stage::AwaitAnswer(dialling);
        Ok(true)
    }

    fn hear_answer(
        &mut self,
        slot: usize,
        link: &mut Link,
        dialling: Dialling,
        now: Instant,
    ) -> Result<bool, End> {
        let answer = link.inbox.received();
        if !dialling.check_answer(answer).map_err(End::Refused)? {
            link.stage = Stage::AwaitAnswer(dialling);
            return Ok(false);
        }
        let confirm = dialling.finish(answer).map_err(End::Refused)?;
        let _ = link.inbox.take(answer_len(self.identity.suite()));
        write_all(&mut link.stream, &confirm)?;
        let to = link.dialled.expect("we dialled whom we await an answer of");
        self.open(slot, link, Principal::Replica(to), now);
        self.dial_succeeded(slot, to, now);
        Ok(true)
    }

    /// Whether one more link of `peer` keeps the bound on clients, if an idle one gives way.
    fn has_room(&self, peer: Principal, now: Instant) -> bool {
        match peer {
            Principal::Replica(_) => true,
            Principal::Client(id) => {
                self.clients.len() < self.limits.max_clients
                    || self.clients.contains_key(&id)
                    || self.idlest(now).is_some()
            }
        }
    }

    /// The client's link that has been idle the longest, and for long enough.
    fn idlest(&self, now: Instant) -> Option<usize> {
        let idle = |slot: &usize| {
            let link = self.links[*slot].as_ref()?;
            (now.saturating_duration_since(link.heard) >= self.limits.client_idle)
                .then_some((link.heard, *slot))
        };
        self.clients.values().filter_map(idle).min().map(|(_, slot)| slot)
    }

    /// Makes room for a link of `peer`, who has proven itself; false when there is none. An identity
    /// has one link, so whoever holds one key takes one place.
    fn make_room(&mut self, peer: Principal, now: Instant) -> bool {
        if !self.has_room(peer, now) {
            return false;
        }
        let is_full = self.clients.len() >= self.limits.max_clients;
        if let Principal::Client(id) = peer
            && is_full
            && !self.clients.contains_key(&id)
            && let Some(slot) = self.idlest(now)
        {
            self.with_link(slot, || now, |_, _, _| Err(End::Broken(Disconnect::Idle)));
        }
        true
    }

    /// Tells the dialler why, and lets it read that before the connection goes.
    fn refuse(&mut self, link: &mut Link, reason: Refusal) -> Result<bool, End> {
        if reason == Refusal::Garbage {
            return Err(End::Refused(reason));
        }
        self.rejected(link, reason);
        write_all(&mut link.stream, &self.identity.refuse(reason))?;
        link.stream.shutdown(Shutdown::Write)?;
        link.stage = Stage::Refused;
        Ok(true)
    }

    fn rejected(&mut self, link: &Link, reason: Refusal) {
        self.count(reason.reason(), 1);
        let (peer_addr, dialled) = (link.address, link.dialled);
        let claims = || link.claimed.or_else(|| claimed(link.inbox.received()));
        let claimed = if dialled.is_none() { claims() } else { None };
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
        tune(&link.stream);
        write_all(&mut link.stream, &self.identity.hello(to))?;
        link.stage = Stage::AwaitChallenge;
        Ok(())
    }

    /// The handshake is through.
    fn open(&mut self, slot: usize, link: &mut Link, peer: Principal, now: Instant) {
        self.end_handshake(slot, link);
        if let Some(older) = self.slot(peer) {
            self.with_link(older, || now, |_, _, _| Err(End::Broken(Disconnect::Replaced)));
        }
        link.stage = Stage::Open(peer, now);
        link.heard = now;
        self.set_slot(peer, Some(slot));
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
            (_, End::Spare) => {}
            (None, End::Broken(_)) if refused => {}
            (None, End::Broken(_)) if link.dialled.is_some() => self.count("dial_failed", 1),
            (None, End::Broken(_)) => self.count("handshake_broken_off", 1),
        }
        self.dial_ended(slot, &link, end, now);
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
                |me, slot, link| {
                    // A refused peer that keeps the connection was told already.
                    if matches!(link.stage, Stage::Refused) {
                        return Err(End::Broken(Disconnect::Closed));
                    }
                    if me.is_patient(slot, link, now) {
                        return Ok(());
                    }
                    Err(End::Refused(Refusal::TimedOut))
                },
            );
        }
    }

    pub(super) fn add(
        &mut self,
        mut stream: TcpStream,
        address: SocketAddr,
        dialled: Option<ReplicaId>,
        now: Instant,
    ) -> Option<usize> {
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
        let link = Link::new(stream, address, dialled, now, &self.limits);
        self.handshakes.extend(link.deadline.map(|at| (at, slot)));
        self.half_open += usize::from(dialled.is_none());
        self.links[slot] = Some(Box::new(link));
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
