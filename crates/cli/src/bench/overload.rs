//! `tercio bench overload`.

use super::fault::fared;
use super::network;
use crate::failure::Failure;
use crate::{output, stop};
use std::time::Duration;
use tercio_bench::overload::{self, Overload, OverloadReport, Under};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    network: network::NetworkArgs,
    /// Clients, each with a thread and links of its own, flooders included
    #[arg(long, value_name = "C", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// The most packages of a client in flight
    #[arg(long, value_name = "O", default_value_t = 1024,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// How many times the saturating load is offered
    #[arg(long, value_name = "T", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    times: u16,
    /// How many of the clients ignore what replicas say and send as fast as they can
    #[arg(long, value_name = "F", default_value_t = 0)]
    flooders: u16,
    /// How long each load is measured
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.flooders >= args.clients {
        return Err(Failure::new("one client at least must be no flooder; raise --clients"));
    }
    let overload = Overload {
        setup: args.network.setup(args.clients, args.outstanding),
        times: args.times.into(),
        flooders: args.flooders.into(),
        measure: Duration::from_secs(args.seconds.into()),
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let result = overload::run(&overload, &program, folder.path(), &said);
    spinner.finish_and_clear();
    output::report(args.network.json, &result.map_err(|error| folder.failure(error))?, print)
}

fn under(when: &str, u: &Under) {
    fared(when, &u.fared);
    output::line(&format!(
        "  {:.2} us of replicas' processor time a request ({:?}), memory {:?} MB, 'busy' said {} times",
        u.cpu_us_per_request, u.cpu_us_per_request_per_replica, u.rss_mb, u.busy_replies
    ));
}

fn print(r: &OverloadReport) {
    network::print(&r.settings, &r.machine);
    under("saturated", &r.saturation);
    under("half of it before", &r.before);
    under(&format!("{} times that offered", r.times), &r.overload);
    under("half of it afterwards", &r.after);
    output::line(&format!(
        "processor time a request: {:.2} times that at saturation; throughput back after {} ms, \
         latency after {} ms; {} view changes; {} operations without a result",
        r.cpu_ratio, r.recovery_ms, r.latency_recovery_ms, r.view_changes, r.failed
    ));
}
