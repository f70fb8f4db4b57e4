//! Fetching a certified state from several replicas, piece by piece: `docs/protocol/state-transfer.md`
//! has the rules.
//!
//! - [`Transfer`] asks, checks and puts together; a pure state machine.
//! - [`message`] is what is said, [`Pieces`] what is known by its digest.
//! - What was fetched is kept on disk ([`Piece`], [`tercio_ledger::Staging`]) until the state is
//!   whole and a snapshot of the replica's own.
//! - `serve` answers from a snapshot's file, and `keep` writes one; both in slices.

mod fetch;
mod keep;
pub mod message;
mod pieces;
mod serve;
mod status;

pub use fetch::{Install, Transfer, TransferStep};
pub use keep::{Keep, KeepError};
pub use pieces::{Piece, Pieces};
pub use serve::Server;
pub use status::{SourceStatus, TransferStatus};
