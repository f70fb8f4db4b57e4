//! What a replica process says of itself in its home, for whoever started it and for
//! `tercio status`.
//!
//! `tercio start` writes the file `status.json` about five times a second, whole (under another
//! name, then renamed), so that a reader never sees half of one. A file says nothing of whether its
//! writer still lives: readers look at the process and at the age ([`ReplicaReport::age`]). Nothing
//! stands on this file: a report that cannot be written (a full disk, no descriptor, a home that is
//! read-only) is counted, said once, and tried again with the next.

use crate::NodeStatus;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_execution::LabelRange;
use tercio_ledger::describe;
use tercio_sync::transfer::{SourceStatus, TransferStatus};

/// The name of the file.
pub const STATUS_FILE: &str = "status.json";

/// What a replica process says of itself. What a report of another version lacks is at its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaReport {
    /// The replica.
    pub id: u16,
    /// The process, which tells a report from one that an earlier process left behind.
    pub pid: u32,
    /// When this was written, in milliseconds since 1970 by the writer's clock.
    pub written_unix_ms: u64,
    /// The height that this process took up from the disk.
    pub start_height: u64,
    /// The last executed height.
    pub height: u64,
    /// The last delivered sequence number.
    pub delivered: u64,
    /// How long ago there was progress, in milliseconds: a number delivered or executed, a step
    /// towards a checkpoint. Time goes on for a replica that stands still, too.
    pub progress_ms: u64,
    /// Delivered numbers that are not executed yet.
    pub executing: u64,
    /// How long execution has had something to do and finished nothing, in milliseconds.
    pub executing_ms: u64,
    /// How long nothing has been read from the links, since a queue before execution or the log is
    /// full, in milliseconds.
    pub stalled_ms: u64,
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
    /// Whether blocks or state are being fetched from others.
    pub catching_up: bool,
    /// How many bytes of missed blocks came from others since the start.
    pub fetched_block_bytes: u64,
    /// How the fetching of state goes, or went the last time.
    pub transfer: Option<TransferReport>,
    /// When its log was lost: what keeps it from voting.
    pub learning: Option<String>,
    /// Of such a one: whether it takes part again once another view begins.
    #[serde(default)]
    pub rejoins: bool,
    /// How the replica's clock differs from that of a primary, as of the last proposal that says so.
    pub clock: Option<ClockReport>,
    /// How states differ that others signed, the last of each replica.
    pub divergences: Vec<DivergenceReport>,
    /// Who broke the protocol, as far as that names somebody, each with the last reason.
    pub accused: BTreeMap<u16, String>,
    /// Back-pressure: whether clients are refused as busy.
    pub busy: bool,
    /// How many blocks of its log are damaged.
    pub damaged_blocks: u64,
    /// How many copies of blocks others sent for them since the start.
    pub fetched_blocks: u64,
    /// How many were put back since the start.
    pub repaired_blocks: u64,
    /// How many bytes of the log were scrubbed since the start.
    pub scrubbed_bytes: u64,
    /// Packages that wait to be ordered.
    pub pending: u64,
    /// How long the oldest of them has waited, in milliseconds; none when none waits.
    pub oldest_pending_ms: Option<u64>,
    /// What the next number waits for, when it cannot move.
    pub waiting: Option<Waiting>,
    /// The other replicas, as this one sees them.
    pub peers: Vec<Peer>,
    /// How often a replica says where it stands when there is nothing else to say, in milliseconds:
    /// a peer of which more than that is not heard is not well.
    pub idle_interval_ms: u64,
    /// Where the network or a client of it uses SM2: the arithmetic that checks it, `ifma` or
    /// `scalar`.
    pub sm2_backend: Option<String>,
    /// How many signatures were checked since the start.
    pub signatures: u64,
    /// In how many batches.
    pub signature_batches: u64,
    /// How many more came that had been found good before, and were not checked again.
    pub signatures_spared: u64,
    /// Resident memory, in MiB.
    pub rss_mb: f64,
    /// Bytes on the disk, by directory of `data/`, looked at every five seconds.
    pub disk_bytes: BTreeMap<String, u64>,
    /// Operations that were ordered since the start; they are executed or about to be.
    pub operations: u64,
    /// The packages that they came in.
    pub packages: u64,
    /// The batches that those came in.
    pub batches: u64,
    /// Why the replica left a view last.
    pub view_change_cause: Option<String>,
    /// How many entries wait in the queue before each stage.
    pub queues: BTreeMap<String, u64>,
    /// How many reports could not be written since the start.
    pub unwritten_reports: u64,
    /// While the log is replayed at the start: how far that is. Nothing else is known then.
    pub starting: Option<Starting>,
    /// What was dropped or lost, and how others broke the protocol, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// How a replica's clock differs from a primary's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReport {
    /// The primary.
    pub primary: u16,
    /// How far its proposal was ahead of this replica's clock, in milliseconds; below zero, behind.
    pub ahead_ms: i64,
    /// Whether that was too far for this replica to vote for it of its own accord.
    pub refused: bool,
    /// Whether the proposal was decided.
    pub decided: bool,
}

/// How far a replica is that starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starting {
    /// How many blocks of the log it has replayed.
    pub replayed: u64,
    /// How many there are to replay; 0 until that is known.
    pub blocks: u64,
}

impl fmt::Display for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { blocks: 0, .. } => f.write_str("starts"),
            Self { replayed, blocks } => write!(f, "starts: replays {replayed} of {blocks} blocks"),
        }
    }
}

/// What the next number waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The message: `PREPARE`, say.
    pub message: String,
    /// The replicas that have not sent it.
    pub missing: Vec<u16>,
}

/// Another replica, as one sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The replica.
    pub id: u16,
    /// Whether there is a link to it.
    pub linked: bool,
    /// For how long it has been so, in milliseconds.
    pub since_ms: u64,
    /// How long ago a frame last came from it, in milliseconds; none while there was none.
    #[serde(default)]
    pub heard_ms: Option<u64>,
    /// Why there is no link, as far as that is known.
    pub problem: Option<String>,
}

/// How the fetching of state goes, or went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferReport {
    /// `asking`, `comparing`, `fetching`, `installing` or `pausing`; at the end `done`, `blocks` or
    /// `nobody`.
    pub phase: String,
    /// The height of the state.
    pub height: u64,
    /// How many bytes came.
    pub bytes: u64,
    /// About how many bytes the whole state has, as most sources say; 0 until one is chosen. What
    /// was here already does not come.
    pub state_bytes: u64,
    /// How many nodes of trees came.
    pub nodes: u64,
    /// How many chunks came.
    pub chunks: u64,
    /// How many chunks were here already.
    pub reused: u64,
    /// Who gives what.
    pub sources: Vec<SourceReport>,
    /// Who was dropped as a source, and why.
    pub dropped: Vec<DroppedReport>,
}

/// What a replica gives to one that fetches state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Which replica.
    pub replica: u16,
    /// How many bytes came from it.
    pub bytes: u64,
    /// `asked`, `source`, `elsewhere` or `dropped`.
    pub state: String,
}

/// A replica that was no good as a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedReport {
    /// Which replica.
    pub replica: u16,
    /// Why.
    pub reason: String,
}

/// How a state differs that another replica signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceReport {
    /// The other replica.
    pub replica: u16,
    /// The sequence number of the checkpoint.
    pub number: u64,
    /// What differs first: `the state digest`, say.
    pub what: String,
    /// The ranges of keys in which it differs; none as long as the other has not shown them.
    pub keys: Vec<KeyRange>,
}

/// A range of keys, as text: in quotes what can be printed, everything else in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// The first key; none when the range begins with the state.
    pub from: Option<String>,
    /// The first key behind it; none when it ends with the state.
    pub to: Option<String>,
}

impl From<&LabelRange> for KeyRange {
    fn from(range: &LabelRange) -> Self {
        let text = |label: &Bytes| {
            if label.iter().all(u8::is_ascii_graphic) {
                return format!("\"{}\"", label.escape_ascii());
            }
            label.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
        };
        let from = Some(&range.from).filter(|label| !label.is_empty()).map(text);
        Self { from, to: range.to.as_ref().map(text) }
    }
}

impl From<&TransferStatus> for TransferReport {
    fn from(status: &TransferStatus) -> Self {
        let source = |source: &SourceStatus| SourceReport {
            replica: source.replica.0,
            bytes: source.bytes,
            state: source.state.to_owned(),
        };
        let dropped = status.dropped.iter();
        Self {
            phase: status.phase.to_owned(),
            height: status.height.0,
            bytes: status.bytes,
            state_bytes: status.state_bytes,
            nodes: status.nodes,
            chunks: status.chunks,
            reused: status.reused,
            sources: status.sources.iter().map(source).collect(),
            dropped: dropped
                .map(|(id, reason)| DroppedReport { replica: id.0, reason: (*reason).to_owned() })
                .collect(),
        }
    }
}

impl ReplicaReport {
    /// What the status of a replica amounts to, but for what only its process knows: pid, time,
    /// memory and the height at its start.
    #[must_use]
    pub fn of(status: &NodeStatus) -> Self {
        let counts = [&status.dropped, &status.evidence, &status.links, &status.protocol.dropped];
        let dropped = counts.into_iter().flatten().map(|(reason, n)| ((*reason).to_owned(), *n));
        let checkpoint = status.checkpoint.as_ref();
        let protocol = &status.protocol;
        let age = |since: Instant| millis(status.at.since(since));
        Self {
            id: status.id.0,
            height: status.height.0,
            delivered: protocol.delivered.0,
            progress_ms: age(protocol.progress_at),
            executing: status.executing,
            executing_ms: status.executing_since.map_or(0, age),
            stalled_ms: status.stalled_since.map_or(0, age),
            checkpoint_seq: checkpoint.map_or(0, |c| c.seq.0),
            checkpoint_height: checkpoint.map_or(0, |c| c.height.0),
            state_digest: checkpoint.map_or_else(String::new, |c| c.state.to_string()),
            stable: protocol.stable.0,
            view: protocol.view.0,
            primary: protocol.primary.0,
            changing: protocol.changing,
            view_changes: protocol.view_changes,
            catching_up: status.catching_up,
            fetched_block_bytes: status.fetched_block_bytes,
            transfer: status.transfer.as_ref().map(TransferReport::from),
            learning: protocol.learning.as_ref().map(ToString::to_string),
            rejoins: (protocol.learning.and_then(|learning| learning.floor))
                .is_some_and(|floor| floor.seq <= protocol.stable),
            clock: protocol.clock.map(|clock| ClockReport {
                primary: clock.primary.0,
                ahead_ms: clock.micros / 1000,
                refused: clock.refused,
                decided: clock.decided,
            }),
            divergences: (status.divergences.iter())
                .map(|(replica, divergence)| DivergenceReport {
                    replica: replica.0,
                    number: divergence.seq.0,
                    what: divergence.what.to_string(),
                    keys: divergence.keys.iter().map(KeyRange::from).collect(),
                })
                .collect(),
            accused: (status.accused.iter())
                .map(|(replica, reason)| (replica.0, (*reason).to_owned()))
                .collect(),
            busy: status.busy,
            damaged_blocks: status.repair.damaged,
            fetched_blocks: status.repair.fetched,
            repaired_blocks: status.repair.repaired,
            scrubbed_bytes: status.repair.scrubbed_bytes,
            pending: protocol.pending as u64,
            oldest_pending_ms: protocol.oldest_pending.map(age),
            signatures: status.checked.signatures,
            signature_batches: status.checked.batches,
            signatures_spared: status.checked.spared,
            waiting: protocol.waiting.as_ref().map(|(awaited, missing)| Waiting {
                message: awaited.to_string(),
                missing: missing.iter().map(|replica| replica.0).collect(),
            }),
            peers: (status.peers.iter())
                .map(|peer| Peer {
                    id: peer.id.0,
                    linked: peer.linked,
                    since_ms: millis(peer.since),
                    heard_ms: peer.heard.map(millis),
                    problem: peer.problem.clone(),
                })
                .collect(),
            dropped: dropped.collect(),
            ..Self::default()
        }
    }

    /// How old it is at `now_unix_ms`; zero when the clock was set back since.
    #[must_use]
    pub fn age(&self, now_unix_ms: u64) -> Duration {
        Duration::from_millis(now_unix_ms.saturating_sub(self.written_unix_ms))
    }

    /// Puts the report into a replica's home. What an earlier process left half written there is no
    /// obstacle, whoever owns it.
    ///
    /// # Errors
    /// When the directory cannot be written. The text names the file and what to do.
    pub fn write(&self, home: &Path) -> io::Result<()> {
        let (temporary, file) = (home.join("status.json.new"), home.join(STATUS_FILE));
        let written = create_anew(&temporary, &serde_json::to_vec(self)?);
        written.and_then(|()| fs::rename(&temporary, &file)).map_err(|error| {
            // It would take room on a full disk.
            let _ = fs::remove_file(&temporary);
            describe("write", &file, &error)
        })
    }

    /// Reads the report in a replica's home.
    ///
    /// # Errors
    /// When there is none, or it is none.
    pub fn read(home: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(home.join(STATUS_FILE))?)?)
    }
}

/// Writes a file of this name, in the place of what is there.
fn create_anew(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let create = || File::create_new(path);
    let mut file = create().or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            fs::remove_file(path).or_else(|_| fs::remove_dir(path))?;
            create()
        }
        _ => Err(error),
    })?;
    file.write_all(bytes)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// What is left of an earlier process, and what somebody else has put there.
    #[test]
    fn a_stale_temporary_file_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let (home, elsewhere) = (folder.path(), folder.path().join("elsewhere"));
        let temporary = home.join("status.json.new");
        let report = ReplicaReport { id: 3, ..ReplicaReport::default() };
        fs::write(&temporary, "half of a rep").unwrap();
        report.write(home).unwrap();
        fs::create_dir(&temporary).unwrap();
        report.write(home).unwrap();
        fs::write(&elsewhere, "keep this").unwrap();
        symlink(&elsewhere, &temporary).unwrap();
        report.write(home).unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"keep this", "no link is followed");
        assert_eq!(ReplicaReport::read(home).unwrap().id, 3);
        assert!(!temporary.exists());
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(STATUS_FILE)).unwrap();
        let error = ReplicaReport::default().write(folder.path()).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("status.json"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
