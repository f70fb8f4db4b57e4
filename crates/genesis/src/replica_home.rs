//! A replica's home: the directory of all its files.
//!
//! ```text
//! tercio.toml   this replica's settings
//! genesis.toml  the network's (crate::Genesis)
//! key           the secret of its identity, mode 0600
//! data/         what it writes (tercio_ledger::DataDir)
//! ```
//!
//! `docs/configuration.md` has every key with its default, and a test that holds it to the parser.

use crate::files::write_new;
use crate::{ConfigError, GENESIS_FILE, Genesis, KEY_FILE, write_genesis, write_secret};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use tercio_crypto::SecretKey;
use tercio_ledger::{DataDir, Identity};
use tercio_types::ReplicaId;

/// The file of a replica's own settings.
pub const CONFIG_FILE: &str = "tercio.toml";
/// The directory of what the replica writes.
pub const DATA_DIR: &str = "data";

/// Makes a replica's home: the three files and the data directory, in a directory that does not have
/// them yet. `settings` is the text of `tercio.toml` below the line that names the replica.
///
/// The write-ahead log is begun here, so that a start that finds none knows that it was lost.
///
/// # Errors
/// When a file exists or cannot be written.
pub fn create_home(
    home: &Path,
    replica: ReplicaId,
    genesis: &Genesis,
    secret: &SecretKey,
    settings: &str,
) -> Result<(), ConfigError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.map_err(ConfigError::io("create", home))?;
    write_secret(&home.join(KEY_FILE), secret)?;
    join_as_replica(home, replica, genesis, settings)
}

/// Writes genesis and settings into a home that has its key.
///
/// # Errors
/// When a file exists or cannot be written.
pub fn join_as_replica(
    home: &Path,
    replica: ReplicaId,
    genesis: &Genesis,
    settings: &str,
) -> Result<(), ConfigError> {
    write_genesis(&home.join(GENESIS_FILE), genesis)?;
    let text = format!("replica = {replica}\n{settings}");
    write_new(&home.join(CONFIG_FILE), text.as_bytes(), 0o644)?;
    let (chain, suite) = (genesis.chain(), genesis.suite);
    DataDir::create(home.join(DATA_DIR), &Identity { chain, replica, suite })?;
    Ok(())
}
