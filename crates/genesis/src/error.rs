//! Why a genesis makes no network, and why a home cannot be used.

use crate::FileError;
use std::io;
use std::path::{Path, PathBuf};
use tercio_ledger::DataDirError;
use tercio_types::MembershipError;
use thiserror::Error;

/// Why a genesis makes no network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GenesisError {
    /// The name is empty or too long.
    #[error("name: a network's name has 1 to 64 bytes")]
    Name,
    /// The replicas make no membership.
    #[error("replica: {0}")]
    Membership(#[from] MembershipError),
    /// The application's rules make no sense.
    #[error("{name}: {why}")]
    App {
        /// The application.
        name: &'static str,
        /// What it says.
        why: String,
    },
    /// The protocol's settings make no sense.
    #[error("consensus: {0}")]
    Consensus(#[from] tercio_consensus::SettingsError),
    /// Something is wrong in the file.
    #[error("{0}")]
    File(#[from] FileError),
}

/// Why a home cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file is missing.
    #[error("{} does not exist; `tercio testnet -o DIR` makes a network with all its files, `tercio init DIR` the home of one of its members", .0.display())]
    Missing(PathBuf),
    /// A file exists already and is not written over.
    #[error("{} exists already and is not written over; name a new directory", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A secret that others can read.
    #[error(
        "{}: others can read this secret key (mode {mode:03o}); run `chmod 600 {}`, and make a new \
         key if somebody may have seen it", path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file that holds no secret key.
    #[error("{}: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A key or value in the configuration file.
    #[error("{0}")]
    File(#[from] FileError),
    /// The data directory cannot be made.
    #[error("{0}")]
    DataDir(#[from] DataDirError),
    /// The genesis.
    #[error("{}{why}", if matches!(why, GenesisError::File(_)) { String::new() } else { format!("{}: ", path.display()) })]
    Genesis {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: GenesisError,
    },
}

impl ConfigError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::AlreadyExists => Self::Exists(path),
            _ => Self::Io { action, path, source },
        }
    }
}
