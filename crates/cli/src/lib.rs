//! The command line: every command, for the applications that a program knows. The only place of the
//! project that prints.
//!
//! Every command that measures or reports takes `--json` and then prints one JSON object as its
//! last line, with units in the field names. An error is one line on standard error that says what
//! is wrong and what to do; the exit status is 2 for wrong usage and 1 for failure, or for a network,
//! a log or an operation that was reported to be bad.

mod audit;
mod bench;
mod changes;
mod client;
mod clock;
#[cfg(feature = "stock")]
mod demo;
mod dev;
mod failure;
mod folder;
mod heap;
mod init;
mod keygen;
mod log;
mod numbers;
mod output;
#[cfg(feature = "stock")]
mod prism;
mod rebuild;
#[cfg(feature = "stock")]
mod repro;
mod session;
#[cfg(feature = "shell")]
mod shell;
mod start;
mod status;
mod stop;
mod submit;
mod testnet;
mod up;
mod version;
mod words;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use std::sync::OnceLock;
use tercio_consensus::pbft::Pbft;
use tercio_genesis::{Apps, Kind};
use tercio_replica::{Protocols, Runner};

#[derive(Debug, Parser)]
#[command(name = version::PROGRAM.as_str())]
#[command(version = version::SHORT.as_str(), long_version = version::LONG.as_str())]
#[command(about = "A Byzantine fault tolerant replication engine")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch replicas order an order flow, lose their primary, and take it back
    #[cfg(feature = "stock")]
    Demo(demo::Args),
    /// Run a network to play with, in this process and in memory
    Dev(dev::Args),
    /// Make all the files of a network on this machine
    Testnet(testnet::Args),
    /// Start, watch and stop the replicas of a network
    Up(up::Args),
    /// Say how the replicas of a network are, and what keeps it from going on
    Status(status::Args),
    /// Submit operations to a network and print their results
    Submit(submit::SubmitArgs),
    /// Ask the application a question, in order with the operations or (--stale) not
    Query(submit::QueryArgs),
    /// The clients of a network
    #[command(subcommand)]
    Client(client::Command),
    /// Make the home of one member of a network of several machines, or join a network with it
    Init(init::InitArgs),
    /// Write the genesis of a network from its members' public keys
    Genesis(init::GenesisArgs),
    /// Run one replica from its home
    Start(start::Args),
    /// Prove offline that a replica's log is what a quorum signed
    Audit(audit::Args),
    /// Begin a replica again from an agreed chain, when more disks were lost than may fail
    Rebuild(rebuild::Args),
    /// Make a secret key file and print its public key
    Keygen(keygen::Args),
    /// Serve and use remote memory, and a key-value store on it
    #[cfg(feature = "stock")]
    #[command(subcommand)]
    Prism(prism::Command),
    /// Measure
    #[command(subcommand)]
    Bench(bench::Command),
    /// Make published figures again, and grade them against what was published
    #[cfg(feature = "stock")]
    #[command(subcommand)]
    Repro(repro::Command),
    /// Print the script with which a shell completes this program's commands
    #[cfg(feature = "shell")]
    Completions(shell::CompletionsArgs),
    /// Print the manual page, or write a page for each command
    #[cfg(feature = "shell")]
    Man(shell::ManArgs),
}

/// The applications that this program knows, from [`main`] on.
static APPS: OnceLock<Apps> = OnceLock::new();

/// The applications that this program knows.
pub(crate) fn apps() -> &'static Apps {
    APPS.get().expect("main sets them first")
}

/// The protocols that this program runs, from [`main_with`] on.
static PROTOCOLS: OnceLock<Protocols> = OnceLock::new();

/// The protocols that this program runs.
pub(crate) fn protocols() -> &'static Protocols {
    PROTOCOLS.get().expect("main sets them first")
}

/// Runs the program: reads the command line, does what it says, and gives the exit status.
///
/// A replica's application, its rules and its words are those of `apps`; a network of any other is
/// refused by name. Replicas order with PBFT. To be called once, by `main`.
#[must_use]
pub fn main(apps: &[Kind]) -> ExitCode {
    main_with(apps, &[Runner::of::<Pbft>()])
}

/// As [`main`], with the ordering protocol that the genesis names, of these; a new network has the first
/// one.
#[must_use]
pub fn main_with(apps: &[Kind], protocols: &[Runner]) -> ExitCode {
    let start = tercio_network::now();
    let protocols = Protocols::new(protocols);
    let apps = Apps::new(apps).with_protocols(&protocols.facts());
    let first = APPS.set(apps).is_ok() && PROTOCOLS.set(protocols).is_ok();
    assert!(first, "the command line is run once");
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error, &Cli::command()),
    };
    let result = match cli.command {
        #[cfg(feature = "stock")]
        Command::Demo(args) => demo::run(&args),
        Command::Dev(args) => dev::run(&args, start),
        Command::Testnet(args) => testnet::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Submit(args) => submit::submit(&args),
        Command::Query(args) => submit::query(&args),
        Command::Client(command) => client::run(&command),
        Command::Init(args) => init::init(&args),
        Command::Genesis(args) => init::genesis(&args),
        Command::Start(args) => start::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Rebuild(args) => rebuild::run(&args),
        Command::Keygen(args) => keygen::run(&args),
        #[cfg(feature = "stock")]
        Command::Prism(command) => prism::run(&command),
        Command::Bench(command) => bench::run(command),
        #[cfg(feature = "stock")]
        Command::Repro(command) => repro::run(&command),
        #[cfg(feature = "shell")]
        Command::Completions(args) => shell::completions(&args),
        #[cfg(feature = "shell")]
        Command::Man(args) => shell::man(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
