//! PRISM-RS: linearizable per block while frames are lost, come twice, late and out of order, clients
//! die and start again, and replicas go away and come back with or without their memory.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use crate::cluster::{History, Rough, Running, Scenario, SharedHistory, World};
use crate::cluster::{OURS, ROUGH, number_of, value_of};

use crate::common::times;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tercio_prism::cluster::Cluster;
use tercio_prism::memory::Memory;
use tercio_prism::rng::Rng;
use tercio_prism::rs::server::{Config, RsServer};
use tercio_prism::rs::{Ask, Options, RsClient, RsError, Tag, join};
use tercio_prism::zoo::{Defence, stands};

pub(crate) const BLOCKS: u64 = 3;
const WORDS: usize = 12;

/// Replicas and what clients do with blocks.
pub(crate) struct Blocks {
    pub(crate) members: usize,
    pub(crate) commands: u64,
    pub(crate) options: Options,
    pub(crate) history: SharedHistory,
    /// Tags as they were last seen, by replica.
    tags: RefCell<Vec<(usize, Vec<Tag>)>>,
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
        let mut rng = Rng::new(self.seeds.borrow_mut().next_u64());
        let (history, commands) = (Rc::clone(&self.history), self.commands);
        cluster.net().spawn(async move {
            for _ in 0..commands {
                let block = rng.below(BLOCKS);
                let put = rng.percent(50);
                let (at, number) = history.borrow_mut().begin(block, put);
                let words = 1 + rng.below(WORDS as u64) as usize;
                let result = if put {
                    rs.put(block, &value_of(number, words)).await.map(|()| Vec::new())
                } else {
                    rs.get(block).await
                };
                let history = &mut *history.borrow_mut();
                match result {
                    Ok(_) if put => history.end(block, at, None),
                    Ok(value) => match number_of(&value) {
                        Ok(got) => history.end(block, at, got),
                        Err(why) => history.failures.push(why),
                    },
                    Err(why) => history.failures.push(format!("put {put}: {why}")),
                }
            }
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
            let memory = Arc::as_ptr(&server.memory).addr();
            if *life == memory && seen.iter().zip(&now).any(|(before, now)| before > now) {
                return Err(format!("a tag went back: {seen:?} {now:?}"));
            }
            (*life, *seen) = (memory, now);
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

fn many(seeds: u64, members: usize, clients: usize, options: Options, rough: Rough) -> [u64; 5] {
    let mut total = [0; 5];
    for seed in 0..seeds {
        let commands = 60 / clients as u64;
        let counts = run(seed, Blocks::new(seed, members, commands, options), clients, rough);
        let counts = counts.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        total.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let names =
        ["histories", "history_events", "checker_states", "client_crashes", "replica_crashes"];
    for (name, count) in names.iter().zip(total) {
        println!("prism-count rs_{name} {count}");
    }
    total
}

#[test]
fn blocks_are_linearizable_while_clients_and_replicas_crash() {
    let [.., clients, replicas] =
        many(times("PRISM_SEEDS", 60), 3, 4, Options::default(), ACCIDENTS);
    assert!(clients > 0 && replicas > 0, "{clients} and {replicas} crashes");
}

#[test]
fn so_they_are_with_five_replicas() {
    many(times("PRISM_SEEDS", 20), 5, 4, Options::default(), ACCIDENTS);
}

#[test]
fn hedged_requests_change_nothing() {
    let options = Options { ask: Ask::Hedged(30_000), ..Options::default() };
    many(times("PRISM_SEEDS", 30), 3, 4, options, ACCIDENTS);
}

#[test]
fn so_does_the_papers_write_back() {
    let options = Options { always_write_back: true, ..Options::default() };
    many(times("PRISM_SEEDS", 20), 3, 4, options, ACCIDENTS);
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

#[test]
fn without_a_quorum_there_is_a_clear_error() {
    let options = Options { patience_ns: 300_000_000, ..Options::default() };
    let mut world = World::new(1, 3, 0, CALM, Blocks::new(1, 3, 0, options));
    world.servers[0] = None;
    let outcome = Rc::new(RefCell::new(Vec::new()));
    let result = Rc::clone(&outcome);
    world
        .visit(|cluster| {
            let rs = RsClient::new(cluster.net(), vec![0, 1, 2], 7, options);
            cluster.net().spawn(async move {
                let put = rs.put(1, &[5; 8]).await;
                result.borrow_mut().push(put);
                result.borrow_mut().push(rs.put(BLOCKS, &[5; 8]).await);
                result.borrow_mut().push(rs.put(0, &[5; WORDS * 8 + 1]).await);
            });
        })
        .unwrap();
    let expected = [Ok(()), Err(RsError::NoBlock(BLOCKS)), Err(RsError::TooLong(WORDS * 8))];
    assert_eq!(*outcome.borrow(), expected);
    world.servers[1] = None;
    let result = Rc::clone(&outcome);
    world
        .visit(|cluster| {
            let rs = RsClient::new(cluster.net(), vec![0, 1, 2], 8, options);
            cluster.net().spawn(async move {
                let got = rs.get(1).await.map(|_| ());
                result.borrow_mut().push(got);
            });
        })
        .unwrap();
    assert_eq!(outcome.borrow().last(), Some(&Err(RsError::NoQuorum { answered: 1, needed: 2 })));
}

/// Round trips and bytes on the wire of each operation, with three replicas and blocks of 64 bytes.
#[test]
fn operations_take_the_round_trips_of_the_paper() {
    let count = |options: Options| {
        let mut world = World::new(1, 3, 0, CALM, Blocks::new(1, 3, 0, options));
        let counted = Rc::new(RefCell::new(Vec::new()));
        let result = Rc::clone(&counted);
        world
            .visit(|cluster| {
                let rs = RsClient::new(cluster.net(), vec![0, 1, 2], 7, options);
                let net = cluster.net().clone();
                cluster.net().spawn(async move {
                    rs.put(1, &[5; 64]).await.unwrap();
                    // Lets the stragglers in.
                    net.sleep(1_000_000).await;
                    for put in [false, true] {
                        let before = (rs.counts().phases, net.traffic());
                        if put {
                            rs.put(1, &[6; 64]).await.unwrap();
                        } else {
                            rs.get(1).await.unwrap();
                        }
                        let phases = rs.counts().phases - before.0;
                        net.sleep(1_000_000).await;
                        let now = net.traffic();
                        result.borrow_mut().push([
                            phases,
                            now.requests - before.1.requests,
                            now.sent_bytes - before.1.sent_bytes,
                            now.received_bytes - before.1.received_bytes,
                        ]);
                    }
                });
            })
            .unwrap();
        Rc::try_unwrap(counted).unwrap().into_inner()
    };
    let quick = count(Options::default());
    let paper = count(Options { always_write_back: true, ..Options::default() });
    println!("prism-rs GET, PUT: round trips, requests, bytes sent and received: {quick:?}");
    println!("prism-rs the paper's: {paper:?}");
    // A GET is one round trip where all agree, two as in the paper; a PUT is two. Three requests each.
    assert_eq!((quick[0][0], quick[0][1]), (1, 3));
    assert_eq!((paper[0][0], paper[0][1]), (2, 6));
    for put in [quick[1], paper[1]] {
        assert_eq!((put[0], put[1]), (2, 6));
    }
    // The value travels once to each replica with a PUT, and once from each with a GET.
    assert!((3 * 64..3 * 64 + 3 * 400).contains(&quick[1][2]), "{quick:?}");
    assert!((3 * 64..3 * 64 + 3 * 100).contains(&quick[0][3]), "{quick:?}");
}
