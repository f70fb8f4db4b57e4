//! Throttles background work on a thread that has urgent work, too: pieces of state for others, and
//! snapshots. After a piece nothing of the kind is done for a multiple of the time that it took.

use super::Clock;
use std::time::{Duration, Instant as Monotonic};

/// When the next piece of background work may be done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    until: Option<Monotonic>,
}

impl Rest {
    /// How long the throttle holds on.
    pub(super) fn left(&self) -> Duration {
        let left = |until: Monotonic| until.saturating_duration_since(Clock::monotonic());
        self.until.map_or(Duration::ZERO, left)
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// A piece was done that was begun at `begin`: nothing is done for `times` as long as that took.
    pub(super) fn after(&mut self, begin: Monotonic, times: u32) {
        let end = Clock::monotonic();
        self.until = Some(end + times * (end - begin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_so_many_times_as_long_as_it_worked() {
        let mut rest = Rest::default();
        assert!(rest.is_over(), "nothing was done yet");
        let hour = Duration::from_secs(3600);
        let Some(begin) = Clock::monotonic().checked_sub(hour) else { return };
        rest.after(begin, 4);
        assert!(!rest.is_over());
        assert!(rest.left() > 3 * hour && rest.left() < 5 * hour, "{:?}", rest.left());
    }
}
