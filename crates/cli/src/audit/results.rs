//! `tercio audit HOME --results HEIGHT`: what the operations of a block gave, and what proves it.

use super::{Audited, Failure};
use crate::output;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use tercio_genesis::{App, GENESIS_FILE, read_genesis};
use tercio_ledger::{BlockResults, PackageResults, results_at};
use tercio_types::{Digest, Height};
use tercio_wire::{OpResult, decode_results};

#[derive(Serialize)]
struct Kept {
    audit: &'static str,
    replica: u16,
    height: u64,
    /// The chained results before the block, its results root, the state where headers carry it, and
    /// what these are chained to: what a certificate at this height has.
    chained_before: String,
    results_root: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    chained: String,
    /// The height of the certificate that proves them; null when none does yet.
    certified_at: Option<u64>,
    packages: Vec<Package>,
}

#[derive(Serialize)]
struct Package {
    client: u64,
    first: u64,
    digest: String,
    /// Null when they are too long to be kept.
    results: Option<Vec<Row>>,
}

#[derive(Serialize)]
struct Row {
    number: u64,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip)]
    text: String,
}

/// Prints the results of a block of a log that was found good.
pub(super) fn run(home: &Path, audited: &Audited, height: u64, json: bool) -> Result<(), Failure> {
    let found = results_at(&audited.blocks, audited.chain, Height(height)).map_err(Failure::new)?;
    let Some(found) = found else { return Err(Failure::new(absent(audited, height))) };
    let genesis = read_genesis(&home.join(GENESIS_FILE), crate::apps()).map_err(Failure::new)?;
    let mut proven = audited.report.results_proven.iter();
    let kept = Kept {
        audit: "ok",
        replica: audited.replica,
        height,
        chained_before: found.before.to_string(),
        results_root: found.root.to_string(),
        state: found.state.map(|state| state.to_string()),
        chained: found.chained().to_string(),
        certified_at: proven.find(|range| range.contains(&Height(height))).map(|r| r.end().0),
        packages: found.packages.iter().map(|p| package(&genesis.app, &found, p)).collect(),
    };
    output::report(json, &kept, print)
}

/// Why there are none.
fn absent(audited: &Audited, height: u64) -> String {
    let report = &audited.report;
    match (report.results_first, report.results_last) {
        (Some(first), Some(last)) if (first.0..=last.0).contains(&height) => format!(
            "the results of block {height} were kept and are lost here; audit the home of another \
             replica, which has the same"
        ),
        (Some(first), Some(last)) => {
            format!(
                "there are results of blocks {first} to {last} here, and none of block {height}"
            )
        }
        _ => "no results are kept here; `results` under [retain] of replica.toml says so".into(),
    }
}

fn package(app: &App, block: &BlockResults, package: &PackageResults) -> Package {
    let PackageResults { client, first, .. } = package;
    let digest = block.digest(package).unwrap_or(Digest::NULL);
    let results = block.body(package).map(|body| {
        // The audit has read them.
        let results = decode_results(&body, block.suite).unwrap_or_default();
        (first.0..).zip(results).map(|(number, result)| row(app, number, &result)).collect()
    });
    Package { client: client.0, first: first.0, digest: digest.to_string(), results }
}

fn row(app: &App, number: u64, result: &OpResult) -> Row {
    let status = format!("{:?}", result.status());
    let (text, result) = match result {
        OpResult::Executed(bytes) => {
            let shown = app.result(bytes);
            (shown.text, Some(shown.value))
        }
        OpResult::Declined(why) => {
            let why = String::from_utf8_lossy(why);
            (format!("declined: {why}"), Some(Value::from(why)))
        }
        OpResult::BeyondWindow => ("beyond the window, not executed".into(), None),
        OpResult::NoLongerKept => ("executed earlier; its result was no longer kept".into(), None),
        OpResult::Unsupported => ("not supported".into(), None),
        OpResult::OutsideFootprint => {
            ("aborted: it touched what the application does not declare for it".into(), None)
        }
        OpResult::Panicked => ("aborted: the application panicked over it".into(), None),
    };
    Row { number, status, result, text }
}

fn print(kept: &Kept) {
    for Package { client, first, digest, results } in &kept.packages {
        let Some(results) = results else {
            let what = format!("client {client}, from number {first}: too long, digest {digest}");
            output::line(&what);
            continue;
        };
        for Row { number, text, .. } in results {
            output::line(&format!("client {client}, number {number}: {text}"));
        }
    }
    let Kept { height, results_root, chained, certified_at, .. } = kept;
    let proof = match certified_at {
        Some(at) => format!("proven by the certificate of height {at}"),
        None => "not proven by a certificate yet".into(),
    };
    output::line(&format!("block {height}: results {results_root}, chained {chained}, {proof}"));
}
