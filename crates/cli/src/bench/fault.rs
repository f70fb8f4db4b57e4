//! `tercio bench fault`.

use super::network;
use crate::failure::Failure;
use crate::{output, stop};
use clap::ValueEnum;
use std::time::Duration;
use tercio_bench::fault::{self, Fared, Fault, FaultReport};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A backup is killed: its links break
    DeadBackup,
    /// A backup stops running: its links stay open, and nothing comes
    HaltedBackup,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    network: network::NetworkArgs,
    /// What happens
    #[arg(long, value_enum, default_value_t = Kind::DeadBackup)]
    kind: Kind,
    /// Clients, each with a thread and links of its own
    #[arg(long, value_name = "C", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// The most packages of a client in flight
    #[arg(long, value_name = "O", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Offer this many requests per second [default: half of what closed-loop clients reach]
    #[arg(long, value_name = "R", value_parser = network::rate)]
    rate: Option<f64>,
    /// How long the network is watched before, and again after
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let fault = Fault {
        setup: args.network.setup(args.clients, args.outstanding),
        kind: match args.kind {
            Kind::DeadBackup => fault::Kind::Dead,
            Kind::HaltedBackup => fault::Kind::Halted,
        },
        rate: args.rate,
        measure: Duration::from_secs(args.seconds.into()),
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let result = fault::run(&fault, &program, folder.path(), &said);
    spinner.finish_and_clear();
    output::report(args.network.json, &result.map_err(|error| folder.failure(error))?, print)
}

/// Prints how clients fared.
pub(crate) fn fared(when: &str, f: &Fared) {
    output::line(&format!(
        "{when}: {:.0} requests/s achieved{}, p50 {:.0} us, p99 {:.0} us, max {:.0} us; \
         no result for {:.0} ms at most; {} packages sent again, none more than {} times, {} failed",
        f.throughput_rps,
        if f.saturated { " (less than offered)" } else { "" },
        f.latency_us.p50,
        f.latency_us.p99,
        f.latency_us.max,
        f.longest_gap_ms,
        f.resent_packages,
        f.most_resent,
        f.failed
    ));
}

fn print(r: &FaultReport) {
    network::print(&r.settings, &r.machine);
    output::line(&format!(
        "{}, replica {}: {:.0} requests/s offered",
        r.kind, r.replica, r.offered_rps
    ));
    fared("before", &r.healthy);
    fared("from then on", &r.faulty);
    output::line(&format!(
        "p99: {:.2} times as long; {} view changes",
        r.p99_ratio, r.view_changes
    ));
}
