//! The files of the demonstration.

use crate::failure::Failure;
use crate::{folder, stop};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tercio_bench::setup::BenchError;
use tercio_client::Client;
use tercio_exchange::query::{MAX_ITEMS, OrdersAnswer, Query};
use tercio_exchange::replay::{self, Event};
use tercio_exchange::{Command, Outcome};

/// Where the replicas' directories are.
pub(crate) enum Folder {
    Kept(PathBuf),
    Temporary(stop::TemporaryDir),
}

impl Folder {
    /// The directory to keep, which must be empty or not exist, or one that goes away.
    pub(crate) fn new(keep: Option<&Path>) -> Result<Self, Failure> {
        let Some(dir) = keep else {
            return Ok(Self::Temporary(stop::temporary_dir("tercio-demo-")?));
        };
        folder::make(dir)?;
        Ok(Self::Kept(dir.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(dir) => dir.path(),
        }
    }

    /// Why the network in it failed.
    pub(crate) fn failure(&self, error: impl Into<BenchError>) -> Failure {
        match self {
            Self::Kept(_) => Failure::new(error.into()),
            Self::Temporary(dir) => dir.failure(error),
        }
    }
}

/// The events of a file.
pub(crate) fn read_events(file: &Path) -> Result<Vec<Event>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::at(file, error))?;
    let events = replay::parse_events(&text).map_err(|error| Failure::at(file, error))?;
    if events.is_empty() {
        return Err(Failure::at(file, "has no events"));
    }
    Ok(events)
}

/// Looks whether a file can be written, and empties it.
pub(crate) fn must_be_writable(file: &Path) -> Result<(), Failure> {
    File::create(file).map(drop).map_err(|error| Failure::at(file, error))
}

/// Writes trades and book as `docs/exchange.md` says, and gives the number of events whose order
/// was unknown.
pub(crate) fn write_results(
    events: &[Event],
    outcomes: &[Outcome],
    client: &mut Client,
    trades_out: Option<&Path>,
    book_out: Option<&Path>,
) -> Result<u64, Failure> {
    if let Some(file) = trades_out {
        let commands: Vec<Command> = events.iter().map(|event| event.command(0)).collect();
        let trades = replay::trades_from_outcomes(commands.iter().zip(outcomes));
        let trades = trades.map_err(Failure::new)?;
        write(file, |out| replay::write_trades(&trades, out))?;
    }
    if let Some(file) = book_out {
        let orders = replay::book_from_query_pages(book_pages(client)?).map_err(Failure::new)?;
        write(file, |out| replay::write_book(&orders, out))?;
    }
    Ok(replay::Summary::of(outcomes).unknown)
}

fn book_pages(client: &mut Client) -> Result<Vec<bytes::Bytes>, Failure> {
    let mut pages = vec![];
    let mut after = None;
    loop {
        let question = Query::Orders { symbol: 0, after, limit: MAX_ITEMS };
        let page = client.query(question.to_bytes()).map_err(Failure::new)?;
        let read: OrdersAnswer = serde_json::from_slice(&page).map_err(|error| {
            Failure::new(format!("the exchange answered with no page: {error}"))
        })?;
        pages.push(page);
        match read.next {
            Some(next) => after = Some(next),
            None => return Ok(pages),
        }
    }
}

fn write(
    file: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = File::create(file).and_then(|out| {
        let mut out = BufWriter::new(out);
        content(&mut out)?;
        out.flush()
    });
    written.map_err(|error| Failure::at(file, error))
}
