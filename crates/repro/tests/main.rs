//! The crate's integration tests.

mod program;
