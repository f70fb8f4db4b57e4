//! Dialling what is due.

use super::Transport;
use crate::DialError;
use crate::dial::Stage;
use mio::net::TcpStream;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tercio_types::ReplicaId;

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
        let Some(i) = self.dials.iter().position(|d| d.to == to) else { return };
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
        if self.identity.open(to).is_none() {
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

    fn dial_failed(&mut self, i: usize, why: DialError, now: Instant) {
        self.count("dial_failed", 1);
        self.dials[i].last_error = Some(why);
        self.dials[i].again(now, None, (self.limits.redial_min, self.limits.redial_max));
    }
}
