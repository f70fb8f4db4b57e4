//! What a replica keeps on disk: the [`BlockLog`] (the agreed chain), the [`Wal`] (the promises of
//! consensus), the [`SnapshotStore`], the [`Staging`] of a state that is being fetched, the [`DataDir`] that holds them, and [`audit()`], which proves
//! offline that a log is what a quorum signed.
//!
//! Everything stands on [`Storage`], a flat directory of files: [`DirStorage`] is a real one,
//! [`MemStorage`] models a page cache and its crashes. `docs/format-disk.md` lists every byte, what
//! is assumed of the medium, and how each file recovers.
//!
//! Disk errors are fail-stop. A failed write or fsync may have lost bytes that a later fsync
//! reports as safe, so an object that saw one refuses everything after it
//! ([`LedgerError::Poisoned`]).
//!
//! Architecture invariant: nothing here knows consensus rules, the application's meaning, threads
//! or clocks.

pub mod audit;
mod block_log;
mod certificate;
mod disk;
mod error;
mod manifest;
mod records;
mod results;
mod salvage;
mod segment;
mod snapshot;
mod staging;
mod storage;
mod wal;
mod wal_mark;

pub use audit::{AuditFailure, AuditProgress, AuditReport, audit, hash_at, results_at};
pub use block_log::{Block, BlockLog, BlockLogSettings, Recovery, Wanted, WantedResults};
pub use certificate::{CertificateError, attestation_key, verify};
pub use disk::Removal;
pub use error::LedgerError;
pub use manifest::{DataDir, DataDirError, Identity};
pub use records::Cut;
pub use results::{BlockResults, Kept, PackageResults};
pub use snapshot::{Child, SnapshotHead, SnapshotRecord, SnapshotStore, StoredSnapshot};
pub use staging::Staging;
pub use storage::{DirStorage, MediaFault, MemStorage, Storage, describe};
pub use wal::{MAX_RECORD, Wal, WalRecord, WalSettings};
pub use wal_mark::{WalEnd, WalMark, WalWentBack};

/// The version of the files that this build writes and reads; any other is refused.
pub const DISK_VERSION: u32 = 3;
