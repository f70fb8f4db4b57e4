//! The verify stage: where a frame becomes a verified message, or is dropped with a reason.
//!
//! Bytes -> [`tercio_wire::Frame`] -> message -> every claim in it checked against the keys of the
//! epoch. Parse and check once, here; behind it data is typed and believed.
//!
//! A frame is dropped, and counted by reason, when
//! - the [`Filter`] that ordering publishes passes it over;
//! - it is not exactly one well-formed frame of this version, with a body that its digest names;
//! - its kind is not for a replica, or not for a sender of this sort (a client's vote, a replica's
//!   request);
//! - its sender is not the peer of the link it came on: a peer speaks for itself only, and hands
//!   others' words on inside messages of its own;
//! - a claim in it, the sender's own or an inner one, does not hold;
//! - its link has used up the time that it may cost in vain, or there is no room to wait (decision 0043).
//!
//! The stage stands behind a contract, [`VerifyStage`], and may be anywhere: [`HostVerify`] is on the thread that calls
//! it, [`Threads`] on threads of its own (decision 0035). Signatures of all links are checked in
//! batches.
//!
//! Architecture invariant: nothing here knows protocol rules. What a message means, and whether it
//! comes at the right time, is consensus' business. Nothing here reads a clock.

mod cost;
mod decoder;
mod filter;
mod host;
mod inbound;
mod lanes;
mod meter;
mod stage;
mod threads;

pub use filter::{Filter, Filtered};
pub use host::{Gather, HostVerify};
pub use inbound::{Dropped, Inbound, Outcome, Plain};
pub use lanes::{Bounds, Lane};
pub use stage::VerifyStage;
pub use threads::{Threads, Worker};
