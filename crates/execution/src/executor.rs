//! What executes the operations of blocks, here or elsewhere.
//!
//! - The engine decides what is executed, exactly once, and hands it over block by block
//!   ([`Executor::submit`]); what it gave comes back in the same order, at once or any time later
//!   ([`Executor::poll`]). Nothing of ordering waits for it.
//! - The engine hands over no more than the executor takes ([`Executor::credit`]).
//! - The state is that after the last block that came back. Digests and snapshots are asked for only
//!   when nothing is under way; questions, and a look at a proposal, at any time.
//!
//! [`InProcess`] makes an executor of an [`Application`]: it executes as it is handed work.

use crate::{
    AppError, Application, Context, Operation, PreCheck, Proposal, Replies, Snapshot, TreeTop,
};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tercio_types::{Digest, Height};
use tercio_wire::ResultStatus;

/// A part of a block's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// Execute these of the block's operations.
    Operations(Range<usize>),
    /// Answer a question about the state as it is between two runs of operations.
    Read(Bytes),
}

/// The operations of one block that are to be executed: each once, duplicates were taken out.
#[derive(Clone, Debug)]
pub struct Work {
    /// Which block, and when.
    pub context: Context,
    /// Its operations.
    pub operations: Vec<Operation>,
    /// In which order operations and reads follow each other.
    pub runs: Vec<Run>,
    /// One result an operation and one a read, in order: empty when it is handed over.
    pub results: Replies,
}

impl Work {
    /// How many results it owes.
    #[must_use]
    pub fn owed(&self) -> usize {
        let reads = self.runs.iter().filter(|run| matches!(run, Run::Read(_))).count();
        self.operations.len() + reads
    }

    /// Adds the result of an ordered read: its status, the height at which it was answered, and the
    /// answer; or why there is none.
    pub fn push_answer(&mut self, answer: Result<Bytes, AppError>) {
        let height = self.context.height;
        self.results.push_with(|out| match answer {
            Ok(answer) => {
                out.push(ResultStatus::Executed as u8);
                out.extend_from_slice(&height.0.to_le_bytes());
                out.extend_from_slice(&answer);
            }
            Err(AppError(why)) => {
                out.push(ResultStatus::Declined as u8);
                out.extend_from_slice(why.as_bytes());
            }
        });
    }
}

/// Tells whoever drives the engine that [`Executor::poll`] has something; may be called on any thread,
/// and more often than needed.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Executes blocks.
pub trait Executor: Send {
    /// What errors call it.
    fn name(&self) -> &'static str;

    /// Takes the work of the next block. Blocks come in order, without gaps but for those that have no
    /// work.
    fn submit(&mut self, work: Work);

    /// The work of the next block that is done, with its results. In the order of
    /// [`Self::submit`], each once: the replica stops otherwise.
    fn poll(&mut self) -> Option<Work>;

    /// How many more blocks it takes now.
    fn credit(&self) -> usize {
        usize::MAX
    }

    /// Waits until there is something to poll, and gives it. Asked only where a replica can go no
    /// further without: as it starts, and when it catches up. One whose work is not done when `submit`
    /// returns has to bring its own: nothing stops the replica.
    fn wait(&mut self) -> Option<Work> {
        self.poll()
    }

    /// Whom to call when there is something to poll. One whose work is done when `submit` returns calls
    /// nobody.
    fn set_wake(&mut self, _wake: Wake) {}

    /// What looks at operations before they are ordered.
    fn pre_check(&self) -> Arc<dyn PreCheck>;

    /// As [`Application::query`].
    ///
    /// # Errors
    /// When the question makes no sense.
    fn query(&self, question: &[u8]) -> Result<Bytes, AppError>;

    /// As [`Application::build_proposal`].
    fn build_proposal(&mut self, proposal: &Proposal) -> Vec<usize>;

    /// As [`Application::validate_proposal`].
    ///
    /// # Errors
    /// A veto.
    fn validate_proposal(&mut self, proposal: &Proposal) -> Result<(), AppError>;

    /// As [`Application::state_digest`].
    fn state_digest(&mut self) -> Digest;

    /// As [`Application::set_catching_up`].
    fn set_catching_up(&mut self, on: bool);

    /// As [`Application::prepare_digest`].
    fn prepare_digest(&mut self) -> bool;

    /// As [`Application::state_top`].
    fn state_top(&mut self) -> Option<TreeTop>;

    /// As [`Application::snapshot`].
    fn snapshot(&mut self) -> Snapshot;

    /// As [`Application::restore`].
    ///
    /// # Errors
    /// When the chunks are no snapshot.
    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError>;
}

/// How an executor broke its contract: the replica cannot go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorFault {
    /// It gave results that nobody waits for.
    #[error("it gave results of block {0}, which it owes nobody: given twice, or never asked for")]
    NotOwed(Height),
    /// It gave the results of another block than the next.
    #[error("it gave results of block {given} where those of block {owed} are due")]
    OutOfOrder {
        /// The next.
        owed: Height,
        /// What it gave.
        given: Height,
    },
    /// It gave too many results or too few.
    #[error("it gave {given} results for the {owed} operations of block {height}")]
    Count {
        /// The block.
        height: Height,
        /// How many operations and reads it has.
        owed: usize,
        /// How many results came.
        given: usize,
    },
    /// It was waited for, and gave nothing.
    #[error("it was waited for and gave no results of block {0}")]
    Nothing(Height),
}

/// An application in this process, executed by whoever hands work over.
pub struct InProcess {
    app: Box<dyn Application>,
    done: VecDeque<Work>,
}

impl InProcess {
    /// Executes with `app`, which is in its first state.
    #[must_use]
    pub fn new(app: Box<dyn Application>) -> Self {
        Self { app, done: VecDeque::new() }
    }
}

impl From<Box<dyn Application>> for Box<dyn Executor> {
    fn from(app: Box<dyn Application>) -> Self {
        Box::new(InProcess::new(app))
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InProcess").field(&self.app.name()).finish()
    }
}

impl Executor for InProcess {
    fn name(&self) -> &'static str {
        self.app.name()
    }

    fn submit(&mut self, mut work: Work) {
        let runs = std::mem::take(&mut work.runs);
        for run in &runs {
            match run {
                Run::Operations(range) => {
                    let operations = &work.operations[range.clone()];
                    self.app.execute(&work.context, operations, &mut work.results);
                }
                Run::Read(question) => work.push_answer(self.app.query(question)),
            }
        }
        work.runs = runs;
        self.done.push_back(work);
    }

    fn poll(&mut self) -> Option<Work> {
        self.done.pop_front()
    }

    fn pre_check(&self) -> Arc<dyn PreCheck> {
        self.app.pre_check()
    }

    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        self.app.query(question)
    }

    fn build_proposal(&mut self, proposal: &Proposal) -> Vec<usize> {
        self.app.build_proposal(proposal)
    }

    fn validate_proposal(&mut self, proposal: &Proposal) -> Result<(), AppError> {
        self.app.validate_proposal(proposal)
    }

    fn state_digest(&mut self) -> Digest {
        self.app.state_digest()
    }

    fn set_catching_up(&mut self, on: bool) {
        self.app.set_catching_up(on);
    }

    fn prepare_digest(&mut self) -> bool {
        self.app.prepare_digest()
    }

    fn state_top(&mut self) -> Option<TreeTop> {
        self.app.state_top()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.app.snapshot()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        self.app.restore(chunks)
    }
}
