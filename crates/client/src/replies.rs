//! What replicas say, checked and counted.

use crate::core::{ClientCore, ask_all};
use crate::pending::{Pending, seal};
use crate::tally::{Said, Tally};
use crate::{ClientAuth, Completion, Failure, Nanos};
use bytes::Bytes;
use std::time::Duration;
use tercio_crypto::{Claim, Claimed};
use tercio_types::{OpKind, ReplicaId, ReplicaSet, RequestSeq, View};
use tercio_wire::reject::{Reason, Reject};
use tercio_wire::{
    Decode, DecodeError, Frame, Kind, Reply, decode_replies, decode_results, replies_digest,
    results_digest,
};

/// Shorter replies are copied, so that they do not keep a whole receive buffer alive.
const COPY_BELOW: usize = 64 << 10;
/// A busy replica is not asked again sooner, whatever it says.
pub(crate) const LEAST_HINT: Duration = Duration::from_millis(5);

/// A replica's frame to us: only its own word to check.
struct Word<'a>(&'a Frame);

impl Claimed for Word<'_> {
    fn claims(&self, claim: &mut dyn FnMut(Claim<'_>)) {
        let by = self.0.key.principal();
        claim(Claim { by, said: self.0.key.to_array(), proof: (&self.0.auth).into() });
    }
}

impl ClientCore {
    /// Takes a frame that came over the link to `from`. What is not to be believed or not of use is
    /// dropped and counted.
    pub fn handle_frame(&mut self, from: ReplicaId, bytes: &Bytes, now: Nanos) {
        let frame = match Frame::decode(bytes, self.membership.suite()) {
            Ok(frame) => frame,
            Err(error) => return self.count(error.reason()),
        };
        if frame.key.sender != from.0 || !self.membership.contains(from) {
            return self.count("wrong_sender");
        }
        match frame.key.kind {
            Kind::REPLY => self.on_replies(from, &frame, now),
            Kind::REJECT | Kind::ANSWER => self.on_other(from, frame, now),
            _ => return self.count("unexpected_kind"),
        }
        self.release(now);
    }

    fn on_other(&mut self, from: ReplicaId, frame: Frame, now: Nanos) {
        let first = RequestSeq(frame.key.seq);
        let rejects = frame.key.kind == Kind::REJECT;
        let wanted = match rejects {
            true => self.pending.contains_key(&first),
            false => self.queries.contains_key(&frame.key.seq),
        };
        if !wanted {
            return self.count("not_waited_for");
        }
        if let Err(reject) = self.keys.verify(Word(&frame)) {
            return self.count(reject.reason());
        }
        if rejects {
            self.on_reject(from, first, &frame, now);
            self.rearm(first);
        } else {
            self.on_answer(from, frame);
        }
    }

    /// A REPLY: what a replica says of any number of our packages.
    fn on_replies(&mut self, from: ReplicaId, frame: &Frame, now: Nanos) {
        let suite = self.membership.suite();
        // A copy of what is short, once for all of it, so that the receive buffer is free again.
        let body = match frame.body.len() {
            len if len < COPY_BELOW => Bytes::copy_from_slice(&frame.body),
            _ => frame.body.clone(),
        };
        let replies = match decode_replies(&body, suite) {
            Ok(replies) => replies,
            Err(error) => return self.count(error.reason()),
        };
        if !replies.iter().any(|reply| self.pending.contains_key(&reply.first)) {
            // Mostly the replies after the f+1 that were enough; not worth checking.
            return self.count("not_waited_for");
        }
        if let Err(reject) = self.keys.verify(Word(frame)) {
            return self.count(reject.reason());
        }
        if replies_digest(&replies, suite) != frame.key.digest {
            return self.count(DecodeError::Digest.reason());
        }
        if self.peers.saw_view(from, View(frame.key.view)) {
            self.follow_primary();
        }
        for reply in replies {
            let first = reply.first;
            if self.pending.contains_key(&first) {
                self.on_reply(from, reply, now);
                self.rearm(first);
            }
        }
    }

    /// An entry of a verified REPLY on a package that is waited for.
    fn on_reply(&mut self, from: ReplicaId, reply: Reply, now: Nanos) {
        let Reply { first, digest, results } = reply;
        let mut body = (!results.is_empty()).then_some(results);
        if let Some(bytes) = &body {
            if results_digest(self.membership.suite(), self.me, first, bytes) != Ok(digest) {
                return self.count("wrong_results");
            }
            if self.held[from.index()] + bytes.len() > self.settings.max_held {
                body = None;
                self.count("result_not_kept");
            }
        }
        let pending = self.pending.get_mut(&first).expect("the caller has just seen it");
        self.held[from.index()] -= pending.tally.held(from);
        let said = pending.tally.say(from, digest, body);
        self.held[from.index()] += pending.tally.held(from);
        match said {
            Said::News => {}
            Said::Again => return self.count("duplicate_reply"),
            Said::Otherwise => self.count("conflicting_reply"),
        }
        let pending = &self.pending[&first];
        if pending.tally.who(digest).len() < self.membership.reply_threshold() {
            return;
        }
        if let Some((sender, body)) = pending.tally.body(digest) {
            let (body, ops) = (body.clone(), pending.ops);
            let results = decode_results(&body, self.membership.suite()).and_then(|results| {
                let fits = results.len() == ops;
                fits.then_some(results).ok_or(DecodeError::NotCanonical("count of results"))
            });
            self.peers.sent_result(sender);
            if pending.resent == 0 {
                self.peers.took(pending.sent_at.until(now));
            }
            self.complete(first, results.map_err(Failure::BadResults));
            return;
        }
        let (replier, turn) = (pending.replier, pending.ticket.0);
        if pending.asked.is_empty() && pending.tally.speakers().contains(replier) {
            // It has spoken, and did not send what f+1 agree on.
            self.peers.was_silent(replier, turn, now);
            self.ask_for_body(first, now);
        } else if pending.body_at.is_none() {
            if self.peers.answers(replier, turn) {
                let patience = self.peers.patience(self.settings.replier_patience);
                self.pending.get_mut(&first).expect("just seen").body_at = Some(now + patience);
            } else {
                self.ask_for_body(first, now);
            }
        }
    }

    /// Ends a package, and tells the caller unless it was told before.
    fn complete(
        &mut self,
        first: RequestSeq,
        outcome: Result<Vec<tercio_wire::OpResult>, Failure>,
    ) {
        let pending = self.forget(first).expect("the caller has just seen it");
        if pending.deadline.is_some() {
            let (ticket, view, resent) = (pending.ticket, self.peers.view(), pending.resent);
            self.completions.push_back(Completion { ticket, first, outcome, view, resent });
        } else if !pending.filler {
            self.count("completed_too_late");
        }
    }

    /// f+1 replicas reached another view: its primary gets what was sent to the last one alone.
    fn follow_primary(&mut self) {
        self.pace.reopen();
        let primary = self.peers.primary();
        let wanted = |p: &Pending| !p.everybody && !p.held;
        if self.peers.is_connected(primary) {
            for pending in self.pending.values().filter(|p| wanted(p)) {
                self.outgoing.push_back((primary, pending.frame.clone()));
            }
        } else {
            for pending in self.pending.values_mut().filter(|p| wanted(p)) {
                ask_all(&self.peers, &mut self.outgoing, pending);
            }
        }
    }

    /// A verified REJECT.
    fn on_reject(&mut self, from: ReplicaId, first: RequestSeq, frame: &Frame, now: Nanos) {
        let reject = match Reject::from_bytes(&frame.body, self.membership.suite()) {
            Ok(reject) => reject,
            Err(error) => return self.count(error.reason()),
        };
        let pending = self.pending.get_mut(&first).expect("the caller has just seen it");
        pending.rejects[from.index()] = Some(reject.reason);
        let same = pending.refused_for(reject.reason);
        let enough = same.len() >= self.membership.reply_threshold();
        match reject.reason {
            Reason::Busy => {
                let hint = Duration::from_millis(reject.retry_after_ms.into());
                let hint = hint.clamp(LEAST_HINT, self.settings.max_timeout.max(LEAST_HINT));
                if from == self.peers.primary() && !pending.everybody {
                    if !pending.held {
                        pending.held = true;
                        let since = *pending.turned_away.get_or_insert(now);
                        pending.retry_at = since + self.settings.max_timeout;
                        self.pace.turned_away(first, now, hint);
                        self.count("turned_away");
                    }
                    return;
                }
                pending.busy.insert(from, now + hint);
                if pending.busy.len() >= self.membership.reply_threshold() {
                    pending.retry_at = pending.retry_at.max(now + hint + pending.pause);
                }
            }
            Reason::MustSign if self.auth == ClientAuth::Signature => {
                self.count("needless_must_sign");
            }
            Reason::MustSign => {
                if !pending.everybody {
                    ask_all(&self.peers, &mut self.outgoing, pending);
                }
                self.must_sign.insert(from);
                if self.must_sign.len() >= self.membership.reply_threshold() {
                    self.sign_from_now_on();
                }
            }
            // A replica that is behind says so too, and it passes. What does not pass is said again.
            Reason::BeyondWindow
                if !enough
                    || *pending.beyond.get_or_insert(now) + self.settings.max_timeout > now =>
            {
                pending.beyond.get_or_insert(now);
                let hint = Duration::from_millis(reject.retry_after_ms.into());
                let hint = hint.clamp(LEAST_HINT, self.settings.max_timeout.max(LEAST_HINT));
                if !pending.everybody {
                    ask_all(&self.peers, &mut self.outgoing, pending);
                }
                pending.busy.insert(from, now + hint);
            }
            reason if enough => self.refused(first, reason, same, now),
            _ if !pending.everybody => ask_all(&self.peers, &mut self.outgoing, pending),
            _ => {}
        }
    }

    /// Signs for good, and what is in flight too. The digest of a package does not cover its
    /// authenticator, so replies to either form count.
    fn sign_from_now_on(&mut self) {
        self.auth = ClientAuth::Signature;
        for pending in self.pending.values_mut() {
            pending.frame = seal(&self.keys, self.auth, pending.key, pending.content.clone());
            if !pending.held {
                ask_all(&self.peers, &mut self.outgoing, pending);
            }
        }
    }

    /// f+1 replicas decline for a reason that does not pass. The caller is told, and the numbers
    /// are used up by system requests without content, which nobody carries out; unless they are
    /// used up already, by another package or by this one.
    fn refused(&mut self, first: RequestSeq, reason: Reason, by: Vec<ReplicaId>, now: Nanos) {
        let mut pending = self.forget(first).expect("the caller has just seen it");
        if pending.deadline.take().is_some() {
            let (ticket, view, resent) = (pending.ticket, self.peers.view(), pending.resent);
            let outcome = Err(match reason {
                Reason::NumberUsed => Failure::NumberUsed { first, by },
                Reason::ResultTooLong => Failure::ResultTooLong { by },
                Reason::BeyondWindow => Failure::BeyondWindow { first, by },
                reason => Failure::Refused { reason, by },
            });
            self.completions.push_back(Completion { ticket, first, outcome, view, resent });
        }
        if matches!(reason, Reason::NumberUsed | Reason::ResultTooLong) {
            return;
        }
        if pending.filler {
            return self.count("numbers_left_open");
        }
        let replier = self.peers.replier(pending.ticket.0, now);
        let ops = vec![Bytes::new(); pending.ops];
        (pending.key, pending.content) = self.package(first, OpKind::System, replier, &ops);
        pending.frame = seal(&self.keys, self.auth, pending.key, pending.content.clone());
        pending.filler = true;
        pending.replier = replier;
        pending.tally = Tally::new(self.membership.ids());
        pending.rejects.fill(None);
        pending.beyond = None;
        pending.busy.clear();
        pending.held = false;
        (pending.asked, pending.body_at) = (ReplicaSet::EMPTY, None);
        pending.pause = self.settings.timeout;
        pending.retry_at = now + pending.pause;
        self.pace.send();
        ask_all(&self.peers, &mut self.outgoing, &mut pending);
        self.adopt(pending);
    }
}
