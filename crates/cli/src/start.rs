//! `tercio start`: one replica, from its home.

use crate::failure::Failure;
use crate::stop;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use tercio_bench::network;
use tercio_bench::status::ReplicaReport;
use tercio_replica::{NodeStatus, ReplicaConfig};

/// How often `status.json` is written.
const STATUS: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The replica's home: tercio.toml, genesis.toml, key, and what it writes in data/
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Stop when standard input ends, so as not to outlive whoever holds its other end
    #[arg(long)]
    stop_with_stdin: bool,
}

/// Runs the replica until it is told to stop, and writes `status.json` into its home meanwhile.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (config, genesis) = ReplicaConfig::load(&args.dir).map_err(Failure::new)?;
    let stopped = stop::watch(args.stop_with_stdin)?;
    let replica = network::start(config, &genesis).map_err(Failure::new)?;
    let start_height = replica.status().height.0;
    let report = || {
        let report = report(&replica.status(), start_height);
        report.write(&args.dir).map_err(|error| Failure::at(&args.dir, error))
    };
    while replica.is_running() {
        report()?;
        match stopped.recv_timeout(STATUS) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                return replica.stop().map_err(Failure::new);
            }
        }
    }
    replica.wait().map_err(Failure::new)
}

fn report(status: &NodeStatus, start_height: u64) -> ReplicaReport {
    let counts = [&status.dropped, &status.evidence, &status.links, &status.protocol.dropped];
    let dropped = counts.into_iter().flatten().map(|(reason, n)| ((*reason).to_owned(), *n));
    let checkpoint = status.checkpoint.as_ref();
    ReplicaReport {
        id: status.id.0,
        pid: std::process::id(),
        start_height,
        height: status.height.0,
        delivered: status.protocol.delivered.0,
        checkpoint_seq: checkpoint.map_or(0, |c| c.seq.0),
        checkpoint_height: checkpoint.map_or(0, |c| c.height.0),
        state_digest: checkpoint.map_or_else(String::new, |c| c.state.to_string()),
        stable: status.protocol.stable.0,
        view: status.protocol.view.0,
        primary: status.protocol.primary.0,
        changing: status.protocol.changing,
        view_changes: status.protocol.view_changes,
        catching_up: status.catching_up,
        pending: status.protocol.pending as u64,
        dropped: dropped.collect(),
    }
}
