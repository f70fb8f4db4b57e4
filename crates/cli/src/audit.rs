//! `tercio audit`: proves offline that the logs of replicas are what a quorum signed.
//!
//! Of a network's directory each replica in it is audited, and each is reported, whatever becomes of
//! the others. Logs that are good must also be one log, as far as the shortest of them goes.

mod results;

use crate::failure::Failure;
use crate::{folder, output};
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tercio_genesis::replica_home::{CONFIG_FILE, DATA_DIR};
use tercio_genesis::{GENESIS_FILE, read_genesis};
use tercio_ledger::{AuditFailure, AuditProgress, AuditReport, DataDir, DirStorage, hash_at};
use tercio_types::{ChainId, Height};

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 when every log is good and they agree, 1 otherwise.")]
pub(crate) struct Args {
    /// The home of a replica that does not run, or a network's directory with several
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print the results of the block of this height, and what proves them; of one replica's home
    #[arg(long, value_name = "HEIGHT", value_parser = clap::value_parser!(u64).range(1..))]
    results: Option<u64>,
    /// Print one JSON object; of a network's directory its `replicas` are an array
    #[arg(long)]
    json: bool,
}

/// Why a log is not good.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// There is nothing to audit here.
    Unusable(Failure),
    /// The log is damaged, or is not what a quorum signed.
    Damage(AuditFailure),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unusable(failure) => failure.fmt(f),
            Self::Damage(failure) => failure.fmt(f),
        }
    }
}

/// A good log, which nobody else may use meanwhile.
pub(crate) struct Audited {
    replica: u16,
    report: AuditReport,
    chain: ChainId,
    blocks: DirStorage,
    _data: DataDir,
}

#[derive(Serialize)]
struct Good {
    audit: &'static str,
    replica: u16,
    height: u64,
    blocks: u64,
    operations: u64,
    segments: u64,
    certificates: u64,
    last_certified: u64,
    /// Of how many blocks results are kept, from which to which, and up to which a certificate proves
    /// them.
    results: u64,
    results_first: u64,
    results_last: u64,
    results_certified: u64,
    head: String,
    torn_bytes: u64,
    /// Places among certificates, attestations and results that cannot be read.
    lost: Vec<String>,
}

#[derive(Serialize)]
struct Bad {
    audit: &'static str,
    /// Which replica's home it is; of a home by itself nothing says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<u16>,
    /// What is wrong, in a line.
    error: String,
    file: Option<String>,
    block: Option<u64>,
    field: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    Good(Good),
    Bad(Bad),
}

/// Several replicas.
#[derive(Serialize)]
struct All {
    audit: &'static str,
    replicas: Vec<Row>,
    /// Up to which height the good logs were compared, which is as far as the shortest of them goes.
    compared_height: u64,
    /// The hashes of the block there, and whose log has it; one when they agree.
    heads: BTreeMap<String, Vec<u16>>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // A replica's home has no homes in it, and none of it needs to be readable to be told apart.
    let genesis = folder::genesis(&args.dir).ok();
    let homes = genesis.as_ref().map_or(vec![], |genesis| folder::replicas(&args.dir, genesis));
    if !homes.is_empty() && args.results.is_some() {
        let (_, home) = &homes[0];
        return Err(Failure::new(format!(
            "--results takes the home of one replica, such as {}; all of them have the same",
            home.display()
        )));
    }
    if !homes.is_empty() {
        return all(&homes, args.json);
    }
    if genesis.is_some()
        && !args.dir.join(CONFIG_FILE).exists()
        && !args.dir.join(DATA_DIR).exists()
    {
        return Err(folder::no_replica(&args.dir));
    }
    match watched(&args.dir) {
        Ok(audited) => match args.results {
            Some(height) => results::run(&args.dir, &audited, height, args.json),
            None => output::report(args.json, &Good::of(&audited), print),
        },
        Err(Flaw::Unusable(failure)) => Err(failure),
        Err(flaw @ Flaw::Damage(_)) => {
            if args.json {
                output::report(true, &Bad::of(None, &flaw), |_| {})?;
            }
            Err(Failure::new(format!("audit failed: {flaw}; {}", advice(&args.dir))))
        }
    }
}

/// What to do about a damaged log.
fn advice(home: &Path) -> String {
    format!(
        "restore the file from a copy, or empty {} and let the replica catch up",
        home.join(DATA_DIR).display()
    )
}

/// Audits the homes, one after the other, and then compares what is good.
fn all(homes: &[(u16, PathBuf)], json: bool) -> Result<(), Failure> {
    let (mut rows, mut good, mut wrong) = (vec![], vec![], vec![]);
    for (id, home) in homes {
        let row = match watched(home) {
            Ok(audited) => {
                let row = Row::Good(Good::of(&audited));
                good.push((*id, audited));
                row
            }
            Err(flaw) => {
                wrong.push(format!("replica {id}: {flaw}"));
                Row::Bad(Bad::of(Some(*id), &flaw))
            }
        };
        if !json {
            match &row {
                Row::Good(good) => print(good),
                Row::Bad(bad) => {
                    let advice = bad.file.as_ref().map(|_| format!("; {}", advice(home)));
                    let advice = advice.unwrap_or_default();
                    output::line(&format!("audit: FAILED, replica {id}: {}{advice}", bad.error));
                }
            }
        }
        rows.push(row);
    }
    let (height, heads) = compare(&good)?;
    if heads.len() > 1 {
        let heads = heads.iter().map(|(hash, ids)| format!("{hash} in that of {}", list(ids)));
        let heads: Vec<String> = heads.collect();
        let what = format!("the logs differ at height {height}: block {}", heads.join(", "));
        if !json {
            output::line(&format!("audit: FAILED, {what}"));
        }
        wrong.push(what);
    }
    let audit = if wrong.is_empty() { "ok" } else { "failed" };
    let all = All { audit, replicas: rows, compared_height: height, heads };
    output::report(json, &all, |all| {
        if all.heads.len() == 1 && good.len() > 1 {
            let count = good.len();
            output::line(&format!("audit: {count} logs are one up to height {height}"));
        }
    })?;
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("audit failed: {}", wrong.join("; ")))),
    }
}

/// The last height that all these logs have, and the hashes of its block with whose log has it. A log
/// that begins above it is left out.
fn compare(good: &[(u16, Audited)]) -> Result<(u64, BTreeMap<String, Vec<u16>>), Failure> {
    let last = good.iter().map(|(_, audited)| audited.report.last.unwrap_or_default());
    let height = last.min().unwrap_or_default();
    let mut heads: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for (id, audited) in good.iter().filter(|_| height > Height(0)) {
        let hash = hash_at(&audited.blocks, audited.chain, height).map_err(Failure::new)?;
        if let Some(hash) = hash {
            heads.entry(hash.to_string()).or_default().push(*id);
        }
    }
    Ok((height.0, heads))
}

/// `replica 1`, `replicas 1, 2`.
fn list(ids: &[u16]) -> String {
    let plural = if ids.len() == 1 { "" } else { "s" };
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("replica{plural} {}", ids.join(", "))
}

/// Audits a home behind a progress bar.
fn watched(home: &Path) -> Result<Audited, Flaw> {
    let bar = output::bar(Some(0), std::time::Duration::ZERO);
    let result = check(home, &mut |progress| draw(&bar, progress));
    bar.finish_and_clear();
    result
}

impl Good {
    fn of(audited: &Audited) -> Self {
        let report = &audited.report;
        Self {
            audit: "ok",
            replica: audited.replica,
            height: report.last.map_or(0, |h| h.0),
            blocks: report.blocks,
            operations: report.operations,
            segments: report.segments,
            certificates: report.certificates,
            last_certified: report.last_certified.map_or(0, |h| h.0),
            results: report.results,
            results_first: report.results_first.map_or(0, |h| h.0),
            results_last: report.results_last.map_or(0, |h| h.0),
            results_certified: report.results_proven.last().map_or(0, |range| range.end().0),
            head: report.head.to_string(),
            torn_bytes: report.torn_bytes,
            lost: report.lost.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Bad {
    fn of(replica: Option<u16>, flaw: &Flaw) -> Self {
        let damage = match flaw {
            Flaw::Unusable(_) => None,
            Flaw::Damage(failure) => Some(failure),
        };
        Self {
            audit: "failed",
            replica,
            error: flaw.to_string(),
            file: damage.map(|failure| failure.file.clone()),
            block: damage.and_then(|failure| failure.height).map(|height| height.0),
            field: damage.map(|failure| failure.field.clone()),
        }
    }
}

/// Audits the log in a replica's home.
pub(crate) fn check(
    home: &Path,
    progress: &mut dyn FnMut(&AuditProgress),
) -> Result<Audited, Flaw> {
    let unusable = |error: &dyn std::fmt::Display| Flaw::Unusable(Failure::new(error));
    let genesis =
        read_genesis(&home.join(GENESIS_FILE), crate::apps()).map_err(|e| unusable(&e))?;
    let membership = genesis.membership().map_err(|e| unusable(&e))?;
    let data = DataDir::open(home.join(DATA_DIR)).map_err(|e| unusable(&e))?;
    let (chain, identity) = (membership.chain(), *data.identity());
    if identity.chain != chain {
        return Err(unusable(&format!(
            "{} belongs to chain {}, but the genesis beside it is that of chain {chain}; put the \
             right genesis there",
            data.path().display(),
            identity.chain
        )));
    }
    let blocks = data.blocks().map_err(|e| unusable(&e))?;
    let report = tercio_ledger::audit(&blocks, &membership, progress).map_err(Flaw::Damage)?;
    Ok(Audited { replica: identity.replica.0, report, chain, blocks, _data: data })
}

fn draw(bar: &ProgressBar, progress: &AuditProgress) {
    if progress.blocks % 64 == 1 {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.bytes);
    }
}

fn print(good: &Good) {
    output::line(&format!(
        "audit: ok, replica {}: {} blocks up to height {} with {} operations in {} segment(s), {} \
         certificate(s), certified up to height {}{}{}{}",
        good.replica,
        good.blocks,
        good.height,
        good.operations,
        good.segments,
        good.certificates,
        good.last_certified,
        match good.results {
            0 => ", no results".into(),
            results => format!(
                ", results of {results} blocks, {} to {}, certified up to height {}",
                good.results_first, good.results_last, good.results_certified
            ),
        },
        match good.torn_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} bytes of an unfinished write at the end"),
        },
        match &good.lost[..] {
            [] => String::new(),
            lost => format!(", without {}, which the others make up for", lost.join(" and ")),
        }
    ));
}
