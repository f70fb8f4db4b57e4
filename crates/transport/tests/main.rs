//! The crate's integration tests, one program; a file here that is no module of it is listed in
//! Cargo.toml as a program of its own.

mod common;
mod cuts;
mod hostile;
mod links;
