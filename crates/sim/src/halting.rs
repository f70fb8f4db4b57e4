//! An executor that halts: it takes work and does none of it until it is let go on.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tercio_execution::{
    AppError, Application, Executor, InProcess, PreCheck, Proposal, Snapshot, TreeTop, Work,
};
use tercio_types::Digest;

/// Halts execution of one replica, over its restarts.
#[derive(Clone, Debug, Default)]
pub struct Halt(Arc<AtomicBool>);

impl Halt {
    /// Execution halts, or goes on.
    pub fn set(&self, halted: bool) {
        self.0.store(halted, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Executes an application, unless it is halted.
pub(crate) struct Halting {
    halt: Halt,
    waiting: VecDeque<Work>,
    inner: InProcess,
}

impl Halting {
    pub(crate) fn new(app: Box<dyn Application>, halt: Halt) -> Self {
        Self { halt, waiting: VecDeque::new(), inner: InProcess::new(app) }
    }
}

impl Executor for Halting {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn submit(&mut self, work: Work) {
        self.waiting.push_back(work);
    }

    fn poll(&mut self) -> Option<Work> {
        if self.halt.is_set() {
            return None;
        }
        self.wait()
    }

    /// Blocks that were executed before are executed again whatever halts.
    fn wait(&mut self) -> Option<Work> {
        self.inner.submit(self.waiting.pop_front()?);
        self.inner.poll()
    }

    fn pre_check(&self) -> Arc<dyn PreCheck> {
        self.inner.pre_check()
    }

    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        self.inner.query(question)
    }

    fn build_proposal(&mut self, proposal: &Proposal) -> Vec<usize> {
        self.inner.build_proposal(proposal)
    }

    fn validate_proposal(&mut self, proposal: &Proposal) -> Result<(), AppError> {
        self.inner.validate_proposal(proposal)
    }

    fn state_digest(&mut self) -> Digest {
        self.inner.state_digest()
    }

    fn set_catching_up(&mut self, on: bool) {
        self.inner.set_catching_up(on);
    }

    fn prepare_digest(&mut self) -> bool {
        self.inner.prepare_digest()
    }

    fn state_top(&mut self) -> Option<TreeTop> {
        self.inner.state_top()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.inner.snapshot()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        self.inner.restore(chunks)
    }
}
