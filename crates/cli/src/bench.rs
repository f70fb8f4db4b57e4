//! `tercio bench ...`.

mod calibrate;

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Measure this machine's primitives and the ceiling that follows from them
    Calibrate(calibrate::Args),
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Calibrate(args) => calibrate::run(&args),
    }
}
