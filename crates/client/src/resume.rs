//! Going on under an id that was used before.
//!
//! A number is executed at most once, and asking for it again gives its old result; so a client
//! that returns must go on above every number that it ever used. And a number that it used and
//! that was never executed holds up the window, so it must be used up.
//!
//! - All replicas are asked which of the client's numbers they have executed. A quorum of equal
//!   answers ends it: replicas that have come as far as each other, f+1 of them correct. A client
//!   that sends nothing gets them as soon as the replicas are level.
//! - The client goes on above the highest of them, and above the number that its caller kept (see
//!   [`crate::Numbers`]). Only the latter is certain: a package of the earlier life may still be
//!   in flight and be executed after the replicas answered.
//! - A kept number that is above those by more than [`FARTHEST`] is not this client's on this chain:
//!   a file that somebody wrote by hand, or replicas that all began anew. It is refused
//!   ([`NumbersAhead`]), and nothing is used up.
//! - Open numbers below are used up by packages of empty system requests, as after a refusal. What
//!   the earlier life sent under them and was not executed yet is then executed instead or never.

use crate::core::ask_all;
use crate::pending::{Pending, seal};
use crate::{AHEAD, ClientCore, Nanos, QueryTicket, SubmitError, Ticket};
use bytes::Bytes;
use tercio_types::{OpKind, RequestSeq, RequestWindow, WINDOW};
use tercio_wire::Kind;

/// The most that a kept number is above the lowest that replicas did not execute: a window that was
/// under way, a package that was noted and not taken, and what was noted ahead of that.
const FARTHEST: u64 = 2 * WINDOW + AHEAD + 1;

/// A number that was kept is farther above those that the network executed than the window allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumbersAhead {
    /// The next number, as it was kept.
    pub found: RequestSeq,
    /// The next number, as the replicas know it.
    pub expected: RequestSeq,
}

impl ClientCore {
    /// Asks which of our numbers are executed. The answer is the encoding of a
    /// [`RequestWindow`].
    ///
    /// # Errors
    /// When too many queries are in flight.
    pub fn ask_numbers(&mut self, now: Nanos) -> Result<QueryTicket, SubmitError> {
        self.ask(Kind::NUMBERS, Bytes::new(), self.membership.quorum(), now)
    }

    /// Asks whether one of our numbers is executed, and what that gave. The answer is empty, or the
    /// result with its status byte.
    ///
    /// # Errors
    /// When too many queries are in flight.
    pub fn ask_number(
        &mut self,
        number: RequestSeq,
        now: Nanos,
    ) -> Result<QueryTicket, SubmitError> {
        let body = Bytes::copy_from_slice(&number.0.to_le_bytes());
        self.ask(Kind::NUMBERS, body, self.membership.quorum(), now)
    }

    /// Goes on above `done`, and not below `next`, when no number below is open. Otherwise gives how
    /// many are; packages that use them up are under way then, and the numbers are to be asked for
    /// again when nothing is outstanding, until there is none.
    ///
    /// # Errors
    /// When `next` is farther above `done` than the window allows. Nothing is sent then.
    ///
    /// # Panics
    /// When packages are in flight: numbers are taken up before the first.
    pub fn resume_at(
        &mut self,
        done: &RequestWindow,
        next: RequestSeq,
        now: Nanos,
    ) -> Result<u64, NumbersAhead> {
        assert!(self.pending.is_empty(), "numbers are taken up before the first package");
        let low = done.low().0;
        // Nothing above the window was ever executed, and nothing far above it was ever sent.
        let highest = (low..=low + WINDOW).rev().find(|n| done.contains(RequestSeq(*n)));
        if next.0.saturating_sub(low) > FARTHEST {
            let expected = RequestSeq(highest.unwrap_or(low) + 1);
            return Err(NumbersAhead { found: next, expected });
        }
        let known = self.next.map_or(1, |next| next.0);
        let next = next.0.max(highest.unwrap_or(low) + 1).max(known);
        let open: Vec<u64> = (low + 1..next.min(low + WINDOW + 1))
            .filter(|number| !done.contains(RequestSeq(*number)))
            .collect();
        for run in open.chunk_by(|a, b| a + 1 == *b) {
            self.use_up(RequestSeq(run[0]), run.len(), now);
        }
        // Beyond the window numbers cannot be used up before those in it are.
        let left = open.len() as u64 + next.saturating_sub(low + WINDOW + 1);
        if left == 0 {
            self.next = Some(RequestSeq(next));
        }
        Ok(left)
    }

    /// Sends all replicas a package of system requests without content.
    fn use_up(&mut self, first: RequestSeq, ops: usize, now: Nanos) {
        let replier = self.peers.replier(first.0, now);
        let (key, content) = self.package(first, OpKind::System, replier, &vec![Bytes::new(); ops]);
        // Nobody is told of its end.
        let mut pending = Pending::new(self.membership.ids(), Ticket(u64::MAX), ops, replier, key);
        pending.frame = seal(&self.keys, self.auth, key, content.clone());
        pending.content = content;
        pending.filler = true;
        pending.pause = self.settings.timeout;
        pending.retry_at = now + pending.pause;
        pending.sent_at = now;
        self.pace.send();
        ask_all(&self.peers, &mut self.outgoing, &mut pending);
        self.adopt(pending);
    }
}
