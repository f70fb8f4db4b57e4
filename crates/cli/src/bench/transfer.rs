//! `tercio bench transfer`.

use super::fault::fared;
use super::network;
use crate::failure::Failure;
use crate::{output, stop};
use std::time::Duration;
use tercio_bench::bft::Offer;
use tercio_bench::transfer::{self, Transfer, TransferResult};

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
    /// The most packages of a client in flight
    #[arg(long, value_name = "O", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Offer this many writes per second [default: as many as the network keeps up with]
    #[arg(long, value_name = "R", value_parser = network::rate)]
    rate: Option<f64>,
    /// Full load: send the next write when one ends, as many in flight as --clients times
    /// --outstanding. Latencies are given corrected for coordinated omission, too
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// How long the network is watched before, without the replica, and after it is current again
    #[arg(long, value_name = "S", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut setup = args.network.setup(args.clients, args.outstanding);
    setup.spec.app = crate::apps().named("kv").ok_or_else(|| {
        Failure::new("this needs the key-value store, which this program does not have")
    })?;
    // Its peers have let the old blocks go, so it needs the state.
    setup.spec.retain_bytes = Some(RETAIN_BYTES);
    let transfer = Transfer {
        setup,
        state_mb: args.state_mb.into(),
        offer: match args.rate {
            Some(rate) => Offer::Rate(rate),
            None if args.closed => Offer::Closed,
            None => Offer::Search,
        },
        measure: Duration::from_secs(args.seconds.into()),
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let result = transfer::run(&transfer, &program, folder.path(), &said);
    spinner.finish_and_clear();
    let report = result.map_err(|error| folder.failure(error))?;
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
    line(&match r.offered_rps {
        Some(rate) => format!("{} MiB of state, {rate:.0} writes/s offered", r.state_mb),
        None => format!("{} MiB of state, closed loop", r.state_mb),
    });
    fared("before", &r.before);
    fared("without the replica", &r.without);
    fared("until it was current", &r.during);
    fared("  until it had a state", &r.installing);
    fared("  executing the blocks since", &r.replaying);
    fared("after", &r.after);
    line(&match (r.current_after_ms, r.state_after_ms) {
        (Some(time), Some(state)) => {
            format!("replica {}: state after {state} ms, current after {time} ms", r.replica)
        }
        (Some(time), None) => format!("replica {}: current after {time} ms, by blocks", r.replica),
        (None, _) => format!("replica {}: not current", r.replica),
    });
    line(&format!(
        "fetched: {} bytes of state, {} of blocks; p99 {:.2} times as long, throughput {:.2} times",
        r.state_bytes, r.block_bytes, r.p99_ratio, r.throughput_ratio
    ));
    if let Some(c) = &r.corrected {
        line(&format!(
            "p99 corrected for coordinated omission (one every {:.0} us expected): {:.0} us before, \
             {:.0} us without, {:.0} us until it was current, {:.0} us after; {:.2} times as long",
            c.interval_us, c.before.p99, c.without.p99, c.during.p99, c.after.p99, c.p99_ratio
        ));
    }
    line(&format!(
        "memory of the replicas: {:.0?} MiB before, {:.0?} at most",
        r.rss_mb, r.rss_peak_mb
    ));
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
