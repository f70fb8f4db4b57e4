//! Workloads, load generation, figures and calibration. Everything here measures and returns plain
//! data with units in the field names; printing is the command line's.
//!
//! - [`calibrate`] measures the primitives that a replicated request is made of and derives from
//!   them a ceiling for this machine. Every other figure is reported as a fraction of it.
//! - [`load`] puts load on a network ([`tercio_network`]), open-loop by default. [`bft`] measures
//!   ordering so, [`sweep`] its latency against what is offered, [`backlog`] says whether a load is kept up with, [`auth`] what authenticators cost it, [`fault`] what a dead replica costs, [`overload`] what too much load does,
//!   [`transfer`] how a replica without its disk comes back.
//!
//! Architecture invariant: nothing here prints.

pub mod auth;
pub mod backlog;
pub mod bft;
pub mod calibrate;
pub mod disk;
pub mod fault;
pub mod figures;
pub mod load;
mod machine;
pub mod overload;
#[cfg(feature = "prism")]
pub mod prism;
pub mod setup;
pub mod sweep;
pub mod transfer;
pub mod verify;

pub use machine::Machine;
