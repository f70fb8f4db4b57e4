//! Clients of FaRM's transactions in a simulated world.

use crate::blocks::CALM;
use crate::cluster::{OURS, ROUGH, Rough, Scenario, World, number_of, value_of};

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tercio_prism::cluster::Cluster;
use tercio_prism::memory::Memory;
use tercio_prism::rng::Rng;
use tercio_prism::tx::TxError;
use tercio_prism::tx::farm::{FarmClient, FarmServer};
use tercio_prism::tx::server::Config;

const ACCOUNTS: u64 = 4;
const WORDS: usize = 2;
/// What all accounts hold together, from the first transaction on.
const SUM: u64 = 4000;

struct Bank {
    shards: usize,
    commands: u64,
    seeds: RefCell<Rng>,
    /// Committed and aborted.
    counted: Rc<Cell<[u64; 2]>>,
    failures: Rc<RefCell<Vec<String>>>,
}

impl Scenario for Bank {
    type Store = FarmServer;

    fn server(&self, server: usize, _again: bool) -> (Arc<Memory>, FarmServer) {
        let memory = Arc::new(Memory::new());
        let config = Config {
            keys: ACCOUNTS,
            value_bytes: WORDS * 8,
            spare: 0,
            shard: server,
            shards: self.shards,
            instance: 0,
            poison: false,
        };
        let store = FarmServer::new(&memory, OURS, &config).unwrap();
        (memory, store)
    }

    fn client(&self, cluster: &mut Cluster, _client: usize, _again: bool) {
        let (net, servers) = (cluster.net().clone(), (0..self.shards).collect());
        let mut rng = Rng::new(self.seeds.borrow_mut().next_u64());
        let (commands, counted) = (self.commands, Rc::clone(&self.counted));
        let failures = Rc::clone(&self.failures);
        cluster.net().spawn(async move {
            let result = async {
                let client = FarmClient::open(net, servers, rng.next_u64()).await?;
                for _ in 0..commands {
                    let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                    let amount = rng.below(50);
                    if rng.percent(50) {
                        client.run(async |tx| transfer(tx, from, to, amount).await).await?;
                    } else {
                        let sum = client.run(async |tx| sum(tx).await).await?;
                        // Before the first transfer nobody holds anything.
                        if sum != SUM && sum != 0 {
                            failures.borrow_mut().push(format!("the sum is {sum}"));
                        }
                    }
                }
                let (counts, [committed, aborted]) = (client.counts(), counted.get());
                counted.set([committed + counts.committed, aborted + counts.aborted]);
                Ok::<(), TxError>(())
            };
            if let Err(error) = result.await {
                failures.borrow_mut().push(error.to_string());
            }
        });
    }
}

type Tx = tercio_prism::tx::farm::FarmTx;

async fn account(tx: &mut Tx, key: u64) -> Result<u64, TxError> {
    let value = tx.read(key).await?;
    Ok(number_of(&value).expect("whole values are written").unwrap_or(0))
}

async fn sum(tx: &mut Tx) -> Result<u64, TxError> {
    let mut sum = 0;
    for key in 0..ACCOUNTS {
        sum += account(tx, key).await?;
    }
    Ok(sum)
}

/// Moves money; the first one makes it.
async fn transfer(tx: &mut Tx, from: u64, to: u64, amount: u64) -> Result<(), TxError> {
    let mut held = Vec::new();
    for key in 0..ACCOUNTS {
        held.push(account(tx, key).await?);
    }
    if held.iter().sum::<u64>() == 0 {
        for key in 0..ACCOUNTS {
            tx.write(key, &value_of(SUM / ACCOUNTS, WORDS))?;
        }
        return Ok(());
    }
    let amount = amount.min(held[from as usize]);
    held[from as usize] -= amount;
    held[to as usize] += amount;
    for key in [from, to] {
        tx.write(key, &value_of(held[key as usize], WORDS))?;
    }
    Ok(())
}

fn bank(seed: u64, shards: usize, commands: u64) -> Bank {
    Bank {
        shards,
        commands,
        seeds: RefCell::new(Rng::new(seed)),
        counted: Rc::default(),
        failures: Rc::default(),
    }
}

/// Runs transfers; gives how many transactions committed and how many attempts were aborted.
pub(crate) fn run(seed: u64, shards: usize, clients: usize) -> Result<[u64; 2], String> {
    let bank = bank(seed, shards, 12);
    let (counted, failures) = (Rc::clone(&bank.counted), Rc::clone(&bank.failures));
    let mut world = World::new(seed, shards, clients, Rough { faults: ROUGH, ..CALM }, bank);
    world.run(60_000_000_000)?;
    let failed = failures.borrow().first().cloned();
    failed.map_or(Ok(counted.get()), Err)
}

/// The round trips of one read-modify-write.
pub(crate) fn rounds() -> u64 {
    let mut world = World::new(1, 1, 0, CALM, bank(1, 1, 0));
    let counted = Rc::new(Cell::new(0));
    let place = Rc::clone(&counted);
    let result = world.visit(|cluster| {
        let net = cluster.net().clone();
        cluster.net().spawn(async move {
            let client = FarmClient::open(net, vec![0], 1).await.unwrap();
            let change = client.run(async |tx| {
                let value = tx.read(3).await?;
                tx.write(3, &value)
            });
            change.await.unwrap();
            place.set(client.counts().rounds);
        });
    });
    result.unwrap();
    counted.get()
}
