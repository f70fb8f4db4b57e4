//! What a network is before its first batch, and where its members keep it: the genesis, homes,
//! keys, and the kinds of applications that a genesis can name.
//!
//! - [`Genesis`]: what all replicas and clients of a network must agree on. Its hash is the chain id,
//!   which enters every key and signature.
//! - [`AppKind`]: what an application's author writes so that a genesis can name it and a command
//!   line can talk to it; [`App`] is one with its rules, [`Apps`] all that a binary knows.
//! - [`replica_home`], [`ClientHome`]: the directories of the members.
//!
//! Architecture invariant: nothing here knows any application, nor how replicas run.

mod app;
pub mod client_home;
mod error;
mod files;
mod genesis;
pub mod replica_home;
mod toml_file;

pub use app::{App, AppKind, Apps, Kind, NoRules, Shown};
pub use client_home::ClientHome;
pub use error::{ConfigError, GenesisError};
pub use files::{
    GENESIS_FILE, KEY_FILE, read_genesis, read_secret, read_text, write_genesis, write_secret,
};
pub use genesis::{Genesis, SharedSettings};
pub use toml_file::{At, FileError, Source};
