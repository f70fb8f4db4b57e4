//! The crate's integration tests, one program; a file here that is no module of it is listed in
//! Cargo.toml as a program of its own.

mod absurd;
mod audit;
mod block_log;
mod common;
mod data_dir;
mod holes;
mod hostile_ops;
mod media;
mod repair;
mod results;
mod side;
mod snapshot;
mod staging;
mod wal;
mod wal_mark;
mod zoo;
