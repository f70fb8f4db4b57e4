//! What a running replica says of itself: one report, for `status.json` and for the metrics alike.

use super::{Clock, Monotonic};
use crate::NodeStatus;
use crate::metrics::Metrics;
use crate::report::ReplicaReport;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tercio_transport::Waker;

/// How long what the disk holds is not looked at again: a look takes as long as there are files.
const LOOK_AT_DISK: Duration = Duration::from_secs(5);

/// Who wants to know how the loop stands.
pub(super) type Question = Sender<NodeStatus>;

/// A channel for questions about the status. The caller waits, so there are few; and what the
/// loop leaves unanswered goes with it: in a bounded channel it would stay as long as the other end,
/// and the caller would wait for ever.
pub(super) fn questions() -> (Sender<Question>, Receiver<Question>) {
    unbounded()
}

/// What does not change while a replica runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) start_height: u64,
    pub(super) idle_interval: Duration,
    pub(super) sm2_backend: Option<String>,
    /// Where it writes; nowhere when that is memory.
    pub(super) data: Option<PathBuf>,
}

/// Asks the loop, and knows the rest.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    questions: Sender<Question>,
    waker: Waker,
    last: Arc<Mutex<NodeStatus>>,
    facts: Arc<Facts>,
    disk: Arc<Mutex<Disk>>,
    metrics: Arc<Metrics>,
}

impl Reporter {
    pub(super) fn new(
        questions: Sender<Question>,
        waker: Waker,
        last: Arc<Mutex<NodeStatus>>,
        facts: Facts,
        metrics: Arc<Metrics>,
    ) -> Self {
        let disk = Arc::new(Mutex::new(Disk::default()));
        Self { questions, waker, last, facts: Arc::new(facts), disk, metrics }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where it stands; of one that has stopped, where it stood at the end.
    pub(super) fn status(&self) -> NodeStatus {
        let answer = self.ask().and_then(|answer| answer.recv().ok());
        answer.unwrap_or_else(|| self.last.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The same from a loop that answers within this time.
    fn status_within(&self, patience: Duration) -> Option<NodeStatus> {
        self.ask()?.recv_timeout(patience).ok()
    }

    fn ask(&self) -> Option<Receiver<NodeStatus>> {
        let (answer, status) = bounded(1);
        self.questions.send(answer).ok()?;
        self.waker.wake();
        Some(status)
    }

    pub(super) fn report(&self) -> ReplicaReport {
        self.complete(&self.status())
    }

    /// Writes what the replica says of itself into its home; a failure is counted.
    pub(super) fn write(&self, home: &Path) -> (ReplicaReport, io::Result<()>) {
        let report = self.report();
        let written = report.write(home);
        if written.is_err() {
            self.metrics.counts.unwritten_reports.inc();
        }
        (report, written)
    }

    /// Takes note for the metrics of how it stands, if the loop answers within this time; otherwise
    /// they go on saying what was noted last, and when that was.
    pub(super) fn note_within(&self, patience: Duration) {
        if let Some(status) = self.status_within(patience) {
            let report = self.complete(&status);
            self.metrics.note(Arc::new(report));
        }
    }

    /// What a status amounts to, with what only the process knows.
    fn complete(&self, status: &NodeStatus) -> ReplicaReport {
        let Facts { start_height, idle_interval, sm2_backend, data } = &*self.facts;
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &self.metrics.counts;
        ReplicaReport {
            pid: std::process::id(),
            written_unix_ms: Clock::unix_ms(),
            start_height: *start_height,
            idle_interval_ms: u64::try_from(idle_interval.as_millis()).unwrap_or(u64::MAX),
            sm2_backend: sm2_backend.clone(),
            rss_mb: resident()
                .map_or(0.0, |bytes| (bytes as f64 / 1048576.0 * 10.0).round() / 10.0),
            disk_bytes: data.as_deref().map_or_else(BTreeMap::new, |data| disk.used(data)),
            operations: counts.operations.get(),
            packages: counts.packages.get(),
            batches: counts.batches.get(),
            unwritten_reports: counts.unwritten_reports.get(),
            view_change_cause: counts.last_cause().map(|cause| cause.to_string()),
            queues: counts.queues.lengths().map(|(name, n)| (name.to_owned(), n)).collect(),
            ..ReplicaReport::of(status)
        }
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// What the disk held at the last look.
#[derive(Debug, Default)]
struct Disk {
    looked: Option<Monotonic>,
    used: BTreeMap<String, u64>,
}

impl Disk {
    /// By directory. What cannot be read counts as nothing: files come and go meanwhile.
    fn used(&mut self, data: &Path) -> BTreeMap<String, u64> {
        let now = Clock::monotonic();
        if self.looked.is_none_or(|looked| now - looked >= LOOK_AT_DISK) {
            self.used = directories(data);
            self.looked = Some(Clock::monotonic());
        }
        self.used.clone()
    }
}

fn directories(data: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), allocated(&entry.path())))
        .collect()
}

/// How much the files in a directory take of the disk.
fn allocated(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::RecvTimeoutError;

    #[test]
    fn who_asks_a_replica_that_ends_does_not_wait_for_ever() {
        let (questions, asked) = questions();
        let (answer, status) = bounded(1);
        assert!(questions.send(answer).is_ok());
        drop(asked);
        let long = std::time::Duration::from_secs(10);
        assert_eq!(status.recv_timeout(long).unwrap_err(), RecvTimeoutError::Disconnected);
    }

    #[test]
    fn the_disk_is_looked_at_by_directory_and_seldom() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![1; 10_000]).unwrap();
        };
        write("wal/1");
        write("blocks/1");
        write("lock");
        let mut disk = Disk::default();
        let used = disk.used(folder.path());
        assert_eq!(used.keys().collect::<Vec<_>>(), ["blocks", "wal"]);
        assert!(used.values().all(|bytes| *bytes >= 10_000), "{used:?}");
        write("wal/2");
        assert_eq!(disk.used(folder.path()), used, "not again at once");
        disk.looked = None;
        assert!(disk.used(folder.path())["wal"] >= 20_000);
        assert!(resident().unwrap() > 1 << 20);
    }
}
