//! A figure's file.
//!
//! ```toml
//! seed = "002"
//! item = "Figure 8"
//! title = "Throughput against the number of replicas"
//! published = "a slight gain up to 8 replicas, a slight loss after"
//!
//! [needs]
//! cores = 2
//!
//! [runs]
//! args = "--seconds 3"          # behind every command
//! quick_args = "--seconds 1"    # behind every command of a quick run
//! cost_s = 7                    # what one run takes
//! quick_cost_s = 4
//!
//! [x]
//! label = "replicas"
//! values = [4, 6, 8, 10]
//! quick = [4, 10]
//!
//! [y]
//! label = "requests/s"
//!
//! [[series]]
//! name = "Tercio"
//! command = "bench bft --closed --replicas {x}"
//! value = "throughput_rps"      # where the number stands in the run's JSON object
//!
//! [[claim]]
//! holds = 'spread("Tercio") <= 1.15'
//! ```
//!
//! A series with `rows` takes all its points from one run: those rows of the array at that path whose
//! fields are as `only` says, `x` and `value` being paths within a row. A figure that nothing can make
//! yet says `waits = "..."` and has neither runs nor series. Unknown keys are errors, and so is a
//! claim on a series that is not there.

use crate::claim::Claim;
use crate::expression::Expression;
use crate::points::X;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::Spanned;

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As long as a figure needs.
    Full,
    /// Shorter and fewer runs, to see that everything works and where it tends.
    Quick,
}

/// What is wrong with a figure's file.
#[derive(Debug, Error)]
pub enum FigureError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file, or the folder.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// Its text is not that of a figure.
    #[error("{file}, line {line}: {what}")]
    Text {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what is right.
        what: String,
    },
    /// A folder without a figure.
    #[error("{}: no figure (*.toml) is there", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

/// What a figure needs of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// Processors.
    pub cores: usize,
    /// Memory, in GB.
    pub memory_gb: u64,
    /// The rights of root.
    pub root: bool,
    /// A GPU of Nvidia.
    pub gpu: bool,
    /// Programs, such as `java` and `go`.
    pub tools: Vec<String>,
}

/// How a figure's commands are run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// What stands behind each command.
    #[serde(default)]
    pub args: String,
    /// The same in a quick run.
    #[serde(default)]
    pub quick_args: String,
    /// How often each command is run.
    #[serde(default = "five")]
    pub repetitions: usize,
    /// The same in a quick run.
    #[serde(default = "three")]
    pub quick_repetitions: usize,
    /// What one run takes, in seconds.
    pub cost_s: f64,
    /// The same in a quick run.
    pub quick_cost_s: f64,
}

const fn five() -> usize {
    5
}

const fn three() -> usize {
    3
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// What `{x}` stands for in the commands, one run for each.
    #[serde(default)]
    pub values: Vec<X>,
    /// The same in a quick run; without, all of them.
    #[serde(default)]
    pub quick: Vec<X>,
}

/// Points that are measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The program's arguments, separated by spaces; `{x}` stands for the axis' values.
    pub command: String,
    /// The path of the number in the run's JSON object, or in a row of it.
    pub value: String,
    /// The path of an array of rows, when one run gives all points.
    pub rows: Option<String>,
    /// Only rows whose fields are these.
    #[serde(default)]
    pub only: BTreeMap<String, toml::Value>,
    /// The path of the place on the x axis within a row.
    pub x: Option<String>,
    /// What the number is multiplied with.
    #[serde(default = "one")]
    pub scale: f64,
    /// What x is multiplied with, where a row gives it.
    #[serde(default = "one")]
    pub x_scale: f64,
}

const fn one() -> f64 {
    1.0
}

/// Points that were published.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The name of the series.
    pub name: String,
    /// Its points.
    pub points: Vec<(X, f64)>,
}

/// A published figure or table, and how it is made again.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name: that of its file.
    pub id: String,
    /// The publication: `000` to `004`, of those that this project is built on (its seeds).
    pub seed: String,
    /// Which figure or table of it.
    pub item: String,
    /// What it shows.
    pub title: String,
    /// What was published, in words.
    pub published: String,
    /// What nothing can make it without; then there is nothing to run.
    pub waits: Option<String>,
    /// How its setting here differs from the published one.
    pub setting: Option<String>,
    /// What it needs of the machine.
    pub needs: Needs,
    /// How its commands are run; some unless it waits.
    pub runs: Option<Runs>,
    /// The x axis.
    pub x: Axis,
    /// What the y axis shows.
    pub y: String,
    /// What is measured.
    pub series: Vec<Series>,
    /// What was published, as points.
    pub points: Vec<Published>,
    /// What it claims.
    pub claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Spanned<String>,
    item: String,
    title: String,
    published: String,
    waits: Option<String>,
    setting: Option<String>,
    #[serde(default)]
    needs: Needs,
    runs: Option<Spanned<Runs>>,
    x: Option<Axis>,
    y: Option<Label>,
    #[serde(default)]
    series: Vec<Spanned<Series>>,
    #[serde(default)]
    points: Vec<Published>,
    #[serde(default)]
    claim: Vec<ClaimEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    label: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimEntry {
    holds: Spanned<String>,
    tolerance_percent: Option<Spanned<f64>>,
    trend: Option<f64>,
    says: Option<String>,
    waits: Option<String>,
    #[serde(default)]
    cores: usize,
}

/// Finds the line of an error in a file's text.
struct Lines<'a> {
    file: &'a str,
    text: &'a str,
}

impl Lines<'_> {
    fn error(&self, at: usize, what: impl Into<String>) -> FigureError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        FigureError::Text { file: self.file.to_owned(), line, what: what.into() }
    }
}

impl Figure {
    /// Reads a figure from its file's text.
    ///
    /// # Errors
    /// When it is not that of a figure.
    pub fn parse(path: &str, text: &str) -> Result<Self, FigureError> {
        let lines = Lines { file: path, text };
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            lines.error(at, error.message().trim().to_owned())
        })?;
        let id = Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !(id.starts_with(file.seed.get_ref().as_str()) && is_seed(file.seed.get_ref())) {
            let what = "seed must be 000 to 004, and the file's name must begin with it";
            return Err(lines.error(file.seed.span().start, what));
        }
        check_runs(&lines, &file)?;
        let known: BTreeSet<&str> = file.series.iter().map(|s| s.get_ref().name.as_str()).collect();
        let claims = (file.claim.iter())
            .map(|entry| claim(&lines, entry, file.waits.is_some(), &known))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            id,
            seed: file.seed.into_inner(),
            item: file.item,
            title: file.title,
            published: file.published,
            waits: file.waits,
            setting: file.setting,
            needs: file.needs,
            runs: file.runs.map(Spanned::into_inner),
            x: file.x.unwrap_or_default(),
            y: file.y.map(|y| y.label).unwrap_or_default(),
            series: file.series.into_iter().map(Spanned::into_inner).collect(),
            points: file.points,
            claims,
        })
    }

    /// The publication, by its authors or system.
    #[must_use]
    pub fn work(&self) -> &'static str {
        WORKS.iter().find(|(seed, _)| *seed == self.seed).map_or("", |(_, work)| *work)
    }

    /// The places on the x axis at which its commands are run; none when they do not differ by it.
    #[must_use]
    pub fn places(&self, effort: Effort) -> &[X] {
        match effort {
            Effort::Quick if !self.x.quick.is_empty() => &self.x.quick,
            _ => &self.x.values,
        }
    }

    /// How often each command is run.
    #[must_use]
    pub fn repetitions(&self, effort: Effort) -> usize {
        self.runs.as_ref().map_or(0, |runs| match effort {
            Effort::Full => runs.repetitions,
            Effort::Quick => runs.quick_repetitions,
        })
    }

    /// What one run takes, in seconds.
    #[must_use]
    pub fn cost_s(&self, effort: Effort) -> f64 {
        self.runs.as_ref().map_or(0.0, |runs| match effort {
            Effort::Full => runs.cost_s,
            Effort::Quick => runs.quick_cost_s,
        })
    }
}

impl Series {
    /// The arguments of the run at a place of the x axis.
    #[must_use]
    pub fn arguments(&self, runs: &Runs, effort: Effort, x: Option<&X>) -> Vec<String> {
        let more = match effort {
            Effort::Full => &runs.args,
            Effort::Quick => &runs.quick_args,
        };
        let place = x.map(ToString::to_string).unwrap_or_default();
        let words = self.command.split_whitespace().chain(more.split_whitespace());
        let mut words: Vec<String> = words.map(|word| word.replace("{x}", &place)).collect();
        words.push("--json".into());
        words
    }

    /// Whether there is a run for each place of the x axis.
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.command.contains("{x}")
    }
}

/// The publications, as `docs/README.md` names them.
const WORKS: [(&str, &str); 5] = [
    ("000", "Yang et al."),
    ("001", "FISCO BCOS"),
    ("002", "Zhu et al."),
    ("003", "PRISM"),
    ("004", "Themis"),
];

fn is_seed(seed: &str) -> bool {
    WORKS.iter().any(|(known, _)| *known == seed)
}

/// A figure is either made by runs or waits.
fn check_runs(lines: &Lines<'_>, file: &File) -> Result<(), FigureError> {
    let first = file.seed.span().start;
    match (&file.waits, &file.runs) {
        (Some(_), None) if file.series.is_empty() => return Ok(()),
        (Some(_), _) => {
            return Err(lines.error(first, "a figure that waits has neither runs nor series"));
        }
        (None, None) => {
            return Err(lines.error(first, "write [runs], or what it waits for (waits)"));
        }
        (None, Some(runs)) => {
            let (at, runs) = (runs.span().start, runs.get_ref());
            if runs.repetitions == 0 || runs.quick_repetitions == 0 {
                return Err(lines.error(at, "repetitions must be 1 or more"));
            }
            let sound = |cost: f64| cost.is_finite() && cost > 0.0;
            if !(sound(runs.cost_s) && sound(runs.quick_cost_s)) {
                return Err(lines.error(at, "cost_s and quick_cost_s must be seconds, above 0"));
            }
        }
    }
    if file.series.is_empty() || file.x.is_none() || file.y.is_none() {
        return Err(lines.error(first, "write [x], [y] and at least one [[series]]"));
    }
    let values = file.x.as_ref().map_or(&[][..], |x| &x.values);
    if file.x.as_ref().is_some_and(|x| x.quick.iter().any(|x| !values.contains(x))) {
        return Err(lines.error(first, "x.quick may name only what x.values has"));
    }
    let mut names = BTreeSet::new();
    for series in &file.series {
        let (at, series) = (series.span().start, series.get_ref());
        if !names.insert(&series.name) {
            return Err(lines.error(at, format!("two series are called '{}'", series.name)));
        }
        check_series(values, series).map_err(|what| lines.error(at, what))?;
    }
    Ok(())
}

fn check_series(values: &[X], series: &Series) -> Result<(), &'static str> {
    match (&series.rows, &series.x) {
        (None, None) if !series.has_places() => Err("write {x} in the command, or give rows and x"),
        (None, None) if values.is_empty() => Err("the command has {x}, and x.values is empty"),
        (None, None) if !series.only.is_empty() => Err("only goes with rows"),
        (None, None) => Ok(()),
        (Some(_), Some(_)) if series.has_places() => Err("a series with rows has no {x}"),
        (Some(_), Some(_)) => Ok(()),
        _ => Err("rows and x go together"),
    }
}

fn claim(
    lines: &Lines<'_>,
    entry: &ClaimEntry,
    figure_waits: bool,
    series: &BTreeSet<&str>,
) -> Result<Claim, FigureError> {
    let (text, at) = (entry.holds.get_ref(), entry.holds.span().start);
    let waits = figure_waits || entry.waits.is_some();
    let holds = Expression::parse(text).map_err(|error| lines.error(at, error.to_string()))?;
    // What waits may be said of series that are not measured yet.
    if let Some(name) = holds.series().into_iter().find(|name| !waits && !series.contains(name)) {
        return Err(
            lines.error(at, format!("the claim names '{name}', and no series is called so"))
        );
    }
    let percent = entry.tolerance_percent.as_ref();
    if let Some(wrong) = percent.filter(|percent| !(0.0..=50.0).contains(percent.get_ref())) {
        return Err(lines.error(wrong.span().start, "tolerance_percent must be 0 to 50"));
    }
    Ok(Claim {
        holds,
        tolerance: percent.map_or(0.0, |percent| percent.get_ref() / 100.0),
        trend: entry.trend,
        says: entry.says.clone(),
        waits: entry.waits.clone(),
        cores: entry.cores,
    })
}

#[cfg(test)]
mod tests;
