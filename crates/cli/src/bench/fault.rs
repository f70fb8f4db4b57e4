//! `tercio bench fault`.

use super::network;
use crate::failure::Failure;
use crate::{output, stop};
use clap::ValueEnum;
use std::time::Duration;
use tercio_bench::fault::closed::{self, ClosedReport, Stretch};
use tercio_bench::fault::{self, Fared, Fault, FaultReport};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The primary is killed, and another view begins
    DeadPrimary,
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
    /// Clients, each with a thread and links of its own [default: 2, or as many as --outstanding needs]
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: Option<u16>,
    /// The most packages of a client in flight, up to 1024; with --closed the packages of all clients
    /// under way [default: 512, or 2048]
    #[arg(long, value_name = "O", value_parser = clap::value_parser!(u16).range(1..=60_000))]
    outstanding: Option<u16>,
    /// Offer this many requests per second [default: half of what closed-loop clients reach]
    #[arg(long, value_name = "R", conflicts_with = "closed", value_parser = network::rate)]
    rate: Option<f64>,
    /// Send the next package when one ends, instead of at a rate: what becomes of the throughput
    #[arg(long)]
    closed: bool,
    /// How long the network is watched before, and again after
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
}

/// The most packages of a client in flight.
const WINDOW: u16 = 1024;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (clients, outstanding) = match args.closed {
        true => closed::share(args.outstanding.unwrap_or(2 * WINDOW), args.clients),
        false => (args.clients.unwrap_or(2), args.outstanding.unwrap_or(WINDOW / 2)),
    };
    if outstanding > WINDOW {
        return Err(Failure::Usage(format!(
            "a client may have {WINDOW} packages in flight, and not {outstanding}: lower \
             --outstanding, or say --closed, where it is that of all clients"
        )));
    }
    let fault = Fault {
        setup: args.network.setup(clients, outstanding),
        kind: match args.kind {
            Kind::DeadPrimary => fault::Kind::DeadPrimary,
            Kind::DeadBackup => fault::Kind::DeadBackup,
            Kind::HaltedBackup => fault::Kind::HaltedBackup,
        },
        rate: args.rate,
        measure: Duration::from_secs(args.seconds.into()),
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    if args.closed {
        let result = closed::run(&fault, &program, folder.path(), &said);
        spinner.finish_and_clear();
        let report = result.map_err(|error| folder.failure(error))?;
        return output::report(args.network.json, &report, print_closed);
    }
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

fn print_closed(r: &ClosedReport) {
    network::print(&r.settings, &r.machine);
    let under_way = r.under_way;
    output::line(&format!("{}, replica {}: {under_way} packages under way", r.kind, r.replica));
    for (when, stretch) in [("before", &r.before), ("during", &r.during), ("after", &r.after)] {
        print_stretch(when, stretch);
    }
    let ratio = r.ratio.map_or("unknown".into(), |ratio| format!("{ratio:.2} of before"));
    output::line(&format!(
        "after, from a second after the view change on: {ratio}; no result for {:.0} ms; {} view \
         changes",
        r.gap_ms, r.view_changes
    ));
}

fn print_stretch(when: &str, s: &Stretch) {
    let of = |rps: Option<f64>| rps.map_or("-".into(), |rps| format!("{rps:.0}"));
    let spread = s.spread_rps;
    output::line(&format!(
        "{when}: {} requests/s (median of {} seconds, {} to {}), p50 {:.0} us, p99 {:.0} us; no \
         result for {:.0} ms at most; {} packages sent again",
        of(s.throughput_rps),
        s.seconds_rps.len(),
        of(spread.map(|spread| spread.min)),
        of(spread.map(|spread| spread.max)),
        s.latency_us.p50,
        s.latency_us.p99,
        s.longest_gap_ms,
        s.resent_packages
    ));
}
