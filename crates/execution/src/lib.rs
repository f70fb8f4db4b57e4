//! Execution: what turns ordered batches into results and state.
//!
//! Architecture invariant: nothing here knows consensus.

mod application;

pub use application::{AppError, Application, Context, Operation, Proposal, Replies};
