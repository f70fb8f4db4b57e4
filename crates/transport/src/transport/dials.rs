//! Dialling what is due.

use super::{End, Transport};
use crate::dial::{Dial, Stage};
use crate::link::Link;
use crate::{DialError, Disconnect, Refusal};
use mio::net::TcpStream;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tercio_types::{Principal, ReplicaId};

impl Transport {
    pub(super) fn dial_due(&mut self, now: Instant) {
        for i in 0..self.dials.len() {
            if self.dials[i].due().is_none_or(|at| at > now) {
                continue;
            }
            if let Ok(address) = self.dials[i].address.parse() {
                self.dial(i, address, now);
            } else {
                self.dials[i].stage = Stage::Resolving;
                let waker = self.waker();
                self.resolver.start(&self.dials[i], move || waker.wake());
            }
        }
    }

    pub(super) fn resolved(
        &mut self,
        to: ReplicaId,
        found: Result<SocketAddr, String>,
        now: Instant,
    ) {
        let asks = |d: &Dial| d.to == to && d.stage == Stage::Resolving;
        // An older attempt may have succeeded meanwhile.
        let Some(i) = self.dials.iter().position(asks) else { return };
        match found {
            Ok(address) => self.dial(i, address, now),
            Err(why) => {
                let name = self.dials[i].address.clone();
                self.dial_failed(i, DialError::Address(name, why), now);
            }
        }
    }

    fn dial(&mut self, i: usize, address: SocketAddr, now: Instant) {
        let to = self.dials[i].to;
        if self.proofs.key(&self.identity, Principal::Replica(to)).is_none() {
            return self.dial_failed(i, DialError::BadKey, now);
        }
        match TcpStream::connect(address) {
            Ok(stream) => match self.add(stream, address, Some(to), now) {
                Some(slot) => self.dials[i].stage = Stage::Link(slot),
                None => {
                    let why = DialError::Connect(address, io::ErrorKind::Other);
                    self.dial_failed(i, why, now);
                }
            },
            Err(e) => self.dial_failed(i, DialError::Connect(address, e.kind()), now),
        }
    }

    /// A dialled handshake has not ended in time: whether it is given more, beside another attempt.
    pub(super) fn is_patient(&mut self, slot: usize, link: &mut Link, now: Instant) -> bool {
        let Some(dial) = self.dials.iter_mut().find(|d| link.dialled == Some(d.to)) else {
            return false;
        };
        if link.until <= now || dial.patient.is_some() {
            return false;
        }
        dial.patient = Some(slot);
        dial.stage = Stage::Waiting(now);
        if let Some(before) = link.deadline.replace(link.until) {
            self.handshakes.remove(&(before, slot));
        }
        self.handshakes.insert((link.until, slot));
        true
    }

    /// The link that we dialled is open: what other attempt there is is not needed any more.
    pub(super) fn dial_succeeded(&mut self, slot: usize, to: ReplicaId, now: Instant) {
        let Some(dial) = self.dials.iter_mut().find(|d| d.to == to) else { return };
        dial.last_error = None;
        let newer = std::mem::replace(&mut dial.stage, Stage::Link(slot));
        let other = match (dial.patient.take(), newer) {
            (Some(patient), Stage::Link(newer)) if patient == slot => Some(newer),
            (patient, _) => patient.filter(|patient| *patient != slot),
        };
        if let Some(other) = other {
            self.with_link(other, || now, |_, _, _| Err(End::Spare));
        }
    }

    /// A link that we dialled is gone; plans the next attempt, unless there is another one.
    pub(super) fn dial_ended(&mut self, slot: usize, link: &Link, end: &End, now: Instant) {
        let Some(dial) = self.dials.iter_mut().find(|d| link.dialled == Some(d.to)) else { return };
        let is_patient = dial.patient == Some(slot);
        if !is_patient && dial.stage != Stage::Link(slot) {
            return;
        }
        dial.last_error = Some(match end {
            End::Refused(why) => DialError::Refused(link.address, *why),
            End::Broken(Disconnect::Io(kind)) => DialError::Connect(link.address, *kind),
            End::Broken(_) | End::Evicted | End::Spare => DialError::Closed(link.address),
        });
        let range = (self.limits.redial_min, self.limits.redial_max);
        match end {
            _ if is_patient => dial.patient = None,
            End::Refused(Refusal::TimedOut) => dial.again_soon(now, range.0),
            _ => dial.again(now, link.held(now), range),
        }
    }

    fn dial_failed(&mut self, i: usize, why: DialError, now: Instant) {
        self.count("dial_failed", 1);
        self.dials[i].last_error = Some(why);
        self.dials[i].again(now, None, (self.limits.redial_min, self.limits.redial_max));
    }
}
