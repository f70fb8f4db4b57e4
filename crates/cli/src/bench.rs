//! `tercio bench ...`.

mod bft;
mod calibrate;

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Measure this machine's primitives and the ceiling that follows from them
    Calibrate(calibrate::Args),
    /// Measure ordering, with the counter as the application
    Bft(bft::Args),
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Bft(args) => bft::run(&args),
    }
}
