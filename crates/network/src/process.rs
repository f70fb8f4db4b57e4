//! Replicas as processes of their own.

use crate::usage::{self, Usage};
use crate::{now, poll_until};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tercio_replica::report::{ReplicaReport, Starting};
use thiserror::Error;

/// How long a replica may take to start, beside replaying its log, and to stop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Where a replica's messages go, in its home.
pub const LOG_FILE: &str = "stderr.log";
/// How long that file may grow before it is put aside, and how long the one that was put aside is.
const MAX_LOG: u64 = 4 << 20;
/// How much of its end is looked through for the last line, and how much room on the disk it has
/// ahead: a replica that ends because the disk is full can still say so.
const LAST_WORDS: u64 = 64 << 10;

/// Why a replica process is of no use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It could not be started.
    #[error("cannot start replica {id} ({program} start --dir {}): {error}", dir.display())]
    Spawn {
        /// The replica.
        id: u16,
        /// Its home.
        dir: PathBuf,
        /// The program.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// It ended by itself. What it said is in the text.
    #[error("replica {id} ended by itself ({how}): {said}; its messages: {}", log.display())]
    Ended {
        /// The replica.
        id: u16,
        /// Its exit status, or the signal that ended it.
        how: String,
        /// The last thing that it said.
        said: String,
        /// The file of all that it said.
        log: PathBuf,
    },
    /// It does not answer.
    #[error(
        "replica {id} did not {what} within {} s; its messages: {}",
        PATIENCE.as_secs(), log.display()
    )]
    Silent {
        /// The replica.
        id: u16,
        /// What it should have done.
        what: &'static str,
        /// The file of all that it said.
        log: PathBuf,
    },
    /// What it uses cannot be read.
    #[error("cannot read what replica {id} uses: {error}")]
    Usage {
        /// The replica.
        id: u16,
        /// Why not.
        error: io::Error,
    },
}

impl ProcessError {
    /// The file that this refers to, for whoever puts it elsewhere.
    pub fn log_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Ended { log, .. } | Self::Silent { log, .. } => Some(log),
            Self::Spawn { .. } | Self::Usage { .. } => None,
        }
    }
}

/// The processes that run; none any more, and none to come, once all were ended.
static RUNNING: Mutex<Option<Vec<Weak<Mutex<Child>>>>> = Mutex::new(Some(Vec::new()));

/// Ends all replicas at once, before this process ends: nobody writes into their homes any more. From
/// then on none can be started.
pub fn end_all() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).take();
    for child in running.into_iter().flatten().filter_map(|child| child.upgrade()) {
        let mut child = lock(&child);
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Whether [`end_all`] was called: a replica that has ended did not do so by itself then.
#[must_use]
pub fn were_ended() -> bool {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).is_none()
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A replica that runs as a process. Ends with this value, and with this process: it stops when
/// its standard input is closed.
#[derive(Debug)]
pub struct ReplicaProcess {
    id: u16,
    dir: PathBuf,
    child: Arc<Mutex<Child>>,
    pid: u32,
    since: Instant,
    /// How long its log was when it started.
    log_start: u64,
    /// Whether [`Self::kill`] ended it.
    killed: bool,
}

impl ReplicaProcess {
    /// Starts `program start --dir DIR`. Its messages go to [`LOG_FILE`] in `dir`.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn spawn(program: &Path, id: u16, dir: &Path) -> Result<Self, ProcessError> {
        let spawn = || {
            let log = File::options().create(true).append(true).open(dir.join(LOG_FILE))?;
            let log_start = log.metadata()?.len();
            reserve(&log, log_start);
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            let running = running.as_mut().ok_or(io::ErrorKind::Interrupted)?;
            let child = Command::new(program)
                .args(["start", "--stop-with-stdin", "--dir"])
                .arg(dir)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(log)
                // An interrupt at a terminal is for whoever started it, who then stops it.
                .process_group(0)
                .spawn()?;
            let (pid, child) = (child.id(), Arc::new(Mutex::new(child)));
            running.retain(|child| child.strong_count() > 0);
            running.push(Arc::downgrade(&child));
            Ok((child, pid, log_start))
        };
        let (child, pid, log_start) = spawn().map_err(|error: io::Error| {
            let program = program.display().to_string();
            ProcessError::Spawn { id, dir: dir.to_owned(), program, error }
        })?;
        let (dir, since, killed) = (dir.to_owned(), now(), false);
        Ok(Self { id, dir, child, pid, since, log_start, killed })
    }

    /// The replica.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was started.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// What it said of itself last; `None` before it runs.
    #[must_use]
    pub fn report(&self) -> Option<ReplicaReport> {
        self.said().filter(|report| report.starting.is_none())
    }

    /// How far its start is, while it replays its log.
    #[must_use]
    pub fn starting(&self) -> Option<Starting> {
        self.said()?.starting
    }

    fn said(&self) -> Option<ReplicaReport> {
        ReplicaReport::read(&self.dir).ok().filter(|report| report.pid == self.pid())
    }

    /// Waits until it runs.
    ///
    /// # Errors
    /// When it ends instead, or takes too long.
    pub fn wait_ready(&mut self) -> Result<ReplicaReport, ProcessError> {
        self.wait_ready_telling(&mut |_| {})
    }

    /// As [`Self::wait_ready`]; tells how far it is while it replays its log, for which it has time
    /// as long as it gets on.
    ///
    /// # Errors
    /// As [`Self::wait_ready`].
    pub fn wait_ready_telling(
        &mut self,
        tell: &mut dyn FnMut(Starting),
    ) -> Result<ReplicaReport, ProcessError> {
        let mut last = None;
        loop {
            let seen = poll_until(PATIENCE, || match self.report() {
                Some(report) => Some(Ok(Some(report))),
                None if self.starting().is_some_and(|now| last.replace(now) != Some(now)) => {
                    Some(Ok(None))
                }
                None => self.check().err().map(Err),
            });
            match seen.unwrap_or_else(|| Err(self.silent("start")))? {
                Some(report) => return Ok(report),
                None => last.into_iter().for_each(&mut *tell),
            }
        }
    }

    /// Looks whether it has ended by itself.
    ///
    /// # Errors
    /// When it has.
    pub fn check(&mut self) -> Result<(), ProcessError> {
        if self.killed {
            return Ok(());
        }
        let how = match lock(&self.child).try_wait() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Err(ProcessError::Ended { id: self.id, how, said: self.last_words(), log: self.log() })
    }

    fn log(&self) -> PathBuf {
        self.dir.join(LOG_FILE)
    }

    /// The last line that it wrote in this life.
    fn last_words(&self) -> String {
        let mut log = String::new();
        let read = File::open(self.log()).and_then(|mut file| {
            let start = self.log_start.max(file.metadata()?.len().saturating_sub(LAST_WORDS));
            file.seek(SeekFrom::Start(start))?;
            file.read_to_string(&mut log)
        });
        let last = read.ok().and_then(|_| log.lines().rfind(|line| !line.trim().is_empty()));
        last.unwrap_or("it said nothing").to_owned()
    }

    /// Keeps its log short: what is longer goes to a second file, over the one before. (The
    /// process appends, so it goes on at the front of the emptied file.)
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn bound_log(&mut self) -> io::Result<()> {
        let log = self.log();
        if fs::metadata(&log)?.len() > MAX_LOG {
            fs::copy(&log, self.dir.join("stderr.log.1"))?;
            let log = File::options().write(true).open(&log)?;
            log.set_len(0)?;
            reserve(&log, 0);
            self.log_start = 0;
        }
        Ok(())
    }

    /// What it has used until now.
    ///
    /// # Errors
    /// When it is gone.
    pub fn usage(&self) -> Result<Usage, ProcessError> {
        usage::of_process(self.pid()).map_err(|error| ProcessError::Usage { id: self.id, error })
    }

    /// Ends it at once (SIGKILL), as a crash does, and waits until it is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        let mut child = lock(&self.child);
        self.killed |= child.try_wait()?.is_none();
        child.kill()?;
        child.wait().map(drop)
    }

    /// Asks it to stop, and does not wait for it.
    pub fn ask_to_stop(&mut self) {
        drop(lock(&self.child).stdin.take());
    }

    /// Stops it from running until it is killed (SIGSTOP).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn halt(&self) -> io::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(kill_process(pid, Signal::STOP)?)
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Errors
    /// When it does not stop, or stops with a failure.
    pub fn stop(mut self) -> Result<(), ProcessError> {
        self.ask_to_stop();
        let ended = poll_until(PATIENCE, || lock(&self.child).try_wait().ok().flatten());
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(_) => self.check(),
            None => Err(self.silent("stop")),
        }
    }

    /// That it did not do something in time.
    pub(crate) fn silent(&self, what: &'static str) -> ProcessError {
        ProcessError::Silent { id: self.id, what, log: self.log() }
    }
}

/// Takes room behind the end of a log. A file system that cannot do that is asked for it when the
/// replica writes.
fn reserve(log: &File, end: u64) {
    let _ = fallocate(log, FallocateFlags::KEEP_SIZE, end, LAST_WORDS);
}

/// Looks whether any of these has ended by itself.
///
/// # Errors
/// Names the first that has.
pub fn check_all(all: &mut [ReplicaProcess]) -> Result<(), ProcessError> {
    all.iter_mut().try_for_each(ReplicaProcess::check)
}

impl Drop for ReplicaProcess {
    fn drop(&mut self) {
        // Harmless when it has ended: its id is not given to another before it was waited for.
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Whatever fills the disk later, the log has room for the last words.
    #[test]
    fn what_ends_by_itself_is_quoted_and_had_room_to_speak() {
        let folder = tempfile::tempdir().unwrap();
        // A shell finds no script named `start`, says so and ends.
        let mut process = ReplicaProcess::spawn(Path::new("sh"), 3, folder.path()).unwrap();
        let ended = poll_until(PATIENCE, || process.check().err()).expect("it ends");
        let ProcessError::Ended { id: 3, said, log, .. } = &ended else { panic!("{ended}") };
        assert!(said.contains("start"), "{said}");
        assert_eq!(fs::read_to_string(log).unwrap().lines().last(), Some(&said[..]));
        let log = fs::metadata(log).unwrap();
        assert!(log.blocks() * 512 >= LAST_WORDS, "{} blocks for {} B", log.blocks(), log.len());
        // It had ended before.
        process.kill().unwrap();
        assert!(process.check().is_err());
    }
}
