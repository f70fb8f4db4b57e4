//! The crate's integration tests, one program; a file here that is no module of it is listed in
//! Cargo.toml as a program of its own.

mod clients;
mod common;
mod crashes;
mod demo;
mod descriptors;
mod lost;
mod metrics;
mod network;
mod numbers;
mod operators;
mod prism;
mod rebuild;
mod repro;
mod schemes;
mod status;
mod strangers;
mod transfer;
mod usage;
