//! What clients ask for, and what they are told.

use super::World;
use crate::checks::{Simulated, Violation, demand};
use crate::customer::{Asked, Customer, Done, Habits, Workload};
use crate::trace::Short;
use crate::{CLIENTS, Forger};
use bytes::Bytes;
use std::time::Duration;
use tercio_client::{Answer, ClientAuth, OpResult};
use tercio_types::{ClientId, ClientInfo, Height, OpKind, Principal, RequestSeq};

/// What somebody wants who was just added.
const FIRST_WORK: Workload =
    Workload { packages: 5, ops: 2, under_way: 2, pause: Duration::from_millis(20) };

fn word(bytes: &Bytes, at: usize) -> Result<u64, Violation> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    let word = word.map(|word| u64::from_le_bytes(*word));
    word.ok_or_else(|| Violation::new("durability", "a result that no witness gives"))
}

impl<P: Simulated> World<P> {
    /// A client.
    #[must_use]
    pub fn customer(&self, id: u64) -> &Customer {
        &self.customers[self.place_of(ClientId(id)).expect("there is such a client")]
    }

    /// All clients.
    pub fn customers(&self) -> impl Iterator<Item = ClientId> {
        self.customers.iter().map(Customer::id)
    }

    /// Where a client stands among the clients.
    pub(super) fn place_of(&self, id: ClientId) -> Option<usize> {
        self.customers.iter().position(|customer| customer.id() == id)
    }

    fn customer_mut(&mut self, id: ClientId) -> &mut Customer {
        let i = self.place_of(id).expect("there is such a client");
        &mut self.customers[i]
    }

    /// The clients that do not lie.
    pub(super) fn honest(&self) -> impl Iterator<Item = &Customer> {
        self.customers.iter().filter(|customer| !self.liars.contains_key(&customer.id()))
    }

    /// Gives an honest client habits.
    pub fn give_habits(&mut self, id: ClientId, habits: Habits) {
        if !self.liars.contains_key(&id) {
            self.customer_mut(id).adopt(habits);
        }
    }

    /// Every honest client wants this many packages more.
    pub fn want_more(&mut self, packages: u64, pause: Duration) {
        let honest: Vec<_> = self.honest().map(Customer::id).collect();
        honest.into_iter().for_each(|id| self.customer_mut(id).want_more(packages, pause));
    }

    /// Lets a client submit a package.
    pub fn submit(&mut self, client: u64, ops: &[&'static str]) {
        let client = ClientId(client);
        let ops = ops.iter().map(|op| Bytes::from_static(op.as_bytes())).collect();
        let now = self.now;
        let asked = self.customer_mut(client).submit(ops, now);
        self.asked(client, asked);
        let i = self.place_of(client).expect("it just submitted");
        self.serve(i).expect("submitting completes nothing");
    }

    /// A client asks for another one to be added, which the first f+1 operators approve.
    pub(super) fn add_client(&mut self, by: ClientId) {
        let added = self.customers.iter().filter(|c| c.id().0 > CLIENTS).count() as u64;
        let cast = self.cast.clone();
        let Some(secret) = cast.newcomer(ClientId(CLIENTS + 1 + added)) else { return };
        let info = ClientInfo::new(secret.public());
        let operators = cast.replicas().take(cast.membership().weak_quorum());
        let approvals = operators.map(|id| (id, Forger::new(&cast, id).approval(&info))).collect();
        let now = self.now;
        self.customer_mut(by).add_client(info, approvals, now);
        let i = self.place_of(by).expect("it just asked");
        self.serve(i).expect("submitting completes nothing");
    }

    /// A client of the script's own asks for something.
    pub fn asked_for(&mut self, package: &tercio_types::Package) {
        for (seq, op) in package.numbered() {
            self.checks.exactly_once.asked(package.client, seq, op);
        }
    }

    pub(super) fn asked(&mut self, client: ClientId, asked: Vec<Asked>) {
        for Asked { seq, op } in asked {
            self.checks.exactly_once.asked(client, seq, op);
        }
    }

    /// Lets a client send and hear what it has.
    pub(super) fn serve(&mut self, i: usize) -> Result<(), Violation> {
        let client = self.customers[i].id();
        while let Some((to, bytes)) = self.customers[i].poll_send() {
            self.send(Principal::Client(client), Principal::Replica(to), bytes);
        }
        while let Some(done) = self.customers[i].poll_completion() {
            self.told(client, done)?;
        }
        while let Some(answer) = self.customers[i].poll_answer() {
            self.answered(client, answer)?;
        }
        Ok(())
    }

    /// A client has the results of a package.
    fn told(&mut self, client: ClientId, done: Done) -> Result<(), Violation> {
        let Done { kind, long, completion } = done;
        let first = completion.first;
        let results = completion.outcome.map_err(|failure| {
            Violation::new("liveness", format!("client {client}, request {first}: {failure}"))
        })?;
        for (seq, result) in (first.0..).zip(results) {
            let seq = RequestSeq(seq);
            let OpResult::Executed(result) = result else {
                let seen = format!("client {client} got {result:?} for request {seq}");
                return Err(Violation::new("exactly once", seen));
            };
            match kind {
                OpKind::User => {
                    self.checks.durability.acknowledged(client, seq, word(&result, 0)?)?;
                }
                OpKind::Read => {
                    self.checks.reads.read(Height(word(&result, 0)?), word(&result, 8)?)?;
                    self.tally.reads += 1;
                }
                OpKind::System => self.welcome(ClientId(word(&result, 0)?))?,
            }
        }
        self.tally.long_operations += long;
        if client.0 > CLIENTS && first == RequestSeq(1) {
            self.tally.clients_added += 1;
        }
        let who = Short(Principal::Client(client));
        self.trace.note(self.now, format_args!("{who} has the results from {first} on"));
        Ok(())
    }

    fn answered(&mut self, client: ClientId, answer: Answer) -> Result<(), Violation> {
        let bytes = answer.outcome.map_err(|failure| {
            Violation::new("liveness", format!("client {client}, a query: {failure}"))
        })?;
        let count = word(&bytes, 0)?;
        self.tally.queries += 1;
        let who = Short(Principal::Client(client));
        self.trace.note(self.now, format_args!("{who} is answered {count} at {}", answer.height));
        self.checks.reads.answered(answer.height, count)
    }

    /// Somebody was added, and has something to ask for.
    fn welcome(&mut self, id: ClientId) -> Result<(), Violation> {
        demand(self.cast.newcomer(id).is_some(), "agreement", || {
            format!("a client was added under the number {id}")
        })?;
        if self.place_of(id).is_none() {
            self.trace.note(self.now, format_args!("{} is added", Short(Principal::Client(id))));
            let rng = self.rng.fork();
            let customer = Customer::new(&self.cast, id, ClientAuth::Mac, FIRST_WORK, rng);
            self.customers.push(customer);
        }
        Ok(())
    }
}
