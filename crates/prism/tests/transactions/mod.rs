//! Clients of transactions in a simulated world.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod farm;

use crate::cluster::{OURS, ROUGH, Rough, Running, Scenario, World, number_of, value_of};

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tercio_prism::cluster::Cluster;
use tercio_prism::memory::Memory;
use tercio_prism::rng::Rng;
use tercio_prism::tx::server::{Config, TxServer};
use tercio_prism::tx::{Options, Timestamp, TxError, TxSession};

pub(crate) const KEYS: u64 = 6;
const WORDS: usize = 5;

/// What a transaction did: keys and the numbers of values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub(crate) ts: Timestamp,
    pub(crate) reads: Vec<(u64, u64)>,
    pub(crate) writes: Vec<(u64, u64)>,
}

/// What all clients did.
#[derive(Debug, Default)]
pub(crate) struct Log {
    next_value: u64,
    pub(crate) committed: Vec<Done>,
    /// By the number of the client: what it was about when it was last heard of.
    open: BTreeMap<u64, Done>,
    pub(crate) aborted: u64,
    pub(crate) settled: u64,
    pub(crate) failures: Vec<String>,
}

pub(crate) struct Transactions {
    pub(crate) shards: usize,
    pub(crate) commands: u64,
    pub(crate) options: Options,
    pub(crate) log: Rc<RefCell<Log>>,
    /// A client of each so many has a clock that is far ahead; 0: none.
    pub(crate) clocks_jump: u64,
    /// Buffers beyond one a key.
    pub(crate) spare: u32,
    started: Cell<u64>,
    seeds: RefCell<Rng>,
    slots: RefCell<Vec<Vec<[u64; 4]>>>,
}

impl Transactions {
    pub(crate) fn new(seed: u64, shards: usize, commands: u64) -> Self {
        // As short as some round trips: writers that are only slow are settled, too.
        let options = Options { janitor_ns: 200_000, ..Options::default() };
        Self {
            shards,
            commands,
            options,
            log: Rc::default(),
            clocks_jump: 0,
            spare: 60,
            started: Cell::new(0),
            seeds: RefCell::new(Rng::new(seed ^ 0x7a)),
            slots: RefCell::default(),
        }
    }
}

/// What a transaction reads and writes.
fn plan(rng: &mut Rng) -> (Vec<u64>, Vec<u64>) {
    let mut key = || rng.below(KEYS);
    let (a, b, c) = (key(), key(), key());
    match rng.below(5) {
        0 => (vec![a], vec![a]),
        1 => (vec![a, b], vec![a, b]),
        2 => (vec![c], vec![a, b]),
        3 => (vec![a, b, c], vec![]),
        _ => (vec![], vec![a, b, c]),
    }
}

async fn attempt(
    session: &mut TxSession,
    log: &RefCell<Log>,
    (reads, writes): &(Vec<u64>, Vec<u64>),
) -> Result<Timestamp, TxError> {
    let client = session.number();
    log.borrow_mut().open.insert(client, Done::default());
    let mut tx = session.begin();
    for key in reads {
        let value = tx.read(*key).await?;
        let number = value.map_or(Ok(None), |value| number_of(&value));
        let mut log = log.borrow_mut();
        match number {
            Ok(number) => {
                let read = (*key, number.unwrap_or(0));
                log.open.get_mut(&client).expect("it is open").reads.push(read);
            }
            Err(why) => log.failures.push(why),
        }
    }
    for key in writes {
        let number = {
            let mut log = log.borrow_mut();
            log.next_value += 1;
            let number = log.next_value;
            let writes = &mut log.open.get_mut(&client).expect("it is open").writes;
            writes.retain(|(written, _)| written != key);
            writes.push((*key, number));
            number
        };
        tx.write(*key, &value_of(number, WORDS)).await?;
    }
    tx.commit().await
}

impl Scenario for Transactions {
    type Store = TxServer;

    fn server(&self, server: usize, again: bool) -> (Arc<Memory>, TxServer) {
        let memory = Arc::new(Memory::new());
        let config = Config {
            keys: KEYS,
            value_bytes: WORDS * 8,
            spare: self.spare,
            shard: server,
            shards: self.shards,
            instance: u64::from(again),
            poison: true,
        };
        let store = TxServer::new(&memory, OURS, &config).unwrap();
        (memory, store)
    }

    fn client(&self, cluster: &mut Cluster, _client: usize, _again: bool) {
        self.started.set(self.started.get() + 1);
        let jumps = self.clocks_jump > 0 && self.started.get().is_multiple_of(self.clocks_jump);
        let clock_ahead_us = if jumps { 3_600_000_000 } else { 0 };
        let options = Options { clock_ahead_us, ..self.options };
        let mut rng = Rng::new(self.seeds.borrow_mut().next_u64());
        let (log, commands) = (Rc::clone(&self.log), self.commands);
        let (net, servers) = (cluster.net().clone(), (0..self.shards).collect());
        cluster.net().spawn(async move {
            let result = async {
                let mut session = TxSession::open(net.clone(), servers, options).await?;
                for _ in 0..commands {
                    let plan = plan(&mut rng);
                    loop {
                        let result = attempt(&mut session, &log, &plan).await;
                        let log = &mut *log.borrow_mut();
                        let done = log.open.remove(&session.number()).unwrap_or_default();
                        match result {
                            Ok(ts) => {
                                log.committed.push(Done { ts, ..done });
                                break;
                            }
                            Err(TxError::Aborted | TxError::NoRoom) => log.aborted += 1,
                            Err(error) => return Err(error),
                        }
                    }
                    let pause_ns = rng.below(30_000);
                    net.sleep(pause_ns).await;
                }
                session.finish().await?;
                log.borrow_mut().settled += session.counts().settled;
                Ok::<(), TxError>(())
            };
            if let Err(error) = result.await {
                log.borrow_mut().failures.push(error.to_string());
            }
        });
    }

    /// PW, PR and C never go down, and PW is at least C.
    fn inspect(&self, servers: &[Option<Running<TxServer>>]) -> Result<(), String> {
        let seen = &mut *self.slots.borrow_mut();
        seen.resize(servers.len(), Vec::new());
        for (server, seen) in servers.iter().zip(seen) {
            let Some(server) = server else { continue };
            let now = server.store.lock().unwrap().contents(&server.memory);
            for (i, slot) in now.iter().enumerate() {
                let before = seen.get(i).copied().unwrap_or_default();
                if slot[0] < slot[2] || (0..3).any(|word| slot[word] < before[word]) {
                    return Err(format!("slot {i} went from {before:?} to {slot:?}"));
                }
            }
            *seen = now;
        }
        Ok(())
    }
}

/// Clients die; shards go away for a while and keep their memory.
pub(crate) const ACCIDENTS: Rough =
    Rough { faults: ROUGH, client_crashes: 4, server_crashes: 1, amnesia: 0, most_crashes: 4 };

/// What a run was like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) committed: u64,
    pub(crate) aborted: u64,
    /// Transactions whose client died before it knew, and that had committed.
    pub(crate) found: u64,
    pub(crate) settled: u64,
    pub(crate) client_crashes: u64,
    pub(crate) server_crashes: u64,
}

/// Runs transactions to their end and replays them in the order of their time stamps.
pub(crate) fn run(
    seed: u64,
    transactions: Transactions,
    clients: usize,
    rough: Rough,
) -> Result<Ran, String> {
    let mut world = World::new(seed, transactions.shards, clients, rough, transactions);
    let ended = world.run(60_000_000_000);
    let log = Rc::clone(&world.scenario.log);
    ended.map_err(|why| format!("{why}: {}", left_behind(&world, &log.borrow())))?;
    check(&mut world)
}

/// Clients are killed at a random point; then somebody needs each key. Says how long the one that waited
/// longest did, and how many keys were prepared by the dead.
pub(crate) fn kill(seed: u64, shards: usize) -> Result<(u64, u64, Ran), String> {
    let mut transactions = Transactions::new(seed, shards, 1000);
    transactions.options = Options::default();
    // The dead keep what they have not reported, until they are missed.
    transactions.spare = 600;
    let (options, mut rng) = (transactions.options, Rng::new(seed ^ 0xdead));
    let mut world = World::new(seed, shards, 2, PROMPT, transactions);
    let log = Rc::clone(&world.scenario.log);
    for (client, most) in [(1, 600), (0, 100)] {
        world.events(rng.below(most))?;
        world.remove(client);
        world.client_crashes += 1;
    }
    // What was on its way arrives.
    world.settle(1_000_000)?;
    let unsettled = |world: &World<Transactions>| -> u64 {
        let counts = world.servers.iter().flatten();
        counts.map(|s| s.store.lock().unwrap().count(&s.memory).unsettled).sum()
    };
    let prepared = unsettled(&world);
    let longest_ns = Rc::new(Cell::new(0));
    let visitors: Vec<usize> = (0..KEYS)
        .map(|key| {
            let (log, longest_ns) = (Rc::clone(&log), Rc::clone(&longest_ns));
            world.add(|cluster| {
                let net = cluster.net().clone();
                cluster.net().spawn(async move {
                    let servers = (0..shards).collect();
                    let mut session =
                        TxSession::open(net.clone(), servers, options).await.expect("all is well");
                    let began_ns = net.now_ns();
                    let result = attempt(&mut session, &log, &(vec![key], vec![key])).await;
                    longest_ns.set((net.now_ns() - began_ns).max(longest_ns.get()));
                    let log = &mut *log.borrow_mut();
                    let done = log.open.remove(&session.number()).unwrap_or_default();
                    match result {
                        Ok(ts) => log.committed.push(Done { ts, ..done }),
                        Err(error) => log.failures.push(format!("key {key}: {error}")),
                    }
                    log.settled += session.counts().settled;
                });
            })
        })
        .collect();
    world.until(|world| world.is_done())?;
    visitors.into_iter().rev().for_each(|at| world.remove(at));
    Ok((longest_ns.get(), prepared, check(&mut world)?))
}

/// No frame is lost or much too late, so that what takes time is the protocol's doing.
pub(crate) const PROMPT: Rough = Rough {
    faults: tercio_prism::transport::sim::Faults {
        loss: 0,
        duplicates: 10,
        delay_ns: 10_000,
        late_ns: 10_000,
    },
    ..crate::blocks::CALM
};
/// The longest round trip then.
pub(crate) const PROMPT_NS: u64 = 20_000;

/// Settles what is left, and replays all.
fn check(world: &mut World<Transactions>) -> Result<Ran, String> {
    let (shards, options) = (world.scenario.shards, world.scenario.options);
    let log = Rc::clone(&world.scenario.log);
    world.settle(2_000_000_000)?;
    // Somebody settles what dead clients have left.
    let failed = Rc::clone(&log);
    world.visit(|cluster| {
        let net = cluster.net().clone();
        cluster.net().spawn(async move {
            let result = async {
                let mut session = TxSession::open(net, (0..shards).collect(), options).await?;
                session.tidy().await?;
                session.finish().await?;
                failed.borrow_mut().settled += session.counts().settled;
                Ok::<(), TxError>(())
            };
            if let Err(error) = result.await {
                failed.borrow_mut().failures.push(format!("janitor: {error}"));
            }
        });
    })?;
    world.settle(32_000_000_000)?;
    let log = log.borrow();
    if let Some(failure) = log.failures.first() {
        return Err(format!("{failure}: {}", left_behind(world, &log)));
    }
    let (found, contents) = outcomes(world, &log)?;
    let mut all = log.committed.clone();
    all.extend(found.iter().cloned());
    replay(&mut all, &contents)?;
    Ok(Ran {
        committed: log.committed.len() as u64,
        aborted: log.aborted,
        found: found.len() as u64,
        settled: log.settled,
        client_crashes: world.client_crashes,
        server_crashes: world.server_crashes,
    })
}

/// What a run that does not end is like.
fn left_behind(world: &World<Transactions>, log: &Log) -> String {
    let shards = world.servers.iter().flatten().map(|running| {
        let store = running.store.lock().unwrap();
        let memory = &running.memory;
        format!("{:?} {:?}", store.contents(memory), store.decisions(memory))
    });
    format!("open {:?}, shards {:?}", log.open, shards.collect::<Vec<_>>())
}

/// What dead clients had committed, and the keys' values; nothing is left unsettled.
fn outcomes(
    world: &World<Transactions>,
    log: &Log,
) -> Result<(Vec<Done>, BTreeMap<u64, u64>), String> {
    let shards = world.servers.len();
    let mut contents = BTreeMap::new();
    let mut decisions = Vec::new();
    for (shard, running) in world.servers.iter().enumerate() {
        let running = running.as_ref().ok_or("a shard is down")?;
        let store = running.store.lock().unwrap();
        let count = store.count(&running.memory);
        if count.unsettled > 0 || count.taken != count.written {
            return Err(format!("left behind on shard {shard}: {count:?}"));
        }
        for (i, [_, _, _, number]) in store.contents(&running.memory).iter().enumerate() {
            contents.insert((i * shards + shard) as u64, *number);
        }
        decisions.push(store.decisions(&running.memory));
    }
    let mut found = Vec::new();
    for (client, done) in &log.open {
        let home = done.writes.iter().map(|(key, _)| *key as usize % shards).min();
        let Some((ts, true)) =
            home.and_then(|home| decisions[home].get(*client as usize - 1)).copied()
        else {
            continue;
        };
        if log.committed.iter().all(|done| done.ts != ts) {
            found.push(Done { ts, ..done.clone() });
        }
    }
    Ok((found, contents))
}

fn replay(all: &mut [Done], contents: &BTreeMap<u64, u64>) -> Result<(), String> {
    all.sort_by_key(|done| done.ts);
    if let Some(pair) = all.windows(2).find(|pair| pair[0].ts == pair[1].ts) {
        return Err(format!("two transactions have one time stamp: {pair:?}"));
    }
    let mut state: BTreeMap<u64, u64> = BTreeMap::new();
    for done in &*all {
        for (key, number) in &done.reads {
            let now = state.get(key).copied().unwrap_or(0);
            if now != *number {
                return Err(format!("key {key} was {now} in the order, and was read as {done:?}"));
            }
        }
        state.extend(done.writes.iter().copied());
    }
    for (key, number) in contents {
        let expected = state.get(key).copied().unwrap_or(0);
        if expected != *number {
            return Err(format!("key {key} is {number} in the end and must be {expected}"));
        }
    }
    Ok(())
}

/// The round trips of one read-modify-write, here and of FaRM.
pub(crate) fn rounds() -> (u64, u64) {
    let mut world = World::new(1, 1, 0, crate::blocks::CALM, Transactions::new(1, 1, 0));
    let counted = Rc::new(Cell::new(0));
    let place = Rc::clone(&counted);
    let spawned = world.visit(|cluster| {
        let net = cluster.net().clone();
        cluster.net().spawn(async move {
            let mut session = TxSession::open(net, vec![0], Options::default()).await.unwrap();
            let result = session.run(async |tx| {
                let value = tx.read(3).await?.unwrap_or_else(|| value_of(0, WORDS));
                tx.write(3, &value).await
            });
            result.await.unwrap();
            place.set(session.counts().rounds);
        });
    });
    spawned.unwrap();
    (counted.get(), farm::rounds())
}
