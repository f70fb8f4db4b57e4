//! Carries out the runs of figures.
//!
//! The commands of a figure take turns: all of them once, then all of them again, so that what changes
//! with time changes for all. A command that several figures have is run once for all of them. A run
//! that fails ends its figure, with the reason as its outcome; the others go on.

use crate::environment::Host;
use crate::figure::{Effort, Figure};
use crate::grade::{Outcome, State, grade, state};
use crate::journal::{Journal, JournalError, Key, Record};
use crate::points::{Measured, X};
use crate::program::{Launch, RunError};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use thiserror::Error;

/// A run may take so many times what it costs, and so much more, before it is cut off.
const HANGS: (f64, f64) = (10.0, 120.0);

/// Where a command stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The figure.
    pub figure: &'a str,
    /// What is run next.
    pub command: String,
    /// How many runs were made, of this many.
    pub run: usize,
    /// How many there are.
    pub runs: usize,
    /// How long what is left will take, in seconds, by what the runs so far took.
    pub left_s: f64,
}

/// What came of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The verdicts.
    pub outcome: Outcome,
    /// The runs.
    pub measured: Measured,
    /// Whether a run failed.
    pub failed: bool,
}

/// Why the runs ended.
#[derive(Debug, Error)]
pub enum StopError {
    /// What was measured cannot be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Somebody wants to stop.
    #[error(transparent)]
    Interrupted(RunError),
}

/// A command of a figure.
struct Cell<'a> {
    /// Which series its points belong to.
    series: usize,
    x: Option<&'a X>,
    arguments: Vec<String>,
}

/// All commands of a figure, each once.
fn cells(figure: &Figure, effort: Effort) -> Vec<Cell<'_>> {
    let Some(runs) = &figure.runs else { return vec![] };
    let places = || figure.places(effort).iter();
    let mut cells = vec![];
    for (i, series) in figure.series.iter().enumerate() {
        let places: Vec<Option<&X>> =
            if series.has_places() { places().map(Some).collect() } else { vec![None] };
        cells.extend(places.into_iter().map(|x| Cell {
            series: i,
            x,
            arguments: series.arguments(runs, effort, x),
        }));
    }
    // All series at a place stand together: they are what is compared.
    let place = |cell: &Cell<'_>| places().position(|x| Some(x) == cell.x);
    cells.sort_by_key(place);
    cells
}

/// The runs of figures that were not made yet, each once, with what they cost in seconds.
fn left<'a>(
    figures: impl IntoIterator<Item = &'a Figure>,
    effort: Effort,
    made: impl Fn(&Key) -> bool,
) -> (usize, f64) {
    let (mut seen, mut cost_s) = (BTreeSet::new(), 0.0);
    for figure in figures {
        for repetition in 0..figure.repetitions(effort) {
            for Cell { arguments, .. } in cells(figure, effort) {
                let key = Key { arguments, repetition };
                if !made(&key) && seen.insert(key) {
                    cost_s += figure.cost_s(effort);
                }
            }
        }
    }
    (seen.len(), cost_s)
}

/// What all runs of these figures cost, in seconds.
#[must_use]
pub fn cost_s(figures: &[Figure], effort: Effort) -> f64 {
    left(figures, effort, |_| false).1
}

/// Carries out the runs of figures.
#[derive(Debug)]
pub struct Runner<'a, L> {
    /// What runs a command.
    pub launch: &'a L,
    /// What was run already, here.
    pub journal: Journal,
    /// How long to measure.
    pub effort: Effort,
    /// What the machine has.
    pub host: Host,
}

/// Where the runs of several figures stand.
struct Course<'a> {
    /// Figures that can be made, from the present one on.
    ready: Vec<&'a Figure>,
    /// How many runs there are to make, less those that a failure left out.
    runs: usize,
    /// How long runs took, and what they were said to cost, in seconds.
    took_s: f64,
    cost_s: f64,
}

/// Why a figure has no runs.
enum Failure {
    /// A reason that concerns this one alone.
    Figure(String),
    /// All ends.
    Stop(StopError),
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Stop(error.into())
    }
}

impl<L: Launch> Runner<'_, L> {
    /// Makes what is not made yet of these figures, and grades them, in this order. `said` hears
    /// before each run where it stands.
    ///
    /// # Errors
    /// When it was interrupted, or what was measured cannot be kept.
    pub fn run(
        &mut self,
        figures: &[Figure],
        said: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Vec<Done>, StopError> {
        let is_ready = |figure: &&Figure| state(figure, &self.host) == State::Ready;
        let ready: Vec<&Figure> = figures.iter().filter(is_ready).collect();
        let runs = self.left(&ready).0;
        let mut course = Course { ready, runs, took_s: 0.0, cost_s: 0.0 };
        let mut all = vec![];
        for figure in figures {
            let made = match state(figure, &self.host) {
                State::Waits(what) => Err((format!("waits for {what}"), false)),
                State::NotHere(what) => Err((what, false)),
                State::Ready => {
                    let made = self.one(figure, &mut course, said);
                    // What a figure that failed leaves undone is not made.
                    let left = self.left(&course.ready).0;
                    course.ready.retain(|other| other.id != figure.id);
                    course.runs -= left - self.left(&course.ready).0;
                    match made {
                        Ok(measured) => Ok(measured),
                        Err(Failure::Figure(reason)) => Err((reason, true)),
                        Err(Failure::Stop(error)) => return Err(error),
                    }
                }
            };
            all.push(match made {
                Ok(measured) => {
                    let outcome = grade(figure, &measured, &self.host);
                    Done { outcome, measured, failed: false }
                }
                Err((reason, failed)) => {
                    let outcome = Outcome::untested(figure, &reason);
                    Done { outcome, measured: Measured::default(), failed }
                }
            });
        }
        Ok(all)
    }

    /// The runs of these figures that were not made, and what they cost, in seconds.
    fn left(&self, figures: &[&Figure]) -> (usize, f64) {
        left(figures.iter().copied(), self.effort, |key| self.journal.get(key).is_some())
    }

    /// The runs of a figure.
    fn one(
        &mut self,
        figure: &Figure,
        course: &mut Course<'_>,
        said: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Measured, Failure> {
        let mut measured = Measured::default();
        for repetition in 0..figure.repetitions(self.effort) {
            for Cell { series, x, arguments } in cells(figure, self.effort) {
                let series = &figure.series[series];
                let key = Key { arguments, repetition };
                let points = |result: &Value| {
                    let command = key.arguments.join(" ");
                    let points = series.extract(result, x);
                    points.map_err(|error| Failure::Figure(format!("`{command}`: {error}")))
                };
                let points = match self.journal.get(&key) {
                    Some(record) => points(&record.result)?,
                    None => {
                        let record = self.make(figure, &key, course, said)?;
                        // What is no result is not kept, so it is tried again.
                        let points = points(&record.result)?;
                        self.journal.add(record)?;
                        points
                    }
                };
                measured.add(&series.name, repetition, points);
            }
        }
        Ok(measured)
    }

    /// Makes a run.
    fn make(
        &self,
        figure: &Figure,
        key: &Key,
        course: &mut Course<'_>,
        said: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Record, Failure> {
        let cost_s = figure.cost_s(self.effort);
        let (left, left_s) = self.left(&course.ready);
        let pace = if course.cost_s > 0.0 { course.took_s / course.cost_s } else { 1.0 };
        said(&Progress {
            figure: &figure.id,
            command: key.arguments.join(" "),
            run: course.runs - left,
            runs: course.runs,
            left_s: left_s * pace,
        });
        let limit = Duration::from_secs_f64(cost_s * HANGS.0 + HANGS.1);
        let (result, took) =
            self.launch.launch(&key.arguments, limit).map_err(|error| match error {
                error @ RunError::Interrupted => Failure::Stop(StopError::Interrupted(error)),
                error => Failure::Figure(error.to_string()),
            })?;
        let seconds = took.as_secs_f64();
        course.took_s += seconds;
        course.cost_s += cost_s;
        let Key { arguments, repetition } = key.clone();
        Ok(Record { arguments, repetition, seconds, result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;
    use serde_json::json;
    use std::cell::RefCell;
    use std::path::Path;

    /// A program whose answer is a function of its arguments; it notes what it was asked.
    struct Answers<F>(F, RefCell<Vec<String>>);

    impl<F: Fn(&str) -> Result<Value, RunError>> Launch for Answers<F> {
        fn launch(&self, arguments: &[String], _: Duration) -> Result<(Value, Duration), RunError> {
            let command = arguments.join(" ");
            self.1.borrow_mut().push(command.clone());
            (self.0)(&command).map(|result| (result, Duration::from_secs(2)))
        }
    }

    fn figure(id: &str, more: &str) -> Figure {
        let text = format!(
            "seed = \"000\"\nitem = \"i\"\ntitle = \"t\"\npublished = \"p\"\n{more}\n\
             [runs]\nquick_args = \"-q\"\ncost_s = 1\nquick_cost_s = 1\nquick_repetitions = 2\n\
             [x]\nlabel = \"x\"\nvalues = [1, 2]\n[y]\nlabel = \"y\"\n\
             [[series]]\nname = \"a\"\ncommand = \"a {{x}}\"\nvalue = \"v\"\n\
             [[series]]\nname = \"b\"\ncommand = \"b {{x}}\"\nvalue = \"v\"\n\
             [[claim]]\nholds = 'least(\"a\", \"b\") >= 2'\n"
        );
        Figure::parse(&format!("000-{id}.toml"), &text).unwrap()
    }

    fn value(command: &str) -> Result<Value, RunError> {
        Ok(json!({ "v": if command.starts_with('a') { 6 } else { 2 } }))
    }

    /// Which run, of how many, and how many seconds are left.
    type Heard = (usize, usize, f64);

    fn run<F: Fn(&str) -> Result<Value, RunError>>(
        dir: &Path,
        launch: &Answers<F>,
        figures: &[Figure],
    ) -> Result<(Vec<Done>, Vec<Heard>), StopError> {
        let journal = Journal::open(dir)?;
        let host = Host { cores: 2, ..Host::default() };
        let mut runner = Runner { launch, journal, effort: Effort::Quick, host };
        let mut heard = vec![];
        let done = runner.run(figures, &mut |now| heard.push((now.run, now.runs, now.left_s)))?;
        Ok((done, heard))
    }

    #[test]
    fn commands_take_turns_and_are_run_once_for_all_figures() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Answers(value, RefCell::default());
        let figures = [figure("one", ""), figure("two", "")];
        let (done, heard) = run(dir.path(), &launch, &figures).unwrap();
        let turns = ["a 1", "b 1", "a 2", "b 2"].map(|words| format!("{words} -q --json"));
        assert_eq!(*launch.1.borrow(), [turns.clone(), turns].concat());
        assert!(done.iter().all(|done| done.outcome.verdict == Verdict::Reproduced));
        assert_eq!(heard[0], (0, 8, 8.0));
        assert_eq!(heard[7], (7, 8, 2.0), "the runs take twice of what was thought");
        assert_eq!(cost_s(&figures, Effort::Quick), 8.0);
        // Again: nothing is left to do.
        let (again, heard) = run(dir.path(), &launch, &figures).unwrap();
        assert_eq!((again, heard.len(), launch.1.borrow().len()), (done, 0, 8));
    }

    #[test]
    fn what_fails_is_a_reason_and_no_result_and_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let saturated = |command: &str| match command {
            "b 2 -q --json" => Ok(json!({ "v": 1, "busiest_client_cpu": 0.99 })),
            _ => value(command),
        };
        let launch = Answers(saturated, RefCell::default());
        let (done, heard) = run(dir.path(), &launch, &[figure("one", "")]).unwrap();
        assert_eq!((done[0].failed, done[0].outcome.verdict), (true, Verdict::NotTestableHere));
        assert!(done[0].outcome.reason.contains("generator was saturated"));
        assert_eq!(done[0].measured, Measured::default());
        assert_eq!(heard.len(), 4);
        let launch = Answers(value, RefCell::default());
        let (done, heard) = run(dir.path(), &launch, &[figure("one", "")]).unwrap();
        assert_eq!((done[0].failed, heard[0].1, launch.1.borrow().len()), (false, 5, 5));
    }

    #[test]
    fn an_interrupted_command_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let left = RefCell::new(3);
        let stops = |command: &str| {
            *left.borrow_mut() -= 1;
            if *left.borrow() < 0 { Err(RunError::Interrupted) } else { value(command) }
        };
        let launch = Answers(stops, RefCell::default());
        let stopped = run(dir.path(), &launch, &[figure("one", "")]).unwrap_err().to_string();
        assert!(stopped.contains("goes on from there"), "{stopped}");
        let launch = Answers(value, RefCell::default());
        let (done, _) = run(dir.path(), &launch, &[figure("one", "")]).unwrap();
        assert_eq!((launch.1.borrow().len(), done[0].outcome.verdict), (5, Verdict::Reproduced));
    }

    #[test]
    fn what_waits_or_needs_more_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Answers(value, RefCell::default());
        let text = "seed = \"001\"\nitem = \"i\"\ntitle = \"t\"\npublished = \"p\"\nwaits = \"F4\"\n\
                    [[claim]]\nholds = 'max(\"later\") >= 2'\n";
        let waits = Figure::parse("001-w.toml", text).unwrap();
        let needs = figure("needs", "needs = { cores = 64 }");
        let (done, heard) = run(dir.path(), &launch, &[waits, needs]).unwrap();
        assert_eq!((heard.len(), launch.1.borrow().len()), (0, 0));
        let reasons: Vec<_> = done.iter().map(|done| done.outcome.reason.as_str()).collect();
        assert_eq!(reasons, ["waits for F4", "this machine lacks 64 cores (there are 2)"]);
        assert!(done.iter().all(|done| !done.failed));
    }
}
