//! `tercio-attack`: attacks on networks of real processes.
//!
//! Each attack is made on a network of its own, four processes of `tercio` with good clients whose
//! load is known and whose history is recorded. What is demanded of every one: no acknowledged
//! operation is lost, doubled or reordered; no replica ends; good clients get at least half of the
//! results of before, beside a control without an attack in the same run; no client changes the
//! view; all replicas are level soon after it is over. An attack that suspends one of these by its
//! nature says so in its row.
//!
//! Attackers are processes, too (`tercio-attack play`), and use the product's own links, frames and
//! keys. Wide and broken links are relays in this process.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

mod attacks;
mod blocks;
mod ground;
mod history;
mod hostile;
mod load;
mod net;
mod relay;
mod table;

use clap::{Args, Parser, Subcommand};
use hostile::Part;
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error;

/// Attacks networks of real processes, and says what came of it.
#[derive(Parser)]
#[command(name = "tercio-attack", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What attacks there are
    List,
    /// Makes attacks, each on a network of its own; fails when one shows what must not be
    Run(Run),
    /// Plays an attacker on the network in a directory until standard input ends
    #[command(hide = true)]
    Play {
        /// What to do
        part: Part,
        /// The client whose key it holds, by its place in the genesis
        #[arg(long)]
        client: usize,
        /// How many clients
        #[arg(long)]
        count: usize,
        /// The network
        dir: PathBuf,
    },
}

#[derive(Args)]
struct Run {
    /// The binary of the product
    #[arg(long, value_name = "FILE", default_value = "target/release/tercio")]
    program: PathBuf,
    /// Only this attack, or this pair (`one+other`); may be given again
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How many pairs of attacks to make beside all single ones
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pairs: usize,
    /// Chooses the pairs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    /// Fail when this machine lacks what an attack needs, instead of leaving it out
    #[arg(long)]
    all: bool,
    /// Keep the networks of attacks that fail in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Why an attack could not be made.
#[derive(Debug, Error)]
enum Trouble {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Network(#[from] tercio_network::NetworkError),
    #[error(transparent)]
    Process(#[from] tercio_network::process::ProcessError),
    #[error(transparent)]
    Connect(#[from] tercio_client::ConnectError),
    #[error("{0}")]
    Means(String),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::List => {
            table::list();
            Ok(true)
        }
        Command::Run(run) => table::run(&run),
        Command::Play { part, client, count, dir } => {
            hostile::play(part, &dir, client, count).map(|count| {
                println!("{count}");
                true
            })
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tercio-attack: {error}");
            ExitCode::FAILURE
        }
    }
}
