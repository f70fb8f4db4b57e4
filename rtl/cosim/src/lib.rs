//! The vote table of a network card, in plain Rust, and the card of `rtl/` held against it.
//!
//! [`Model`] is the specification, `docs/nic-table.md`, as a program: parse, verify, filter, index,
//! slot, one packet after the other. It verifies with the engine's own keyring, so its verdicts are
//! the software's. `card::Card`, with the feature `verilator`, is the card itself,
//! simulated cycle by cycle. Both are a [`Backend`]: the same packets in give the same verdicts,
//! slots and counters out.
//!
//! A [`trace`] is what the card said once, to be played to the model on a machine without tools.

mod backend;
#[cfg(feature = "verilator")]
pub mod card;
pub mod hostile;
mod model;
mod network;
mod packet;
mod table;
pub mod trace;

pub use backend::{Backend, Defence, Settings, Verdict};
pub use model::Model;
pub use network::{Midstates, Network, midstates};
pub use packet::{ADDRESS, PORT, datagram, vote};
pub use table::{Place, SLOT_BYTES, SLOTS, Size, Table, murmur3};
