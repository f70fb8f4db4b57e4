//! What clients send: requests for the protocol, questions for execution, and what is turned away.

use super::{OrderStage, Payer};
use crate::NodeError;
use crate::stages::{Outbox, Question, ToExecute};
use std::time::Duration;
use tercio_consensus::{Event, Instant, Protocol};
use tercio_crypto::Verified;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{ClientId, OpKind, Principal, RequestSeq, WINDOW};
use tercio_verify::{Lane, Plain};
use tercio_wire::reject::{Reason, Reject};
use tercio_wire::{Key, Kind, Received, Request, package_len};

/// When a client may try again that came while later stages were behind.
const BEHIND: Duration = Duration::from_millis(20);
/// When a client may try again whose number is far above those that were ordered here.
const AHEAD: Duration = Duration::from_millis(100);

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
        let from = Principal::Client(client);
        if !self.verify.hears(from, Duration::from_nanos(now.0)) {
            self.tally.drop("client_floods");
            self.silence(client);
            return true;
        }
        let room = self.verify.has_room_for(from);
        if !room {
            self.tally.drop("verify_queue_full");
        }
        let Some((Kind::REQUEST, first)) = Key::peek(frame) else { return !room };
        let hint = match self.is_busy() || !room {
            true => Some(BEHIND),
            false => self.protocol.turns_away(client, RequestSeq(first)),
        };
        let Some(hint) = hint else { return false };
        self.refuse(client, first, frame.len(), hint, out);
        true
    }

    /// What it sends next is not read before it has paid.
    fn silence(&mut self, client: ClientId) {
        let silence = self.verify.silence(Principal::Client(client));
        if !silence.is_zero() && stands(Defence::F59ChargeByCost) {
            self.silenced.insert(client, silence);
        }
    }

    /// Declines a package that found no room while it waited to be verified.
    pub(super) fn decline_busy(&mut self, client: ClientId, first: u64, out: &mut Outbox) {
        let hint = match self.busy {
            true => BEHIND,
            false => {
                let hint = self.protocol.turns_away(client, RequestSeq(first));
                hint.unwrap_or_else(|| self.protocol.retry_after())
            }
        };
        self.refuse(client, first, 0, hint, out);
    }

    /// Answers a client's own package that there is no room for it.
    fn refuse(
        &mut self,
        client: ClientId,
        first: u64,
        bytes: usize,
        hint: Duration,
        out: &mut Outbox,
    ) {
        self.payer = Some(Payer { lane: Lane::Client(client), bytes });
        self.reject(client, first, Reason::Busy, hint, out);
        self.payer = None;
    }

    /// A frame gets an answer that did not bring anything forward: the link that brought it pays. So
    /// nothing is held against a client that a replica forwards in its name.
    pub(super) fn charge_answer(&mut self) {
        if let Some(Payer { lane, bytes }) = self.payer {
            self.verify.charge(lane, bytes);
        }
    }

    /// Of a client's package from its own link.
    pub(super) fn on_request(
        &mut self,
        request: Verified<Received<Request>>,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), NodeError> {
        let package = &request.message.0;
        let (client, first) = (package.client, package.first.0);
        self.payer = Some(Payer { lane: Lane::Client(client), bytes: package_len(package) });
        if self.is_busy() {
            // It was not yet when the package came.
            self.reject(client, first, Reason::Busy, BEHIND, out);
            return Ok(());
        }
        if self.is_far_ahead(client, package.first) {
            self.reject(client, first, Reason::BeyondWindow, AHEAD, out);
            return Ok(());
        }
        if package.kind == OpKind::User
            && package.ops.iter().any(|op| self.pre_check.check(op).is_err())
        {
            self.reject(client, first, Reason::Malformed, Duration::ZERO, out);
            return Ok(());
        }
        self.probe.request(package);
        self.tell(Event::Request(request), now, out)
    }

    /// Whether a number is two windows above those that were ordered: nobody sends it who keeps to
    /// the window, unless we are behind the others. A number between would be ordered, and answered
    /// as beyond the window.
    fn is_far_ahead(&self, client: ClientId, first: RequestSeq) -> bool {
        let low = self.chain.windows().get(&client).map_or(0, |window| window.low().0);
        first.0.saturating_sub(low) > 2 * WINDOW && !self.lags() && stands(Defence::F65FarNumbers)
    }

    pub(super) fn on_query(&mut self, query: Verified<Received<Plain>>, out: &mut Outbox) {
        let Principal::Client(client) = query.sender() else { return };
        let Plain { kind, seq: number, body } = query.into_inner().message;
        let question = match (kind, body.len()) {
            (Kind::NUMBERS, 0) => Question::Numbers,
            (Kind::NUMBERS, _) => match body[..].try_into().map(u64::from_le_bytes) {
                Ok(number) => Question::Number(RequestSeq(number)),
                Err(_) => return self.tally.drop("query_without_sense"),
            },
            _ => Question::App(body),
        };
        if self.is_busy() || self.lags() {
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
        self.charge_answer();
        self.tally.decline(reason);
        let retry_after_ms = u32::try_from(again.as_millis()).unwrap_or(u32::MAX);
        let reject = Reject { reason, retry_after_ms };
        self.outgoing.reject(client, number, &reject, self.protocol.view(), out);
    }
}
