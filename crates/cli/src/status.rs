//! `tercio status`: how the replicas of a network are, and what that means for it.
//!
//! A replica whose home is on this machine is known by the file that its process writes several
//! times a second, which its event loop answers for: a loop that is frozen leaves an old file behind.
//! A report is believed while its process lives and is young; an older one only says how long the
//! replica has been away. A replica elsewhere is known by when those here last heard it. Idle
//! replicas say where they stand twice a second, so silence means something in an idle network, too.
//! So is one that cannot write its report, which stops nobody from voting.

mod network;
mod state;
mod table;

use crate::failure::Failure;
use crate::{clock, folder, output, stop};
use network::Network;
use serde::Serialize;
use serde_json::{Map, Value};
use state::State;
use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use table::Rates;
use tercio_genesis::Genesis;
use tercio_genesis::replica_home::CONFIG_FILE;
use tercio_network::usage;
use tercio_replica::report::ReplicaReport;
use tercio_types::{DEFAULT_PROTOCOL, ReplicaId};

/// A replica writes five times a second; one that has not for so long does not answer.
const YOUNG: Duration = Duration::from_secs(2);
/// How often to look again.
const AGAIN: Duration = Duration::from_secs(1);
/// The most kinds of drops that a line names.
const DROPS: usize = 4;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 when the network can order operations, 1 when it stands or \
                        cannot be looked at, 2 for wrong usage. With --watch, 0 when interrupted."
)]
pub(crate) struct Args {
    /// The network's directory, or the home of one replica
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Look again every second until interrupted: a table, with the blocks made since the last look
    #[arg(long)]
    watch: bool,
    /// Print one JSON object (each time)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    name: String,
    /// The ordering protocol, and what it takes of replicas.
    protocol: &'static str,
    faults: &'static str,
    replicas: Vec<Row>,
    network: Network,
}

/// A replica.
#[derive(Serialize)]
struct Row {
    id: u16,
    address: String,
    role: String,
    /// Blocks made since the last look, in each second; with `--watch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_per_s: Option<f64>,
    #[serde(flatten, serialize_with = "without_id")]
    state: State,
}

/// A state's own fields; a report's `id` is the row's.
fn without_id<S: serde::Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    let fields = serde_json::to_value(state).map_err(serde::ser::Error::custom)?;
    let Value::Object(mut fields) = fields else { unreachable!("a state has fields") };
    fields.remove("id");
    Map::serialize(&fields, serializer)
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let genesis = folder::genesis(&args.dir)?;
    if !args.watch {
        let report = look(args, &genesis, &mut Rates::default())?;
        output::report(args.json, &report, print)?;
        return if report.network.works { Ok(()) } else { Err(Failure::Shown) };
    }
    let stopped = stop::watch(false)?;
    let mut rates = Rates::default();
    loop {
        let report = look(args, &genesis, &mut rates)?;
        output::report(args.json, &report, |report| {
            if stdout().is_terminal() {
                output::text("\x1b[H\x1b[2J");
            }
            table::print(report);
        })?;
        match stopped.recv_timeout(AGAIN) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn look(args: &Args, genesis: &Genesis, rates: &mut Rates) -> Result<Report, Failure> {
    let states = states(&args.dir, genesis)?;
    let membership = genesis.membership().map_err(Failure::new)?;
    let network = Network::of(&states, &membership);
    let address = |id| genesis.replicas.get(&ReplicaId(id)).map(|member| member.address.clone());
    let rows = states.into_iter().map(|(id, state)| Row {
        id,
        address: address(id).unwrap_or_default(),
        role: state.role(),
        blocks_per_s: if args.watch { rates.of(&state) } else { None },
        state,
    });
    let (name, protocol) = (genesis.name.clone(), genesis.protocol.name());
    let faults = genesis.protocol.model().name();
    Ok(Report { name, protocol, faults, replicas: rows.collect(), network })
}

/// What is known of every replica of the genesis.
fn states(dir: &Path, genesis: &Genesis) -> Result<BTreeMap<u16, State>, Failure> {
    let homes: Vec<(u16, PathBuf)> = if dir.join(CONFIG_FILE).exists() {
        // A home says which replica it is.
        let (config, _) =
            tercio_replica::ReplicaConfig::load(dir, crate::apps()).map_err(Failure::new)?;
        vec![(config.node.me.0, dir.to_owned())]
    } else {
        folder::replicas(dir, genesis)
    };
    if homes.is_empty() {
        return Err(folder::no_replica(dir));
    }
    let now = clock::unix_ms();
    let mut states: BTreeMap<u16, State> =
        homes.iter().map(|(id, home)| (*id, state(home, now))).collect();
    let unreported: Vec<(u16, State)> = (states.iter())
        .filter_map(|(id, state)| Some((*id, state.unreported(*id, states.values())?)))
        .collect();
    states.extend(unreported);
    for ReplicaId(id) in genesis.replicas.keys().copied() {
        if !states.contains_key(&id) {
            let elsewhere = State::elsewhere(id, states.values());
            states.insert(id, elsewhere);
        }
    }
    Ok(states)
}

fn state(home: &Path, now_unix_ms: u64) -> State {
    let Ok(report) = ReplicaReport::read(home) else { return State::NeverRan };
    let age = report.age(now_unix_ms);
    let since_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let lives = usage::of_process(report.pid).is_ok();
    match (lives, age < YOUNG) {
        (true, true) => match report.starting {
            Some(starting) => State::Starting(starting),
            None => State::Up(Box::new(report)),
        },
        (true, false) => State::Silent { since_ms, pid: report.pid, height: report.height },
        (false, _) => State::Down { since_ms, height: report.height },
    }
}

fn print(report: &Report) {
    for row in &report.replicas {
        output::line(&format!("replica {}  {}", row.id, line(row)));
    }
    if report.protocol != DEFAULT_PROTOCOL {
        output::line(&format!("protocol {} ({})", report.protocol, report.faults));
    }
    for sentence in &report.network.sentences {
        output::line(sentence);
    }
}

fn line(row: &Row) -> String {
    let State::Up(r) = &row.state else { return row.role.clone() };
    let mut parts = vec![
        format!("{:<10}", row.role),
        format!("height {}", r.height),
        format!("view {}", r.view),
        format!("stable {}", r.stable),
        format!("progress {} ago", seconds(r.progress_ms)),
    ];
    if r.pending > 0 {
        let oldest = r.oldest_pending_ms.unwrap_or(0);
        parts.push(format!("{} waiting, the oldest for {}", r.pending, seconds(oldest)));
    }
    if r.damaged_blocks + r.repaired_blocks > 0 {
        parts.push(format!(
            "log: {} block(s) damaged, {} fetched, {} put back",
            r.damaged_blocks, r.fetched_blocks, r.repaired_blocks
        ));
    }
    parts.push(format!("{:.0} MB", r.rss_mb));
    parts.extend(r.sm2_backend.as_ref().map(|backend| format!("sm2: {backend}")));
    let mut drops: Vec<_> = r.dropped.iter().filter(|(_, count)| **count > 0).collect();
    drops.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if !drops.is_empty() {
        let more = if drops.len() > DROPS { ", .." } else { "" };
        let named: Vec<_> =
            drops.iter().take(DROPS).map(|(reason, count)| format!("{reason} {count}")).collect();
        parts.push(format!("dropped: {}{more}", named.join(", ")));
    }
    parts.join("  ")
}

/// A time for people.
fn seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1} s", ms as f64 / 1e3),
        10_000..600_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}
