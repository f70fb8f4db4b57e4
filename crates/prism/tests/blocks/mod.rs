//! Clients of replicated blocks in a simulated world.
#![allow(dead_code, reason = "each test uses its part")]

use crate::cluster::{History, Rough, Running, Scenario, SharedHistory, World};
use crate::cluster::{OURS, ROUGH, number_of, ops_of, value_of};
use crate::transactions::PROMPT;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tercio_prism::cluster::Cluster;
use tercio_prism::memory::Memory;
use tercio_prism::rng::Rng;
use tercio_prism::rs::lock::{LockClient, LockOptions, LockServer};
use tercio_prism::rs::server::{Config, RsServer};
use tercio_prism::rs::{Options, RsClient, RsError, Tag, join};
use tercio_prism::zoo::{Defence, stands};

pub(crate) const BLOCKS: u64 = 3;
pub(crate) const WORDS: usize = 12;

/// Replicas and what clients do with blocks.
pub(crate) struct Blocks {
    pub(crate) members: usize,
    pub(crate) commands: u64,
    pub(crate) options: Options,
    pub(crate) history: SharedHistory,
    /// Tags as they were last seen, by replica.
    tags: RefCell<Vec<(u32, Vec<Tag>)>>,
    seeds: RefCell<Rng>,
}

impl Blocks {
    pub(crate) fn new(seed: u64, members: usize, commands: u64, options: Options) -> Self {
        let history = Rc::new(RefCell::new(History::default()));
        let seeds = RefCell::new(Rng::new(seed ^ 0xb10c));
        Self { members, commands, options, history, tags: RefCell::default(), seeds }
    }
}

pub(crate) fn config(member: usize, members: usize, again: bool) -> Config {
    Config {
        blocks: BLOCKS,
        block_bytes: WORDS * 8,
        spare: 60,
        member,
        members,
        new_group: !again,
        poison: true,
    }
}

impl Scenario for Blocks {
    type Store = RsServer;

    fn server(&self, server: usize, again: bool) -> (Arc<Memory>, RsServer) {
        let memory = Arc::new(Memory::new());
        let config = config(server, self.members, again);
        let store = RsServer::new(&memory, OURS, &config).unwrap();
        (memory, store)
    }

    fn client(&self, cluster: &mut Cluster, client: usize, _again: bool) {
        let drawn = cluster.draw();
        let writer = if stands(Defence::Incarnations) { drawn } else { client as u64 + 1 };
        let servers = (0..self.members).collect();
        let rs = RsClient::new(cluster.net(), servers, writer, self.options);
        let rng = Rng::new(self.seeds.borrow_mut().next_u64());
        let (history, commands) = (Rc::clone(&self.history), self.commands);
        cluster.net().spawn(async move {
            let get = async |block| rs.get(block).await;
            let put = async |block, value: Vec<u8>| rs.put(block, &value).await;
            play(history, rng, commands, get, put).await;
            rs.finish().await;
        });
    }

    fn revive(&self, cluster: &mut Cluster, server: usize) {
        if !stands(Defence::JoinByCopying) {
            return;
        }
        let (net, servers) = (cluster.net().clone(), (0..self.members).collect());
        let history = Rc::clone(&self.history);
        let patience_ns = self.options.patience_ns;
        cluster.net().spawn(async move {
            if let Err(why) = join(net, servers, server, patience_ns).await {
                history.borrow_mut().failures.push(format!("join: {why}"));
            }
        });
    }

    /// Tags never go back while a replica keeps its memory.
    fn inspect(&self, servers: &[Option<Running<RsServer>>]) -> Result<(), String> {
        let seen = &mut *self.tags.borrow_mut();
        seen.resize(servers.len(), (0, Vec::new()));
        for (server, (life, seen)) in servers.iter().zip(seen) {
            let Some(server) = server else { continue };
            let now = server.store.lock().unwrap().tags(&server.memory);
            if *life == server.epoch && seen.iter().zip(&now).any(|(before, now)| before > now) {
                return Err(format!("a tag went back: {seen:?} {now:?}"));
            }
            (*life, *seen) = (server.epoch, now);
        }
        Ok(())
    }
}

pub(crate) const ACCIDENTS: Rough =
    Rough { faults: ROUGH, client_crashes: 4, server_crashes: 4, amnesia: 50, most_crashes: 3 };

/// Runs a world of blocks to its end and checks all that there is to check. Gives histories, events,
/// states, client crashes, and server crashes.
pub(crate) fn run(
    seed: u64,
    blocks: Blocks,
    clients: usize,
    rough: Rough,
) -> Result<[u64; 5], String> {
    let (members, history) = (blocks.members, Rc::clone(&blocks.history));
    let mut world = World::new(seed, members, clients, rough, blocks);
    world.run(600_000_000_000)?;
    let [histories, events, states] = history.borrow().check()?;
    // Servers notice that a client is gone by its silence, and sweep.
    world.settle(32_000_000_000)?;
    for running in world.servers.iter().flatten() {
        let count = running.store.lock().unwrap().count(&running.memory);
        if count.taken != count.written {
            return Err(format!("buffers that nobody can reach: {count:?}"));
        }
    }
    let failed = history.borrow().failures.first().cloned();
    failed.map_or(Ok([histories, events, states, world.client_crashes, world.server_crashes]), Err)
}

/// Clients are killed at a random point; then somebody reads and writes each block. Says how long the
/// longest of these operations took. Gives the history's counts, too.
pub(crate) fn kill(seed: u64) -> Result<(u64, [u64; 3]), String> {
    let blocks = Blocks::new(seed, 3, 1000, Options::default());
    let (history, mut rng) = (Rc::clone(&blocks.history), Rng::new(seed ^ 0xdead));
    let mut world = World::new(seed, 3, 2, PROMPT, blocks);
    for (client, most) in [(1, 300), (0, 60)] {
        world.events(rng.below(most))?;
        world.remove(client);
    }
    let longest_ns = Rc::new(std::cell::Cell::new(0));
    for block in 0..BLOCKS {
        let (history, longest_ns) = (Rc::clone(&history), Rc::clone(&longest_ns));
        world.add(|cluster| {
            let writer = cluster.draw();
            let net = cluster.net().clone();
            let rs = RsClient::new(&net, vec![0, 1, 2], writer, Options::default());
            cluster.net().spawn(async move {
                for put in [false, true, false] {
                    let (at, number) = history.borrow_mut().begin(block, put);
                    let began_ns = net.now_ns();
                    let result = match put {
                        true => rs.put(block, &value_of(number, 2)).await.map(|()| Vec::new()),
                        false => rs.get(block).await,
                    };
                    longest_ns.set((net.now_ns() - began_ns).max(longest_ns.get()));
                    let history = &mut *history.borrow_mut();
                    match result.map_err(|why| why.to_string()).and_then(|value| match put {
                        true => Ok(None),
                        false => number_of(&value),
                    }) {
                        Ok(got) => history.end(block, at, got),
                        Err(why) => history.failures.push(why),
                    }
                }
            });
        });
    }
    world.until(World::is_done)?;
    let counts = history.borrow().check()?;
    Ok((longest_ns.get(), counts))
}

/// What one client does: GETs and PUTs, one after the other.
async fn play(
    history: SharedHistory,
    mut rng: Rng,
    commands: u64,
    get: impl AsyncFn(u64) -> Result<Vec<u8>, RsError>,
    put: impl AsyncFn(u64, Vec<u8>) -> Result<(), RsError>,
) {
    for _ in 0..commands {
        let block = rng.below(BLOCKS);
        let writes = rng.percent(50);
        let (at, number) = history.borrow_mut().begin(block, writes);
        let words = 1 + rng.below(WORDS as u64) as usize;
        let result = if writes {
            put(block, value_of(number, words)).await.map(|()| Vec::new())
        } else {
            get(block).await
        };
        let history = &mut *history.borrow_mut();
        match result {
            Ok(_) if writes => history.end(block, at, None),
            Ok(value) => match number_of(&value) {
                Ok(got) => history.end(block, at, got),
                Err(why) => history.failures.push(why),
            },
            Err(why) => history.failures.push(format!("writes {writes}: {why}")),
        }
    }
}

/// The same with blocks under locks.
pub(crate) struct Locked {
    pub(crate) commands: u64,
    pub(crate) options: LockOptions,
    pub(crate) history: SharedHistory,
    seeds: RefCell<Rng>,
}

impl Locked {
    pub(crate) fn new(seed: u64, commands: u64, options: LockOptions) -> Self {
        let history = Rc::new(RefCell::new(History::default()));
        Self { commands, options, history, seeds: RefCell::new(Rng::new(seed ^ 0x10c)) }
    }
}

impl Scenario for Locked {
    type Store = LockServer;

    fn server(&self, server: usize, again: bool) -> (Arc<Memory>, LockServer) {
        let memory = Arc::new(Memory::new());
        let store = LockServer::new(&memory, OURS, &config(server, 3, again)).unwrap();
        (memory, store)
    }

    fn client(&self, cluster: &mut Cluster, _client: usize, _again: bool) {
        let name = cluster.draw();
        let locks = LockClient::new(cluster.net(), vec![0, 1, 2], name, self.options);
        let rng = Rng::new(self.seeds.borrow_mut().next_u64());
        let (history, commands) = (Rc::clone(&self.history), self.commands);
        cluster.net().spawn(async move {
            let get = async |block| locks.get(block).await;
            let put = async |block, value: Vec<u8>| locks.put(block, &value).await;
            play(history, rng, commands, get, put).await;
        });
    }
}

/// Runs clients of locked blocks; gives histories, events, states and client crashes.
pub(crate) fn run_locked(seed: u64, clients: usize, rough: Rough) -> Result<[u64; 4], String> {
    // Replicas keep their memory: as published, there is no way to join.
    let rough = Rough { amnesia: 0, ..rough };
    let options = LockOptions { patience_ns: 5_000_000_000, ..LockOptions::default() };
    let locked = Locked::new(seed, 40 / clients as u64, options);
    let history = Rc::clone(&locked.history);
    let mut world = World::new(seed, 3, clients, rough, locked);
    world.run(600_000_000_000)?;
    let [histories, events, states] = history.borrow().check()?;
    Ok([histories, events, states, world.client_crashes])
}

/// A world in which nothing goes wrong by itself.
pub(crate) const CALM: Rough = Rough {
    faults: tercio_prism::transport::sim::Faults {
        loss: 0,
        duplicates: 0,
        delay_ns: 1000,
        late_ns: 0,
    },
    client_crashes: 0,
    server_crashes: 0,
    amnesia: 0,
    most_crashes: 0,
};

/// A world of three replicas in which nothing happens by itself.
fn calm() -> World<Blocks> {
    World::new(1, 3, 0, CALM, Blocks::new(1, 3, 0, Options::default()))
}

/// What came of an operation, when it has ended.
type Told = Rc<RefCell<Option<Result<Vec<u8>, RsError>>>>;

/// A client of `calm`, which does one thing and tells what came of it.
fn one(cluster: &Cluster, writer: u64, put: Option<u64>, result: &Told) {
    let rs = RsClient::new(cluster.net(), vec![0, 1, 2], writer, Options::default());
    let result = Rc::clone(result);
    cluster.net().spawn(async move {
        let ended = match put {
            Some(number) => rs.put(0, &value_of(number, 2)).await.map(|()| Vec::new()),
            None => rs.get(0).await,
        };
        *result.borrow_mut() = Some(ended);
    });
}

/// Reads block 0 where one replica cannot be reached.
fn read_without(world: &mut World<Blocks>, replica: usize) -> Result<Option<u64>, String> {
    let (reader, result) = (world.next_client(), Rc::default());
    world.filter = Box::new(move |client, server, _| client == reader && server == replica);
    world.visit(|cluster| one(cluster, 1000 + reader as u64, None, &result))?;
    let value = result.borrow_mut().take().expect("it has ended");
    number_of(&value.map_err(|error| error.to_string())?)
}

fn has_a_value(world: &World<Blocks>, server: usize) -> bool {
    let running = world.servers[server].as_ref().expect("it runs");
    let tags = running.store.lock().unwrap().tags(&running.memory);
    tags[0] != Tag::ZERO
}

/// Operations of a write phase's chain.
const WRITES: u64 = 5;

/// A PUT has one acknowledgement of a replica that then loses its memory and joins again, and a second
/// one later. A GET that asks the two others must not miss it, if it is said to be done.
pub(crate) fn an_earlier_life_has_acknowledged() -> Result<(), String> {
    let mut world = calm();
    let (writer, result) = (world.next_client(), Rc::default());
    world.filter = Box::new(move |client, server, frame| {
        client == writer && server > 0 && ops_of(frame) == WRITES
    });
    let at = world.add(|cluster| one(cluster, 7, Some(1), &result));
    world.until(|world| has_a_value(world, 0))?;
    // The acknowledgement is on its way.
    world.settle(1_000_000)?;
    world.restart(0);
    let joined = Rc::new(RefCell::new(None));
    let place = Rc::clone(&joined);
    world.visit(|cluster| {
        let net = cluster.net().clone();
        cluster.net().spawn(async move {
            let ended = join(net, vec![0, 1, 2], 0, 10_000_000_000).await;
            *place.borrow_mut() = Some(ended);
        });
    })?;
    assert!(matches!(*joined.borrow(), Some(Ok(_))), "{joined:?}");
    world.filter = Box::new(move |client, server, frame| {
        client == writer && server == 2 && ops_of(frame) == WRITES
    });
    world.until(|_| result.borrow().is_some())?;
    world.remove(at);
    match read_without(&mut world, 1)? {
        Some(1) => Ok(()),
        got => Err(format!("a PUT that was done is gone: {got:?}")),
    }
}

/// A client dies while a PUT is under way that has reached one replica, starts again, and its next PUT
/// reaches the others.
pub(crate) fn a_client_starts_again() -> Result<(), String> {
    let again = |first: u64| if stands(Defence::Incarnations) { first + 1 } else { first };
    let mut world = calm();
    let (first, result) = (world.next_client(), Rc::default());
    world.filter = Box::new(move |client, server, frame| {
        client == first && server > 0 && ops_of(frame) == WRITES
    });
    let at = world.add(|cluster| one(cluster, 7, Some(1), &result));
    world.until(|world| has_a_value(world, 0))?;
    world.remove(at);
    let (second, result) = (world.next_client(), Rc::default());
    world.filter = Box::new(move |client, server, _| client == second && server == 0);
    world.visit(|cluster| one(cluster, again(7), Some(2), &result))?;
    assert!(matches!(*result.borrow(), Some(Ok(_))), "{result:?}");
    let mut seen = Vec::new();
    for replica in [0, 2, 0, 2] {
        seen.push(read_without(&mut world, replica)?);
    }
    seen.dedup();
    // The first PUT may take effect late, once.
    if seen.len() <= 2 { Ok(()) } else { Err(format!("the block went back and forth: {seen:?}")) }
}
