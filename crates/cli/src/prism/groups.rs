//! `tercio prism rs ...` and `tercio prism tx ...`: replicated blocks and transactions, served and used.

use super::{getrandom_u64, read_capability, read_or_make, serve_until};
use crate::failure::Failure;
use crate::numbers::between;
use crate::{output, stop};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tercio_prism::cluster::Cluster;
use tercio_prism::engine::{Engine, Service};
use tercio_prism::memory::Memory;
use tercio_prism::op::Capability;
use tercio_prism::rs::server::{Config as RsConfig, RsServer};
use tercio_prism::rs::{Joined, Options as RsOptions, RsClient, join};
use tercio_prism::server::{Options, Server};
use tercio_prism::transport::Endpoint;
use tercio_prism::tx::server::{Config as TxConfig, TxServer};
use tercio_prism::tx::{Options as TxOptions, TxSession};

/// How long a join waits for the others, in nanoseconds.
const JOIN_NS: u64 = 60_000_000_000;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RsCommand {
    /// Serve one replica of a group
    Serve(RsServeArgs),
    /// Print a block
    Get {
        #[command(flatten)]
        group: Group,
        /// The block's number
        block: u64,
    },
    /// Set a block
    Put {
        #[command(flatten)]
        group: Group,
        /// The block's number
        block: u64,
        /// The value
        value: String,
    },
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TxCommand {
    /// Serve one shard of a store
    Serve(TxServeArgs),
    /// Print keys, as they are at one moment
    Get {
        #[command(flatten)]
        group: Group,
        /// The keys' numbers
        #[arg(required = true)]
        keys: Vec<u64>,
    },
    /// Set keys, all of them or none
    Put {
        #[command(flatten)]
        group: Group,
        /// Keys and values: 1=one 2=two
        #[arg(required = true, value_parser = pair)]
        pairs: Vec<(u64, String)>,
    },
    /// Settle what clients that died have left
    Tidy {
        #[command(flatten)]
        group: Group,
    },
}

fn pair(text: &str) -> Result<(u64, String), String> {
    let wrong = || format!("'{text}' is no key and value such as 1=one");
    let (key, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok((key.parse().map_err(|_| wrong())?, value.to_owned()))
}

/// The servers, and what opens them.
#[derive(Debug, clap::Args)]
pub(crate) struct Group {
    /// Where all servers are, in the order of their numbers, with commas: udp:ADDRESS, tcp:ADDRESS or
    /// shm:PATH
    #[arg(long, value_name = "ENDPOINTS", value_delimiter = ',', required = true)]
    group: Vec<Endpoint>,
    /// The file with the capability that opens them
    #[arg(long, value_name = "FILE", default_value = super::KEY_FILE)]
    key_file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ServeAt {
    /// Wait for datagrams here; port 0 chooses one
    #[arg(long, value_name = "ADDRESS")]
    udp: Vec<SocketAddr>,
    /// Wait for streams here
    #[arg(long, value_name = "ADDRESS")]
    tcp: Vec<SocketAddr>,
    /// Wait for clients of this machine at this Unix socket, and share memory with them
    #[arg(long, value_name = "PATH")]
    shm: Option<PathBuf>,
    /// The file with the capability, the same for all servers; it is made if it is not there
    #[arg(long, value_name = "FILE", default_value = super::KEY_FILE)]
    key_file: PathBuf,
    /// Print one JSON object once it serves
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RsServeArgs {
    #[command(flatten)]
    at: ServeAt,
    /// Which member of the group this is, from 0 on
    #[arg(long, value_parser = between(0_usize, 6))]
    member: usize,
    /// How many members there are: 1, 3, 5 or 7
    #[arg(long, default_value_t = 3, value_parser = between(1_usize, 7))]
    members: usize,
    /// How many blocks
    #[arg(long, default_value_t = 100_000, value_parser = between(1, u64::from(u32::MAX)))]
    blocks: u64,
    /// The most bytes of a block
    #[arg(long, default_value_t = 512, value_parser = between(1_usize, 1 << 20))]
    block_bytes: usize,
    /// The group is made now, and its blocks are zeros. Without it, the replica joins --group
    #[arg(long, conflicts_with = "group")]
    new_group: bool,
    /// Where all members are, in order, with commas: to copy from the others what this one has lost
    #[arg(long, value_name = "ENDPOINTS", value_delimiter = ',')]
    group: Vec<Endpoint>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxServeArgs {
    #[command(flatten)]
    at: ServeAt,
    /// Which shard of the store this is, from 0 on
    #[arg(long, default_value_t = 0, value_parser = between(0_usize, 1023))]
    shard: usize,
    /// How many shards there are
    #[arg(long, default_value_t = 1, value_parser = between(1_usize, 1024))]
    shards: usize,
    /// How many keys the whole store has
    #[arg(long, default_value_t = 100_000, value_parser = between(1, u64::from(u32::MAX)))]
    keys: u64,
    /// Bytes of a value, a multiple of 8
    #[arg(long, default_value_t = 512, value_parser = between(8_usize, 1 << 20))]
    value_bytes: usize,
}

pub(crate) fn rs(command: &RsCommand) -> Result<(), Failure> {
    match command {
        RsCommand::Serve(args) => serve_rs(args),
        RsCommand::Get { group, block } => rs_get(group, *block),
        RsCommand::Put { group, block, value } => rs_put(group, *block, value),
    }
}

pub(crate) fn tx(command: &TxCommand) -> Result<(), Failure> {
    match command {
        TxCommand::Serve(args) => serve_tx(args),
        TxCommand::Get { group, keys } => tx_get(group, keys),
        TxCommand::Put { group, pairs } => tx_put(group, pairs),
        TxCommand::Tidy { group } => tx_tidy(group),
    }
}

/// A server with its ports open.
struct Opened {
    server: Server,
    endpoints: Vec<Endpoint>,
}

fn open(
    at: &ServeAt,
    memory: Arc<Memory>,
    by: Capability,
    service: Box<dyn Service>,
) -> Result<Opened, Failure> {
    let mut wanted: Vec<Endpoint> = at.shm.iter().cloned().map(Endpoint::Shm).collect();
    wanted.extend(at.udp.iter().copied().map(Endpoint::Udp));
    wanted.extend(at.tcp.iter().copied().map(Endpoint::Tcp));
    if wanted.is_empty() {
        return Err(Failure::Usage("say where to serve: --udp, --tcp or --shm".into()));
    }
    super::warn_of_others(at.udp.iter().chain(&at.tcp));
    let mut engine = Engine::new(memory, 0, getrandom_u64().map_err(Failure::new)? as u32);
    engine.serve(by, service);
    let (mut ports, mut endpoints) = (Vec::new(), Vec::new());
    for endpoint in wanted {
        let opened = endpoint.port();
        let (port, endpoint) =
            opened.map_err(|error| Failure::new(format!("{endpoint} cannot be used: {error}")))?;
        ports.push(port);
        endpoints.push(endpoint);
    }
    Ok(Opened { server: Server::new(engine, ports, Options::default()), endpoints })
}

#[derive(Serialize)]
struct ServingOne {
    endpoints: Vec<String>,
    key_file: String,
    /// Which member or shard it is.
    number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<Joined>,
}

fn say(
    at: &ServeAt,
    endpoints: &[Endpoint],
    number: usize,
    joined: Option<Joined>,
) -> Result<(), Failure> {
    let endpoints = endpoints.iter().map(Endpoint::to_string).collect();
    let key_file = at.key_file.display().to_string();
    output::report(at.json, &ServingOne { endpoints, key_file, number, joined }, |serving| {
        output::line(&format!("number {number} serves at {}", serving.endpoints.join(" and ")));
        if let Some(Joined { life, copied }) = serving.joined {
            output::line(&format!("it has joined as life {life}: {copied} blocks were copied"));
        }
        output::line(&format!("the capability is in {}; end with Ctrl-C", serving.key_file));
    })
}

/// Serves until an interrupt.
fn serve(mut opened: Opened, stop: &AtomicBool, json: bool) -> Result<(), Failure> {
    serve_until(&mut opened.server, stop, json)
}

fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stopped = stop::watch(false)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let watcher = move || {
        let _ = stopped.recv();
        flag.store(true, Ordering::Relaxed);
    };
    thread::Builder::new().name("stop".into()).spawn(watcher).map_err(Failure::new)?;
    Ok(stop)
}

fn serve_rs(args: &RsServeArgs) -> Result<(), Failure> {
    if !args.new_group && args.group.len() != args.members {
        let what = format!(
            "a replica joins its group unless --new-group says that there was none: --group takes \
             the {} members' endpoints",
            args.members
        );
        return Err(Failure::Usage(what));
    }
    let capability = read_or_make(&args.at.key_file)?;
    let config = RsConfig {
        blocks: args.blocks,
        block_bytes: args.block_bytes,
        spare: (args.blocks / 8).clamp(1024, 1 << 20) as u32,
        member: args.member,
        members: args.members,
        new_group: args.new_group,
        poison: false,
    };
    let memory = Arc::new(Memory::new());
    let replica = RsServer::new(&memory, capability, &config).map_err(Failure::new)?;
    let opened = open(&args.at, memory, capability, Box::new(replica))?;
    let stop = stop_flag()?;
    if args.new_group {
        say(&args.at, &opened.endpoints, args.member, None)?;
        return serve(opened, &stop, args.at.json);
    }
    let endpoints = opened.endpoints.clone();
    thread::scope(|scope| {
        let flag = Arc::clone(&stop);
        let serving = scope.spawn(move || serve(opened, &flag, args.at.json));
        let joined = join_group(args, &endpoints, capability);
        let said = joined.and_then(|joined| say(&args.at, &endpoints, args.member, Some(joined)));
        if said.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let served = serving.join().map_err(|_| Failure::new("the server failed"))?;
        said.and(served)
    })
}

fn join_group(
    args: &RsServeArgs,
    own: &[Endpoint],
    capability: Capability,
) -> Result<Joined, Failure> {
    let mut servers: Vec<_> = args.group.iter().map(|e| (e.clone(), capability)).collect();
    // Itself it reaches where it has just begun to wait.
    servers[args.member].0 = own[0].clone();
    let mut cluster = Cluster::open(&servers).map_err(Failure::new)?;
    let net = cluster.net().clone();
    let members = (0..args.members).collect();
    let joined = cluster.block_on(join(net, members, args.member, JOIN_NS));
    let joined = joined.map_err(|why| {
        Failure::new(format!(
            "the replica cannot join: {why}. It serves nothing; are f + 1 of the other members there?"
        ))
    })?;
    cluster.close();
    Ok(joined)
}

fn serve_tx(args: &TxServeArgs) -> Result<(), Failure> {
    let capability = read_or_make(&args.at.key_file)?;
    let config = TxConfig {
        keys: args.keys,
        value_bytes: args.value_bytes,
        spare: (args.keys / 8).clamp(1024, 1 << 20) as u32,
        shard: args.shard,
        shards: args.shards,
        instance: getrandom_u64().map_err(Failure::new)?,
        poison: false,
    };
    let memory = Arc::new(Memory::new());
    let shard = TxServer::new(&memory, capability, &config).map_err(Failure::new)?;
    let opened = open(&args.at, memory, capability, Box::new(shard))?;
    let stop = stop_flag()?;
    say(&args.at, &opened.endpoints, args.shard, None)?;
    serve(opened, &stop, args.at.json)
}

fn cluster(group: &Group) -> Result<(Cluster, Vec<usize>), Failure> {
    let capability = read_capability(&group.key_file)?;
    let servers: Vec<_> = group.group.iter().map(|e| (e.clone(), capability)).collect();
    let numbers = (0..servers.len()).collect();
    Ok((Cluster::open(&servers).map_err(Failure::new)?, numbers))
}

#[derive(Serialize)]
struct Values {
    /// Where something was read: numbers and values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<(u64, String)>,
    round_trips: u64,
    /// The transaction's place in the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    /// Transactions of others that were settled for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<u64>,
}

fn report(json: bool, values: &Values) -> Result<(), Failure> {
    output::report(json, values, |values| match &values.values[..] {
        [(_, value)] => output::line(value),
        all => all.iter().for_each(|(number, value)| output::line(&format!("{number} {value}"))),
    })
}

/// Without the zeros that a value is filled up with.
fn text(value: &[u8]) -> String {
    let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn rs_client(cluster: &mut Cluster, servers: Vec<usize>) -> RsClient {
    let writer = cluster.draw();
    RsClient::new(cluster.net(), servers, writer, RsOptions::default())
}

fn rs_get(group: &Group, block: u64) -> Result<(), Failure> {
    let (mut cluster, servers) = cluster(group)?;
    let client = rs_client(&mut cluster, servers);
    let value = {
        let client = client.clone();
        cluster.block_on(async move { client.get(block).await }).map_err(Failure::new)?
    };
    let values = vec![(block, text(&value))];
    let round_trips = client.counts().phases;
    cluster.close();
    report(group.json, &Values { values, round_trips, timestamp: None, settled: None })
}

fn rs_put(group: &Group, block: u64, value: &str) -> Result<(), Failure> {
    let (mut cluster, servers) = cluster(group)?;
    let client = rs_client(&mut cluster, servers);
    {
        let (client, value) = (client.clone(), value.to_owned());
        let put = async move {
            let put = client.put(block, value.as_bytes()).await;
            client.finish().await;
            put
        };
        cluster.block_on(put).map_err(Failure::new)?;
    }
    let round_trips = client.counts().phases;
    cluster.close();
    report(group.json, &Values { values: Vec::new(), round_trips, timestamp: None, settled: None })
}

fn tx_get(group: &Group, keys: &[u64]) -> Result<(), Failure> {
    let (mut cluster, servers) = cluster(group)?;
    let (net, keys) = (cluster.net().clone(), keys.to_vec());
    let values = cluster.block_on(async move {
        let mut session = TxSession::open(net, servers, TxOptions::default()).await?;
        let read = session.run(async |tx| {
            let mut values = Vec::new();
            for key in &keys {
                values.push((*key, text(&tx.read(*key).await?.unwrap_or_default())));
            }
            Ok(values)
        });
        let (values, ts) = read.await?;
        let round_trips = session.counts().rounds;
        session.finish().await?;
        Ok::<_, tercio_prism::tx::TxError>(Values {
            values,
            round_trips,
            timestamp: Some(ts.0),
            settled: None,
        })
    });
    let values = values.map_err(Failure::new)?;
    cluster.close();
    report(group.json, &values)
}

fn tx_put(group: &Group, pairs: &[(u64, String)]) -> Result<(), Failure> {
    let (mut cluster, servers) = cluster(group)?;
    let (net, pairs) = (cluster.net().clone(), pairs.to_vec());
    let values = cluster.block_on(async move {
        let mut session = TxSession::open(net, servers, TxOptions::default()).await?;
        let size = session.value_bytes().await?;
        let write = session.run(async |tx| {
            for (key, value) in &pairs {
                let mut bytes = value.clone().into_bytes();
                // Longer ones are turned down.
                bytes.resize(bytes.len().max(size), 0);
                tx.write(*key, &bytes).await?;
            }
            Ok(())
        });
        let ((), ts) = write.await?;
        let round_trips = session.counts().rounds;
        session.finish().await?;
        Ok::<_, tercio_prism::tx::TxError>(Values {
            values: Vec::new(),
            round_trips,
            timestamp: Some(ts.0),
            settled: None,
        })
    });
    let values = values.map_err(Failure::new)?;
    cluster.close();
    report(group.json, &values)
}

fn tx_tidy(group: &Group) -> Result<(), Failure> {
    let (mut cluster, servers) = cluster(group)?;
    let net = cluster.net().clone();
    let counts = cluster.block_on(async move {
        let mut session = TxSession::open(net, servers, TxOptions::default()).await?;
        session.tidy().await?;
        session.finish().await?;
        Ok::<_, tercio_prism::tx::TxError>(session.counts())
    });
    let counts = counts.map_err(Failure::new)?;
    cluster.close();
    let (values, settled) = (Vec::new(), Some(counts.settled));
    let values = Values { values, round_trips: counts.rounds, timestamp: None, settled };
    output::report(group.json, &values, |_| {
        output::line(&format!("{} prepared writes were settled", counts.settled));
    })
}
