//! The clocks that figures are read from.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Wall-clock time that never goes back.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "whoever measures needs a clock; this is the one")]
pub fn now() -> Instant {
    Instant::now()
}

/// The processor time that the calling thread has used. Unlike wall-clock time it does not grow
/// while other programs have the processor.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().expect("processor time is not negative"),
        time.tv_nsec.try_into().expect("nanoseconds of a second are not negative"),
    )
}

/// Waits until `condition` gives something, looking again every few milliseconds: for what another
/// process does, which cannot wake us. `None` when `patience` is over.
pub fn poll_until<T>(patience: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = now() + patience;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if now() >= deadline {
            return None;
        }
        pause(Duration::from_millis(5));
    }
}

/// Lets time go by.
#[expect(clippy::disallowed_methods, reason = "the pace of looking and of offering load")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
