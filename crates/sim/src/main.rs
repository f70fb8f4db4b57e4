//! `tercio-sim`: random runs, named faults, and the zoo of missing defences.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

mod mutants;
mod totals;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tercio_sim::faults::{self, Fault};
use tercio_sim::run::{Failure, Report, run, run_plot};
use tercio_sim::{Cast, Violation, plots};
use tercio_types::Suite;
use totals::{FULL_RUN, NATIONAL, TWICE, Totals};

/// Simulates Tercio networks: real replicas and clients under a virtual clock, network and disk.
/// The same seed gives the same run.
#[derive(Parser)]
#[command(name = "tercio-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Many random runs, and totals that show that they met enough trouble
    Seeds(Seeds),
    /// One random run
    Seed {
        /// The seed
        seed: u64,
        /// How many replicas; when it is left out, what `seeds` takes for this seed
        #[arg(long)]
        n: Option<usize>,
        /// Print every event
        #[arg(long)]
        trace: bool,
    },
    /// Every plot under many seeds
    Plots(Plots),
    /// Each named fault with all defences standing: it must be survived
    Faults {
        /// Their numbers; all when none is given
        numbers: Vec<String>,
    },
    /// Each named fault with its defence taken away: it must be caught
    Zoo {
        /// Their numbers; all when none is given
        numbers: Vec<String>,
    },
    /// Random runs with each mutant at work, and each defence away, until one of them shows it
    Mutants(mutants::Mutants),
}

#[derive(Args)]
struct Seeds {
    /// How many seeds
    count: u64,
    /// The first seed
    #[arg(long, visible_alias = "from", default_value_t = 1)]
    start: u64,
    /// How many replicas; the sizes are taken in turn
    #[arg(long, value_delimiter = ',', default_values_t = SIZES)]
    n: Vec<usize>,
    /// How many threads work on them
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Plots {
    /// How many seeds for each plot
    count: u64,
    /// The first seed
    #[arg(long, visible_alias = "from", default_value_t = 1)]
    start: u64,
    /// How many replicas; the sizes are taken in turn
    #[arg(long, value_delimiter = ',', default_values_t = [4, 7, 10])]
    n: Vec<usize>,
    /// Only this plot
    #[arg(long)]
    only: Option<String>,
    /// Print every event
    #[arg(long)]
    trace: bool,
}

const SIZES: [usize; 3] = [4, 7, 10];

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Seeds(seeds) => many(&seeds),
        Command::Seed { seed, n, trace } => {
            one(seed, n.unwrap_or_else(|| size_of(seed, &SIZES)), trace)
        }
        Command::Plots(plots) => all_plots(&plots),
        Command::Faults { numbers } => all_faults(&numbers),
        Command::Zoo { numbers } => zoo(&numbers),
        Command::Mutants(asked) => mutants::mutants(&asked),
    }
}

fn size_of(seed: u64, sizes: &[usize]) -> usize {
    sizes[(seed % sizes.len() as u64) as usize]
}

fn suite_of(seed: u64) -> Suite {
    if seed.is_multiple_of(NATIONAL) { Suite::Sm3Sm2 } else { Suite::default() }
}

fn one(seed: u64, n: usize, trace: bool) -> ExitCode {
    if !sensible(&[n]) {
        return ExitCode::from(2);
    }
    let played = run(&Cast::of_suite(n, suite_of(seed)), seed, trace);
    print!("{}", played.text);
    match played.outcome {
        Ok(report) => {
            println!("{}", line(&report));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("FAIL {failure}");
            ExitCode::FAILURE
        }
    }
}

fn line(report: &Report) -> String {
    let Report { seed, n, events, .. } = report;
    let byzantine = report.actors.join(", ");
    let met = report.tally.named().into_iter().filter(|(.., count)| *count > 0);
    let met: Vec<_> = met.map(|(_, what, count)| format!("{count} {what}")).collect();
    format!(
        "seed {seed} (n = {n}): {events} events, {} in {} virtual ms; Byzantine: {}; trace {}",
        met.join(", "),
        report.virtual_ms,
        if byzantine.is_empty() { "none" } else { &byzantine },
        report.trace
    )
}

fn sensible(sizes: &[usize]) -> bool {
    let good = !sizes.is_empty() && sizes.iter().all(|n| (4..=31).contains(n));
    if !good {
        eprintln!("error: --n takes numbers of replicas from 4 to 31, not {sizes:?}");
    }
    good
}

fn many(seeds: &Seeds) -> ExitCode {
    if !sensible(&seeds.n) || seeds.threads == 0 || seeds.count == 0 {
        if seeds.threads == 0 || seeds.count == 0 {
            eprintln!("error: there is nothing to do without seeds or without threads");
        }
        return ExitCode::from(2);
    }
    let of_each_size =
        |suite| -> Vec<Arc<Cast>> { seeds.n.iter().map(|&n| Cast::of_suite(n, suite)).collect() };
    let (usual, national) = (of_each_size(Suite::default()), of_each_size(Suite::Sm3Sm2));
    let next = AtomicU64::new(0);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..seeds.threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= seeds.count {
                        return;
                    }
                    let seed = seeds.start + i;
                    let suite = suite_of(seed);
                    let casts = if suite == Suite::Sm3Sm2 { &national } else { &usual };
                    let cast = &casts[(seed % casts.len() as u64) as usize];
                    let first = run(cast, seed, false).outcome;
                    let again =
                        (i < TWICE && first.is_ok()).then(|| run(cast, seed, false).outcome);
                    let mut totals = totals.lock().expect("no holder panics");
                    if let Some(again) = again {
                        totals.twice += 1;
                        if let (Ok(one), Ok(other)) = (&first, &again)
                            && one != other
                        {
                            let (n, seen) = (one.n, format!("{} and {}", one.trace, other.trace));
                            let violation = Violation::new("determinism", seen);
                            totals.failures.push(Failure { seed, n, violation });
                        }
                    }
                    if let Err(failure) = &first {
                        eprintln!("FAIL {failure}");
                    }
                    totals.add(suite, first);
                }
            });
        }
    });
    let totals = totals.into_inner().expect("no holder panics");
    conclude(seeds, totals)
}

fn conclude(seeds: &Seeds, mut totals: Totals) -> ExitCode {
    totals.failures.sort_by_key(|failure| failure.seed);
    println!("{}", totals.line(&seeds.n));
    let missing = if seeds.count >= FULL_RUN { totals.missing() } else { Vec::new() };
    for what in &missing {
        println!("FAIL the runs met too little trouble: {what}");
    }
    for failure in &totals.failures {
        println!("FAIL {failure}");
    }
    if seeds.json {
        println!("{}", totals.json(&seeds.n, &missing));
    }
    let good = totals.failures.is_empty() && missing.is_empty();
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all_plots(asked: &Plots) -> ExitCode {
    if !sensible(&asked.n) {
        return ExitCode::from(2);
    }
    let casts: Vec<_> = asked.n.iter().map(|&n| Cast::new(n)).collect();
    let mut good = true;
    for plot in plots::ALL {
        if asked.only.as_ref().is_some_and(|only| only != plot.name) {
            continue;
        }
        let (mut events, mut failures) = (0, Vec::new());
        for seed in asked.start..asked.start + asked.count {
            let cast = &casts[(seed % casts.len() as u64) as usize];
            let played = run_plot(cast, seed, asked.trace, Some(plot));
            print!("{}", played.text);
            match played.outcome {
                Ok(report) => events += report.events,
                Err(failure) => failures.push(failure),
            }
        }
        good &= failures.is_empty();
        println!(
            "{}: {} seeds, {events} events, {} failed",
            plot.name,
            asked.count,
            failures.len()
        );
        for Failure { seed, n, violation } in failures.iter().map(|failure| &**failure) {
            println!("FAIL {}, seed {seed} (n = {n}): {violation}", plot.name);
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The faults of these numbers, or all.
fn chosen(numbers: &[String]) -> impl Iterator<Item = &'static Fault> {
    let wanted = |fault: &&Fault| numbers.is_empty() || numbers.iter().any(|n| n == fault.number);
    faults::ALL.iter().filter(wanted)
}

fn all_faults(numbers: &[String]) -> ExitCode {
    let mut good = true;
    for Fault { number, name, run, .. } in chosen(numbers) {
        match faults::guarded(*run) {
            Ok(()) => println!("{number} {name} pass"),
            Err(violation) => {
                good = false;
                println!("{number} {name} FAIL: {violation}");
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "zoo")]
fn zoo(numbers: &[String]) -> ExitCode {
    let mut good = true;
    for Fault { number, name, run, defence } in chosen(numbers) {
        match tercio_types::zoo::without(*defence, || faults::guarded(*run)) {
            Err(violation) => println!("{number} {name} caught: {violation}"),
            Ok(()) => {
                good = false;
                println!("{number} {name} FAIL: nobody noticed that {defence:?} was taken away");
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "zoo"))]
fn zoo(_numbers: &[String]) -> ExitCode {
    eprintln!(
        "error: this build cannot take defences away; \
         cargo run --release -p tercio-sim --features zoo -- zoo"
    );
    ExitCode::from(2)
}
