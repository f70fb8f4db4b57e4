//! `tercio-sim mutants`: random runs with one switch of the zoo after another, each until a run breaks
//! a property.

use clap::Args;
#[cfg(not(feature = "zoo"))]
use std::process::ExitCode;

/// What to switch, and for how long.
#[derive(Args)]
pub(crate) struct Mutants {
    /// Only these; all mutants and defences, if none is named
    names: Vec<String>,
    /// How many seeds each is given at most
    #[arg(long, default_value_t = 700)]
    seeds: u64,
    /// The first seed
    #[arg(long, visible_alias = "from", default_value_t = 1)]
    start: u64,
    /// How many threads work on them
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Print the names only
    #[arg(long)]
    list: bool,
}

#[cfg(not(feature = "zoo"))]
pub(crate) fn mutants(asked: &Mutants) -> ExitCode {
    let Mutants { names, seeds, start, threads, json, list } = asked;
    let _ = (names, seeds, start, threads, json, list);
    eprintln!(
        "error: this build has no mutants; \
         cargo run --release -p tercio-sim --features zoo -- mutants"
    );
    ExitCode::from(2)
}

#[cfg(feature = "zoo")]
pub(crate) use with_zoo::mutants;

#[cfg(feature = "zoo")]
mod with_zoo {
    use super::Mutants;
    use crate::{SIZES, size_of, suite_of};
    use std::collections::BTreeMap;
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use tercio_sim::Cast;
    use tercio_sim::run::{Failure, run};
    use tercio_types::Suite;
    use tercio_types::zoo::{Switch, switched};

    pub(crate) fn mutants(asked: &Mutants) -> ExitCode {
        let mut chosen = Vec::new();
        for name in &asked.names {
            let Some(switch) = Switch::by_name(name) else {
                eprintln!("error: there is no {name}; mutants --list names them");
                return ExitCode::from(2);
            };
            chosen.push(switch);
        }
        if asked.names.is_empty() {
            chosen.extend(Switch::all());
        }
        if asked.list {
            chosen.iter().for_each(|switch| println!("{}", switch.name()));
            return ExitCode::SUCCESS;
        }
        // What panics under a mutant is a finding, and no news.
        std::panic::set_hook(Box::new(|_| {}));
        let mut casts = BTreeMap::new();
        for suite in [Suite::default(), Suite::Sm3Sm2] {
            for n in SIZES {
                casts.insert((suite == Suite::default(), n), Cast::of_suite(n, suite));
            }
        }
        let mut caught = true;
        for switch in chosen {
            let first = first_failure(asked, switch, &casts);
            caught &= first.is_some();
            report(asked, switch, first);
        }
        if caught { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// The first seed that fails; those before it all passed.
    fn first_failure(
        asked: &Mutants,
        switch: Switch,
        casts: &BTreeMap<(bool, usize), Arc<Cast>>,
    ) -> Option<Failure> {
        let end = AtomicU64::new(asked.start + asked.seeds);
        let next = AtomicU64::new(asked.start);
        let first: Mutex<Option<Failure>> = Mutex::new(None);
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end.load(Ordering::Relaxed) {
                    return;
                }
                let (usual, n) = (suite_of(seed) == Suite::default(), size_of(seed, &SIZES));
                let Err(failure) = run(&casts[&(usual, n)], seed, false).outcome else { continue };
                end.fetch_min(seed, Ordering::Relaxed);
                let mut first = first.lock().expect("no holder panics");
                if first.as_ref().is_none_or(|known| known.seed > seed) {
                    *first = Some(*failure);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..asked.threads.max(1) {
                scope.spawn(|| switched(switch, work));
            }
        });
        first.into_inner().expect("no holder panics")
    }

    fn report(asked: &Mutants, switch: Switch, first: Option<Failure>) {
        let (name, what) = (switch.name(), switch.what());
        let seeds = first.as_ref().map(|failure| failure.seed - asked.start + 1);
        if asked.json {
            println!(
                "{}",
                serde_json::json!({
                    "name": name,
                    "what": what,
                    "kind": if matches!(switch, Switch::With(_)) { "mutant" } else { "defence" },
                    "tried": asked.seeds,
                    "seeds": seeds,
                    "property": first.as_ref().map(|failure| failure.violation.property),
                    "seen": first.as_ref().map(|failure| failure.to_string()),
                })
            );
            return;
        }
        match first {
            Some(failure) => println!("{name} ({what}): caught; {failure}"),
            None => println!("{name} ({what}): survived {} seeds", asked.seeds),
        }
    }
}
