//! `tercio up`: starts the replicas of a network as processes, watches them, and stops them.
//!
//! - One that cannot run stops none of the others: what keeps it from running is said, and the rest
//!   goes on while a quorum can run. Without one at the start, those that run are stopped, and the
//!   command fails; without one later, that is said.
//! - One that ends by itself is started again, after longer and longer pauses and at most five times
//!   in a row ([`tercio_network::supervise`]).
//! - An interrupt, a termination signal or the end of this process (however that comes about: they
//!   hold the other end of its pipes) stops them in an orderly way.
//! - Their messages go to `stderr.log` in each home, which is put aside when it grows long.

use crate::failure::Failure;
use crate::{clock, folder, output, stop};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use tercio_bench::figures::round;
use tercio_network::now;
use tercio_network::process::LOG_FILE;
use tercio_network::supervise::{Needs, Supervisor};

/// How often the replicas are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often until it is known of each whether it runs.
const LOOK_AT_START: Duration = Duration::from_millis(5);
/// How often their logs are.
const LOOK_AT_LOGS: Duration = Duration::from_secs(10);
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 when it was stopped (Ctrl-C, SIGTERM, the end of standard \
                        input with --stop-with-stdin) and every replica that ran stopped in an \
                        orderly way, whether or not all of them ran; 1 when no quorum could be \
                        started, none is left, or one did not stop in an orderly way.")]
pub(crate) struct Args {
    /// The network's directory, as `tercio testnet -o DIR` makes it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Leave a replica that ends by itself alone
    #[arg(long)]
    no_restart: bool,
    /// Stop when standard input ends
    #[arg(long)]
    stop_with_stdin: bool,
    /// Print one JSON object for everything that happens
    #[arg(long)]
    json: bool,
}

/// Something that happened.
#[derive(Serialize)]
struct Said<'a> {
    unix_ms: u64,
    event: &'a str,
    /// Once: when all replicas run that can, how long that took.
    #[serde(flatten)]
    ready: Option<Ready>,
}

/// All replicas run that can, and they are enough.
#[derive(Serialize)]
struct Ready {
    /// From the command's start until the last of them could take requests, in milliseconds.
    ready_ms: f64,
    replicas: Vec<Running>,
    /// Those that do not run.
    down: Vec<Down>,
}

/// A replica that does not run.
#[derive(Serialize)]
struct Down {
    id: u16,
    why: String,
}

/// A replica's process.
#[derive(Serialize)]
struct Running {
    id: u16,
    pid: u32,
    height: u64,
}

/// Says what happens, in lines for people or in JSON.
#[derive(Clone, Copy)]
struct Voice {
    json: bool,
}

impl Voice {
    fn say(self, event: &str) {
        self.tell(event, None);
    }

    fn tell(self, event: &str, ready: Option<Ready>) {
        let said = Said { unix_ms: clock::unix_ms(), event, ready };
        let line = match self.json {
            true => serde_json::to_string(&said).expect("text and numbers"),
            false => format!("{} {event}", clock::utc(said.unix_ms)),
        };
        output::line(&line);
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (start, voice) = (now(), Voice { json: args.json });
    let genesis = folder::genesis(&args.dir)?;
    let homes = folder::replicas(&args.dir, &genesis);
    if homes.is_empty() {
        return Err(folder::no_network(&args.dir));
    }
    let membership = genesis.membership().map_err(Failure::new)?;
    let needs = Needs { n: membership.n(), quorum: membership.quorum() };
    let absent: Vec<_> = (genesis.replicas.keys().map(|id| id.0))
        .filter(|id| homes.iter().all(|(here, _)| here != id))
        .map(|id| id.to_string())
        .collect();
    if !absent.is_empty() {
        voice.say(&format!("replica(s) {} have no home here", absent.join(", ")));
    }
    let stopped = stop::watch(args.stop_with_stdin)?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let mut all = Supervisor::start(&program, homes, !args.no_restart, needs);
    let (mut said_ready, mut logs_at) = (false, now() + LOOK_AT_LOGS);
    loop {
        let look = if said_ready { LOOK } else { LOOK_AT_START };
        match stopped.recv_timeout(look) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                let count = all.stop().map_err(Failure::new)?;
                voice.say(&format!("{count} replica(s) stopped"));
                return Ok(());
            }
        }
        all.look(&mut |what| voice.say(&what.to_string()));
        if !said_ready && all.is_settled() {
            said_ready = true;
            if !all.is_enough() {
                return Err(too_few(all, needs));
            }
            let (event, ready) = ready(&all, needs, &genesis.name, start.elapsed());
            voice.tell(&event, Some(ready));
        }
        if now() >= logs_at {
            logs_at = now() + LOOK_AT_LOGS;
            all.bound_logs();
        }
        if all.is_over() {
            return Err(Failure::new(format!(
                "no replica is left; see {LOG_FILE} in each home in {}",
                args.dir.display()
            )));
        }
    }
}

/// What is said once those run that can.
fn ready(all: &Supervisor, needs: Needs, name: &str, took: Duration) -> (String, Ready) {
    let running = all.running().map(|r| Running { id: r.id, pid: r.pid, height: r.height });
    let why = |why: Option<&str>| why.unwrap_or("it is not ready").to_owned();
    let ready = Ready {
        ready_ms: round(took.as_secs_f64() * 1e3, 1),
        replicas: running.collect(),
        down: all.down().map(|(id, text)| Down { id, why: why(text) }).collect(),
    };
    let count = ready.replicas.len();
    let down: Vec<_> = ready.down.iter().map(|down| down.id.to_string()).collect();
    let without = match down.is_empty() {
        true => String::new(),
        false => format!(
            ", without {}: the network goes on with {} of its {} replicas",
            down.join(", "),
            needs.quorum,
            needs.n
        ),
    };
    let event = format!(
        "{count} replica(s) of '{name}' run after {:.0} ms{without}; stop with Ctrl-C",
        ready.ready_ms
    );
    (event, ready)
}

/// Stops what runs, and says why that is not enough.
fn too_few(all: Supervisor, needs: Needs) -> Failure {
    let why = |(id, why): (u16, Option<&str>)| match why {
        Some(why) => why.to_owned(),
        None => format!("replica {id} is not ready"),
    };
    let why: Vec<_> = all.down().map(why).collect();
    let running = all.running().count();
    // What does not stop now ends with this process.
    let _ = all.stop();
    Failure::new(format!(
        "{running} of the {} replicas can run here, and the network goes on with {}: {}",
        needs.n,
        needs.quorum,
        why.join("; ")
    ))
}
