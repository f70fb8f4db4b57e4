//! What a replica process says of itself in its directory, for whoever started it.
//!
//! `tercio start` writes the file `status.json` about five times a second, whole (under another
//! name, then renamed), so that a reader never sees half of one.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// The name of the file.
pub const STATUS_FILE: &str = "status.json";

/// What a replica process says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// The replica.
    pub id: u16,
    /// The process, which tells a report from one that an earlier process left behind.
    pub pid: u32,
    /// The height that this process took up from the disk.
    pub start_height: u64,
    /// The last executed height.
    pub height: u64,
    /// The last delivered sequence number.
    pub delivered: u64,
    /// The sequence number of the last checkpoint; nothing but null requests may lie above it when
    /// its height is the last.
    pub checkpoint_seq: u64,
    /// The height of that checkpoint.
    pub checkpoint_height: u64,
    /// The digest of the state there.
    pub state_digest: String,
    /// The stable checkpoint's sequence number.
    pub stable: u64,
    /// The view.
    pub view: u64,
    /// Its primary.
    pub primary: u16,
    /// Whether a view change runs.
    pub changing: bool,
    /// How many views this process entered after its first.
    pub view_changes: u64,
    /// Whether blocks are being fetched from others.
    pub catching_up: bool,
    /// Packages that wait to be ordered.
    pub pending: u64,
    /// What was dropped or lost, and how others broke the protocol, by reason.
    pub dropped: std::collections::BTreeMap<String, u64>,
}

impl ReplicaReport {
    /// Puts the report into a replica's directory.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let temporary = dir.join("status.json.new");
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(temporary, dir.join(STATUS_FILE))
    }

    /// Reads the report in a replica's directory.
    ///
    /// # Errors
    /// When there is none, or it is none.
    pub fn read(dir: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(dir.join(STATUS_FILE))?)?)
    }
}
