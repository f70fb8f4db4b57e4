//! The network card of `rtl/` as Verilator translates it, a clock cycle at a time. With the feature
//! `verilator`; without it this crate is empty, and needs no tool.
//!
//! Named for what the rest of the workspace forbids: the model is C++ (`shim.cpp`), and every call
//! into it is `unsafe`.

#[cfg(feature = "verilator")]
mod bench;
#[cfg(feature = "verilator")]
pub use bench::{Bench, Inputs, Outputs};
