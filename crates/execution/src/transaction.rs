//! Applications written as transactions over a keyed store that the engine owns.
//!
//! The store brings digest, snapshot and restore with it, and the engine can know what a
//! transaction touches. [`Keyed`] executes one transaction after the other, which makes an
//! [`Application`] of a [`Transaction`].

use crate::{
    AppError, Application, Context, Operation, PreCheck, Replies, Snapshot, Store, TreeTop,
};
use bytes::Bytes;
use std::cell::OnceCell;
use std::sync::Arc;
use tercio_types::{Digest, Suite};

/// What becomes of a transaction's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They stay.
    Commit,
    /// They are undone. The result stands, and says why.
    Abort,
}

/// Which keys a transaction touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Footprint {
    /// Nobody knows before it has run.
    #[default]
    Unknown,
    /// These and no others.
    Declared {
        /// The keys that it may read.
        reads: Vec<Bytes>,
        /// The keys that it may read or write.
        writes: Vec<Bytes>,
    },
}

impl Footprint {
    fn may_read(&self, key: &[u8]) -> bool {
        match self {
            Self::Unknown => true,
            Self::Declared { reads, .. } => self.may_write(key) || reads.iter().any(|k| k == key),
        }
    }

    fn may_write(&self, key: &[u8]) -> bool {
        match self {
            Self::Unknown => true,
            Self::Declared { writes, .. } => writes.iter().any(|k| k == key),
        }
    }
}

/// An application as a function from the store to the store: it has no state of its own that
/// changes. Deterministic as an [`Application`] is.
pub trait Transaction: Send + Sync {
    /// Fills the store that a network begins with; it is empty until then. A function of the
    /// application's settings alone, since every replica makes the same store for itself.
    fn genesis(&self, _store: &mut Store) {}

    /// Executes one operation on `view` and appends its result to `result`. The results of a
    /// package together fit a frame, 16 MiB, or their client never gets them. It must not panic,
    /// whatever the bytes: every replica would, on the same operation, and again at each start,
    /// until a mended program is installed.
    fn execute(
        &self,
        tx: &Operation,
        context: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome;

    /// What the operation will touch, as far as it can be told from the operation alone. A
    /// declaration binds: to touch anything else is a fault of the application and stops it.
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

/// The store as one transaction sees it. It sees its own writes, and they can be undone.
pub struct StateView<'a> {
    store: &'a mut Store,
    footprint: Footprint,
    /// What each write replaced, in order.
    undo: &'a mut Vec<(Bytes, Option<Bytes>)>,
}

impl StateView<'_> {
    /// The value of a key.
    ///
    /// # Panics
    /// When the footprint does not declare the key; so do the two below.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        assert!(self.footprint.may_read(key), "a read outside the declared footprint");
        self.store.get(key)
    }

    /// Gives a key a value; whether it had one.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        assert!(self.footprint.may_write(key), "a write outside the declared footprint");
        let old = self.store.put(key, value);
        let replaced = old.is_some();
        self.undo.push((Bytes::copy_from_slice(key), old));
        replaced
    }

    /// Takes a key's value away; whether it had one.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        assert!(self.footprint.may_write(key), "a write outside the declared footprint");
        let old = self.store.delete(key);
        let existed = old.is_some();
        if existed {
            self.undo.push((Bytes::copy_from_slice(key), old));
        }
        existed
    }

    /// All keys from `from` on with their values, in ascending order.
    ///
    /// # Panics
    /// When the footprint is declared: which keys a range meets is not known before it runs.
    pub fn range<'s>(&'s self, from: &'s [u8]) -> impl Iterator<Item = (&'s Bytes, &'s Bytes)> {
        assert!(self.footprint == Footprint::Unknown, "a range under a declared footprint");
        self.store.range(from)
    }

    fn finish(self, outcome: Outcome) {
        if outcome == Outcome::Commit {
            self.undo.clear();
        }
        while let Some((key, old)) = self.undo.pop() {
            match old {
                Some(value) => self.store.put(&key, &value),
                None => self.store.delete(&key),
            };
        }
    }
}

/// The serial executor: an [`Application`] that runs a [`Transaction`] for each operation, in
/// order.
pub struct Keyed<T> {
    logic: Arc<T>,
    suite: Suite,
    /// Made at its first use: not when it is restored, or only asked for checks.
    store: OnceCell<Store>,
    undo: Vec<(Bytes, Option<Bytes>)>,
}

impl<T: Transaction> Keyed<T> {
    /// `logic` over the store that its network begins with.
    #[must_use]
    pub fn new(logic: T, suite: Suite) -> Self {
        Self { logic: Arc::new(logic), suite, store: OnceCell::new(), undo: Vec::new() }
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

/// The look that a transaction takes at operations.
struct Look<T>(Arc<T>);

impl<T: Transaction> PreCheck for Look<T> {
    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        self.0.check(operation)
    }
}

impl<T: Transaction + 'static> Application for Keyed<T> {
    fn execute(&mut self, context: &Context, operations: &[Operation], replies: &mut Replies) {
        self.store();
        let Self { logic, store, undo, .. } = self;
        let store = store.get_mut().expect("it was just made");
        for tx in operations {
            let footprint = logic.footprint(tx);
            let mut view = StateView { store, footprint, undo };
            replies.push_with(|result| {
                let outcome = logic.execute(tx, context, &mut view, result);
                view.finish(outcome);
            });
        }
    }

    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        self.logic.query(question, self.store())
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
