//! `tercio rebuild`: a replica begins again from the chain that the operators agreed on, after more
//! replicas lost their disks than may fail (`docs/recovery.md`, decision 0045).
//!
//! Nothing is removed: the data directory that was there is put aside. What is made is whole before it
//! has its name, so that an interruption leaves the one or the other.

use crate::failure::Failure;
use crate::{folder, output};
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tercio_consensus::pbft::{Decided, agreed_records};
use tercio_genesis::Genesis;
use tercio_ledger::{
    BlockLog, BlockLogSettings, DataDir, DataDirError, DirStorage, Identity, Wal, WalSettings,
    audit, describe,
};
use tercio_replica::{Data, ReplicaConfig};
use tercio_types::{DEFAULT_PROTOCOL, Height, SeqNum, View};

/// How far the view is put above the highest that anybody saw: replicas whose disks are gone may have
/// left for later ones, one at a time-out.
const VIEWS: u64 = 1000;
/// The highest view that is taken for one that a replica was in.
const MAX_VIEW: u64 = 1_000_000_000_000_000_000;
/// What is copied, by the beginnings of names, of the blocks and of the snapshots.
const BLOCKS: [&str; 4] = ["blocks-", "attest-", "results-", "certificates"];
const SNAPSHOTS: [&str; 1] = ["snapshot-"];

#[derive(Debug, clap::Args)]
#[command(
    after_help = "To be run for every replica of the network, also for those whose disks are whole, \
                  while none of them runs. All must print the same line. docs/recovery.md has the \
                  whole procedure, and what can be lost."
)]
pub(crate) struct Args {
    /// The home of the replica, which must not run
    #[arg(value_name = "HOME")]
    home: PathBuf,
    /// The data directory whose chain the operators agreed on, or a copy of it
    #[arg(long, value_name = "DATA")]
    from: PathBuf,
    /// The highest view that any replica was in, as far as anybody knows
    #[arg(long, value_name = "VIEW", value_parser = clap::value_parser!(u64).range(..=MAX_VIEW))]
    view: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What all replicas must have in common.
#[derive(Debug, Serialize)]
struct Rebuilt {
    height: u64,
    block: String,
    /// The block that a quorum's signatures prove; those above stand on the agreement of the operators.
    certified: u64,
    /// The view that the replica begins in.
    view: u64,
    /// Where the data directory went that was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    aside: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    folder::expect_replica(&args.home)?;
    let (config, genesis) = ReplicaConfig::load(&args.home, crate::apps()).map_err(Failure::new)?;
    if genesis.protocol.name() != DEFAULT_PROTOCOL {
        return Err(Failure::new(format!(
            "the network orders with '{}', and this begins logs of {DEFAULT_PROTOCOL} only",
            genesis.protocol.name()
        )));
    }
    let Data::Directory(data) = &config.data else {
        unreachable!("a home's data is a directory");
    };
    let view = View(args.view + VIEWS);
    let source = DataDir::open(&args.from).map_err(Failure::new)?;
    let same = fs::canonicalize(&args.from).ok() == fs::canonicalize(data).ok();
    if !same {
        refuse_running(data)?;
    }
    let identity =
        Identity { chain: genesis.chain(), replica: config.node.me, suite: genesis.suite };
    if source.identity().chain != identity.chain {
        return Err(Failure::at(&args.from, "belongs to another network than the home"));
    }
    let made = beside(data, "rebuilt");
    if made.exists() {
        fs::remove_dir_all(&made).map_err(|error| Failure::at(&made, error))?;
    }
    let rebuilt = make(&made, source.path(), &identity, &genesis, &config, view)?;
    drop(source);
    let aside = put_aside(data)?;
    fs::rename(&made, data).map_err(|error| Failure::at(data, error))?;
    sync(data.parent().unwrap_or(Path::new("."))).map_err(Failure::new)?;
    let rebuilt = Rebuilt { aside, ..rebuilt };
    output::report(args.json, &rebuilt, |rebuilt| {
        let Rebuilt { height, block, certified, view, aside } = rebuilt;
        if let Some(aside) = aside {
            output::line(&format!("what was there is in {}", aside.display()));
        }
        output::line(&format!(
            "height {height} block {block} view {view} ({certified} certified): every replica must \
             say the same before any is started"
        ));
    })
}

/// `data` with another end.
fn beside(data: &Path, end: &str) -> PathBuf {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{end}"));
    data.with_file_name(name)
}

/// Whoever runs on a data directory has it locked. One that is damaged has nobody that runs on it.
fn refuse_running(data: &Path) -> Result<(), Failure> {
    match DataDir::open(data) {
        Err(running @ DataDirError::InUse(_)) => Err(Failure::new(running)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Puts what is there aside, under the first name that is free.
fn put_aside(data: &Path) -> Result<Option<PathBuf>, Failure> {
    if !data.exists() {
        return Ok(None);
    }
    let free = (1..).map(|i| beside(data, &format!("aside-{i}"))).find(|path| !path.exists());
    let aside = free.expect("some name is free");
    fs::rename(data, &aside).map_err(|error| Failure::at(data, error))?;
    Ok(Some(aside))
}

/// Makes the data directory at `at` from the blocks and snapshots of `from`.
fn make(
    at: &Path,
    from: &Path,
    identity: &Identity,
    genesis: &Genesis,
    config: &ReplicaConfig,
    view: View,
) -> Result<Rebuilt, Failure> {
    let membership = genesis.membership().map_err(Failure::new)?;
    let blocks = DirStorage::open_existing(from.join("blocks")).map_err(Failure::new)?;
    let audited = audit(&blocks, &membership, &mut |_| {})
        .map_err(|flaw| Failure::at(from, format!("{flaw}; agree on another chain")))?;
    let data = DataDir::create(at, identity).map_err(Failure::new)?;
    copy(&from.join("blocks"), &at.join("blocks"), &BLOCKS).map_err(Failure::new)?;
    copy(&from.join("snapshots"), &at.join("snapshots"), &SNAPSHOTS).map_err(Failure::new)?;
    let storage = Box::new(data.blocks().map_err(Failure::new)?);
    // Opening it makes durable what was copied of its end.
    let (log, _) = BlockLog::open(storage, identity.chain, BlockLogSettings::default())
        .map_err(Failure::new)?;
    let stable = log.latest_certificate().map_err(Failure::new)?;
    let covered = stable.as_ref().map_or(Height(0), |stable| stable.checkpoint.height);
    let window = config.node.consensus.window;
    let tail = decided(&log, covered, window)?;
    let certified = stable.map_or(SeqNum(0), |stable| stable.checkpoint.seq);
    let reach = tail.last().map_or(certified, |last| last.seq);
    let storage = Box::new(data.wal().map_err(Failure::new)?);
    let (mut wal, _) =
        Wal::open(storage, identity.chain, WalSettings::default()).map_err(Failure::new)?;
    for (SeqNum(tag), record) in agreed_records(view, reach, tail) {
        wal.append(tag, &record).map_err(Failure::new)?;
    }
    wal.sync().map_err(Failure::new)?;
    let (Height(height), block) = log.tip();
    let certified = audited.last_certified.map_or(0, |height| height.0);
    Ok(Rebuilt { height, block: block.to_string(), certified, view: view.0, aside: None })
}

/// What the log has behind its last certificate.
fn decided(log: &BlockLog, covered: Height, window: u64) -> Result<Vec<Decided>, Failure> {
    let mut decided = vec![];
    for height in covered.0 + 1..=log.tip().0.0 {
        let block = log.read(Height(height)).map_err(Failure::new)?;
        let block = block.ok_or_else(|| {
            Failure::new(format!("block {height} is missing; agree on another chain"))
        })?;
        let (seq, digest) = (block.header.seq, block.header.body);
        decided.push(Decided { seq, digest, body: block.body });
    }
    if decided.len() as u64 > window {
        return Err(Failure::new(format!(
            "{} blocks have no certificate above them, and replicas order no more than {window} \
             without one: the file of certificates is damaged or missing",
            decided.len()
        )));
    }
    Ok(decided)
}

/// Copies the files whose names begin so, durably. A directory that there is not has none.
fn copy(from: &Path, to: &Path, beginnings: &[&str]) -> io::Result<()> {
    fs::create_dir_all(to).map_err(|error| describe("create", to, &error))?;
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| describe("read", from, &error))?,
    };
    for entry in entries {
        let name = entry.map_err(|error| describe("read", from, &error))?.file_name();
        let text = name.to_string_lossy();
        let wanted = beginnings.iter().any(|beginning| text.starts_with(beginning));
        if !wanted || text.ends_with(".tmp") {
            continue;
        }
        let (file, copy) = (from.join(&name), to.join(&name));
        fs::copy(&file, &copy).map_err(|error| describe("copy", &file, &error))?;
        sync(&copy)?;
    }
    sync(to)
}

/// Makes a file, or the names in a directory, durable.
fn sync(path: &Path) -> io::Result<()> {
    let path = if path == Path::new("") { Path::new(".") } else { path };
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|error| describe("sync", path, &error))
}
