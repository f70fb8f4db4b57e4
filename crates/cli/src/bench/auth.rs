//! `tercio bench auth`.

use crate::failure::Failure;
use crate::testnet::suite;
use crate::{output, stop};
use std::time::Duration;
use tercio_bench::auth::{self, AuthReport, Row, Sweep};
use tercio_bench::setup::Setup;
use tercio_network::{Auth, Spec};
use tercio_types::Suite;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests that share an authenticator, one row for each
    #[arg(long, value_name = "K,..", value_delimiter = ',', default_value = "1,10,20,30",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    packages: Vec<u16>,
    /// How clients authenticate: mac, or the scheme of a signature [default: all]
    #[arg(long, value_name = "HOW,..", value_delimiter = ',', value_parser = super::network::auth)]
    auth: Vec<Auth>,
    /// The network's cryptography: sha256-ed25519, or sm (sm3-sm2)
    #[arg(long, value_name = "SUITE", default_value = "sha256-ed25519", value_parser = suite)]
    crypto: Suite,
    /// Clients, each with a thread and links of its own
    #[arg(long, value_name = "C", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// The most packages of a client in flight
    #[arg(long, value_name = "O", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// How long each row is measured
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// Bytes of a request, and of a result.
const SIZE: usize = 100;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let spec = Spec { suite: args.crypto, ..super::network::measured(args.clients, SIZE, 0) };
    let sweep = Sweep {
        setup: Setup {
            spec,
            package: 1,
            outstanding: args.outstanding.into(),
            size: SIZE,
            reply: SIZE,
            iterations: 0,
            ops: None,
        },
        auths: if args.auth.is_empty() { auth::ALL.to_vec() } else { args.auth.clone() },
        packages: args.packages.iter().map(|package| usize::from(*package)).collect(),
        measure: Duration::from_secs(args.seconds.into()),
    };
    let folder = stop::temporary_dir("tercio-bench-")?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    output::error(&header());
    let spinner = output::spinner();
    let said = |text: &str| spinner.set_message(text.to_owned());
    let done = |row: &Row| spinner.suspend(|| output::error(&text(row)));
    let result = auth::run(&sweep, Some(&program), folder.path(), &said, &done);
    spinner.finish_and_clear();
    output::report(args.json, &result.map_err(|error| folder.failure(error))?, print)
}

fn header() -> String {
    format!(
        "{:<10} {:>7} {:>11} {:>11} {:>11} {:>10} {:>8}",
        "auth", "package", "requests/s", "packages/s", "primary us", "backup us", "client"
    )
}

fn text(row: &Row) -> String {
    let Row { auth, package, throughput_rps, packages_per_s, .. } = row;
    let (primary, backup) = (row.cpu_us_per_request_primary, row.cpu_us_per_request_backup);
    let busiest = row.busiest_client_cpu;
    format!(
        "{auth:<10} {package:>7} {throughput_rps:>11.0} {packages_per_s:>11.0} {primary:>11.2} \
         {backup:>10.2} {busiest:>8.2}"
    )
}

fn print(r: &AuthReport) {
    let line = output::line;
    super::network::print_machine(&r.machine);
    line(&format!(
        "{} replicas, {}, requests of {} B, {} clients with up to {} packages each, closed loop",
        r.settings.replicas,
        r.settings.suite,
        r.settings.size,
        r.settings.clients,
        r.settings.outstanding
    ));
    line(&header());
    r.rows.iter().for_each(|row| line(&text(row)));
    line("processor time for a request of the primary and of a backup; of a client: per second");
    for published in &r.published {
        line(&format!(
            "seed {}: {}; here: {}",
            published.source, published.published, published.measured
        ));
    }
}
