//! What clients send: requests for the protocol, questions for execution, and what is turned away.

use super::{Check, OrderStage};
use crate::NodeError;
use crate::stages::{Outbox, Question, ToExecute};
use std::time::Duration;
use tercio_consensus::{Event, Instant, Protocol};
use tercio_crypto::Verified;
use tercio_types::{ClientId, OpKind, Principal, RequestSeq};
use tercio_verify::Plain;
use tercio_wire::reject::{Reason, Reject};
use tercio_wire::{Key, Kind, Received, Request};

/// When a client may try again that came while later stages were behind.
const BEHIND: Duration = Duration::from_millis(20);

impl<P: Protocol> OrderStage<P> {
    /// Drops or declines a client's frame before anything is computed over it, when there is no room
    /// for it anyway. Whatever the frame says of itself, the answer goes to the link's peer.
    pub(super) fn sheds(
        &mut self,
        client: ClientId,
        frame: &[u8],
        now: Instant,
        out: &mut Outbox,
    ) -> bool {
        if !self.intake.listens_to(client, now) {
            self.tally.drop("client_floods");
            return true;
        }
        let Some((Kind::REQUEST, first)) = Key::peek(frame) else { return false };
        let hint = match self.busy {
            true => Some(BEHIND),
            false => self.protocol.turns_away(client, RequestSeq(first)),
        };
        let Some(hint) = hint else { return false };
        self.reject(client, first, Reason::Busy, hint, out);
        true
    }

    pub(super) fn on_request(
        &mut self,
        request: Verified<Received<Request>>,
        check: Check<'_>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let package = &request.message.0;
        let (client, first) = (package.client, package.first.0);
        if self.busy {
            // It was not yet when the package came.
            self.reject(client, first, Reason::Busy, BEHIND, out);
            return Ok(());
        }
        if package.kind == OpKind::User && package.ops.iter().any(|op| check(op).is_err()) {
            self.reject(client, first, Reason::Malformed, Duration::ZERO, out);
            return Ok(());
        }
        self.probe.request(package);
        self.tell(Event::Request(request), now, out)
    }

    pub(super) fn on_query(&mut self, query: Verified<Received<Plain>>, out: &mut Outbox) {
        let Principal::Client(client) = query.sender() else { return };
        let Plain { kind, seq: number, body } = query.into_inner().message;
        let question = if kind == Kind::NUMBERS { Question::Numbers } else { Question::App(body) };
        if self.busy {
            // It will be asked again; a REJECT would name a package.
            self.tally.drop("query_while_busy");
        } else {
            out.execute.push_back(ToExecute::Query { client, number, question });
        }
    }

    /// Answers a client that its package gets no result, and why.
    pub(super) fn reject(
        &mut self,
        client: ClientId,
        number: u64,
        reason: Reason,
        again: Duration,
        out: &mut Outbox,
    ) {
        self.intake.note_useless(client);
        self.tally.decline(reason);
        let retry_after_ms = u32::try_from(again.as_millis()).unwrap_or(u32::MAX);
        let reject = Reject { reason, retry_after_ms };
        self.outgoing.reject(client, number, &reject, self.protocol.view(), out);
    }
}
