//! `tercio audit`: proves offline that a replica's log is what a quorum signed.

use crate::failure::Failure;
use crate::{folder, output};
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use tercio_genesis::replica_home::DATA_DIR;
use tercio_genesis::{GENESIS_FILE, read_genesis};
use tercio_ledger::{AuditFailure, AuditProgress, AuditReport, DataDir};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The home of a replica that does not run, or a network's directory with several
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print one JSON object for each replica, the last as the last line
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
    head: String,
    torn_bytes: u64,
    /// Places among certificates and attestations that cannot be read.
    lost: Vec<String>,
}

#[derive(Serialize)]
struct Bad<'a> {
    audit: &'static str,
    file: &'a str,
    block: Option<u64>,
    field: &'a str,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // A replica's home has no homes in it, and none of it needs to be readable to be told apart.
    let n = folder::genesis(&args.dir).map_or(0, |genesis| genesis.replicas.len());
    let homes = folder::replicas(&args.dir, n);
    if homes.is_empty() {
        return one(&args.dir, args.json);
    }
    homes.iter().try_for_each(|(_, home)| one(home, args.json))
}

/// Audits one replica's home.
fn one(home: &Path, json: bool) -> Result<(), Failure> {
    let bar = output::bar(Some(0), std::time::Duration::ZERO);
    let result = check(home, &mut |progress| draw(&bar, progress));
    bar.finish_and_clear();
    match result {
        Ok((replica, report)) => {
            let good = Good {
                audit: "ok",
                replica,
                height: report.last.map_or(0, |h| h.0),
                blocks: report.blocks,
                operations: report.operations,
                segments: report.segments,
                certificates: report.certificates,
                last_certified: report.last_certified.map_or(0, |h| h.0),
                head: report.head.to_string(),
                torn_bytes: report.torn_bytes,
                lost: report.lost.iter().map(ToString::to_string).collect(),
            };
            output::report(json, &good, print)
        }
        Err(Flaw::Unusable(failure)) => Err(failure),
        Err(Flaw::Damage(failure)) => {
            if json {
                let bad = Bad {
                    audit: "failed",
                    file: &failure.file,
                    block: failure.height.map(|h| h.0),
                    field: &failure.field,
                };
                output::report(true, &bad, |_| {})?;
            }
            Err(Failure::new(format!(
                "audit failed: {failure}; restore the file from a copy, or empty {} and let the \
                 replica catch up",
                home.join(DATA_DIR).display()
            )))
        }
    }
}

/// Audits the log in a replica's home; gives the replica's id and what the log holds.
pub(crate) fn check(
    home: &Path,
    progress: &mut dyn FnMut(&AuditProgress),
) -> Result<(u16, AuditReport), Flaw> {
    let unusable = |error: &dyn std::fmt::Display| Flaw::Unusable(Failure::new(error));
    let genesis =
        read_genesis(&home.join(GENESIS_FILE), crate::apps()).map_err(|e| unusable(&e))?;
    let membership = genesis.membership().map_err(|e| unusable(&e))?;
    let data = DataDir::open(home.join(DATA_DIR)).map_err(|e| unusable(&e))?;
    let (chain, identity) = (membership.chain(), data.identity());
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
    Ok((identity.replica.0, report))
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
         certificate(s), certified up to height {}{}{}",
        good.replica,
        good.blocks,
        good.height,
        good.operations,
        good.segments,
        good.certificates,
        good.last_certified,
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
