//! Applications written as transactions over a keyed store that the engine owns.
//!
//! The store brings digest, snapshot and restore with it, and the engine can know what a
//! transaction touches. [`Keyed`] executes one transaction after the other, which makes an
//! [`Application`] of a [`Transaction`].
//!
//! A transaction that touches what it did not declare, or panics, is aborted alone (`view.rs`); a
//! question or a check that panics is declined. So no operation stops the replicas of an application
//! that is a [`Transaction`]. One that is an [`Application`] of its own owes results for opaque
//! batches and changes its state itself: nobody else could undo half a batch, and its panic stops
//! its replica.

use crate::view::attempt_into;
use crate::{
    AppError, Application, Context, Footprint, Operation, PreCheck, Replies, Snapshot, StateView,
    Store, TreeTop, Writes,
};
use bytes::Bytes;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{Digest, Suite};

/// What becomes of a transaction's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They stay.
    Commit,
    /// They are forgotten. The result stands, and says why.
    Abort,
}

/// An application as a function from the store to the store: it has no state of its own that
/// changes. Deterministic as an [`Application`] is.
pub trait Transaction: Send + Sync {
    /// Fills the store that a network begins with; it is empty until then. A function of the
    /// application's settings alone, since every replica makes the same store for itself.
    fn genesis(&self, _store: &mut Store) {}

    /// Executes one operation on `view` and appends its result to `result`. The results of a
    /// package together fit a frame, 16 MiB, or their client never gets them. A panic aborts this
    /// operation alone, at every replica ([`crate::Aborted::Panicked`]).
    fn execute(
        &self,
        tx: &Operation,
        context: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome;

    /// What the operation will touch, as far as it can be told from the operation alone. A
    /// declaration binds: to touch anything else aborts the operation, at every replica
    /// ([`crate::Aborted::OutsideFootprint`]).
    fn footprint(&self, _tx: &Operation) -> Footprint {
        Footprint::Unknown
    }

    /// Answers a question about the current state.
    ///
    /// # Errors
    /// When the question makes no sense.
    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError>;

    /// A cheap look at an operation before it is ordered (see [`PreCheck`]).
    ///
    /// # Errors
    /// Why it can never make sense.
    fn check(&self, _operation: &[u8]) -> Result<(), AppError> {
        Ok(())
    }
}

/// The serial executor: an [`Application`] that runs a [`Transaction`] for each operation, in
/// order.
pub struct Keyed<T> {
    logic: Arc<T>,
    suite: Suite,
    /// Made at its first use: not when it is restored, or only asked for checks.
    store: OnceCell<Store>,
    /// Of the transaction that runs; its memory is used again.
    writes: Writes,
}

impl<T: Transaction> Keyed<T> {
    /// `logic` over the store that its network begins with.
    #[must_use]
    pub fn new(logic: T, suite: Suite) -> Self {
        Self { logic: Arc::new(logic), suite, store: OnceCell::new(), writes: Writes::default() }
    }

    fn store(&self) -> &Store {
        self.store.get_or_init(|| {
            let mut store = Store::new(self.suite);
            self.logic.genesis(&mut store);
            store
        })
    }

    fn store_mut(&mut self) -> &mut Store {
        self.store();
        self.store.get_mut().expect("it was just made")
    }
}

/// Has an author's code answer from what it cannot change. The text is the same at all replicas,
/// since the answer to an ordered read is agreed.
fn unpanicked<R>(answer: impl FnOnce() -> Result<R, AppError>) -> Result<R, AppError> {
    if !stands(Defence::F54PanicsAbort) {
        return answer();
    }
    let panicked = |_| Err(AppError("the application panicked over it".into()));
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(panicked)
}

/// The look that a transaction takes at operations.
struct Look<T>(Arc<T>);

impl<T: Transaction> PreCheck for Look<T> {
    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        unpanicked(|| self.0.check(operation))
    }
}

impl<T: Transaction + 'static> Application for Keyed<T> {
    fn execute(&mut self, context: &Context, operations: &[Operation], replies: &mut Replies) {
        self.store();
        let Self { logic, store, writes, .. } = self;
        let store = store.get_mut().expect("it was just made");
        for tx in operations {
            replies.push_attempt(|result| {
                let source = &mut &*store;
                let (end, _) = attempt_into(&**logic, tx, context, source, None, writes, result);
                end.map(|_| ())
            });
            for (key, value) in writes.drain() {
                match value {
                    Some(value) => store.set(key, value),
                    None => store.delete(&key),
                };
            }
        }
    }

    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        let store = self.store();
        unpanicked(|| self.logic.query(question, store))
    }

    fn pre_check(&self) -> Arc<dyn PreCheck> {
        Arc::new(Look(self.logic.clone()))
    }

    fn state_digest(&mut self) -> Digest {
        self.store_mut().digest()
    }

    fn set_catching_up(&mut self, on: bool) {
        self.store_mut().set_lazy(on);
    }

    fn prepare_digest(&mut self) -> bool {
        self.store_mut().encode_some()
    }

    fn state_top(&mut self) -> Option<TreeTop> {
        Some(self.store_mut().top())
    }

    fn snapshot(&mut self) -> Snapshot {
        self.store_mut().snapshot()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        self.store = Store::from_snapshot(self.suite, chunks)?.into();
        Ok(())
    }
}
