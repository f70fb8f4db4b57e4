//! `tercio dev`: a network to play with, in one process and in memory.

use crate::failure::Failure;
use crate::testnet::app;
use crate::{apps, output, stop};
use serde::Serialize;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tercio_bench::figures::round;
use tercio_genesis::{App, GENESIS_FILE, write_secret};
use tercio_network::{Network, Spec, free_ports};

const REPLICAS: u16 = 4;
/// How often it is looked whether all replicas still run.
const WATCH: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application [default: the first that this program knows]
    #[arg(long, value_name = "APP", value_parser = app)]
    app: Option<App>,
    /// End after the first write
    #[arg(long)]
    once: bool,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    first_committed_write_ms: f64,
    app: &'static str,
    replicas: Vec<String>,
    genesis: String,
    client_key: String,
}

/// `start` is when the program began: what the first write is timed from.
pub(crate) fn run(args: &Args, start: Instant) -> Result<(), Failure> {
    let stopped = stop::watch(!args.once)?;
    let app = args.app.clone().unwrap_or_else(|| apps().first());
    let first_write = app.operation(app.example()).map_err(Failure::new)?;
    let spec = Spec { name: "dev".into(), replicas: REPLICAS, clients: 2, ..Spec::new(app) };
    let sockets = free_ports(REPLICAS).map_err(Failure::new)?;
    let addresses = sockets.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>();
    let addresses = addresses.map_err(Failure::new)?;
    let network = Network::found(&spec, &addresses).map_err(Failure::new)?;
    let replicas = (0..)
        .zip(sockets)
        .map(|(id, socket)| {
            tercio_network::start(network.in_memory(id, socket, &spec), network.genesis())
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::new)?;
    let mut client = network.client(0, spec.core_settings()).map_err(Failure::new)?;
    client.call(first_write).map_err(Failure::new)?;
    let took = start.elapsed();
    drop(client);

    let folder = tempfile::Builder::new().prefix("tercio-dev-").tempdir().map_err(Failure::new)?;
    // Client 1 was ours just now, so its numbers are used; client 2 is for whoever plays.
    let (genesis, key) = write_files(folder.path(), &network)?;
    let report = Report {
        first_committed_write_ms: round(took.as_secs_f64() * 1e3, 1),
        app: network.genesis().app.name(),
        replicas: addresses.iter().map(ToString::to_string).collect(),
        genesis,
        client_key: key,
    };
    output::report(args.json, &report, print)?;
    while !args.once && replicas.iter().all(tercio_replica::ReplicaHandle::is_running) {
        match stopped.recv_timeout(WATCH) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    replicas.into_iter().try_for_each(|replica| replica.stop().map_err(Failure::new))
}

/// Writes what a client needs, and gives the paths.
fn write_files(folder: &Path, network: &Network) -> Result<(String, String), Failure> {
    let (genesis, key) = (folder.join(GENESIS_FILE), folder.join("client-2.key"));
    std::fs::write(&genesis, network.genesis().to_toml()).map_err(|e| Failure::at(&genesis, e))?;
    write_secret(&key, network.client_secret(1)).map_err(Failure::new)?;
    Ok((genesis.display().to_string(), key.display().to_string()))
}

fn print(report: &Report) {
    let line = output::line;
    line(&format!("first committed write: {:.0} ms", report.first_committed_write_ms));
    line(&format!("application: {} (everything is in memory and ends with this)", report.app));
    for (id, address) in report.replicas.iter().enumerate() {
        line(&format!("replica {id}: {address}"));
    }
    line(&format!("genesis: {}", report.genesis));
    line(&format!("client 2's secret key: {}", report.client_key));
    line("paste into another terminal to see the network's rules and keys:");
    line(&format!("  cat {}", report.genesis));
    line("end with Ctrl-C");
}
