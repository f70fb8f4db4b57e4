//! `tercio init` and `tercio genesis`: a network of machines of different operators. Each makes
//! a home and hands out its public key; one writes all keys into a genesis; each joins it.

use crate::failure::Failure;
use crate::testnet::{app, durability, protocol, suite};
use crate::{apps, output, protocols};
use serde::Serialize;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tercio_crypto::{SecretKey, identity_from_text, key_text};
use tercio_genesis::client_home::join_as_client;
use tercio_genesis::replica_home::join_as_replica;
use tercio_genesis::{
    App, Genesis, KEY_FILE, SharedSettings, read_genesis, read_secret, write_genesis, write_secret,
};
use tercio_network::Spec;
use tercio_replica::{Durability, Runner};
use tercio_types::{ClientId, ClientInfo, Member, PublicKey, ReplicaId, Suite};

#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// The home to make, or to complete
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Join this network; the key in DIR says as whom
    #[arg(long, value_name = "FILE.toml")]
    genesis: Option<PathBuf>,
    /// Join as this client, which was added after the network's start and is not in the genesis
    #[arg(long, value_name = "NUMBER", requires = "genesis",
          value_parser = clap::value_parser!(u64).range(1..))]
    added_as: Option<u64>,
    /// The cryptography of a new key: sha256-ed25519, or sm (sm3-sm2)
    #[arg(long, value_name = "SUITE", default_value = "sha256-ed25519", value_parser = suite)]
    crypto: Suite,
    /// A replica: when what is written counts as durable: memory, sync, or group:N (milliseconds)
    #[arg(long, value_name = "MODE", default_value = "memory", value_parser = durability)]
    durability: Durability,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    dir: PathBuf,
    public_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<String>,
}

/// Makes the key of a home, or, given a genesis, the rest of it.
pub(crate) fn init(args: &InitArgs) -> Result<(), Failure> {
    let key_file = args.dir.join(KEY_FILE);
    let secret = if key_file.exists() {
        read_secret(&key_file).map_err(Failure::new)?
    } else {
        must_be_free(&args.dir)?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&args.dir);
        made.map_err(|error| Failure::at(&args.dir, error))?;
        let secret = SecretKey::generate_for(args.crypto).map_err(Failure::new)?;
        write_secret(&key_file, &secret).map_err(Failure::new)?;
        secret
    };
    let joined = match &args.genesis {
        None => None,
        Some(file) => {
            let genesis = read_genesis(file, apps()).map_err(Failure::new)?;
            Some(join(args, &secret.public(), file, &genesis)?)
        }
    };
    let public_key = key_text(&secret.public());
    let report = Report { dir: args.dir.clone(), public_key, joined };
    output::report(args.json, &report, |report| {
        output::line(&report.public_key);
        match &report.joined {
            Some(who) => output::line(&format!("{} is {who}", report.dir.display())),
            None => output::line(&format!(
                "this is the public key of {0}; when it stands in a genesis: tercio init {0} \
                 --genesis FILE.toml",
                report.dir.display()
            )),
        }
    })
}

/// A home is made in a directory that has nothing yet.
fn must_be_free(dir: &Path) -> Result<(), Failure> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            Err(Failure::at(dir, "is no home (it has no key) and is not empty; name a new one"))
        }
        _ => Ok(()),
    }
}

fn join(
    args: &InitArgs,
    key: &PublicKey,
    file: &Path,
    genesis: &Genesis,
) -> Result<String, Failure> {
    let InitArgs { dir, durability, .. } = args;
    if let Some((&id, member)) = genesis.replicas.iter().find(|(_, member)| member.key == *key) {
        let settings = Spec { durability: *durability, ..Spec::new(genesis.app.clone()) }.to_toml();
        join_as_replica(dir, id, genesis, &settings).map_err(Failure::new)?;
        let address = &member.address;
        return Ok(format!(
            "replica {id} of '{}', at {address}; run it with: tercio start --dir {}",
            genesis.name,
            dir.display()
        ));
    }
    let listed = genesis.clients.iter().find(|(_, info)| info.key == *key).map(|(id, _)| *id);
    let added = args.added_as.map(ClientId);
    if let Some(id) = added.filter(|id| listed.is_some() || genesis.clients.contains_key(id)) {
        return Err(Failure::Usage(format!(
            "--added-as {id}: the genesis has this client's number or key; leave it out"
        )));
    }
    if let Some(id) = listed.or(added) {
        join_as_client(dir, id, genesis, true).map_err(Failure::new)?;
        return Ok(format!(
            "client {id} of '{}'; use it with: tercio submit {} '{}'",
            genesis.name,
            dir.display(),
            genesis.app.example()
        ));
    }
    Err(Failure::at(
        file,
        format!("does not list the public key of {} ({})", dir.display(), key_text(key)),
    ))
}

#[derive(Debug, clap::Args)]
pub(crate) struct GenesisArgs {
    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE.toml", default_value = "genesis.toml")]
    output: PathBuf,
    /// The network's name
    #[arg(long)]
    name: String,
    /// The cryptography: sha256-ed25519, or sm (sm3-sm2)
    #[arg(long, value_name = "SUITE", default_value = "sha256-ed25519", value_parser = suite)]
    crypto: Suite,
    /// A replica, once for each, in order: its public key and where it listens
    #[arg(long = "replica", value_name = "KEY@HOST:PORT", required = true)]
    replicas: Vec<String>,
    /// A client's public key, once for each; they are numbered from 1
    #[arg(long = "client", value_name = "KEY")]
    clients: Vec<String>,
    /// The application [default: the first that this program knows]
    #[arg(long, value_name = "APP", value_parser = app)]
    app: Option<App>,
    /// The ordering protocol [default: the first that this program knows]
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<Runner>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A genesis that was written.
#[derive(Serialize)]
struct Written<'a> {
    chain: String,
    file: &'a Path,
    replicas: usize,
    clients: usize,
}

fn key(suite: Suite, text: &str) -> Result<PublicKey, Failure> {
    identity_from_text(suite, text).map_err(|_| {
        Failure::Usage(format!(
            "'{text}' is no public key of {0} ({1} hexadecimal digits); `tercio init DIR --crypto \
             {0}` prints one",
            suite.name(),
            if suite == Suite::Sm3Sm2 { 130 } else { 64 }
        ))
    })
}

fn member(suite: Suite, text: &str) -> Result<Member, Failure> {
    let (digits, address) = text
        .split_once('@')
        .ok_or_else(|| Failure::Usage(format!("'{text}': write KEY@HOST:PORT")))?;
    if !address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    }) {
        return Err(Failure::Usage(format!("'{address}' is no address; write HOST:PORT")));
    }
    Ok(Member { key: key(suite, digits)?, address: address.to_owned() })
}

/// Writes a genesis from keys and addresses.
pub(crate) fn genesis(args: &GenesisArgs) -> Result<(), Failure> {
    let suite = args.crypto;
    let replicas = (0..).map(ReplicaId).zip(&args.replicas);
    let replicas = replicas.map(|(id, text)| Ok((id, member(suite, text)?)));
    let client = |(id, text): (u64, &String)| {
        key(suite, text).map(|key| (ClientId(id), ClientInfo::new(key)))
    };
    let genesis = Genesis {
        name: args.name.clone(),
        suite,
        lag: 0,
        protocol: args.protocol.unwrap_or_else(|| protocols().first()).facts(),
        replicas: replicas.collect::<Result<_, Failure>>()?,
        clients: (1..).zip(&args.clients).map(client).collect::<Result<_, _>>()?,
        app: args.app.clone().unwrap_or_else(|| apps().first()),
        consensus: SharedSettings::default(),
    };
    let genesis = genesis.with_new_rules();
    // Read back, since keys are looked at there.
    Genesis::from_toml(&genesis.to_toml(), &args.output, apps()).map_err(Failure::new)?;
    write_genesis(&args.output, &genesis).map_err(Failure::new)?;
    let written = Written {
        chain: genesis.chain().to_string(),
        file: &args.output,
        replicas: genesis.replicas.len(),
        clients: genesis.clients.len(),
    };
    output::report(args.json, &written, |written| {
        output::line(&format!("chain {}", written.chain));
        output::line(&format!(
            "give {0} to everybody; each joins with: tercio init DIR --genesis {0}",
            written.file.display()
        ));
    })
}
