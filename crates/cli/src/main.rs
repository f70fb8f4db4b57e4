//! `tercio`: the command line. The only place of the project that prints.
//!
//! Every command that measures or reports takes `--json` and then prints one JSON object as its
//! last line, with units in the field names. An error is one line on standard error that says what
//! is wrong and what to do; the exit status is 2 for wrong usage and 1 for failure.

mod bench;
mod failure;
mod keygen;
mod output;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "tercio", version, about = "A Byzantine fault tolerant replication engine")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a secret key file and print its public key
    Keygen(keygen::Args),
    /// Measure
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error, &mut Cli::command()),
    };
    let result = match cli.command {
        Command::Keygen(args) => keygen::run(&args),
        Command::Bench(command) => bench::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
