//! The files of a folder of runs: `ID.csv` and `ID.svg` of each figure that was measured, `report.html`,
//! `table.md` and `verdicts.json` of all.

use crate::environment::Environment;
use crate::figure::Figure;
use crate::grade::Outcome;
use crate::picture::{Picture, PictureError};
use crate::report::{html, markdown};
use crate::runner::Done;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a file is not there.
#[derive(Debug, Error)]
pub enum FilesError {
    /// It cannot be written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A picture cannot be drawn.
    #[error(transparent)]
    Picture(#[from] PictureError),
}

/// Writes all files of these figures, in the order of both; gives the page's path.
///
/// # Errors
/// When a file cannot be written or a picture not be drawn.
pub fn write(
    dir: &Path,
    figures: &[Figure],
    done: &[Done],
    environment: &Environment,
) -> Result<PathBuf, FilesError> {
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        match fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(error) => Err(FilesError::File { path, error }),
        }
    };
    let mut pictures = vec![];
    for (figure, done) in figures.iter().zip(done) {
        if done.outcome.points.is_empty() {
            pictures.push(None);
            continue;
        }
        let svg = Picture::of(figure, &done.outcome).svg()?;
        put(&format!("{}.svg", figure.id), &svg)?;
        put(&format!("{}.csv", figure.id), &csv(figure, done))?;
        pictures.push(Some(svg));
    }
    let outcomes: Vec<&Outcome> = done.iter().map(|done| &done.outcome).collect();
    let table: Vec<_> = figures.iter().zip(outcomes.iter().copied()).collect();
    put("table.md", &markdown(&table))?;
    put("verdicts.json", &(serde_json::to_string_pretty(&outcomes).unwrap_or_default() + "\n"))?;
    let rows: Vec<_> = (table.iter().zip(&pictures))
        .map(|((figure, outcome), picture)| (*figure, *outcome, picture.as_deref()))
        .collect();
    put("report.html", &html(&rows, environment))
}

/// Every value that was measured, then what was published.
fn csv(figure: &Figure, done: &Done) -> String {
    let mut csv = "kind,series,repetition,x,y\n".to_owned();
    for (series, repetition, x, y) in done.measured.values() {
        let _ =
            writeln!(csv, "measured,{},{repetition},{},{y}", field(series), field(&x.to_string()));
    }
    for published in &figure.points {
        for (x, y) in &published.points {
            let name = field(&published.name);
            let _ = writeln!(csv, "published,{name},,{},{y}", field(&x.to_string()));
        }
    }
    csv
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Host;
    use crate::grade::grade;
    use crate::points::{Measured, X};
    use serde_json::json;

    #[test]
    fn all_files_are_there() {
        let text = "seed = \"002\"\nitem = \"i\"\ntitle = \"t\"\npublished = \"p\"\n\
                    [runs]\ncost_s = 1\nquick_cost_s = 1\n[x]\nlabel = \"x\"\nvalues = [1, 2]\n\
                    [y]\nlabel = \"y\"\n\
                    [[series]]\nname = \"a, b\"\ncommand = \"{x}\"\nvalue = \"v\"\n\
                    [[points]]\nname = \"paper\"\npoints = [[1, 7], [2, 8.5]]\n\
                    [[claim]]\nholds = 'rise(\"a, b\") >= 1'\n";
        let figure = Figure::parse("002-x.toml", text).unwrap();
        let waits =
            "seed = \"002\"\nitem = \"i\"\ntitle = \"t\"\npublished = \"p\"\nwaits = \"it\"\n";
        let waits = Figure::parse("002-y.toml", waits).unwrap();
        let mut measured = Measured::default();
        measured.add("a, b", 0, vec![(X::Number(1.0), 5.0), (X::Number(2.0), 6.0)]);
        let outcome = grade(&figure, &measured, &Host::default());
        let none = Done {
            outcome: Outcome::untested(&waits, "waits for it"),
            measured: Measured::default(),
            failed: false,
        };
        let done = [Done { outcome, measured, failed: false }, none];
        let environment = Environment {
            program: vec![],
            program_bytes: 0,
            program_written_s: 0,
            quick: false,
            machine: json!({}),
            calibration: json!({}),
        };
        let dir = tempfile::tempdir().unwrap();
        let page = write(dir.path(), &[figure, waits], &done, &environment).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            read("002-x.csv"),
            "kind,series,repetition,x,y\nmeasured,\"a, b\",0,1,5\nmeasured,\"a, b\",0,2,6\n\
             published,paper,,1,7\npublished,paper,,2,8.5\n"
        );
        assert!(read("002-x.svg").contains("published: paper"));
        assert!(!dir.path().join("002-y.svg").exists());
        assert!(
            read("table.md").contains("REPRODUCED") && read("table.md").contains("waits for it")
        );
        let verdicts: serde_json::Value = serde_json::from_str(&read("verdicts.json")).unwrap();
        assert_eq!(verdicts[0]["points"]["a, b"][1]["median"], 6.0);
        let page = fs::read_to_string(page).unwrap();
        assert_eq!(page.matches("<svg").count(), 1);
        let nowhere = write(&dir.path().join("none"), &[], &[], &environment).unwrap_err();
        assert!(nowhere.to_string().contains("none/table.md"), "{nowhere}");
    }
}
