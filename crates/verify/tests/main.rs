//! The crate's integration tests, one program.

mod common;
mod host;
mod threads;
