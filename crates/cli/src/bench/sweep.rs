//! `tercio bench sweep`.

use super::network;
use crate::failure::Failure;
use crate::{output, stop};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tercio_bench::sweep::{self, Sweep, SweepReport};

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
    /// Offer these requests per second [default: parts of what a closed loop reaches]
    #[arg(long, value_name = "R,..", value_delimiter = ',', value_parser = network::rate)]
    rates: Vec<f64>,
    /// How long each rate is offered
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Write the steps as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the curve
    #[cfg(feature = "stock")]
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut rates = args.rates.clone();
    rates.sort_by(f64::total_cmp);
    let sweep = Sweep {
        setup: args.network.setup(args.clients, args.outstanding),
        measure: Duration::from_secs(args.seconds.into()),
        rates,
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let result = sweep::run(&sweep, Some(&program), folder.path(), &said);
    spinner.finish_and_clear();
    let report = result.map_err(|error| folder.failure(error))?;
    if let Some(path) = &args.csv {
        write(path, &csv(&report))?;
    }
    #[cfg(feature = "stock")]
    if let Some(path) = &args.svg {
        write(path, &picture(&report).svg().map_err(Failure::new)?)?;
    }
    output::report(args.network.json, &report, print)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::at(path, error))
}

fn csv(report: &SweepReport) -> String {
    let mut csv = "offered_rps,throughput_rps,p50_us,p99_us,saturated\n".to_owned();
    for s in &report.steps {
        let (p50, p99) = (s.latency_us.p50, s.latency_us.p99);
        let line = format!("{},{},{p50},{p99},{}", s.offered_rps, s.throughput_rps, s.saturated);
        let _ = writeln!(csv, "{line}");
    }
    csv
}

/// What is kept up with, joined; a rate that is not has no latency.
#[cfg(feature = "stock")]
fn picture(report: &SweepReport) -> tercio_repro::Picture {
    use tercio_repro::{Mark, Picture, Trace, X};
    let trace = |name: &str, us: fn(&sweep::Step) -> f64| {
        let point = |step: &sweep::Step| {
            let ms = us(step) / 1000.0;
            (X::Number(step.throughput_rps), ms, (ms, ms))
        };
        let kept = report.steps.iter().filter(|step| !step.saturated);
        Trace { name: name.into(), mark: Mark::Measured, points: kept.map(point).collect() }
    };
    let s = &report.settings;
    Picture {
        title: format!(
            "Open loop: {} replicas, {}, {} B, {}",
            s.replicas, s.auth, s.size, s.durability
        ),
        x: "requests/s offered and kept up with".into(),
        y: "latency, ms".into(),
        traces: vec![
            trace("median", |step| step.latency_us.p50),
            trace("99 of 100", |step| step.latency_us.p99),
        ],
    }
}

fn print(r: &SweepReport) {
    let line = output::line;
    network::print(&r.settings, &r.machine);
    if let Some(closed) = r.closed_loop_rps {
        line(&format!("closed-loop clients reach {closed:.0} requests/s"));
    }
    line(&format!("{:>10} {:>10} {:>10} {:>10}", "offered/s", "done/s", "p50 us", "p99 us"));
    for s in &r.steps {
        line(&format!(
            "{:>10.0} {:>10.0} {:>10.0} {:>10.0}{}",
            s.offered_rps,
            s.throughput_rps,
            s.latency_us.p50,
            s.latency_us.p99,
            if s.saturated { "  saturated" } else { "" }
        ));
    }
    match r.sustained_rps {
        Some(rate) => line(&format!("kept up with: {rate:.0} requests/s")),
        None => line("no rate was kept up with"),
    }
}
