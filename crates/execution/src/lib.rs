//! Execution: what turns ordered batches into results and state.
//!
//! [`Engine`] executes batches exactly once an operation, answers packages, chains blocks and makes
//! checkpoints. What an operation means is an [`Application`]'s business: one that keeps its own
//! state, or a [`Transaction`] over the engine's [`Store`], which [`Keyed`] executes in order.
//! [`MerkleMap`] is the incremental digest of all of them.
//!
//! Architecture invariant: nothing here knows consensus.

mod answers;
mod application;
mod chain;
mod chunk;
mod client_table;
mod contents;
mod engine;
mod execution;
mod executor;
mod key_bits;
mod merkle_map;
mod pages;
mod reasons;
mod restore;
mod snapshot;
mod store;
mod system;
mod top;
mod transaction;
mod tree;
mod trie;
mod view;
mod writes;

pub use answers::{PackageReplies, PackageReply};
pub use application::{AppError, Application, Context, Operation, PreCheck, Proposal, Replies};
pub use chain::{Chain, LATEST, Ordered, OrderedBlock};
pub use chunk::CHUNK_BYTES;
pub use client_table::{KEPT_BYTES, KEPT_REPLIES};
pub use engine::{Divergence, Engine, ReplayError};
pub use execution::{Chained, Executed, ExecutedBlock, Execution, Late};
pub use executor::{Executor, ExecutorFault, InProcess, Run, Wake, Work};
pub use merkle_map::MerkleMap;
pub use restore::{APP, CLIENT, ENGINE, RestoreError, engine_chunk_holds};
pub use snapshot::Snapshot;
pub use store::Store;
pub use system::membership_digest;
pub use top::{LabelRange, Shown, TOP_LEVELS, TopNode, TreeTop};
pub use transaction::{Keyed, Outcome, Transaction};
pub use tree::{
    MAX_CHUNK, MAX_LABEL, TreeBuilder, check_contract, chunks_root, inner_digest, leaf_digest,
};
pub use view::{
    Aborted, Accesses, Attempt, Footprint, KeyRange, StateSource, StateView, Visit, attempt,
};
pub use writes::Writes;
