//! `tercio demo`: four replicas as processes, an order flow, a crash of the primary half way, its
//! return, and an audit of what is left.

mod clients;
mod crash;
mod files;

use crate::failure::Failure;
use crate::{audit, output};
use clients::{Progress, Seen, send_all};
use crash::{Crash, Homes};
use serde::Serialize;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tercio_bench::Machine;
use tercio_bench::figures::{LatencyUs, round};
use tercio_client::Client;
use tercio_exchange::flow::Flow;
use tercio_exchange::replay::Event;
use tercio_exchange::{Command, Settings};
use tercio_network::process::{self, ReplicaProcess};
use tercio_network::{Network, Spec, now, reports};
use tercio_registry::ExchangeKind;
use tercio_replica::report::ReplicaReport;

/// How long a flow without a count runs.
const TIME: Duration = Duration::from_secs(8);
/// The clients of a made-up flow, each with one package in flight, and the orders of a package.
const CLIENTS: usize = 4;
const PACKAGE: usize = 64;
/// The orders of a package when a file is replayed by its one client.
const REPLAY_PACKAGE: usize = 4;
/// The markets of a made-up flow, and its seed.
const MARKETS: u16 = 8;
const SEED: u64 = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replay the order events of this file, in its order
    #[arg(long, value_name = "FILE.csv", conflicts_with = "count")]
    orders: Option<PathBuf>,
    /// Write the trades of the replay
    #[arg(long, value_name = "FILE.csv", requires = "orders")]
    trades_out: Option<PathBuf>,
    /// Write the orders that rest at the end of the replay
    #[arg(long, value_name = "FILE.csv", requires = "orders")]
    book_out: Option<PathBuf>,
    /// Keep the replicas' directories here, as replica-0 and so on; must be empty or not exist
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// How many orders to send [default: as many as come in 8 s]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    count: Option<u64>,
    /// How many replicas
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(4..=31))]
    replicas: u16,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    orders: u64,
    accepted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<u64>,
    trades: u64,
    seconds: f64,
    orders_per_s: f64,
    latency_us: LatencyUs,
    view_changes: u64,
    longest_gap_ms: f64,
    crash: Crash,
    replicas: Vec<Replica>,
    agree: bool,
    audit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<PathBuf>,
    settings: Shown,
    machine: Machine,
}

#[derive(Serialize)]
struct Replica {
    id: u16,
    height: u64,
    state_digest: String,
    rss_mb: f64,
}

/// What a reader must know to place the figures.
#[derive(Serialize)]
struct Shown {
    replicas: u16,
    processes: bool,
    auth: &'static str,
    durability: &'static str,
    clients: usize,
    package: usize,
    outstanding_packages: usize,
    pace: &'static str,
}

/// What is sent.
enum Source {
    Flow(Option<u64>),
    File(Vec<Event>),
}

impl Source {
    fn clients(&self) -> usize {
        match self {
            Self::Flow(_) => CLIENTS,
            Self::File(_) => 1,
        }
    }

    fn package(&self) -> usize {
        match self {
            Self::Flow(_) => PACKAGE,
            Self::File(_) => REPLAY_PACKAGE,
        }
    }

    fn count(&self) -> Option<u64> {
        match self {
            Self::Flow(count) => *count,
            Self::File(events) => Some(events.len() as u64),
        }
    }

    fn exchange(&self) -> Settings {
        match self {
            Self::Flow(_) => Settings::markets(MARKETS),
            Self::File(_) => Settings::replay(),
        }
    }

    /// The commands of a client.
    fn commands(&self, client: usize) -> Box<dyn Iterator<Item = Command> + Send + '_> {
        match self {
            Self::Flow(_) => Box::new(Flow::new(SEED, client as u64 + 1, MARKETS)),
            Self::File(events) => Box::new(events.iter().map(|event| event.command(0))),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let source = match &args.orders {
        Some(file) => Source::File(files::read_events(file)?),
        None => Source::Flow(args.count),
    };
    // Before the work, rather than after it.
    for out in [&args.trades_out, &args.book_out].into_iter().flatten() {
        files::must_be_writable(out)?;
    }
    let folder = files::Folder::new(args.keep.as_deref())?;
    let spec = Spec {
        replicas: args.replicas,
        clients: source.clients(),
        ..Spec::new(ExchangeKind::app(source.exchange()))
    };
    let network = Network::lay_out(folder.path(), &spec).map_err(Failure::new)?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let mut replicas = tercio_network::spawn_all(&program, folder.path(), &spec.ids())
        .map_err(|e| folder.failure(e))?;
    let mut clients = (0..source.clients())
        .map(|i| network.client(i, spec.core_settings()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::new)?;

    let bar = output::bar(source.count(), TIME);
    let begin = now();
    let homes = Homes { program: &program, dir: folder.path() };
    // Where a replica has ended by itself, whatever else went wrong followed from that.
    let failure = |error: String, replicas: &mut [ReplicaProcess]| {
        process::check_all(replicas).map_or_else(|e| folder.failure(e), |()| Failure::new(error))
    };
    let (seen, crash) = send(&source, &mut clients, &mut replicas, homes, &bar)
        .map_err(|error| failure(error, &mut replicas))?;
    let seconds = begin.elapsed().as_secs_f64();
    bar.set_message("waiting until all replicas agree");
    let settled = reports::settle(&mut replicas);
    let last = settled.map_err(|error| failure(error, &mut replicas))?;
    let unknown = match &source {
        Source::File(events) => Some(files::write_results(
            events,
            &seen.outcomes,
            &mut clients[0],
            args.trades_out.as_deref(),
            args.book_out.as_deref(),
        )?),
        Source::Flow(_) => None,
    };
    drop(clients);
    let mut rows = vec![];
    for (replica, report) in replicas.iter().zip(&last) {
        rows.push(Replica {
            id: report.id,
            height: report.height,
            state_digest: report.state_digest.clone(),
            rss_mb: round(replica.usage().map_err(Failure::new)?.rss_mb(), 1),
        });
    }
    for replica in replicas {
        replica.stop().map_err(|error| folder.failure(error))?;
    }
    bar.set_message("auditing");
    let audit = audit_all(folder.path(), args.replicas);
    bar.finish_and_clear();

    let orders = seen.latency.count();
    let report = Report {
        orders,
        accepted: seen.accepted,
        unknown,
        trades: seen.trades,
        seconds: round(seconds, 3),
        orders_per_s: round(orders as f64 / seconds, 1),
        latency_us: seen.latency.latency(),
        view_changes: last.iter().map(|r| r.view_changes).max().unwrap_or(0),
        longest_gap_ms: round(seen.longest_gap.as_secs_f64() * 1e3, 1),
        crash,
        agree: agreed(&last),
        replicas: rows,
        audit: audit.as_ref().err().cloned().unwrap_or_else(|| "ok".into()),
        kept: args.keep.clone(),
        settings: Shown {
            replicas: args.replicas,
            processes: true,
            auth: "mac",
            durability: "memory",
            clients: source.clients(),
            package: source.package(),
            outstanding_packages: 1,
            pace: "closed",
        },
        machine: Machine::here(),
    };
    output::report(args.json, &report, print)?;
    match audit {
        _ if !report.agree => Err(Failure::new(
            "the replicas do not hold the same state; keep the directories with --keep and report",
        )),
        Err(failure) => Err(Failure::new(failure)),
        Ok(()) => Ok(()),
    }
}

/// Runs clients and crash side by side.
fn send(
    source: &Source,
    clients: &mut [Client],
    replicas: &mut [ReplicaProcess],
    homes: Homes<'_>,
    bar: &indicatif::ProgressBar,
) -> Result<(Seen, Crash), String> {
    let progress = Progress::new(source.count());
    let keep = matches!(source, Source::File(_));
    thread::scope(|scope| {
        let progress = &progress;
        let threads: Vec<_> = (clients.iter_mut().enumerate())
            .map(|(i, client)| {
                let commands = source.commands(i);
                scope.spawn(move || send_all(client, commands, source.package(), keep, progress))
            })
            .collect();
        let watch = crash::Watch {
            progress,
            count: source.count(),
            time: TIME,
            ended: &|| threads.iter().all(|thread| thread.is_finished()),
            bar,
            rate: Cell::default(),
        };
        let crash = watch.run(replicas, homes);
        // The clients must end before the scope can. Nobody may be there any more who would answer.
        match &crash {
            Ok(_) => progress.stop(),
            Err(_) => progress.give_up(),
        }
        let mut all = Seen::default();
        for thread in threads {
            all.merge(thread.join().expect("a client does not panic")?);
        }
        Ok((all, crash?))
    })
}

fn agreed(reports: &[ReplicaReport]) -> bool {
    let first = &reports[0];
    reports.iter().all(|r| r.height == first.height && r.state_digest == first.state_digest)
}

fn audit_all(dir: &Path, replicas: u16) -> Result<(), String> {
    for id in 0..replicas {
        audit::check(&tercio_network::home(dir, id), &mut |_| {})
            .map(drop)
            .map_err(|flaw| format!("replica {id}: {flaw}"))?;
    }
    Ok(())
}

fn print(r: &Report) {
    let line = output::line;
    line(&format!(
        "{} orders in {:.1} s: {:.0} orders/s, {} accepted, {} trades{}",
        r.orders,
        r.seconds,
        r.orders_per_s,
        r.accepted,
        r.trades,
        r.unknown.map_or(String::new(), |n| format!(", {n} of unknown orders"))
    ));
    line(&format!(
        "latency p50 {:.1} ms, p99 {:.1} ms ({} client(s), {} orders a package, one package at a time)",
        r.latency_us.p50 / 1e3,
        r.latency_us.p99 / 1e3,
        r.settings.clients,
        r.settings.package
    ));
    line(&format!(
        "replica {} (the primary) killed at order {}; {} view change(s), the longest gap that a client \
         saw: {:.0} ms",
        r.crash.replica, r.crash.at_order, r.view_changes, r.longest_gap_ms
    ));
    line(&format!(
        "replica {} back after {:.0} ms: caught up on {} blocks in {:.0} ms{}",
        r.crash.replica,
        r.crash.down_ms,
        r.crash.catch_up_blocks,
        r.crash.catch_up_ms,
        if r.crash.under_load { ", under load" } else { "" }
    ));
    for replica in &r.replicas {
        line(&format!(
            "replica {}: height {}, state {}, {:.0} MB",
            replica.id, replica.height, replica.state_digest, replica.rss_mb
        ));
    }
    line(if r.agree { "all replicas hold the same state" } else { "the replicas DISAGREE" });
    line(&format!("audit: {}", r.audit));
    if let Some(dir) = &r.kept {
        line(&format!("kept in {}; look again with: tercio audit DIR/replica-0", dir.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tercio_client::CoreSettings;
    use tercio_network::LocalNetwork;

    /// The client would wait for its results for an hour.
    #[test]
    fn a_replica_that_ends_is_noticed_before_the_clients_give_up() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::Flow(None);
        let network = LocalNetwork::start(Spec::new(ExchangeKind::app(source.exchange()))).unwrap();
        let hour = Duration::from_secs(3600);
        let core = CoreSettings { deadline: hour, ..CoreSettings::unused_id() };
        let mut clients = [network.network().client(0, core).unwrap()];
        network.stop().unwrap();
        // A shell finds no script named `start`, says so and ends.
        let program = Path::new("sh");
        let mut replicas = [ReplicaProcess::spawn(program, 3, folder.path()).unwrap()];
        let (done, result) = mpsc::channel();
        thread::spawn(move || {
            let homes = Homes { program, dir: folder.path() };
            let bar = indicatif::ProgressBar::hidden();
            done.send(send(&source, &mut clients, &mut replicas, homes, &bar).map(drop))
        });
        let error = result.recv_timeout(hour / 60).expect("it is noticed").unwrap_err();
        assert!(error.starts_with("replica 3 ended by itself"), "{error}");
    }
}
