//! Published figures made again, as a user sees it.

use crate::common;

use common::{tercio, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with one figure: the shortest that is one, of these replicas' load.
fn folder(command: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let figures = dir.path().join("figures");
    fs::create_dir(&figures).unwrap();
    let figure = format!(
        "seed = \"004\"\nitem = \"tiny\"\ntitle = \"Throughput\"\npublished = \"some\"\n\
         [runs]\nrepetitions = 1\nquick_repetitions = 1\ncost_s = 3\nquick_cost_s = 3\n\
         [x]\nlabel = \"clients\"\nvalues = [1, 2]\nquick = [1]\n[y]\nlabel = \"requests/s\"\n\
         [[series]]\nname = \"here\"\ncommand = \"{command} --clients {{x}}\"\n\
         value = \"throughput_rps\"\n\
         [[points]]\nname = \"there\"\npoints = [[1, 100], [2, 200]]\n\
         [[claim]]\nholds = 'min(\"here\") >= 1'\n\
         [[claim]]\nholds = 'min(\"Java\") >= 1'\nwaits = \"a Java peer\"\n"
    );
    fs::write(figures.join("004-tiny.toml"), figure).unwrap();
    let out = dir.path().join("out");
    (dir, out)
}

fn run(dir: &Path, out: &Path, more: &[&str]) -> common::Run {
    let figures = dir.join("figures");
    let common = ["repro", "run", "004", "--json", "--figures", text(&figures), "--out", text(out)];
    tercio(common.iter().chain(more))
}

#[test]
fn every_published_item_is_listed_with_its_state() {
    let list = tercio(["repro", "list", "--json"]).good().json();
    let figures = list["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 48);
    let of = |id: &str| figures.iter().find(|figure| figure["id"] == id).unwrap();
    assert_eq!(of("004-memory")["state"], "ready");
    assert_eq!(of("004-authentication")["state"], "waits");
    assert!(of("004-authentication")["reason"].as_str().unwrap().contains("between replicas"));
    assert!(list["quick_cost_s"].as_f64().unwrap() < list["cost_s"].as_f64().unwrap());
    let said = tercio(["repro", "list"]).good().stdout.clone();
    assert!(said.contains("48 items: ") && said.contains("waits for batch verification on a GPU"));
}

/// One real figure, then once more: nothing is run again.
#[test]
fn a_figure_is_made_graded_and_continued() {
    let (dir, out) = folder("bench bft --closed --threads --seconds 1");
    let first = run(dir.path(), &out, &["--quick"]);
    first.good();
    assert!(first.stderr.contains("run 1 of 1"), "{}", first.stderr);
    let outcome = first.json()["outcomes"][0].clone();
    assert_eq!(outcome["verdict"], "REPRODUCED", "{outcome}");
    let claims = outcome["claims"].as_array().unwrap();
    assert_eq!(claims[1]["verdict"], "NOT-TESTABLE-HERE");
    assert_eq!(claims[1]["reason"], "waits for a Java peer");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert!(read("004-tiny.csv").contains("measured,here,0,1,"));
    assert!(read("004-tiny.csv").contains("published,there,,2,200"));
    assert!(read("004-tiny.svg").contains("published: there"));
    assert!(read("report.html").contains("<svg") && read("table.md").contains("REPRODUCED"));
    let environment: Value = serde_json::from_str(&read("env.json")).unwrap();
    assert!(environment["calibration"]["ceiling_rps"].as_f64().unwrap() > 0.0);
    assert!(environment["machine"]["cores"].as_u64().unwrap() > 0);

    let again = run(dir.path(), &out, &["--quick"]);
    again.good();
    assert!(!again.stderr.contains("run 1"), "{}", again.stderr);
    assert_eq!(again.json()["outcomes"][0], outcome);
    run(dir.path(), &out, &[]).refused(1, &["--quick", "name another one"]);
}

#[test]
fn what_is_no_result_is_no_verdict() {
    let (dir, out) = folder("bench bft --rate 10000000 --threads --seconds 1");
    let run = run(dir.path(), &out, &["--quick"]);
    let outcome = run.json()["outcomes"][0].clone();
    assert_eq!(outcome["verdict"], "NOT-TESTABLE-HERE");
    assert!(outcome["reason"].as_str().unwrap().contains("this is no result"), "{outcome}");
    assert_eq!(run.code, 1);
    let error = run.stderr.lines().last().unwrap();
    assert!(error.contains("1 figures could not be made; the first: 004-tiny"), "{error}");
    assert!(!out.join("004-tiny.svg").exists());
    assert_eq!(fs::read_to_string(out.join("runs.jsonl")).unwrap(), "");
}

#[test]
fn what_cannot_be_read_is_refused_by_its_line() {
    let (dir, out) = folder("bench bft --closed");
    let path = dir.path().join("figures/004-tiny.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("[x]\n", "[x]\nlable = \"no\"\n")).unwrap();
    run(dir.path(), &out, &[]).refused(1, &["004-tiny.toml, line 11", "unknown field `lable`"]);
    fs::write(&path, text.replace(">= 1'", "> 1'")).unwrap();
    run(dir.path(), &out, &[]).refused(1, &["004-tiny.toml, line", "claim, column 13"]);
    assert!(!out.exists(), "nothing is made before all is read");
    tercio(["repro", "run", "005"]).refused(2, &["there is no figure '005'"]);
}

/// Latency against offered load, as numbers and as a picture.
#[test]
fn a_sweep_says_what_each_rate_came_to() {
    let dir = tempfile::tempdir().unwrap();
    let (csv, svg) = (dir.path().join("sweep.csv"), dir.path().join("sweep.svg"));
    let common = ["bench", "sweep", "--rates", "400,200", "--seconds", "1", "--json"];
    let files = ["--csv", text(&csv), "--svg", text(&svg), "--iterations", "10"];
    let report = tercio(common.iter().chain(&files)).good().json();
    let steps = report["steps"].as_array().unwrap();
    let offered: Vec<_> = steps.iter().map(|step| step["offered_rps"].as_f64().unwrap()).collect();
    assert_eq!(offered, [200.0, 400.0]);
    assert!(steps[0]["latency_us"]["min"].as_f64() <= steps[0]["latency_us"]["p50"].as_f64());
    assert_eq!(report["settings"]["iterations"], 10);
    assert!(fs::read_to_string(csv).unwrap().lines().count() == 3);
    assert!(fs::read_to_string(svg).unwrap().contains("99 of 100"));
}
