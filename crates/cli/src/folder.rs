//! The directory of a network: `genesis.toml`, a home for each replica, and `clients/` with a home
//! for each client. Parts may be missing, on the machine of one operator of several.

use crate::failure::Failure;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tercio_genesis::client_home::CLIENT_FILE;
use tercio_genesis::{GENESIS_FILE, Genesis, read_genesis};
use tercio_network::{CLIENTS, client_home, home};

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

/// The replicas of a network of `n` whose homes are in `dir`.
pub(crate) fn replicas(dir: &Path, n: usize) -> Vec<(u16, PathBuf)> {
    let homes = (0..n as u16).map(|id| (id, home(dir, id)));
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
        return Err(Failure::at(
            dir,
            "has no client's home; name a network's directory as `tercio testnet -o DIR` makes it, \
             or a client's home",
        ));
    };
    match name {
        None => Ok(client_home(dir, first)),
        Some(name) if names.iter().any(|known| known == name) => Ok(client_home(dir, name)),
        Some(name) => {
            Err(Failure::at(dir, format!("has no client '{name}'; it has {}", names.join(", "))))
        }
    }
}
