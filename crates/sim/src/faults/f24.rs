//! f24, a malicious source sends junk or stalls (ASA-2024-008).

use super::{Falsehood, named, refill};
use crate::Violation;

/// A source sends junk in place of pieces, or nothing.
///
/// It is dropped and named; what it was asked for comes from others.
pub(super) fn run() -> Result<(), Violation> {
    named(&refill(Falsehood::Junk, true)?, "f24", &["state_junk"])?;
    named(&refill(Falsehood::Silence, true)?, "f24", &["state_timed_out"])
}
