//! The program that is measured, as a child process.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often a run is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// How long a program that is told to end may take to end its own children.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a run gave no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// It could not be started.
    #[error("{}: {error}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It failed.
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        /// The arguments.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last line that it wrote.
        said: String,
    },
    /// It did not end.
    #[error("`{command}` was cut off: it did not end within {} s", limit.as_secs())]
    Hangs {
        /// The arguments.
        command: String,
        /// How long was waited.
        limit: Duration,
    },
    /// It printed no result.
    #[error("`{command}` printed no JSON object as its last line")]
    NoResult {
        /// The arguments.
        command: String,
    },
    /// Somebody wants to stop.
    #[error("interrupted; what was measured is kept, and the same command goes on from there")]
    Interrupted,
}

/// Runs commands.
pub trait Launch {
    /// Runs the program with these arguments and gives the JSON object that it prints as its last
    /// line, and how long that took.
    ///
    /// # Errors
    /// When it gave none within `limit`.
    fn launch(&self, arguments: &[String], limit: Duration) -> Result<(Value, Duration), RunError>;
}

/// A program's file.
#[derive(Debug)]
pub struct Program<'a> {
    path: &'a Path,
    dir: &'a Path,
    stop: &'a AtomicBool,
}

impl<'a> Program<'a> {
    /// The program in this file, which is run in this folder. Its runs end once `stop` is set.
    #[must_use]
    pub const fn new(path: &'a Path, dir: &'a Path, stop: &'a AtomicBool) -> Self {
        Self { path, dir, stop }
    }

    /// What it prints for these arguments.
    ///
    /// # Errors
    /// When it fails or does not end within `limit`.
    pub fn output(&self, arguments: &[String], limit: Duration) -> Result<String, RunError> {
        let start = |error| RunError::Start { path: self.path.to_owned(), error };
        let mut command = Command::new(self.path);
        command.args(arguments).current_dir(self.dir).stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
        let out = read(child.stdout.take());
        let err = read(child.stderr.take());
        let began = now();
        let command = || arguments.join(" ");
        let text = loop {
            match out.recv_timeout(LOOK) {
                Ok(text) => break text,
                Err(RecvTimeoutError::Disconnected) => break String::new(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.stop.load(Ordering::SeqCst) {
                end(&mut child, &out);
                return Err(RunError::Interrupted);
            }
            if began.elapsed() >= limit {
                end(&mut child, &out);
                return Err(RunError::Hangs { command: command(), limit });
            }
        };
        let status = child.wait().map_err(start)?;
        if self.stop.load(Ordering::SeqCst) {
            return Err(RunError::Interrupted);
        }
        if !status.success() {
            let said = err.recv_timeout(PATIENCE).unwrap_or_default();
            let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
            return Err(RunError::Failed { command: command(), status, said: said.trim().into() });
        }
        Ok(text)
    }
}

impl Launch for Program<'_> {
    fn launch(&self, arguments: &[String], limit: Duration) -> Result<(Value, Duration), RunError> {
        let began = now();
        let text = self.output(arguments, limit)?;
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        match serde_json::from_str(last) {
            Ok(result @ Value::Object(_)) => Ok((result, began.elapsed())),
            _ => Err(RunError::NoResult { command: arguments.join(" ") }),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "runs take time, and may hang")]
fn now() -> Instant {
    Instant::now()
}

/// Reads all of a pipe on a thread of its own; the receiver hears when it ends.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (done, ended) = channel();
    thread::spawn(move || {
        let mut bytes = vec![];
        if let Some(mut pipe) = pipe {
            // What was read before an error is all that there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = done.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    ended
}

/// Asks a child to end, which ends its own children first; kills it when it does not.
fn end(child: &mut Child, out: &Receiver<String>) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if let Err(RecvTimeoutError::Timeout) = out.recv_timeout(PATIENCE) {
        let _ = child.kill();
    }
    let _ = child.wait();
}
