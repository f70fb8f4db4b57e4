//! `tercio start`: one replica, from its home.

use crate::changes::Written;
use crate::failure::Failure;
use crate::heap::Heap;
use crate::{changes, clock, folder, log, stop};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use tercio_crypto::sm2::Backend;
use tercio_genesis::Genesis;
use tercio_network::NetworkError;
use tercio_replica::report::ReplicaReport;
use tercio_replica::{ReplicaConfig, ReplicaHandle};
use tercio_types::Scheme;
use tracing::info;

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
    #[command(flatten)]
    log: log::LogArgs,
}

/// Runs the replica until it is told to stop. Meanwhile it writes `status.json` into its home, and
/// messages on standard error of what happens.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    log::begin(&args.log)?;
    folder::expect_replica(&args.dir)?;
    let (config, genesis) = ReplicaConfig::load(&args.dir, crate::apps()).map_err(Failure::new)?;
    let stopped = stop::watch(args.stop_with_stdin)?;
    let sm2 = genesis.uses(Scheme::Sm2).then_some(config.node.verify.sm2);
    let replica = recover(config, &genesis, &args.dir).map_err(Failure::new)?;
    let mut last = replica.report();
    let (id, height, address) = (last.id, last.start_height, replica.local_addr());
    let (name, pid) = (&genesis.name, last.pid);
    info!(
        replica = id, network = name, height, pid, address = %address,
        "replica {id} of '{name}' at {address}, height {height}, process {pid}"
    );
    if let Some(address) = replica.metrics_addr() {
        info!(address = %address, "metrics at http://{address}/metrics");
    }
    match sm2 {
        Some(Backend::Scalar) => {
            let why = match Backend::best() {
                Backend::Scalar => "this processor has no AVX-512 IFMA",
                _ => "tercio.toml says so",
            };
            info!("SM2 without vector arithmetic (scalar): {why}");
        }
        Some(backend) => info!("SM2 by vector arithmetic ({})", backend.name()),
        None => {}
    }
    let (mut heap, mut written) = (Heap::default(), Written::default());
    while replica.is_running() {
        heap.tidy();
        let (report, result) = replica.write_report(&args.dir);
        written.tell(result);
        changes::tell(&last, &report);
        last = report;
        match stopped.recv_timeout(STATUS) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                let stopped = replica.stop().map_err(Failure::new);
                info!("stopped");
                return stopped;
            }
        }
    }
    replica.wait().map_err(Failure::new)
}

/// Starts the replica, which replays its log first. When that takes long, `status.json` says how far
/// it is.
fn recover(
    config: ReplicaConfig,
    genesis: &Genesis,
    home: &Path,
) -> Result<ReplicaHandle, NetworkError> {
    let (id, progress) = (config.node.me.0, config.node.progress.clone());
    let (done, ended) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(STATUS) == Err(RecvTimeoutError::Timeout) {
                let report = ReplicaReport {
                    id,
                    pid: std::process::id(),
                    written_unix_ms: clock::unix_ms(),
                    height: progress.height().0,
                    starting: Some(progress.starting()),
                    ..ReplicaReport::default()
                };
                // Whether the home can be written is said when the replica runs.
                let _ = report.write(home);
            }
        });
        let replica = tercio_network::start(config, genesis, crate::protocols());
        drop(done);
        replica
    })
}
