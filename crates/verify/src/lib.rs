//! Where a frame becomes a verified message, or is dropped with a reason.
//!
//! [`HostVerify`] does it on the CPU: bytes -> [`tercio_wire::Frame`] -> message -> every claim in it
//! checked against the keys of the epoch. Parse and check once, here; behind it data is typed and
//! believed. Signatures of all links are checked in batches.
//!
//! Architecture invariant: nothing here knows protocol rules. What a message means, and whether it
//! comes at the right time, is consensus' business.

mod host;

pub use host::{Dropped, Gather, HostVerify, Inbound, Outcome, Plain};
