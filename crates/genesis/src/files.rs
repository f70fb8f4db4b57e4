//! The files of homes: genesis, keys, and how they are read and written.

use crate::{Apps, ConfigError, Genesis};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use tercio_crypto::SecretKey;
use zeroize::Zeroizing;

/// The file of the network's genesis.
pub const GENESIS_FILE: &str = "genesis.toml";
/// The file of a member's secret key.
pub const KEY_FILE: &str = "key";
/// A configuration file is far shorter.
const MAX_FILE: u64 = 16 << 20;

/// Reads a file that is text and not absurdly long.
///
/// # Errors
/// When it cannot be read.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    let meta = fs::metadata(path).map_err(ConfigError::io("read", path))?;
    if meta.len() > MAX_FILE {
        let source = io::Error::new(io::ErrorKind::InvalidData, "the file is too long");
        return Err(ConfigError::Io { action: "read", path: path.to_owned(), source });
    }
    fs::read_to_string(path).map_err(ConfigError::io("read", path))
}

/// Reads a secret key from a file that only its owner can read.
///
/// # Errors
/// When others can read it, or it is no secret key.
pub fn read_secret(path: &Path) -> Result<SecretKey, ConfigError> {
    SecretKey::from_file_text(&read_private(path)?)
        .map_err(|why| ConfigError::Key { path: path.to_owned(), why: why.to_string() })
}

/// Reads a file that only its owner can read.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<String>, ConfigError> {
    let meta = fs::metadata(path).map_err(ConfigError::io("read", path))?;
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(ConfigError::Exposed { path: path.to_owned(), mode });
    }
    read_text(path).map(Zeroizing::new)
}

/// Writes a secret key to a new file of mode 0600.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn write_secret(path: &Path, secret: &SecretKey) -> Result<(), ConfigError> {
    write_new(path, secret.to_file_text().as_bytes(), 0o600)
}

pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), ConfigError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(ConfigError::io("write", path))
}

/// Reads the genesis file of a network that runs one of `apps`.
///
/// # Errors
/// When it cannot be read or makes no network.
pub fn read_genesis(path: &Path, apps: &Apps) -> Result<Genesis, ConfigError> {
    Genesis::from_toml(&read_text(path)?, path, apps)
        .map_err(|why| ConfigError::Genesis { path: path.to_owned(), why })
}

/// Writes a genesis to a new file.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn write_genesis(path: &Path, genesis: &Genesis) -> Result<(), ConfigError> {
    write_new(path, genesis.to_toml().as_bytes(), 0o644)
}
