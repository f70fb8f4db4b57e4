//! `tercio testnet`: all the files of a network on this machine.

use crate::failure::Failure;
use crate::{apps, folder, output, protocols};
use clap::ValueEnum;
use serde::Serialize;
use std::path::PathBuf;
use tercio_client::ClientAuth;
use tercio_genesis::App;
use tercio_network::{CLIENTS, Network, Spec, client_home, home};
use tercio_replica::{Durability, Runner};
use tercio_types::{Member, ReplicaId, Scheme, Suite};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Auth {
    Mac,
    Signature,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many replicas
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=128))]
    replicas: u16,
    /// The directory to make; it must be empty or not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The application [default: the first that this program knows]
    #[arg(long, value_name = "APP", value_parser = app)]
    app: Option<App>,
    /// The ordering protocol [default: the first that this program knows]
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<Runner>,
    /// How many clients
    #[arg(long, value_name = "K", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// The cryptography: sha256-ed25519, or sm (sm3-sm2)
    #[arg(long, value_name = "SUITE", default_value = "sha256-ed25519", value_parser = suite)]
    crypto: Suite,
    /// The scheme that clients sign under, if not the suite's: ed25519, sm2, p256, secp256k1, rsa
    #[arg(long, value_name = "SCHEME", value_parser = scheme)]
    signing: Option<Scheme>,
    /// How clients authenticate what they send
    #[arg(long, value_enum, default_value_t = Auth::Signature)]
    auth: Auth,
    /// When what is written counts as durable: memory, sync, or group:N (milliseconds)
    #[arg(long, value_name = "MODE", default_value = "memory", value_parser = durability)]
    durability: Durability,
    /// The network's name
    #[arg(long, default_value = "testnet")]
    name: String,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// Reads the name of an application.
pub(crate) fn app(name: &str) -> Result<App, String> {
    apps().named(name).ok_or_else(|| format!("write one of {}", apps().names().join(", ")))
}

/// Reads the name of a protocol.
pub(crate) fn protocol(name: &str) -> Result<Runner, String> {
    let known = || format!("write one of {}", protocols().names().join(", "));
    protocols().named(name).ok_or_else(known)
}

/// Reads the name of a suite.
pub(crate) fn suite(name: &str) -> Result<Suite, String> {
    let name = if name == "sm" { Suite::Sm3Sm2.name() } else { name };
    let known = || format!("write {}, or sm for the last", Suite::ALL.map(Suite::name).join(", "));
    Suite::from_name(name).ok_or_else(known)
}

/// Reads the name of a signature scheme.
pub(crate) fn scheme(name: &str) -> Result<Scheme, String> {
    let known = || format!("write one of {}", Scheme::ALL.map(Scheme::name).join(", "));
    Scheme::from_name(name).ok_or_else(known)
}

/// Reads a durability.
pub(crate) fn durability(text: &str) -> Result<Durability, String> {
    text.parse()
        .map_err(|_| "write memory, sync, or group:N with N from 1 to 1000 milliseconds".into())
}

#[derive(Serialize)]
struct Report {
    dir: PathBuf,
    chain: String,
    app: &'static str,
    protocol: &'static str,
    suite: &'static str,
    replicas: Vec<Replica>,
    clients: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Replica {
    id: u16,
    address: String,
    home: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let dir = &args.output;
    folder::make(dir)?;
    let spec = Spec {
        name: args.name.clone(),
        replicas: args.replicas,
        clients: args.clients.into(),
        suite: args.crypto,
        signing: args.signing,
        auth: match args.auth {
            Auth::Mac => ClientAuth::Mac,
            Auth::Signature => ClientAuth::Signature,
        },
        durability: args.durability,
        protocol: args.protocol.unwrap_or_else(|| protocols().first()),
        ..Spec::new(args.app.clone().unwrap_or_else(|| apps().first()))
    };
    let network = Network::lay_out(dir, &spec).map_err(Failure::new)?;
    let genesis = network.genesis();
    let replica = |(id, member): (&ReplicaId, &Member)| Replica {
        id: id.0,
        address: member.address.clone(),
        home: home(dir, id.0),
    };
    let report = Report {
        dir: dir.clone(),
        chain: genesis.chain().to_string(),
        app: genesis.app.name(),
        protocol: genesis.protocol.name(),
        suite: genesis.suite.name(),
        replicas: genesis.replicas.iter().map(replica).collect(),
        clients: genesis.clients.keys().map(|id| client_home(dir, &id.to_string())).collect(),
    };
    output::report(args.json, &report, |report| print(report, genesis))
}

fn print(report: &Report, genesis: &tercio_genesis::Genesis) {
    let line = output::line;
    let dir = report.dir.display();
    for replica in &report.replicas {
        line(&format!("replica {}: {} in {}", replica.id, replica.address, replica.home.display()));
    }
    line(&format!("{} client(s) in {dir}/{CLIENTS}", report.clients.len()));
    let Report { app, protocol, suite, .. } = report;
    line(&format!("application: {app}; protocol: {protocol}; cryptography: {suite}"));
    let program = output::program();
    line("go on with:");
    line(&format!("  {program} up {dir}"));
    line(&format!("  {program} submit {dir} '{}'", genesis.app.example()));
    line(&format!("  {program} query {dir} '{}'", genesis.app.example_question()));
    line(&format!("  {program} status {dir}"));
}
