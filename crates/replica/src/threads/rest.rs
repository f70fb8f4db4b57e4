//! How what can wait shares a thread with what cannot: pieces of state for others, and snapshots.

use super::Clock;
use std::time::{Duration, Instant as Monotonic};

/// When the next piece of what can wait may be done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    until: Option<Monotonic>,
}

impl Rest {
    /// How long it goes on.
    pub(super) fn left(&self) -> Duration {
        let left = |until: Monotonic| until.saturating_duration_since(Clock::monotonic());
        self.until.map_or(Duration::ZERO, left)
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// A piece was done that was begun at `begin`: it rests so many times as long as that took.
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
