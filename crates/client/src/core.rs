//! The client without I/O: packages out, frames in, completions out. See the crate's documentation
//! for the rules.

use crate::peers::Peers;
use crate::pending::{Pending, seal};
use crate::query::Asking;
use crate::tally::Tally;
use crate::{Answer, ClientAuth, Completion, CoreSettings, Nanos, SubmitError};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tercio_crypto::{Instance, Keyring, SecretKey, hash};
use tercio_types::{
    ClientId, Membership, OpKind, Principal, ReplicaId, ReplicaSet, RequestSeq, View, WINDOW,
};
use tercio_wire::{AUTHENTICATED, CLIENT_SENDER, FRAME_HEADER, Key, Kind, encode_package_content};

/// Names a package until its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Room for the longest authenticator in a frame.
const MAX_AUTHENTICATOR: usize = 16 * tercio_types::MAX_REPLICAS;

/// One client's requests and queries under way.
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
    next: RequestSeq,
    next_ticket: u64,
    pub(crate) pending: BTreeMap<RequestSeq, Pending>,
    /// When to look at which package again.
    timers: BTreeSet<(Nanos, RequestSeq)>,
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
        let keys = Keyring::new(Principal::Client(me), secret, membership.clone(), instance);
        Self {
            me,
            peers: Peers::new(membership.clone()),
            auth: settings.auth,
            must_sign: ReplicaSet::EMPTY,
            next: settings.first,
            next_ticket: 0,
            pending: BTreeMap::new(),
            timers: BTreeSet::new(),
            held: vec![0; membership.n()],
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

    /// How many packages are under way, those included whose caller was told of a time-out.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// The number that the next operation gets.
    #[must_use]
    pub fn next_number(&self) -> RequestSeq {
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
    /// When there are none, too many or too long ones, or too much is under way. Nothing was sent
    /// then.
    pub fn submit(&mut self, ops: Vec<Bytes>, now: Nanos) -> Result<Ticket, SubmitError> {
        if ops.is_empty() {
            return Err(SubmitError::Empty);
        }
        if ops.len() as u64 > WINDOW {
            let (found, limit, unit) = (ops.len(), WINDOW as usize, "operations");
            return Err(SubmitError::TooLarge { found, limit, unit });
        }
        let first = self.next;
        let end = RequestSeq(first.0 + ops.len() as u64);
        let oldest = self.pending.first_key_value().map_or(first, |(oldest, _)| *oldest);
        let outstanding = self.pending.len();
        if outstanding >= self.settings.max_outstanding || end.0 - oldest.0 > WINDOW {
            return Err(SubmitError::TooMany { outstanding });
        }
        let replier = self.peers.replier(self.next_ticket, now);
        let (key, content) = self.package(first, OpKind::User, replier, &ops);
        self.check_size(content.len())?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.next = end;
        let n = self.membership.n();
        let mut pending = Pending {
            ticket,
            first,
            ops: ops.len(),
            replier,
            key,
            frame: seal(&self.keys, self.auth, key, content.clone()),
            content,
            tally: Tally::new(n),
            rejects: vec![None; n],
            everybody: false,
            asked: ReplicaSet::EMPTY,
            busy: BTreeMap::new(),
            body_at: None,
            retry_at: now + self.settings.timeout,
            pause: self.settings.timeout,
            deadline: Some(now + self.settings.deadline),
            filler: false,
            wake: Nanos(0),
        };
        let primary = self.peers.primary();
        if self.peers.is_connected(primary) {
            self.outgoing.push_back((primary, pending.frame.clone()));
        } else {
            ask_all(&self.peers, &mut self.outgoing, &mut pending);
        }
        self.adopt(pending);
        Ok(ticket)
    }

    /// Takes a package into the books.
    pub(crate) fn adopt(&mut self, mut pending: Pending) {
        pending.wake = pending.due();
        self.timers.insert((pending.wake, pending.first));
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
        let packages = self.timers.first().map(|(at, _)| *at);
        packages.into_iter().chain(queries).min()
    }

    /// Puts a package's timer where it belongs after a change.
    pub(crate) fn rearm(&mut self, first: RequestSeq) {
        let Some(pending) = self.pending.get_mut(&first) else { return };
        let due = pending.due();
        if due != pending.wake {
            self.timers.remove(&(pending.wake, first));
            self.timers.insert((due, first));
            pending.wake = due;
        }
    }

    /// Ends the books on a package.
    pub(crate) fn forget(&mut self, first: RequestSeq) -> Option<Pending> {
        let pending = self.pending.remove(&first)?;
        self.timers.remove(&(pending.wake, first));
        for replica in self.membership.replicas() {
            self.held[replica.index()] -= pending.tally.held(replica);
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
        for pending in self.pending.values().filter(|p| p.everybody || primary) {
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
            if primary && !pending.everybody {
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
        while let Some(&(at, first)) = self.timers.first() {
            if at > now {
                break;
            }
            self.package_timeout(first, now);
            self.rearm(first);
        }
        self.query_timeouts(now);
    }

    fn package_timeout(&mut self, first: RequestSeq, now: Nanos) {
        let pending = self.pending.get_mut(&first).expect("timers stand for packages");
        if pending.deadline.is_some_and(|at| at <= now) {
            pending.deadline = None;
            let failure = pending.timed_out(&self.membership, self.settings.deadline);
            let (ticket, view) = (pending.ticket, self.peers.view());
            self.completions.push_back(Completion { ticket, first, outcome: Err(failure), view });
        }
        let (outgoing, frame) = (&mut self.outgoing, &pending.frame);
        pending.busy.retain(|replica, at| {
            if *at <= now && self.peers.is_connected(*replica) {
                outgoing.push_back((*replica, frame.clone()));
            }
            *at > now
        });
        if pending.retry_at <= now {
            pending.pause = (pending.pause * 2).min(self.settings.max_timeout);
            pending.retry_at = now + pending.pause;
            pending.asked = ReplicaSet::EMPTY;
            ask_all(&self.peers, &mut self.outgoing, pending);
        }
        if pending.body_at.is_some_and(|at| at <= now) {
            self.peers.was_silent(pending.replier, now);
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
        if let Some(replica) = self.peers.pick(turn, now, wanted) {
            pending.asked.insert(replica);
            pending.body_at = Some(now + self.settings.replier_patience);
            self.outgoing.push_back((replica, pending.frame.clone()));
        }
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
