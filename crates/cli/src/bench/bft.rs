//! `tercio bench bft`.

use super::network;
use crate::failure::Failure;
use crate::{output, stop};
use std::time::Duration;
use tercio_bench::bft::{self, Bft, BftReport, Offer};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    network: network::NetworkArgs,
    /// Clients, each with a thread and links of its own
    #[arg(long, value_name = "C", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// The most packages of a client in flight
    #[arg(long, value_name = "O", default_value_t = 1024,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Offer this many requests per second [default: search for what the network keeps up with]
    #[arg(long, value_name = "R", conflicts_with = "closed", value_parser = network::rate)]
    rate: Option<f64>,
    /// Send the next package when one ends, instead of at a rate
    #[arg(long)]
    closed: bool,
    /// How long a measurement takes
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// How many measurements; the one of median throughput is reported, with the spread
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    trials: u16,
    /// Measure one client with one request in flight, too, beside the bare exchange of messages
    #[arg(long)]
    one_client: bool,
    /// Run the replicas as processes (the default)
    #[arg(long, conflicts_with = "threads")]
    processes: bool,
    /// Run the replicas as threads of this process
    #[arg(long)]
    threads: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let bft = Bft {
        setup: args.network.setup(args.clients, args.outstanding),
        offer: match args.rate {
            Some(rate) => Offer::Rate(rate),
            None if args.closed => Offer::Closed,
            None => Offer::Search,
        },
        measure: Duration::from_secs(args.seconds.into()),
        trials: args.trials.into(),
        one_client: args.one_client,
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let program = (!args.threads).then_some(program.as_path());
    let result = bft::run(&bft, program, folder.path(), &said);
    spinner.finish_and_clear();
    let report = result.map_err(|error| folder.failure(error))?;
    output::report(args.network.json, &report, print)?;
    match (report.saturated_by, report.offered_rps) {
        (Some("generator"), Some(offered)) => Err(Failure::new(format!(
            "this is no result: the clients could not send {offered:.0} requests/s; lower --rate, \
             or raise --package or --clients"
        ))),
        (Some(_), Some(offered)) => Err(Failure::new(format!(
            "this is no result: the network fell behind at {offered:.0} requests/s, by {:.0} ms at \
             most; lower --rate",
            report.backlog.map_or(0.0, |backlog| backlog.max_ms)
        ))),
        _ => Ok(()),
    }
}

fn print(r: &BftReport) {
    let line = output::line;
    network::print(&r.settings, &r.machine);
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
    if let Some(b) = r.backlog {
        line(&format!(
            "waiting: {:.0} ms of what is offered at the beginning, {:.0} at the end, {:.0} at most; \
             {}",
            b.begin_ms,
            b.end_ms,
            b.max_ms,
            if b.drained {
                format!("it drained within {:.1} s", b.high_s)
            } else {
                format!("IT DID NOT DRAIN, for {:.1} s in a row", b.high_s)
            }
        ));
    }
    let cpu = r.cpu_us_per_request_per_replica.iter().zip(&r.loop_cpu_us_per_request_per_replica);
    for (id, ((cpu, of_loop), rss)) in cpu.zip(&r.rss_mb).enumerate() {
        line(&format!(
            "replica {id}: {cpu:.2} us of processor time a request, {of_loop:.2} of them in its \
             loop, {rss:.0} MB"
        ));
    }
    if let Some(one) = r.one_client {
        line(&format!(
            "one client, one request under way: p50 {:.0} us, {:.2} times the bare exchange of {:.0} us",
            one.p50_us, one.ratio, one.bare_p50_us
        ));
    }
    if let Some(disk) = &r.disk {
        line(&format!(
            "the disk by itself: {:.0} fdatasync/s of {} KiB, p50 {:.0} us",
            disk.fdatasync_per_s,
            disk.write_bytes / 1024,
            disk.p50_us
        ));
    }
    if let Some(growth) = r.rss_growth {
        line(&format!("memory at the end: {growth:.3} times what it was after a minute"));
    }
    if let Some(spread) = r.throughput_spread_rps {
        line(&format!(
            "median of {} measurements between {:.0} and {:.0} requests/s",
            spread.count, spread.min, spread.max
        ));
    }
}
