//! `tercio bench transfer`.

use super::fault::fared;
use super::network;
use crate::failure::Failure;
use crate::{output, stop};
use std::time::Duration;
use tercio_bench::transfer::{self, Transfer, TransferResult};
use tercio_replica::genesis::App;

/// How much of the log replicas keep, in bytes: far less than what the store is filled with.
const RETAIN_BYTES: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    network: network::NetworkArgs,
    /// How much state there is, in MiB
    #[arg(long, value_name = "MB", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    state_mb: u32,
    /// Clients, each with a thread and links of its own
    #[arg(long, value_name = "C", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// The most packages of a client under way
    #[arg(long, value_name = "O", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Offer so many writes per second [default: half of what closed-loop clients reach]
    #[arg(long, value_name = "R", value_parser = network::rate)]
    rate: Option<f64>,
    /// How long the network is watched before, without the replica, and with it again
    #[arg(long, value_name = "S", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut setup = args.network.setup(args.clients, args.outstanding);
    setup.spec.app = App::Kv(tercio_kv::Settings::default());
    // Its peers have let the old blocks go, so it needs the state.
    setup.spec.retain_bytes = Some(RETAIN_BYTES);
    let transfer = Transfer {
        setup,
        state_mb: args.state_mb.into(),
        rate: args.rate,
        measure: Duration::from_secs(args.seconds.into()),
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let result = transfer::run(&transfer, &program, folder.path(), &said);
    spinner.finish_and_clear();
    let report = result.map_err(Failure::new)?;
    output::report(args.network.json, &report, print)?;
    match report.current_after_ms {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!(
            "replica {} did not become current; see its part of the report",
            report.replica
        ))),
    }
}

fn print(r: &TransferResult) {
    let line = output::line;
    network::print(&r.settings, &r.machine);
    line(&format!("{} MiB of state, {:.0} writes/s offered", r.state_mb, r.offered_rps));
    fared("before", &r.healthy);
    fared("without the replica", &r.without);
    fared("from its start on", &r.during);
    line(&match r.current_after_ms {
        Some(time) => format!(
            "replica {}: current after {time} ms{}; {} bytes of state fetched; p99 {:.2} times as long",
            r.replica,
            if r.under_load { " under load" } else { ", the load being over" },
            r.fetched_bytes,
            r.p99_ratio
        ),
        None => format!("replica {}: not current", r.replica),
    });
    if let Some(transfer) = &r.transfer {
        for source in &transfer.sources {
            line(&format!(
                "  from replica {}: {} bytes ({})",
                source.replica, source.bytes, source.state
            ));
        }
        for dropped in &transfer.dropped {
            line(&format!("  dropped replica {}: {}", dropped.replica, dropped.reason));
        }
    }
}
