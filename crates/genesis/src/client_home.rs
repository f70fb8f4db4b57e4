//! A client's own configuration: its home directory.
//!
//! ```text
//! client.toml   this client's settings
//! genesis.toml  the network's (crate::Genesis); replicas are reached at its addresses
//! key           the secret of its identity, mode 0600
//! signing.pem   what it signs packages with, when the genesis names another key than its identity:
//!               PKCS#8 or SEC 1 as OpenSSL and GmSSL write them, mode 0600
//! numbers       which of its numbers were used (tercio_client::Numbers)
//! ```
//!
//! `docs/configuration.md` has every key with its default, and a test that holds it to the parser.

use crate::files::{read_private, write_new};
use crate::{
    Apps, At, ConfigError, FileError, GENESIS_FILE, Genesis, GenesisError, KEY_FILE, Source,
    read_genesis, read_secret, read_text, write_genesis, write_secret,
};
use serde::Deserialize;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::{SecretKey, SigningSecret};
use tercio_types::{ClientId, ClientInfo, Membership};

/// The file of a client's own settings.
pub const CLIENT_FILE: &str = "client.toml";
/// The file of a client's signing key.
pub const SIGNING_FILE: &str = "signing.pem";

/// What a client's home holds.
#[derive(Debug)]
pub struct ClientHome {
    /// Its number.
    pub client: ClientId,
    /// Its public keys.
    pub info: ClientInfo,
    /// The secret of its identity.
    pub secret: SecretKey,
    /// What it signs packages with, when that is not its identity.
    pub signing: Option<Arc<SigningSecret>>,
    /// Whether it signs its packages; otherwise they carry MAC vectors.
    pub signs: bool,
    /// How long the primary has before all replicas are asked; the client's default if absent.
    pub timeout: Option<Duration>,
    /// When a request is given up; the client's default if absent.
    pub deadline: Option<Duration>,
    /// How long to wait for links to a quorum; the client's default if absent.
    pub connect: Option<Duration>,
    /// The network.
    pub genesis: Genesis,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    client: At<u64>,
    added: Option<bool>,
    auth: Option<At<String>>,
    timeout_ms: Option<At<u64>>,
    deadline_ms: Option<At<u64>>,
    connect_ms: Option<At<u64>>,
}

fn duration(source: &Source<'_>, ms: Option<&At<u64>>) -> Result<Option<Duration>, FileError> {
    match ms {
        Some(ms) if !(1..=3_600_000).contains(ms.get()) => {
            Err(source.at(ms, "must be 1 to 3600000 milliseconds"))
        }
        ms => Ok(ms.map(|ms| Duration::from_millis(*ms.get()))),
    }
}

impl ClientHome {
    /// Reads the home of a client of a network that runs one of `apps`.
    ///
    /// # Errors
    /// When a file is missing, unreadable, or wrong; names file, line and key.
    pub fn load(home: &Path, apps: &Apps) -> Result<Self, ConfigError> {
        let file = home.join(CLIENT_FILE);
        let text = read_text(&file)?;
        let genesis = read_genesis(&home.join(GENESIS_FILE), apps)?;
        let (secret, signing) = read_client_keys(home)?;
        let source = Source { file: &file, text: &text };
        let File { client, added, auth, timeout_ms, deadline_ms, connect_ms } = source.parse()?;
        let id = ClientId(*client.get());
        let own = ClientInfo {
            signing: signing.as_ref().map(SigningSecret::public),
            ..ClientInfo::new(secret.public())
        };
        let info = match genesis.clients.get(&id) {
            None if added == Some(true) => own,
            None => return Err(source.at(&client, "the genesis has no such client").into()),
            Some(_) if added == Some(true) => {
                let what = "the genesis has this client: it was not added later (take added out)";
                return Err(source.at(&client, what).into());
            }
            Some(info) if info.key != own.key => {
                let what = "the key file beside this is not this client's key in the genesis";
                return Err(source.at(&client, what).into());
            }
            Some(info) if info.signing != own.signing && info.signing.is_some() => {
                let why = "this is not the key that the genesis has".into();
                return Err(ConfigError::Key { path: home.join(SIGNING_FILE), why });
            }
            Some(info) => info.clone(),
        };
        let signing = signing.filter(|_| info.signing.is_some()).map(Arc::new);
        let signs = match auth.as_ref().map(|auth| (auth, auth.get().as_str())) {
            None | Some((_, "signature")) => true,
            Some((_, "mac")) => false,
            Some((auth, _)) => {
                return Err(source.at(auth, "unknown; write mac or signature").into());
            }
        };
        Ok(Self {
            client: id,
            info,
            secret,
            signing,
            signs,
            timeout: duration(&source, timeout_ms.as_ref())?,
            deadline: duration(&source, deadline_ms.as_ref())?,
            connect: duration(&source, connect_ms.as_ref())?,
            genesis,
        })
    }
}

impl ClientHome {
    /// The replicas, and this client: the membership that it speaks to and in.
    ///
    /// # Errors
    /// When the genesis makes no membership.
    pub fn membership(&self) -> Result<Arc<Membership>, GenesisError> {
        let mut genesis = self.genesis.clone();
        let chain = genesis.chain();
        genesis.clients.insert(self.client, self.info.clone());
        genesis.membership_of(chain)
    }
}

/// Reads a client's keys: of its identity, and what it signs with if there is a file for that.
///
/// # Errors
/// When a file is no key, or others can read it; when there is no identity.
pub fn read_client_keys(home: &Path) -> Result<(SecretKey, Option<SigningSecret>), ConfigError> {
    let secret = read_secret(&home.join(KEY_FILE))?;
    let path = home.join(SIGNING_FILE);
    if !path.exists() {
        return Ok((secret, None));
    }
    let signing = SigningSecret::from_pem(&read_private(&path)?);
    let signing = signing.map_err(|why| ConfigError::Key { path, why: why.to_string() })?;
    Ok((secret, Some(signing)))
}

/// Makes a client's home: its keys and what [`join_as_client`] writes.
///
/// # Errors
/// When a file exists or cannot be written.
pub fn create_client_home(
    home: &Path,
    client: ClientId,
    genesis: &Genesis,
    secret: &SecretKey,
    signing: Option<&SigningSecret>,
    signs: bool,
) -> Result<(), ConfigError> {
    write_client_keys(home, secret, signing)?;
    join_as_client(home, client, genesis, signs)
}

/// Makes a directory with a client's keys, which is a home once [`join_as_client`] has written the
/// rest.
///
/// # Errors
/// When a file exists or cannot be written.
pub fn write_client_keys(
    home: &Path,
    secret: &SecretKey,
    signing: Option<&SigningSecret>,
) -> Result<(), ConfigError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.map_err(ConfigError::io("create", home))?;
    write_secret(&home.join(KEY_FILE), secret)?;
    if let Some(signing) = signing {
        let path = home.join(SIGNING_FILE);
        let pem = signing.to_pem();
        let pem =
            pem.map_err(|why| ConfigError::Key { path: path.clone(), why: why.to_string() })?;
        write_new(&path, pem.as_bytes(), 0o600)?;
    }
    Ok(())
}

/// Writes the genesis and `client.toml` into a directory that has the client's keys. A client that
/// the genesis does not list is one that was added later.
///
/// # Errors
/// When a file exists or cannot be written.
pub fn join_as_client(
    home: &Path,
    client: ClientId,
    genesis: &Genesis,
    signs: bool,
) -> Result<(), ConfigError> {
    write_genesis(&home.join(GENESIS_FILE), genesis)?;
    let auth = if signs { "signature" } else { "mac" };
    let added = if genesis.clients.contains_key(&client) { "" } else { "added = true\n" };
    let text = format!("client = {client}\n{added}auth = \"{auth}\"\n");
    write_new(&home.join(CLIENT_FILE), text.as_bytes(), 0o644)
}
