//! `tercio client`: one more client for a network.
//!
//! Before the network has run, a client is added to the genesis, which makes another chain of it:
//! the homes here get the new genesis. Later the replicas are asked to add it, in order with all
//! operations; that takes the signatures of f+1 operators (`client approve`), and a client that is
//! there already to ask. Where the homes of f+1 replicas are on this machine, `client add` signs for
//! them.

use crate::failure::Failure;
use crate::folder::Kind;
use crate::session::{Session, Who};
use crate::testnet::scheme;
use crate::{folder, output};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tercio_crypto::{
    Instance, Keyring, SecretKey, SigningSecret, from_hex, identity_from_text,
    signing_key_from_text, to_hex,
};
use tercio_genesis::client_home::{
    CLIENT_FILE, join_as_client, read_client_keys, write_client_keys,
};
use tercio_genesis::replica_home::DATA_DIR;
use tercio_genesis::{ClientHome, GENESIS_FILE, Genesis, KEY_FILE};
use tercio_ledger::{DataDir, Identity};
use tercio_network::{CLIENTS, client_home};
use tercio_replica::ReplicaConfig;
use tercio_replica::report::STATUS_FILE;
use tercio_types::{ClientId, ClientInfo, Principal, ReplicaId, Scheme, SignatureBytes};
use tercio_wire::approval_key;

/// The directory of a client whose number is not known yet.
const NEW: &str = "new";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a client to a network, before its first start or while it runs
    Add(AddArgs),
    /// Sign a client's keys with a replica's, so that it can be added to a network that has run
    Approve(ApproveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// The network's directory, or (with --key) the home of a client that asks
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What to call its home in DIR/clients [default: its number]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// The scheme that it signs under, if not the suite's: ed25519, sm2, p256, secp256k1, rsa
    #[arg(long, value_name = "SCHEME", value_parser = scheme)]
    signing: Option<Scheme>,
    /// The public key of a client that has its home elsewhere (`tercio init`)
    #[arg(long, value_name = "KEY", conflicts_with_all = ["name", "signing"])]
    key: Option<String>,
    /// What that client signs with, if not with its identity: SCHEME:KEY
    #[arg(long, value_name = "SCHEME:KEY", requires = "key")]
    signing_key: Option<String>,
    /// An operator's approval, as `tercio client approve` prints it; once for each of f+1
    #[arg(long = "approval", value_name = "REPLICA:SIGNATURE", requires = "key")]
    approvals: Vec<String>,
    /// The client in DIR/clients that asks, when the network has run [default: the first]
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// The home of the replica that approves
    #[arg(value_name = "HOME")]
    home: PathBuf,
    /// The client's public key, as `tercio init` prints it
    #[arg(value_name = "KEY")]
    key: String,
    /// What the client signs with, if not with its identity: SCHEME:KEY
    #[arg(long, value_name = "SCHEME:KEY")]
    signing_key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// An operator's word.
#[derive(Serialize)]
struct Approved {
    replica: u16,
    /// As `client add --approval` takes it.
    approval: String,
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
    /// `None` when it is elsewhere.
    home: Option<PathBuf>,
    chain: String,
    /// Whether it was added to the genesis, rather than by the replicas.
    genesis: bool,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Add(args) => add(args),
        Command::Approve(args) => approve(args),
    }
}

fn add(args: &AddArgs) -> Result<(), Failure> {
    if folder::kind(&args.dir) == Some(Kind::Replica) {
        return Err(folder::no_network(&args.dir));
    }
    let genesis = folder::genesis(&args.dir)?;
    let replicas = folder::replicas(&args.dir, &genesis);
    // A process writes this before anything else.
    let has_run = replicas.iter().any(|(_, home)| home.join(STATUS_FILE).exists());
    let report = match &args.key {
        Some(key) => add_elsewhere(args, &genesis, key)?,
        None if has_run => add_in_order(args, &genesis, &replicas)?,
        None => add_to_genesis(args, genesis, &replicas)?,
    };
    output::report(args.json, &report, |report| match &report.home {
        Some(home) => output::line(&format!("client {} in {}", report.client, home.display())),
        None => output::line(&format!(
            "client {0}; in its home, beside its key: tercio init HOME --genesis genesis.toml \
             --added-as {0}",
            report.client
        )),
    })
}

/// A network that has not run: the genesis gets another client.
fn add_to_genesis(
    args: &AddArgs,
    mut genesis: Genesis,
    replicas: &[(u16, PathBuf)],
) -> Result<Report, Failure> {
    if replicas.len() < genesis.replicas.len() {
        return Err(Failure::at(
            &args.dir,
            "does not have the homes of all replicas; write a new genesis with `tercio genesis`, \
             or name the client's --key when the network has run",
        ));
    }
    let old = genesis.chain();
    for (id, home) in replicas {
        // A log without a status is somebody else's.
        let data = DataDir::open(home.join(DATA_DIR)).map_err(Failure::new)?;
        if data.identity().chain != old {
            let what = format!("replica {id} has the data of another network");
            return Err(Failure::at(&args.dir, what));
        }
    }
    let id = ClientId(genesis.clients.keys().last().map_or(1, |last| last.0 + 1));
    let home = client_home(&args.dir, args.name.as_ref().unwrap_or(&id.to_string()));
    let info = keys(&home, &genesis, args.signing)?;
    genesis.clients.insert(id, info);
    for (replica, home) in replicas {
        replace(&home.join(GENESIS_FILE), &genesis)?;
        // Nothing was written yet but whose log it is, which has another name now.
        let data = home.join(DATA_DIR);
        fs::remove_dir_all(&data).map_err(|error| Failure::at(&data, error))?;
        let (chain, suite) = (genesis.chain(), genesis.suite);
        let identity = Identity { chain, replica: ReplicaId(*replica), suite };
        DataDir::create(data, &identity).map_err(Failure::new)?;
    }
    let signs = others_sign(&args.dir)?;
    for home in homes(&args.dir) {
        replace(&home.join(GENESIS_FILE), &genesis)?;
    }
    join_as_client(&home, id, &genesis, signs).map_err(Failure::new)?;
    replace(&args.dir.join(GENESIS_FILE), &genesis)?;
    let chain = genesis.chain().to_string();
    Ok(Report { client: id.0, home: Some(home), chain, genesis: true })
}

/// A network that has run, with f+1 homes here: the replicas add the client.
fn add_in_order(
    args: &AddArgs,
    genesis: &Genesis,
    replicas: &[(u16, PathBuf)],
) -> Result<Report, Failure> {
    let membership = genesis.membership().map_err(Failure::new)?;
    let needed = membership.weak_quorum();
    if replicas.len() < needed {
        return Err(Failure::at(
            &args.dir,
            format!(
                "has the homes of {} replica(s), and it takes the approval of {needed}; their \
                 operators sign with `tercio client approve`, and --key KEY --approval ... adds it",
                replicas.len()
            ),
        ));
    }
    // Keys first: what the replicas have added must not be lost with this process.
    let named = args.name.as_ref().map(|name| client_home(&args.dir, name));
    let home = named.clone().unwrap_or_else(|| client_home(&args.dir, NEW));
    let info = keys(&home, genesis, args.signing)?;
    let approvals = replicas[..needed].iter().map(|(_, home)| approval(home, &info));
    let approvals = approvals.collect::<Result<Vec<_>, _>>()?;
    let signs = others_sign(&args.dir)?;
    let id = ask(args, info, approvals)?;
    join_as_client(&home, id, genesis, signs).map_err(Failure::new)?;
    let home = match named {
        Some(home) => home,
        None => {
            let numbered = client_home(&args.dir, &id.to_string());
            fs::rename(&home, &numbered).map_err(|error| Failure::at(&numbered, error))?;
            numbered
        }
    };
    let chain = genesis.chain().to_string();
    Ok(Report { client: id.0, home: Some(home), chain, genesis: false })
}

/// A client and operators who are elsewhere: only the asking is done here.
fn add_elsewhere(args: &AddArgs, genesis: &Genesis, key: &str) -> Result<Report, Failure> {
    let info = info(genesis, key, args.signing_key.as_deref())?;
    let mut approvals = BTreeMap::new();
    for text in &args.approvals {
        let (replica, signature) = parse_approval(text)?;
        if approvals.insert(replica, signature).is_some() {
            return Err(Failure::Usage(format!("--approval: two are of replica {replica}")));
        }
    }
    let needed = genesis.membership().map_err(Failure::new)?.weak_quorum();
    if approvals.len() != needed {
        return Err(Failure::Usage(format!(
            "it takes the approval of exactly {needed} replicas; --approval names {}",
            approvals.len()
        )));
    }
    let id = ask(args, info, approvals.into_iter().collect())?;
    Ok(Report { client: id.0, home: None, chain: genesis.chain().to_string(), genesis: false })
}

/// Asks the replicas to add a client.
fn ask(
    args: &AddArgs,
    info: ClientInfo,
    approvals: Vec<(ReplicaId, SignatureBytes)>,
) -> Result<ClientId, Failure> {
    let who = Who { dir: args.dir.clone(), client: args.client.clone() };
    let mut session = Session::open(&who)?;
    session.resume()?;
    session.add_client(info, approvals)
}

fn approve(args: &ApproveArgs) -> Result<(), Failure> {
    folder::expect_replica(&args.home)?;
    let genesis = folder::genesis(&args.home)?;
    let info = info(&genesis, &args.key, args.signing_key.as_deref())?;
    let (replica, signature) = approval(&args.home, &info)?;
    let approval = format!("{replica}:{}", to_hex(signature.as_slice()));
    let approved = Approved { replica: replica.0, approval };
    output::report(args.json, &approved, |approved| output::line(&approved.approval))
}

/// A replica's signature on a client's keys.
fn approval(home: &Path, info: &ClientInfo) -> Result<(ReplicaId, SignatureBytes), Failure> {
    let (config, _) = ReplicaConfig::load(home, crate::apps()).map_err(Failure::new)?;
    let (id, membership) = (config.node.me, config.node.membership);
    let secret = config.node.secret;
    if membership.member(id).is_none_or(|member| member.key != secret.public()) {
        return Err(Failure::at(home, "its key is not the one that the genesis has for it"));
    }
    let said = approval_key(membership.suite(), id, info).to_array();
    let keyring = Keyring::new(Principal::Replica(id), secret, membership, Instance::default());
    Ok((id, keyring.sign(&said)))
}

fn parse_approval(text: &str) -> Result<(ReplicaId, SignatureBytes), Failure> {
    let parsed = text.split_once(':').and_then(|(replica, digits)| {
        let signature = SignatureBytes::new(&from_hex(digits)?)?;
        Some((ReplicaId(replica.parse().ok()?), signature))
    });
    parsed.ok_or_else(|| {
        Failure::Usage(format!(
            "--approval: '{text}' is none; `tercio client approve HOME KEY` prints one"
        ))
    })
}

/// The keys of a client, from the command line.
fn info(genesis: &Genesis, key: &str, signing: Option<&str>) -> Result<ClientInfo, Failure> {
    let key = identity_from_text(genesis.suite, key)
        .map_err(|why| Failure::Usage(format!("'{key}': {why}")))?;
    let signing = signing.map(signing_key_from_text).transpose();
    let signing = signing.map_err(|why| Failure::Usage(format!("--signing-key: {why}")))?;
    Ok(ClientInfo { signing, ..ClientInfo::new(key) })
}

/// Makes a client's keys in `home`, or takes up those of an attempt that did not come to its end.
fn keys(home: &Path, genesis: &Genesis, signing: Option<Scheme>) -> Result<ClientInfo, Failure> {
    if home.join(CLIENT_FILE).exists() {
        return Err(Failure::at(home, "exists already; name another with --name"));
    }
    if !home.join(KEY_FILE).exists() {
        let secret = SecretKey::generate_for(genesis.suite).map_err(Failure::new)?;
        let signing = signing.map(SigningSecret::generate).transpose().map_err(Failure::new)?;
        write_client_keys(home, &secret, signing.as_ref()).map_err(Failure::new)?;
    }
    let (secret, signing) = read_client_keys(home).map_err(Failure::new)?;
    let signing = signing.as_ref().map(SigningSecret::public);
    Ok(ClientInfo { signing, ..ClientInfo::new(secret.public()) })
}

/// The homes of the clients in `dir`.
fn homes(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir.join(CLIENTS)).into_iter().flatten().flatten();
    let whole = |home: &PathBuf| home.join(CLIENT_FILE).exists();
    entries.map(|entry| entry.path()).filter(whole)
}

/// Whether the clients here sign their packages.
fn others_sign(dir: &Path) -> Result<bool, Failure> {
    match homes(dir).next() {
        None => Ok(true),
        Some(home) => Ok(ClientHome::load(&home, crate::apps()).map_err(Failure::new)?.signs),
    }
}

/// Writes a genesis over an older one, whole.
fn replace(path: &Path, genesis: &Genesis) -> Result<(), Failure> {
    let new = path.with_extension("toml.new");
    let written = fs::write(&new, genesis.to_toml()).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| Failure::at(path, error))
}
