//! Why a replica stops or does not start.

use std::io;
use std::net::SocketAddr;
use tercio_consensus::RecoverError;
use tercio_crypto::sm2::Unavailable;
use tercio_execution::{Divergence, ExecutorFault, ReplayError, RestoreError};
use tercio_ledger::{DataDirError, LedgerError};
use tercio_sync::BeyondRepair;
use tercio_sync::transfer::KeepError;
use tercio_transport::BindError;
use tercio_types::{CheckpointField, Height, SeqNum};
use tercio_wire::DecodeError;
use thiserror::Error;

/// Why a replica cannot go on. All of these are fail-stop: it says so once and does nothing more.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The disk failed, or what is on it is damaged.
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    /// A file cannot be opened.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The processor lacks what the settings ask of it.
    #[error("{0}; take `sm2` out of [verify] in tercio.toml")]
    Unavailable(#[from] Unavailable),
    /// A block of the log or of a certified chain does not execute as it did before.
    #[error(
        "{0}; the data directory and the application do not belong together, or the application \
         is not deterministic"
    )]
    Divergence(#[from] Divergence),
    /// What executes broke its contract.
    #[error(
        "{name}, which executes, does not do as it must: {fault}; mend it, and start this replica again"
    )]
    Executor {
        /// What executes.
        name: &'static str,
        /// How.
        fault: ExecutorFault,
    },
    /// A quorum certified another state than ours.
    #[error(
        "our state at number {seq} (height {height}) is not the one that a quorum certified \
         ({what} differs): this replica computed wrongly and must not go on; compare it with \
         another one, or empty its data directory"
    )]
    StateDiffers {
        /// The checkpoint.
        seq: SeqNum,
        /// The height that it covers.
        height: Height,
        /// The first field that differs.
        what: CheckpointField,
    },
    /// The protocol found that a quorum certified another state than ours.
    #[error(
        "a quorum certified another state than ours at number {seq} ({what} differs): this replica \
         computed wrongly and must not go on; compare it with another one, or empty its data directory"
    )]
    OwnStateDiffers {
        /// The checkpoint.
        seq: SeqNum,
        /// The first field that differs.
        what: CheckpointField,
    },
    /// A body in the block log is no batch.
    #[error("block {height}: the body is no batch ({why}); the log was written by another version")]
    Body {
        /// The block.
        height: Height,
        /// What is wrong with it.
        why: DecodeError,
    },
    /// A block is missing from the log.
    #[error(
        "block {height} is missing from the block log, and no snapshot covers it; empty the data \
         directory and let the replica catch up"
    )]
    MissingBlock {
        /// The block.
        height: Height,
    },
    /// Blocks are damaged, and nobody else has them.
    #[error("{0}")]
    BeyondRepair(#[from] BeyondRepair),
    /// The snapshot is not what its checkpoint names.
    #[error("the snapshot at height {height} cannot be restored: {why}")]
    Snapshot {
        /// Its height.
        height: Height,
        /// What is wrong.
        why: RestoreError,
    },
    /// A snapshot cannot be kept.
    #[error("{0}")]
    Keep(KeepError),
    /// The write-ahead log or the settings make no sense to the protocol.
    #[error("{0}")]
    Recover(#[from] RecoverError),
    /// A stage's thread ended in a panic: a broken invariant of our own.
    #[error("a stage stopped by a failed assertion: {0}")]
    Panicked(String),
    /// The system gives no thread to catch up on.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl From<KeepError> for NodeError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Ledger(error) => Self::Ledger(error),
            differs @ KeepError::Differs { .. } => Self::Keep(differs),
        }
    }
}

/// Why a replica does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The secret key is not that of the replica.
    #[error(
        "the secret key is not that of replica {replica} in the genesis; use the key file that \
         was made for it"
    )]
    WrongKey {
        /// The replica.
        replica: tercio_types::ReplicaId,
    },
    /// The replica is not in the genesis.
    #[error("replica {replica} is not in the genesis, which has replicas {all}")]
    NotAMember {
        /// The replica.
        replica: tercio_types::ReplicaId,
        /// Those that are.
        all: String,
    },
    /// The program does not run the network's protocol.
    #[error(
        "the network orders with the protocol '{name}', and this program has {}; run the network's \
         own",
        .known
    )]
    UnknownProtocol {
        /// The network's.
        name: &'static str,
        /// The program's.
        known: String,
    },
    /// The data directory cannot be used.
    #[error("{0}")]
    DataDir(#[from] DataDirError),
    /// What is in the data directory cannot be used.
    #[error("{0}")]
    Node(#[from] NodeError),
    /// The network cannot be used.
    #[error("{0}")]
    Bind(#[from] BindError),
    /// The address for metrics cannot be used.
    #[error(
        "cannot listen on {address} for metrics: {error}; change `listen` of [metrics] in tercio.toml"
    )]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The process may open too few files for its own and for the links to the other replicas.
    #[error(
        "this process may open {limit} files, and its logs and the links to the other replicas need \
         {needed}; run it after `ulimit -n {needed}` or more (LimitNOFILE= of systemd)"
    )]
    TooFewDescriptors {
        /// The limit.
        limit: usize,
        /// The least that is enough.
        needed: usize,
    },
}

impl NodeError {
    /// Why a block was not executed again by `name`.
    pub(crate) fn of_replay(name: &'static str, error: ReplayError) -> Self {
        match error {
            ReplayError::Divergence(divergence) => Self::Divergence(divergence),
            ReplayError::Executor(fault) => Self::Executor { name, fault },
        }
    }
}
