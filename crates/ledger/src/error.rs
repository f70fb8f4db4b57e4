//! Why a file is not read or written.

use std::io;
use tercio_types::{ChainId, Height};
use thiserror::Error;

/// Why the ledger cannot go on. All of these are fail-stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The storage failed. The text names the file and what to do.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Bytes that were once whole are not what was written. A torn tail is not damage: it is cut
    /// on open.
    #[error(
        "{file}: damaged at byte {offset}{}: {field}; put no older copy in its place, which has \
         forgotten what this replica promised: move its data directory aside (mv data data.damaged) \
         and start it on none, so that it learns from the others (docs/backup.md)",
        height.map_or(String::new(), |h| format!(" (block {h})"))
    )]
    Damage {
        /// The file.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// The block, when it is known.
        height: Option<Height>,
        /// Which field is wrong.
        field: String,
    },
    /// The file was written by another version.
    #[error("{file}: disk format version {found}, but this build reads version {expected}")]
    Version {
        /// The file.
        file: String,
        /// The version in the file.
        found: u32,
        /// The version that this build reads.
        expected: u32,
    },
    /// The file tells how the membership changed, which no version does yet.
    #[error(
        "{file}: has records of epochs, which this build does not know; run the version that wrote \
         it, and remove nothing"
    )]
    EpochRecords {
        /// The file.
        file: String,
    },
    /// The file belongs to another network.
    #[error("{file}: belongs to chain {found}, not to {expected}; check the data directory")]
    Foreign {
        /// The file.
        file: String,
        /// The chain in the file.
        found: ChainId,
        /// Our chain.
        expected: ChainId,
    },
    /// Results that are kept are not those that execution gives now.
    #[error(
        "{file}: the results of block {height} are others than execution gives now: the application \
         is not deterministic, or of another build than when they were written; if this build is \
         the right one, remove the files results-* and restart the replica"
    )]
    OtherResults {
        /// The block.
        height: Height,
        /// The file.
        file: String,
    },
    /// An earlier write or fsync failed, so that nobody knows what is on disk until it is read
    /// again.
    #[error("refused, since an earlier write failed ({0}); restart the replica")]
    Poisoned(String),
}
