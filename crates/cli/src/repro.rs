//! `tercio repro ...`: published figures made again, by this very program.

use crate::failure::Failure;
use crate::{output, stop};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tercio_bench::Machine;
use tercio_repro::{
    Done, Effort, Environment, Figure, FigureError, Host, Journal, Launch, Outcome, Program,
    Progress, RunError, Runner, State, StopError, Verdict, built_in, cost_s, from_dir, state,
};

/// How long the program may take to say its version, and to measure the machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The exit status of a program that an interrupt ended.
const INTERRUPTED: i32 = 130;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List every published figure and table, and whether it can be made here
    List(ListArgs),
    /// Make these figures, and grade them
    Run(RunArgs),
    /// Make all figures that can be made here
    All(AllArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Take the figures from this folder (*.toml) instead of those that come along
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The figures' names, as `list` has them, or their beginnings, such as 003
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    all: AllArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllArgs {
    /// Few and short runs, to see that everything works and where it tends
    #[arg(long)]
    quick: bool,
    /// Where runs are kept and the report is written; a command that was interrupted goes on there
    #[arg(long, value_name = "DIR", default_value = "repro-results")]
    out: PathBuf,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(args),
        Command::Run(args) => {
            let figures = chosen(figures(&args.all.list)?, &args.ids)?;
            make(&figures, &args.all)
        }
        Command::All(args) => make(&figures(&args.list)?, args),
    }
}

fn figures(args: &ListArgs) -> Result<Vec<Figure>, Failure> {
    let read: Result<_, FigureError> = args.figures.as_deref().map_or_else(built_in, from_dir);
    read.map_err(Failure::new)
}

fn chosen(all: Vec<Figure>, ids: &[String]) -> Result<Vec<Figure>, Failure> {
    let is = |figure: &Figure, id: &String| figure.id.starts_with(id.as_str());
    if let Some(unknown) = ids.iter().find(|id| !all.iter().any(|figure| is(figure, id))) {
        let what = format!("there is no figure '{unknown}'; `tercio repro list` has all");
        return Err(Failure::Usage(what));
    }
    Ok(all.into_iter().filter(|figure| ids.iter().any(|id| is(figure, id))).collect())
}

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    seed: &'a str,
    work: &'a str,
    item: &'a str,
    title: &'a str,
    published: &'a str,
    /// `ready`, `waits` or `not here`.
    state: &'static str,
    reason: Option<String>,
    cost_s: f64,
    quick_cost_s: f64,
}

#[derive(Serialize)]
struct List<'a> {
    figures: Vec<Listed<'a>>,
    cost_s: f64,
    quick_cost_s: f64,
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let (all, host) = (figures(args)?, Host::here());
    let listed = |figure| {
        let (state, reason) = match state(figure, &host) {
            State::Ready => ("ready", None),
            State::Waits(what) => ("waits", Some(what)),
            State::NotHere(what) => ("not here", Some(what)),
        };
        let cost = |effort| cost_s(std::slice::from_ref(figure), effort);
        let Figure { id, seed, item, title, published, .. } = figure;
        let (cost_s, quick_cost_s) = (cost(Effort::Full), cost(Effort::Quick));
        let work = figure.work();
        Listed { id, seed, work, item, title, published, state, reason, cost_s, quick_cost_s }
    };
    let list = List {
        figures: all.iter().map(listed).collect(),
        cost_s: cost_s(&all, Effort::Full),
        quick_cost_s: cost_s(&all, Effort::Quick),
    };
    output::report(args.json, &list, print_list)
}

fn print_list(list: &List<'_>) {
    let line = output::line;
    for f in &list.figures {
        let state = match &f.reason {
            None => format!("ready, {}", minutes(f.cost_s)),
            Some(what) if f.state == "waits" => format!("waits for {what}"),
            Some(what) => format!("not here: {what}"),
        };
        line(&format!("{:<20} {}, {}: {}", f.id, f.work, f.item, f.title));
        line(&format!("{:<20} {state}", ""));
    }
    let count = |state| list.figures.iter().filter(|figure| figure.state == state).count();
    line(&format!(
        "{} items: {} ready, {} not here, {} wait; all take {}, --quick {}",
        list.figures.len(),
        count("ready"),
        count("not here"),
        count("waits"),
        minutes(list.cost_s),
        minutes(list.quick_cost_s)
    ));
}

fn minutes(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} min", (seconds / 60.0).ceil()),
    }
}

#[derive(Serialize)]
struct Made<'a> {
    outcomes: Vec<&'a Outcome>,
    report: String,
}

fn make(figures: &[Figure], args: &AllArgs) -> Result<(), Failure> {
    let stopped = Arc::new(AtomicBool::new(false));
    let (heard, signals) = (stopped.clone(), stop::watch(false)?);
    let listen = move || {
        if signals.recv().is_ok() {
            heard.store(true, Ordering::SeqCst);
        }
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(listen).map_err(Failure::new)?;
    fs::create_dir_all(&args.out).map_err(|error| Failure::at(&args.out, error))?;
    let dir = fs::canonicalize(&args.out).map_err(|error| Failure::at(&args.out, error))?;
    let path = std::env::current_exe().map_err(Failure::new)?;
    let program = Program::new(&path, &dir, &stopped);
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let journal = Journal::open(&dir).map_err(Failure::new)?;
    let spinner = output::spinner();
    spinner.set_message("measuring the machine");
    let environment = environment(&program, &path, &dir, args.quick);
    spinner.finish_and_clear();
    let environment = match environment {
        Err(_) if stopped.load(Ordering::SeqCst) => return Err(interrupted()),
        found => found?,
    };
    let mut runner = Runner { launch: &program, journal, effort, host: Host::here() };
    let bar = output::bar(Some(0), Duration::ZERO);
    let made = runner.run(figures, &mut |now: &Progress<'_>| {
        bar.set_length(now.runs as u64);
        bar.set_position(now.run as u64);
        bar.set_message(format!("{} left, {}", minutes(now.left_s), now.figure));
        if bar.is_hidden() {
            let (run, left) = (now.run + 1, minutes(now.left_s));
            output::error(&format!("run {run} of {}, {left} left: {}", now.runs, now.command));
        }
    });
    bar.finish_and_clear();
    let done = match made {
        Err(StopError::Interrupted(_)) => return Err(interrupted()),
        made => made.map_err(Failure::new)?,
    };
    let report = tercio_repro::write(&dir, figures, &done, &environment).map_err(Failure::new)?;
    let outcomes = done.iter().map(|done| &done.outcome).collect();
    let made = Made { outcomes, report: report.display().to_string() };
    output::report(args.list.json, &made, print_made)?;
    let failed = |done: &&Done| done.failed;
    match done.iter().find(failed) {
        Some(first) => Err(Failure::new(format!(
            "{} figures could not be made; the first: {}: {}",
            done.iter().filter(failed).count(),
            first.outcome.id,
            first.outcome.reason
        ))),
        None => Ok(()),
    }
}

/// Ends as an interrupt ends a program.
fn interrupted() -> Failure {
    output::error(&format!("{}: {}", output::program(), RunError::Interrupted));
    std::process::exit(INTERRUPTED)
}

/// What the folder's runs are made with: as it was written before the first of them, or measured now.
fn environment(
    program: &Program<'_>,
    path: &Path,
    dir: &Path,
    quick: bool,
) -> Result<Environment, Failure> {
    let version = program.output(&["--version".into()], LIMIT).map_err(Failure::new)?;
    let machine = serde_json::to_value(Machine::here()).map_err(Failure::new)?;
    let now = Environment::of(path, &version, quick, machine).map_err(Failure::new)?;
    if let Some(before) = Environment::read(dir).map_err(Failure::new)? {
        now.continues(&before, dir).map_err(Failure::new)?;
        return Ok(before);
    }
    let arguments = ["bench", "calibrate", "--json"].map(str::to_owned);
    let (calibration, _) = program.launch(&arguments, LIMIT).map_err(Failure::new)?;
    let now = Environment { calibration, ..now };
    now.write(dir).map_err(Failure::new)?;
    Ok(now)
}

fn print_made(made: &Made<'_>) {
    let line = output::line;
    for outcome in &made.outcomes {
        line(&format!("{:<17} {:<20} {}", outcome.verdict, outcome.id, outcome.reason));
    }
    let of = |verdict: Verdict| {
        made.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count()
    };
    let counts = Verdict::ALL.map(|verdict| format!("{} {verdict}", of(verdict)));
    line(&format!("{} items: {}", made.outcomes.len(), counts.join(", ")));
    line(&format!("report: {}", made.report));
}
