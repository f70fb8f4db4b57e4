//! `tercio bench bft`.

use crate::failure::Failure;
use crate::{output, stop};
use clap::ValueEnum;
use std::time::Duration;
use tercio_bench::bft::{self, Bft, BftReport, Offer};
use tercio_bench::network::Spec;
use tercio_client::ClientAuth;
use tercio_replica::genesis::App;
use tercio_replica::{Durability, Layout};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Auth {
    /// A vector of message authentication codes
    Mac,
    /// A signature
    Ed25519,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many replicas
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(4..=31))]
    replicas: u16,
    /// How clients authenticate their packages
    #[arg(long, value_enum, default_value_t = Auth::Mac)]
    auth: Auth,
    /// When a promise counts as durable: memory, group:N (an fsync at most every N ms), or sync
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
    /// Clients, each with a thread and links of its own
    #[arg(long, value_name = "C", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// The most packages of a client under way
    #[arg(long, value_name = "O", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Offer so many requests per second [default: search for what the network keeps up with]
    #[arg(long, value_name = "R", conflicts_with = "closed", value_parser = rate)]
    rate: Option<f64>,
    /// Send the next package when one ends, instead of at a rate
    #[arg(long)]
    closed: bool,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// Run the replicas as processes (the default)
    #[arg(long, conflicts_with = "threads")]
    processes: bool,
    /// Run the replicas as threads of this process
    #[arg(long)]
    threads: bool,
    /// Which stages have a thread of their own: all-in-one, execution-apart, log-apart, both-apart
    #[arg(long, value_name = "LAYOUT", default_value = "all-in-one", value_parser = layout)]
    layout: Layout,
    /// The most requests of a batch
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch_ops: u32,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

fn durability(text: &str) -> Result<Durability, String> {
    let parsed = match text.strip_prefix("group:") {
        Some(ms) => format!("group({ms})").parse(),
        None => text.parse(),
    };
    parsed.map_err(|_| "write memory, sync, or group:N with N from 1 to 1000 milliseconds".into())
}

fn layout(text: &str) -> Result<Layout, String> {
    text.parse().map_err(str::to_owned)
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=1e7).contains(&rate) => Ok(rate),
        _ => Err("write requests per second, 1 to 10000000".into()),
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let bft = Bft {
        spec: Spec {
            name: "bench".into(),
            replicas: args.replicas,
            clients: args.clients.into(),
            app: App::Counter(tercio_counter::Settings {
                iterations: 0,
                reply: args.reply as usize,
            }),
            auth: match args.auth {
                Auth::Mac => ClientAuth::Mac,
                Auth::Ed25519 => ClientAuth::Signature,
            },
            durability: args.durability,
            layout: args.layout,
            batch_ops: args.batch_ops as usize,
        },
        offer: match args.rate {
            Some(rate) => Offer::Rate(rate),
            None if args.closed => Offer::Closed,
            None => Offer::Search,
        },
        package: args.package.into(),
        outstanding: args.outstanding.into(),
        size: args.size as usize,
        measure: Duration::from_secs(args.seconds.into()),
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let program = (!args.threads).then_some(program.as_path());
    let result = bft::run(&bft, program, folder.path(), &said);
    spinner.finish_and_clear();
    let report = result.map_err(Failure::new)?;
    output::report(args.json, &report, print)?;
    match (report.saturated_by, report.offered_rps) {
        (Some("generator"), Some(offered)) => Err(Failure::new(format!(
            "this is no result: the clients could not send {offered:.0} requests/s; lower --rate, \
             or raise --package or --clients"
        ))),
        (Some(_), Some(offered)) => Err(Failure::new(format!(
            "this is no result: the network fell behind at {offered:.0} requests/s; lower --rate"
        ))),
        _ => Ok(()),
    }
}

fn print(r: &BftReport) {
    let line = output::line;
    let s = &r.settings;
    line(&format!(
        "{} replicas ({}), {}, durability {}, layout {}, batches of up to {}",
        s.replicas,
        if s.processes { "processes" } else { "threads" },
        s.auth,
        s.durability,
        s.layout,
        s.batch_ops
    ));
    line(&format!(
        "requests of {} B in packages of {}, results of {} B; {} clients with up to {} packages each",
        s.size, s.package, s.reply, s.clients, s.outstanding
    ));
    line(&format!(
        "machine: {} cores, {}, Linux {}, load {:.2}",
        r.machine.cores, r.machine.cpu_model, r.machine.kernel, r.machine.load_1min
    ));
    let offered = match r.offered_rps {
        Some(offered) => format!("{offered:.0} requests/s offered"),
        None => "closed loop".into(),
    };
    line(&format!(
        "{offered}, {:.0} requests/s achieved{}: {:.1} % of the ceiling of {:.0}",
        r.throughput_rps,
        if r.saturated { " (SATURATED, no result)" } else { "" },
        r.fraction_of_ceiling * 100.0,
        r.ceiling_rps
    ));
    if let Some(closed) = r.closed_loop_rps {
        line(&format!("closed-loop clients reach {closed:.0} requests/s"));
    }
    line(&format!(
        "latency p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, max {:.0} us",
        r.latency_us.p50, r.latency_us.p99, r.latency_us.p999, r.latency_us.max
    ));
    for (id, (cpu, rss)) in r.cpu_us_per_request_per_replica.iter().zip(&r.rss_mb).enumerate() {
        line(&format!("replica {id}: {cpu:.2} us of processor time a request, {rss:.0} MB"));
    }
}
