//! f22, a peer lowers the height that it advertised (ASA-2025-001).

use super::{Falsehood, named, refill};
use crate::Violation;

/// A source offers a state, and has none when it is asked for pieces of it.
///
/// It is dropped and named, and the others give all of it.
pub(super) fn run() -> Result<(), Violation> {
    named(&refill(Falsehood::Lower, true)?, "f22", &["offer_lowered"])
}
