//! Workloads, load generation, figures and calibration. Everything here measures and returns plain
//! data with units in the field names; printing is the command line's.
//!
//! - [`calibrate`] measures the primitives that a replicated request is made of and derives from
//!   them a ceiling for this machine. Every other figure is reported as a fraction of it.
//!
//! Architecture invariant: nothing here prints.

pub mod calibrate;
mod clock;
mod machine;
pub mod usage;

pub use clock::{now, thread_cpu};
pub use machine::Machine;
