//! The directory of a network: `genesis.toml`, a home for each replica, and `clients/` with a home
//! for each client. Parts may be missing, on the machine of one operator of several.

use crate::failure::Failure;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tercio_genesis::client_home::CLIENT_FILE;
use tercio_genesis::replica_home::CONFIG_FILE;
use tercio_genesis::{GENESIS_FILE, Genesis, read_genesis};
use tercio_network::{CLIENTS, client_home, home};
use tercio_types::MAX_REPLICAS;

/// Makes the directory, which must be empty if it exists.
pub(crate) fn make(dir: &Path) -> Result<(), Failure> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(Failure::at(dir, "is not empty; name a new directory")),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(dir).map_err(|error| Failure::at(dir, error))
        }
        Err(error) => Err(Failure::at(dir, format!("{error}; name a new directory"))),
    }
}

/// The genesis of the network in `dir`.
pub(crate) fn genesis(dir: &Path) -> Result<Genesis, Failure> {
    read_genesis(&dir.join(GENESIS_FILE), crate::apps()).map_err(Failure::new)
}

/// What a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A network's directory, as `tercio testnet` makes it.
    Network,
    /// The home of one replica.
    Replica,
    /// The home of one client.
    Client,
}

/// What `dir` is; nothing when it is none of ours.
pub(crate) fn kind(dir: &Path) -> Option<Kind> {
    let has = |name: &str| dir.join(name).exists();
    match () {
        () if has(CONFIG_FILE) => Some(Kind::Replica),
        () if has(CLIENT_FILE) => Some(Kind::Client),
        () if has(CLIENTS) || has(GENESIS_FILE) && has_home(dir) => Some(Kind::Network),
        () => None,
    }
}

/// Whether a replica's home is in `dir`, of whatever number.
fn has_home(dir: &Path) -> bool {
    (0..MAX_REPLICAS as u16).any(|id| home(dir, id).exists())
}

/// A replica's home, or a directory with several, was asked for, and this is none.
pub(crate) fn no_replica(dir: &Path) -> Failure {
    let what = match kind(dir) {
        Some(Kind::Client) => {
            "is the home of a client, and this takes a replica's, or a network's directory; a \
             client's is for `tercio submit`, `query` and `client add`"
        }
        _ => {
            "has no replica's home; name a network's directory as `tercio testnet -o DIR` makes \
             it, or a replica's home"
        }
    };
    Failure::at(dir, what)
}

/// A directory with the homes of replicas was asked for, and this is none.
pub(crate) fn no_network(dir: &Path) -> Failure {
    let what = match kind(dir) {
        Some(Kind::Replica) => format!(
            "is the home of one replica, and this takes a network's directory; `tercio start --dir \
             {}` runs the one",
            dir.display()
        ),
        Some(Kind::Client) => {
            "is the home of a client, and this takes a network's directory; `tercio submit` and \
             `query` take a client's home"
                .into()
        }
        Some(Kind::Network) | None => {
            "has no replica's home (replica-0, and so on); `tercio testnet -o DIR` makes a network"
                .into()
        }
    };
    Failure::at(dir, what)
}

/// One replica's home was asked for: says what else it is.
pub(crate) fn expect_replica(dir: &Path) -> Result<(), Failure> {
    match kind(dir) {
        Some(Kind::Network) => Err(Failure::at(
            dir,
            format!(
                "is a network's directory, and this takes the home of one replica: {}; `tercio up \
                 {}` runs all of them",
                home(dir, 0).display(),
                dir.display()
            ),
        )),
        Some(Kind::Client) => Err(no_replica(dir)),
        Some(Kind::Replica) | None => Ok(()),
    }
}

/// The replicas of a network whose homes are in `dir`.
pub(crate) fn replicas(dir: &Path, genesis: &Genesis) -> Vec<(u16, PathBuf)> {
    let homes = genesis.replicas.keys().map(|id| (id.0, home(dir, id.0)));
    homes.filter(|(_, home)| home.is_dir()).collect()
}

/// The home of a client: `dir` itself when it is one, otherwise that of the client with this name
/// in the network in `dir`, or without a name of the first one.
pub(crate) fn client(dir: &Path, name: Option<&str>) -> Result<PathBuf, Failure> {
    if dir.join(CLIENT_FILE).exists() {
        return match name {
            None => Ok(dir.to_owned()),
            Some(_) => Err(Failure::Usage(format!(
                "{} is the home of one client; leave --client out, or name the network's directory",
                dir.display()
            ))),
        };
    }
    let mut names: Vec<String> = match fs::read_dir(dir.join(CLIENTS)) {
        Ok(entries) => {
            // One that is not asked in yet has keys and nothing else.
            let whole = |entry: &fs::DirEntry| entry.path().join(CLIENT_FILE).exists();
            let entries = entries.flatten().filter(whole);
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        }
        Err(_) => vec![],
    };
    names.sort_by_key(|name| (name.len(), name.clone()));
    let Some(first) = names.first() else {
        let what = match kind(dir) {
            Some(Kind::Replica) => {
                "is the home of a replica, and this takes a client's, or a network's directory; \
                 `tercio start --dir` runs a replica, `tercio status` and `tercio audit` look at it"
            }
            _ => {
                "has no client's home; name a network's directory as `tercio testnet -o DIR` makes \
                 it, or a client's home"
            }
        };
        return Err(Failure::at(dir, what));
    };
    match name {
        None => Ok(client_home(dir, first)),
        Some(name) if names.iter().any(|known| known == name) => Ok(client_home(dir, name)),
        Some(name) => {
            Err(Failure::at(dir, format!("has no client '{name}'; it has {}", names.join(", "))))
        }
    }
}
