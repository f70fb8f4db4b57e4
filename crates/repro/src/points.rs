//! Points: out of what runs printed, and their medians.

use crate::figure::Series;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// A generator that uses this much of a processor is the bottleneck itself.
const BUSY: f64 = 0.95;

/// A place on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A number.
    Number(f64),
    /// A name, such as that of an operation.
    Name(String),
}

impl X {
    /// Its number, if it has one.
    #[must_use]
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Name(_) => None,
        }
    }

    /// Whether both are the same place.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
            (Self::Name(a), Self::Name(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Display for X {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The points of each series, by its name.
pub type Points = BTreeMap<String, Vec<(X, f64)>>;

/// Why a run's output gives no points.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PointsError {
    /// There is nothing at a path.
    #[error("the result has no number at '{0}'")]
    NoNumber(String),
    /// There are no rows at a path.
    #[error("the result has no rows at '{0}'")]
    NoRows(String),
    /// No row is as the series wants them.
    #[error("no row of '{rows}' is one of series '{series}'")]
    NoneFits {
        /// The path of the rows.
        rows: String,
        /// The series.
        series: String,
    },
    /// More was offered than was done.
    #[error("saturated: more was offered than the network keeps up with, so this is no result")]
    Saturated,
    /// Clients had no processor time left.
    #[error(
        "the load generator was saturated (a client used {0} of a processor), so this is no result"
    )]
    Generator(String),
    /// Repetitions differ in their points.
    #[error("the runs of series '{0}' give different numbers of points")]
    Uneven(String),
}

/// The number at a path: names and places, with dots between them. Of an array the last step may be
/// `max`, `min` or `mean`.
fn number_at(value: &Value, path: &str) -> Option<f64> {
    let mut here = value;
    for step in path.split('.') {
        here = match here {
            Value::Array(all) => match step.parse::<usize>() {
                Ok(place) => all.get(place)?,
                Err(_) => return of_all(all, step),
            },
            _ => here.get(step)?,
        };
    }
    here.as_f64()
}

fn of_all(all: &[Value], how: &str) -> Option<f64> {
    let numbers: Vec<f64> = all.iter().map(Value::as_f64).collect::<Option<_>>()?;
    let of = |f: fn(f64, f64) -> f64| numbers.iter().copied().reduce(f);
    match how {
        "max" => of(f64::max),
        "min" => of(f64::min),
        "mean" => of(|a, b| a + b).map(|sum| sum / numbers.len() as f64),
        _ => None,
    }
}

fn place_at(row: &Value, path: &str, scale: f64) -> Option<X> {
    match row.pointer(&format!("/{}", path.replace('.', "/"))) {
        Some(Value::String(name)) => Some(X::Name(name.clone())),
        _ => number_at(row, path).map(|number| X::Number(number * scale)),
    }
}

/// Refuses what its own load generator or a lack of rate spoiled.
fn check(object: &Value) -> Result<(), PointsError> {
    let busy = object.get("busiest_client_cpu").and_then(Value::as_f64);
    if let Some(busy) = busy.filter(|busy| *busy >= BUSY) {
        return Err(PointsError::Generator(format!("{:.0} %", busy * 100.0)));
    }
    match (object.get("saturated"), object.get("saturated_by").and_then(Value::as_str)) {
        (Some(Value::Bool(true)), Some("generator")) => {
            Err(PointsError::Generator("all that it had".into()))
        }
        (Some(Value::Bool(true)), _) => Err(PointsError::Saturated),
        _ => Ok(()),
    }
}

impl Series {
    /// The points that a run's result gives; `x` is the place that the run was made for.
    ///
    /// # Errors
    /// When the result does not have what the series wants, or is none.
    pub fn extract(&self, result: &Value, x: Option<&X>) -> Result<Vec<(X, f64)>, PointsError> {
        let number = |object: &Value| {
            check(object)?;
            let number = number_at(object, &self.value).filter(|number| number.is_finite());
            let missing = || PointsError::NoNumber(self.value.clone());
            number.map(|number| number * self.scale).ok_or_else(missing)
        };
        let (Some(rows), Some(place)) = (&self.rows, &self.x) else {
            let x = x.cloned().unwrap_or_else(|| X::Name(self.name.clone()));
            return Ok(vec![(x, number(result)?)]);
        };
        let found =
            result.pointer(&format!("/{}", rows.replace('.', "/"))).and_then(Value::as_array);
        let found = found.ok_or_else(|| PointsError::NoRows(rows.clone()))?;
        let mut points = vec![];
        for row in found.iter().filter(|row| self.wants(row)) {
            let at = place_at(row, place, self.x_scale);
            let at = at.ok_or_else(|| PointsError::NoNumber(place.clone()))?;
            points.push((at, number(row)?));
        }
        if points.is_empty() {
            return Err(PointsError::NoneFits { rows: rows.clone(), series: self.name.clone() });
        }
        Ok(points)
    }

    fn wants(&self, row: &Value) -> bool {
        self.only.iter().all(|(key, wanted)| match (wanted, row.get(key)) {
            (toml::Value::String(wanted), Some(Value::String(found))) => wanted == found,
            (toml::Value::Boolean(wanted), Some(Value::Bool(found))) => wanted == found,
            (toml::Value::Integer(wanted), Some(found)) => is(found, *wanted as f64),
            (toml::Value::Float(wanted), Some(found)) => is(found, *wanted),
            _ => false,
        })
    }
}

fn is(found: &Value, wanted: f64) -> bool {
    found.as_f64().is_some_and(|found| X::Number(found).is(&X::Number(wanted)))
}

/// What the runs of a figure gave: of each series and each repetition the points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    series: BTreeMap<String, Vec<Vec<(X, f64)>>>,
}

impl Measured {
    /// Adds points of a series that belong to a repetition, from 0 on.
    pub fn add(&mut self, series: &str, repetition: usize, points: Vec<(X, f64)>) {
        let all = self.series.entry(series.to_owned()).or_default();
        all.resize(all.len().max(repetition + 1), vec![]);
        all[repetition].extend(points);
    }

    /// How many repetitions there are.
    #[must_use]
    pub fn repetitions(&self) -> usize {
        self.series.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Refuses runs that were cut off: each repetition of a series has as many points.
    ///
    /// # Errors
    /// When they differ.
    pub fn check(&self) -> Result<(), PointsError> {
        let repetitions = self.repetitions();
        let uneven = |all: &[Vec<(X, f64)>]| {
            all.len() != repetitions || all.windows(2).any(|pair| pair[0].len() != pair[1].len())
        };
        match self.series.iter().find(|(_, all)| uneven(all)) {
            Some((name, _)) => Err(PointsError::Uneven(name.clone())),
            None => Ok(()),
        }
    }

    /// The medians of these repetitions, each as often as it is named. [`Self::check`] has passed.
    #[must_use]
    pub fn medians(&self, repetitions: &[usize]) -> Points {
        let mut medians = Points::new();
        for (name, all) in &self.series {
            let point = |i: usize| {
                let of = |y: fn(&(X, f64)) -> f64| {
                    median(repetitions.iter().map(|r| y(&all[*r][i])).collect())
                };
                let x = match &all[0][i].0 {
                    X::Number(_) => X::Number(of(|(x, _)| x.number().unwrap_or(f64::NAN))),
                    name => name.clone(),
                };
                (x, of(|(_, y)| *y))
            };
            let count = all.first().map_or(0, Vec::len);
            medians.insert(name.clone(), (0..count).map(point).collect());
        }
        medians
    }

    /// Every value: series, repetition, place, value.
    pub fn values(&self) -> impl Iterator<Item = (&str, usize, &X, f64)> {
        self.series.iter().flat_map(|(name, all)| {
            let points = all.iter().enumerate().flat_map(|(r, p)| p.iter().map(move |p| (r, p)));
            points.map(|(r, (x, y))| (name.as_str(), r, x, *y))
        })
    }
}

/// The middle value, or the mean of the two in the middle; of none it is no number.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(values[last / 2], values[values.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn series(text: &str) -> Series {
        toml::from_str(&format!("name = \"s\"\ncommand = \"run {{x}}\"\n{text}")).unwrap()
    }

    #[test]
    fn numbers_stand_at_paths() {
        let result = json!({ "a": { "b": [1, 4, 2.5] }, "saturated": false });
        for (path, value) in [("a.b.1", 4.0), ("a.b.max", 4.0), ("a.b.min", 1.0), ("a.b.mean", 2.5)]
        {
            let series = series(&format!("value = \"{path}\"\nscale = 2"));
            let x = X::Number(3.0);
            assert_eq!(series.extract(&result, Some(&x)), Ok(vec![(x, value * 2.0)]), "{path}");
        }
        for path in ["a", "a.c", "a.b", "a.b.3", "a.b.sum", ""] {
            let found = series(&format!("value = \"{path}\"")).extract(&result, None);
            assert_eq!(found, Err(PointsError::NoNumber(path.into())));
        }
    }

    #[test]
    fn rows_are_chosen_by_their_fields() {
        let rows = json!({ "rows": [
            { "system": "a", "load": 1, "p": { "us": 5 }, "op": "read" },
            { "system": "b", "load": 1, "p": { "us": 6 }, "op": "read" },
            { "system": "a", "load": 2.0, "p": { "us": 7 }, "op": "write" },
        ]});
        let common = "rows = \"rows\"\nvalue = \"p.us\"";
        let of = |more: &str| series(&format!("{common}\n{more}")).extract(&rows, None);
        let found = of("x = \"load\"\nx_scale = 10\nonly = { system = \"a\" }").unwrap();
        assert_eq!(found, [(X::Number(10.0), 5.0), (X::Number(20.0), 7.0)]);
        let found = of("x = \"op\"\nonly = { load = 2, system = \"a\" }").unwrap();
        assert_eq!(found, [(X::Name("write".into()), 7.0)]);
        let none = of("x = \"op\"\nonly = { load = 3 }").unwrap_err().to_string();
        assert_eq!(none, "no row of 'rows' is one of series 's'");
        assert!(of("x = \"nothing\"").is_err());
        let other = series("rows = \"no\"\nx = \"op\"\nvalue = \"p\"").extract(&rows, None);
        assert_eq!(other, Err(PointsError::NoRows("no".into())));
    }

    #[test]
    fn what_was_saturated_is_no_result() {
        let of = |more: Value| {
            let mut result = json!({ "rps": 5 });
            result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            series("value = \"rps\"").extract(&result, None)
        };
        assert!(of(json!({ "busiest_client_cpu": 0.9, "saturated": false })).is_ok());
        let error = of(json!({ "busiest_client_cpu": 0.97 })).unwrap_err().to_string();
        assert!(error.contains("generator was saturated (a client used 97 %"), "{error}");
        let by = json!({ "saturated": true, "saturated_by": "generator" });
        assert!(matches!(of(by), Err(PointsError::Generator(_))));
        let by = json!({ "saturated": true, "saturated_by": "network" });
        assert_eq!(of(by), Err(PointsError::Saturated));
    }

    #[test]
    fn medians_are_of_the_repetitions_that_are_named() {
        let mut measured = Measured::default();
        for (repetition, y) in [3.0, 1.0, 2.0].into_iter().enumerate() {
            measured.add("s", repetition, vec![(X::Number(4.0), y), (X::Number(y), 10.0 * y)]);
        }
        assert_eq!((measured.repetitions(), measured.check()), (3, Ok(())));
        assert_eq!(measured.medians(&[0, 1, 2])["s"][0], (X::Number(4.0), 2.0));
        assert_eq!(measured.medians(&[0, 0, 1])["s"][1], (X::Number(3.0), 30.0));
        assert_eq!(measured.medians(&[1, 2])["s"][0].1, 1.5);
        measured.add("s", 3, vec![(X::Number(4.0), 1.0)]);
        assert_eq!(measured.check(), Err(PointsError::Uneven("s".into())));
        assert!(median(vec![]).is_nan());
    }
}
