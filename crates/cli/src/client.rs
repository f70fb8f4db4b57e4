//! `tercio client add`: one more client for a network that has not run yet.
//!
//! The clients are part of the genesis, and the genesis is the chain's name: another client makes
//! another chain. So nobody can be added to a network that has ordered anything, and this says so.

use crate::failure::Failure;
use crate::testnet::scheme;
use crate::{folder, output};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use tercio_bench::network::{CLIENTS, client_home};
use tercio_crypto::{SecretKey, SigningSecret};
use tercio_ledger::{DataDir, Identity};
use tercio_replica::client_home::create_client_home;
use tercio_replica::config::{DATA_DIR, GENESIS_FILE};
use tercio_replica::report::STATUS_FILE;
use tercio_replica::{ClientHome, Genesis};
use tercio_types::{ClientId, ClientInfo, ReplicaId, Scheme};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a client to a network that has not run yet
    Add(AddArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// The network's directory, with the homes of all replicas
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What to call its home in DIR/clients [default: its number]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// The scheme that it signs under, if not the suite's: ed25519, sm2, p256, secp256k1, rsa
    #[arg(long, value_name = "SCHEME", value_parser = scheme)]
    signing: Option<Scheme>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && !text.starts_with('.') && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err("write letters, digits, - and _".into()),
    }
}

#[derive(Serialize)]
struct Report {
    client: u64,
    home: PathBuf,
    chain: String,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Add(args) = command;
    let mut genesis = folder::genesis(&args.dir)?;
    let old = genesis.chain();
    let replicas = folder::replicas(&args.dir, genesis.replicas.len());
    if replicas.len() < genesis.replicas.len() {
        return Err(Failure::at(
            &args.dir,
            "does not have the homes of all replicas; write a new genesis with `tercio genesis`",
        ));
    }
    for (id, home) in &replicas {
        // A process writes this before anything else; a log without it is somebody else's.
        let data = DataDir::open(home.join(DATA_DIR)).map_err(Failure::new)?;
        if home.join(STATUS_FILE).exists() || data.identity().chain != old {
            return Err(Failure::at(
                &args.dir,
                format!(
                    "replica {id} has run: the clients of a network are fixed by its genesis; \
                     make them before its first start (tercio testnet --clients K)"
                ),
            ));
        }
    }
    let id = ClientId(genesis.clients.keys().last().map_or(1, |last| last.0 + 1));
    let home = client_home(&args.dir, args.name.as_ref().unwrap_or(&id.to_string()));
    if home.exists() {
        return Err(Failure::at(&home, "exists already; name another with --name"));
    }
    let secret = SecretKey::generate_for(genesis.suite).map_err(Failure::new)?;
    let signing = args.signing.map(SigningSecret::generate).transpose().map_err(Failure::new)?;
    let public = signing.as_ref().map(SigningSecret::public);
    genesis.clients.insert(id, ClientInfo { signing: public, ..ClientInfo::new(secret.public()) });
    for (replica, home) in &replicas {
        replace(&home.join(GENESIS_FILE), &genesis)?;
        // Nothing was written yet but whose log it is, which has another name now.
        let data = home.join(DATA_DIR);
        fs::remove_dir_all(&data).map_err(|error| Failure::at(&data, error))?;
        let (chain, suite) = (genesis.chain(), genesis.suite);
        let identity = Identity { chain, replica: ReplicaId(*replica), suite };
        DataDir::create(data, &identity).map_err(Failure::new)?;
    }
    let mut signs = true;
    for entry in fs::read_dir(args.dir.join(CLIENTS)).into_iter().flatten().flatten() {
        let home = entry.path();
        signs = ClientHome::load(&home).map_err(Failure::new)?.signs;
        replace(&home.join(GENESIS_FILE), &genesis)?;
    }
    create_client_home(&home, id, &genesis, &secret, signing.as_ref(), signs)
        .map_err(Failure::new)?;
    replace(&args.dir.join(GENESIS_FILE), &genesis)?;
    let report = Report { client: id.0, home, chain: genesis.chain().to_string() };
    output::report(args.json, &report, |report| {
        output::line(&format!("client {} in {}", report.client, report.home.display()));
    })
}

/// Writes a genesis over an older one, whole.
fn replace(path: &Path, genesis: &Genesis) -> Result<(), Failure> {
    let new = path.with_extension("toml.new");
    let written = fs::write(&new, genesis.to_toml()).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| Failure::at(path, error))
}
