//! `tercio dev`: a network to play with, in one process and in memory.
//!
//! Its directory is one that `submit`, `query` and `status` take from another terminal: it has the
//! genesis, the homes of two clients, and what each replica says of itself. Lines on standard input
//! are operations and questions of a third client.

use crate::failure::Failure;
use crate::session::{Session, Who};
use crate::testnet::app;
use crate::words::Words;
use crate::{apps, output, protocols, stop, submit};
use serde::Serialize;
use std::io::{BufRead, IsTerminal, stdin};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tercio_bench::figures::round;
use tercio_genesis::client_home::create_client_home;
use tercio_genesis::{App, GENESIS_FILE, write_genesis};
use tercio_network::{Network, Spec, client_home, free_ports, home, now};
use tercio_replica::ReplicaHandle;
use tercio_types::ClientId;

const REPLICAS: u16 = 4;
/// Clients for others; the one after them is ours.
const CLIENTS: u64 = 2;
/// How often it is looked whether all replicas still run, and what each says of itself is written.
const WATCH: Duration = Duration::from_millis(200);
/// How soon a signal is heard.
const LOOK: Duration = Duration::from_millis(50);

/// Lines on standard input are operations and questions, as the application writes them; `help`
/// shows examples, and `quit` or the end of a terminal's input ends it. Lines that come through a
/// pipe are done, and then it ends; without any it runs until a signal.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application [default: the first that this program knows]
    #[arg(long, value_name = "APP", value_parser = app)]
    app: Option<App>,
    /// End after the first write
    #[arg(long)]
    once: bool,
    /// Stop when standard input ends, so as not to outlive whoever holds its other end
    #[arg(long)]
    stop_with_stdin: bool,
    /// Print JSON objects, a line each: what runs, and what each operation and question gave
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    first_committed_write_ms: f64,
    app: &'static str,
    replicas: Vec<String>,
    /// What `submit`, `query` and `status` take.
    dir: PathBuf,
    genesis: PathBuf,
    /// The homes of clients that nobody uses.
    clients: Vec<PathBuf>,
}

/// `start` is when the program began: what the first write is timed from.
pub(crate) fn run(args: &Args, start: Instant) -> Result<(), Failure> {
    let stopped = stop::watch(false)?;
    let spec = Spec {
        name: "dev".into(),
        replicas: REPLICAS,
        clients: CLIENTS as usize + 1,
        protocol: protocols().first(),
        ..Spec::new(args.app.clone().unwrap_or_else(|| apps().first()))
    };
    let sockets = free_ports(REPLICAS).map_err(Failure::new)?;
    let addresses = sockets.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>();
    let addresses = addresses.map_err(Failure::new)?;
    let network = Network::found(&spec, &addresses).map_err(Failure::new)?;
    let replicas = (spec.ids().into_iter())
        .zip(sockets)
        .map(|(id, socket)| {
            let config = network.in_memory(id, socket, &spec);
            tercio_network::start(config, network.genesis(), network.protocols())
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::new)?;
    let folder = tempfile::Builder::new().prefix("tercio-dev-").tempdir().map_err(Failure::new)?;
    let dir = folder.path();
    let ours = write_files(dir, &network)?;
    let mut session = Session::open(&Who { dir: ours, client: None })?;
    session.resume()?;
    let words = Words::new(network.genesis(), false)?;
    let first = session.app.operation(session.app.example()).map_err(Failure::new)?;
    session.call(first).1?;
    let took = start.elapsed();

    let mut replicas = Replicas { all: replicas, dir: dir.to_owned(), written: None };
    replicas.say()?;
    let report = Report {
        first_committed_write_ms: round(took.as_secs_f64() * 1e3, 1),
        app: network.genesis().app.name(),
        replicas: addresses.iter().map(ToString::to_string).collect(),
        dir: dir.to_owned(),
        genesis: dir.join(GENESIS_FILE),
        clients: (1..=CLIENTS).map(|id| client_home(dir, &id.to_string())).collect(),
    };
    output::report(args.json, &report, |report| print(report, &network.genesis().app))?;
    if !args.once {
        let lines = Lines::read(args)?;
        play(args, &stopped, &lines, &mut replicas, &mut Player { session, words })?;
    }
    replicas.all.into_iter().try_for_each(|replica| replica.stop().map_err(Failure::new))
}

/// Until it is told to end, or a replica ends by itself.
fn play(
    args: &Args,
    stopped: &Receiver<()>,
    lines: &Lines,
    replicas: &mut Replicas,
    player: &mut Player,
) -> Result<(), Failure> {
    lines.prompt();
    while replicas.all.iter().all(ReplicaHandle::is_running) && stopped.try_recv().is_err() {
        match lines.next.recv_timeout(LOOK) {
            Ok(Some(line)) if player.takes(&line, args) => lines.prompt(),
            Ok(Some(_) | None) => return Ok(()),
            // There may be none for ever.
            Err(_) => {}
        }
        replicas.say()?;
    }
    Ok(())
}

/// What is typed.
struct Lines {
    /// The next line; nothing when there are no more and that is a reason to end.
    next: Receiver<Option<String>>,
    /// Held so that waiting for the next line takes its time when there is none.
    _open: Sender<Option<String>>,
    /// Whether somebody sits there.
    prompts: bool,
}

impl Lines {
    fn read(args: &Args) -> Result<Self, Failure> {
        let (sender, next) = channel();
        let _open = sender.clone();
        let terminal = stdin().is_terminal();
        let mut ends = args.stop_with_stdin || terminal;
        let read = move || {
            for line in stdin().lock().lines().map_while(Result::ok) {
                ends = true;
                let _ = sender.send(Some(line));
            }
            if ends {
                let _ = sender.send(None);
            }
        };
        let spawned = std::thread::Builder::new().name("stdin".into()).spawn(read);
        spawned.map_err(Failure::new)?;
        Ok(Self { next, _open, prompts: terminal && !args.json })
    }

    fn prompt(&self) {
        if self.prompts {
            output::text("> ");
        }
    }
}

/// Who does what is typed.
struct Player {
    session: Session,
    words: Words,
}

impl Player {
    /// Does what a line says, and prints what came of it; false when it says to end.
    fn takes(&mut self, line: &str, args: &Args) -> bool {
        let Self { session, words } = self;
        let done = match line.trim() {
            "" => return true,
            "quit" | "exit" => return false,
            "help" => {
                output::line(&help(&session.app));
                return true;
            }
            // What is only asked is not written.
            line => match (words.question(line), words.operation(line)) {
                (Ok(_), _) => submit::ask(session, words, line, false, args.json),
                (_, Ok(_)) => submit::one(session, words, line, args.json),
                (Err(Failure::Usage(question)), Err(Failure::Usage(operation))) => {
                    Err(Failure::new(format!("{operation}; or ask: {question}")))
                }
                (_, Err(refusal)) => Err(refusal),
            },
        };
        if let Err(failure) = done {
            output::error(&format!("{}: {failure}", output::program()));
        }
        true
    }
}

fn help(app: &App) -> String {
    format!(
        "type operations ({}) and questions ({}), help, or quit",
        app.example(),
        app.example_question()
    )
}

/// The replicas, and where each says how it is.
struct Replicas {
    all: Vec<ReplicaHandle>,
    dir: PathBuf,
    written: Option<Instant>,
}

impl Replicas {
    /// Writes what each says of itself, when it is time.
    fn say(&mut self) -> Result<(), Failure> {
        if self.written.is_some_and(|at| at.elapsed() < WATCH) {
            return Ok(());
        }
        self.written = Some(now());
        for replica in &self.all {
            replica.report().write(&home(&self.dir, replica.id().0)).map_err(Failure::new)?;
        }
        Ok(())
    }
}

/// Writes what clients need, and gives our own client's home, which is not among those of others.
fn write_files(dir: &Path, network: &Network) -> Result<PathBuf, Failure> {
    let genesis = network.genesis();
    write_genesis(&dir.join(GENESIS_FILE), genesis).map_err(Failure::new)?;
    for id in 0..REPLICAS {
        let home = home(dir, id);
        std::fs::create_dir(&home).map_err(|error| Failure::at(&home, error))?;
    }
    let ours = dir.join("prompt");
    for id in 1..=CLIENTS + 1 {
        let home = match id {
            1..=CLIENTS => client_home(dir, &id.to_string()),
            _ => ours.clone(),
        };
        let secret = network.client_secret(id as usize - 1);
        let made = create_client_home(&home, ClientId(id), genesis, secret, None, false);
        made.map_err(Failure::new)?;
    }
    Ok(ours)
}

fn print(report: &Report, app: &App) {
    let line = output::line;
    line(&format!("first committed write: {:.0} ms", report.first_committed_write_ms));
    line(&format!("application: {} (everything is in memory and ends with this)", report.app));
    for (id, address) in report.replicas.iter().enumerate() {
        line(&format!("replica {id}: {address}"));
    }
    let program = std::env::current_exe().unwrap_or_else(|_| "tercio".into());
    let (program, dir) = (program.display(), report.dir.display());
    line("paste into another terminal (or query, status in place of submit):");
    line(&format!("  {program} submit {dir} '{}'", app.example()));
    line(&format!("{}; end with Ctrl-C", help(app)));
}
