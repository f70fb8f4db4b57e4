//! When to stop: an interrupt, a termination signal, or the end of standard input.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use tempfile::TempDir;

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
/// process (replicas that run in it end with their standard input, which this process holds).
pub(crate) fn temporary_dir(prefix: &str) -> Result<TempDir, Failure> {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir().map_err(|error| {
        Failure::new(format!("cannot make a temporary directory: {error}; set TMPDIR"))
    })?;
    let stopped = watch(false)?;
    let path = dir.path().to_owned();
    let remove = move || {
        if stopped.recv().is_ok() {
            remove(&path);
            std::process::exit(INTERRUPTED);
        }
    };
    thread::Builder::new().name("interrupt".into()).spawn(remove).map_err(Failure::new)?;
    Ok(dir)
}

/// Removes a directory in which others may still write for a moment.
fn remove(path: &Path) {
    for _ in 0..50 {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
        tercio_bench::pause(std::time::Duration::from_millis(20));
    }
}
