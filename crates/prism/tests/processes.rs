//! Clients and replicas as processes that are killed: this test program starts itself again as one of them,
//! told by a variable what to be.
#![allow(clippy::print_stdout, reason = "children speak so to the test")]

use crate::intruder;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tercio_prism::clock::now_ns;
use tercio_prism::cluster::Cluster;
use tercio_prism::engine::Engine;
use tercio_prism::kv::server::Shared;
use tercio_prism::memory::Memory;
use tercio_prism::op::Capability;
use tercio_prism::rng::Rng;
use tercio_prism::rs::server::{Config as RsConfig, RsServer};
use tercio_prism::rs::{Options as RsOptions, RsClient, join};
use tercio_prism::server::{Options, Server, run_together};
use tercio_prism::transport::Endpoint;
use tercio_prism::tx::server::{Config as TxConfig, TxServer};
use tercio_prism::tx::{Options as TxOptions, Tx, TxError, TxSession};

const OURS: Capability = Capability(0xc41d);
const ROLE: &str = "PRISM_TEST_ROLE";
const PATIENCE_NS: u64 = 60_000_000_000;

/// A process of this program, which ends with this value.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(role: &str) -> Self {
        Self::spawn(&mut Command::new(std::env::current_exe().unwrap()), role)
    }

    /// Of a command that is this program.
    pub(crate) fn spawn(program: &mut Command, role: &str) -> Self {
        let mut child = program
            .args(["processes::a_child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line that a child says, without what the test harness says.
    pub(crate) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the child has ended");
            if let Some((_, said)) = line.split_once("child:") {
                return said.trim().to_owned();
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test by itself: what the processes of the others do.
#[test]
fn a_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["transfers", seed, ref shards @ ..] => transfers(seed.parse().unwrap(), shards),
        ["replica", member, ref others @ ..] => replica(member.parse().unwrap(), others),
        ["publishes", how] => intruder::publish(how == "openly"),
        ["intrudes", process] => intruder::intrude(process.parse().unwrap()),
        ["reads", endpoint, region] => intruder::read(endpoint, region.parse().unwrap()),
        _ => panic!("no such role: {role}"),
    }
}

const ACCOUNTS: u64 = 6;
const EACH: u64 = 1000;

async fn balance(tx: &mut Tx<'_>, account: u64) -> Result<u64, TxError> {
    let value = tx.read(account).await?.expect("every account was opened");
    Ok(u64::from_le_bytes(value.try_into().unwrap()))
}

fn connect(shards: &[&str]) -> Cluster {
    let servers: Vec<_> = shards.iter().map(|shard| (shard.parse().unwrap(), OURS)).collect();
    Cluster::open(&servers).unwrap()
}

/// Moves money between random accounts until it is killed; says each time that it did.
fn transfers(seed: u64, shards: &[&str]) {
    let mut cluster = connect(shards);
    let (net, servers) = (cluster.net().clone(), (0..shards.len()).collect());
    cluster.block_on(async move {
        let mut session = TxSession::open(net, servers, TxOptions::default()).await.unwrap();
        let mut rng = Rng::new(seed);
        loop {
            let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
            let amount = rng.below(100);
            let moved = session.run(async |tx| {
                let (has, gets) = (balance(tx, from).await?, balance(tx, to).await?);
                if from != to && has >= amount {
                    tx.write(from, &(has - amount).to_le_bytes()).await?;
                    tx.write(to, &(gets + amount).to_le_bytes()).await?;
                }
                Ok(())
            });
            moved.await.unwrap();
            println!("child: moved");
        }
    });
}

#[test]
fn killed_clients_leave_no_half_of_a_transaction() {
    const SHARDS: usize = 2;
    let kills = crate::common::times("PRISM_KILLS", 20);
    let (mut servers, mut endpoints, mut stores) = (Vec::new(), Vec::new(), Vec::new());
    for shard in 0..SHARDS {
        let memory = Arc::new(Memory::new());
        let config = TxConfig {
            keys: ACCOUNTS,
            value_bytes: 8,
            spare: 1000,
            shard,
            shards: SHARDS,
            instance: 1,
            poison: true,
        };
        let store = Arc::new(Mutex::new(TxServer::new(&memory, OURS, &config).unwrap()));
        let mut engine = Engine::new(Arc::clone(&memory), 0, 1);
        engine.serve(OURS, Box::new(Shared(Arc::clone(&store))));
        let (port, endpoint) = "tcp:127.0.0.1:0".parse::<Endpoint>().unwrap().port().unwrap();
        servers.push(Server::new(engine, vec![port], Options::default()));
        endpoints.push(endpoint.to_string());
        stores.push((memory, store));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        let serving = &stop;
        scope.spawn(move || run_together(&mut servers, serving).unwrap());
        let names: Vec<&str> = endpoints.iter().map(String::as_str).collect();
        let mut cluster = connect(&names);
        let (net, servers) = (cluster.net().clone(), (0..SHARDS).collect());
        let mut session = cluster.block_on(async move {
            let mut session = TxSession::open(net, servers, TxOptions::default()).await.unwrap();
            for account in 0..ACCOUNTS {
                let open = session.run(async |tx| tx.write(account, &EACH.to_le_bytes()).await);
                open.await.unwrap();
            }
            session
        });
        let mut rng = Rng::new(5);
        let mut others: Vec<Process> =
            (0..2).map(|i| Process::start(&format!("transfers {i} {}", names.join(" ")))).collect();
        for kill in 0..kills {
            let victim = (kill % 2) as usize;
            // It is in the midst of something when it is killed.
            (0..=rng.below(20)).for_each(|_| drop(others[victim].line()));
            others[victim].kill();
            others[victim] = Process::start(&format!("transfers {} {}", kill + 2, names.join(" ")));
            session = cluster.block_on(async move {
                let sum = session.run(async |tx| {
                    let mut sum = 0;
                    for account in 0..ACCOUNTS {
                        sum += balance(tx, account).await?;
                    }
                    Ok(sum)
                });
                assert_eq!(sum.await.unwrap().0, ACCOUNTS * EACH);
                session
            });
        }
        others.iter_mut().for_each(Process::kill);
        cluster.block_on(async move {
            session.tidy().await.unwrap();
            session.finish().await.unwrap();
        });
    });
    for (memory, store) in stores {
        let count = store.lock().unwrap().count(&memory);
        assert_eq!(count.unsettled, 0, "{count:?}");
    }
    println!("prism-count tx_processes_killed {kills}");
}

const MEMBERS: usize = 3;
const BLOCKS: u64 = 8;

/// Serves a replica until it is killed: of a new group, or, told where the members are, of one that it joins.
fn replica(member: usize, others: &[&str]) {
    let memory = Arc::new(Memory::new());
    let config = RsConfig {
        blocks: BLOCKS,
        block_bytes: 64,
        spare: 500,
        member,
        members: MEMBERS,
        new_group: others.is_empty(),
        poison: true,
    };
    let store = RsServer::new(&memory, OURS, &config).unwrap();
    let mut engine = Engine::new(memory, 0, now_ns() as u32 | 1);
    engine.serve(OURS, Box::new(store));
    let (port, endpoint) = "tcp:127.0.0.1:0".parse::<Endpoint>().unwrap().port().unwrap();
    let mut server = Server::new(engine, vec![port], Options::default());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&stop, &AtomicU64::new(0)).unwrap());
        if !others.is_empty() {
            let mut members: Vec<String> = others.iter().map(ToString::to_string).collect();
            members[member] = endpoint.to_string();
            let members: Vec<&str> = members.iter().map(String::as_str).collect();
            let mut cluster = connect(&members);
            let net = cluster.net().clone();
            let joined = cluster.block_on(join(net, (0..MEMBERS).collect(), member, PATIENCE_NS));
            joined.unwrap();
        }
        println!("child: {endpoint}");
    });
}

#[test]
fn killed_replicas_come_back_with_what_they_had() {
    let kills = crate::common::times("PRISM_KILLS", 6);
    let mut processes: Vec<Process> =
        (0..MEMBERS).map(|member| Process::start(&format!("replica {member}"))).collect();
    let names: Vec<String> = processes.iter_mut().map(Process::line).collect();
    let endpoints = Arc::new(Mutex::new(names));
    let places = Arc::clone(&endpoints);
    let link = move |server: usize| {
        places.lock().unwrap()[server].parse::<Endpoint>().expect("it was printed so").link()
    };
    let mut cluster = Cluster::new(vec![OURS; MEMBERS], Box::new(link), 7);
    let writer = cluster.draw();
    let options = RsOptions { patience_ns: PATIENCE_NS, ..RsOptions::default() };
    let blocks = RsClient::new(cluster.net(), vec![0, 1, 2], writer, options);
    let mut written = vec![0; BLOCKS as usize];
    let mut round = 0;
    let mut use_them = |cluster: &mut Cluster| {
        for block in 0..BLOCKS {
            let (client, before) = (blocks.clone(), written[block as usize]);
            round += 1;
            let value = round;
            cluster.block_on(async move {
                let got = client.get(block).await.unwrap();
                assert_eq!(got[..8], u64::to_le_bytes(before), "block {block}");
                client.put(block, &u64::to_le_bytes(value)).await.unwrap();
            });
            written[block as usize] = value;
        }
    };
    use_them(&mut cluster);
    for kill in 0..kills as usize {
        let member = kill % MEMBERS;
        processes[member].kill();
        use_them(&mut cluster);
        let others = endpoints.lock().unwrap().join(" ");
        processes[member] = Process::start(&format!("replica {member} {others}"));
        let endpoint = processes[member].line();
        endpoints.lock().unwrap()[member] = endpoint;
        use_them(&mut cluster);
    }
    println!("prism-count rs_processes_killed {kills}");
}
