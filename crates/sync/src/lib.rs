//! How a replica gets what it lacks from the others, and gives what they lack.
//!
//! The one that matters: [`Sync`], a pure state machine. It is told what others sent and what the
//! stages of its replica did, and says in [`Step`]s what is to be done: a message to send, something
//! for the log, for execution, or for the ordering protocol.
//!
//! - [`CatchUp`]: blocks that were missed, up to a certified checkpoint, come from another replica.
//! - [`transfer`]: a certified state comes from several, when the blocks are gone or more bytes.
//! - `repair`: damaged blocks are replaced by copies of others'.
//! - `serving`: what others ask for is read round-robin and under a rate limit; [`read_blocks`] and
//!   [`transfer::Server`] read it.
//! - `divergence`: in which keys a state differs that another replica signed.

mod blocks;
mod catch_up;
mod divergence;
mod repair;
mod results;
mod serving;
mod step;
mod sync;
pub mod transfer;

pub use blocks::{BLOCKS_ANSWER_BYTES, Blocks, FetchBlocks, read_blocks};
pub use catch_up::{CatchUp, CatchUpStep, CertifiedBlocks, buffer_bytes};
pub use divergence::Divergence;
pub use repair::{BeyondRepair, Health, RepairStatus};
pub use results::ResultsHealth;
pub use step::{Step, SyncSetup, SyncStatus};
pub use sync::Sync;

use std::time::Duration;
use tercio_types::{Checkpoint, Digest, Height, SeqNum};

/// How a replica catches up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSettings {
    /// How long a peer may take for an answer.
    pub timeout: Duration,
    /// Further behind than this many blocks, a replica fetches state if that is fewer bytes.
    pub state_after: u64,
    /// How many bytes of state others are given each second.
    pub serve_bytes: u64,
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(500), state_after: 4096, serve_bytes: 8 << 20 }
    }
}

/// Where the chain stands that blocks are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The last block's height.
    pub height: Height,
    /// The hash of its header; the chain id at height 0.
    pub block: Digest,
    /// The number that ordered it, or a later one that made no block.
    pub seq: SeqNum,
}

impl Tip {
    /// At a checkpoint.
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        Self { height: checkpoint.height, block: checkpoint.block, seq: checkpoint.seq }
    }
}

/// Where execution stands, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What is executed.
    pub tip: Tip,
    /// The last checkpoint that was computed, or passed while catching up.
    pub checkpoint: Option<Checkpoint>,
}

impl Head {
    /// At a checkpoint.
    pub(crate) fn at(checkpoint: &Checkpoint) -> Self {
        Self { tip: Tip::of(checkpoint), checkpoint: Some(checkpoint.clone()) }
    }
}
