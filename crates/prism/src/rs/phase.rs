//! A phase of a protocol on a group: every replica is asked, and f + 1 answers that count are waited for.

use super::{MAX_MEMBERS, Map, RsError, call};
use crate::client::Draft;
use crate::cluster::{Late, Lost, Net, RETRY_NS, Reply, Round};
use crate::op::{Action, Deref, Status};
use crate::wire::Outcome;
use crate::zoo::{Defence, stands};
use std::cell::RefCell;
use std::rc::Rc;

/// Which replicas a phase asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All of them at once.
    All,
    /// f + 1 of them, and the others when these have not answered after this many nanoseconds: fewer
    /// requests while all is well.
    Hedged(u64),
}

/// What is known of a group. Shared by all coroutines of a client.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) net: Net,
    /// The servers' numbers, in the order of the members'.
    pub(crate) servers: Vec<usize>,
    pub(crate) ask: Ask,
    pub(crate) patience_ns: u64,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    /// Of each member its map, and the life of the connection that it was learnt from.
    maps: Vec<Option<(u64, Map)>>,
    /// When each was asked for it.
    asked_ns: Vec<Option<u64>>,
    /// The most that was heard of each member's number of lives.
    lives: [u64; MAX_MEMBERS],
    /// Where hedged phases begin, so that the load is shared.
    turn: usize,
}

/// What an answer is worth.
pub(crate) enum Worth<T> {
    /// It counts.
    Counts(T),
    /// Not yet: ask again a little later.
    Later,
    /// What the client knows of this replica is out of date.
    Outdated,
}

/// A member's part in a phase.
enum Ballot<T> {
    /// It was not asked.
    Open,
    Asked,
    /// Its answer was of no use.
    Spoilt,
    /// Its answer counts while it is in this life.
    Cast {
        life: u64,
        value: T,
    },
}

impl Group {
    pub(crate) fn new(net: Net, servers: Vec<usize>, ask: Ask, patience_ns: u64) -> Self {
        let state = State {
            maps: vec![None; servers.len()],
            asked_ns: vec![None; servers.len()],
            lives: [0; MAX_MEMBERS],
            turn: 0,
        };
        Self { net, servers, ask, patience_ns, state: RefCell::new(state) }
    }

    pub(crate) fn members(&self) -> usize {
        self.servers.len()
    }

    pub(crate) fn quorum(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// The map of a member, if it is up to date.
    pub(crate) fn map(&self, member: usize) -> Option<Map> {
        let (life, map) = self.state.borrow().maps[member]?;
        (life == self.net.life(self.servers[member])).then_some(map)
    }

    pub(crate) fn set_map(&self, member: usize, map: Option<Map>) {
        let life = self.net.life(self.servers[member]);
        self.state.borrow_mut().maps[member] = map.map(|map| (life, map));
    }

    fn any_map(&self) -> Option<Map> {
        self.state.borrow().maps.iter().flatten().map(|(_, map)| *map).next()
    }

    /// Takes in a member's answer to the question for its map.
    fn learn(&self, member: usize, reply: &Reply) -> Result<(), RsError> {
        let answer = reply.answer();
        if answer.rejected.is_some() {
            return Ok(());
        }
        let map = Map::of_words(answer.body()).ok_or(RsError::Confused)?;
        let alike = self
            .any_map()
            .is_none_or(|other| (other.blocks, other.block_bytes) == (map.blocks, map.block_bytes));
        if map.member != member || map.members != self.members() || !alike {
            return Err(RsError::Confused);
        }
        self.set_map(member, Some(map));
        Ok(())
    }

    fn known(&self) -> usize {
        (0..self.members()).filter(|member| self.map(*member).is_some()).count()
    }

    /// Asks those members for their maps whose maps are not known, but not all the time. Waits until
    /// f + 1 are known, at first.
    pub(crate) async fn acquaint(self: &Rc<Self>) -> Result<Map, RsError> {
        let until_ns = self.net.now_ns() + self.patience_ns;
        loop {
            let now_ns = self.net.now_ns();
            let mut round = self.net.round([], |_, _| ());
            for member in 0..self.members() {
                let due = self.state.borrow().asked_ns[member]
                    .is_none_or(|asked_ns| now_ns >= asked_ns + RETRY_NS);
                if self.map(member).is_none() && (due || self.known() < self.quorum()) {
                    self.state.borrow_mut().asked_ns[member] = Some(now_ns);
                    round.also(self.servers[member], |draft| draft.call(call::DESCRIBE, &[]));
                }
            }
            while self.known() < self.quorum()
                && let Ok(Some((server, result))) = round.next_before(until_ns).await
            {
                if let Ok(reply) = result {
                    self.learn(self.member_of(server), &reply)?;
                }
            }
            let group = Rc::clone(self);
            round.leave(move |server, reply| {
                // What it says that is wrong will be said again.
                let _ = group.learn(group.member_of(server), &reply);
            });
            if self.known() >= self.quorum() {
                return Ok(self.any_map().expect("some are known"));
            }
            if self.net.now_ns() >= until_ns {
                return Err(RsError::NoQuorum { answered: self.known(), needed: self.quorum() });
            }
            self.net.sleep(RETRY_NS / 4).await;
        }
    }

    pub(crate) fn member_of(&self, server: usize) -> usize {
        self.servers.iter().position(|s| *s == server).expect("it was asked as a member")
    }

    /// Adds what tells a replica's life to a request; [`Group::life_in`] reads it.
    pub(crate) fn draft_lives(&self, map: &Map, draft: &mut Draft) {
        let len = (self.members() * 8) as u32;
        draft.op(Action::Read { addr: map.lives, len, deref: Deref::Direct, redirect: None });
    }

    /// The life of the replica that an answer is of; what it knows of the others' is noted.
    pub(crate) fn life_in(&self, member: usize, outcome: &Outcome<'_>) -> Option<u64> {
        let words = outcome.data.words();
        if outcome.status != Status::Ok || words.len() != self.members() {
            return None;
        }
        let mut state = self.state.borrow_mut();
        for (known, told) in state.lives.iter_mut().zip(words) {
            *known = (*known).max(*told);
        }
        Some(words[member])
    }

    fn counts<T>(&self, member: usize, vote: &Ballot<T>) -> bool {
        let known = self.state.borrow().lives[member];
        match vote {
            Ballot::Cast { life, .. } => *life >= known || !stands(Defence::LivesCount),
            _ => false,
        }
    }

    /// Asks the replicas; gives f + 1 answers that count, by member, and the round with those that are
    /// still to come. `among` limits who is asked.
    pub(crate) async fn phase<T>(
        self: &Rc<Self>,
        among: &[usize],
        fill: impl Fn(&Map, &mut Draft),
        read: impl Fn(usize, &Reply) -> (Option<u64>, Worth<T>),
    ) -> Result<(Vec<(usize, T)>, Round), RsError> {
        let until_ns = self.net.now_ns() + self.patience_ns;
        let needed = self.quorum();
        let mut votes: Vec<Ballot<T>> = (0..self.members()).map(|_| Ballot::Open).collect();
        let mut round = self.net.round([], |_, _| ());
        let (mut wanted, mut hedge_ns) = self.first(among);
        loop {
            for member in wanted.drain(..) {
                if let (Some(map), Ballot::Open) = (self.map(member), &votes[member]) {
                    votes[member] = Ballot::Asked;
                    round.also(self.servers[member], |draft| fill(&map, draft));
                }
            }
            let count = votes.iter().enumerate().filter(|(m, vote)| self.counts(*m, vote)).count();
            if count >= needed {
                let taken = votes.into_iter().enumerate().filter_map(|(member, vote)| {
                    let counts = self.counts(member, &vote);
                    match vote {
                        Ballot::Cast { value, .. } if counts => Some((member, value)),
                        _ => None,
                    }
                });
                return Ok((taken.collect(), round));
            }
            let now_ns = self.net.now_ns();
            if now_ns >= until_ns {
                return Err(RsError::NoQuorum { answered: count, needed });
            }
            let wake_ns = hedge_ns.unwrap_or(u64::MAX).min(until_ns).min(now_ns + RETRY_NS);
            match round.next_before(wake_ns).await {
                Ok(Some((server, result))) => {
                    let member = self.member_of(server);
                    votes[member] = self.vote(member, result, &read);
                    if matches!(votes[member], Ballot::Spoilt) {
                        // Somebody else has to do.
                        wanted.extend(among);
                    }
                }
                Err(Late) if hedge_ns.take().is_some() => wanted.extend(among),
                // Those whose answers do not count are asked again.
                outcome => {
                    if outcome.is_ok() {
                        self.net.sleep(RETRY_NS / 20).await;
                    }
                    self.acquaint().await?;
                    for member in among {
                        let asked = matches!(votes[*member], Ballot::Asked);
                        if !asked && !self.counts(*member, &votes[*member]) {
                            votes[*member] = Ballot::Open;
                        }
                    }
                    wanted.extend(among);
                }
            }
        }
    }

    /// Who is asked first, and until when the others wait.
    fn first(&self, among: &[usize]) -> (Vec<usize>, Option<u64>) {
        let Ask::Hedged(after_ns) = self.ask else { return (among.to_vec(), None) };
        let turn = {
            let state = &mut *self.state.borrow_mut();
            state.turn += 1;
            state.turn
        };
        let rotated = (0..among.len()).map(|i| among[(turn + i) % among.len()]);
        let first: Vec<_> =
            rotated.filter(|member| self.map(*member).is_some()).take(self.quorum()).collect();
        let hedge_ns = self.net.now_ns() + if first.len() < self.quorum() { 0 } else { after_ns };
        (first, Some(hedge_ns))
    }

    fn vote<T>(
        &self,
        member: usize,
        result: Result<Reply, Lost>,
        read: impl Fn(usize, &Reply) -> (Option<u64>, Worth<T>),
    ) -> Ballot<T> {
        let Ok(reply) = result else { return Ballot::Spoilt };
        match read(member, &reply) {
            (Some(life), Worth::Counts(value)) => Ballot::Cast { life, value },
            (_, Worth::Outdated) | (None, Worth::Counts(_)) => {
                self.set_map(member, None);
                Ballot::Spoilt
            }
            (_, Worth::Later) => Ballot::Spoilt,
        }
    }
}
