//! Time as an input.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since a moment of the caller's choice. The core has no clock; it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Nanos(pub u64);

impl Add<Duration> for Nanos {
    type Output = Self;

    fn add(self, pause: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Nanos {
    /// How long it is from here to `later`; zero when that has passed.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}
