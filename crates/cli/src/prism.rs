//! `tercio prism ...`: remote memory with a key-value store on it, served and used.

mod groups;

use crate::failure::Failure;
use crate::numbers::between;
use crate::{output, stop};
use clap::ValueEnum;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tercio_bench::prism::{self, loads};
use tercio_prism::client::Client;
use tercio_prism::engine::{COUNT, Counters, Engine};
use tercio_prism::kv::driver::Driver;
use tercio_prism::kv::prism::PrismClient;
use tercio_prism::kv::server::{Config, KvServer};
use tercio_prism::memory::{Buffers, Memory, make_undumpable};
use tercio_prism::op::Capability;
use tercio_prism::server::{Options, Server, run_together};
use tercio_prism::transport::Endpoint;
use tercio_prism::ycsb::Workload;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Serve a key-value store in remote memory
    Serve(ServeArgs),
    /// Get, put or delete a key of a store that is being served
    Kv(KvArgs),
    /// Put a YCSB load on a store that is being served
    Bench(BenchArgs),
    /// Say where the buffers of a server are: of a store, a replica or a shard
    Count(CountArgs),
    /// Replicated blocks (PRISM-RS): serve a replica, read and write blocks
    #[command(subcommand)]
    Rs(groups::RsCommand),
    /// Transactions over keys (PRISM-TX): serve a shard, read and write keys
    #[command(subcommand)]
    Tx(groups::TxCommand),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Wait for clients of this machine at this Unix socket, and share memory with them
    #[arg(long, value_name = "PATH")]
    shm: Option<PathBuf>,
    /// Wait for datagrams here; port 0 chooses one. Without any of the three: 127.0.0.1:7400
    #[arg(long, value_name = "ADDRESS")]
    udp: Vec<SocketAddr>,
    /// Wait for streams here
    #[arg(long, value_name = "ADDRESS")]
    tcp: Vec<SocketAddr>,
    /// The file with the capability that opens the store; it is made if it is not there
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How many small items the store may hold; memory is taken as it is used
    #[arg(long, default_value_t = 1_000_000, value_parser = between(1_u32, u32::MAX))]
    items: u32,
    /// Add this many microseconds to each round trip
    #[arg(long, default_value_t = 0.0, value_parser = between(0.0, 1e6))]
    delay_us: f64,
    /// Keep a processor busy even when nothing comes
    #[arg(long)]
    busy: bool,
    /// Do not let clients at --shm read without the server; nor does a server with a delay
    #[arg(long, requires = "shm")]
    no_direct: bool,
    /// Print one JSON object once it serves
    #[arg(long)]
    json: bool,
    /// Serve what `tercio bench prism` measures: this many objects
    #[arg(long, hide = true, value_parser = between(1_u32, 1 << 24))]
    measure: Option<u32>,
    /// How they are reached
    #[arg(long, hide = true, default_value = "shm")]
    transport: String,
    /// Bytes of such an object
    #[arg(long, hide = true, default_value_t = 512,
          value_parser = between(1, tercio_prism::kv::MAX_VALUE))]
    value: usize,
    /// What is measured: kv, rs (replicated blocks) or tx (transactions)
    #[arg(long, hide = true, default_value = "kv")]
    measured: String,
}

#[derive(Debug, clap::Args)]
struct At {
    /// Where the store is served: shm:PATH, udp:ADDRESS or tcp:ADDRESS
    #[arg(long, default_value = "udp:127.0.0.1:7400")]
    at: Endpoint,
    /// The file with the capability that opens the store
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    key_file: PathBuf,
    /// Send all requests to the server, also those that could be run without it in shared memory
    #[arg(long)]
    no_direct: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KvArgs {
    #[command(flatten)]
    at: At,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: KvCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KvCommand {
    /// Print the value of a key
    Get {
        /// The key
        key: String,
    },
    /// Set the value of a key
    Put {
        /// The key
        key: String,
        /// The value
        value: String,
    },
    /// Remove a key
    Delete {
        /// The key
        key: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct CountArgs {
    #[command(flatten)]
    at: At,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkloadName {
    A,
    B,
    C,
    F,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    at: At,
    /// The YCSB workload
    #[arg(long, value_enum, default_value_t = WorkloadName::C)]
    workload: WorkloadName,
    /// Zipf's exponent; 0: all keys alike
    #[arg(long, default_value_t = 0.0, value_parser = between(0.0, 10.0))]
    zipf: f64,
    /// How many keys; they are set first
    #[arg(long, default_value_t = 10_000, value_parser = between(1, u64::from(u32::MAX)))]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 512, value_parser = between(1, tercio_prism::kv::MAX_VALUE))]
    value: usize,
    /// Commands in flight at once
    #[arg(long, default_value_t = 8, value_parser = between(1_usize, 60))]
    window: usize,
    /// How long, in seconds
    #[arg(long, default_value_t = 2.0, value_parser = between(0.001, 86_400.0))]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Where the capability is when nothing else is said.
const KEY_FILE: &str = "prism.key";
const DEFAULT_UDP: ([u8; 4], u16) = ([127, 0, 0, 1], 7400);

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    // A server's memory is for who has the capability, and a client has that in its own.
    make_undumpable().map_err(Failure::new)?;
    match command {
        Command::Serve(args) => serve(args),
        Command::Kv(args) => kv(args),
        Command::Bench(args) => load(args),
        Command::Count(args) => count(args),
        Command::Rs(command) => groups::rs(command),
        Command::Tx(command) => groups::tx(command),
    }
}

#[derive(Serialize)]
struct Serving {
    endpoints: Vec<String>,
    key_file: String,
    items: u32,
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let options = Options { delay_ns: (args.delay_us * 1e3) as u64, busy: args.busy };
    let stopped = stop::watch(args.measure.is_some())?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let watcher = move || {
        let _ = stopped.recv();
        flag.store(true, Ordering::Relaxed);
    };
    thread::Builder::new().name("stop".into()).spawn(watcher).map_err(Failure::new)?;
    let mut server = match args.measure {
        Some(objects) => {
            prism::pin(0);
            let path =
                args.shm.as_ref().ok_or_else(|| Failure::Usage("--shm is missing".into()))?;
            let transport = prism::Transport::of_name(&args.transport)
                .ok_or_else(|| Failure::Usage("no such transport".into()))?;
            if args.measured != "kv" {
                return measured_group(args, objects, (transport, path), options, &stop);
            }
            let made = prism::server::make(objects, args.value, (transport, path), options);
            let (server, served) = made.map_err(Failure::new)?;
            output::line(&serde_json::to_string(&served).map_err(Failure::new)?);
            server
        }
        None => store(args, options)?,
    };
    serve_until(&mut server, &stop, args.json)
}

/// Serves until it is stopped; then says what it has done, and where the buffers are.
fn serve_until(server: &mut Server, stop: &AtomicBool, json: bool) -> Result<(), Failure> {
    server.run(stop, &AtomicU64::new(0)).map_err(Failure::new)?;
    let (counters, buffers) = (server.engine().counters(), server.engine().buffers());
    output::report(json, &Ended { counters, buffers }, |ended| {
        let Counters { requests, repeated, rejected, .. } = ended.counters;
        output::line(&format!(
            "{requests} requests were run, {repeated} answered again, {rejected} turned down"
        ));
        ended.buffers.iter().for_each(|buffers| output::line(&words_of(buffers)));
    })
}

#[derive(Serialize)]
struct Ended {
    #[serde(flatten)]
    counters: Counters,
    buffers: Vec<Buffers>,
}

fn words_of(buffers: &Buffers) -> String {
    let Buffers { posted, free, live, in_flight } = buffers;
    format!("buffers: {posted} posted = {free} free + {live} live + {in_flight} in flight")
}

fn count(args: &CountArgs) -> Result<(), Failure> {
    let answer = connect(&args.at)?.call(COUNT, &[]).map_err(Failure::new)?;
    let words =
        answer.try_into().map_err(|_| Failure::new("the server's answer makes no sense"))?;
    output::report(args.json, &Buffers::of_words(words), |buffers| output::line(&words_of(buffers)))
}

/// Serves what `tercio bench prism fig6` and the like measure, until it is stopped.
fn measured_group(
    args: &ServeArgs,
    objects: u32,
    at: (prism::Transport, &Path),
    options: Options,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let transactions = args.measured == "tx";
    let made = prism::groups::make(transactions, (objects, args.value), at, options);
    let (mut servers, served) = made.map_err(Failure::new)?;
    output::line(&serde_json::to_string(&served).map_err(Failure::new)?);
    run_together(&mut servers, stop).map_err(Failure::new)
}

fn store(args: &ServeArgs, options: Options) -> Result<Server, Failure> {
    let key_file = args.key_file.clone().unwrap_or_else(|| KEY_FILE.into());
    let capability = read_or_make(&key_file)?;
    let mut endpoints: Vec<Endpoint> = args.shm.iter().cloned().map(Endpoint::Shm).collect();
    endpoints.extend(args.udp.iter().copied().map(Endpoint::Udp));
    endpoints.extend(args.tcp.iter().copied().map(Endpoint::Tcp));
    if endpoints.is_empty() {
        endpoints.push(Endpoint::Udp(DEFAULT_UDP.into()));
    }
    warn_of_others(args.udp.iter().chain(&args.tcp));
    // A delay is to be felt: who reads by himself would not.
    let publish = args.shm.is_some() && !args.no_direct && options.delay_ns == 0;
    let memory = if publish { Memory::published().map_err(Failure::new)? } else { Memory::new() };
    let memory = Arc::new(memory);
    let random = || getrandom_u64().map_err(Failure::new);
    let config = Config::general(args.items);
    let kv = KvServer::new(&memory, capability, random()?, &config).map_err(Failure::new)?;
    let mut engine = Engine::new(memory, 0, random()? as u32);
    engine.serve(capability, Box::new(kv));
    let (mut ports, mut names) = (Vec::new(), Vec::new());
    for endpoint in endpoints {
        let opened = endpoint.port();
        let (port, endpoint) =
            opened.map_err(|error| Failure::new(format!("{endpoint} cannot be used: {error}")))?;
        ports.push(port);
        names.push(endpoint.to_string());
    }
    let key_file = key_file.display().to_string();
    let serving = Serving { endpoints: names, key_file, items: args.items };
    output::report(args.json, &serving, |serving| {
        output::line(&format!("serving at {}", serving.endpoints.join(" and ")));
        output::line(&format!("the capability is in {}; end with Ctrl-C", serving.key_file));
    })?;
    Ok(Server::new(engine, ports, options))
}

/// Says so where an address can be reached from elsewhere.
fn warn_of_others<'a>(mut addresses: impl Iterator<Item = &'a SocketAddr>) {
    if let Some(address) = addresses.find(|address| !address.ip().is_loopback()) {
        output::error(&format!(
            "note: {address} is reachable for others, and requests carry the capability in the clear"
        ));
    }
}

/// From the system, as keys are.
fn getrandom_u64() -> Result<u64, std::io::Error> {
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_or_make(path: &Path) -> Result<Capability, Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(mut file) => {
            let high = getrandom_u64().map_err(Failure::new)?;
            let low = getrandom_u64().map_err(Failure::new)?;
            let capability = u128::from(high) << 64 | u128::from(low);
            writeln!(file, "{capability:032x}").map_err(|error| Failure::at(path, error))?;
            Ok(Capability(capability))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read_capability(path),
        Err(error) => Err(Failure::at(path, error)),
    }
}

fn read_capability(path: &Path) -> Result<Capability, Failure> {
    let mode = fs::metadata(path).map_err(|error| Failure::at(path, error))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Failure::at(path, "others can read the capability; chmod 600 it"));
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::at(path, error))?;
    let text = text.trim();
    match u128::from_str_radix(text, 16) {
        Ok(capability) if text.len() == 32 => Ok(Capability(capability)),
        _ => Err(Failure::at(path, "this is no capability: 32 hexadecimal digits")),
    }
}

fn connect(at: &At) -> Result<Client, Failure> {
    let capability = read_capability(&at.key_file)?;
    let failed = |why: String| {
        let endpoint = &at.at;
        Failure::new(format!("{endpoint}: {why}; is 'tercio prism serve' running there?"))
    };
    if at.no_direct {
        let link = at.at.link().map_err(|error| failed(error.to_string()))?;
        Client::connect(link, capability)
    } else {
        Client::open(&at.at, capability)
    }
    .map_err(|error| failed(error.to_string()))
}

#[derive(Serialize)]
struct KvReport<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Whether the key was there to be read or removed; a PUT always is.
    found: bool,
}

fn kv(args: &KvArgs) -> Result<(), Failure> {
    let mut store = Driver::new(PrismClient::new(), connect(&args.at)?);
    let report = match &args.command {
        KvCommand::Get { key } => {
            let value = store.get(key.as_bytes()).map_err(Failure::new)?;
            let found = value.is_some();
            let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
            KvReport { key, value, found }
        }
        KvCommand::Put { key, value } => {
            store.put(key.as_bytes(), value.as_bytes()).map_err(Failure::new)?;
            KvReport { key, value: None, found: true }
        }
        KvCommand::Delete { key } => {
            let found = store.delete(key.as_bytes()).map_err(Failure::new)?;
            KvReport { key, value: None, found }
        }
    };
    store.finish().map_err(Failure::new)?;
    output::report(args.json, &report, |report| {
        if let Some(value) = &report.value {
            output::line(value);
        }
    })?;
    // In a script, a key that is not there is a failure; with --json it is an answer.
    if report.found || args.json {
        Ok(())
    } else {
        Err(Failure::new(format!("there is no key '{}'", report.key)))
    }
}

#[derive(Serialize)]
struct LoadReport {
    at: String,
    workload: Workload,
    zipf: f64,
    keys: u64,
    value_bytes: usize,
    window: usize,
    #[serde(flatten)]
    figures: loads::OnServed,
}

fn load(args: &BenchArgs) -> Result<(), Failure> {
    let workload = match args.workload {
        WorkloadName::A => Workload::A,
        WorkloadName::B => Workload::B,
        WorkloadName::C => Workload::C,
        WorkloadName::F => Workload::F,
    };
    let client = connect(&args.at)?;
    let load = loads::Load { workload, theta: args.zipf };
    let duration_ns = (args.seconds * 1e9) as u64;
    let figures = loads::run_on(client, &load, args.keys, args.value, args.window, duration_ns)
        .map_err(Failure::new)?;
    let report = LoadReport {
        at: args.at.at.to_string(),
        workload,
        zipf: args.zipf,
        keys: args.keys,
        value_bytes: args.value,
        window: args.window,
        figures,
    };
    output::report(args.json, &report, |report| {
        output::line(&format!(
            "workload {:?} at {}: {:.0} commands/s, p50 {} us, p99 {} us",
            report.workload,
            report.at,
            report.figures.rate_per_s,
            report.figures.latency.p50_us,
            report.figures.latency.p99_us
        ));
        if report.figures.without_server > 0 {
            output::line(&format!(
                "{} requests were run without the server",
                report.figures.without_server
            ));
        }
    })
}
