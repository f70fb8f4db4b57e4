//! The client without I/O: packages out, frames in, completions out. See the crate's documentation
//! for the rules.

use crate::in_order::InOrder;
use crate::pace::Pace;
use crate::peers::Peers;
use crate::pending::{Pending, seal};
use crate::query::Asking;
use crate::replies::LEAST_HINT;
use crate::{Answer, ClientAuth, Completion, CoreSettings, Nanos, SubmitError};
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::{Instance, Keyring, SecretKey, hash};
use tercio_types::{
    ClientId, Membership, OpKind, Principal, ReplicaId, ReplicaSet, RequestSeq, SystemOp, View,
    WINDOW,
};
use tercio_wire::reject::Reason;
use tercio_wire::{
    AUTHENTICATED, CLIENT_SENDER, Encode, FRAME_HEADER, Key, Kind, encode_package_content,
};

/// Names a package until its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Room for the longest authenticator in a frame.
const MAX_AUTHENTICATOR: usize = 16 * tercio_types::MAX_REPLICAS;

/// One client's requests and queries in flight.
///
/// The owner tells it of links ([`Self::handle_connected`], [`Self::handle_disconnected`]; at first
/// there are none), frames and time, and after each call takes what is to be sent
/// ([`Self::poll_send`]) and what has ended ([`Self::poll_completion`], [`Self::poll_answer`]). It
/// calls [`Self::handle_timeout`] when [`Self::poll_timeout`] says. What is sent may be lost.
#[derive(Debug)]
pub struct ClientCore {
    pub(crate) me: ClientId,
    pub(crate) settings: CoreSettings,
    pub(crate) membership: Arc<Membership>,
    pub(crate) keys: Keyring,
    pub(crate) peers: Peers,
    /// How packages are authenticated from now on.
    pub(crate) auth: ClientAuth,
    /// Who said that we must sign.
    pub(crate) must_sign: ReplicaSet,
    /// The number of the next operation, once it is known.
    pub(crate) next: Option<RequestSeq>,
    next_ticket: u64,
    pub(crate) pending: InOrder<Pending>,
    pub(crate) pace: Pace,
    /// When to look at which package again, the soonest first. Packages end and change their times;
    /// only what stands first is sure to be still meant.
    timers: BinaryHeap<Reverse<(Nanos, RequestSeq)>>,
    /// How many bytes of results are kept of each replica.
    pub(crate) held: Vec<usize>,
    pub(crate) next_query: u64,
    pub(crate) queries: BTreeMap<u64, Asking>,
    pub(crate) outgoing: VecDeque<(ReplicaId, Bytes)>,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) answers: VecDeque<Answer>,
    counters: BTreeMap<&'static str, u64>,
}

impl ClientCore {
    /// The client `me`, who holds `secret`.
    #[must_use]
    pub fn new(
        me: ClientId,
        secret: SecretKey,
        membership: Arc<Membership>,
        settings: CoreSettings,
    ) -> Self {
        let instance = Instance::default();
        let mut keys = Keyring::new(Principal::Client(me), secret, membership.clone(), instance);
        if let Some(signing) = &settings.signing {
            keys = keys.signing_with(signing.clone());
        }
        Self {
            me,
            peers: Peers::new(membership.clone()),
            auth: settings.auth,
            must_sign: ReplicaSet::EMPTY,
            next: settings.first,
            next_ticket: 0,
            pending: InOrder::new(),
            pace: Pace::new(settings.max_outstanding),
            timers: BinaryHeap::new(),
            held: vec![0; membership.ids().bound()],
            next_query: settings.first_query,
            queries: BTreeMap::new(),
            outgoing: VecDeque::new(),
            completions: VecDeque::new(),
            answers: VecDeque::new(),
            counters: BTreeMap::new(),
            settings,
            membership,
            keys,
        }
    }

    /// What was dropped, by reason.
    #[must_use]
    pub fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// How packages are authenticated from now on.
    #[must_use]
    pub fn auth(&self) -> ClientAuth {
        self.auth
    }

    /// The greatest view that f+1 replicas have reached, as far as we heard.
    #[must_use]
    pub fn view(&self) -> View {
        self.peers.view()
    }

    /// How many packages are in flight, those included whose caller was told of a time-out.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// How many packages were taken and are not sent, since the primary says that it is busy.
    #[must_use]
    pub fn held_back(&self) -> usize {
        self.pace.held()
    }

    /// For how long nothing new is sent, since the primary says that it is busy; zero when it does
    /// not.
    #[must_use]
    pub fn busy_for(&self, now: Nanos) -> Duration {
        now.until(self.pace.until())
    }

    /// When the caller of a package or query is told that there is no result.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.settings.deadline
    }

    /// When the callers of packages and queries from now on are told that there is no result.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.settings.deadline = deadline;
    }

    /// The number that the next operation gets; `None` until the client's numbers are taken up.
    #[must_use]
    pub fn next_number(&self) -> Option<RequestSeq> {
        self.next
    }

    pub(crate) fn count(&mut self, reason: &'static str) {
        *self.counters.entry(reason).or_default() += 1;
    }

    pub(crate) fn check_size(&self, body: usize) -> Result<(), SubmitError> {
        let found = FRAME_HEADER + AUTHENTICATED + MAX_AUTHENTICATOR + body;
        let limit = self.settings.max_package;
        if found > limit {
            return Err(SubmitError::TooLarge { found, limit, unit: "bytes" });
        }
        Ok(())
    }

    /// Takes operations as one package.
    ///
    /// # Errors
    /// When there are none, too many or too long ones, too much is under way, or the client's
    /// numbers were not taken up. Nothing was sent then.
    pub fn submit(&mut self, ops: Vec<Bytes>, now: Nanos) -> Result<Ticket, SubmitError> {
        self.submit_as(OpKind::User, ops, now)
    }

    /// Takes questions as one package of ordered reads: each is answered at its place in the
    /// order, with the height there.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn read(&mut self, questions: Vec<Bytes>, now: Nanos) -> Result<Ticket, SubmitError> {
        self.submit_as(OpKind::Read, questions, now)
    }

    /// Takes an operation for the engine itself, as a package of its own.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn system(&mut self, op: &SystemOp, now: Nanos) -> Result<Ticket, SubmitError> {
        self.submit_as(OpKind::System, vec![op.to_bytes()], now)
    }

    fn submit_as(
        &mut self,
        kind: OpKind,
        ops: Vec<Bytes>,
        now: Nanos,
    ) -> Result<Ticket, SubmitError> {
        if ops.is_empty() {
            return Err(SubmitError::Empty);
        }
        if ops.len() as u64 > WINDOW {
            let (found, limit, unit) = (ops.len(), WINDOW as usize, "operations");
            return Err(SubmitError::TooLarge { found, limit, unit });
        }
        if !self.settings.wait_when_busy && !self.pace.is_open(now) {
            let retry_after = self.busy_for(now).max(LEAST_HINT);
            return Err(SubmitError::Busy { retry_after });
        }
        let first = self.next.ok_or(SubmitError::NotResumed)?;
        let Some(end) = first.0.checked_add(ops.len() as u64).map(RequestSeq) else {
            return Err(SubmitError::TooMany { outstanding: self.pending.len() });
        };
        let oldest = self.pending.first_key_value().map_or(first, |(oldest, _)| *oldest);
        let outstanding = self.pending.len();
        if outstanding >= self.settings.max_outstanding || end.0 - oldest.0 > WINDOW {
            return Err(SubmitError::TooMany { outstanding });
        }
        let replier = self.peers.replier(self.next_ticket, now);
        let (key, content) = self.package(first, kind, replier, &ops);
        self.check_size(content.len())?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.next = Some(end);
        let frame = seal(&self.keys, self.auth, key, content.clone());
        let mut pending = Pending::new(self.membership.ids(), ticket, ops.len(), replier, key);
        (pending.content, pending.frame) = (content, frame);
        pending.sent_at = now;
        let longest = self.peers.longest_pause(self.settings.max_timeout);
        pending.pause = self.peers.timeout(self.settings.timeout).min(longest);
        pending.retry_at = now + pending.pause;
        pending.deadline = Some(now + self.settings.deadline);
        pending.within = self.settings.deadline;
        if self.pace.is_open(now) {
            self.pace.send();
            ask_primary(&self.peers, &mut self.outgoing, &mut pending);
        } else {
            self.pace.hold(first);
            pending.held = true;
            pending.retry_at = now + self.settings.max_timeout;
        }
        self.adopt(pending);
        Ok(ticket)
    }

    /// Sends what back-pressure held back, as far as it may be sent now.
    pub(crate) fn release(&mut self, now: Nanos) {
        while let Some(first) = self.pace.release(now) {
            let pending = self.pending.get_mut(&first).expect("what is held back is under way");
            pending.held = false;
            pending.sent_at = now;
            pending.retry_at = now + pending.pause;
            ask_primary(&self.peers, &mut self.outgoing, pending);
            self.rearm(first);
        }
    }

    /// Takes a package into the books.
    pub(crate) fn adopt(&mut self, mut pending: Pending) {
        pending.wake = pending.due();
        self.timers.push(Reverse((pending.wake, pending.first)));
        self.pending.insert(pending.first, pending);
    }

    /// Key and content of a package of ours.
    pub(crate) fn package(
        &self,
        first: RequestSeq,
        kind: OpKind,
        replier: ReplicaId,
        ops: &[Bytes],
    ) -> (Key, Bytes) {
        let mut content = Vec::with_capacity(32 + ops.iter().map(|op| 4 + op.len()).sum::<usize>());
        encode_package_content(self.me, first, kind, replier, ops, &mut content);
        let digest = hash(self.membership.suite(), &[&content]);
        let (sender, view) = (CLIENT_SENDER, self.me.0);
        let key = Key { kind: Kind::REQUEST, flags: 0, sender, view, seq: first.0, digest };
        (key, content.into())
    }

    /// What is to be sent next, and to whom.
    pub fn poll_send(&mut self) -> Option<(ReplicaId, Bytes)> {
        self.outgoing.pop_front()
    }

    /// The next package that came to its end.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// When to call [`Self::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let queries = self.queries.values().map(Asking::due).min();
        let packages = self.timers.peek().map(|Reverse((at, _))| *at);
        packages.into_iter().chain(queries).chain(self.pace.due()).min()
    }

    /// Puts a package's timer where it belongs after a change.
    pub(crate) fn rearm(&mut self, first: RequestSeq) {
        let Some(pending) = self.pending.get_mut(&first) else { return };
        let due = pending.due();
        if due != pending.wake {
            pending.wake = due;
            self.timers.push(Reverse((due, first)));
            self.tidy_timers();
        }
    }

    /// Takes away what stands first among the timers and is not meant any more.
    fn tidy_timers(&mut self) {
        while let Some(Reverse((at, first))) = self.timers.peek() {
            if self.pending.get(first).is_some_and(|pending| pending.wake == *at) {
                break;
            }
            self.timers.pop();
        }
    }

    /// Ends the books on a package.
    pub(crate) fn forget(&mut self, first: RequestSeq) -> Option<Pending> {
        let pending = self.pending.remove(&first)?;
        self.tidy_timers();
        self.pace.end(first);
        self.peers.ended(pending.replier, pending.ticket.0);
        for (replica, bytes) in pending.tally.all_held() {
            self.held[replica.index()] -= bytes;
        }
        Some(pending)
    }

    /// A link to `replica` is open: it gets what it should have and may have lost.
    pub fn handle_connected(&mut self, replica: ReplicaId) {
        if !self.membership.contains(replica) {
            return;
        }
        self.peers.connect(replica);
        let primary = self.peers.primary() == replica;
        let wanted = |p: &&Pending| !p.held && (p.everybody || primary);
        for pending in self.pending.values().filter(wanted) {
            self.outgoing.push_back((replica, pending.frame.clone()));
        }
        for asking in self.queries.values() {
            self.outgoing.push_back((replica, asking.frame().clone()));
        }
    }

    /// The link to `replica` is gone. Without the primary all others are asked at once; without a
    /// replier another one that agreed.
    pub fn handle_disconnected(&mut self, replica: ReplicaId, now: Nanos) {
        self.peers.disconnect(replica);
        let primary = self.peers.primary() == replica;
        let firsts: Vec<RequestSeq> = self.pending.keys().copied().collect();
        for first in firsts {
            let pending = self.pending.get_mut(&first).expect("just listed");
            if primary && !pending.everybody && !pending.held {
                ask_all(&self.peers, &mut self.outgoing, pending);
            }
            if pending.body_at.is_some() && pending.replier == replica {
                self.ask_for_body(first, now);
            }
            self.rearm(first);
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanos) {
        while let Some(&Reverse((at, first))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.package_timeout(first, now);
            self.rearm(first);
        }
        self.release(now);
        self.query_timeouts(now);
    }

    fn package_timeout(&mut self, first: RequestSeq, now: Nanos) {
        let pending = self.pending.get_mut(&first).expect("timers stand for packages");
        if pending.deadline.is_some_and(|at| at <= now) {
            pending.deadline = None;
            let failure = pending.timed_out(&self.membership);
            let (ticket, view, resent) = (pending.ticket, self.peers.view(), pending.resent);
            let outcome = Err(failure);
            self.completions.push_back(Completion { ticket, first, outcome, view, resent });
        }
        let (outgoing, frame) = (&mut self.outgoing, &pending.frame);
        let rejects = &mut pending.rejects;
        pending.busy.retain(|replica, at| {
            if *at <= now && self.peers.is_connected(*replica) {
                outgoing.push_back((*replica, frame.clone()));
                // Said of a state that it may have left behind.
                rejects[replica.index()].take_if(|why| *why == Reason::BeyondWindow);
            }
            *at > now
        });
        if pending.retry_at <= now {
            if std::mem::take(&mut pending.held) {
                // Its primary has said 'busy' for long enough, or says nothing: the others decide.
                self.pace.send_anyway(first);
            }
            pending.resent += 1;
            let longest = self.peers.longest_pause(self.settings.max_timeout);
            pending.pause = pending.pause.saturating_mul(2).min(longest);
            pending.retry_at = now + pending.pause;
            pending.asked = ReplicaSet::EMPTY;
            ask_all(&self.peers, &mut self.outgoing, pending);
        }
        if pending.body_at.is_some_and(|at| at <= now) {
            self.peers.was_silent(pending.replier, pending.ticket.0, now);
            self.ask_for_body(first, now);
        }
    }

    /// f+1 replicas agree and nobody sent the bytes: asks one of those that agree, the best first.
    /// Each is asked once; then it is left to the time when all are asked.
    pub(crate) fn ask_for_body(&mut self, first: RequestSeq, now: Nanos) {
        let pending = self.pending.get_mut(&first).expect("the caller has just seen it");
        pending.body_at = None;
        let Some(digest) = pending.tally.agreed(self.membership.reply_threshold()) else { return };
        let agree = pending.tally.who(digest);
        let asked = pending.asked;
        let turn = u64::from(pending.replier.0) + 1;
        let wanted = |r: ReplicaId| agree.contains(r) && !asked.contains(r);
        if let Some(replica) = self.peers.pick(turn, wanted) {
            pending.asked.insert(replica);
            pending.resent += 1;
            pending.body_at = Some(now + self.settings.replier_patience);
            self.outgoing.push_back((replica, pending.frame.clone()));
        }
    }
}

/// Sends a package to the primary, or to all when there is no link to it.
fn ask_primary(peers: &Peers, outgoing: &mut VecDeque<(ReplicaId, Bytes)>, pending: &mut Pending) {
    let primary = peers.primary();
    if pending.everybody || !peers.is_connected(primary) {
        ask_all(peers, outgoing, pending);
    } else {
        outgoing.push_back((primary, pending.frame.clone()));
    }
}

/// Sends a package to every replica that is linked; the others get it when they are.
pub(crate) fn ask_all(
    peers: &Peers,
    outgoing: &mut VecDeque<(ReplicaId, Bytes)>,
    pending: &mut Pending,
) {
    pending.everybody = true;
    for replica in peers.connected().iter() {
        outgoing.push_back((replica, pending.frame.clone()));
    }
}
