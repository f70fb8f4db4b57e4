//! The crate's integration tests, one program; `zoo` needs a build of its own.

#![allow(clippy::print_stdout, reason = "the lane `rtl` reports the figures")]

#[cfg(feature = "verilator")]
mod card;
mod common;
#[cfg(feature = "verilator")]
mod cycles;
mod model;
mod traces;
#[cfg(feature = "verilator")]
mod vectors;
