//! The clock of clients, servers and measurements. The protocol's parts take time as an argument.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Nanoseconds since this process first asked.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the crate's one clock; the state machines have none"
)]
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    u64::try_from(now.duration_since(*START.get_or_init(|| now)).as_nanos()).unwrap_or(u64::MAX)
}

/// Lets time go by where nobody waits: an idle server's pace.
#[expect(
    clippy::disallowed_methods,
    reason = "a server that found nothing to do for a while rests"
)]
pub(crate) fn rest(time: Duration) {
    std::thread::sleep(time);
}
