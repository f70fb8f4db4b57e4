//! A bank as a replicated application: accounts with balances, deposits by an issuer, transfers
//! that neither make nor lose money, over the engine's keyed store.
//!
//! Clients send a [`Command`] and get an [`Outcome`], both in one canonical binary form. [`Bank`]
//! executes them as a [`tercio_execution::Transaction`]; [`text`] writes and reads all of it for
//! people. `docs/bank.md` states the rules and the bytes.
//!
//! Architecture invariants: the sum of all balances is what accounts began with plus what was
//! deposited; every command declares the accounts that it touches, and touches no other key.

mod account;
mod bank;
mod codec;
mod command;
mod settings;
pub mod text;

pub use account::Account;
pub use bank::Bank;
pub use command::{Command, Outcome, Reject};
pub use settings::{Settings, SettingsError};
