//! The simulated network: hosts, clients, links, one clock and one queue of events.
//!
//! Nothing here runs in parallel and nothing asks the real clock: a world is a function of its
//! seed and of what the script does to it. Every checker looks at every event.

mod acts;
mod frames;
mod loads;
mod machines;
mod settings;
mod tally;
mod watch;

pub use acts::{Act, Fate, Gate, Passing, Target};
pub use settings::{WorldSettings, small_settings};
pub use tally::Tally;

use crate::checks::{
    Agreement, Bounds, Cover, Durability, ExactlyOnce, Reads, Rules, Simulated, Violation, demand,
};
use crate::customer::Customer;
use crate::liar::Liar;
use crate::network::Network;
use crate::trace::{Clock, peek_key};
use crate::{Cast, Crash, Host, Rng, Trace};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_consensus::pbft::Pbft;
use tercio_replica::NodeStatus;
use tercio_types::{ClientId, Digest, Principal, ReplicaId, ReplicaSet, RequestSeq, SeqNum, View};

enum Happening {
    Arrival { from: Principal, to: Principal, bytes: Bytes },
    Act(Act),
}

#[derive(Clone, Copy)]
enum Due {
    Queue,
    Host(usize),
    Customer(usize),
}

/// What a primary proposed at one number of one view, and to whom.
#[derive(Default)]
struct Proposed {
    first: Option<(Digest, ReplicaSet)>,
    counted: bool,
}

struct Checks {
    agreement: Agreement,
    exactly_once: ExactlyOnce,
    durability: Durability,
    bounds: Bounds,
    reads: Reads,
    cover: Cover,
}

/// A simulated network, of replicas that order with `P`.
pub struct World<P: Simulated = Pbft> {
    cast: Arc<Cast>,
    now: Instant,
    tie: u64,
    queue: BTreeMap<(Instant, u64), Happening>,
    hosts: Vec<Host<P>>,
    customers: Vec<Customer>,
    /// The links.
    pub network: Network,
    gate: Option<Gate>,
    rng: Rng,
    trace: Trace,
    tally: Tally,
    checks: Checks,
    /// What the protocol says of its own.
    rules: P::Rules,
    proposed: BTreeMap<(ReplicaId, View, SeqNum), Proposed>,
    /// Who may do anything: Byzantine replicas, and those whose log was damaged.
    faulty: ReplicaSet,
    /// Who is down and never starts again.
    gone: ReplicaSet,
    liars: BTreeMap<ClientId, Liar>,
    /// Machines that went down by a blown fuse and start again by themselves after this time.
    repair: BTreeMap<ReplicaId, Duration>,
    steps: u64,
}

/// More steps than any run takes: something goes round in circles.
const MOST_STEPS: u64 = 5_000_000;

impl World {
    /// A network of PBFT whose replicas all start now.
    ///
    /// # Errors
    /// When a replica does not start.
    pub fn new(cast: &Arc<Cast>, settings: WorldSettings) -> Result<Self, Violation> {
        Self::of(cast, settings)
    }
}

impl<P: Simulated> World<P> {
    /// A network whose replicas all start now; `cast` is one of the protocol.
    ///
    /// # Errors
    /// When a replica does not start.
    pub fn of(cast: &Arc<Cast>, settings: WorldSettings) -> Result<Self, Violation> {
        let mut rng = Rng::new(settings.seed);
        let n = cast.membership().n();
        let hosts = cast.replicas().map(|id| Host::new(cast, id, &settings, rng.fork())).collect();
        let customers = (1..)
            .zip(&settings.clients)
            .map(|(id, &(auth, work))| Customer::new(cast, ClientId(id), auth, work, rng.fork()))
            .collect();
        let checks = Checks {
            agreement: Agreement::default(),
            exactly_once: ExactlyOnce::default(),
            durability: Durability::default(),
            bounds: Bounds::new(&settings.consensus, n),
            reads: Reads::default(),
            cover: Cover::default(),
        };
        let mut world = Self {
            cast: cast.clone(),
            now: Instant(0),
            tie: 0,
            queue: BTreeMap::new(),
            hosts,
            customers,
            network: Network::new(settings.quality),
            gate: None,
            rng,
            trace: Trace::new(cast.suite(), P::message_name, settings.text),
            tally: Tally::default(),
            checks,
            rules: P::Rules::default(),
            proposed: BTreeMap::new(),
            faulty: ReplicaSet::EMPTY,
            gone: ReplicaSet::EMPTY,
            liars: BTreeMap::new(),
            repair: BTreeMap::new(),
            steps: 0,
        };
        for id in cast.replicas() {
            world.start(id)?;
        }
        Ok(world)
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Who takes part.
    #[must_use]
    pub fn cast(&self) -> &Arc<Cast> {
        &self.cast
    }

    /// Where a replica's machine stands among the machines.
    fn at(&self, id: ReplicaId) -> usize {
        self.cast.membership().place_of(id).expect("a member of the network")
    }

    /// A machine.
    #[must_use]
    pub fn host(&self, id: ReplicaId) -> &Host<P> {
        &self.hosts[self.at(id)]
    }

    /// A machine, to be changed.
    pub fn host_mut(&mut self, id: ReplicaId) -> &mut Host<P> {
        let at = self.at(id);
        &mut self.hosts[at]
    }

    /// A running replica's word on where it stands.
    ///
    /// # Errors
    /// When it does not run.
    pub fn status(&self, id: ReplicaId) -> Result<NodeStatus, Violation> {
        let status = self.hosts[self.at(id)].status();
        status.ok_or_else(|| Violation::new("halt", format!("{id:?} does not run")))
    }

    /// Writes something into the trace.
    pub(crate) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }

    /// What happened so far.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What happened so far, in numbers.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally {
            view_changes: self.rules.views() as u64,
            acknowledged: self.checks.durability.count() as u64,
            own_links: self.network.own_links() as u64,
            holes: self.hosts.iter().map(|host| host.disk().holes()).sum(),
            split_commits: self.hosts.iter().map(Host::split_commits).sum(),
            ..self.tally
        }
    }

    /// The counters of what only a plan knows of.
    pub fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// How many views above the first were entered.
    #[must_use]
    pub fn view_changes(&self) -> usize {
        self.rules.views()
    }

    /// How many operations were acknowledged to clients.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.checks.durability.count()
    }

    /// Whether a replica has executed a client's number.
    #[must_use]
    pub fn has_executed(&self, id: ReplicaId, client: u64, seq: u64) -> bool {
        self.checks.durability.holds(id, ClientId(client), RequestSeq(seq))
    }

    /// The replicas that are correct and not gone for good.
    pub fn correct(&self) -> impl Iterator<Item = ReplicaId> {
        self.hosts().map(Host::id)
    }

    fn hosts(&self) -> impl Iterator<Item = &Host<P>> {
        self.hosts.iter().filter(|host| host.is_correct() && !self.gone.contains(host.id()))
    }

    /// Makes a replica Byzantine.
    pub fn corrupt(&mut self, id: ReplicaId, actor: Box<dyn crate::actors::Actor>) {
        self.trace.note(self.now, format_args!("{id:?} is a {}", actor.name()));
        self.faulty.insert(id);
        assert!(self.faulty.len() <= self.cast.membership().f(), "at most f are Byzantine");
        self.host_mut(id).corrupt(actor);
    }

    /// Lets a client lie from now on: with MACs that are good for some replicas only, and with two
    /// requests under one number.
    pub fn corrupt_client(&mut self, id: u64) {
        self.trace.note(self.now, format_args!("C{id} is a liar"));
        let liar = Liar::new(&self.cast, ClientId(id), self.rng.fork());
        self.liars.insert(ClientId(id), liar);
    }

    /// Counts a replica as Byzantine and stops it: the script speaks for it.
    pub fn puppet(&mut self, id: ReplicaId) -> crate::Forger {
        self.corrupt(id, Box::new(crate::actors::Silent::towards([])));
        self.host_mut(id).stop(Crash::Kill);
        crate::Forger::new(&self.cast, id)
    }

    /// Lets `gate` decide about every frame from now on.
    pub fn set_gate(&mut self, gate: impl FnMut(&Passing<'_>) -> Fate + 'static) {
        self.gate = Some(Box::new(gate));
    }

    /// Leaves all frames to the network again.
    pub fn lift_gate(&mut self) {
        self.gate = None;
    }

    fn schedule(&mut self, at: Instant, what: Happening) {
        self.tie += 1;
        self.queue.insert((at.max(self.now), self.tie), what);
    }

    /// Lets something happen at a time.
    pub fn plan(&mut self, at: Instant, act: Act) {
        self.schedule(at, Happening::Act(act));
    }

    /// Sends a frame in somebody's name, past every gate.
    pub fn inject(&mut self, from: Principal, to: Principal, bytes: Bytes) {
        if let (Some(key), Principal::Replica(by), Principal::Replica(receiver)) =
            (peek_key(&bytes), from, to)
        {
            self.note_proposal(by, receiver, &key);
        }
        let at = self.now + Duration::from_millis(1);
        self.schedule(at, Happening::Arrival { from, to, bytes });
    }

    /// What is next, and when.
    fn next(&self) -> Option<(Instant, Due)> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| (*at, Due::Queue));
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.filter_map(|(i, host)| Some((host.due()?, Due::Host(i))));
        let customers = self.customers.iter().enumerate();
        let customers = customers.filter_map(|(i, c)| Some((c.deadline()?, Due::Customer(i))));
        // The first of equals wins: the order of replicas and clients is part of determinism.
        queued.into_iter().chain(hosts).chain(customers).min_by_key(|(at, _)| *at)
    }

    fn step(&mut self, due: Due) -> Result<(), Violation> {
        self.steps += 1;
        demand(self.steps < MOST_STEPS, "liveness", || {
            format!("{MOST_STEPS} steps and no end in sight")
        })?;
        match due {
            Due::Queue => {
                let (_, what) = self.queue.pop_first().expect("something is due");
                match what {
                    Happening::Arrival { from, to, bytes } => self.arrive(from, to, &bytes),
                    Happening::Act(act) => self.perform(act),
                }
            }
            Due::Host(i) => {
                self.hosts[i].wake(self.now);
                self.work(i)
            }
            Due::Customer(i) => {
                let asked = self.customers[i].wake(self.now);
                self.asked(self.customers[i].id(), asked);
                self.serve(i)
            }
        }
    }

    /// Lets everything happen that happens until then.
    ///
    /// # Errors
    /// When a property is broken.
    pub fn run_until(&mut self, until: Instant) -> Result<(), Violation> {
        self.run_while(until, |_| true).map(|_| ())
    }

    /// Lets everything happen that happens in this time.
    ///
    /// # Errors
    /// When a property is broken.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Violation> {
        self.run_until(self.now + time)
    }

    /// Goes on while `going` holds, until then at most; whether it has stopped holding.
    ///
    /// # Errors
    /// When a property is broken.
    pub fn run_while(
        &mut self,
        until: Instant,
        mut going: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Violation> {
        loop {
            if !going(self) {
                return Ok(true);
            }
            match self.next() {
                Some((at, due)) if at <= until => {
                    self.now = self.now.max(at);
                    self.step(due).map_err(|v| self.dated(v))?;
                }
                _ => {
                    self.now = self.now.max(until);
                    return Ok(false);
                }
            }
        }
    }

    /// Waits at most `time` for something, and demands it.
    ///
    /// # Errors
    /// When a property is broken, or it does not come.
    pub fn expect_within(
        &mut self,
        time: Duration,
        what: &str,
        mut come: impl FnMut(&Self) -> bool,
    ) -> Result<(), Violation> {
        let come = self.run_while(self.now + time, |world| !come(world))?;
        demand(come, "liveness", || {
            let hosts = self.hosts.iter().map(|host| self.describe(host));
            let waiting = self.honest().filter(|customer| !customer.is_done());
            let all = hosts.chain(waiting.map(Customer::describe)).collect::<Vec<_>>();
            format!("{what} did not happen within {time:?}; {}", all.join("; "))
        })
    }

    fn describe(&self, host: &Host<P>) -> String {
        let id = host.id();
        let role = host.role().map_or(String::new(), |role| format!(" ({role})"));
        match host.status() {
            None => format!("{id:?}{role} down"),
            Some(s) => {
                let p = &s.protocol;
                let changing = if p.changing { " changing" } else { "" };
                format!(
                    "{id:?}{role} view {}{changing} delivered {} stable {} height {} pending {}",
                    p.view, p.delivered, p.stable, s.height, p.pending
                )
            }
        }
    }

    fn dated(&self, violation: Violation) -> Violation {
        let seen = format!("{} (at {})", violation.seen, Clock(self.now).to_string().trim());
        Violation { seen, ..violation }
    }
}
