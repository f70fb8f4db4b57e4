//! Servers and clients over a simulated network: a run is determined by its seed.
#![allow(dead_code, reason = "each test uses its part")]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use tercio_prism::check::{Act, Event, linearizable};
use tercio_prism::cluster::Cluster;
use tercio_prism::engine::{Batch, Engine, Peer, Service};
use tercio_prism::kv::server::Shared;
use tercio_prism::memory::{Buffers, Memory};
use tercio_prism::op::Capability;
use tercio_prism::rng::Rng;
use tercio_prism::transport::sim::{Faults, Network, Way};
use tercio_prism::transport::{Link, LinkError};

pub(crate) const OURS: Capability = Capability(99);
/// Ports of the network: a client's number and a server's.
const SERVERS: usize = 16;

pub(crate) const ROUGH: Faults =
    Faults { loss: 5, duplicates: 10, delay_ns: 10_000, late_ns: 3_000_000 };

#[derive(Debug)]
struct Wire {
    network: Network,
    now_ns: u64,
    /// What has arrived, by port.
    arrived: BTreeMap<usize, VecDeque<Vec<u64>>>,
}

/// A client's end of a simulated connection.
#[derive(Debug)]
struct SimLink {
    wire: Arc<Mutex<Wire>>,
    port: usize,
}

impl Link for SimLink {
    fn is_reliable(&self) -> bool {
        false
    }

    fn send(&mut self, frame: &[u64]) -> Result<(), LinkError> {
        let wire = &mut *self.wire.lock().unwrap();
        wire.network.send(wire.now_ns, Way::ToServer(self.port), frame);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn receive(&mut self, frame: &mut Vec<u64>) -> Result<bool, LinkError> {
        let wire = &mut *self.wire.lock().unwrap();
        match wire.arrived.get_mut(&self.port).and_then(VecDeque::pop_front) {
            Some(arrived) => {
                frame.extend(arrived);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// A server that runs.
pub(crate) struct Running<S> {
    pub(crate) memory: Arc<Memory>,
    pub(crate) store: Arc<Mutex<S>>,
    /// Different each time that a server starts.
    pub(crate) epoch: u32,
    engine: Engine,
}

/// What servers there are, and what each client does.
pub(crate) trait Scenario {
    type Store: Service + 'static;

    /// Server `server` starts; `again` when it had memory before.
    fn server(&self, server: usize, again: bool) -> (Arc<Memory>, Self::Store);

    /// Spawns what client number `client` does. `again` when it takes a crashed one's place.
    fn client(&self, cluster: &mut Cluster, client: usize, again: bool);

    /// Spawns what makes a server that started again useful. Nothing by default.
    fn revive(&self, _cluster: &mut Cluster, _server: usize) {}

    /// Looks at the servers between events; says what is wrong.
    fn inspect(&self, _servers: &[Option<Running<Self::Store>>]) -> Result<(), String> {
        Ok(())
    }
}

/// How rough a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rough {
    pub(crate) faults: Faults,
    /// In permille of the events: a client dies, and another takes its place.
    pub(crate) client_crashes: u64,
    /// Of the events in permille: a server dies for a while and comes back.
    pub(crate) server_crashes: u64,
    /// In percent of these: it has lost its memory.
    pub(crate) amnesia: u64,
    /// Clients that die at most.
    pub(crate) most_crashes: u64,
}

struct Player {
    cluster: Cluster,
    number: usize,
}

enum Trouble {
    /// It comes back then, with an empty memory or not.
    Down {
        until_ns: u64,
        memory: bool,
    },
    Reviving(Cluster),
}

type Ill<S> = (usize, Trouble, Option<Running<S>>);

pub(crate) struct World<S: Scenario> {
    pub(crate) scenario: S,
    pub(crate) servers: Vec<Option<Running<S::Store>>>,
    wire: Arc<Mutex<Wire>>,
    players: Vec<Player>,
    rough: Rough,
    rng: Rng,
    next_client: usize,
    epoch: u32,
    /// The server that is not well; its memory, where it kept that.
    trouble: Option<Ill<S::Store>>,
    pub(crate) client_crashes: u64,
    pub(crate) server_crashes: u64,
    maintained_ns: u64,
    upkeep_every_ns: u64,
    /// Frames to servers that do not arrive, by client, server and frame.
    pub(crate) filter: Filter,
}

/// Says whether a frame of a client (by its number among all connections) to a server is lost.
pub(crate) type Filter = Box<dyn Fn(usize, usize, &[u64]) -> bool>;

/// How many operations a request has.
pub(crate) fn ops_of(frame: &[u64]) -> u64 {
    frame.get(4).map_or(0, |lengths| lengths >> 32)
}

impl<S: Scenario> World<S> {
    pub(crate) fn new(
        seed: u64,
        servers: usize,
        clients: usize,
        rough: Rough,
        scenario: S,
    ) -> Self {
        let network = Network::new(seed, rough.faults);
        let wire = Wire { network, now_ns: 0, arrived: BTreeMap::new() };
        let mut world = Self {
            scenario,
            servers: Vec::new(),
            wire: Arc::new(Mutex::new(wire)),
            players: Vec::new(),
            rough,
            rng: Rng::new(seed ^ 0xc1u64),
            next_client: 0,
            epoch: 0,
            trouble: None,
            client_crashes: 0,
            server_crashes: 0,
            maintained_ns: 0,
            upkeep_every_ns: 1_000_000,
            filter: Box::new(|_, _, _| false),
        };
        for server in 0..servers {
            let running = world.start(server, false);
            world.servers.push(Some(running));
        }
        for number in 0..clients {
            let mut cluster = world.cluster();
            world.scenario.client(&mut cluster, number, false);
            world.players.push(Player { cluster, number });
        }
        world
    }

    fn start(&mut self, server: usize, again: bool) -> Running<S::Store> {
        let (memory, store) = self.scenario.server(server, again);
        let store = Arc::new(Mutex::new(store));
        self.epoch += 1;
        let mut engine = Engine::new(Arc::clone(&memory), 0, self.epoch * 1000);
        engine.serve(OURS, Box::new(Shared(Arc::clone(&store))));
        Running { memory, store, epoch: self.epoch, engine }
    }

    /// A new client's connections.
    pub(crate) fn cluster(&mut self) -> Cluster {
        let number = self.next_client;
        self.next_client += 1;
        let wire = Arc::clone(&self.wire);
        let connect = Box::new(move |server: usize| {
            let port = number * SERVERS + server;
            let link: Box<dyn Link> = Box::new(SimLink { wire: Arc::clone(&wire), port });
            Ok::<_, io::Error>(link)
        });
        let capabilities = vec![OURS; self.servers.len()];
        Cluster::new(capabilities, connect, self.rng.next_u64())
    }

    fn now_ns(&self) -> u64 {
        self.wire.lock().unwrap().now_ns
    }

    /// Runs until all clients are done, or `limit_ns`.
    pub(crate) fn run(&mut self, limit_ns: u64) -> Result<(), String> {
        self.step_all();
        while !self.is_done() {
            if self.now_ns() > limit_ns {
                return Err("no end in sight".into());
            }
            self.event()?;
            self.accidents();
        }
        Ok(())
    }

    /// Lets time go by, without accidents.
    pub(crate) fn settle(&mut self, ns: u64) -> Result<(), String> {
        let until_ns = self.now_ns() + ns;
        self.upkeep_every_ns = 20_000_000;
        while self.now_ns() < until_ns || self.trouble.is_some() {
            self.event()?;
        }
        self.upkeep_every_ns = 1_000_000;
        Ok(())
    }

    /// Runs a client of its own to its end.
    pub(crate) fn visit(&mut self, spawn: impl FnOnce(&mut Cluster)) -> Result<(), String> {
        let at = self.add(spawn);
        let result = self.until(|world| world.players[at].cluster.running() == 0);
        self.players.remove(at);
        result
    }

    /// Adds a client; gives its place.
    pub(crate) fn add(&mut self, spawn: impl FnOnce(&mut Cluster)) -> usize {
        let mut cluster = self.cluster();
        spawn(&mut cluster);
        self.players.push(Player { cluster, number: usize::MAX });
        self.players.len() - 1
    }

    /// The number that the next client's connections will have.
    pub(crate) const fn next_client(&self) -> usize {
        self.next_client
    }

    /// A client dies.
    pub(crate) fn remove(&mut self, at: usize) {
        self.players.remove(at);
    }

    /// Whether all clients are done.
    pub(crate) fn is_done(&self) -> bool {
        self.players.iter().all(|player| player.cluster.running() == 0)
    }

    /// Lets this many events happen.
    pub(crate) fn events(&mut self, count: u64) -> Result<(), String> {
        self.step_all();
        (0..count).try_for_each(|_| self.event())
    }

    /// Whether each buffer of each server is in one place.
    fn are_buffers_conserved(&self) -> Result<(), String> {
        for server in self.servers.iter().flatten() {
            let buffers = server.engine.buffers();
            if !buffers.iter().all(Buffers::are_conserved) {
                return Err(format!("buffers are missing, or in two places: {buffers:?}"));
            }
        }
        Ok(())
    }

    /// A server loses its memory and starts again.
    pub(crate) fn restart(&mut self, server: usize) {
        let running = self.start(server, true);
        self.servers[server] = Some(running);
    }

    /// Runs until something is so.
    pub(crate) fn until(&mut self, so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let limit_ns = self.now_ns() + 100_000_000_000;
        self.step_all();
        while !so(self) {
            if self.now_ns() > limit_ns {
                return Err("no end in sight".into());
            }
            self.event()?;
        }
        Ok(())
    }

    fn event(&mut self) -> Result<(), String> {
        let upkeep_ns = self.maintained_ns + self.upkeep_every_ns;
        let due = self.players.iter().filter_map(|player| player.cluster.due_ns());
        let back = match &self.trouble {
            Some((_, Trouble::Down { until_ns, .. }, _)) => *until_ns,
            Some((_, Trouble::Reviving(cluster), _)) => cluster.due_ns().unwrap_or(u64::MAX),
            None => u64::MAX,
        };
        let wake = due.chain([back, upkeep_ns]).min().expect("upkeep is always due");
        let arrival = {
            let wire = &mut *self.wire.lock().unwrap();
            let next = wire.network.next_ns().filter(|at| *at <= wake);
            wire.now_ns = wire.now_ns.max(next.unwrap_or(wake));
            next.and_then(|_| wire.network.take())
        };
        match arrival {
            Some((Way::ToServer(port), frame)) => self.at_server(port, &frame),
            Some((Way::ToClient(port), frame)) => {
                self.wire.lock().unwrap().arrived.entry(port).or_default().push_back(frame);
                self.step_all();
            }
            None => self.step_all(),
        }
        let now_ns = self.now_ns();
        if now_ns >= upkeep_ns {
            self.maintained_ns = now_ns;
            for server in self.servers.iter_mut().flatten() {
                server.memory.collect();
                server.engine.maintain(now_ns);
            }
            self.scenario.inspect(&self.servers)?;
            self.are_buffers_conserved()?;
        }
        self.recover(now_ns);
        Ok(())
    }

    fn step_all(&mut self) {
        let now_ns = self.now_ns();
        for player in &mut self.players {
            player.cluster.step(now_ns);
        }
        if let Some((_, Trouble::Reviving(cluster), _)) = &mut self.trouble {
            cluster.step(now_ns);
        }
    }

    fn at_server(&mut self, port: usize, frame: &[u64]) {
        if (self.filter)(port / SERVERS, port % SERVERS, frame) {
            return;
        }
        // One that is down hears nothing.
        let Some(server) = &mut self.servers[port % SERVERS] else { return };
        let wire = &mut *self.wire.lock().unwrap();
        let from = Peer::Address(([127, 0, 0, 1], port as u16).into());
        let mut batch = Batch::default();
        batch.push(from, frame);
        let now_ns = wire.now_ns;
        let network = &mut wire.network;
        server.engine.run(&server.memory.view(0), &batch, false, now_ns, |to, answer| {
            let Peer::Address(to) = to else { unreachable!("clients have addresses") };
            network.send(now_ns, Way::ToClient(usize::from(to.port())), answer);
        });
    }

    fn accidents(&mut self) {
        let crash = self.client_crashes < self.rough.most_crashes
            && self.rng.below(1000) < self.rough.client_crashes;
        if crash && !self.players.is_empty() {
            let at = self.rng.below(self.players.len() as u64) as usize;
            if self.players[at].cluster.running() > 0 {
                self.crash_client(at);
            }
        }
        if self.trouble.is_none() && self.rng.below(1000) < self.rough.server_crashes {
            let server = self.rng.below(self.servers.len() as u64) as usize;
            let memory = !self.rng.percent(self.rough.amnesia);
            let until_ns = self.now_ns() + self.rng.below(100_000_000);
            let running = self.servers[server].take();
            self.server_crashes += 1;
            self.trouble = Some((server, Trouble::Down { until_ns, memory }, running));
        }
    }

    fn crash_client(&mut self, at: usize) {
        self.client_crashes += 1;
        let number = self.players[at].number;
        let mut cluster = self.cluster();
        self.scenario.client(&mut cluster, number, true);
        let old = std::mem::replace(&mut self.players[at].cluster, cluster);
        drop(old);
        // Servers find out some time later, as they would from a long silence.
        for server in self.servers.iter_mut().flatten() {
            server.store.lock().unwrap().client_lost();
        }
    }

    fn recover(&mut self, now_ns: u64) {
        let Some((server, trouble, kept)) = self.trouble.take() else { return };
        self.trouble = match trouble {
            Trouble::Down { until_ns, memory } if now_ns < until_ns => {
                Some((server, Trouble::Down { until_ns, memory }, kept))
            }
            Trouble::Down { memory: true, .. } => {
                self.servers[server] = kept;
                None
            }
            Trouble::Down { memory: false, .. } => {
                let running = self.start(server, true);
                self.servers[server] = Some(running);
                let mut cluster = self.cluster();
                self.scenario.revive(&mut cluster, server);
                cluster.step(now_ns);
                Some((server, Trouble::Reviving(cluster), None))
            }
            Trouble::Reviving(cluster) if cluster.running() > 0 => {
                Some((server, Trouble::Reviving(cluster), None))
            }
            Trouble::Reviving(_) => None,
        };
    }
}

/// What clients did to blocks, in one order of begins and returns.
#[derive(Debug, Default)]
pub(crate) struct History {
    tick: u64,
    next_value: u64,
    blocks: BTreeMap<u64, Vec<Event>>,
    pub(crate) failures: Vec<String>,
}

pub(crate) type SharedHistory = Rc<RefCell<History>>;

impl History {
    /// A GET, or with `put` a PUT of a new value, begins; gives its place and the value.
    pub(crate) fn begin(&mut self, block: u64, put: bool) -> (usize, u64) {
        self.tick += 1;
        self.next_value += u64::from(put);
        let act = if put { Act::Put(self.next_value) } else { Act::Get(None) };
        let events = self.blocks.entry(block).or_default();
        events.push(Event { act, began: self.tick, returned: None });
        (events.len() - 1, self.next_value)
    }

    pub(crate) fn end(&mut self, block: u64, at: usize, got: Option<u64>) {
        self.tick += 1;
        let event = &mut self.blocks.get_mut(&block).expect("it began")[at];
        event.returned = Some(self.tick);
        if let Act::Get(value) = &mut event.act {
            *value = got;
        }
    }

    /// Whether each block's history is linearizable: histories, events, and states visited.
    pub(crate) fn check(&self) -> Result<[u64; 3], String> {
        if let Some(failure) = self.failures.first() {
            return Err(failure.clone());
        }
        let mut counts = [0; 3];
        for (block, events) in &self.blocks {
            let states = linearizable(events)
                .ok_or_else(|| format!("block {block} is not linearizable: {events:?}"))?;
            counts[0] += 1;
            counts[1] += events.len() as u64;
            counts[2] += states as u64;
        }
        Ok(counts)
    }
}

/// A value whose number is in every word of it: a mixture would be seen.
pub(crate) fn value_of(number: u64, words: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(words)
}

/// The number of a value; `None` for one that nobody wrote.
pub(crate) fn number_of(value: &[u8]) -> Result<Option<u64>, String> {
    let (words, rest) = value.as_chunks::<8>();
    if !rest.is_empty() || words.is_empty() || words.iter().any(|word| *word != words[0]) {
        return Err(format!("a value that nobody wrote: {words:x?}"));
    }
    Ok(Some(u64::from_le_bytes(words[0])).filter(|number| *number != 0))
}
