//! An exchange as a replicated application: limit order books with price-time priority over
//! integer ticks and lots, and accounts whose trades conserve every asset.
//!
//! Clients send a [`Command`] and get an [`Outcome`], both in one canonical binary form.
//! [`Exchange`] executes them; it implements [`tercio_execution::Application`]. [`replay`] turns a
//! file of order events into commands and results into files; [`flow`] makes up a market.
//! `docs/exchange.md` states the rules, the bytes, and the files.
//!
//! Architecture invariant: the same commands in the same order give the same outcomes and the same
//! state digest, whatever happened in between (restarts, snapshots, queries).

mod accounts;
mod application;
mod book;
mod codec;
mod command;
mod dirty;
mod exchange;
pub mod flow;
pub mod query;
pub mod replay;
mod settings;
mod slots;
mod state;
pub mod text;

pub use command::{Command, Fill, Outcome, Reject, Side};
pub use exchange::Exchange;
pub use settings::{Settings, SettingsError, SymbolSpec};
