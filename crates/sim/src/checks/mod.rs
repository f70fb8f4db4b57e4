//! What must hold whatever happens, one property a module:
//!
//! Of every protocol ([`Simulated`]):
//!
//! - [`Agreement`]: no two correct replicas decide, execute or certify different things.
//! - [`ExactlyOnce`]: every operation was asked for, and is executed at most once.
//! - [`Durability`]: what was acknowledged to a client is in every correct replica's chain.
//! - [`Bounds`]: what a replica keeps in memory stays within the stated bounds.
//! - [`Reads`]: what a client reads is what the state was.
//! - [`Blame`]: evidence names no correct replica.
//! - [`Cover`]: stable checkpoints never go back, and cover everything once all is quiet.
//!
//! Of one protocol its [`Rules`]; of PBFT:
//!
//! - [`Promises`]: a correct replica never contradicts what it sent, whatever restarts lie between.
//! - [`Views`]: no correct replica enters a view that no quorum asked for.
//! - [`Conduct`]: nor does it vote for what its view does not allow.
//!
//! Liveness after healing is the end of a run: see [`crate::run`].
//!
//! A checker sees only what leaves a replica: frames, what its application was made to execute,
//! and its own word on where it stands.

mod agreement;
mod blame;
mod bounds;
mod conduct;
mod cover;
mod durability;
mod exactly_once;
mod promises;
mod reads;
mod rules;
mod views;

pub use agreement::Agreement;
pub use blame::Blame;
pub use bounds::{Bounds, Held};
pub use conduct::Conduct;
pub use cover::Cover;
pub use durability::Durability;
pub use exactly_once::ExactlyOnce;
pub use promises::{Promises, kinds};
pub use reads::Reads;
pub use rules::{PbftRules, Rules, Seen, Simulated, Words};
pub use views::Views;

use std::fmt;

/// Something that must never happen, happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which property is broken.
    pub property: &'static str,
    /// What was seen.
    pub seen: String,
}

impl Violation {
    /// A violation of `property`.
    #[must_use]
    pub fn new(property: &'static str, seen: impl Into<String>) -> Self {
        Self { property, seen: seen.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.seen)
    }
}

impl std::error::Error for Violation {}

/// Fails with a [`Violation`] of `property` unless `holds`.
///
/// # Errors
/// When it does not hold; `seen` says what was seen instead.
pub fn demand(
    holds: bool,
    property: &'static str,
    seen: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(property, seen())) }
}
