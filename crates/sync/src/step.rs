//! What goes in and out of a [`Sync`](crate::Sync): what it begins with, what it wants done, and how it goes.

use crate::transfer::message::FetchState;
use crate::transfer::{Install, Piece, TransferStatus};
use crate::{CertifiedBlocks, Divergence, FetchBlocks, Head, RepairStatus, SyncSettings};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_consensus::Instant;
use tercio_ledger::{Block, BlockResults};
use tercio_types::{CertifiedCheckpoint, ClientId, Membership, ReplicaId, RequestWindow};
use tercio_wire::Kind;

/// What is to be done ([`Sync::poll`](crate::Sync::poll)).
#[derive(Clone, Debug)]
pub enum Step {
    /// Send a message to a replica.
    Send {
        /// To whom.
        to: ReplicaId,
        /// What kind of message.
        kind: Kind,
        /// The number in its key.
        number: u64,
        /// Its body.
        body: Bytes,
    },
    /// For the log: read blocks for a replica; answered by [`Sync::on_blocks_read`](crate::Sync::on_blocks_read).
    ReadBlocks {
        /// Who wants them.
        by: ReplicaId,
        /// Which.
        request: FetchBlocks,
    },
    /// For the log: read pieces of a state for a replica; answered by [`Sync::on_state_read`](crate::Sync::on_state_read).
    ReadState {
        /// Who wants them.
        by: ReplicaId,
        /// Its number for the question.
        number: u64,
        /// Which.
        request: FetchState,
    },
    /// For the log: keep pieces of a state that is being fetched, as long as all are at most
    /// `limit` bytes.
    Stage {
        /// The pieces.
        pieces: Vec<Piece>,
        /// In bytes.
        limit: u64,
    },
    /// For the log: say what was kept; answered by [`Sync::on_own`](crate::Sync::on_own).
    Staged,
    /// For the log: what was kept is of no more use.
    Unstage,
    /// For the log: look at some of its bytes; answered by [`Sync::on_health`](crate::Sync::on_health).
    Scrub {
        /// About how many.
        bytes: u64,
    },
    /// For the log: put copies in the place of damaged blocks; answered by [`Sync::on_health`](crate::Sync::on_health).
    Place {
        /// The copies.
        copies: Vec<Block>,
    },
    /// For the log: put copies in the place of lost results, and with `stripped` those too from which
    /// results were left out; answered by [`Sync::on_health`](crate::Sync::on_health).
    PlaceResults {
        /// The copies, the highest first.
        copies: Vec<BlockResults>,
        /// Whether nobody had whole ones.
        stripped: bool,
    },
    /// For execution: take our own state to pieces; answered by [`Sync::on_own`](crate::Sync::on_own).
    OwnPieces,
    /// For execution: execute; answered by [`Sync::on_replayed`](crate::Sync::on_replayed).
    Replay(CertifiedBlocks),
    /// For execution: go to a state; answered by [`Sync::on_installed`](crate::Sync::on_installed).
    Install(Install),
    /// For the protocol: the checkpoint that it asked for, or a later one, is reached.
    CaughtUp {
        /// What the state stands at.
        certificate: Arc<CertifiedCheckpoint>,
        /// Which of each client's requests are done there.
        windows: BTreeMap<ClientId, RequestWindow>,
    },
}

/// What a [`Sync`] begins with.
#[derive(Clone, Debug)]
pub struct SyncSetup {
    /// Which replica it is.
    pub me: ReplicaId,
    /// Who takes part.
    pub membership: Arc<Membership>,
    /// How it catches up.
    pub settings: SyncSettings,
    /// How many heights late headers carry results and state digest.
    pub lag: u16,
    /// How much memory blocks may take that wait for their certificate
    /// ([`buffer_bytes`](crate::buffer_bytes)).
    pub room: usize,
    /// How many bytes of the block log are scrubbed each second; 0 for none.
    pub scrub_bytes: u64,
    /// What is executed.
    pub head: Head,
}

/// How it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncStatus {
    /// Where execution stands.
    pub head: Head,
    /// How many delivered numbers are not executed yet.
    pub executing: u64,
    /// Since when execution has had deliveries and finished none.
    pub executing_since: Option<Instant>,
    /// Whether blocks or state are being fetched from others.
    pub catching_up: bool,
    /// How many bytes of missed blocks came from others.
    pub fetched_block_bytes: u64,
    /// How the fetching of state goes, or went the last time.
    pub transfer: Option<TransferStatus>,
    /// How the block log is.
    pub repair: RepairStatus,
    /// How states differ that others signed, the last of each replica.
    pub divergences: BTreeMap<ReplicaId, Divergence>,
}
