//! The crate's integration tests, one program; a file here that is no module of it is listed in
//! Cargo.toml as a program of its own.

mod bad_input;
mod blocks;
mod cluster;
mod common;
mod direct;
mod growth;
mod intruder;
mod kv;
mod processes;
mod rs;
mod semantics;
mod served;
mod store;
mod threads;
mod transactions;
mod transports;
mod tx;
