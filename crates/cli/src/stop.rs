//! When to stop: an interrupt, a termination signal, or the end of standard input.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tempfile::TempDir;
use tercio_bench::setup::BenchError;

/// The exit status of a program that an interrupt ended.
const INTERRUPTED: i32 = 130;

/// Gives a receiver that hears once it is time to stop. With `stdin`, the end of standard input is
/// one reason, so that a process does not outlive whoever holds the other end, however that ends.
pub(crate) fn watch(stdin: bool) -> Result<Receiver<()>, Failure> {
    let (stop, stopped) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::new(format!("cannot listen to signals: {error}")))?;
    let by_signal = stop.clone();
    let spawned = thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            // Nobody listens any more when it stops already.
            let _ = by_signal.send(());
        }
    });
    spawned.map_err(Failure::new)?;
    if stdin {
        let spawned = thread::Builder::new().name("stdin".into()).spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = stop.send(());
        });
        spawned.map_err(Failure::new)?;
    }
    Ok(stopped)
}

/// A temporary directory that goes away with the value, and also when an interrupt ends the
/// process: the replicas that run in it are ended first.
pub(crate) struct TemporaryDir {
    /// Gone when it was removed.
    dir: Option<TempDir>,
    /// Held by whoever removes it.
    removing: Arc<Mutex<()>>,
}

impl TemporaryDir {
    pub(crate) fn path(&self) -> &Path {
        self.dir.as_ref().expect("it goes away with the value").path()
    }

    /// Why a network in it failed. The messages of the replica that the error names, if it names
    /// one, are moved beside the directory, since that goes away.
    pub(crate) fn failure(&self, error: impl Into<BenchError>) -> Failure {
        let mut error = error.into();
        let dir = self.path().display();
        // Who interrupts us asks for no messages.
        if let Some(log) = error.log_mut().filter(|_| !tercio_network::process::were_ended()) {
            let home = log.parent().and_then(Path::file_name).unwrap_or_default();
            let mut beside = self.path().as_os_str().to_owned();
            beside.push("-");
            beside.push(home);
            beside.push(".log");
            // Where it cannot be moved, the text names a file that is gone; it has the last line.
            if fs::rename(&log, &beside).is_ok() {
                *log = beside.into();
            }
            return Failure::new(format!("{error}; it ran in {dir}, set TMPDIR for another place"));
        }
        Failure::new(error)
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // After an interrupt this waits for the end of the process.
        let _removing = self.removing.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.dir.take());
    }
}

/// Makes a temporary directory.
pub(crate) fn temporary_dir(prefix: &str) -> Result<TemporaryDir, Failure> {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir().map_err(|error| {
        Failure::new(format!("cannot make a temporary directory: {error}; set TMPDIR"))
    })?;
    let stopped = watch(false)?;
    let (path, removing) = (dir.path().to_owned(), Arc::new(Mutex::new(())));
    let held = removing.clone();
    let remove = move || {
        if stopped.recv().is_ok() {
            let _removing = held.lock().unwrap_or_else(PoisonError::into_inner);
            tercio_network::process::end_all();
            remove(&path);
            std::process::exit(INTERRUPTED);
        }
    };
    thread::Builder::new().name("interrupt".into()).spawn(remove).map_err(Failure::new)?;
    Ok(TemporaryDir { dir: Some(dir), removing })
}

/// Removes a directory in which something may still be written for a moment; says where it is when
/// that cannot be done.
fn remove(path: &Path) {
    for _ in 0..50 {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
        tercio_network::pause(std::time::Duration::from_millis(20));
    }
    crate::output::error(&format!("{} could not be removed", path.display()));
}
