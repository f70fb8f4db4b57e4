//! A key-value store as a replicated application: get, put, delete, compare-and-swap, and scans of
//! a range of keys, over the engine's keyed store.
//!
//! Clients send a [`Command`] and get a [`Reply`], both in one canonical binary form; a [`Query`]
//! reads without ordering. [`Kv`] executes them as a [`tercio_execution::Transaction`]: keys and
//! values stand in the engine's store as the clients gave them. [`text`] writes and reads all of
//! it for people. `docs/kv.md` states the rules and the bytes.
//!
//! Architecture invariant: every command but a scan declares the one key that it touches.

mod codec;
mod command;
mod kv;
mod settings;
pub mod text;

pub use command::{Command, Page, Query, Reject, Reply, Scan};
pub use kv::Kv;
pub use settings::{Settings, SettingsError};
