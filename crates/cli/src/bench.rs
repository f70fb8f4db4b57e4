//! `tercio bench ...`.

mod auth;
mod bft;
mod calibrate;
mod fault;
mod network;
mod overload;
#[cfg(feature = "stock")]
mod prism;
mod sweep;
mod transfer;
mod verify;

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Measure this machine's primitives and the ceiling that follows from them
    Calibrate(calibrate::Args),
    /// Measure ordering, with the counter as the application
    Bft(bft::Args),
    /// Measure latency against the load that is offered, up to saturation
    Sweep(sweep::Args),
    /// Measure ordering for each way to authenticate packages, of several sizes
    Auth(auth::Args),
    /// Measure what clients notice when a backup dies under load
    Fault(fault::Args),
    /// Measure a network of which more is asked than it can do
    Overload(overload::Args),
    /// Measure how a replica that lost its disk comes back under load
    Transfer(transfer::Args),
    /// Measure remote memory and PRISM-KV, after the paper's figures
    #[command(subcommand)]
    #[cfg(feature = "stock")]
    Prism(prism::Command),
    /// Measure signature verification on one core, beside OpenSSL and the multipliers' bound
    Verify(verify::Args),
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Bft(args) => bft::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Auth(args) => auth::run(&args),
        Command::Fault(args) => fault::run(&args),
        Command::Overload(args) => overload::run(&args),
        Command::Transfer(args) => transfer::run(&args),
        #[cfg(feature = "stock")]
        Command::Prism(command) => prism::run(&command),
        Command::Verify(args) => verify::run(&args),
    }
}
