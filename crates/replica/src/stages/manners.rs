//! A rate limit on useless frames of a client.
//!
//! A frame of a client that is refused, repeated or false costs something all the same: reading
//! it, checking it, saying so. An honest client sends some, after a loss, say, but not more than it
//! may have in flight in a moment. Beyond that its frames are dropped unread until the window is
//! over (f31).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{ClientId, WINDOW};

/// The window of the rate limit.
const MOMENT: Duration = Duration::from_millis(100);
/// How many useless frames a client may send in it.
const TOLERATED: u64 = 2 * WINDOW;

/// Counts useless frames.
#[derive(Debug, Default)]
pub(crate) struct Manners {
    since: Instant,
    useless: BTreeMap<ClientId, u64>,
    /// Who is not heard until the window is over.
    muted: Arc<BTreeSet<ClientId>>,
}

impl Manners {
    /// A frame of the client's was of no use.
    pub(crate) fn note(&mut self, client: ClientId) {
        let useless = self.useless.entry(client).or_default();
        *useless += 1;
        if *useless == TOLERATED && stands(Defence::F31ClientQuotas) {
            Arc::make_mut(&mut self.muted).insert(client);
        }
    }

    /// Who is not heard, as far as is known: until somebody is listened to after the window.
    pub(crate) fn muted(&self) -> &Arc<BTreeSet<ClientId>> {
        &self.muted
    }

    /// Whether the client's frames are to be looked at.
    pub(crate) fn listens_to(&mut self, client: ClientId, now: Instant) -> bool {
        if now.since(self.since) >= MOMENT {
            self.since = now;
            self.useless.clear();
            if !self.muted.is_empty() {
                self.muted = Arc::default();
            }
        }
        !self.muted.contains(&client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_not_heard_for_a_moment_after_much_useless_noise() {
        let (mut manners, noisy, quiet) = (Manners::default(), ClientId(1), ClientId(2));
        let at = |ms: u64| Instant(ms * 1_000_000);
        manners.note(quiet);
        for _ in 0..TOLERATED {
            assert!(manners.listens_to(noisy, at(10)));
            manners.note(noisy);
        }
        assert!(!manners.listens_to(noisy, at(99)));
        assert_eq!(**manners.muted(), BTreeSet::from([noisy]));
        assert!(manners.listens_to(quiet, at(99)));
        assert!(manners.listens_to(noisy, at(100)));
        assert!(manners.muted().is_empty());
    }
}
