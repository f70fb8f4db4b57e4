//! The crate's integration tests, one program; a file here that is no module of it is listed in
//! Cargo.toml as a program of its own.

mod aborts;
mod applications;
mod batches;
mod catch_up;
mod clients;
mod clock;
mod common;
mod configuration;
mod cuts;
mod executors;
mod floods;
mod genesis;
mod hostile;
mod layouts;
mod metrics;
mod node;
mod overtaken;
mod power;
mod pressure;
#[path = "../../transport/tests/common/relay.rs"]
mod relay;
mod repair;
mod replies;
mod restored;
mod results;
mod returning;
mod running;
#[path = "../../execution/tests/scripted/mod.rs"]
mod scripted;
mod seams;
mod stable;
mod starts;
mod transfer;
mod verify;
