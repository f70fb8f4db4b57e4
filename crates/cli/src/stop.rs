//! When to stop: an interrupt, a termination signal, or the end of standard input.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

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
