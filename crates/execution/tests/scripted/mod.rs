//! An executor that does what a test's script says: works late, in bits, or breaks its contract.

#![allow(dead_code, reason = "each test uses its part")]

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tercio_execution::{
    AppError, Application, Executor, InProcess, PreCheck, Proposal, Snapshot, TreeTop, Work,
};
use tercio_types::Digest;

/// How it breaks its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trick {
    /// It gives a block's results twice.
    Twice,
    /// It gives the second of two first.
    Swapped,
    /// It gives a result too many.
    TooMany,
    /// It gives no results.
    TooFew,
    /// It gives nothing, not even when it is waited for.
    Never,
}

/// What it does from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// The most blocks that it has at once.
    pub(crate) room: usize,
    /// How many blocks it gives before it halts.
    pub(crate) gives: usize,
    pub(crate) trick: Option<Trick>,
}

impl Script {
    pub(crate) const GOOD: Self = Self { room: usize::MAX, gives: usize::MAX, trick: None };
    pub(crate) const HALTED: Self = Self { gives: 0, ..Self::GOOD };

    pub(crate) fn tricky(trick: Trick) -> Self {
        Self { trick: Some(trick), ..Self::GOOD }
    }
}

/// A script that changes.
pub(crate) type Director = Arc<Mutex<Script>>;

pub(crate) fn director(script: Script) -> Director {
    Arc::new(Mutex::new(script))
}

pub(crate) fn direct(director: &Director, script: Script) {
    *director.lock().unwrap() = script;
}

pub(crate) struct Scripted {
    inner: InProcess,
    script: Director,
    waiting: VecDeque<Work>,
    /// Whether it executes what it is handed at once, and is late to say so only.
    eager: bool,
    /// What it gives twice.
    again: Option<Work>,
}

impl Scripted {
    pub(crate) fn new(app: Box<dyn Application>, script: &Director) -> Self {
        let (inner, script) = (InProcess::new(app), script.clone());
        Self { inner, script, waiting: VecDeque::new(), eager: false, again: None }
    }

    pub(crate) fn eager(self, eager: bool) -> Self {
        Self { eager, ..self }
    }

    fn done(&mut self) -> Option<Work> {
        let first = self.waiting.pop_front()?;
        if self.eager {
            return Some(first);
        }
        self.inner.submit(first);
        self.inner.poll()
    }
}

impl Executor for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn submit(&mut self, work: Work) {
        assert!(self.credit() > 0, "it was handed more than it takes");
        if !self.eager {
            return self.waiting.push_back(work);
        }
        self.inner.submit(work);
        self.waiting.extend(self.inner.poll());
    }

    fn poll(&mut self) -> Option<Work> {
        let trick = {
            let mut script = self.script.lock().unwrap();
            if script.gives == 0 || self.again.is_none() && self.waiting.is_empty() {
                return None;
            }
            script.gives -= 1;
            script.trick
        };
        match trick {
            Some(Trick::Never) => None,
            Some(Trick::Twice) => self.again.take().or_else(|| {
                self.again = self.done();
                self.again.clone()
            }),
            Some(Trick::Swapped) if self.waiting.len() > 1 => {
                let first = self.done();
                let second = self.done();
                self.again = first;
                second
            }
            Some(Trick::Swapped) => None,
            Some(Trick::TooMany) => self.done().map(|mut work| {
                work.results.push(b"one more");
                work
            }),
            Some(Trick::TooFew) => self.done().map(|mut work| {
                work.results.clear();
                work
            }),
            None => self.done(),
        }
    }

    fn credit(&self) -> usize {
        self.script.lock().unwrap().room.saturating_sub(self.waiting.len())
    }

    /// Waiting is for what halts, too; a trick is one here as well.
    fn wait(&mut self) -> Option<Work> {
        let trick = self.script.lock().unwrap().trick;
        if trick.is_some() { self.poll() } else { self.done() }
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
