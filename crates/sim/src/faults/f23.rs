//! f23, chunk and proof disagree (ASA-2025-002).

use super::{Falsehood, named, refill};
use crate::Violation;

/// A source sends other chunks than those that were asked for.
///
/// None of them becomes part of the state; the source is dropped and named.
pub(super) fn run() -> Result<(), Violation> {
    named(&refill(Falsehood::OtherPieces, true)?, "f23", &["state_wrong_chunk"])
}
