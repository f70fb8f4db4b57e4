//! How much a client sends: less while the primary says that it is busy, more when it does not.
//!
//! The client's answer to back-pressure is a congestion window (multiplicative decrease, additive
//! increase). A package that the primary refused as busy waits here, with all that are taken
//! meanwhile, until the time that the primary named; then as many may be in flight as were before,
//! less a quarter. From then on each eight that end let one more be, so that within some ten round
//! trips the client has found out again what the network takes. What is not sent costs nobody
//! anything.

use crate::Nanos;
use std::collections::BTreeSet;
use std::time::Duration;
use tercio_types::RequestSeq;

/// However busy the primary says it is, this many packages may be in flight.
const FLOOR: usize = 16;
/// How many packages must end for one more to be sent.
const GROWTH: usize = 8;

#[derive(Debug)]
pub(crate) struct Pace {
    /// The most packages in flight, and how far that may grow.
    window: usize,
    most: usize,
    /// Packages in flight.
    sent: usize,
    /// Packages that ended since the window grew.
    ended: usize,
    /// Nothing is sent before.
    until: Nanos,
    /// Packages that are not sent yet, or were refused as busy.
    held: BTreeSet<RequestSeq>,
}

impl Pace {
    pub(crate) fn new(most: usize) -> Self {
        let held = BTreeSet::new();
        Self { window: most, most, sent: 0, ended: 0, until: Nanos(0), held }
    }

    /// How many packages wait to be sent.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Until when nothing is sent.
    pub(crate) fn until(&self) -> Nanos {
        self.until
    }

    /// When a package that waits may be sent; `None` when none waits, or one must end before.
    pub(crate) fn due(&self) -> Option<Nanos> {
        (!self.held.is_empty() && self.sent < self.window).then_some(self.until)
    }

    /// Whether a new package may be sent at once. Those that wait go first.
    pub(crate) fn is_open(&self, now: Nanos) -> bool {
        self.held.is_empty() && self.sent < self.window && self.until <= now
    }

    /// A package is sent.
    pub(crate) fn send(&mut self) {
        self.sent += 1;
    }

    /// A package waits, though it was not sent before.
    pub(crate) fn hold(&mut self, first: RequestSeq) {
        self.held.insert(first);
    }

    /// A package that waits is sent now, whatever the primary says.
    pub(crate) fn send_anyway(&mut self, first: RequestSeq) {
        self.held.remove(&first);
        self.sent += 1;
    }

    /// The next package that may be sent; it counts as sent.
    pub(crate) fn release(&mut self, now: Nanos) -> Option<RequestSeq> {
        if self.due().is_none_or(|at| at > now) {
            return None;
        }
        self.sent += 1;
        self.held.pop_first()
    }

    /// A package in flight was refused as busy. Of all that come back at about one time only the
    /// first makes the window smaller.
    pub(crate) fn turned_away(&mut self, first: RequestSeq, now: Nanos, hint: Duration) {
        if self.until <= now {
            self.window = (self.sent - self.sent / 4).max(FLOOR).min(self.most);
            self.until = now + hint;
        }
        self.sent -= 1;
        self.held.insert(first);
    }

    /// A package came to its end, or is given up.
    pub(crate) fn end(&mut self, first: RequestSeq) {
        if self.held.remove(&first) {
            return;
        }
        self.sent -= 1;
        self.ended += 1;
        if self.ended >= GROWTH {
            self.ended = 0;
            self.window = (self.window + 1).min(self.most);
        }
    }

    /// Another primary may not be busy.
    pub(crate) fn reopen(&mut self) {
        self.until = Nanos(0);
    }
}
