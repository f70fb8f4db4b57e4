//! `tercio up`: starts the replicas of a network as processes, watches them, and stops them.
//!
//! - All must become ready at first; otherwise those that did are stopped, and the command fails.
//! - One that ends by itself later is started again after a second, and each time that it ends
//!   within ten seconds of its start after twice as long, up to half a minute. The fifth time in a
//!   row it is left alone: what ends it does not pass by itself (a damaged disk, say).
//! - An interrupt, a termination signal or the end of this process (however that comes about: they
//!   hold the other end of its pipes) stops them in an orderly way.
//! - Their messages go to `stderr.log` in each home, which is put aside when it grows long.

use crate::failure::Failure;
use crate::{clock, folder, output, stop};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tercio_bench::figures::round;
use tercio_network::now;
use tercio_network::process::{LOG_FILE, ReplicaProcess};
use tercio_replica::report::ReplicaReport;

/// How often the replicas are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often their logs are.
const LOOK_AT_LOGS: Duration = Duration::from_secs(10);
/// The first pause before one is started again, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What ends sooner after its start than this has failed to start.
const SHORT: Duration = Duration::from_secs(10);
/// How many short lives in a row are enough.
const SHORT_LIVES: u32 = 5;

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

/// A replica and what is known of it.
struct Watched {
    id: u16,
    home: PathBuf,
    process: Option<ReplicaProcess>,
    /// Whether this life was reported as ready.
    ready: bool,
    /// When to start it again; `None` while it runs, or for ever.
    again_at: Option<Instant>,
    short_lives: u32,
    last: Option<ReplicaReport>,
    voice: Voice,
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
    let mut all = homes
        .into_iter()
        .map(|(id, home)| Watched::start(&program, id, home, voice))
        .collect::<Result<Vec<_>, _>>()?;
    for watched in &mut all {
        watched.wait_ready()?;
    }
    let ready_ms = round(start.elapsed().as_secs_f64() * 1e3, 1);
    let running = |watched: &Watched| {
        watched.last.as_ref().map(|r| Running { id: r.id, pid: r.pid, height: r.height })
    };
    let ready = Ready { ready_ms, replicas: all.iter().filter_map(running).collect() };
    let (count, name) = (all.len(), &genesis.name);
    let event =
        format!("{count} replica(s) of '{name}' run after {ready_ms:.0} ms; stop with Ctrl-C");
    voice.tell(&event, Some(ready));
    let mut view = all.iter().filter_map(Watched::view).max().unwrap_or(0);
    let mut logs_at = now() + LOOK_AT_LOGS;
    loop {
        match stopped.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return stop_all(all, voice),
        }
        for watched in &mut all {
            watched.look(&program, args.no_restart);
        }
        let latest = all.iter().filter(|w| w.view() > Some(view)).max_by_key(|w| w.view());
        if let Some(report) = latest.and_then(|watched| watched.last.as_ref()) {
            view = report.view;
            voice.say(&format!("view {view}: replica {} is the primary", report.primary));
        }
        if now() >= logs_at {
            logs_at = now() + LOOK_AT_LOGS;
            let running = all.iter_mut().filter_map(|watched| watched.process.as_mut());
            // A log that cannot be put aside will be looked at again.
            running.for_each(|process| drop(process.bound_log()));
        }
        if all.iter().all(|watched| watched.process.is_none() && watched.again_at.is_none()) {
            return Err(Failure::new(format!(
                "no replica is left; see {LOG_FILE} in each home in {}",
                args.dir.display()
            )));
        }
    }
}

fn stop_all(mut all: Vec<Watched>, voice: Voice) -> Result<(), Failure> {
    let mut running: Vec<_> = all.iter_mut().filter_map(|watched| watched.process.take()).collect();
    running.iter_mut().for_each(ReplicaProcess::ask_to_stop);
    let count = running.len();
    let ended: Vec<_> = running.into_iter().map(ReplicaProcess::stop).collect();
    ended.into_iter().try_for_each(|end| end.map_err(Failure::new))?;
    voice.say(&format!("{count} replica(s) stopped"));
    Ok(())
}

impl Watched {
    fn start(program: &Path, id: u16, home: PathBuf, voice: Voice) -> Result<Self, Failure> {
        let process = ReplicaProcess::spawn(program, id, &home).map_err(Failure::new)?;
        let process = Some(process);
        let (ready, again_at, short_lives, last) = (false, None, 0, None);
        Ok(Self { id, home, process, ready, again_at, short_lives, last, voice })
    }

    fn wait_ready(&mut self) -> Result<(), Failure> {
        let process = self.process.as_mut().expect("it was just started");
        let report = process.wait_ready().map_err(Failure::new)?;
        self.is_ready(report);
        Ok(())
    }

    fn is_ready(&mut self, report: ReplicaReport) {
        let (id, pid, height) = (self.id, report.pid, report.start_height);
        let again = if self.last.is_some() { " again" } else { "" };
        self.voice.say(&format!("replica {id}: ready{again} at height {height}, process {pid}"));
        self.ready = true;
        self.last = Some(report);
    }

    /// The view that it is in; `None` while it is in none.
    fn view(&self) -> Option<u64> {
        self.last.as_ref().filter(|report| !report.changing).map(|report| report.view)
    }

    fn look(&mut self, program: &Path, no_restart: bool) {
        let Some(process) = &mut self.process else {
            if self.again_at.is_some_and(|at| at <= now()) {
                self.start_again(program);
            }
            return;
        };
        let since = process.since();
        if let Err(end) = process.check() {
            self.process = None;
            return self.ended(&end.to_string(), since, no_restart);
        }
        let Some(report) = process.report() else { return };
        if !self.ready {
            return self.is_ready(report);
        }
        let was = self.last.replace(report);
        let (Some(was), Some(is)) = (was, &self.last) else { return };
        match (was.catching_up, is.catching_up) {
            (false, true) => {
                self.voice
                    .say(&format!("replica {}: catching up from height {}", self.id, is.height));
            }
            (true, false) => {
                self.voice.say(&format!("replica {}: caught up at height {}", self.id, is.height))
            }
            _ => {}
        }
    }

    fn ended(&mut self, how: &str, since: Instant, no_restart: bool) {
        self.ready = false;
        self.short_lives = if since.elapsed() < SHORT { self.short_lives + 1 } else { 0 };
        if no_restart {
            self.voice.say(&format!("{how}; it is left alone"));
        } else if self.short_lives >= SHORT_LIVES {
            self.voice
                .say(&format!("{how}; it is left alone after {SHORT_LIVES} short lives in a row"));
        } else {
            let pause = PAUSE * 2u32.pow(self.short_lives.saturating_sub(1));
            let pause = pause.min(LONGEST_PAUSE);
            self.voice.say(&format!("{how}; it is started again in {} s", pause.as_secs()));
            self.again_at = Some(now() + pause);
        }
    }

    fn start_again(&mut self, program: &Path) {
        self.again_at = None;
        match ReplicaProcess::spawn(program, self.id, &self.home) {
            Ok(process) => self.process = Some(process),
            Err(error) => {
                self.voice.say(&error.to_string());
                self.again_at = Some(now() + LONGEST_PAUSE);
            }
        }
    }
}
