//! `tercio up`: starts the replicas of a network as processes, watches them, and stops them.
//!
//! - All must become ready at first; otherwise those that did are stopped, and the command fails.
//! - One that ends by itself later is started again ([`tercio_network::supervise`]).
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
use tercio_network::supervise::Supervisor;

/// How often the replicas are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often their logs are.
const LOOK_AT_LOGS: Duration = Duration::from_secs(10);
#[derive(Debug, clap::Args)]
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
    /// Once: when all replicas run, how long that took.
    #[serde(flatten)]
    ready: Option<Ready>,
}

/// All replicas run.
#[derive(Serialize)]
struct Ready {
    /// From the command's start until the last of them could take requests, in milliseconds.
    ready_ms: f64,
    replicas: Vec<Running>,
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
    let stopped = stop::watch(args.stop_with_stdin)?;
    let program = std::env::current_exe().map_err(Failure::new)?;
    let mut all = Supervisor::start(&program, homes, !args.no_restart).map_err(Failure::new)?;
    all.wait_ready(&mut |what| voice.say(&what.to_string())).map_err(Failure::new)?;
    let ready_ms = round(start.elapsed().as_secs_f64() * 1e3, 1);
    let running = all.reports().map(|r| Running { id: r.id, pid: r.pid, height: r.height });
    let ready = Ready { ready_ms, replicas: running.collect() };
    let (count, name) = (ready.replicas.len(), &genesis.name);
    let event =
        format!("{count} replica(s) of '{name}' run after {ready_ms:.0} ms; stop with Ctrl-C");
    voice.tell(&event, Some(ready));
    let mut logs_at = now() + LOOK_AT_LOGS;
    loop {
        match stopped.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                let count = all.stop().map_err(Failure::new)?;
                voice.say(&format!("{count} replica(s) stopped"));
                return Ok(());
            }
        }
        all.look(&mut |what| voice.say(&what.to_string()));
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
