//! The engine: turns ordered batches into blocks, replies and checkpoints, exactly once an operation.
//!
//! It has two halves, which may be on different threads: the [`Chain`] appends batches, and
//! [`Execution`] executes what was appended, any time later. An `Engine` is both in step: what a
//! replica is opened with, and what executes a log again.

use crate::{
    Application, Chain, Executed, Execution, Executor, ExecutorFault, InProcess, RestoreError,
};
use bytes::Bytes;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tercio_types::{Batch, BlockHeader, Checkpoint, Digest, Height, Membership, SeqNum};
use tercio_wire::EncodedBatch;
use thiserror::Error;

/// Why a logged block cannot be executed again. Either the log is not of this chain and state, or
/// the application is not deterministic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("block {height} diverges in {field}: the log has {logged}, execution gives {computed}")]
pub struct Divergence {
    /// The height that was to be executed.
    pub height: Height,
    /// The first field of the header that differs.
    pub field: &'static str,
    /// Its value in the log.
    pub logged: String,
    /// Its value here.
    pub computed: String,
}

/// Chain and execution in step: each block is executed before the next is appended.
pub struct Engine {
    chain: Chain,
    execution: Execution,
}

impl Engine {
    /// An engine at genesis: height 0, no client has executed anything, `app` in its first state,
    /// the membership `genesis`.
    /// Headers carry results and state digest `lag` heights late; 0 means not at all (each block
    /// then costs no state digest).
    #[must_use]
    pub fn new(app: Box<dyn Application>, genesis: Arc<Membership>, lag: u16) -> Self {
        Self::over(Box::new(InProcess::new(app)), genesis, lag)
    }

    /// As [`Self::new`], with operations executed by `executor`.
    #[must_use]
    pub fn over(executor: Box<dyn Executor>, genesis: Arc<Membership>, lag: u16) -> Self {
        let execution = Execution::new(executor, genesis, lag);
        Self { chain: execution.chain(), execution }
    }

    /// The two halves, each to be used by its own.
    #[must_use]
    pub fn split(self) -> (Chain, Execution) {
        (self.chain, self.execution)
    }

    /// Executes the batch that was ordered under `seq`. `batch_digest` is the batch's own.
    ///
    /// # Panics
    /// When `seq` is not above the last one, or the executor breaks its contract: an application owes
    /// exactly one result an operation.
    pub fn execute(&mut self, seq: SeqNum, batch: &Batch, batch_digest: Digest) -> Executed {
        let ordered = self.chain.order(seq, batch, batch_digest);
        let (batch, bytes, digest) = (batch.clone(), Bytes::new(), batch_digest);
        let body = Arc::new(EncodedBatch { batch, bytes, digest });
        let executed = self.execution.execute(ordered, Some(body));
        let executed = executed.unwrap_or_else(|fault| panic!("{fault}"));
        if let Some(block) = &executed.block {
            self.chain.executed(block.header.height, executed.late);
        }
        executed
    }

    /// Executes a logged block again, on recovery. That `body` is what the header
    /// names is the caller's to know: the log checks its records.
    ///
    /// # Errors
    /// When the header would be another; nothing was executed then. Results and state of this
    /// block show in the checkpoint after it, and in the headers `lag` above.
    pub fn replay(
        &mut self,
        header: &BlockHeader,
        body: EncodedBatch,
    ) -> Result<Executed, ReplayError> {
        self.execution.replay(&mut self.chain, header, body)
    }

    /// As [`Execution::restore`]; the chain goes on from there.
    ///
    /// # Errors
    /// As there.
    pub fn restore(
        &mut self,
        checkpoint: &Checkpoint,
        chunks: &[(Bytes, Bytes)],
    ) -> Result<(), RestoreError> {
        self.execution.restore(checkpoint, chunks)?;
        self.chain = self.execution.chain();
        Ok(())
    }
}

/// All that one may ask an engine is asked of its execution.
impl Deref for Engine {
    type Target = Execution;

    fn deref(&self) -> &Execution {
        &self.execution
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut Execution {
        &mut self.execution
    }
}

/// Why a logged block was not executed again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The header would be another.
    #[error(transparent)]
    Divergence(#[from] Divergence),
    /// The executor broke its contract.
    #[error("the executor broke its contract: {0}")]
    Executor(#[from] ExecutorFault),
}
