//! What the measurements of a network are told alike, and how they say it.

use crate::testnet::suite;
use crate::{apps, output};
use std::time::Duration;
use tercio_bench::Machine;
use tercio_bench::load::Ops;
use tercio_bench::setup::{Settings, Setup};
use tercio_genesis::App;
use tercio_network::{Auth, Spec};
use tercio_replica::{Durability, Layout};
use tercio_types::{Scheme, Suite};

#[derive(Debug, clap::Args)]
pub(crate) struct NetworkArgs {
    /// How many replicas
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(4..=31))]
    pub(crate) replicas: u16,
    /// How clients authenticate their packages: mac, or a signature: ed25519, sm2, p256, secp256k1,
    /// rsa
    #[arg(long, value_name = "HOW", default_value = "mac", value_parser = auth)]
    auth: Auth,
    /// The network's cryptography: sha256-ed25519, or sm (sm3-sm2)
    #[arg(long, value_name = "SUITE", default_value = "sha256-ed25519", value_parser = suite)]
    crypto: Suite,
    /// When a promise counts as durable: memory, group (fsyncs with rests of at most 2 ms) or group:N
    /// (of at most N ms), or sync
    #[arg(long, value_name = "MODE", default_value = "memory", value_parser = durability)]
    durability: Durability,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(0..=65536))]
    size: u32,
    /// Bytes of a result
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(0..=65536))]
    reply: u32,
    /// Requests that share an authenticator
    #[arg(long, value_name = "K", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    package: u16,
    /// Which stages have a thread of their own: all-in-one, execution-apart, log-apart, both-apart
    #[arg(long, value_name = "LAYOUT", default_value = "all-in-one", value_parser = layout)]
    layout: Layout,
    /// Threads of each replica that verify; 0 for the loop's own
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=64))]
    verify_threads: u16,
    /// The most requests of a batch
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch_ops: u32,
    /// How long a batch waits for more requests, at most, in microseconds
    #[arg(long, value_name = "US",
          default_value_t = tercio_consensus::Settings::default().batch_time.as_micros() as u32,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    batch_time_us: u32,
    /// How often a loop in the application runs for each request: its own work
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    iterations: u32,
    /// The most batches in flight
    #[arg(long, value_name = "N", default_value_t = tercio_consensus::Settings::default().pipeline,
          value_parser = clap::value_parser!(u64).range(1..=512))]
    pipeline: u64,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads how packages are authenticated.
pub(crate) fn auth(text: &str) -> Result<Auth, String> {
    let known = || format!("write mac, {}", Scheme::ALL.map(Scheme::name).join(", "));
    match text {
        "mac" => Ok(Auth::Mac),
        _ => Scheme::from_name(text).map(Auth::Signed).ok_or_else(known),
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    let parsed = match text.strip_prefix("group:") {
        Some(ms) => format!("group({ms})").parse(),
        None => text.parse(),
    };
    parsed.map_err(|_| {
        "write memory, sync, group, or group:N with N from 1 to 1000 milliseconds".into()
    })
}

fn layout(text: &str) -> Result<Layout, String> {
    text.parse().map_err(str::to_owned)
}

/// Parses requests per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=1e7).contains(&rate) => Ok(rate),
        _ => Err("write requests per second, 1 to 10000000".into()),
    }
}

impl NetworkArgs {
    /// The network that they describe, with this many clients, the counter as the application.
    pub(crate) fn setup(&self, clients: u16, outstanding: u16) -> Setup {
        let spec = Spec {
            replicas: self.replicas,
            suite: self.crypto,
            durability: self.durability,
            layout: self.layout,
            verify_threads: self.verify_threads.into(),
            batch_ops: self.batch_ops as usize,
            batch_time: Duration::from_micros(self.batch_time_us.into()),
            pipeline: self.pipeline,
            ..measured(clients, self.reply as usize, self.iterations.into())
        };
        let spec = spec.with_auth(self.auth);
        Setup {
            package: self.package.into(),
            outstanding: outstanding.into(),
            size: self.size as usize,
            reply: self.reply as usize,
            iterations: self.iterations.into(),
            ops: example(&spec.app),
            spec,
        }
    }
}

/// Four replicas of the application that is measured: the counter, whose results have this many bytes
/// after a loop that runs so often, or without it the first that this program knows.
pub(crate) fn measured(clients: u16, reply: usize, iterations: u64) -> Spec {
    let rules = format!("reply = {reply}\niterations = {iterations}");
    let counter = apps().ruled("counter", &rules);
    let app =
        counter.map_or_else(|| apps().first(), |app| app.expect("the counter takes any size"));
    Spec { name: "bench".into(), clients: clients.into(), ..Spec::new(app) }
}

/// What clients send: an application's own example; the counter takes any bytes.
fn example(app: &App) -> Option<Ops> {
    let op = || app.operation(app.example()).expect("an application reads its own example");
    (app.name() != "counter").then(|| Ops::always(op()))
}

/// Prints how something was measured, and on what.
pub(crate) fn print(s: &Settings, machine: &Machine) {
    let line = output::line;
    line(&format!(
        "{} replicas ({}), {}, {}, durability {}, layout {}, {} verify threads, batches of up to {}",
        s.replicas,
        if s.processes { "processes" } else { "threads" },
        s.suite,
        s.auth,
        s.durability,
        s.layout,
        s.verify_threads,
        s.batch_ops
    ));
    line(&format!(
        "requests of {} B in packages of {}, results of {} B; {} clients with up to {} packages each",
        s.size, s.package, s.reply, s.clients, s.outstanding
    ));
    print_machine(machine);
}

/// Prints what was measured on.
pub(crate) fn print_machine(machine: &Machine) {
    output::line(&format!(
        "machine: {} cores, {}, Linux {}, load {:.2}",
        machine.cores, machine.cpu_model, machine.kernel, machine.load_1min
    ));
}
